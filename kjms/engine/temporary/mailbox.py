"""The messages of one temporary queue, or for one consumer of a temporary topic, that wait in this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kjms.engine.consumer.consumer_slot import ConsumerSlot
from kjms.engine.consumer.delivery import AssignedPartition, Delivery
from kjms.engine.consumer.group_consumer import GroupConsumer
from kjms.engine.kafka import KafkaMessage
from kjms.mapping import decode
from kjms.mapping.delayed import due_at
from kjms.txn.delivery_states import SETTLE
from kjms.txn.metadata import State

if TYPE_CHECKING:
    from kjms.destinations import Destination
    from kjms.engine.consumer.overflow import Overflow
    from kjms.errors import JMSException

__all__ = ["Mailbox"]


class Mailbox(GroupConsumer):
    """A reader without a Kafka consumer: the inbox's thread brings its records, until it is full.

    From then on it is *behind*: it knows where the next record for it stands, and where the last one does. When there
    is room, those between are read again, by another thread of the inbox, and at the last one the mailbox has caught
    up. What is settled is forgotten: no other process will ever ask.

    Args:
        destination: The temporary destination, as a plain value.
        number: Its number in the inbox.
        inbox: The inbox's Kafka topic.
        aside: What the engine does for messages that go to dead-letter queues.
        keeps_unmatched: Whether a message that no selector here wants stays.
        prefetch: How many messages it holds ready.
        on_error: Told of errors that only the connection's exception listener can hear.
        on_due: Told that messages of this mailbox wait for their time.
        on_room: Told that it is behind, and has room.
    """

    def __init__(
        self,
        destination: Destination,
        number: int,
        inbox: str,
        aside: Overflow,
        *,
        keeps_unmatched: bool,
        prefetch: int,
        on_error: Callable[[JMSException], None],
        on_due: Callable[[Mailbox], None],
        on_room: Callable[[Mailbox], None],
    ) -> None:
        super().__init__(
            destination,
            destination._name,
            {},
            inbox,
            aside,
            starts={},
            keeps_unmatched=keeps_unmatched,
            prefetch=prefetch,
            decode=decode,
            on_error=on_error,
        )
        self.number = number
        self.slots: set[ConsumerSlot] = set()
        self._begins: dict[int, int] = {}  # what stands before is none of its business
        self._behind: dict[int, int] = {}  # partitions, and where the next record for it may stand
        self._last: dict[int, int] = {}  # while it is behind: the offset after that of the last record for it
        self._on_due = on_due
        self._on_room = on_room

    def __repr__(self) -> str:
        return (
            f"<Mailbox {self.name}: {self.dispatcher.held + self.dispatcher.kept_back} ready, behind: {self._behind}>"
        )

    # Messages come.

    def accept(self, record: KafkaMessage) -> None:
        """Take in *record*, the newest one; the inbox's thread calls this."""
        place, offset = record.partition() or 0, record.offset() or 0
        with self.lock:
            if self._closing or offset < self._begins.get(place, 0):
                return
            if self._behind or self._is_full():
                self._behind.setdefault(place, offset)
                self._last[place] = offset + 1
            else:
                self._add(record, place, offset)

    def _add(self, record: KafkaMessage, place: int, offset: int) -> None:
        if self._holdings.get(self.topic, place) is None:
            state = State(offset, offset, (), offset)
            self._holdings.add(AssignedPartition(self.topic, place, state, is_kept=False))
        due = due_at(record)
        if due <= self.aside.tuning.now_ms():
            self._arrived([record])
            return
        partition = self._holdings.get(self.topic, place)
        assert partition is not None
        delivery = Delivery(record, partition, offset, next(self._orders))
        if partition.settlement.read(offset, delivery):
            delivery.due = due
            self.dispatcher.arrive(delivery)
            self._on_due(self)

    def begin_at(self, ends: Mapping[int, int]) -> None:
        """Leave out what stands in the inbox before *ends*; no consumer is there yet."""
        with self.lock:
            self._begins = dict(ends)
            early = [d for d in self.dispatcher.unmatched if d.offset < ends.get(d.partition.number, 0)]
            for delivery in early:
                self.dispatcher.unmatched.remove(delivery)
                delivery.state = SETTLE[delivery.state]
                delivery.partition.settlement.settle(delivery.offset)

    def _is_full(self) -> bool:
        dispatcher = self.dispatcher
        if self._started:
            return dispatcher.is_full(self.prefetch)
        return dispatcher.held + dispatcher.kept_back >= self.aside.tuning.inbox_unread

    def look_for_room(self) -> None:
        """Have the inbox read on for this mailbox when it is behind, somebody wants its messages, and it has room."""
        if not self._behind:
            return
        with self.lock:
            is_wanted = self._started > 0 and self.dispatcher.has_room(self.prefetch) and not self._closing
        if is_wanted:
            self._on_room(self)

    # What is behind is read again: by one thread.

    def gaps(self) -> dict[int, tuple[int, int]]:
        """Return what is to be read again: for each partition, from where, and the offset after the last."""
        with self.lock:
            return {place: (offset, self._last[place]) for place, offset in self._behind.items()}

    def read_again(self, record: KafkaMessage) -> bool:
        """Take in *record*, the next one that is behind; tell whether there was room."""
        place, offset = record.partition() or 0, record.offset() or 0
        with self.lock:
            if self._closing or self._is_full():
                return False
            if offset >= self._behind.get(place, 0):
                self._add(record, place, offset)
                self._behind[place] = offset + 1
            return True

    def catch_up(self, read: Mapping[int, int]) -> bool:
        """Note that all before the offsets *read* has been read again; tell whether that is all there is."""
        with self.lock:
            for place, offset in read.items():
                if place in self._behind:
                    self._behind[place] = max(self._behind[place], offset)
            if all(offset >= self._last[place] for place, offset in self._behind.items()):
                self._behind.clear()
                self._last.clear()
            return not self._behind

    # What readers do with their own threads.

    def start_slot(self, slot: ConsumerSlot) -> None:
        super().start_slot(slot)
        self.look_for_room()

    def _begin(self) -> None:
        """Start nothing: the inbox has a thread."""

    def take(self, slot: ConsumerSlot) -> Delivery | None:
        delivery = super().take(slot)
        if self._behind:
            self.look_for_room()
        return delivery

    def give_back(self, deliveries: Iterable[Delivery], **how: Any) -> None:
        super().give_back(deliveries, **how)
        if self.dispatcher.next_due:
            self._on_due(self)

    def release(self) -> bool:
        """Make ready what is due; tell whether more waits for its time."""
        with self.lock:
            if self._closing:
                return False
            self.dispatcher.release(self.aside.tuning.now_ms())
            return self.dispatcher.next_due > 0

    def end(self) -> None:
        """Forget the messages: nobody will ask for them. What sessions have, they may still settle."""
        with self.lock:
            self._closing = True
            self._behind.clear()
            for partition in self._holdings:
                self.dispatcher.drop(partition)

    # Looking.

    def held(self) -> tuple[deque[tuple[KafkaMessage, int]], dict[int, tuple[int, int]]]:
        """Return the records that are not settled, each with what its next delivery is, and what is behind."""
        with self.lock:
            deliveries = [d for partition in self._holdings for _, d in partition.settlement.messages()]
            deliveries.sort(key=_order)
            return deque((d.record, d.history.deliveries + 1) for d in deliveries), self.gaps()


def _order(delivery: Delivery) -> int:
    return delivery.order
