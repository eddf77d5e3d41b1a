"""What `kjms.admin.Admin` says of messages, and of what it did with them: frozen values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Literal, TypeAlias

from kjms.destinations import Queue, Topic
from kjms.mapping.dead_letters import (
    CAUSE,
    CUT,
    DELIVERIES,
    DESTINATION,
    EXCEPTION,
    EXCEPTION_TEXT,
    FIRST_FAILURE,
    HOST,
    LAST_FAILURE,
    OFFSET,
    PARTITION,
    PROCESS,
    TOPIC,
    TRACEBACK,
)
from kjms.mapping.internal import MalformedError, read_number

if TYPE_CHECKING:
    from typing_extensions import Self

    from kjms.admin._figures import SubscriptionFigures
    from kjms.message import Message

__all__ = [
    "Changed",
    "DeadLetter",
    "DeadLetterCause",
    "DeadLetterQueue",
    "MessageFigures",
    "OnProgress",
    "Page",
    "Place",
    "Progress",
    "RedeliveryEvent",
    "Source",
    "State",
    "Subscription",
    "moment",
]

Place: TypeAlias = Literal["queue", "overflow", "transfer", "delayed"]
State: TypeAlias = Literal["waiting", "in flight", "delayed"]


def moment(milliseconds: int) -> datetime:
    """Return a point in time, in milliseconds since the epoch; the last one that Python knows for later ones."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
    except (OverflowError, OSError, ValueError):
        return datetime.max.replace(tzinfo=timezone.utc)


@dataclass(frozen=True)
class Subscription:
    """The name of a named subscription, where `Admin` takes a queue or a subscription.

    Attributes:
        name: The subscription's name.
        client_id: The client identifier that it belongs to; None for a shared subscription without one.
    """

    name: str
    client_id: str | None = None

    def __str__(self) -> str:
        return f"subscription {self.name!r}" + ("" if self.client_id is None else f" of client {self.client_id!r}")


Source: TypeAlias = "str | Queue | Topic | Subscription | SubscriptionFigures"
"""Where messages are: a queue, its name, or a named subscription."""


@dataclass(frozen=True)
class Progress:
    """How far an operation of `Admin` has got.

    Attributes:
        done: Messages that were processed; those that were looked at, where nothing is changed.
        total: How many there are to process; None: not known.
        destination: The queue or subscription.
    """

    done: int
    total: int | None
    destination: str


OnProgress: TypeAlias = "Callable[[Progress], object]"
"""Called in the caller's thread between batches. What it raises ends the operation; what was done stays done."""


@dataclass(frozen=True)
class DeadLetter:
    """What a dead letter says of its failure; None for what it does not say.

    Attributes:
        cause: Why it became a dead letter, such as ``delivered 10 times; its transaction was rolled back``.
        destination: The destination that it came from, such as ``queue://orders``.
        topic: The Kafka topic that it came from.
        partition: The partition there.
        offset: The offset there.
        deliveries: How often it was delivered.
        omitted: What was too large for the dead-letter queue: ``details``, the text and the traceback of the exception.
            Dead letters of earlier versions may lack parts of the message: ``headers`` or ``headers, body``.
        exception: The type of the exception, where one was raised.
        exception_message: Its text, if the option ``dead_letter_details`` is set.
        traceback: Its traceback, likewise.
        host: The host of the process where the last delivery failed.
        process: The number of that process.
        first_failure: When a delivery failed first, in milliseconds since the epoch.
        last_failure: When one failed last, likewise.
    """

    cause: str
    destination: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    deliveries: int | None = None
    omitted: str | None = None
    exception: str | None = None
    exception_message: str | None = None
    traceback: str | None = None
    host: str | None = None
    process: int | None = None
    first_failure: int | None = None
    last_failure: int | None = None

    @classmethod
    def of(cls, message: Message) -> Self | None:
        """Return what *message* says of its failure; None if it is not a dead letter."""
        if not message.property_exists(CAUSE):
            return None
        text = message.get_string_property

        def number(name: str) -> int | None:
            try:
                return read_number(text(name) or "")
            except MalformedError:
                return None

        return cls(
            cause=text(CAUSE) or "",
            destination=text(DESTINATION),
            topic=text(TOPIC),
            partition=number(PARTITION),
            offset=number(OFFSET),
            deliveries=number(DELIVERIES),
            omitted=text(CUT),
            exception=text(EXCEPTION),
            exception_message=text(EXCEPTION_TEXT),
            traceback=text(TRACEBACK),
            host=text(HOST),
            process=number(PROCESS),
            first_failure=number(FIRST_FAILURE),
            last_failure=number(LAST_FAILURE),
        )


@dataclass(frozen=True)
class MessageFigures:
    """A message that is not settled, where it is, and what happened to it.

    Attributes:
        message: The message, as a consumer would get it next: JMSXDeliveryCount is that of the next delivery.
        message_id: Its JMSMessageID; None: its producer left it out.
        destination: The queue, or the topic of the subscription.
        subscription: The subscription; None for a queue.
        place: Where it is: in the destination's own Kafka topic (``queue``), in the ``overflow`` topic, in a
            ``transfer`` partition on its way to another process, or among the ``delayed`` messages.
        topic: The Kafka topic that it is in now.
        partition: The partition there.
        offset: The offset there.
        state: ``waiting``; ``in flight``: a consumer may have received it, or may have been about to, see
            `QueueFigures.in_flight`; ``delayed``: it is not delivered before `due`.
        deliveries: How often it was delivered, as far as that is recorded: the present delivery of a message in flight
            is recorded when it ends.
        due: When it may be delivered; None: at once.
        size: The bytes of its key, headers and body.
        dead_letter: What it says of its failure; None: it is not a dead letter.
    """

    message: Message
    message_id: str | None
    destination: Queue | Topic
    subscription: Subscription | None
    place: Place
    topic: str
    partition: int
    offset: int
    state: State
    deliveries: int
    due: datetime | None
    size: int
    dead_letter: DeadLetter | None


@dataclass(frozen=True)
class Page:
    """Messages of a queue or subscription, and where the next ones are.

    Attributes:
        messages: The messages, in the order of their partitions.
        next: The argument ``after`` for the page that follows; None: this is the last.
        looked: How many messages were looked at for this page.
    """

    messages: tuple[MessageFigures, ...]
    next: str | None
    looked: int = 0


@dataclass(frozen=True)
class RedeliveryEvent:
    """An event of a message after its first delivery, from the log ``kjms.redeliveries``.

    Attributes:
        time: When it happened.
        event: ``redelivery``, ``dead letter``, or ``expired``: it went to the expiry queue.
        destination: The destination, such as ``queue://orders``.
        group: The consumer group of the queue or subscription.
        message_id: The message's JMSMessageID.
        count: Which delivery it was.
        cause: Why the delivery before failed; empty: not known.
        host: The host of the process that wrote the event; None: it does not say.
        process: The number of that process, likewise.
    """

    time: datetime
    event: str
    destination: str
    group: str
    message_id: str | None
    count: int
    cause: str
    host: str | None = None
    process: int | None = None


@dataclass(frozen=True)
class DeadLetterQueue:
    """A queue with dead letters.

    Attributes:
        name: The queue's name.
        dead_letters: How many it has. Other messages of the queue do not count.
        causes: How many of them have each cause, most frequent first. Of very many causes the later ones are called
            ``other causes``.
        last_failure: When the last of them failed; None: not known.
    """

    name: str
    dead_letters: int
    causes: Mapping[str, int] = field(default_factory=dict)
    last_failure: datetime | None = None


@dataclass(frozen=True)
class DeadLetterCause:
    """A cause of dead letters, across queues.

    Attributes:
        cause: The cause.
        dead_letters: How many dead letters have it.
        queues: How many of them are in each dead-letter queue, most first.
        last_failure: When the last of them failed; None: not known.
    """

    cause: str
    dead_letters: int
    queues: Mapping[str, int] = field(default_factory=dict)
    last_failure: datetime | None = None


class Changed(int):
    """How many messages an operation processed, and why others stayed: an `int` with attributes.

    Attributes:
        matched: How many messages there were to process when the operation began.
        stayed: How many of those are still where they were, by reason.

    >>> changed = Changed(2, matched=3, stayed={"in flight to a consumer": 1})
    >>> changed == 2, changed.stayed
    (True, {'in flight to a consumer': 1})
    """

    matched: int
    stayed: Mapping[str, int]

    def __new__(cls, done: int, *, matched: int | None = None, stayed: Mapping[str, int] | None = None) -> Self:
        """Return *done* with what else is known."""
        made = super().__new__(cls, done)
        made.matched = done if matched is None else matched
        made.stayed = {} if stayed is None else dict(stayed)
        return made

    def __repr__(self) -> str:
        return f"<Changed {int(self)} of {self.matched}: {dict(self.stayed)}>"
