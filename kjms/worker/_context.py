"""What a listener gets beside its message: the session, the application's state, and sending."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic

from kjms.aio import JMSProducer as AsyncProducer
from kjms.client.jms_producer import JMSProducer, ProducerSettings
from kjms.errors import InvalidDestinationException
from kjms.worker._replies import DroppedReplies, reply_to

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from kjms.aio import JMSContext
    from kjms.client.session import Session
    from kjms.destinations import Destination
    from kjms.message import Message
    from kjms.options import DeliveryMode
    from kjms.worker._listener import Listener

    S = TypeVar("S", default=Any)
else:
    from typing import TypeVar

    S = TypeVar("S")

__all__ = ["AsyncContext", "Context"]

Value = bool | int | float | str | None


class _BaseContext(Generic[S]):
    """What both kinds of contexts have."""

    def __init__(
        self, message: Message, listener: Listener, state: S, stopping: threading.Event, dropped: DroppedReplies | None
    ) -> None:
        self._dropped = DroppedReplies() if dropped is None else dropped
        self.message = message
        self.listener = listener
        self.state = state
        self._stopping = stopping

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.listener.name}, message {self.message.jms_message_id}>"

    @property
    def is_stopping(self) -> bool:
        """Whether the process is ending: a long piece of work can end early, and raise, to be done again elsewhere."""
        return self._stopping.is_set()


class Context(_BaseContext[S]):
    """What a plain listener gets as its second argument, for one message.

    ``Context[Services]`` names the type of `state` for type checkers.

    Attributes:
        message: The message, whatever the listener's first argument is.
        session: The session that received it, a `kjms.Session`; the listener's thread uses it.
        listener: The listener's settings.
        state: What the application's ``lifespan`` yielded; None without one.
    """

    def __init__(
        self,
        message: Message,
        listener: Listener,
        state: S,
        stopping: threading.Event,
        session: Session,
        dropped: DroppedReplies | None = None,
    ) -> None:
        super().__init__(message, listener, state, stopping, dropped)
        self.session = session

    def send(
        self,
        destination: Destination,
        value: Any,
        *,
        delivery_mode: DeliveryMode | int | None = None,
        priority: int | None = None,
        time_to_live: int | timedelta | None = None,
        delivery_delay: int | timedelta | None = None,
        properties: Mapping[str, Value] | None = None,
    ) -> None:
        """Send *value* to *destination*: in the same transaction, if the listener's session is transacted.

        Args:
            destination: Where to.
            value: A message, or the body of one, as for `kjms.JMSProducer.send`.
            delivery_mode: PERSISTENT, unless given (JMS 2.0 §3.4.2).
            priority: From 0 to 9; 4 unless given (JMS 2.0 §3.4.10).
            time_to_live: Milliseconds until the message expires; 0: never (JMS 2.0 §3.4.9).
            delivery_delay: Milliseconds until the message is delivered.
            properties: The message's properties, typed by their Python types.

        Raises:
            InvalidDestinationException: *destination* is none, or Kafka has no such topic.
            MessageFormatException: No message can carry *value*.
            ResourceAllocationException: The message is too large, or the buffer stayed full.
            JMSException: Kafka did not confirm it within the send timeout.
            ValueError: An option is out of its range.
        """
        producer = JMSProducer(self.session._sender)
        set_options(producer, delivery_mode, priority, time_to_live, delivery_delay, properties)
        producer.send(destination, value)

    def reply(
        self,
        value: Any,
        *,
        delivery_mode: DeliveryMode | int | None = None,
        priority: int | None = None,
        time_to_live: int | timedelta | None = None,
        delivery_delay: int | timedelta | None = None,
        properties: Mapping[str, Value] | None = None,
    ) -> bool:
        """Send *value* to the message's JMSReplyTo, as `send` does, with the message's correlation id.

        That is its JMSCorrelationID, or without one its JMSMessageID. The value that the function returns is sent in
        the same way; a function that replies here returns None.

        Returns:
            Whether it was sent: the message may ask for no reply, and the temporary destination of an asker that has
            gone takes none. The latter is logged and counted (`Running.dropped_replies`), and is no failure.

        Raises:
            InvalidDestinationException: JMSReplyTo is no temporary destination, and Kafka has no such topic.
            MessageFormatException: No message can carry *value*.
            JMSException: Kafka did not confirm it within the send timeout.
        """
        found = reply_to(self.message, value)
        if found is None:
            return False
        producer = JMSProducer(self.session._sender)
        set_options(producer, delivery_mode, priority, time_to_live, delivery_delay, properties)
        try:
            producer.send(*found)
        except InvalidDestinationException as failure:
            self._dropped.add(self.listener, self.message, failure)
            return False
        return True

    def acknowledge(self) -> None:
        """Acknowledge the message now: it is done, whatever the function does afterwards, and if it raises, too.

        Returns when that is durable; with DUPS_OK_ACKNOWLEDGE it is so within 0.1 s. In a transacted session it commits
        what was sent so far. With CLIENT_ACKNOWLEDGE it acknowledges all that the session has received.

        Raises:
            TransactionRolledBackException: None of it was committed: the message is delivered again.
            JMSException: The message's partition was lost to another process: it is delivered there.
        """
        self.session._acknowledge_now(self.message)


class AsyncContext(_BaseContext[S]):
    """What an async listener gets as its second argument, for one message.

    Attributes:
        message: The message, whatever the listener's first argument is.
        session: The context that received it, a `kjms.aio.JMSContext`, which is a session for asyncio.
        listener: The listener's settings.
        state: What the application's ``lifespan`` yielded; None without one.
    """

    def __init__(
        self,
        message: Message,
        listener: Listener,
        state: S,
        stopping: threading.Event,
        session: JMSContext,
        dropped: DroppedReplies | None = None,
    ) -> None:
        super().__init__(message, listener, state, stopping, dropped)
        self.session = session

    async def send(
        self,
        destination: Destination,
        value: Any,
        *,
        delivery_mode: DeliveryMode | int | None = None,
        priority: int | None = None,
        time_to_live: int | timedelta | None = None,
        delivery_delay: int | timedelta | None = None,
        properties: Mapping[str, Value] | None = None,
    ) -> None:
        """Send *value* to *destination*: in the same transaction, if the listener's session is transacted.

        Arguments and errors are those of `Context.send`.
        """
        producer: AsyncProducer = self.session.create_producer()
        set_options(producer, delivery_mode, priority, time_to_live, delivery_delay, properties)
        await producer.send(destination, value)

    async def reply(
        self,
        value: Any,
        *,
        delivery_mode: DeliveryMode | int | None = None,
        priority: int | None = None,
        time_to_live: int | timedelta | None = None,
        delivery_delay: int | timedelta | None = None,
        properties: Mapping[str, Value] | None = None,
    ) -> bool:
        """Send *value* to the message's JMSReplyTo, with its correlation id; see `Context.reply`."""
        found = reply_to(self.message, value)
        if found is None:
            return False
        producer: AsyncProducer = self.session.create_producer()
        set_options(producer, delivery_mode, priority, time_to_live, delivery_delay, properties)
        try:
            await producer.send(*found)
        except InvalidDestinationException as failure:
            self._dropped.add(self.listener, self.message, failure)
            return False
        return True

    async def acknowledge(self) -> None:
        """Acknowledge the message now, whatever the function does afterwards; see `Context.acknowledge`."""
        session = self.session._session("acknowledge")
        await session.run("acknowledge", session._acknowledge_now, self.message)


def set_options(
    producer: ProducerSettings,
    delivery_mode: DeliveryMode | int | None,
    priority: int | None,
    time_to_live: int | timedelta | None,
    delivery_delay: int | timedelta | None,
    properties: Mapping[str, Value] | None,
) -> None:
    """Set on *producer* what is given."""
    if delivery_mode is not None:
        producer.set_delivery_mode(delivery_mode)
    if priority is not None:
        producer.set_priority(priority)
    if time_to_live is not None:
        producer.set_time_to_live(time_to_live)
    if delivery_delay is not None:
        producer.set_delivery_delay(delivery_delay)
    for name, value in (properties or {}).items():
        producer.set_property(name, value)
