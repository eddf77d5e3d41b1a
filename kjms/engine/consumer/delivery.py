"""A message on its way through a reader, and the Kafka partition that it came from."""

from __future__ import annotations

import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from kjms.destinations import Destination
from kjms.engine.statistics import PartitionStatistics
from kjms.mapping import compact, decode
from kjms.txn.delivery_states import COMPLETED, DISPATCHED, UNMATCHED
from kjms.txn.metadata import History, State
from kjms.txn.states import NEVER, PartitionSettlement

if TYPE_CHECKING:
    from kjms.engine.admin.topics import WantedTopic
    from kjms.engine.consumer.message_groups import MessageGroup
    from kjms.engine.kafka import TopicPartition
    from kjms.engine.transactions.plan import Settler
    from kjms.mapping import SourceRecord
    from kjms.mapping.bridges import Decoder
    from kjms.mapping.dead_letters import Cause
    from kjms.message import Message

__all__ = ["AssignedPartition", "Delivery", "Event", "MessageSource", "Receipt", "Slot"]

DEFAULT_PRIORITY: Final = 4  # of messages that do not say (JMS 2.0 §3.4.10)
HIGHEST_PRIORITY: Final = 9
POSSIBLE: Final = History(1, 1)  # of a message that a program may have seen


class AssignedPartition:
    """A Kafka partition while a reader holds it.

    Args:
        topic: The Kafka topic.
        number: Its partition.
        state: Its settlement, as it was committed.
        decode: How its records are read.
        is_kept: Whether its settlement is kept in Kafka; else it ends with the reader.
        is_overflow: Whether it is of the overflow topic, whose records carry the history of their messages.
        is_transfer: Whether others hand messages over in it.
        identity: Kafka's id of the topic, ``-`` where it is not known.

    Attributes:
        is_gone: Whether the topic was deleted: what was read of it cannot be acknowledged, and does not come again.
        planned: The offset up to which messages had been dispatched when a commit was last planned.
        read_to: Where the log ended when the client came to its end last; what a transaction writes at its end may lie
            between it and the last message.
        window: How many offsets beyond what was dispatched the next commit is to permit; 0: each message is granted.
        extend_at: Dispatching this offset, or a later one, has the window moved.
    """

    __slots__ = (
        "decode",
        "extend_at",
        "identity",
        "is_crowded",
        "is_gone",
        "is_held",
        "is_kept",
        "is_overflow",
        "is_transfer",
        "kept",
        "number",
        "planned",
        "read_to",
        "refill_at",
        "settlement",
        "topic",
        "window",
    )

    def __init__(
        self,
        topic: str,
        number: int,
        state: State | None,
        decode: Decoder = decode,
        *,
        is_kept: bool = True,
        is_overflow: bool = False,
        is_transfer: bool = False,
        identity: str = "-",
    ) -> None:
        self.topic = topic
        self.number = number
        self.decode = decode
        self.is_kept = is_kept
        self.is_overflow = is_overflow
        self.is_transfer = is_transfer
        self.is_held = True
        self.is_gone = False
        self.identity = identity
        self.is_crowded = False  # its settlement takes up most of the room that Kafka gives it
        self.settlement: PartitionSettlement[Delivery] = PartitionSettlement(state)
        self.planned = self.settlement.dispatched
        self.read_to = -1
        self.kept: TopicPartition | None = None  # what was committed since the last copy of it was made
        self.window = 1  # the first commit tells
        self.refill_at = 0  # when so many are left of what was granted, more is
        self.extend_at = -1
        if not is_kept:
            self.settlement.free_from, self.settlement.dispatch_limit = -1, sys.maxsize
            self.extend_at = sys.maxsize

    def __repr__(self) -> str:
        return f"<Partition {self.topic}[{self.number}] from {self.settlement.committed_offset}>"

    @property
    def group_scope(self) -> int:
        """What tells it from others where message groups are concerned; its overflow partition has the same."""
        return -1 - self.number if self.is_transfer else self.number

    @property
    def needs_dispatch_limit(self) -> bool:
        """Whether a consumer waits for a message that may not be dispatched yet, or the window's end is near."""
        settlement = self.settlement
        if settlement.requests:
            return True
        is_near = settlement.position > settlement.dispatch_limit and settlement.dispatched > self.extend_at
        return is_near and self.window > 0

    def statistics(self) -> PartitionStatistics:
        """Return what is settled of it; the caller holds the group consumer's lock."""
        settlement = self.settlement
        return PartitionStatistics(
            topic=self.topic,
            number=self.number,
            settled_before=settlement.committed_offset,
            position=settlement.position,
            dispatch_limit=settlement.dispatch_limit if self.is_kept else None,
            unsettled=settlement.unsettled,
            evicted=settlement.evicted,
            is_committed=not self.is_kept or not (settlement.is_dirty or self.needs_dispatch_limit),
        )

    def is_near_end(self, offset: int) -> bool:
        """Return whether the window is to be moved, or more to be granted, where the message at *offset* goes."""
        settlement = self.settlement
        if not self.window:
            return False
        return self.extend_at <= offset < settlement.dispatch_limit or len(settlement.granted) == self.refill_at

    def dispatch_limit_moved(self, window: int) -> None:
        """Note that there is a new window, or that the next one is to be *window* offsets ahead."""
        if self.is_kept:
            self.window = window
            self.refill_at = len(self.settlement.granted) + 1 >> 1
            self.extend_at = self.settlement.dispatch_limit - (window >> 1)


Receipt: TypeAlias = "tuple[AssignedPartition, int, int]"
"""A partition, the version of its settlement that has the messages of the receipt settled, and how many these are."""

Event: TypeAlias = Literal["redelivery", "dead letter", "expired"]
"""What happens to a message after its first delivery."""


class Attempts:
    """What is known of the deliveries of a message: of most messages there is but one, and nothing to know.

    Attributes:
        uncounted: How many of them do not count towards the maximum.
        cause: Why the message came back last, for people.
        first_failure: When a delivery failed first, in milliseconds since the epoch; 0: none did.
        last_failure: When one failed last, likewise.
        is_back: Whether another consumer or process was to have it, and did not take it: it may come after later ones.
        is_made: Whether the present delivery, a repeated one, is certain: it is committed, and the partition is held.
        is_uncounted: Whether the present delivery is one of those that do not count.
        is_presumed: Whether the first delivery is presumed, after a process that was killed; it counts if the present
            one ends with its process as well.
        logged: The last delivery that the log of redeliveries has.
        recorded: The history that the record tells: of a copy, what happened before.
        releases: How often a client released the message, by the number of the link; not part of the count.
    """

    __slots__ = (
        "cause",
        "first_failure",
        "is_back",
        "is_made",
        "is_presumed",
        "is_uncounted",
        "last_failure",
        "logged",
        "recorded",
        "releases",
        "uncounted",
    )

    def __init__(self) -> None:
        self.uncounted = 0
        self.cause = ""
        self.first_failure = 0
        self.last_failure = 0
        self.is_back = False
        self.is_made = False
        self.is_presumed = False
        self.is_uncounted = False
        self.logged = 0
        self.recorded = NEVER
        self.releases: Counter[int] | None = None


NO_ATTEMPTS: Final = Attempts()
"""Of a message of which nothing is known; it is never changed."""


class Delivery:
    """A message on its way: the record it came from, and how often it was dispatched.

    Attributes:
        order: Of arrival, for messages that come back.
        count: Which delivery of the message this is, or will be next: JMSXDeliveryCount.
        due: When it may be dispatched, in milliseconds since the epoch; 0 is at once.
        ready_in: How many selector queues it is ready in.
        state: Where it is; a selector queue passes over what it still lists and is not ready.
        is_relocating: Whether a copy is being written to the overflow topic; meanwhile it is where its state says.
        group: Its message group (JMSXGroupID, or what another program gave as the key); None: it is in none.
        busy: The same, while a session has a message of it.
        priority: JMSPriority.
    """

    __slots__ = (
        "_attempts",
        "busy",
        "count",
        "decoded",
        "due",
        "group",
        "is_relocating",
        "offset",
        "order",
        "partition",
        "priority",
        "ready_in",
        "record",
        "slot",
        "state",
    )

    def __init__(self, record: SourceRecord, partition: AssignedPartition, offset: int, order: int) -> None:
        self.record = record
        self.partition = partition
        self.offset = offset
        self.order = order
        self.count = 1
        self.due = 0
        self.ready_in = 0
        self.state = UNMATCHED
        self.is_relocating = False
        self.decoded: Message | None = None
        self.slot: Slot | None = None
        self.group = record.key()
        self.busy: MessageGroup[Delivery] | None = None
        self.priority = DEFAULT_PRIORITY
        self._attempts: Attempts | None = None

    def __repr__(self) -> str:
        return f"<Delivery {self.count} of {self.partition.topic}[{self.partition.number}]@{self.offset}>"

    @property
    def attempts(self) -> Attempts:
        """What is known of its deliveries."""
        if self._attempts is None:
            self._attempts = Attempts()
        return self._attempts

    @property
    def recorded(self) -> History:
        """The history that the record tells: of a copy, what happened before."""
        return NEVER if self._attempts is None else self._attempts.recorded

    def stands_at(self, partition: AssignedPartition, offset: int, told: History) -> None:
        """Note that its record is now the one at *offset* of *partition*, which tells the history *told*."""
        self.partition, self.offset = partition, offset
        if told != self.recorded:
            self.attempts.recorded = told

    @property
    def is_in_flight(self) -> bool:
        """Whether its present delivery was begun: a session has it, or had it last."""
        return self.state is DISPATCHED or self.state is COMPLETED

    @property
    def history(self) -> History:
        """What happened to the message so far: the delivery that is under way is part of it.

        It is what the next process continues from where this one is killed now.
        """
        if self._attempts is None and self.count == 1 and not self.due and not self.is_in_flight:
            return NEVER
        attempts = self._attempts or NO_ATTEMPTS
        if not self.is_in_flight:
            return History(self.count - 1, attempts.uncounted, self.due, attempts.first_failure)
        is_certain = attempts.is_presumed and not attempts.is_uncounted  # a second process was killed by it
        return History(self.count, attempts.uncounted - is_certain, failed=attempts.first_failure)

    @property
    def counted(self) -> int:
        """Which delivery this is, of those that count towards the maximum."""
        return self.count - self.attempts.uncounted

    @property
    def counted_if_failed(self) -> int:
        """How many deliveries count towards the maximum if this one, which was made, fails."""
        return self.counted + self.attempts.is_uncounted

    @property
    def made(self) -> int:
        """How many deliveries were made, with the present one and those that were released."""
        releases = (self._attempts or NO_ATTEMPTS).releases
        return self.count if releases is None else self.count + releases.total()

    def failed(self, now: int) -> None:
        """Note that a delivery failed, *now* in milliseconds since the epoch."""
        attempts = self.attempts
        attempts.last_failure = now
        attempts.first_failure = attempts.first_failure or now

    def uncount(self) -> None:
        """Note that its session continued with another message: if the process fails now, this one is not the cause."""
        attempts = self.attempts
        if self.count > 1 and not attempts.is_uncounted:
            attempts.is_uncounted = True
            attempts.uncounted += 1
            self.note()

    def come_back(self, due: Callable[[Delivery], int] | None, now: int) -> None:
        """Note that it was delivered, until *now*, and is to be delivered again: when *due* says, or at once."""
        attempts = self.attempts
        attempts.is_presumed = False
        if attempts.is_uncounted:  # it comes back in order, so it counts
            attempts.is_uncounted = False
            attempts.uncounted -= 1
        self.count += 1
        self.failed(now)
        self.due = 0 if due is None else due(self)
        self.note()

    def note(self, *, is_last: bool = False) -> None:
        """Keep what happened to the message, unless its record tells.

        Args:
            is_last: The partition is given up in order: a repeated delivery that is not made by now will not be.
        """
        history, attempts = self.history, self._attempts or NO_ATTEMPTS
        if is_last and self.count > 1 and not attempts.is_made:
            history = History(self.count - 1, attempts.uncounted, self.due, attempts.first_failure)
        elif is_last:
            history = history._replace(uncounted=attempts.uncounted)  # its process was not killed
        settlement = self.partition.settlement
        noted = settlement.noted(self.offset)
        if noted is None:
            noted = settlement.history(self.offset) if self.recorded == NEVER else self.recorded
        if history != noted:
            settlement.note(self.offset, history)

    def possibly_made(self) -> None:
        """Note that a program may have seen the message, or not: it comes marked, and the delivery does not count."""
        if self.count == 1:
            self.restore(POSSIBLE)
        self.partition.settlement.possibly_delivered((self.offset,))

    def restore(self, history: History) -> None:
        """Continue from *history*."""
        self.count = history.deliveries + 1
        self.due = history.due
        self.attempts.uncounted = history.uncounted
        self.attempts.is_presumed = history.deliveries == history.uncounted == 1
        self.attempts.first_failure = history.failed

    def decode(self, destination: Destination) -> Message:
        """Decode the message, note its priority, and return it."""
        message = self.decoded = self.partition.decode(self.record, destination, self.count)
        if "JMSPriority" in message._properties or self.partition.decode is not decode:  # as header fields wait there
            self.priority = message.jms_priority
        return message

    def message(self, destination: Destination) -> Message:
        """Return the JMS message, which is decoded once until a session takes it."""
        return self.decode(destination) if self.decoded is None else self.decoded

    def compact(self) -> None:
        """Keep of it what the garbage collector looks at least: no consumer wants it now, so it may stay for long."""
        self.decoded = None
        compact(self.record)


class MessageSource(Protocol):
    """What sessions, and transactions, do with messages of a queue, a subscription or a temporary destination.

    Attributes:
        destination: Where the messages were sent.
        lock: Guards what is held, dispatched and settled; taken by each method.
    """

    destination: Destination
    lock: threading.RLock

    @property
    def relocations(self) -> Settler[Delivery]:
        """What Kafka transactions settle."""

    @property
    def name(self) -> str:
        """The destination's name."""

    def settle_soon(self, delivery: Delivery) -> None:
        """Note, without the lock, that *delivery*, which a session had, is done: it is committed within 0.1 s."""

    def settle(self, deliveries: Sequence[Delivery], *, is_urgent: bool = False) -> list[Receipt]:
        """Note that *deliveries*, which a session had, are done; return what `flush` takes.

        Args:
            deliveries: The deliveries, oldest first.
            is_urgent: Whether the consumer thread commits it at once. Else the next `flush` does, or the thread within
                0.1 s.
        """

    def flush(self, timeout: float = ..., receipts: Sequence[Receipt] = ()) -> int:
        """Return when what was settled is committed, and how much of *receipts* was lost: see `OffsetCommitter.flush`.

        Raises:
            JMSException: The broker refused it.
        """

    def flush_before_exit(self, receipts: Sequence[Receipt] = ()) -> None:
        """Flush, and return in any case: see `OffsetCommitter.flush_before_exit`.

        Raises:
            JMSException: The broker refused it, or did not answer in time.
        """

    def record(self, delivery: Delivery) -> bool:
        """Record *delivery* durably before it is made; return whether it still may be.

        Raises:
            JMSException: The broker refused it.
        """

    def give_back(
        self,
        deliveries: Iterable[Delivery],
        *,
        to: Slot | None = None,
        is_counted: bool = True,
        due: Callable[[Delivery], int] | None = None,
    ) -> None:
        """Take back messages that were dispatched: they are delivered again, in their order.

        Args:
            deliveries: The messages, oldest first.
            to: The consumer that gets them again; None, or one that is stopped: any that matches.
            is_counted: Whether they come marked as redelivered: they do, unless no application saw them.
            due: Says when a message may be delivered again, in milliseconds since the epoch; 0 is at once.
        """

    def reclaim(self, slot: Slot, kept: Collection[Delivery]) -> None:
        """Take back what the program of *slot* lost when it was interrupted: any consumer gets it, marked, uncounted.

        Args:
            slot: The consumer's.
            kept: What its session knows that it has.
        """

    def is_to_blame(self, delivery: Delivery, most: int) -> bool:
        """Return whether *delivery* is the oldest of those that are one too many; its count is lowered then.

        The others are delivered once more: the process that had all of them may have been killed by the oldest.

        Args:
            delivery: The delivery; a session has it, and it was not made.
            most: How many deliveries count, at the most.
        """

    def dead_letter(self, delivery: Delivery, cause: Cause, target: WantedTopic, why: Event) -> None:
        """Relocate *delivery*, which a session has, for good: no consumer here gets it again.

        Args:
            delivery: The message; its count says how many deliveries were made.
            cause: What its dead letter says.
            target: The topic that it goes to.
            why: What the log of redeliveries says.
        """


class Slot(Protocol):
    """What a message that was dispatched knows of its consumer.

    Attributes:
        wakeup: Set when there may be something to poll.
        is_started: Whether messages may come.
        returned: What the consumer gets again, before anything else.
        returned_at: When it was returned.
        has_priorities: Whether it took a message that is more, or less, urgent than others; its session notes that.
    """

    wakeup: threading.Event
    is_started: bool
    has_priorities: bool
    returned: deque[Delivery]
    returned_at: float

    @property
    def reader(self) -> MessageSource:
        """Where the message comes from."""
