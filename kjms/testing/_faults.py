"""Faults that a test asks an in-memory Kafka for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kjms.engine.kafka import KafkaError
from kjms.testing._clock import Clock

if TYPE_CHECKING:
    from kjms.testing._cluster import Client, Cluster

__all__ = ["Faults"]


class Faults:
    """What goes wrong; the cluster's lock is held by all that use it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def is_away(self, client: Client) -> bool:
        """Return whether *client* reaches no broker."""
        return False

    def refusal(self, operation: str, *, topic: str = "", group: str = "", id: str = "") -> KafkaError | None:
        """Return the error with which the cluster refuses *operation*, for want of a right."""
        return None

    def failure(self, operation: str, *, topic: str = "", group: str = "", id: str = "") -> KafkaError | None:
        """Return the error with which *operation* is to fail."""
        return None

    @contextmanager
    def request(
        self,
        cluster: Cluster,
        client: Client,
        operation: str,
        *,
        topic: str = "",
        group: str = "",
        id: str = "",
        until: float = 0.0,
        wait: bool = False,
    ) -> Iterator[None]:
        """Hold the lock while *client* has the cluster do *operation*, and raise what goes wrong with it."""
        with cluster.lock:
            cluster.expire()
            yield
