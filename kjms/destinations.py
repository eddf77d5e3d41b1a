"""Where messages go: queues and topics as plain values, equal by kind and name.

A destination names a place, it does not make one (JMS 2.0 §B.2.21): the Kafka topic behind it is created, where the
factory allows that, when a session first uses it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from kjms.errors import InvalidDestinationException, JMSException, shown

__all__ = ["Destination", "DestinationType", "Queue", "TemporaryQueue", "TemporaryTopic", "Topic", "parse_destination"]


class DestinationType(enum.Enum):
    """The kinds of destinations, for programs that compare rather than ask ``isinstance``."""

    QUEUE = "queue"
    TOPIC = "topic"
    TEMPORARY_QUEUE = "temp-queue"
    TEMPORARY_TOPIC = "temp-topic"

    @classmethod
    def of(cls, destination: Destination) -> DestinationType:
        """Return the kind of *destination*.

        >>> DestinationType.of(Queue("orders"))
        <DestinationType.QUEUE: 'queue'>
        """
        return cls(destination.scheme)


class Destination:
    """What a message is sent to or received from: a `Queue` or a `Topic`.

    Two destinations are equal when their kind and their name are. They can be kept, hashed and shared by threads.

    Spec: JMS 2.0 §4.2.1 (administered objects), §2.8 (threads).
    """

    __slots__ = ("_name",)

    scheme = "destination"
    """The word before ``://`` in the destination's text form, such as ``queue://orders``."""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidDestinationException(f"a {self.scheme} needs a name, not {shown(name)}")
        self._name = name

    @property
    def destination_type(self) -> DestinationType:
        """Which kind of destination it is."""
        return DestinationType.of(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Destination) and (self.scheme, self._name) == (other.scheme, other._name)

    def __hash__(self) -> int:
        return hash((self.scheme, self._name))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r})"

    def __str__(self) -> str:
        """Return the text form that ``JMSReplyTo`` has on the wire, such as ``queue://orders``."""
        return f"{self.scheme}://{self._name}"


class Queue(Destination):
    """A queue: each message is consumed by one of its consumers (JMS 2.0 §5)."""

    __slots__ = ()
    scheme = "queue"

    @property
    def queue_name(self) -> str:
        """The queue's name (JMS 2.0 §5.2)."""
        return self._name


class Topic(Destination):
    """A topic: each message is delivered to every subscription (JMS 2.0 §6)."""

    __slots__ = ()
    scheme = "topic"

    @property
    def topic_name(self) -> str:
        """The topic's name (JMS 2.0 §6.2)."""
        return self._name


class _Temporary(Destination):
    """What a session makes, and what a program receives that learns of it, from a JMSReplyTo for instance.

    The object that the session returned is the destination: it can delete it, and with it the destination goes. It
    cannot be copied or pickled. What others have is a name: a plain value like all destinations, equal to it.
    """

    __slots__ = ("__weakref__", "_end")

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._end: Callable[[], None] | None = None

    def delete(self) -> None:
        """Delete it: nothing can be sent to it any more, and what was not received is gone. Again, it does nothing.

        Raises:
            JMSException: It has an open consumer, or this is not the object that the session has made, or Kafka does
                not answer.

        Spec: JMS 2.0 §4.4.3.
        """
        if self._end is None:
            raise JMSException(f"delete: {self} is only a name here; delete the object that its session created")
        self._end()

    def __reduce__(self) -> tuple[type[_Temporary], tuple[str]]:
        if self._end is not None:
            raise TypeError(f"{self} is unique and cannot be copied (JMS 2.0 §4.4.3); JMSReplyTo carries its name")
        return type(self), (self._name,)


class TemporaryQueue(_Temporary, Queue):
    """A queue that lives as long as its connection, and that only this connection consumes (JMS 2.0 §4.4.3)."""

    __slots__ = ()
    scheme = "temp-queue"


class TemporaryTopic(_Temporary, Topic):
    """A topic that lives as long as its connection, and that only this connection consumes (JMS 2.0 §4.4.3)."""

    __slots__ = ()
    scheme = "temp-topic"


_KINDS: dict[str, type[Destination]] = {kind.scheme: kind for kind in (Queue, Topic, TemporaryQueue, TemporaryTopic)}


def parse_destination(text: str) -> Destination:
    """Return the destination whose text form is *text*; the inverse of ``str(destination)``.

    Raises:
        InvalidDestinationException: *text* is not of that form.

    >>> parse_destination("queue://orders")
    Queue('orders')
    """
    scheme, separator, name = text.partition("://")
    kind = _KINDS.get(scheme)
    if not separator or kind is None:
        raise InvalidDestinationException(
            f"a destination is written as queue://NAME or topic://NAME, not {shown(text)}"
        )
    return kind(name)
