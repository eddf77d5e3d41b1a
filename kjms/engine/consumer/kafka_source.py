"""The messages of a Kafka topic, read by a group consumer: what sessions use of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kjms.engine.consumer.access_denial import AccessDenial
from kjms.engine.consumer.assignment import Assignment
from kjms.engine.consumer.client import COMMIT_SECONDS, ConsumerClient
from kjms.engine.consumer.dispatcher import Dispatcher
from kjms.engine.consumer.fetch_positions import FetchPositions
from kjms.engine.consumer.flow_control import FlowControl
from kjms.engine.consumer.group_consumer import GroupConsumer
from kjms.engine.consumer.handover_support import HandoverSupport
from kjms.engine.consumer.in_flight import InFlight
from kjms.engine.consumer.intake import NOTHING, RecordIntake
from kjms.engine.consumer.lifecycle import Lifecycle
from kjms.engine.consumer.membership import Membership
from kjms.engine.consumer.offset_committer import TICK_SECONDS, OffsetCommitter
from kjms.engine.consumer.rebalancing import Rebalancing
from kjms.engine.consumer.relocations import Relocations
from kjms.engine.consumer.restoration import SettlementRestorer
from kjms.engine.consumer.slots import StartedSlots
from kjms.engine.consumer.stall import STALL_SECONDS, StallDetector
from kjms.engine.consumer.standalone import StandaloneReading
from kjms.engine.consumer.topic_identity import TopicIdentity
from kjms.engine.consumer.transfer_reading import TransferReading
from kjms.engine.consumer.upkeep import Upkeep
from kjms.engine.interrupts import Condition
from kjms.engine.log_reading import UNTIL_END
from kjms.engine.outage import FULL_TIMEOUT, CloseTimeout
from kjms.engine.statistics import GroupConsumerStatistics, HandoverStatistics
from kjms.engine.transactions.deduplicator import LOOK_BACK, Deduplicator

if TYPE_CHECKING:
    from kjms.destinations import Destination
    from kjms.engine.admin.topics import WantedTopic
    from kjms.engine.consumer.consumer_slot import ConsumerSlot
    from kjms.engine.consumer.delivery import Delivery, Event, Receipt, Slot
    from kjms.engine.consumer.overflow import Overflow
    from kjms.engine.consumer.rebalancing import Change
    from kjms.engine.handover.service import HandoverService
    from kjms.engine.kafka import KafkaMessage
    from kjms.engine.log_reading import Place
    from kjms.errors import JMSException
    from kjms.mapping.bridges import Decoder
    from kjms.mapping.dead_letters import Cause

__all__ = ["KafkaSource", "statistics_of"]

BATCH: Final = 250  # messages that are dispatched at once to a consumer; more gains little


class KafkaSource:
    """The messages of one Kafka topic for one queue or subscription, and all its consumers in this process.

    It composes the parts, which share one lock, and adds what needs several of them. Lock order: the client's `turn`
    before this lock; no thread that holds this lock waits for `turn`.

    Args:
        destination: What it reads; its messages say that they were sent to it.
        name: The destination's name, for thread names and logs.
        config: librdkafka's settings of the consumer.
        topic: The Kafka topic.
        overflow: What the engine does for messages that are relocated.
        starts: Without a group: the offset from which each partition is read. None: the group knows.
        keeps_unmatched: Whether a message that no selector here wants stays (a queue) or is done with (a subscription).
        prefetch: How many messages it holds ready.
        decode: How its records are read.
        on_error: Receives errors that only the connection's exception listener can report.
        delayed_before: Of a subscription: which delayed messages were sent before there was one, as the offset where
            each partition that they waited in ended then. They are none of its messages.
        handover: Through which other processes in the group get messages; None: there can be none.
        identity: Kafka's id of the topic that *starts* are of; ``-``: it is asked for when the thread begins.
        repeats: Knows what was there already, and is not to be delivered; None: everything is delivered.
        on_rebalance: Called after a rebalance with what changed, the partitions, and the seconds that it took.
    """

    def __init__(
        self,
        destination: Destination,
        name: str,
        config: Mapping[str, Any],
        topic: str,
        overflow: Overflow,
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
        on_rebalance: Callable[[Change, list[int], float], None],
    ) -> None:
        tuning, is_kept = overflow.tuning, starts is None
        self.destination = destination
        self.lock = lock = threading.RLock()
        self._changed = changed = Condition(lock)
        self._dispatcher = dispatcher = Dispatcher(
            destination,
            keeps_unmatched=keeps_unmatched,
            limit=prefetch,
            evicts=keeps_unmatched and is_kept,
            most_unmatched=tuning.most_unmatched,
            batch=min(BATCH, prefetch >> 2),
        )
        self._assignment = assignment = Assignment(
            name, topic, overflow.topic, overflow.group, overflow.engine, dispatcher, tuning
        )
        self._in_flight = in_flight = InFlight(dispatcher, tuning.now_ms)
        self.settle_soon = in_flight.settled.append
        self._topics = overflow.topics
        self._slots = slots = StartedSlots(dispatcher, assignment, in_flight, tuning.grace_seconds)
        self._stall = stall = StallDetector(is_member=is_kept)
        self._intake = intake = RecordIntake(assignment, dispatcher, prefetch, on_error, delayed_before, repeats)
        self.refusal = access = AccessDenial(on_error)
        client, lifecycle, membership = ConsumerClient(name, lock, changed), Lifecycle(), Membership()
        identities = TopicIdentity(assignment, overflow, intake, destination, identity, lock, on_error)
        restorer = SettlementRestorer(name, topic, overflow, decode, on_error)
        look_back = LOOK_BACK if repeats is not None and keeps_unmatched else 0
        fetch = FetchPositions(assignment, client, overflow, restorer, identities, dispatcher, lock, look_back)
        self._committer = committer = OffsetCommitter(
            assignment,
            client,
            dispatcher,
            in_flight,
            lock,
            changed,
            before_commit=lambda: self._handover.give_up_expired(),  # noqa: PLW0108 - it is made below
            make_room=lambda each, share: self.relocations.make_room(each, share),  # noqa: PLW0108 - likewise
        )
        self.relocations = relocations = Relocations(
            assignment, client, committer, dispatcher, in_flight, overflow, lock, changed, fetch.open_overflow
        )
        transfers = TransferReading(
            config,
            assignment,
            client,
            fetch,
            committer,
            dispatcher,
            overflow,
            lock,
            changed,
            may_open=lambda: stall.is_certain and not lifecycle.is_leaving,
        )
        self._handover = HandoverSupport(
            assignment,
            dispatcher,
            client,
            overflow,
            slots,
            stall,
            fetch,
            transfers,
            relocations,
            lock,
            keeps_unmatched=keeps_unmatched,
            prefetch=prefetch,
            session_timeout=float(config.get("session.timeout.ms", 0)) / 1000,
        )
        self._handover.begin(handover)
        peers = self._handover.handover
        upkeep = Upkeep(assignment, committer, client, dispatcher, stall, overflow, lock)
        rebalancing = Rebalancing(
            membership,
            assignment,
            client,
            fetch,
            transfers,
            committer,
            upkeep,
            relocations,
            dispatcher,
            lifecycle,
            peers,
            lock,
            on_rebalance,
        )
        self._consumer = GroupConsumer(
            name,
            {**config, **UNTIL_END},
            client,
            lifecycle,
            slots,
            rebalancing,
            None if starts is None else StandaloneReading(starts, assignment, overflow, identities, decode, lock),
            fetch,
            FlowControl(dispatcher, intake, in_flight, committer, client, lifecycle, peers, tuning, lock, changed),
            upkeep,
            identities,
            access,
            self._arrived,
            changed,
        )

    def __repr__(self) -> str:
        return (
            f"<KafkaSource {self.name}: partitions {sorted(self._assignment.numbers())},"
            f" {self._dispatcher.held} ready, {self._dispatcher.in_flight} in flight, {self._slots.count} started>"
        )

    @property
    def name(self) -> str:
        """The destination's name."""
        return self._assignment.name

    @property
    def topic(self) -> str:
        """The Kafka topic."""
        return self._assignment.topic

    @property
    def group(self) -> str:
        """Kafka's name of its group; empty without one."""
        return self._assignment.group

    @property
    def is_reading(self) -> bool:
        """Whether a started consumer is there, or was a moment ago."""
        return self._consumer.thread is not None

    @property
    def is_shared(self) -> bool:
        """Whether several consumers are started, here or in other processes that may get messages from here."""
        return self._slots.count > 1 or bool(self._dispatcher.sharing.peers)

    @property
    def has_peers(self) -> bool:
        """Whether consumers in other processes may want the messages."""
        return bool(self._dispatcher.sharing.peers)

    @property
    def is_closed(self) -> bool:
        """Whether closing was asked for."""
        return self._consumer.is_closed

    @property
    def thread(self) -> threading.Thread | None:
        """The consumer thread; None: it does not run."""
        return self._consumer.thread

    @property
    def has_messages_in_flight(self) -> bool:
        """Whether a session has messages that it may still settle or give back."""
        with self.lock:
            return self._slots.has_messages_in_flight

    def places(self) -> list[tuple[str, int]]:
        """Return the topic and number of each partition that it holds."""
        with self.lock:
            return [(partition.topic, partition.number) for partition in self._assignment]

    def statistics(self) -> GroupConsumerStatistics:
        """Return what it holds, and how many consumers wait for it."""
        with self.lock:
            self._in_flight.collect()
            return statistics_of(
                self.destination,
                self._assignment,
                self._dispatcher,
                self._slots,
                self.relocations,
                is_reading=self.is_reading,
                is_paused=self._consumer.is_paused,
                is_certain=self._stall.is_certain,
                handover=self._handover.statistics(),
            )

    # Consumers come and go.

    def start_slot(self, slot: ConsumerSlot) -> None:
        """Let messages come to *slot*, and begin to read if no other slot is started.

        Raises:
            JMSException: librdkafka refuses a setting.
        """
        with self.lock:
            if slot.is_started or not slot.is_open:
                return
            self._consumer.start()
            self._slots.start(slot)
            self._handover.changed()
        slot.wakeup.set()

    def stop_slot(self, slot: ConsumerSlot) -> None:
        """Hold messages back from *slot*."""
        with self.lock:
            if slot.is_started:
                self._slots.stop(slot)
                self._handover.send_over()
                self._changed.notify()

    def rest(self, slot: ConsumerSlot) -> None:
        """Note that the consumer of *slot* stopped waiting."""
        with self.lock:
            self._dispatcher.rest(slot)
            self._changed.notify()

    def wait_behind_others(self, slot: ConsumerSlot) -> bool:
        """Have *slot*, which has taken messages for a while, wait behind those that wait: see `Dispatcher`."""
        with self.lock:
            slot.streak = 0
            return self._dispatcher.wait_behind_others(slot)

    def log_ends(self, seconds: float) -> Mapping[Place, int] | None:
        """Return where what is read ends now: see `SlotSource.log_ends`.

        Raises:
            JMSException: The broker did not answer, or refused.
        """
        counts: dict[str, int] = {}
        for topic, number in self.places():
            counts[topic] = max(counts.get(topic, 0), number + 1)
        if not counts:
            return None
        return {
            (topic, number): end
            for topic, count in counts.items()
            for number, end in self._topics.ends(topic, count, seconds).items()
        }

    def has_read(self, slot: ConsumerSlot, ends: Mapping[Place, int]) -> bool:
        """Return whether *slot* gets nothing more of what is before *ends*: see `SlotSource.has_read`."""
        with self.lock:
            if not self._stall.is_certain or self._dispatcher.eviction.wants_reread or slot.has_ready:
                return False
            return all(
                not each.settlement.is_rereading
                and max(each.settlement.position, each.read_to) >= ends.get((each.topic, each.number), 0)
                for each in self._assignment
                if not each.is_transfer
            )

    # Messages go out and come back.

    def take(self, slot: ConsumerSlot) -> Delivery | None:
        """Return the next message for *slot*, or note that it waits for one."""
        with self.lock:
            dispatcher = self._dispatcher
            now = time.monotonic()
            stall, in_flight = self._stall, self._in_flight
            is_certain = stall.is_certain if now - stall.seen < STALL_SECONDS else stall.check(now)
            in_flight.collect()
            ready = dispatcher.held
            delivery = dispatcher.take(slot) if is_certain else dispatcher.wait(slot)
            if delivery is None and is_certain and dispatcher.was_refused and slot.is_started:
                delivery = self._take_granted(slot)
            worked = slot.took(delivery, now)
            handover = self._handover.handover
            if handover is not None:
                handover.took(delivery, worked, now)
            if delivery is None:
                if slot.is_started:
                    self._changed.notify()
                return None
            slot.batch_until = stall.seen + STALL_SECONDS
            in_flight.is_active = True
            if (
                dispatcher.wants_dispatch_limit
                or ready > self._intake.limit >> 1 >= dispatcher.held
                or (slot.queue is not None and slot.queue.waiting and slot.queue.is_starved)
            ):
                self._changed.notify()
            return delivery

    def _take_granted(self, slot: ConsumerSlot) -> Delivery | None:
        """Return the next message for *slot* once a commit permits to dispatch it; None: that took too long."""
        commits = self._committer.commits
        self._changed.notify_all()  # the consumer thread commits
        self._committer.moved.wait_for(lambda: self._committer.commits != commits, TICK_SECONDS)
        return self._dispatcher.take(slot) if self._stall.is_certain else None

    def settle(self, deliveries: Sequence[Delivery], *, is_urgent: bool = False) -> list[Receipt]:
        """Note that *deliveries* are done: see `MessageSource.settle`."""
        with self.lock:
            receipts = self._in_flight.settle(deliveries)
            if is_urgent and self._assignment.is_kept:
                self._committer.urge()
            return receipts

    def flush(self, timeout: float = COMMIT_SECONDS, receipts: Sequence[Receipt] = ()) -> int:
        """Return when what was settled is committed, and how much of *receipts* was lost: see `OffsetCommitter.flush`.

        Raises:
            JMSException: The broker refused it.
        """
        return self._committer.flush(timeout, receipts)

    def flush_before_exit(self, receipts: Sequence[Receipt] = (), timeout: CloseTimeout = FULL_TIMEOUT) -> None:
        """Flush, and return in any case: see `OffsetCommitter.flush_before_exit`.

        Raises:
            JMSException: The broker refused it, or did not answer in time.
        """
        self._committer.flush_before_exit(receipts, timeout)

    def record(self, delivery: Delivery) -> bool:
        """Record *delivery* durably before it is made; return whether it still may be.

        Raises:
            JMSException: The broker refused it.
        """
        return self.relocations.record(delivery, self.destination)

    def wait_before_revoking(self, seconds: float) -> None:
        """Have rebalances wait, for up to *seconds*, until sessions have settled what they have of what is to go."""
        self.relocations.waits_seconds = seconds

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
            if self._in_flight.give_back(deliveries, to=to, is_counted=is_counted, due=due):
                self._changed.notify()
            self._handover.send_over()

    def reclaim(self, slot: Slot, kept: Collection[Delivery]) -> None:
        """Take back what the program of *slot* lost when it was interrupted: see `MessageSource.reclaim`."""
        with self.lock:
            self._in_flight.reclaim(slot, kept, self._assignment)
            self._handover.send_over()

    def is_to_blame(self, delivery: Delivery, most: int) -> bool:
        """Return whether *delivery* is to become a dead letter: see `MessageSource.is_to_blame`."""
        with self.lock:
            return self._in_flight.is_to_blame(delivery, most)

    def dead_letter(self, delivery: Delivery, cause: Cause, target: WantedTopic, why: Event) -> None:
        """Relocate *delivery*, which a session has, for good: see `MessageSource.dead_letter`."""
        self.relocations.dead_letter(delivery, cause, target, why, self.destination)

    # What several parts do together.

    def _arrived(self, records: Sequence[KafkaMessage]) -> None:
        """Take *records* in.

        Raises:
            JMSSecurityException: The broker does not let the consumer read.
        """
        with self.lock:
            has_transfers, denial = self._intake.arrived(records)
            if self._handover.handover is not None:
                self._handover.arrived(has_transfers=has_transfers)
        if denial is not None:
            raise denial
        self.refusal.over()

    def begin_to_close(self) -> None:
        """Have the thread leave the group and end; messages in flight go to the next owner of their partitions."""
        self._consumer.begin_to_close()

    def close(self, timeout: CloseTimeout = FULL_TIMEOUT) -> None:
        """Leave the group and end the thread; where the broker does not answer, the thread ends when it does."""
        self._consumer.close(timeout)


def statistics_of(
    destination: Destination,
    assignment: Assignment,
    dispatcher: Dispatcher,
    slots: StartedSlots,
    relocations: Relocations,
    *,
    is_reading: bool = False,
    is_paused: bool = False,
    is_certain: bool = True,
    handover: HandoverStatistics | None = None,
) -> GroupConsumerStatistics:
    """Return what a source holds; the caller holds its lock."""
    return GroupConsumerStatistics(
        destination=str(destination),
        name=assignment.name,
        topic=assignment.topic,
        group=assignment.group,
        is_reading=is_reading,
        consumers=slots.count,
        waiting=dispatcher.selector_queues.waiting,
        selectors=dispatcher.selector_queues.selectors,
        ready=dispatcher.held + len(dispatcher.batches),
        unmatched=len(dispatcher.unmatched),
        delayed=len(dispatcher.delayed),
        group_blocked=dispatcher.groups.waiting,
        in_flight=dispatcher.in_flight - len(dispatcher.batches),
        moving=relocations.waiting,
        dispatched=dispatcher.dispatched - len(dispatcher.batches),
        commits=relocations.committer.commits,
        is_paused=is_paused,
        is_certain=is_certain,
        partitions=tuple(partition.statistics() for partition in assignment),
        handover=handover,
    )
