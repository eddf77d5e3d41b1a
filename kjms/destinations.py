"""Where messages go: queues and topics as plain values, equal by kind and name.

A destination names a place, it does not make one (JMS 2.0 §B.2.21): the Kafka topic behind it is created, where the
factory allows that, when a session first uses it.
"""

from __future__ import annotations

from kjms.errors import InvalidDestinationException, shown

__all__ = ["Destination", "Queue", "TemporaryQueue", "TemporaryTopic", "Topic", "parse_destination"]


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


class TemporaryQueue(Queue):
    """A queue that lives as long as its connection, and that only this connection consumes (JMS 2.0 §4.4.3)."""

    __slots__ = ()
    scheme = "temp-queue"


class TemporaryTopic(Topic):
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
