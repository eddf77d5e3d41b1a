"""The simplified API's consumer, which returns messages or their bodies."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, overload

from kjms.client.closing import AutoCloseable
from kjms.client.consumer import seconds_of
from kjms.errors import MessageFormatException
from kjms.message import Message, StreamMessage
from kjms.message._typed import check

if TYPE_CHECKING:
    from kjms.client.consumer import MessageConsumer
    from kjms.client.message_listener import MessageListener

__all__ = ["JMSConsumer", "body_of", "check_type"]

T = TypeVar("T")


class JMSConsumer(AutoCloseable):
    """Receives the messages of one destination, or their bodies; made by `kjms.JMSContext.create_consumer`.

    Spec: JMS 2.0 §11.2.5.
    """

    def __init__(self, consumer: MessageConsumer) -> None:
        self._consumer = consumer

    def __repr__(self) -> str:
        return f"<JMSConsumer, {self._consumer!r}>"

    @property
    def message_selector(self) -> str | None:
        """The selector that the consumer was made with, or None (JMS 2.0 §3.8.1)."""
        return self._consumer.message_selector

    @property
    def message_listener(self) -> MessageListener | None:
        """What is called for each message, by the context's own thread; None takes it away (JMS 2.0 §4.5.2).

        A listener that raises gets the message again at once, marked as redelivered (AUTO and DUPS_OK).
        """
        return self._consumer.message_listener

    @message_listener.setter
    def message_listener(self, listener: MessageListener | None) -> None:
        self._consumer.message_listener = listener

    def receive(self, timeout: int | timedelta | None = None) -> Message | None:
        """Return the next message, waiting for it; see `kjms.MessageConsumer.receive` (JMS 2.0 §4.5.1).

        Args:
            timeout: How long to wait, in milliseconds; None or 0: without limit.

        Returns:
            The message; None when the time was over, or the consumer was closed meanwhile.

        Raises:
            IllegalStateException: The consumer is closed, or another thread is using the context.
            JMSException: The consumer has a listener, or the last message's acknowledgement failed.
            ValueError: *timeout* is negative.
        """
        return self._consumer._receive(seconds_of(timeout))

    def receive_no_wait(self) -> Message | None:
        """Return the next message if one is at hand, else None (JMS 2.0 §4.5.1)."""
        return self._consumer.receive_no_wait()

    @overload
    def receive_body(self, type_: type[T], timeout: int | timedelta | None = None) -> T | None: ...
    @overload
    def receive_body(self, type_: object, timeout: int | timedelta | None = None) -> Any: ...
    def receive_body(self, type_: Any, timeout: int | timedelta | None = None) -> Any:
        """Return the body of the next message, waiting for it.

        Args:
            type_: What the body is to be: str for that of a TextMessage, bytes of a BytesMessage, dict of a MapMessage,
                the object's class of an ObjectMessage; object is all of them. A type that `kjms.Message.get_body` makes
                of JSON, such as a dataclass, or ``list[Order]``.
            timeout: How long to wait, in milliseconds; None or 0: without limit.

        Returns:
            The body; None when the time was over, or the consumer was closed meanwhile.

        Raises:
            MessageFormatException: The message has no such body, or none. With AUTO_ACKNOWLEDGE and DUPS_OK_ACKNOWLEDGE
                the message was not received: the consumer gets it next, not counted as redelivered. With
                the other modes it was received: it is acknowledged or recovered, committed or rolled back like others.
            IllegalStateException: The consumer is closed, or another thread is using the context.
            JMSException: The consumer has a listener, or the last message's acknowledgement failed.
            ValueError: *timeout* is negative, or no body can become a *type_*.

        Spec: JMS 2.0 §11.2.5.
        """
        return self._receive_body(type_, seconds_of(timeout))

    @overload
    def receive_body_no_wait(self, type_: type[T]) -> T | None: ...
    @overload
    def receive_body_no_wait(self, type_: object) -> Any: ...
    def receive_body_no_wait(self, type_: Any) -> Any:
        """Return the body of the next message if one is at hand, else None. Errors as for `receive_body`."""
        return self._receive_body(type_, 0.0)

    def _receive_body(self, type_: Any, seconds: float | None) -> Any:
        check_type(type_)
        bodies: list[Any] = []
        self._consumer._receive(seconds, lambda message: bodies.append(body_of(message, type_)))
        return bodies[0] if bodies else None

    def __iter__(self) -> Iterator[Message]:
        """Return the messages one by one, waiting for each, until the consumer is closed.

        When a message is acknowledged is said in `kjms.MessageConsumer`.
        """
        return iter(self._consumer)

    def close(self) -> None:
        """Close the consumer; a receive that waits returns None. Messages it did not get go to others.

        Raises:
            IllegalStateException: The consumer's own listener called it.

        Spec: JMS 2.0 §4.5.3.
        """
        self._consumer.close()

    def _close_after(self, error: BaseException) -> None:
        self._consumer._close_after(error)


def check_type(type_: Any) -> None:
    """Raise what is wrong with *type_* as the type of a body, before a message is received for it.

    Raises:
        ValueError: No body can become a *type_*.
    """
    try:
        check(type_)
    except TypeError as error:
        raise ValueError(f"receive_body: type_ is a class, such as str, or another type of bodies: {error}") from error


@overload
def body_of(message: Message, type_: type[T]) -> T: ...
@overload
def body_of(message: Message, type_: object) -> Any: ...
def body_of(message: Message, type_: Any) -> Any:
    """Return the body of *message*, which is a *type_*.

    Raises:
        MessageFormatException: It has no such body, or none.
    """
    kind = type(message)
    if kind is Message or kind is StreamMessage:
        raise MessageFormatException(f"receive_body: a {kind.__name__} gives no body at once (JMS 2.0 §11.2.5)")
    body = message.get_body(type_)
    if body is None:
        raise MessageFormatException(f"receive_body: this {kind.__name__} has no body (JMS 2.0 §11.2.5)")
    return body
