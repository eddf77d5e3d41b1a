"""Open the consumer of a listener, in whatever kind of session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from kjms.destinations import Topic

if TYPE_CHECKING:
    from kjms.destinations import Destination
    from kjms.worker._listener import Listener

__all__ = ["open_consumer"]

C_co = TypeVar("C_co", covariant=True)


class _Consuming(Protocol[C_co]):
    """A session, or a context for asyncio."""

    def create_consumer(self, destination: Destination, selector: str | None = None) -> C_co:
        """Return a consumer of a queue, or of a topic."""

    def create_shared_consumer(self, topic: Topic, name: str, selector: str | None = None) -> C_co:
        """Return a consumer of a shared non-durable subscription."""

    def create_shared_durable_consumer(self, topic: Topic, name: str, selector: str | None = None) -> C_co:
        """Return a consumer of a shared durable subscription."""


def open_consumer(session: _Consuming[C_co], listener: Listener) -> C_co:
    """Return the consumer of *listener* in *session*.

    Raises:
        JMSException: It cannot be opened.
    """
    if listener.subscription is None:
        return session.create_consumer(listener.destination, listener.selector)
    topic = cast("Topic", listener.destination)
    if listener.durable:
        return session.create_shared_durable_consumer(topic, listener.subscription, listener.selector)
    return session.create_shared_consumer(topic, listener.subscription, listener.selector)
