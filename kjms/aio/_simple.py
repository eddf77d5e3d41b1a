"""Sending, receiving and browsing for asyncio: the simplified API's objects, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from kjms.client.consumer import seconds_of
from kjms.client.jms_consumer import body_of, check_type
from kjms.client.jms_producer import ProducerSettings
from kjms.errors import IllegalStateException

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from kjms.aio._session import LoopSession
    from kjms.client import browser as _browser
    from kjms.client.consumer import MessageConsumer
    from kjms.destinations import Destination, Queue
    from kjms.message import Message

__all__ = ["JMSConsumer", "JMSProducer", "QueueBrowser"]

T = TypeVar("T")


class JMSProducer(ProducerSettings):
    """Sends messages, or bodies, to the destination that each send names; made by `JMSContext.create_producer`.

    What is set on it goes with every message that it sends, as with `kjms.JMSProducer`. Any number of tasks may send at
    the same time; messages are sent in the order of the calls.

    Spec: JMS 2.0 §11.2.4.
    """

    def __init__(self, session: LoopSession) -> None:
        super().__init__(session._sender)
        self._session = session

    async def send(self, destination: Destination, value: Any) -> Self:
        """Send *value* to *destination*, and return when Kafka has it.

        A NON_PERSISTENT message, and one in a transaction, is not waited for. When 1,000 messages of the context are
        under way, the next send waits for one of them. A send that is cancelled may have been sent all the same.

        Args:
            destination: Where to.
            value: A message; or the body of one: a str is sent in a TextMessage, bytes in a BytesMessage, a dict in a
                MapMessage, None in a message without a body; a dataclass, a NamedTuple, and an object of attrs, msgspec
                or pydantic as JSON in a TextMessage (`kjms.TextMessage.set_body`), unless a codec is registered for it;
                anything else in an ObjectMessage; a dict that holds dicts or lists, too.

        Raises:
            InvalidDestinationException: *destination* is none, or Kafka has no such topic.
            MessageFormatException: No message can carry *value*.
            MessageNotWriteableException: Properties are set here, and those of the message are read-only.
            IllegalStateException: The context is closed.
            ResourceAllocationException: The message is too large, or the buffer stayed full.
            JMSException: Kafka did not confirm it within the send timeout.
            ValueError: A name in the dict is no name of a map entry.
        """
        await self._session.send_message(self._producer, self._message(value), destination)
        return self


class JMSConsumer:
    """Receives the messages of one destination, or their bodies; made by `JMSContext.create_consumer`.

    It is opened by the first of these: ``await`` it, ``async with``, ``async for``, a receive. What is sent to a topic
    before that is not received, unless its subscription existed already.

    Spec: JMS 2.0 §11.2.5.
    """

    def __init__(self, session: LoopSession, destination: Destination, make: Callable[[], MessageConsumer]) -> None:
        self._session = session
        self._destination = destination
        self._make = make
        self._consumer: MessageConsumer | None = None
        self._opening = asyncio.Lock()
        self._is_closed = False

    def __repr__(self) -> str:
        if self._consumer is None:
            return f"<JMSConsumer on {self._destination!r}: {'closed' if self._is_closed else 'not open yet'}>"
        return f"<JMSConsumer, {self._consumer!r}>"

    async def _open(self) -> MessageConsumer:
        if self._consumer is None:
            async with self._opening:
                if self._is_closed:
                    raise IllegalStateException(f"receive: this consumer of {self._destination} is closed")
                if self._consumer is None:
                    await self._session.run("create_consumer", self._make_and_keep)
        assert self._consumer is not None
        return self._consumer

    def _make_and_keep(self) -> None:
        """Make the consumer; the task may have been cancelled meanwhile, and ask again."""
        if self._consumer is None:
            self._consumer = self._make()

    async def _opened(self) -> Self:
        await self._open()
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        """Open the consumer: its subscription exists when this is over. Errors as for the call that made it."""
        return self._opened().__await__()

    async def __aenter__(self) -> Self:
        return await self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close(error)

    @property
    def message_selector(self) -> str | None:
        """The selector that the consumer was made with, or None; once it is open (JMS 2.0 §3.8.1)."""
        if self._consumer is None:
            raise IllegalStateException("message_selector: the consumer is not open yet; await it")
        return self._consumer.message_selector

    async def receive(self, timeout: int | timedelta | None = None) -> Message | None:
        """Return the next message, waiting for it. Cancelled, it leaves the message to the next receive.

        Args:
            timeout: How long to wait, in milliseconds; None or 0: without limit.

        Returns:
            The message; None when the time was over, or the consumer was closed meanwhile.

        Raises:
            IllegalStateException: The consumer is closed, or another task is receiving from its context.
            JMSException: The last message's acknowledgement failed.
            ValueError: *timeout* is negative.

        Spec: JMS 2.0 §4.5.1.
        """
        seconds = None if timeout is None else seconds_of(timeout)
        return await self._session.receive(self._consumer or await self._open(), seconds)

    async def receive_no_wait(self) -> Message | None:
        """Return the next message if one is at hand, else None (JMS 2.0 §4.5.1)."""
        return await self._session.receive(self._consumer or await self._open(), 0.0)

    @overload
    async def receive_body(self, type_: type[T], timeout: int | timedelta | None = None) -> T | None: ...
    @overload
    async def receive_body(self, type_: object, timeout: int | timedelta | None = None) -> Any: ...
    async def receive_body(self, type_: Any, timeout: int | timedelta | None = None) -> Any:
        """Return the body of the next message, waiting for it; see `kjms.JMSConsumer.receive_body`.

        Args:
            type_: What the body is to be: str, bytes, dict, a class of objects, or object for all of them; a type that
                `kjms.Message.get_body` makes of JSON, such as a dataclass, or ``list[Order]``.
            timeout: How long to wait, in milliseconds; None or 0: without limit.

        Returns:
            The body; None when the time was over, or the consumer was closed meanwhile.

        Raises:
            MessageFormatException: The message has no such body, or none; what becomes of it is the mode's to say.
            IllegalStateException: The consumer is closed, or another task is receiving from its context.
            JMSException: The last message's acknowledgement failed.
            ValueError: *timeout* is negative, or no body can become a *type_*.

        Spec: JMS 2.0 §11.2.5.
        """
        return await self._receive_body(type_, seconds_of(timeout))

    @overload
    async def receive_body_no_wait(self, type_: type[T]) -> T | None: ...
    @overload
    async def receive_body_no_wait(self, type_: object) -> Any: ...
    async def receive_body_no_wait(self, type_: Any) -> Any:
        """Return the body of the next message if one is at hand, else None. Errors as for `receive_body`."""
        return await self._receive_body(type_, 0.0)

    async def _receive_body(self, type_: Any, seconds: float | None) -> Any:
        check_type(type_)
        bodies: list[Any] = []
        consumer = await self._open()
        await self._session.receive(consumer, seconds, lambda message: bodies.append(body_of(message, type_)))
        return bodies[0] if bodies else None

    def __aiter__(self) -> Self:
        """Return the messages one by one, waiting for each, until the consumer is closed.

        With AUTO_ACKNOWLEDGE and DUPS_OK_ACKNOWLEDGE, a message is acknowledged when the consumer is asked for the next
        one, or when the consumer or its context closes and the loop's task closes it or has ended without an exception.
        Otherwise, and when an exception leaves the ``async with`` statement of one of them, the message is not
        acknowledged: it is delivered again, marked and counted.
        """
        return self

    async def __anext__(self) -> Message:
        if self._is_closed or (self._consumer is not None and self._consumer._is_closed):
            raise StopAsyncIteration
        message = await self._session.receive(self._consumer or await self._open(), None, is_loop=True)
        if message is None:
            raise StopAsyncIteration
        assert self._consumer is not None
        self._consumer._looper = asyncio.current_task()
        return message

    async def close(self) -> None:
        """Close the consumer; a receive that waits returns None. Messages it did not get go to others.

        Spec: JMS 2.0 §4.5.3.
        """
        await self._close(None)

    async def _close(self, error: BaseException | None) -> None:
        """Close the consumer, because *error* leaves its ``async with`` statement, if any does."""
        self._is_closed = True
        consumer = self._consumer
        if consumer is not None:
            self._session.keep_loops([consumer])
            await self._session.run_beside(partial(consumer.__exit__, None, error, None))


class QueueBrowser:
    """Shows the messages of a queue and takes none; made by `JMSContext.create_browser`.

    ``async for`` over it is a look at the queue, as ``for`` over `kjms.QueueBrowser` is. Spec: JMS 2.0 §5.9.
    """

    def __init__(self, session: LoopSession, queue: Queue, make: Callable[[], _browser.QueueBrowser]) -> None:
        self._session = session
        self._queue = queue
        self._make = make
        self._browser: _browser.QueueBrowser | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<QueueBrowser of {self._queue!r}: {'closed' if self._is_closed else 'open'}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Return the messages that the queue holds now, one by one.

        Raises:
            IllegalStateException: The browser is closed, or closes meanwhile.
            InvalidDestinationException: There is no such queue, and it may not be created.
            InvalidSelectorException: The selector's syntax is wrong.
            JMSException: The broker does not answer.
        """
        messages = await self._session.run("browse", self._begin)
        while (message := await self._session.run("browse", next, messages, None)) is not None:
            yield message

    def _begin(self) -> Iterator[Message]:
        if self._is_closed:
            raise IllegalStateException(f"browse: this browser of {self._queue} is closed (JMS 2.0 §5.9)")
        if self._browser is None:
            self._browser = self._make()
        return iter(self._browser)

    async def close(self) -> None:
        """Close the browser; looks that are under way end with IllegalStateException."""
        self._is_closed = True
        if self._browser is not None:
            await self._session.run_beside(self._browser.close)
