"""JMS 1.1's names for what works with queues alone, or with topics alone: the same objects, which refuse the rest.

Spec: JMS 2.0 §2.5, §4.11.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, cast, overload

from kjms.client.connection import Connection
from kjms.client.connection_factory import ConnectionFactory
from kjms.client.consumer import MessageConsumer
from kjms.client.producer import MessageProducer
from kjms.client.session import Session
from kjms.client.slot_opener import either
from kjms.client.topic_subscriber import TopicSubscriber
from kjms.destinations import Queue, Topic
from kjms.errors import IllegalStateException, InvalidDestinationException

if TYPE_CHECKING:
    from kjms.message import Message
    from kjms.options import DeliveryMode

__all__ = [
    "QueueConnection",
    "QueueConnectionFactory",
    "QueueReceiver",
    "QueueSender",
    "QueueSession",
    "TopicConnection",
    "TopicConnectionFactory",
    "TopicPublisher",
    "TopicSession",
]


def _refused(name: str, session: str) -> Callable[..., NoReturn]:
    """Return a method *name* that a *session* has inherited and must not have (JMS 2.0 §4.11)."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise IllegalStateException(f"{name}: not in a {session} (JMS 2.0 §4.11)")

    refuse.__name__ = name
    refuse.__qualname__ = f"{session}.{name}"
    refuse.__doc__ = f"Raise IllegalStateException: there is no such thing in a {session} (JMS 2.0 §4.11)."
    return refuse


class QueueConnectionFactory(ConnectionFactory):
    """Makes queue connections; else as `kjms.ConnectionFactory` (JMS 2.0 §5.5)."""

    def create_queue_connection(self, user: str | None = None, password: str | None = None) -> QueueConnection:
        """Return a new queue connection, stopped; see `kjms.ConnectionFactory.create_connection`."""
        return QueueConnection(self._options, user, password)


class QueueConnection(Connection):
    """A connection that makes queue sessions, too; made by `QueueConnectionFactory` (JMS 2.0 §5.6)."""

    def create_queue_session(
        self, session_mode: int | bool = Session.AUTO_ACKNOWLEDGE, acknowledge_mode: int = 1
    ) -> QueueSession:
        """Return a new session for queues; see `kjms.Connection.create_session`."""
        return self._create_session(QueueSession, session_mode, acknowledge_mode)


class QueueSender(MessageProducer):
    """Sends messages to a queue, or to one named with each send; made by `QueueSession.create_sender`.

    Spec: JMS 2.0 §5.8.
    """

    @property
    def queue(self) -> Queue | None:
        """Where the sender sends to; None when each send says it."""
        return cast("Queue | None", self.destination)


class QueueReceiver(MessageConsumer):
    """Receives the messages of a queue; made by `QueueSession.create_receiver` (JMS 2.0 §5.8)."""

    @property
    def queue(self) -> Queue:
        """The queue that it is on."""
        self._check_open("queue")
        return cast("Queue", self._destination)


class QueueSession(Session):
    """A session for queues; made by `QueueConnection.create_queue_session`.

    What is of topics alone raises IllegalStateException, and a topic InvalidDestinationException.

    Spec: JMS 2.0 §5.7, §4.11.
    """

    create_topic = _refused("create_topic", "QueueSession")
    create_temporary_topic = _refused("create_temporary_topic", "QueueSession")
    create_durable_consumer = _refused("create_durable_consumer", "QueueSession")
    create_durable_subscriber = _refused("create_durable_subscriber", "QueueSession")
    create_shared_consumer = _refused("create_shared_consumer", "QueueSession")
    create_shared_durable_consumer = _refused("create_shared_durable_consumer", "QueueSession")
    unsubscribe = _refused("unsubscribe", "QueueSession")

    def create_sender(self, queue: Queue | None = None) -> QueueSender:
        """Return a producer for *queue*, or, with None, for those that its sends name; see `create_producer`."""
        return self._open_producer("create_sender", QueueSender, queue)

    def create_receiver(
        self, queue: Queue, selector: str | None = None, *, message_selector: str | None = None
    ) -> QueueReceiver:
        """Return a consumer of *queue*; see `create_consumer`."""
        return self._open_consumer("create_receiver", QueueReceiver, queue, either(selector, message_selector))

    def _check_destination(self, destination: object) -> None:
        super()._check_destination(destination)
        if not isinstance(destination, Queue):
            raise InvalidDestinationException(f"a QueueSession cannot use a topic such as {destination}")


class TopicConnectionFactory(ConnectionFactory):
    """Makes topic connections; else as `kjms.ConnectionFactory` (JMS 2.0 §6.7)."""

    def create_topic_connection(self, user: str | None = None, password: str | None = None) -> TopicConnection:
        """Return a new topic connection, stopped; see `kjms.ConnectionFactory.create_connection`."""
        return TopicConnection(self._options, user, password)


class TopicConnection(Connection):
    """A connection that makes topic sessions, too; made by `TopicConnectionFactory` (JMS 2.0 §6.8)."""

    def create_topic_session(
        self, session_mode: int | bool = Session.AUTO_ACKNOWLEDGE, acknowledge_mode: int = 1
    ) -> TopicSession:
        """Return a new session for topics; see `kjms.Connection.create_session`."""
        return self._create_session(TopicSession, session_mode, acknowledge_mode)


class TopicPublisher(MessageProducer):
    """Sends messages to a topic, or to one named with each send; made by `TopicSession.create_publisher`.

    Spec: JMS 2.0 §6.10.
    """

    @property
    def topic(self) -> Topic | None:
        """Where the publisher sends to; None when each send says it."""
        return cast("Topic | None", self.destination)

    @overload
    def publish(
        self,
        message: Message,
        topic: Topic | None = None,
        delivery_mode: DeliveryMode | int | None = None,
        priority: int | None = None,
        time_to_live: int | timedelta | None = None,
    ) -> None: ...
    @overload
    def publish(
        self,
        topic: Topic,
        message: Message,
        /,
        delivery_mode: DeliveryMode | int | None = None,
        priority: int | None = None,
        time_to_live: int | timedelta | None = None,
    ) -> None: ...
    def publish(
        self,
        message: Any,
        topic: Any = None,
        delivery_mode: DeliveryMode | int | None = None,
        priority: int | None = None,
        time_to_live: int | timedelta | None = None,
    ) -> None:
        """Send *message* to the topic, which may stand before it; see `kjms.MessageProducer.send`."""
        self.send(message, topic, delivery_mode, priority, time_to_live)


class TopicSession(Session):
    """A session for topics; made by `TopicConnection.create_topic_session`.

    What is of queues alone raises IllegalStateException, and a queue InvalidDestinationException.

    Spec: JMS 2.0 §6.9, §4.11.
    """

    create_queue = _refused("create_queue", "TopicSession")
    create_temporary_queue = _refused("create_temporary_queue", "TopicSession")
    create_browser = _refused("create_browser", "TopicSession")

    def create_publisher(self, topic: Topic | None = None) -> TopicPublisher:
        """Return a producer for *topic*, or, with None, for those that its sends name; see `create_producer`."""
        return self._open_producer("create_publisher", TopicPublisher, topic)

    def create_subscriber(
        self,
        topic: Topic,
        selector: str | None = None,
        no_local: bool = False,
        *,
        message_selector: str | None = None,
    ) -> TopicSubscriber:
        """Return a consumer of the messages that are sent to *topic* from now on; see `create_consumer`."""
        subscriber = partial(TopicSubscriber, no_local=no_local)
        chosen = either(selector, message_selector)
        return self._open_consumer("create_subscriber", subscriber, topic, chosen, no_local)

    def _check_destination(self, destination: object) -> None:
        super()._check_destination(destination)
        if not isinstance(destination, Topic):
            raise InvalidDestinationException(f"a TopicSession cannot use a queue such as {destination}")
