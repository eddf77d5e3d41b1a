"""The messages of one temporary queue, or for one consumer of a temporary topic, that wait in this process."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from kjms.engine.consumer.access_denial import AccessDenial
from kjms.engine.consumer.assignment import Assignment
from kjms.engine.consumer.client import COMMIT_SECONDS, ConsumerClient
from kjms.engine.consumer.delivery import AssignedPartition, Delivery, Event, Receipt, Slot
from kjms.engine.consumer.dispatcher import Dispatcher
from kjms.engine.consumer.in_flight import InFlight
from kjms.engine.consumer.intake import RecordIntake
from kjms.engine.consumer.kafka_source import statistics_of
from kjms.engine.consumer.offset_committer import OffsetCommitter
from kjms.engine.consumer.relocations import Relocations
from kjms.engine.consumer.slots import StartedSlots
from kjms.engine.interrupts import Condition
from kjms.engine.statistics import GroupConsumerStatistics
from kjms.mapping.delayed import due_at
from kjms.txn.delivery_states import SETTLE
from kjms.txn.metadata import State

if TYPE_CHECKING:
    from kjms.destinations import Destination
    from kjms.engine.admin.topics import WantedTopic
    from kjms.engine.consumer.consumer_slot import ConsumerSlot
    from kjms.engine.consumer.overflow import Overflow
    from kjms.engine.kafka import KafkaMessage
    from kjms.engine.log_reading import Place
    from kjms.errors import JMSException
    from kjms.mapping.dead_letters import Cause

__all__ = ["InboxSource"]


class Gaps(Protocol):
    """Reads again what did not fit."""

    def read_again(self, source: InboxSource) -> None:
        """Read, soon, what *source* missed while it was full."""


class Positions(Protocol):
    """Up to where each partition of an inbox was read."""

    @property
    def offsets(self) -> Mapping[int, int]:
        """The offset after the last record that was read, by partition."""


class Inbox(Protocol):
    """What a source uses of the inbox whose threads bring its records."""

    @property
    def positions(self) -> Positions:
        """Up to where it was read."""

    @property
    def gaps(self) -> Gaps:
        """Reads again what did not fit."""

    def wait_until_due(self, source: InboxSource) -> None:
        """Have messages of *source* made ready when it is their time."""


class Backlog:
    """Which records of the inbox a source has not read yet, for want of room; its caller holds the lock of the source.

    Attributes:
        begins: Where the records begin that the source is concerned with.
    """

    def __init__(self) -> None:
        self.begins: Mapping[int, int] = {}
        self._next: dict[int, int] = {}  # partitions, and where the next record for the source may stand
        self._end: dict[int, int] = {}  # the offset after that of the last record for it

    def __bool__(self) -> bool:
        return bool(self._next)

    def __repr__(self) -> str:
        return repr(self._next)

    def add(self, place: int, offset: int) -> None:
        """Note that the record at *offset*, the newest one, is not read."""
        self._next.setdefault(place, offset)
        self._end[place] = offset + 1

    def has(self, place: int, offset: int) -> bool:
        """Return whether the record at *offset* was not read yet."""
        return offset >= self._next.get(place, 0)

    def read(self, place: int, offset: int) -> None:
        """Note that the record at *offset* is read now."""
        self._next[place] = offset + 1

    def skip(self, read: Mapping[int, int]) -> bool:
        """Note that all before the offsets *read* has been read; return whether that is all there is."""
        for place, offset in read.items():
            if place in self._next:
                self._next[place] = max(self._next[place], offset)
        if all(offset >= self._end[place] for place, offset in self._next.items()):
            self.clear()
        return not self._next

    def gaps(self) -> dict[int, tuple[int, int]]:
        """Return what is to be read: for each partition, from where, and the offset after the last."""
        return {place: (offset, self._end[place]) for place, offset in self._next.items()}

    def clear(self) -> None:
        """Note that nothing is to be read any more."""
        self._next.clear()
        self._end.clear()


class InboxSource:
    """A message source without a Kafka consumer: the inbox's thread brings its records, until it is full.

    From then on it is *behind*: it knows where the next record for it stands, and where the last one does. When there
    is room, those between are read again, by another thread of the inbox, and at the last one the source has caught
    up. What is settled is forgotten: no other process will ever ask.

    Args:
        destination: The temporary destination, as a plain value.
        number: Its number in the inbox.
        topic: The inbox's Kafka topic.
        overflow: What the engine does for messages that go to dead-letter queues.
        inbox: Serves messages that wait for their time, and reads again what had no room.
        keeps_unmatched: Whether a message that no selector here wants stays.
        prefetch: How many messages it holds ready.
        on_error: Receives errors that only the connection's exception listener can report.

    Attributes:
        has_peers: Whether consumers in other processes may want the messages: never.
        overflow: What the engine does for it.
        slots: The slots of its open consumers.
    """

    has_peers: Final = False

    def __init__(
        self,
        destination: Destination,
        number: int,
        topic: str,
        overflow: Overflow,
        inbox: Inbox,
        *,
        keeps_unmatched: bool,
        prefetch: int,
        on_error: Callable[[JMSException], None],
    ) -> None:
        name, tuning = destination._name, overflow.tuning
        self.destination = destination
        self.number = number
        self.slots: set[ConsumerSlot] = set()
        self.lock = lock = threading.RLock()
        self.refusal = AccessDenial(on_error)
        self._dispatcher = dispatcher = Dispatcher(
            destination,
            keeps_unmatched=keeps_unmatched,
            limit=prefetch,
            most_unmatched=tuning.most_unmatched,
        )
        self._assignment = assignment = Assignment(name, topic, overflow.topic, "", overflow.engine, dispatcher, tuning)
        self._in_flight = in_flight = InFlight(dispatcher, tuning.now_ms)
        self._started = StartedSlots(dispatcher, assignment, in_flight, tuning.grace_seconds)
        self._intake = RecordIntake(assignment, dispatcher, prefetch, on_error)
        changed = Condition(lock)
        client = ConsumerClient(name, lock, changed)
        committer = OffsetCommitter(
            assignment, client, dispatcher, in_flight, lock, changed, lambda: None, lambda _partitions, _share: None
        )
        self.relocations = Relocations(
            assignment, client, committer, dispatcher, in_flight, overflow, lock, changed, lambda _number: None
        )
        self.overflow = overflow
        self._inbox = inbox
        self._backlog = Backlog()
        self._is_closed = False

    def __repr__(self) -> str:
        dispatcher = self._dispatcher
        return f"<InboxSource {self.name}: {dispatcher.held + dispatcher.kept_back} ready, behind: {self._backlog}>"

    @property
    def name(self) -> str:
        """The name of the temporary destination."""
        return self._assignment.name

    @property
    def topic(self) -> str:
        """The inbox's Kafka topic."""
        return self._assignment.topic

    @property
    def is_shared(self) -> bool:
        """Whether several consumers are started."""
        return self._started.count > 1

    def statistics(self) -> GroupConsumerStatistics:
        """Return what it holds, and how many consumers wait for it."""
        with self.lock:
            return statistics_of(self.destination, self._assignment, self._dispatcher, self._started, self.relocations)

    # Messages come.

    def accept(self, record: KafkaMessage) -> None:
        """Take in *record*, the newest one; the inbox's thread calls this."""
        place, offset = record.partition() or 0, record.offset() or 0
        with self.lock:
            if self._is_closed or offset < self._backlog.begins.get(place, 0):
                return
            if self._backlog or self._is_full():
                self._backlog.add(place, offset)
            else:
                self._add(record, place, offset)

    def _add(self, record: KafkaMessage, place: int, offset: int) -> None:
        if self._assignment.get(self.topic, place) is None:
            state = State(offset, offset, (), offset)
            self._assignment.add(AssignedPartition(self.topic, place, state, is_kept=False))
        due = due_at(record)
        if due <= self.overflow.tuning.now_ms():
            self._intake.arrived([record])
        elif self._intake.arrived_early(record, due):
            self._inbox.wait_until_due(self)

    def begin_at(self, ends: Mapping[int, int]) -> None:
        """Leave out what stands in the inbox before *ends*; no consumer is there yet."""
        with self.lock:
            self._backlog.begins = dict(ends)
            unmatched = self._dispatcher.unmatched
            for delivery in [d for d in unmatched if d.offset < ends.get(d.partition.number, 0)]:
                unmatched.remove(delivery)
                delivery.state = SETTLE[delivery.state]
                delivery.partition.settlement.settle(delivery.offset)

    def _is_full(self) -> bool:
        dispatcher = self._dispatcher
        if self._started.count:
            return dispatcher.is_full(self._intake.prefetch)
        return dispatcher.held + dispatcher.kept_back >= self.overflow.tuning.inbox_unread

    def log_ends(self, seconds: float) -> Mapping[Place, int] | None:
        """Return where the inbox ends now: see `SlotSource.log_ends`.

        Raises:
            JMSException: The broker did not answer, or refused.
        """
        ends = self.overflow.topics.ends(self.topic, len(self._inbox.positions.offsets), seconds)
        return {(self.topic, number): end for number, end in ends.items()}

    def has_read(self, slot: ConsumerSlot, ends: Mapping[Place, int]) -> bool:
        """Return whether *slot* gets nothing more of what is before *ends*: see `SlotSource.has_read`."""
        offsets = self._inbox.positions.offsets
        with self.lock:
            is_behind = self._backlog or slot.has_ready
            return not is_behind and all(offsets.get(number, 0) >= end for (_, number), end in ends.items())

    def look_for_room(self) -> None:
        """Have the inbox read on for this source when it is behind, a consumer is started, and there is room."""
        if not self._backlog:
            return
        with self.lock:
            has_room = self._dispatcher.has_room(self._intake.prefetch)
            is_wanted = self._started.count > 0 and has_room and not self._is_closed
        if is_wanted:
            self._inbox.gaps.read_again(self)

    # What is behind is read again: by one thread.

    def gaps(self) -> dict[int, tuple[int, int]]:
        """Return what is to be read again: for each partition, from where, and the offset after the last."""
        with self.lock:
            return self._backlog.gaps()

    def read_again(self, record: KafkaMessage) -> bool:
        """Take in *record*, the next one that is behind; return whether there was room."""
        place, offset = record.partition() or 0, record.offset() or 0
        with self.lock:
            if self._is_closed or self._is_full():
                return False
            if self._backlog.has(place, offset):
                self._add(record, place, offset)
                self._backlog.read(place, offset)
            return True

    def catch_up(self, read: Mapping[int, int]) -> bool:
        """Note that all before the offsets *read* has been read again; return whether that is all there is."""
        with self.lock:
            return self._backlog.skip(read)

    # Consumers come and go.

    def start_slot(self, slot: ConsumerSlot) -> None:
        """Let messages come to *slot*."""
        with self.lock:
            if not slot.is_started and slot.is_open:
                self._started.start(slot)
        slot.wakeup.set()
        self.look_for_room()

    def stop_slot(self, slot: ConsumerSlot) -> None:
        """Hold messages back from *slot*."""
        with self.lock:
            if slot.is_started:
                self._started.stop(slot)

    def rest(self, slot: ConsumerSlot) -> None:
        """Note that the consumer of *slot* stopped waiting."""
        with self.lock:
            self._dispatcher.rest(slot)

    # Messages go out and come back.

    def wait_behind_others(self, slot: ConsumerSlot) -> bool:
        """Have *slot*, which has taken messages for a while, wait behind those that wait: see `Dispatcher`."""
        with self.lock:
            slot.streak = 0
            return self._dispatcher.wait_behind_others(slot)

    def take(self, slot: ConsumerSlot) -> Delivery | None:
        """Return the next message for *slot*, or note that it waits for one."""
        with self.lock:
            delivery = self._dispatcher.take(slot)
            slot.took(delivery, time.monotonic())
        if self._backlog:
            self.look_for_room()
        return delivery

    def settle_soon(self, delivery: Delivery) -> None:
        """Note that *delivery* is done."""
        self.settle([delivery])

    def settle(self, deliveries: Sequence[Delivery], *, is_urgent: bool = False) -> list[Receipt]:
        """Note that *deliveries* are done; nothing is committed."""
        with self.lock:
            return self._in_flight.settle(deliveries)

    def flush(self, timeout: float = COMMIT_SECONDS, receipts: Sequence[Receipt] = ()) -> int:
        """Return 0 at once: nothing is committed, and nothing can be lost."""
        return 0

    def flush_before_exit(self, receipts: Sequence[Receipt] = ()) -> None:
        """Return at once: nothing is committed."""

    def record(self, delivery: Delivery) -> bool:
        """Record *delivery* before it is made; return whether it still may be."""
        return self.relocations.record(delivery, self.destination)

    def give_back(
        self,
        deliveries: Iterable[Delivery],
        *,
        to: Slot | None = None,
        is_counted: bool = True,
        due: Callable[[Delivery], int] | None = None,
    ) -> None:
        """Take back messages that were dispatched: see `MessageSource.give_back`."""
        with self.lock:
            self._in_flight.give_back(deliveries, to=to, is_counted=is_counted, due=due)
        if self._dispatcher.delayed.next_due:
            self._inbox.wait_until_due(self)

    def reclaim(self, slot: Slot, kept: Collection[Delivery]) -> None:
        """Take back what the program of *slot* lost when it was interrupted: see `MessageSource.reclaim`."""
        with self.lock:
            self._in_flight.reclaim(slot, kept, self._assignment)

    def is_to_blame(self, delivery: Delivery, most: int) -> bool:
        """Return whether *delivery* is to become a dead letter: see `MessageSource.is_to_blame`."""
        with self.lock:
            return self._in_flight.is_to_blame(delivery, most)

    def dead_letter(self, delivery: Delivery, cause: Cause, target: WantedTopic, why: Event) -> None:
        """Relocate *delivery*, which a session has, for good: see `MessageSource.dead_letter`."""
        self.relocations.dead_letter(delivery, cause, target, why, self.destination)

    def release(self) -> bool:
        """Make ready what is due; tell whether more waits for its time."""
        with self.lock:
            if self._is_closed:
                return False
            self._dispatcher.release(self.overflow.tuning.now_ms())
            return self._dispatcher.delayed.next_due > 0

    def end(self) -> None:
        """Forget the messages: no consumer will come. What sessions have, they may still settle."""
        with self.lock:
            self._is_closed = True
            self._backlog.clear()
            for partition in self._assignment:
                self._dispatcher.drop(partition)

    # Looking.

    def held(self) -> tuple[deque[tuple[KafkaMessage, int]], dict[int, tuple[int, int]]]:
        """Return the records that are not settled, each with what its next delivery is, and what is behind."""
        with self.lock:
            deliveries = [d for partition in self._assignment for _, d in partition.settlement.messages()]
            deliveries.sort(key=_order)
            return deque((d.record, d.history.deliveries + 1) for d in deliveries), self.gaps()


def _order(delivery: Delivery) -> int:
    return delivery.order
