"""What observers are given: frozen values, one class for each event.

Durations are milliseconds, as everywhere in the API, and floats, since most are shorter than one. Two events are equal
only if they are the same object, so that an observer can keep what belongs to one in a dictionary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from kjms.destinations import Destination, Queue
    from kjms.errors import JMSException
    from kjms.message import Message

__all__ = [
    "Committed",
    "DeadLettered",
    "Outage",
    "Outcome",
    "Rebalanced",
    "Received",
    "Recovered",
    "Redelivered",
    "RolledBack",
    "Sending",
    "Sent",
    "Settled",
]

Outcome: TypeAlias = Literal["acknowledged", "returned", "dead-lettered"]
"""What became of a message that was received; ``returned`` messages are delivered again."""


@dataclass(frozen=True, slots=True, eq=False)
class Sending:
    """A message that is about to be sent.

    Attributes:
        destination: Where to.
        message: The message, with the header fields that the send has set. An observer leaves it as it is.
        is_transacted: Whether it waits for the commit of its session.
    """

    destination: Destination
    message: Message
    is_transacted: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Sent:
    """The outcome of a send.

    Attributes:
        sending: What `Observer.sending` was given.
        duration_ms: Milliseconds from the call to the broker's confirmation; of a message in a transaction, to the end
            of the commit.
        error: Why it failed; None: it did not.
    """

    sending: Sending
    duration_ms: float
    error: BaseException | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Received:
    """A message that reaches the program.

    Attributes:
        destination: What its consumer is on.
        message: The message. An observer leaves it as it is.
        delivery_count: Which delivery of the message this is: JMSXDeliveryCount.
        time_in_queue_ms: Milliseconds since the message was sent, or was due, by the clocks of two machines, and at
            least 0; None: it has no timestamp.
        is_listener: Whether a listener is called with it; else a receive or a loop over the consumer returns it.
        topic: The Kafka topic of its record, which may be a copy.
        partition: The partition of the record.
        offset: The offset of the record.
    """

    destination: Destination
    message: Message
    delivery_count: int = 1
    time_in_queue_ms: float | None = None
    is_listener: bool = False
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Redelivered:
    """A message that reaches the program not for the first time.

    Attributes:
        received: What `Observer.received` was given.
        cause: Why the last delivery failed; empty: this process does not know.
    """

    received: Received
    cause: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """Messages of one destination that the program is through with; their commit may be under way still.

    Attributes:
        destination: The destination.
        messages: What `Observer.received` was given for each of them.
        outcome: What became of them.
        processing_ms: Milliseconds from the delivery of each of *messages* to this; empty where AUTO_ACKNOWLEDGE or
            DUPS_OK_ACKNOWLEDGE settled it when a receive returned it.
        error: What the listener raised, or the exception that the program handled; None: there is none, or it is not
            known.
    """

    destination: Destination
    messages: tuple[Received, ...]
    outcome: Outcome = "acknowledged"
    processing_ms: tuple[float, ...] = ()
    error: BaseException | None = None

    @property
    def count(self) -> int:
        """How many messages it settles."""
        return len(self.messages)


@dataclass(frozen=True, slots=True, eq=False)
class DeadLettered:
    """A message that moves to a dead-letter queue.

    Attributes:
        destination: Where it came from.
        queue: The dead-letter queue.
        message: The message. An observer leaves it as it is.
        delivery_count: How many deliveries it had.
        cause: Why the last one failed; empty: this process does not know.
        error: What the last one raised, where that is known.
    """

    destination: Destination
    queue: Queue
    message: Message
    delivery_count: int
    cause: str = ""
    error: BaseException | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Committed:
    """A session's transaction that was committed.

    Attributes:
        sent: What `Observer.sending` was given for each message that it sent; `Observer.sent` follows for each.
        received: What `Observer.received` was given for each message that it received, which are settled by it.
        duration_ms: Milliseconds that the commit took.
    """

    sent: tuple[Sending, ...]
    received: tuple[Received, ...]
    duration_ms: float


@dataclass(frozen=True, slots=True, eq=False)
class RolledBack:
    """A session's transaction that was rolled back: by the program, by its close, or because its commit failed.

    Attributes:
        sent: What `Observer.sending` was given for each message that it sent: they were not sent.
        received: What `Observer.received` was given for each message that it received: `Observer.settled` says what
            becomes of them.
        error: Why its commit failed; None: the program rolled it back.
    """

    sent: tuple[Sending, ...]
    received: tuple[Received, ...]
    error: JMSException | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Rebalanced:
    """Partitions of a queue or subscription that this process got, or gave up.

    Attributes:
        destination: The queue or topic.
        group: The consumer group in Kafka.
        change: ``assigned``; ``revoked``: given up in order; ``lost``: another process has them already.
        partitions: The partitions.
        duration_ms: Milliseconds that it took this process.
    """

    destination: Destination
    group: str
    change: Literal["assigned", "revoked", "lost"]
    partitions: tuple[int, ...]
    duration_ms: float


@dataclass(frozen=True, slots=True, eq=False)
class Outage:
    """The cluster does not answer.

    Attributes:
        bootstrap_servers: The cluster.
        error: What the exception listener gets, too.
    """

    bootstrap_servers: str
    error: JMSException


@dataclass(frozen=True, slots=True, eq=False)
class Recovered:
    """A cluster that did not answer is back.

    Attributes:
        bootstrap_servers: The cluster.
        error: What the outage was reported with.
        duration_ms: Milliseconds that the outage took, from its first sign.
    """

    bootstrap_servers: str
    error: JMSException
    duration_ms: float
