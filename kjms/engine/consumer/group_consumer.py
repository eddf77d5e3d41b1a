"""One Kafka consumer, its thread, and the messages it holds ready for the JMS consumers of this process."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kjms.destinations import Destination
from kjms.engine.admin.topics import NOT_READY
from kjms.engine.consumer.access_denial import AccessDenial
from kjms.engine.consumer.assignment import NOT_KNOWN, Assignment, Commit, Recall, beginning, oldest, start_of
from kjms.engine.consumer.client import ConsumerClient
from kjms.engine.consumer.consumer_slot import ConsumerSlot
from kjms.engine.consumer.delivery import AssignedPartition, Delivery
from kjms.engine.consumer.dispatcher import BUSY_SECONDS, Dispatcher
from kjms.engine.consumer.membership import Membership
from kjms.engine.consumer.offset_committer import COMMIT_SECONDS, TICK_SECONDS, TRANSIENT, OffsetCommitter, Receipt
from kjms.engine.handover.handover import Handover
from kjms.engine.kafka import (
    ConsumerPort,
    KafkaError,
    KafkaException,
    KafkaMessage,
    TopicPartition,
    jms_error,
    kafka_error,
    open_consumer,
)
from kjms.engine.log_reading import UNTIL_END, Place
from kjms.engine.settings import NEW_TOPIC
from kjms.engine.statistics import GroupConsumerStatistics
from kjms.engine.transactions.deduplicator import LOOK_BACK, Deduplicator
from kjms.engine.transactions.redelivery_log import Event
from kjms.engine.transactions.transactional_producer import AbortedError, Copy, LostError, Made, Move, OutgrownError
from kjms.errors import JMSException, JMSSecurityException
from kjms.mapping.delayed import place_of
from kjms.mapping.relocated import original, relocated_record
from kjms.txn.delivery_states import COMPLETE, RETURN, SETTLE
from kjms.txn.metadata import State
from kjms.txn.states import NEVER

if TYPE_CHECKING:
    from kjms.engine.consumer.overflow import Overflow
    from kjms.engine.handover.service import HandoverService
    from kjms.mapping.bridges import Decoder
    from kjms.selector import Selector

__all__ = ["GroupConsumer"]

_log = logging.getLogger("kjms.reader")

SHORT_POLL_SECONDS: Final = 0.005  # a poll holds up commits, so it is short while messages are in flight
BATCH: Final = 500  # records taken from librdkafka at once; more gains nothing
RETRY_SECONDS: Final = 1.0  # between a failure of the thread and its next life
MOST_RESCUED: Final = 10_000  # messages in the hands of sessions that a rebalance may wait for
PAUSE_SECONDS: Final = 1.0  # a pause discards what was fetched, so only a long stall is worth one
CLOSE_SECONDS: Final = 5.0  # how long closing waits for a Kafka that does not answer
MOVES_SECONDS: Final = 3.0  # how long leaving waits for moves that were asked for; what is not moved is found again
LOOK_AHEAD: Final = 10  # times the prefetch are looked through where some messages are more urgent than others
LOOK_AHEAD_BYTES: Final = 32_000_000  # if the messages are no larger than that together
STALL_SECONDS: Final = 2.0  # a third of the session time-out: who slept longer may have lost its partitions unawares
COPY_SECONDS: Final = 60.0  # between the copies of a settlement that changes
REFRESH_SECONDS: Final = 3600.0  # between commits of a settlement that does not
NOTHING: Final[Mapping[int, int]] = {}


class GroupConsumer:
    """Reads one Kafka topic for one queue or subscription, and serves all its consumers in this process.

    The thread runs, and is a member of the group, while a started consumer is there. It alone polls Kafka. Whoever
    settles messages commits them, one at a time; what others settled meanwhile goes along.

    Args:
        destination: What it reads; its messages say that they were sent to it.
        name: The destination's name, for thread names and logs.
        config: librdkafka's settings of the consumer.
        topic: The Kafka topic.
        aside: What the engine does for messages that are moved aside.
        starts: Without a group: the offset from which each partition is read. None: the group knows.
        keeps_unmatched: Whether a message that no selector here wants stays (a queue) or is done with (a subscription).
        prefetch: How many messages it holds ready.
        decode: How its records are read.
        on_error: Told of errors that only the connection's exception listener can hear.
        delayed_before: Of a subscription: which delayed messages were sent before there was one, as the offset where
            each partition that they waited in ended then. They are none of its messages.
        handover: Through which other processes in the group get messages; None: there can be none.
        identity: Kafka's id of the topic that *starts* are of; ``-``: it is asked for when the thread begins.
        repeats: Knows what was there already, and is not to be delivered; None: everything is delivered.
    """

    def __init__(
        self,
        destination: Destination,
        name: str,
        config: Mapping[str, Any],
        topic: str,
        aside: Overflow,
        *,
        starts: Mapping[int, int] | None,
        keeps_unmatched: bool,
        prefetch: int,
        decode: Decoder,
        on_error: Callable[[JMSException], None],
        delayed_before: Mapping[int, int] = NOTHING,
        handover: HandoverService | None = None,
        identity: str = "-",
        repeats: Deduplicator | None = None,
    ) -> None:
        self.destination = destination
        self.name = name
        self.topic = topic
        self._config = dict(config)
        self._starts = None if starts is None else dict(starts)
        self._delayed_before = dict(delayed_before)
        self._repeats = repeats
        self.prefetch = prefetch
        self._limit = prefetch  # as many as are held ready; more where priorities tell them apart
        self._capacity = prefetch  # the same, and what other processes have asked for
        self._is_to_share = False  # whether it is to be looked soon whether consumers here are busy
        self._decode = decode
        self._on_error = on_error
        self.refusal = AccessDenial(on_error)
        self.lock = threading.RLock()
        self._news = threading.Condition(self.lock)
        self.client = ConsumerClient(name, self._news)
        self._thread: threading.Thread | None = None
        self.aside = aside
        self._holdings = Assignment(name, topic, aside, decode, on_error)
        self._crowding: set[AssignedPartition] = set()  # whose messages are being moved aside
        self._heard = time.monotonic()  # when the thread was seen to run last
        self._is_proved = True  # whether the partitions are surely still this process's
        self.keeps_unmatched = keeps_unmatched
        self.dispatcher = Dispatcher(
            destination,
            keeps_unmatched=keeps_unmatched,
            limit=prefetch,
            evicts=keeps_unmatched and starts is None,
            most_unmatched=aside.tuning.most_unmatched,
        )
        self._orders = itertools.count()
        self._is_active = False  # whether messages were taken since the last poll, whose commits may be near
        self._in_flight = 0  # messages dispatched and not settled
        self._dispatched = 0  # messages dispatched, ever
        self._started = 0
        self._idle_since = 0.0
        self._full_since = 0.0  # when the buffer was first seen to be full
        self._reread_at = 0.0  # when what was evicted began to be read again
        self._rest_until = 0.0  # it is not begun anew before
        self._closing = False
        self._is_leaving = False  # whether the thread is about to end its client
        self._identity = identity  # Kafka's id of the topic when it was read last
        self._is_suspicious = False  # whether something came that a topic made again explains
        self._is_outdated = False  # whether it was: the thread begins anew, with another client
        self._membership = Membership()
        self._left: list[TopicPartition] = []  # transfer partitions that are read no longer, until Kafka's client knows
        self._forgotten: list[Place] = []  # assigned, and not read before the copies of their settlement are found
        self._handover = None if handover is None else Handover(self, handover)
        self.committer = OffsetCommitter(
            self._holdings,
            self.client,
            self.dispatcher,
            self.lock,
            self._news,
            self._before_commit,
            self._make_room,
        )

    def __repr__(self) -> str:
        return (
            f"<Reader {self.name}: partitions {sorted(self._holdings.numbers())}, {self.dispatcher.held} ready,"
            f" {self._in_flight} in flight, {self._started} consumers started>"
        )

    @property
    def is_reading(self) -> bool:
        """Whether a started consumer is there, or was a moment ago."""
        return self._thread is not None

    @property
    def is_kept(self) -> bool:
        """Whether Kafka keeps its settlement."""
        return self._starts is None

    @property
    def session_timeout(self) -> float:
        """Seconds after which Kafka takes a silent member of the group for gone."""
        return float(self._config["session.timeout.ms"]) / 1000

    @property
    def group(self) -> str:
        """Kafka's name of its group; empty without one."""
        return self.aside.group

    def places(self) -> list[tuple[str, int]]:
        """Return the topic and number of each partition that it holds."""
        with self.lock:
            return [(partition.topic, partition.number) for partition in self._holdings]

    def numbers(self) -> list[int]:
        """Return the partitions of its topic that it holds."""
        with self.lock:
            return self._holdings.numbers()

    @property
    def is_wanting(self) -> bool:
        """Whether a consumer is started."""
        return self._started > 0

    @property
    def is_shared(self) -> bool:
        """Whether several consumers are started, here or in other processes that may get messages from here."""
        return self._started > 1 or bool(self.dispatcher.peers)

    @property
    def is_closed(self) -> bool:
        """Whether it was told to close."""
        return self._closing

    @property
    def thread(self) -> threading.Thread | None:
        """The thread that reads; None: it does not run."""
        return self._thread

    def statistics(self) -> GroupConsumerStatistics:
        """Return what it holds, and who waits for it."""
        with self.lock:
            dispatcher = self.dispatcher
            return GroupConsumerStatistics(
                destination=str(self.destination),
                name=self.name,
                topic=self.topic,
                group=self.group,
                is_reading=self._thread is not None,
                consumers=self._started,
                waiting=dispatcher.waiting_slots,
                selectors=tuple(dispatcher.selectors),
                ready=dispatcher.held,
                unmatched=len(dispatcher.unmatched),
                delayed=dispatcher.delayed,
                group_blocked=dispatcher.group_blocked,
                in_flight=self._in_flight,
                moving=self.aside.mover.moving(self),
                dispatched=self._dispatched,
                commits=self.committer.commits,
                is_certain=self._is_proved,
                partitions=tuple(partition.statistics() for partition in self._holdings),
                handover=None if self._handover is None else self._handover.statistics(),
            )

    @property
    def has_messages_in_flight(self) -> bool:
        """Whether a session has messages that it may still settle or give back."""
        with self.lock:
            return self._in_flight > 0 and any(
                delivery.is_in_flight for partition in self._holdings for _, delivery in partition.settlement.messages()
            )

    # Consumers come and go.

    def add_slot(self, selector: Selector | None, wakeup: threading.Event) -> ConsumerSlot:
        """Return a new consumer's slot; it is not started."""
        return ConsumerSlot(self, selector, wakeup)

    def remove_slot(self, slot: ConsumerSlot) -> None:
        """Take the consumer of *slot* away; what it was to get goes to others."""
        with self.lock:
            slot.is_open = False
            self.stop_slot(slot)
        slot.wakeup.set()

    def start_slot(self, slot: ConsumerSlot) -> None:
        """Let messages come to *slot*, and begin to read if nobody else had asked for it.

        Raises:
            JMSException: librdkafka refuses a setting.
        """
        with self.lock:
            if slot.is_started or not slot.is_open:
                return
            if self._thread is None and not self._closing:
                self._begin()
            slot.is_started = True
            self._started += 1
            ConsumerSlot.starts += 1
            self._idle_since = 0.0
            if self._started == 2:
                self.dispatcher.wake_all()  # the consumer that was alone may wait though its session is busy
            self.dispatcher.join(slot)
            if self._handover is not None:
                self._handover.changed()
        slot.wakeup.set()

    def stop_slot(self, slot: ConsumerSlot) -> None:
        """Hold messages back from *slot*."""
        with self.lock:
            if not slot.is_started:
                return
            slot.is_started = False
            self._started -= 1
            if not self._started:
                self._idle_since = time.monotonic()
            self.dispatcher.leave(slot)
            self.send_over()

    def rest(self, slot: ConsumerSlot) -> None:
        """Note that the consumer of *slot* stopped waiting."""
        with self.lock:
            self.dispatcher.rest(slot)

    # Messages go out and come back.

    def take(self, slot: ConsumerSlot) -> Delivery | None:
        """Return the next message for *slot*, or note that it waits for one."""
        with self.lock:
            dispatcher = self.dispatcher
            now = time.monotonic()
            if now - self._heard > STALL_SECONDS and self._starts is None:
                self._is_proved = False  # the process slept; the thread, when it has woken, asks Kafka
            delivery = dispatcher.take(slot) if self._is_proved else dispatcher.wait(slot)
            worked = slot.took(delivery, now)
            if self._handover is not None:
                self._handover.took(delivery, worked, now)
            if delivery is None:
                if slot.is_started:
                    self._news.notify()
                return None
            self._in_flight += 1
            self._dispatched += 1
            self._is_active = True
            if dispatcher.wants_dispatch_limit or dispatcher.held == self._limit >> 1:
                self._news.notify()
            return delivery

    def _share(self) -> None:
        """Let other processes have what consumers here have no time for."""
        if self._handover is not None and self.dispatcher.peers:
            with self.lock:
                self._is_to_share = self._handover.share(time.monotonic())
                self._capacity = self._limit + self.dispatcher.room_elsewhere
        else:
            self._is_to_share, self._capacity = False, self._limit

    def settle(self, delivery: Delivery, *, is_urgent: bool = False) -> Receipt:
        """Note that *delivery* is done, and return what `flush` and `lost` take.

        Args:
            delivery: The delivery, which a session had.
            is_urgent: Whether the reader's thread commits it at once. Else the next `flush` does, or the thread within
                0.1 s.
        """
        with self.lock:
            self._in_flight -= 1
            delivery.state = SETTLE[delivery.state]
            if delivery.busy is not None:
                self.dispatcher.let_go(delivery)
            partition = delivery.partition
            partition.settlement.settle(delivery.offset)
            if is_urgent and partition.is_kept:
                self.committer.urge()
            return partition, partition.settlement.version

    def flush(self, timeout: float = COMMIT_SECONDS, receipts: Sequence[Receipt] = ()) -> int:
        """Return when what was settled is committed, and how much of *receipts* was lost: see `OffsetCommitter.flush`.

        Raises:
            JMSException: The broker refused it.
        """
        return self.committer.flush(timeout, receipts)

    def flush_before_exit(self, receipts: Sequence[Receipt] = ()) -> None:
        """Flush, and return in any case: see `OffsetCommitter.flush_before_exit`.

        Raises:
            JMSException: The broker refused it, or did not answer in time.
        """
        self.committer.flush_before_exit(receipts)

    def uncount(self, delivery: Delivery) -> None:
        """Note that the session which has *delivery* goes on to another message."""
        with self.lock:
            delivery.uncount()

    def record(self, delivery: Delivery) -> bool:
        """Make sure that Kafka knows of *delivery* before it is made; tell whether it still may be.

        Raises:
            JMSException: Kafka did not take it.
        """
        with self.lock:
            delivery.note()
        self.aside.journal.note("redelivery", self.group, self.destination, delivery)
        self.flush()
        with self.lock:  # from here on, who gives the partition up counts the delivery
            delivery.is_made = delivery.partition.is_held
            return delivery.is_made

    def give_back(
        self,
        deliveries: Iterable[Delivery],
        *,
        to: ConsumerSlot | None = None,
        is_counted: bool = True,
        due: Callable[[Delivery], int] | None = None,
    ) -> None:
        """Take back messages that were dispatched: they are delivered again, in their order.

        Args:
            deliveries: The messages, oldest first.
            to: The consumer that gets them again; None, or one that is stopped: whoever wants them.
            is_counted: Whether they come marked as redelivered: they do, unless no application saw them.
            due: Says when a message may be delivered again, in milliseconds since the epoch; 0 is at once.
        """
        with self.lock:
            back: list[Delivery] = []
            later: list[Delivery] = []
            for delivery in deliveries:
                self._in_flight -= 1
                delivery.state = RETURN[delivery.state]
                delivery.decoded = None
                delivery.is_made = False
                if is_counted:
                    delivery.come_back(due, self.aside.tuning.now_ms())
                elif delivery.count > 1 or delivery.record_history != NEVER:
                    delivery.note()  # the delivery may have been recorded, and was not made
                if delivery.partition.is_held:
                    (later if delivery.due else back).append(delivery)
            is_for_all = to is None or not to.is_started
            for delivery in (*back, *later) if is_for_all else later:
                delivery.is_back = True
                self.dispatcher.let_go(delivery)
            self.dispatcher.put_back(later)
            if to is None or is_for_all:
                self.dispatcher.put_back(back)
            else:
                to.returned.extendleft(reversed(back))
                to.wakeup.set()
            if later:
                self._news.notify()
            self.send_over()

    # Messages are moved: the engine's mover does it, in its own thread.

    def bury(self, delivery: Delivery, copy: Callable[[int], Copy], why: Event) -> None:
        """Move *delivery*, which a session has, elsewhere: no consumer here gets it again.

        Its count says how many deliveries were made.
        """
        with self.lock:
            delivery.state = COMPLETE[delivery.state]
            delivery.is_made = True  # should its partition be lost before, it has the count that it has now
            self.dispatcher.let_go(delivery)
        self.aside.journal.note(why, self.group, self.destination, delivery)
        self.aside.mover.submit(self, [Move(delivery, copy, is_overflow=False)])

    def send_over(self) -> None:
        """Send messages to the other processes that they were given to; the caller holds the lock."""
        leaving = self.dispatcher.leaving
        if leaving and self._handover is not None:
            self.dispatcher.leaving = []
            self.submit([self._handover.move(delivery, peer) for peer, delivery in leaving])

    def submit(self, moves: Sequence[Move]) -> None:
        """Have messages moved that were taken out of the buffer; the caller holds the lock."""
        self._in_flight += len(moves)
        self.aside.mover.submit(self, moves)

    def _before_commit(self) -> None:
        """Give up, before a commit is planned, what is not this process's any more; the caller holds the lock."""
        if self._handover is not None:
            self._handover.give_up_expired(time.monotonic())

    def _make_room(self, partitions: Iterable[AssignedPartition], share: float) -> None:
        """Move messages of *partitions* aside, so that their settlement gets small again.

        While there is time, those go that lie scattered and that nobody wants: others will soon be settled. If there
        are none, or at the last moment, it is the oldest *share*.
        """
        for partition in partitions:
            if partition in self._crowding:
                continue
            fragments = partition.settlement.fragments(share) if share < 1 else []
            chosen = [d for d in fragments if self.dispatcher.is_staying(d)] or oldest(partition, share)
            if chosen:
                self._crowding.add(partition)
                for delivery in chosen:
                    delivery.is_relocating = True
                copies = [self.copy_for(each, partial(self._room_for, each)) for each in chosen]
                moves = [Move(each, copy, is_overflow=True) for each, copy in zip(chosen, copies, strict=True)]
                self.aside.mover.submit(self, moves)

    def copy_for(self, delivery: Delivery, place: Callable[[], tuple[str, int]]) -> Callable[[int], Copy]:
        """Return what makes the copy of *delivery*, with what has happened to it by then, for where *place* says."""

        def copy(_too_large: int) -> Copy:
            topic, number = place()
            with self.lock:
                history = delivery.history
                return Copy(topic, number, relocated_record(delivery.record, history), history)

        return copy

    def _room_for(self, delivery: Delivery) -> tuple[str, int]:
        """Return where *delivery* is moved aside to; it is read by then."""
        topic, number = self._aside_place(delivery.partition)
        if topic == self.aside.topic:
            self.open_aside(number)
        return topic, number

    def _aside_place(self, partition: AssignedPartition) -> tuple[str, int]:
        """Return where messages of *partition* are moved aside to; those of a transfer partition to its end."""
        return (partition.topic if partition.is_transfer else self.aside.topic), partition.number

    def open_aside(self, number: int) -> None:
        """See to it that what is moved aside of partition *number* is read by this reader.

        Raises:
            JMSException: The partition is read elsewhere now.
        """
        topic = self.aside.topic
        if self._holdings.get(topic, number) is not None:
            return
        self.aside.ensure(number)
        begins = {(topic, number): self.aside.beginning(topic, number)}  # without the client: sessions go on meanwhile
        with self.client.held(COMMIT_SECONDS):
            consumer = self.client.consumer
            if consumer is None or self._holdings.get(self.topic, number) is None:
                raise JMSException(f"partition {number} of {self.name} is read elsewhere now")
            # It was not there when the partition was assigned, so nothing of it can have been forgotten.
            if not self._open(consumer, list(begins), dict.fromkeys, begins=begins):
                raise JMSException(f"what was moved aside of partition {number} of {self.name} cannot be read")

    def open_transfer(self, topic: str, number: int, is_ours: Callable[[AssignedPartition], bool]) -> None:
        """Read partition *number* of the hand-over *topic*, if that is possible now.

        Args:
            topic: The topic.
            number: The partition.
            is_ours: Asked with the lock, after all waiting, whether it is still to be read; from then on, it is.

        Raises:
            JMSException: Kafka does not answer.
            KafkaException: It does not say what was committed.
        """
        begins = {(topic, number): self.aside.beginning(topic, number)}

        def opened(recall: Recall) -> list[AssignedPartition]:
            with self.client.held(COMMIT_SECONDS):
                consumer = self.client.consumer
                if consumer is None or self._is_leaving or not self._is_proved or not consumer.memberid():
                    return []
                self._forsake(consumer)  # it may be one of those that are to be given up
                return self._open(consumer, list(begins), recall, is_ours, begins)

        self._with_copies(opened)

    def _with_copies(self, restored: Callable[[Recall], list[AssignedPartition]]) -> list[AssignedPartition]:
        """Return what *restored*, which holds the client, returns; copies are read in between, without the client."""
        forgotten: list[Place] = []

        def put_off(places: Sequence[Place]) -> dict[Place, None]:
            forgotten.extend(places)
            return {}

        found = restored(put_off)
        if forgotten:
            copies = self.aside.recall(forgotten)
            found += restored(lambda places: {place: copies[place] for place in places if place in copies})
        return found

    def _open(
        self,
        consumer: ConsumerPort,
        places: Sequence[Place],
        recall: Recall,
        is_ours: Callable[[AssignedPartition], bool] = lambda partition: True,
        begins: Mapping[Place, int] = NOT_KNOWN,
    ) -> list[AssignedPartition]:
        """Read the partitions at *places* from where their settlement stands; the caller holds the client."""
        restored = self._holdings.restore(consumer, places, recall, begins)  # without the lock: it may take long
        self._hold(consumer, restored, is_ours)
        return restored

    def _hold(
        self,
        consumer: ConsumerPort,
        restored: Sequence[AssignedPartition],
        is_ours: Callable[[AssignedPartition], bool] = lambda partition: True,
    ) -> None:
        """Hold *restored*, and read on where they stand; the caller holds the client."""
        starts = [self._start(partition) for partition in restored]
        consumer.incremental_assign(starts)
        consumer.resume(starts)  # librdkafka does not forget that a partition was paused when it was lost
        with self.lock:
            for partition in restored:
                if is_ours(partition):
                    self._holdings.add(partition)
                else:
                    self._left.append(TopicPartition(partition.topic, partition.number))
        for partition in restored:
            if partition.topic == self.topic and partition.identity != "-":
                if self._identity not in {"-", partition.identity}:  # Kafka's client was the first to notice
                    self._made_again(self.topic, self._identity)
                self._identity = partition.identity

    def _start(self, partition: AssignedPartition) -> TopicPartition:
        """Return from where to read *partition*: earlier where it matters what was there."""
        start = start_of(partition)
        if self._repeats is not None and self.keeps_unmatched and partition.topic == self.topic and start.offset > 0:
            start.offset = max(start.offset - LOOK_BACK, 0)  # a log that begins later is read from there
        return start

    def drop_transfer(self, partition: AssignedPartition) -> None:
        """Stop reading *partition*, a transfer partition; the caller holds the lock."""
        self._holdings.remove(partition)
        self.dispatcher.drop(partition)
        self._crowding.discard(partition)
        self._left.append(TopicPartition(partition.topic, partition.number))
        self._news.notify()

    def find_unread(self, topic: str, numbers: Collection[int], known_empty: Mapping[int, int]) -> set[int]:
        """Return which partitions of the hand-over *topic* have something behind what is settled.

        Args:
            topic: The topic.
            numbers: The partitions.
            known_empty: Of some of them: where they ended when there was no message.

        Raises:
            JMSException: Kafka does not answer.
            KafkaException: It does not say.
        """
        ends = self.aside.ends(topic)
        changed = [number for number in numbers if ends.get(number, 0) not in {0, known_empty.get(number)}]
        with self.client.held(COMMIT_SECONDS):
            consumer = self.client.consumer
            if consumer is None or not changed:
                return set()
            known = consumer.committed([TopicPartition(topic, number) for number in changed], COMMIT_SECONDS)
        return {place.partition for place in known if place.offset < ends[place.partition]}

    def end_if_settled(self, topic: str, number: int) -> int | None:
        """Return where partition *number* of the hand-over *topic* ends if all in it is settled, else None.

        Raises:
            JMSException: Kafka does not answer.
            KafkaException: It does not say what was committed.
        """

        def find(recall: Recall) -> list[AssignedPartition]:
            with self.client.held(COMMIT_SECONDS):
                consumer = self.client.consumer
                return [] if consumer is None else self._holdings.restore(consumer, [(topic, number)], recall)

        restored = self._with_copies(find)
        if not restored:
            return None
        partition = restored[0]
        reading = open_consumer({**self._config, **UNTIL_END, **NEW_TOPIC})
        try:
            reading.assign([start_of(partition)])
            while True:
                record = reading.poll(COMMIT_SECONDS)
                error = None if record is None else record.error()
                if record is None or (error is not None and error.code() != KafkaError._PARTITION_EOF):
                    return None
                offset = record.offset() or 0
                if error is not None:
                    return offset  # markers of transactions may be all that stands before it
                if partition.settlement.read(offset, Delivery(record, partition, offset, 0)):
                    return None
        finally:
            reading.close()

    def still_held(self, moves: Iterable[Move]) -> list[Move]:
        """Return those of *moves* that are still to be made: the messages are held here, and not settled."""
        with self.lock:
            left: list[Move] = []
            gone: list[Move] = []
            for move in moves:
                (left if self._is_movable(move) else gone).append(move)
            for move in gone:
                self._crowding.discard(move.delivery.partition)
                move.delivery.is_relocating = False
                if not move.is_overflow:
                    self._in_flight -= 1
                if move.peer is not None:
                    move.peer.written(None)
                    if move.delivery.partition.is_held:  # the peer is gone
                        move.delivery.is_back = True
                        self.dispatcher.put_back([move.delivery])
            return left

    def _is_movable(self, move: Move) -> bool:
        partition = move.delivery.partition
        if move.peer is not None and not 0 <= move.transfer_partition == move.peer.transfer_partition:
            return False
        return partition.is_held and partition.settlement.holds(move.delivery.offset)

    # Messages are settled in a Kafka transaction: the engine's transactors do it, in their own threads.

    def plan(self, made: Sequence[Made], deliveries: Sequence[Delivery]) -> tuple[list[Commit], Any]:
        """Return the commits that settle the originals of *made*, and *deliveries*, and the group's metadata.

        The caller holds the client. What became of a message while it was being copied is in them, too.

        Raises:
            OutgrownError: The settlement would not fit even so.
            LostError: Some of the messages are not held any more.
            JMSException: What became of another transaction is not known.
        """
        with self.lock:
            self.committer.check()
            self._before_commit()
            settled: dict[AssignedPartition, set[int]] = {}
            everything = [*(move.delivery for move, _, _ in made), *deliveries]
            lost = [delivery for delivery in everything if not delivery.partition.is_held]
            if lost:
                raise LostError(
                    f"{len(lost)} messages of {self.name} were of partitions that were lost, to another consumer"
                    " or in an outage",
                    lost,
                )
            for delivery in everything:
                settled.setdefault(delivery.partition, set()).add(delivery.offset)
            consumer = self.client.consumer
            if self._starts is not None or consumer is None:
                return [], None
            for move, told, (_, offset) in made:
                if move.is_overflow:
                    aside = self._aside_partition(move)
                    settled.setdefault(aside, set())
                    delivery = move.delivery
                    aside.settlement.place(offset, delivery)
                    if not delivery.partition.settlement.holds(delivery.offset):
                        aside.settlement.settle(offset)
                    elif delivery.history != told:
                        aside.settlement.note(offset, delivery.history)
            commits, too_large = self._holdings.plan(settled=settled)
            if too_large:
                self.unplan(made)
                if not made:
                    self._make_room(too_large, 1.0)
                raise OutgrownError(f"the settlement of {self.name} does not fit")
        return commits, consumer.consumer_group_metadata()

    def _aside_partition(self, move: Move) -> AssignedPartition:
        aside = self._target(move)
        if aside is None:
            number = move.delivery.partition.number
            raise JMSException(f"what is moved aside of partition {number} of {self.name} is read elsewhere now")
        return aside

    def _target(self, move: Move) -> AssignedPartition | None:
        """Return where *move*, one aside, goes to, if that is held."""
        return self._holdings.get(*(move.to or self._aside_place(move.delivery.partition)))

    def unplan(self, made: Sequence[Made]) -> None:
        """Note that *made* did not come through: their copies do not count."""
        with self.lock:
            for move, _, (_, offset) in made:
                aside = self._target(move) if move.is_overflow else None
                if aside is not None:
                    aside.settlement.unplace(offset)

    def forget(self, moves: Sequence[Move]) -> None:
        """Note that *moves* will not be made; others may be chosen."""
        with self.lock:
            for move in moves:
                self._crowding.discard(move.delivery.partition)
                move.delivery.is_relocating = False
            self.committer.lacks_room = False
            self._news.notify()

    def done(self, commits: Sequence[Commit], made: Sequence[Made], deliveries: Sequence[Delivery]) -> None:
        """Note that *made* came through, and that *deliveries* are settled, with *commits*."""
        with self.lock:
            self._holdings.committed(commits)
            for delivery in deliveries:
                self.settle(delivery)
            self.committer.lacks_room = False
            for move, told, place in made:
                delivery, offset = move.delivery, place[1]
                self._crowding.discard(delivery.partition)
                delivery.is_relocating = False
                old = delivery.partition.settlement
                is_done = not old.holds(delivery.offset)  # by now
                old.settle(delivery.offset)
                if not move.is_overflow:
                    delivery.state = SETTLE[delivery.state]
                    self._in_flight -= 1
                    if move.peer is not None:
                        move.peer.written(place)
                    continue
                aside = self._target(move)
                if aside is None:  # it was given up at once: whoever has it reads the copy
                    continue
                delivery.partition, delivery.offset, delivery.record_history = aside, offset, told
                if is_done:
                    aside.settlement.settle(offset)
                else:
                    delivery.note()  # it may have come back meanwhile
            self._news.notify()

    # The thread. It blocks in a poll only while a consumer waits for messages; else it waits for news here, and whoever
    # has something to commit finds the client free.

    def _begin(self) -> None:
        self._is_outdated = False
        try:
            self.client.consumer = open_consumer(self._config)
        except KafkaException as error:
            raise jms_error(error, f"read {self.name}") from error
        self._thread = threading.Thread(target=self._run, name=f"kjms-reader-{self.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        consumer = self.client.consumer
        assert consumer is not None
        try:
            if self._starts is not None and self._identity == "-":
                self._identity = self.aside.identity(self.topic)
            with self.client.turn:
                self._join(consumer)
            if self._handover is not None:
                self._handover.begin()
            committed = checked = time.monotonic()
            look, copy, refresh = (
                committed + self.aside.tuning.partition_check_seconds,
                committed + COPY_SECONDS,
                committed + REFRESH_SECONDS,
            )
            while not (self._may_end() or self._is_outdated):
                self._see_whether_it_slept()
                self._open_forgotten(consumer)
                if self._is_full():
                    self._wait_for_space(consumer)
                else:
                    self._read(consumer)
                    self._wait_for_news()
                self._release()
                self._share()
                if self.dispatcher.wants_reread:
                    self._reread_evicted(consumer)
                now = time.monotonic()
                if now - checked >= TICK_SECONDS:
                    self._check_topics()
                    checked = now
                if self.committer.is_wanted or now - committed >= TICK_SECONDS:
                    self._flush_quietly(is_proof=now >= refresh)  # Kafka forgets what is not committed for days
                    committed = now
                    self.aside.journal.write()
                    if self._starts is not None and now >= look:
                        self._look_for_partitions(consumer)
                        look = now + self.aside.tuning.partition_check_seconds
                    if now >= copy:
                        self._keep_copies(list(self._holdings))
                        copy = now + COPY_SECONDS
                    if now >= refresh:
                        refresh = now + REFRESH_SECONDS
        except Exception as error:  # the thread's last words must be heard
            if isinstance(error, JMSSecurityException):
                self.refusal.note(error)
            else:
                _log.exception("reader of %s failed", self.name)
                self._on_error(JMSException(f"reading {self.name} failed: {error}", None, error))
            with self._news:
                self.dispatcher.wake_all()
                self._news.wait_for(lambda: self._closing, RETRY_SECONDS)
        finally:
            self._leave(consumer)

    def _check_topics(self) -> None:
        """Begin anew where a topic was deleted and made again: what is settled of the former one says nothing of it.

        Kafka's client reads on from where it was in the former topic, or from the start, and does not say which.
        """
        is_urgent, self._is_suspicious = self._is_suspicious, False
        with self.lock:
            partitions = [partition for partition in self._holdings if not partition.is_transfer]
        seen = {t: self.aside.last_identity(t, is_urgent=is_urgent) for t in {p.topic for p in partitions}}
        gone = []
        for partition in partitions:
            latest = seen[partition.topic]
            if partition.identity == "-" and not partition.is_kept:
                partition.identity = latest
            elif "-" not in (partition.identity, latest) and partition.identity != latest:
                gone.append(partition)
        if not gone:
            return
        # Asked once more: an answer that was late, or of a broker that lags behind, must not do that.
        present = {topic: self.aside.identity(topic) for topic in {partition.topic for partition in gone}}
        gone = [partition for partition in gone if present[partition.topic] not in {"-", partition.identity}]
        if not gone:
            return
        self._is_outdated = True
        with self.lock:
            for partition in gone:
                partition.is_gone = True
                self._holdings.remove(partition)
                self.dispatcher.drop(partition)
                self._crowding.discard(partition)
        for topic, identity in {partition.topic: partition.identity for partition in gone}.items():
            self._made_again(topic, identity)
        if self._starts is not None:
            with self.lock:
                self._starts.clear()  # all that is in the new topic came later than the consumer
            self._look_for_partitions(None)

    def _made_again(self, topic: str, former: str) -> None:
        """Report that *topic*, whose id was *former*, was deleted and made again."""
        if topic == self.topic:
            self._identity = "-"
        self.aside.forget(topic, former)
        failure = JMSException(
            f"the Kafka topic {topic!r} of {self.destination} was deleted and made again: it is read from its start;"
            " messages of the former topic that were not acknowledged are gone"
        )
        _log.warning("%s", failure)
        self._on_error(failure)

    def _see_whether_it_slept(self) -> None:
        """After a long sleep of the process, hand nothing out until Kafka says that the partitions are still its."""
        with self.lock:
            now = time.monotonic()
            slept, self._heard = now - self._heard, now
            if slept > STALL_SECONDS and self._starts is None:
                self._is_proved = False
            if self._is_proved:
                return
        with self.client.turn:
            error, _ = self.committer.commit(is_proof=True)  # if they are not, the next poll takes them away
        with self.lock:
            if error is None:
                self._is_proved = True
                self.dispatcher.dispatch_limit_moved()

    def _keep_copies(self, partitions: Collection[AssignedPartition]) -> None:
        """Write down, for the day when Kafka forgets it, what is committed of *partitions*."""
        with self.lock:
            offsets = [partition.kept for partition in partitions if partition.kept is not None]
            for partition in partitions:
                partition.kept = None
        if offsets:
            self.aside.keep(offsets)

    def _release(self) -> None:
        """Make ready what is due."""
        if self.dispatcher.next_due:
            with self.lock:
                self.dispatcher.release(self.aside.tuning.now_ms())

    def _join(self, consumer: ConsumerPort) -> None:
        if self._starts is None:
            self._membership.subscribe(
                consumer, self.topic, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
            return
        with self.lock:
            for number, start in self._starts.items():
                if self._holdings.get(self.topic, number) is None:  # the others go on where they were
                    state = State(start, start, (), start)
                    added = AssignedPartition(
                        self.topic, number, state, self._decode, is_kept=False, identity=self._identity
                    )
                    self._holdings.add(added)
            places = [(p.topic, p.number, p.settlement.position) for p in self._holdings]
        consumer.assign([TopicPartition(*place) for place in places])

    def _look_for_partitions(self, consumer: ConsumerPort | None) -> None:
        """Read partitions that were added to the topic, from their start."""
        assert self._starts is not None
        try:
            count = self.aside.source_partitions()
        except JMSException as error:
            _log.debug("%s", error)
            return
        added = [number for number in range(count) if number not in self._starts]
        if added:
            self._starts.update(dict.fromkeys(added, 0))
            if consumer is None:
                return
            with self.client.turn:
                self._join(consumer)

    def _read(self, consumer: ConsumerPort) -> None:
        """Take what Kafka has; wait for it only while a consumer here waits, too."""
        self._full_since = 0.0
        room = self._capacity - self.dispatcher.held
        room = min(BATCH, room if room > 0 else self._capacity)  # a consumer waits for what comes behind
        with self.client.turn:
            self._forsake(consumer)
            first = self._membership.poll(consumer, self._patience())
            if first is None:
                return
            records = [first]
            if room > 1:
                records += consumer.consume(room - 1, 0)
        with self.lock:
            self._arrived(records)

    def _forsake(self, consumer: ConsumerPort) -> None:
        """Have Kafka's client read no longer what was given up."""
        if self._left:
            with self.lock:
                left, self._left = self._left, []
            held = {(place.topic, place.partition) for place in consumer.assignment()}
            consumer.incremental_unassign([place for place in left if (place.topic, place.partition) in held])

    def _reread_evicted(self, consumer: ConsumerPort) -> None:
        """Read again what was evicted: somebody has come who may want it.

        That takes its time, so it is finished before it begins anew, and what is new is read for as long first.
        """
        now = time.monotonic()
        with self.lock:
            if self._crowding:  # what is being moved would come before older ones
                return
            rereading = [partition for partition in self._holdings if partition.settlement.is_rereading]
            if self.dispatcher.is_urgent:
                if any(p.is_overflow and (p.settlement.is_rereading or p.settlement.is_behind) for p in self._holdings):
                    return  # older ones are still to come
            elif rereading:
                self._rest_until = now + (now - self._reread_at)
                return
            elif now < self._rest_until:
                return
            self._reread_at = now
            partitions = self.dispatcher.to_reread()
        with self.client.turn:
            firsts = [beginning(consumer, start_of(partition)) for partition in partitions]
            with self.lock:
                places = [
                    TopicPartition(partition.topic, partition.number, partition.settlement.reread_from(first))
                    for partition, first in zip(partitions, firsts, strict=True)
                    if partition.is_held
                ]
            consumer.incremental_unassign(places)
            consumer.incremental_assign(places)

    def _patience(self) -> float:
        """Return how long a poll may last: nobody can commit meanwhile."""
        with self.lock:
            is_active, self._is_active = self._is_active, False
            if not self.dispatcher.is_awaited:
                return 0
            if is_active or self._in_flight or self.dispatcher.held:
                return SHORT_POLL_SECONDS
            return self._until_due()

    def _wait_for_news(self) -> None:
        """Wait until a consumer waits, half of what was ready is taken, or it is time to look after the group."""
        with self._news:
            if self.client.waiting:  # let them, before the next poll holds the client
                self._news.wait_for(lambda: not self.client.waiting, SHORT_POLL_SECONDS)
            deadline = time.monotonic() + self._until_due()
            while not self.committer.is_wanted and not self._wants_more():
                urgent = self.committer.urgent
                has_changed = self._news.wait(self._until_due())
                if not has_changed or urgent == self.committer.urgent or time.monotonic() > deadline:
                    return  # but not where a session has settled a message and committed it itself

    def _wants_more(self) -> bool:
        """Return whether a consumer waits, here or elsewhere; what is ready is not for one that waits here."""
        dispatcher = self.dispatcher
        return dispatcher.is_waiting or (dispatcher.is_awaited and dispatcher.held <= self._capacity >> 1)

    def _until_due(self) -> float:
        """Return for how many seconds to wait at the most."""
        due = self.dispatcher.next_due
        most = BUSY_SECONDS if self._is_to_share else TICK_SECONDS
        return min(most, max(due / 1000 - self.aside.tuning.wall_clock(), 0)) if due else most

    def _arrived(self, records: list[KafkaMessage]) -> None:
        holdings, dispatcher, repeats = self._holdings, self.dispatcher, self._repeats
        has_transfers = False
        refusal = None
        for record in records:
            error = record.error()
            if error is not None:
                refusal = self._report(error) or refusal
                continue
            partition = holdings.get(record.topic(), record.partition())
            if partition is None:
                continue
            offset = record.offset()
            delivery = Delivery(record, partition, offset, next(self._orders))
            settlement = partition.settlement
            is_repeat = repeats is not None and partition.topic == self.topic and repeats.sees(record)
            if not settlement.read(offset, delivery):
                self._is_suspicious = self._is_suspicious or offset < settlement.position - 1
                continue
            if is_repeat:
                settlement.settle(offset)
                continue
            if self._delayed_before and self._is_too_old(record):
                settlement.settle(offset)
                continue
            if partition.is_overflow:
                delivery.record, delivery.record_history = original(record)
                delivery.restore(delivery.record_history)
                if repeats is not None:
                    repeats.sees(delivery.record)
            if offset < settlement.histories_end:
                noted = settlement.noted(offset)
                if noted is not None:
                    delivery.restore(noted)
                elif delivery.count == 1:
                    delivery.restore(settlement.history(offset))
                    if delivery.count > 1:
                        delivery.cause = "previous consumer terminated unexpectedly"
            dispatcher.arrive(delivery)
            has_transfers = has_transfers or partition.is_transfer
        if dispatcher.is_ranked:
            self._look_ahead(records)
        if self._handover is not None:
            if has_transfers:
                self._handover.arrived()
            self.send_over()
        if refusal is not None:
            raise refusal
        self.refusal.over()

    def _look_ahead(self, records: list[KafkaMessage]) -> None:
        """Hold more ready, within bounds, so that urgent messages are found farther behind."""
        largest = max(len(record.value() or b"") for record in records)
        self._limit = max(self.prefetch, min(LOOK_AHEAD * self.prefetch, LOOK_AHEAD_BYTES // (largest + 1)))

    def _is_too_old(self, record: KafkaMessage) -> bool:
        """Whether *record* was sent, with a delay, before there was the subscription (JMS 2.0 §4.12)."""
        place = place_of(record)
        return place is not None and place[1] < self._delayed_before.get(place[0], 0)

    def _report(self, error: KafkaError) -> JMSSecurityException | None:
        """Tell of *error*, or return it if it says that Kafka does not let us: the thread begins anew then."""
        if error.code() == KafkaError._PARTITION_EOF:
            return None
        self._is_suspicious = self._is_suspicious or error.code() in NOT_READY
        failure = jms_error(error, f"read {self.name}", to="Read", topic=self.topic, group=self.group)
        if isinstance(failure, JMSSecurityException):
            return failure
        _log.warning("%s", failure)
        if not error.retriable():
            self._on_error(failure)
        return None

    def _is_full(self) -> bool:
        with self.lock:
            return self.dispatcher.is_full(self._capacity)

    def _has_space(self) -> bool:
        with self.lock:
            return self._closing or self.dispatcher.has_room(self._capacity)

    def _wait_for_space(self, consumer: ConsumerPort) -> None:
        """Wait until consumers have taken half of what is ready; meanwhile stay a member of the group."""
        with self._news:
            self._news.wait_for(lambda: self._has_space() or self.committer.is_wanted, self._until_due())
            self._full_since = self._full_since or time.monotonic()
            if self._has_space() or self.committer.is_wanted or time.monotonic() - self._full_since < PAUSE_SECONDS:
                return
        with self.client.turn:
            paused = consumer.assignment()
            consumer.pause(paused)
        while not (self._has_space() or self._may_end() or self._is_outdated):
            with self._news:
                self._news.wait_for(lambda: self._has_space() or self.committer.is_wanted, self._until_due())
            self._see_whether_it_slept()
            self._check_topics()
            self._release()
            self._share()
            self._flush_quietly()
            with self.client.turn:
                record = self._membership.poll(
                    consumer, 0
                )  # of what is paused nothing comes; a new partition may give one
            if record is not None:
                with self.lock:
                    self._arrived([record])
        with self.client.turn:
            held = {partition.partition for partition in consumer.assignment()}
            consumer.resume([partition for partition in paused if partition.partition in held])

    def _may_end(self) -> bool:
        if self._closing:
            return True
        idle_since = self._idle_since
        return (
            idle_since > 0
            and self._starts is None
            and time.monotonic() - idle_since > self.aside.tuning.grace_seconds
            and not self.has_messages_in_flight
        )

    def _flush_quietly(self, *, is_proof: bool = False) -> None:
        """Commit once, from the reader's thread; whoever needs to know flushes, too, and gets the error."""
        if self._starts is not None:
            return
        with self.client.turn:
            error, _ = self.committer.commit(is_proof=is_proof)
        if error is not None:
            _log.debug("%s", jms_error(error, f"acknowledge messages of {self.name}"))

    def _leave(self, consumer: ConsumerPort) -> None:
        self._is_leaving = True
        for leave in (
            self._finish_moves,
            partial(self._leave_transfers, consumer),
            self._flush_quietly,
            partial(self._close_client, consumer),
            self.aside.journal.write,
        ):
            try:
                leave()
            except Exception:
                _log.exception("reader of %s could not leave its group in order", self.name)
        with self.lock:
            if self._starts is None:
                for number in self._holdings.numbers():
                    self._drop(number)
                for partition in self._holdings.transfers():
                    self.drop_transfer(partition)
                self._left.clear()
                self._forgotten.clear()
            self.client.consumer = self._thread = None
            self._is_leaving = False
            if self._started and not self._closing:  # somebody came while the thread was leaving, or it failed
                self._begin()

    def _finish_moves(self) -> None:
        """Let dead letters go while Kafka still counts us in: no consumer may ask for them again for a long time."""
        if self.is_kept:
            self.aside.mover.finish(self, MOVES_SECONDS)

    def _leave_transfers(self, consumer: ConsumerPort) -> None:
        """Give up the transfer partitions in order, while Kafka still counts us in."""
        if self._handover is None:
            return
        with self.lock:
            held = self._holdings.transfers()
            for partition in held:
                partition.is_held = False
                self.dispatcher.drop(partition)
            partitions = [p for p in held if p.settlement.unsettled or p.settlement.is_dirty]
        deadline = time.monotonic() + CLOSE_SECONDS
        with self.client.turn:
            while partitions:
                error, _ = self.committer.commit(partitions)
                if error is None or kafka_error(error).code() not in TRANSIENT or time.monotonic() > deadline:
                    break
                self._membership.poll(consumer, SHORT_POLL_SECONDS)  # it rebalances; what comes is read again
        if partitions and error is not None:
            _log.warning("%s", jms_error(error, f"acknowledge messages of {self.name}"))
        with self.lock:
            for partition in held:
                self.drop_transfer(partition)
        with self.client.turn:
            self._forsake(consumer)
        self._handover.end()

    def _close_client(self, consumer: ConsumerPort) -> None:
        with self.client.turn:
            if self.is_kept:
                self._membership.close(consumer)
            else:
                consumer.close()

    # The group moves partitions between its members; these run in the thread, inside of a poll.

    def _on_assign(self, consumer: ConsumerPort, partitions: list[TopicPartition]) -> None:
        if self._closing or self._is_leaving:  # the poll is that of the closing: Kafka would not be asked any more
            return
        numbers = [assigned.partition for assigned in partitions]
        asides = self.aside.partitions() if numbers else 0
        wanted = [(self.topic, number) for number in numbers]
        wanted += [(self.aside.topic, number) for number in numbers if number < asides]
        if wanted and self.aside.is_new():
            self._open(consumer, wanted, dict.fromkeys)
        else:
            restored = self._holdings.restore(consumer, wanted, self._put_off)
            incomplete = {number for _, number in self._forgotten}
            # What was moved aside of a partition, and the partition, are opened together.
            self._forgotten += [(each.topic, each.number) for each in restored if each.number in incomplete]
            self._hold(consumer, [each for each in restored if each.number not in incomplete])
        with self.lock:
            self._is_proved = True

    def _put_off(self, places: Sequence[Place]) -> dict[Place, None]:
        """Note that *places* are opened with copies of their settlement; inside of the client, no log is read."""
        self._forgotten += places
        return {}

    def _open_forgotten(self, consumer: ConsumerPort) -> None:
        """Open the partitions whose settlement Kafka has forgotten, where copies of it say."""
        if not self._forgotten:
            return
        copies = self.aside.recall(self._forgotten)
        with self.client.turn:
            places, self._forgotten = self._forgotten, []
            self._open(consumer, places, lambda asked: {place: copies[place] for place in asked})

    def _on_revoke(self, consumer: ConsumerPort, partitions: list[TopicPartition]) -> None:
        with self.lock:
            last = [partition for revoked in partitions for partition in self._holdings.of(revoked.partition)]
            for partition in last:
                self.dispatcher.drop(partition)  # what is dispatched from now on, Kafka would not hear of
        if not (self._closing or self._is_leaving):
            self._rescue(last)
        with self.lock:
            for partition in last:
                partition.is_held = False
                self.dispatcher.drop(partition)  # what came back meanwhile
        error, _ = self.committer.commit(last)  # the poll that called this holds the client
        if error is not None:
            _log.warning("%s", jms_error(error, f"acknowledge messages of {self.name} before a rebalance"))
        self._keep_copies(last)
        self._let_go(consumer, partitions)

    def _rescue(self, leaving: Collection[AssignedPartition]) -> None:
        """Move what sessions have of partitions that are *leaving* to one that stays: it can still be acknowledged.

        Message groups are left: the next messages of them are delivered elsewhere at once.
        """
        with self.lock:
            numbers = {partition.number for partition in leaving}
            home = next((number for number in self._holdings.numbers() if number not in numbers), None)
            in_flight = [
                delivery
                for partition in leaving
                for _, delivery in partition.settlement.messages()
                if delivery.is_in_flight and not delivery.is_relocating and delivery.group is None
            ]
        if home is None or not 0 < len(in_flight) <= MOST_RESCUED:
            return
        place = self.aside.topic, home

        try:
            self.open_aside(home)
            self.aside.rescuer.move(
                self, [Move(each, self.copy_for(each, lambda: place), is_overflow=True, to=place) for each in in_flight]
            )
        except (JMSException, AbortedError, KafkaException) as error:
            _log.warning("%d messages of %s come again elsewhere: %s", len(in_flight), self.name, error)

    def _on_lost(self, consumer: ConsumerPort, partitions: list[TopicPartition]) -> None:
        with self.lock:
            if self._handover is not None:
                self._handover.lost()
        self._let_go(consumer, partitions)

    def _let_go(self, consumer: ConsumerPort, partitions: list[TopicPartition]) -> None:
        gone = {partition.partition for partition in partitions}
        self._forgotten = [place for place in self._forgotten if place[1] not in gone]
        with self.lock:
            dropped = [partition for revoked in partitions for partition in self._drop(revoked.partition)]
            self._is_proved = True
            self.dispatcher.dispatch_limit_moved()
        leaving = {(place.topic, place.partition) for place in partitions}  # also those that `_on_assign` did not open
        leaving.update((partition.topic, partition.number) for partition in dropped)
        # librdkafka refuses the whole list if it does not read one of them.
        consumer.incremental_unassign(
            [place for place in consumer.assignment() if (place.topic, place.partition) in leaving]
        )

    def _drop(self, number: int) -> list[AssignedPartition]:
        dropped = self._holdings.drop(number)
        for partition in dropped:
            self.dispatcher.drop(partition)
            self._crowding.discard(partition)
        return dropped

    def begin_to_close(self) -> None:
        """Tell the thread to leave the group and end; messages in flight go to whoever reads the topic next."""
        with self.lock:
            self._closing = True
            self._news.notify_all()

    def close(self) -> None:
        """Leave the group and end the thread; where Kafka does not answer, the thread ends when it does."""
        self.begin_to_close()
        thread = self._thread
        if thread is None:
            return
        thread.join(CLOSE_SECONDS)
        if thread.is_alive():
            _log.warning("reader of %s: Kafka does not answer; what it holds is let go when it does", self.name)
