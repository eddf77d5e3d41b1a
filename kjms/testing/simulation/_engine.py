"""The engine of a simulated process: what the sessions of kjms use of Kafka, answered by the simulated cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from kjms.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic
from kjms.engine import DURABLE, AssignedPartition, ConsumerSlot, Delivery, WantedTopic, destination_name
from kjms.engine.kafka import KafkaError, KafkaException, KafkaMessage
from kjms.engine.tuning import Tuning
from kjms.errors import (
    IllegalStateException,
    InvalidDestinationException,
    JMSException,
)
from kjms.mapping import decode
from kjms.mapping.dead_letters import dead_letter
from kjms.testing.simulation._cluster import Cluster, Entry, Group, SimulatedDelivery, listed
from kjms.txn.delivery_states import COMPLETED, DISPATCHED, READY, DeliveryState
from kjms.txn.metadata import History
from kjms.txn.states import NEVER

if TYPE_CHECKING:
    from kjms.engine import Identity, Receipt, SessionTransaction, Slot, Terms
    from kjms.mapping import KafkaRecord
    from kjms.mapping.dead_letters import Cause
    from kjms.message import Message
    from kjms.options import FactoryOptions
    from kjms.selector import Selector
    from kjms.testing.simulation._process import Process

__all__ = ["SimulatedEngine"]

COMMIT_SECONDS: Final = 0.1  # between commits in the background, as in the engine
POSSIBLE: Final = History(1, 1)  # of a message that a program may have seen


class _Nothing:
    """What sessions wait for, or ask to refuse a receive: nothing of that is simulated."""

    def check(self) -> None:
        """Refuse nothing."""

    def finish(self, seconds: float) -> None:
        """Return at once."""


class SimulatedSource:
    """What a process has of one queue or subscription."""

    is_shared = False
    has_peers = False

    def __init__(self, engine: SimulatedEngine, group: Group) -> None:
        self.destination = group.destination
        self.lock = threading.RLock()
        self.refusal: Any = _Nothing()
        self.group = group
        self._engine = engine
        self._process = engine.process
        self._partition = AssignedPartition(group.name, 0, None, is_kept=False)
        self._held: dict[SimulatedDelivery, None] = {}  # in the order of dispatch
        self._unflushed: list[SimulatedDelivery] = []
        self._receipts: dict[int, list[SimulatedDelivery]] = {}

    @property
    def name(self) -> str:
        """The destination's name."""
        return self.group.name

    @property
    def relocations(self) -> Any:
        """What moves messages: it is never behind."""
        return _Nothing()

    @property
    def has_messages(self) -> bool:
        """Whether sessions of the process have messages of it."""
        return any(each.is_held for each in self._held)

    # Slots.

    def start_slot(self, slot: ConsumerSlot) -> None:
        """Let messages come to *slot*."""
        slot.is_started = True
        slot.wakeup.set()

    def stop_slot(self, slot: ConsumerSlot) -> None:
        """Hold messages back from *slot*."""
        slot.is_started = False
        self.group.wake()

    def rest(self, slot: ConsumerSlot) -> None:
        """Do nothing: every consumer is woken for every message."""

    def wait_behind_others(self, slot: ConsumerSlot) -> bool:
        """Return that no consumer waits: the seed decides which one comes first."""
        return False

    def log_ends(self, seconds: float) -> None:
        """Return that there is nothing to wait for."""

    def has_read(self, slot: ConsumerSlot, ends: object) -> bool:
        """Return that all was read."""
        return True

    def take(self, slot: ConsumerSlot) -> Delivery | None:
        """Return the next message for *slot*."""
        process, engine = self._process, self._engine
        process.check()
        entry = self.group.next_for(slot, engine.now_ms()) if slot.is_started else None
        if entry is None:
            return None
        stored = entry.stored
        delivery = entry.delivery = SimulatedDelivery(entry, self._partition)
        if entry.history.deliveries:
            delivery.restore(entry.history)
        entry.is_new, entry.slot, delivery.due = False, None, 0
        delivery.slot, delivery.state = slot, DISPATCHED
        self._held[delivery] = None
        again = "" if delivery.count == 1 else f", delivery {delivery.count}"
        process.note(f"gets {stored} of {self.name}{again}")
        process.before(f"sees {stored}")
        return delivery

    # What becomes of messages.

    def settle_soon(self, delivery: Delivery) -> None:
        """Settle *delivery* with the next commit in the background."""
        self.settle([delivery])
        at = self._process.scheduler.now + COMMIT_SECONDS
        self._process.scheduler.at(at, self._commit_in_background)

    def settle(self, deliveries: Sequence[Delivery], *, is_urgent: bool = False) -> list[Receipt]:
        """Note that *deliveries* are done; the next flush settles them."""
        self._process.check()
        mine = cast("Sequence[SimulatedDelivery]", deliveries)
        for each in mine:
            each.state = COMPLETED
        self._unflushed += mine
        version = len(self._receipts) + 1
        self._receipts[version] = list(mine)
        return [(self._partition, version, len(mine))]

    def flush(self, timeout: float = 0.0, receipts: Sequence[Receipt] = ()) -> int:
        """Settle what is done; return how many of *receipts* other consumers got meanwhile."""
        process = self._process
        mine = [each for _, version, _ in receipts for each in self._receipts[version]]
        if self._unflushed or any(each.state != DeliveryState.SETTLED for each in mine):
            what = listed(each.entry.stored for each in [*self._unflushed, *mine])
            process.before(f"acknowledges {what}")
            settled = self._commit()
            for each in settled:
                process.note(f"acknowledged {each.entry.stored}")
            if settled:
                process.after(f"acknowledges {what}")
        lost = [each for each in mine if each.state != DeliveryState.SETTLED]
        for each in lost:
            process.note(f"cannot acknowledge {each.entry.stored}, which others have")
        return len(lost)

    def flush_before_exit(self, receipts: Sequence[Receipt] = ()) -> None:
        """Settle what is done."""
        self.flush(receipts=receipts)

    def _commit(self) -> list[SimulatedDelivery]:
        settled = [each for each in self._unflushed if each.is_held]
        self._unflushed = []
        for each in settled:
            self.settled(each)
        return settled

    def _commit_in_background(self) -> None:
        if not self._process.is_dead:
            for each in self._commit():
                self._process.note(f"acknowledged {each.entry.stored}")

    def settled(self, delivery: SimulatedDelivery) -> None:
        """Note that *delivery* is settled."""
        delivery.state = DeliveryState.SETTLED
        self._held.pop(delivery, None)
        self.group.settle(delivery.entry)

    def record(self, delivery: Delivery) -> bool:
        """Return whether *delivery* still may be made."""
        self._process.check()
        return cast("SimulatedDelivery", delivery).is_held

    def give_back(
        self,
        deliveries: Iterable[Delivery],
        *,
        to: Slot | None = None,
        is_counted: bool = True,
        due: Callable[[Delivery], int] | None = None,
    ) -> None:
        """Let the messages of *deliveries* be delivered again."""
        self._process.check()
        for each in cast("Iterable[SimulatedDelivery]", deliveries):
            self._held.pop(each, None)
            if not each.is_held:
                continue
            if is_counted:
                each.come_back(due, self._engine.now_ms())
            each.state = READY
            entry = each.entry
            entry.history = each.history
            entry.come_again(entry.history.due)
            entry.slot = cast("ConsumerSlot | None", to)
            self._engine.cluster.wake_at(self.group, entry.ready_at)
        self.group.wake()

    def reclaim(self, slot: Slot, kept: Collection[Delivery]) -> None:
        """Take back what the program of *slot* lost when it was stopped in the middle of a call."""
        lost = [each for each in self._held if each.slot is slot and each not in kept and each.state is DISPATCHED]
        self.give_back(lost, is_counted=False)

    def is_to_blame(self, delivery: Delivery, most: int) -> bool:
        """Return whether *delivery* is the oldest of those that are one too many; its count is lowered if not."""
        entry = cast("SimulatedDelivery", delivery).entry
        for other in self.group.entries:
            if other is entry:
                return True
            history = other.history
            if other.delivery is None and history.deliveries + 1 - history.uncounted > most:
                break
        delivery.attempts.uncounted += 1
        return False

    def dead_letter(self, delivery: Delivery, cause: Cause, target: WantedTopic, why: object) -> None:
        """Move the message of *delivery* to the queue of *target*."""
        self._process.check()
        mine = cast("SimulatedDelivery", delivery)
        mine.state = COMPLETED
        if mine.is_held:
            self._engine.cluster.topic(target.topic, target.destination)
            self._engine.cluster.append(target.topic, dead_letter(delivery.record, cause))
            self.settled(mine)
            self._process.note(f"{mine.entry.stored} goes to {destination_name(target.destination)}: {cause.text}")

    def leave(self) -> None:
        """Take away the consumers of the process, which has ended."""
        mine = [slot for slot in self.group.slots if slot.reader is self]
        self._engine.cluster.leave(self.group, mine)

    def abandon(self, delay: float, *, is_settled: bool, is_unmarked: bool) -> list[str]:
        """Give up everything, as a crash or a lost partition does, and say what becomes of it.

        Args:
            delay: Seconds until other consumers get the messages.
            is_settled: Whether what was about to be acknowledged in the background is acknowledged already.
            is_unmarked: Whether the last message of each session comes as if it had not been delivered.
        """
        lines: list[str] = []
        if is_settled:
            lines += [f"had acknowledged {each.entry.stored}" for each in self._commit()]
        self._unflushed = []
        now = self._engine.now_ms()
        held, self._held = [each for each in self._held if each.is_held], {}
        last = {each.slot.wakeup: each for each in held if each.slot is not None} if is_unmarked else {}
        unmarked = [each for each in last.values() if each.count == 1]
        for each in held:
            is_first = each.count == 1
            each.entry.history = NEVER if each in unmarked else POSSIBLE if is_first else each.history
            each.entry.come_again(now + round(delay * 1000))
            self._engine.cluster.wake_at(self.group, each.entry.ready_at)
        if held:
            when = f" in {delay:g} s" if delay else ""
            lines.append(f"{listed(each.entry.stored for each in held)} of {self.name} will be delivered again{when}")
        lines += [f"{each.entry.stored} will come unmarked" for each in unmarked]
        self.group.wake()
        return lines


class _Callbacks:
    """Calls completion listeners after the send that they belong to, one at a time."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []
        self._is_calling = False

    def join(self, call: Callable[[], None]) -> Callable[[], None]:
        """Return *call*, to be submitted."""
        return call

    def submit(self, call: Callable[[], None]) -> None:
        """Make *call* now, or after the one that is being made."""
        self._waiting.append(call)
        if self._is_calling:
            return
        self._is_calling = True
        try:
            while self._waiting:
                self._waiting.pop(0)()
        finally:
            self._is_calling = False

    def leave(self, call: Callable[[], None]) -> None:
        """Do nothing: there is no thread to end."""


class _Publisher:
    """Sends single messages."""

    backlog = 0
    report_timeout = 60.0

    def __init__(self, engine: SimulatedEngine) -> None:
        self.callbacks = _Callbacks()
        self._engine = engine

    def inform(self, informed: Any) -> None:
        """Have *informed* look at what has been sent."""
        informed.catch_up()

    def send_and_wait(self, topic: str, partition: int, record: KafkaRecord) -> None:
        """Send *record*.

        Raises:
            JMSException: It was not confirmed.
        """
        if not self._send(topic, record):
            raise self.failure(KafkaError(KafkaError._MSG_TIMED_OUT), topic)

    def send(self, topic: str, partition: int, record: KafkaRecord, report: Callable[..., None]) -> None:
        """Send *record*, and report that."""
        is_confirmed = self._send(topic, record)
        error = None if is_confirmed else KafkaError(KafkaError._MSG_TIMED_OUT)
        report(error, KafkaMessage(topic=topic, partition=0, offset=0))

    def _send(self, topic: str, record: KafkaRecord) -> bool:
        process, cluster = self._engine.process, self._engine.cluster
        name = cluster.name_of(topic)
        fault = process.before(f"sends to {name}", "failed send", "lost answer")
        if fault == "failed send":
            process.choices.made["failed send"] += 1
            process.note(f"CANNOT SEND to {name}")
            return False
        stored = cluster.append(topic, record)
        process.note(f"sent {stored} to {name}")
        if fault == "lost answer":
            process.choices.made["lost answer"] += 1
            process.note(f"GETS NO ANSWER for {stored}, which was sent")
            return False
        process.after(f"sends {stored}")
        return True

    def failure(self, error: KafkaError, topic: str) -> JMSException:
        """Return what *error* is in JMS."""
        text = f"send to {topic!r}: not confirmed by the simulated cluster within the send timeout"
        return JMSException(text, "_MSG_TIMED_OUT", KafkaException(error))


class _Committer:
    """Commits transactions."""

    def __init__(self, engine: SimulatedEngine) -> None:
        self._engine = engine

    def commit(self, work: SessionTransaction) -> JMSException | None:
        """Send and settle what *work* says, all or nothing; return why not."""
        process, cluster = self._engine.process, self._engine.cluster
        deliveries = cast("Sequence[SimulatedDelivery]", work.deliveries)
        if process.before("commits", "aborted transaction") is not None:
            process.choices.made["aborted transaction"] += 1
            process.note("CANNOT COMMIT: its producer was fenced")
            return JMSException("the producer was fenced off", "_FENCED")
        lost = [each for each in deliveries if not each.is_held]
        if lost:
            what = listed(each.entry.stored for each in lost)
            process.note(f"cannot commit: others have {what}")
            return JMSException(f"{len(lost)} messages belong to partitions that others have now")
        sent = [cluster.append(copy.topic, copy.record) for copy in work.copies]
        for each in deliveries:
            source = cast("SimulatedSource", cast("Slot", each.slot).reader)
            source.settled(each)
        done = [f"acknowledged {each.entry.stored}" for each in deliveries]
        done += [f"sent {each} to {cluster.name_of(copy.topic)}" for each, copy in zip(sent, work.copies, strict=True)]
        process.note(f"committed: {', '.join(done)}")
        process.after("commits")
        return None


class _Schedule:
    """Delayed messages wait in the queue that they are for."""

    def prepare(self, topic: str, partitions: int) -> str:
        """Return the topic where messages for *topic* wait: itself."""
        return topic

    def serve(self, topic: str) -> None:
        """Do nothing."""


class _Temporaries:
    """Refuses temporary destinations, which are not simulated."""

    def end_of(self, connection_id: str) -> None:
        """Do nothing: the connection has none."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def refuse(*_: object, **__: object) -> None:
            raise JMSException("temporary destinations are not simulated")

        return refuse


class _Subscriptions:
    """Durable subscriptions, and client identifiers."""

    def __init__(self, engine: SimulatedEngine) -> None:
        self._engine = engine

    def claim_client(self, client_id: str, lost: object, owner: object) -> str:
        """Return the claim of *client_id*; any number of connections may have it."""
        return client_id

    def release_client(self, claim: str) -> None:
        """Do nothing."""

    def remove(self, identity: Identity) -> None:
        """End a durable subscription.

        Raises:
            InvalidDestinationException: There is none of that name.
            IllegalStateException: It has a consumer.
        """
        subscriptions = self._engine.cluster.subscriptions
        if identity not in subscriptions:
            raise InvalidDestinationException(f"unsubscribe: there is no subscription {identity.name!r}")
        _, topic, group = subscriptions[identity]
        if group.slots:
            raise IllegalStateException(f"unsubscribe: {identity.name!r} has an open consumer")
        topic.groups.remove(group)
        del subscriptions[identity]


class _Browsing:
    """A look at what a queue holds."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self._messages = iter(list(messages))

    def next(self) -> Message | None:
        """Return the next message; None: there are no more."""
        return next(self._messages, None)

    def close(self) -> None:
        """Do nothing."""


class SimulatedEngine:
    """What the connections of a simulated process share, in the place of `kjms.engine.Engine`.

    Args:
        process: The process.
        cluster: The cluster.
        now_ms: The virtual time, in milliseconds since 1970.
        next_name: Returns the name of the next connection.
    """

    def __init__(
        self, process: Process, cluster: Cluster, now_ms: Callable[[], int], next_name: Callable[[], str]
    ) -> None:
        self.next_name = next_name
        self.process = process
        self.cluster = cluster
        self.now_ms = now_ms
        self.tuning = Tuning(wall_clock=lambda: now_ms() / 1000)
        self.prompt = self.bulk = _Publisher(self)
        self.committer = _Committer(self)
        self.schedule = _Schedule()
        self.temporaries = _Temporaries()
        self.subscriptions = _Subscriptions(self)
        self._sources: dict[Group, SimulatedSource] = {}

    def release(self, listener: object) -> None:
        """Do nothing: it ends with its process."""

    def wanted_topic(self, destination: Destination, options: FactoryOptions, *, like: str = "") -> WantedTopic:
        """Return the Kafka topic of *destination*."""
        return WantedTopic(destination, "", "", True, 1, None, like)  # programs with other prefixes share it

    def topic_of(
        self, destination: Destination, options: FactoryOptions, *, is_consumed: bool = False
    ) -> tuple[str, int]:
        """Return the Kafka topic of *destination*, and that it has one partition."""
        self.process.check()
        if isinstance(destination, TemporaryQueue | TemporaryTopic):
            raise InvalidDestinationException(f"{destination}: temporary destinations are not simulated")
        name = self.wanted_topic(destination, options).topic
        self.cluster.topic(name, destination)
        return name, 1

    def open_slot(
        self,
        destination: Destination,
        options: FactoryOptions,
        selector: Selector | None,
        wakeup: threading.Event,
    ) -> ConsumerSlot:
        """Return a slot on a queue, or on a topic from now on."""
        name, _ = self.topic_of(destination, options, is_consumed=True)
        if isinstance(destination, Queue):
            return self._slot(self.cluster.queue(name, destination), selector, wakeup)
        group = Group(destination_name(destination), destination, is_kept=False)
        self.cluster.topic(name, destination).groups.append(group)
        return self._slot(group, selector, wakeup)

    def open_subscription(
        self,
        identity: Identity,
        terms: Terms,
        options: FactoryOptions,
        wanted: Selector | None,
        wakeup: threading.Event,
        on_lost: object,
    ) -> ConsumerSlot:
        """Return a slot on a named subscription, which is made where it is missing, or has other terms."""
        self.process.check()
        found = self.cluster.subscriptions.get(identity)
        if found is None or found[0] != terms:
            topic = self.cluster.topic(terms.topic, terms.destination)
            if found is not None:
                topic.groups.remove(found[2])
            name = f"{identity.name} of {destination_name(terms.destination)}"
            group = Group(name, terms.destination, wanted, is_kept=identity.space == DURABLE)
            topic.groups.append(group)
            found = self.cluster.subscriptions[identity] = terms, topic, group
        return self._slot(found[2], None, wakeup)

    def _slot(self, group: Group, selector: Selector | None, wakeup: threading.Event) -> ConsumerSlot:
        source = self._sources.get(group)
        if source is None:
            source = self._sources[group] = SimulatedSource(self, group)
            self.process.sources.append(source)
        slot = ConsumerSlot(source, selector, wakeup)
        group.slots.append(slot)
        return slot

    def close_slots(self, slots: Sequence[ConsumerSlot]) -> None:
        """Close *slots*."""
        self.process.check()
        for slot in slots:
            slot.close()
            self.cluster.leave(cast("SimulatedSource", slot.reader).group, [slot])

    def browse(self, queue: Queue, options: FactoryOptions, selector: Selector | None) -> _Browsing:
        """Return a look at *queue*."""
        name, _ = self.topic_of(queue, options)
        entries: list[Entry] = self.cluster.queue(name, queue).entries
        messages = [decode(each.stored.record, queue, each.history.deliveries + 1) for each in entries]
        return _Browsing(each for each in messages if selector is None or selector.matches(each))
