"""The health of a bridge: its thread makes progress, and both sides are there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kjms.health import Check, Heartbeat, Unhealthy, cluster

if TYPE_CHECKING:
    from kjms.bridge._peer_link import PeerLink
    from kjms.client.connection import Connection

__all__ = ["BridgeHealth"]

STUCK_SECONDS: Final = 300.0  # more than the steps of a round take in an outage, with timeouts of 60 s each


class BridgeHealth:
    """The checks of one bridge, for any thread.

    Args:
        peer: Returns the link to the other broker; None: there is none yet.
        place: The other broker's URL, without a password.

    Attributes:
        progress: What the bridge's thread beats.
    """

    def __init__(self, peer: Callable[[], PeerLink | None], place: str) -> None:
        self._peer = peer
        self._place = place
        self._cluster: Check | None = None
        self.progress = Heartbeat(STUCK_SECONDS)

    @property
    def live(self) -> Mapping[str, Check]:
        """The checks of liveness, by name."""
        return {"bridge": self.progress}

    @property
    def ready(self) -> Mapping[str, Check]:
        """The checks of readiness, by name."""
        return {"kafka": self._check_kafka, "broker": self._check_broker}

    @contextlib.contextmanager
    def connected(self, connection: Connection) -> Iterator[None]:
        """Check the cluster of *connection* while the block runs."""
        self._cluster = cluster(connection)
        self.progress.beat()
        try:
            yield
        finally:
            self._cluster = None

    def _check_kafka(self) -> str:
        check = self._cluster
        if check is None:
            raise Unhealthy("the bridge is not connected to Kafka: it starts or ends")
        return check()

    def _check_broker(self) -> str:
        peer = self._peer()
        if peer is None or not peer.is_connected:
            raise Unhealthy(f"not connected to {self._place}")
        return f"connected to {self._place}"
