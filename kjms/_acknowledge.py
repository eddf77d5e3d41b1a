"""When a message counts as consumed: one class per acknowledge mode, each saying what it promises.

Spec: JMS 2.0 §4.4.11.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kjms.errors import IllegalStateException, JMSException

if TYPE_CHECKING:
    from kjms.engine._buffer import Delivery, Feed
    from kjms.engine._reader import Reader
    from kjms.message import Message

__all__ = ["Acknowledgement", "Auto", "Client", "DupsOk", "Individual"]


class Acknowledgement:
    """What a session does with the messages that it hands out."""

    def before_next(self) -> None:
        """Do what must be durable before the next message is handed out."""

    def received(self, delivery: Delivery, message: Message) -> None:
        """Note that *message* is about to be returned from a receive."""
        raise NotImplementedError

    def listening(self, delivery: Delivery, message: Message) -> None:
        """Note that *message* is about to be given to a listener."""

    def listened(self, delivery: Delivery) -> None:
        """Note that the listener returned."""

    def listener_failed(self, delivery: Delivery) -> None:
        """Note that the listener raised: the message comes again, at once and marked (JMS 2.0 §4.5.2)."""
        _give_back([delivery], to=delivery.feed)

    def recover(self) -> None:
        """Deliver again what was handed out and not acknowledged (JMS 2.0 §4.4.11)."""

    def close(self) -> None:
        """Give back what was not acknowledged, and make the rest durable."""


class Auto(Acknowledgement):
    """AUTO_ACKNOWLEDGE: message n is durably acknowledged before n+1 is handed out.

    Args:
        is_pipelined: Leave out the waiting: a crash may then repeat as many messages as are read in 0.1 s.
    """

    def __init__(self, *, is_pipelined: bool = False) -> None:
        self._is_pipelined = is_pipelined
        self._unflushed: Reader | None = None
        self._is_closed = False

    def before_next(self) -> None:
        if self._unflushed is not None:
            self._unflushed.flush()
            self._unflushed = None  # not before: what Kafka did not take is tried again

    def received(self, delivery: Delivery, message: Message) -> None:
        message._receipt = self
        self.listened(delivery)

    def listening(self, delivery: Delivery, message: Message) -> None:
        message._receipt = self

    def acknowledge(self) -> None:
        """Do nothing: the session acknowledges by itself (JMS 2.0 §3.6.2).

        Raises:
            IllegalStateException: The session is closed.
        """
        _check_open(self._is_closed)

    def listened(self, delivery: Delivery) -> None:
        assert delivery.feed is not None
        delivery.feed.reader.settle(delivery)
        if not self._is_pipelined:
            self._unflushed = delivery.feed.reader

    def close(self) -> None:
        self._is_closed = True
        if self._unflushed is not None:
            self._unflushed.flush_at_last()


class DupsOk(Auto):
    """DUPS_OK_ACKNOWLEDGE: acknowledged in the background; a crash may repeat some messages."""

    def __init__(self) -> None:
        super().__init__(is_pipelined=True)


class Client(Acknowledgement):
    """CLIENT_ACKNOWLEDGE: acknowledging one message acknowledges all that its session has consumed."""

    def __init__(self) -> None:
        self._open: list[Delivery] = []
        self._unflushed: set[Reader] = set()
        self._is_closed = False

    def received(self, delivery: Delivery, message: Message) -> None:
        self._open.append(delivery)
        message._receipt = self

    listening = received

    def listener_failed(self, delivery: Delivery) -> None:
        """Leave it to the application: the message stays unacknowledged (JMS 2.0 §4.5.2)."""

    def acknowledge(self) -> None:
        """Acknowledge every message that the session has handed out.

        Raises:
            IllegalStateException: The session is closed.
            JMSException: A partition was lost to another member of the group; its messages are delivered there.
        """
        _check_open(self._is_closed)
        settled, self._open = self._open, []
        self._settle(settled)

    def _settle(self, deliveries: list[Delivery]) -> None:
        lost = 0
        for delivery in deliveries:
            assert delivery.feed is not None
            delivery.feed.reader.settle(delivery)
            self._unflushed.add(delivery.feed.reader)
            lost += not delivery.partition.is_held
        for reader in list(self._unflushed):
            reader.flush()
            self._unflushed.remove(reader)  # not before: what Kafka did not take is tried again
        if lost:
            raise JMSException(
                f"acknowledge: {lost} of {len(deliveries)} messages were of partitions that went to another consumer"
                " meanwhile; they are delivered there again"
            )

    def recover(self) -> None:
        again, self._open = self._open, []
        by_feed: dict[Feed, list[Delivery]] = {}
        for delivery in again:
            assert delivery.feed is not None
            by_feed.setdefault(delivery.feed, []).append(delivery)
        for feed, deliveries in by_feed.items():
            _give_back(deliveries, to=feed)

    def close(self) -> None:
        self._is_closed = True
        again, self._open = self._open, []
        _give_back(again, to=None)


class Individual(Client):
    """INDIVIDUAL_ACKNOWLEDGE, of kjms: acknowledging a message acknowledges that message alone."""

    def received(self, delivery: Delivery, message: Message) -> None:
        self._open.append(delivery)
        message._receipt = _One(self, delivery)

    listening = received

    def acknowledge_one(self, delivery: Delivery) -> None:
        """Acknowledge *delivery*; a second time changes nothing.

        Raises:
            IllegalStateException: The session is closed.
            JMSException: The message's partition was lost to another member of the group.
        """
        _check_open(self._is_closed)
        if delivery in self._open:
            self._open.remove(delivery)
            self._settle([delivery])


class _One:
    """The receipt of one message."""

    __slots__ = ("_delivery", "_mode")

    def __init__(self, mode: Individual, delivery: Delivery) -> None:
        self._mode = mode
        self._delivery = delivery

    def acknowledge(self) -> None:
        self._mode.acknowledge_one(self._delivery)


def _check_open(is_closed: bool) -> None:
    if is_closed:
        raise IllegalStateException("acknowledge: the session of this message is closed (JMS 2.0 §4.4.1)")


def _give_back(deliveries: list[Delivery], *, to: Feed | None) -> None:
    by_reader: dict[Reader, list[Delivery]] = {}
    for delivery in deliveries:
        assert delivery.feed is not None
        by_reader.setdefault(delivery.feed.reader, []).append(delivery)
    for reader, mine in by_reader.items():
        reader.give_back(mine, to=to)
