"""Moving messages between another broker and kjms: what both directions share."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from kjms.bridge._health import BridgeHealth
from kjms.bridge._link_spec import LinkSpec
from kjms.bridge._mark import there, unmarked_only
from kjms.bridge._metrics import BridgeMetrics
from kjms.bridge._options import BridgeOptions, PeerOptions
from kjms.bridge._pace import Pace
from kjms.bridge._peer_link import PeerLink
from kjms.checking import checked
from kjms.client.brokered_session import BrokeredSession
from kjms.client.connection import Connection
from kjms.client.engine_access import options_of
from kjms.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic
from kjms.errors import IllegalStateException, InvalidDestinationException, JMSException, shown

if TYPE_CHECKING:
    from kjms import ConnectionFactory
    from kjms.options import FactoryOptions

__all__ = ["Bridge", "Progress"]

_log = logging.getLogger("kjms.bridge")

BATCH: Final = 1_000  # messages that are moved together
BATCH_BYTES: Final = 4 << 20
LONGEST_WAIT: Final = 0.2  # seconds between looks at whether it is over
MOST_LEFT: Final = 100
RETRY_SECONDS: Final = 1.0


class Progress(NamedTuple):
    """What a bridge has done so far.

    Attributes:
        moved: Messages that are on the other side, and gone from where they were.
        repeats: Messages that came again and were dropped, since they are on the other side already.
        left: Messages that could not be moved; the log says what was done with each.
    """

    moved: int = 0
    repeats: int = 0
    left: int = 0


class Tally:
    """Counts what a bridge has done; changed by the bridge's thread."""

    def __init__(self) -> None:
        self.moved = 0
        self.repeats = 0
        self._left: dict[object, str] = {}  # why each of them could not be moved

    @property
    def progress(self) -> Progress:
        """What was done so far; for any thread."""
        return Progress(self.moved, self.repeats, len(self._left))

    def leave(self, message: object, reason: str) -> None:
        """Note that a message, known by its id, could not be moved."""
        if message not in self._left:
            _log.warning("a message could not be moved: %s", reason)
        self._left[message] = reason

    def check(self) -> None:
        """Raise JMSException if too many messages could not be moved."""
        if len(self._left) > MOST_LEFT:
            last = next(reversed(self._left.values()))
            raise JMSException(f"more than {MOST_LEFT} messages could not be moved; the last one: {last}")


class Bridge:
    """Moves messages in one direction, until it is done or stopped.

    Args:
        factory: Where kjms is.
        peer: Where the other broker is.
        source: The queue to move messages from, or the topic to follow with a durable subscription.
        target: Where they go; None: what is called as the source is.
        options: Which messages, how fast, and until when.
        user: The name for Kafka's SASL.
        password: The password for it.

    Raises:
        InvalidDestinationException: A destination is temporary.
    """

    _is_inward = True

    @checked
    def __init__(
        self,
        factory: ConnectionFactory,
        peer: PeerOptions,
        source: Destination,
        target: Destination | None = None,
        options: BridgeOptions | None = None,
        *,
        user: str | None = None,
        password: str | None = None,
    ) -> None:
        target = source if target is None else target
        for each in (source, target):
            if isinstance(each, TemporaryQueue | TemporaryTopic) or not isinstance(each, Queue | Topic):
                raise InvalidDestinationException(f"a bridge connects queues and topics, not {shown(each)}")
        self._options = options or BridgeOptions()
        self._peer_options = peer
        self._source = source
        self._target = target
        self._factory_options = options_of(factory)
        self._login = user, password
        here = target if self._is_inward else source
        self.name = self._options.name or f"{peer.host}:{peer.port}/{here._name}"
        """What it is called."""
        self._is_stopped = threading.Event()
        self._wake: Callable[[], None] = lambda: None
        self._interrupt: Callable[[], None] = lambda: None  # what waits for Kafka
        self._tally = Tally()
        self._pace = Pace(self._options.rate, time.monotonic())
        self._last_message_at = 0.0
        self._peer: PeerLink | None = None
        self.health = BridgeHealth(lambda: self._peer, peer._place)
        """Its checks, for a health server."""

    def __repr__(self) -> str:
        direction = "from" if self._is_inward else "to"
        return f"<{type(self).__name__} {self.name!r} {direction} {self._peer_options._place}: {self.progress}>"

    @property
    def progress(self) -> Progress:
        """What it has done so far; for any thread."""
        return self._tally.progress

    @property
    def is_connected(self) -> bool:
        """Whether it runs and the broker is there; for any thread."""
        return self._peer is not None and self._peer.is_connected

    def metrics(self) -> tuple[str, bytes]:
        """Return the content type and the text of its metrics, for `kjms.health.HealthServer`; for any thread.

        prometheus_client has to be installed.
        """
        return BridgeMetrics(self.name, lambda: self.progress, lambda: self.is_connected).exposition()

    @property
    def is_preparing(self) -> bool:
        """Whether `run` has not come to the broker yet: it may be waiting for Kafka."""
        return self._peer is None

    @property
    def has_begun(self) -> bool:
        """Whether the broker has been there since `run` was called, so that messages may have been moved."""
        return self._peer is not None and self._peer.connections > 0

    def stop(self) -> None:
        """End `run` soon, also while the broker or Kafka is not there; for any thread."""
        self._is_stopped.set()
        self._interrupt()
        if self._peer is not None and not self._peer.connections:
            self._peer.give_up()
        self._wake()

    def run(self) -> Progress:
        """Move messages until there were `BridgeOptions.count`, none came for `BridgeOptions.idle`, or `stop`.

        Returns:
            What was done. What was not moved is where it was.

        Raises:
            JMSSecurityException: The broker or Kafka does not let the bridge in, or not do that.
            InvalidDestinationException: There is no such queue or topic.
            InvalidClientIDException: A bridge of that name runs already.
            JMSException: The broker or Kafka does not answer at the beginning, or refuses; later on both are waited
                for. More than 100 messages could not be moved.
        """
        with Connection(self._own_options, *self._login) as connection, self.health.connected(connection):
            session = connection._open_session(BrokeredSession, BrokeredSession.INDIVIDUAL_ACKNOWLEDGE)
            self._wake = session.wake
            self._prepare(connection, session)
            if self._is_stopped.is_set():  # while Kafka was asked
                return self.progress
            self._peer = peer = PeerLink(self._peer_options, self._spec(), self._window, session.wake)
            try:
                peer.start()
                if not peer.connections:  # it was stopped before
                    return self.progress
                _log.info("bridge %r: the broker is there, messages move", self.name)
                self._last_message_at = time.monotonic()
                while not self._is_over(peer):
                    self.health.progress.beat()
                    session.wait(self._timeout())
                    self._step(session, peer)
                self._finish(session, peer)
            finally:
                self._wake = lambda: None
                peer.close()
                self._give_up(session)
        return self.progress

    def end_subscription(self) -> None:
        """End the durable subscription by which the bridge follows its source; it must not run.

        Raises:
            IllegalStateException: The source is a queue.
            JMSException: There is no such subscription, or it is in use.
        """
        if not isinstance(self._source, Topic):
            raise IllegalStateException(f"{self._source} is not a topic, and only topics have subscriptions")
        self._unsubscribe()

    # What a direction adds.

    def _prepare(self, connection: Connection, session: BrokeredSession) -> None:
        raise NotImplementedError

    def _step(self, session: BrokeredSession, peer: PeerLink) -> None:
        raise NotImplementedError

    def _finish(self, session: BrokeredSession, peer: PeerLink) -> None:
        raise NotImplementedError

    def _give_up(self, session: BrokeredSession) -> None:
        """Give back what was sent and may have arrived."""

    def _unsubscribe(self) -> None:
        raise NotImplementedError

    @property
    def _is_busy(self) -> bool:
        """Whether there are messages on their way."""
        raise NotImplementedError

    # What they share.

    @property
    def _window(self) -> int:
        """How many messages may be on their way now."""
        window = self._options.window
        if self._options.rate is not None:
            window = min(window, max(1, round(self._options.rate)))  # other consumers of the broker can have the rest
        return max(window if self._remaining is None else min(window, self._remaining), 0)

    @property
    def _remaining(self) -> int | None:
        count = self._options.count
        return None if count is None else count - self._tally.moved

    @property
    def _own_options(self) -> FactoryOptions:
        """Those of a connection that no other bridge of this name and direction can have meanwhile."""
        direction = "in" if self._is_inward else "out"
        return replace(self._factory_options, client_id=f"kjms-bridge-{direction} {self.name}")

    def _spec(self) -> LinkSpec:
        options = self._peer_options
        other = self._source if self._is_inward else self._target
        return LinkSpec(
            is_inward=self._is_inward,
            address=there(other, options.queue_prefix, options.topic_prefix),
            is_topic=isinstance(other, Topic),
            selector=self._selector if self._is_inward else None,
            has_own_selector=bool(self._options.selector),
            container=f"kjms-bridge {self.name}",
            link=self.name,
        )

    @property
    def _selector(self) -> str:
        return unmarked_only(self._options.selector, self.name)

    def _is_over(self, peer: PeerLink) -> bool:
        if peer.failure is not None:
            raise peer.failure
        self._tally.check()
        if self._is_stopped.is_set():
            return True
        if self._remaining is not None and self._remaining <= 0:
            return not self._is_busy
        if self._options.idle is None or self._is_busy or not peer.is_connected:
            if not peer.is_connected:
                self._last_message_at = time.monotonic()
            return False
        return time.monotonic() - self._last_message_at > self._idle_seconds

    @property
    def _idle_seconds(self) -> float:
        return (self._options.idle or 0) / 1000

    def _timeout(self) -> float:
        wait = self._pace.wait(time.monotonic())
        return min(wait, LONGEST_WAIT) if wait else LONGEST_WAIT
