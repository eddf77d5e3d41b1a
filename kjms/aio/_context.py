"""The factory and the context for asyncio: a connection, which contexts may share, and a session of its own."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Generator
from concurrent.futures import Executor, ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from kjms.aio._requests import Requests
from kjms.aio._session import LoopSession
from kjms.aio._simple import JMSConsumer, JMSProducer, QueueBrowser
from kjms.client import context as _context
from kjms.client.connection import Connection
from kjms.client.connection_factory import FactorySettings
from kjms.client.consumer import seconds_of
from kjms.client.creating import Creating
from kjms.client.dead_letters import with_handled_exception
from kjms.client.exception_listener import ExceptionListener, listener_methods
from kjms.client.slot_opener import either
from kjms.destinations import Queue, Topic
from kjms.errors import IllegalStateException, JMSException
from kjms.message import Message
from kjms.options import SessionMode, checked_mode

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from kjms.client import jms_consumer as _jms_consumer
    from kjms.client.connection_meta_data import ConnectionMetaData
    from kjms.destinations import Destination, TemporaryQueue, TemporaryTopic

__all__ = ["ConnectionFactory", "JMSContext"]

T = TypeVar("T")

_numbers = itertools.count(1)

THREADS: Final = 32  # of one connection, when so many calls that talk to Kafka are under way; each is short


class ConnectionFactory(FactorySettings):
    """Makes contexts for asyncio; it takes what `kjms.ConnectionFactory` takes."""

    def create_context(
        self,
        session_mode: int = SessionMode.AUTO_ACKNOWLEDGE,
        user: str | None = None,
        password: str | None = None,
    ) -> JMSContext:
        """Return a new context, which connects when it is awaited, or at the beginning of its ``async with``.

        Args:
            session_mode: One of the constants of `JMSContext`.
            user: The name for SASL; None: the one in *kafka*, if any.
            password: The password for it.

        Raises:
            ValueError: There is no such mode.

        Spec: JMS 2.0 §11.2.1.
        """
        chosen = checked_mode(session_mode)
        return JMSContext(chosen, lambda: Connection(self._options, user, password))


class JMSContext(Creating):
    """Sends and receives in one event loop; made by `ConnectionFactory.create_context`, and by other contexts.

    It is a connection and a session in one. Contexts that it makes with `create_context` have sessions of their own on
    the same connection, which ends with the last of them. Any number of tasks may send by it, and one may receive.

    Spec: JMS 2.0 §11.2.
    """

    def __init__(self, session_mode: SessionMode, connect: Callable[[], Connection]) -> None:
        self._session_mode = session_mode
        self._connect = connect
        self._threads: Executor | None = None
        self._context: _context.JMSContext | None = None
        self._opening = asyncio.Lock()
        self._is_closed = False
        self._requests: Requests | None = None
        self._requesting: JMSContext | None = None  # what sends requests, and receives their replies

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "not open yet" if self._context is None else repr(self._context)
        return f"<aio.JMSContext, {self._session_mode.name}: {state}>"

    # Opening and closing.

    def _new_threads(self) -> Executor:
        """Return what makes the calls that may take long."""
        return ThreadPoolExecutor(THREADS, thread_name_prefix=f"kjms-aio-{next(_numbers)}")

    async def _open(self) -> Self:
        async with self._opening:
            if self._is_closed:
                raise IllegalStateException("open: this context is closed (JMS 2.0 §11.2.6)")
            if self._context is None:
                loop = asyncio.get_running_loop()
                threads = self._new_threads()
                session_class = partial(LoopSession, loop=loop, executor=threads)

                def connect() -> _context.JMSContext:
                    return _context.JMSContext(self._connect(), self._session_mode, set(), session_class)

                connecting = threads.submit(connect)
                try:
                    self._context = await asyncio.wrap_future(connecting)
                except BaseException:  # cancelled, for instance: the thread connects all the same
                    connecting.add_done_callback(lambda done: _close_quietly(done.result))
                    threads.shutdown(wait=False)
                    raise
                self._threads = threads
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        """Connect.

        Raises:
            JMSSecurityException: The broker refused the credentials.
            InvalidClientIDException: A connection has the factory's client id already, in whatever process.
            JMSException: No broker answered within the send timeout.
            IllegalStateException: The context is closed.
        """
        return self._open().__await__()

    async def __aenter__(self) -> Self:
        return await self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close(error)

    async def close(self) -> None:
        """Close the context with its consumers, and the connection with the last of its contexts.

        Waits for sends under way. A receive that waits returns None. What was not acknowledged goes to others at once.
        Once begun it is carried through, even if the task that waits for it is cancelled.

        Raises:
            JMSException: Kafka did not take an acknowledgement; everything is closed nevertheless.

        Spec: JMS 2.0 §11.2.6.
        """
        await self._close(None)

    async def _close(self, error: BaseException | None) -> None:
        """Close the context, because *error* leaves its ``async with`` statement, if any does."""
        self._is_closed = True
        context, threads = self._context, self._threads
        if context is None or threads is None or context._connection._ownership.is_inherited:
            return

        requesting = self._requesting
        if self._requests is not None:
            self._requests.end()

        def close() -> None:
            try:
                if requesting is not None and requesting._context is not None:
                    requesting._context.close()
                context.__exit__(None, error, None)
            finally:
                if context._connection._is_closed:
                    threads.shutdown(wait=False)

        if not context._is_closing:
            session = cast("LoopSession", context._session)
            session.keep_loops(session._consumers)
            await asyncio.shield(asyncio.get_running_loop().run_in_executor(threads, with_handled_exception(close)))

    def create_context(self, session_mode: int = SessionMode.AUTO_ACKNOWLEDGE) -> JMSContext:
        """Return a new context on the same connection, with a session of its own; it is open (JMS 2.0 §11.2.1).

        Args:
            session_mode: One of the constants of this class.

        Raises:
            ValueError: There is no such mode.
            IllegalStateException: The context is closed, or not open yet.
        """
        made = JMSContext(checked_mode(session_mode), self._connect)
        made._context = self._opened("create_context").create_context(session_mode)
        made._threads = self._threads
        return made

    def _opened(self, doing: str) -> _context.JMSContext:
        if self._context is None:
            state = "is closed" if self._is_closed else "is not open yet: await it, or use it in `async with`"
            raise IllegalStateException(f"{doing}: this context {state}")
        self._context._check_open(doing)
        return self._context

    def _session(self, doing: str) -> LoopSession:
        return cast("LoopSession", self._opened(doing)._using(doing))

    _using = _session

    async def _run(self, doing: str, call: Callable[[], T]) -> T:
        return await self._session(doing).run(doing, call)

    # The connection's part.

    @property
    def session_mode(self) -> SessionMode:
        """How messages are acknowledged, one of this class's constants (JMS 2.0 §11.2.2)."""
        return self._session_mode

    @property
    def transacted(self) -> bool:
        """Whether the context's session is transacted (JMS 2.0 §4.4.7)."""
        return self._session_mode == self.SESSION_TRANSACTED

    @property
    def client_id(self) -> str | None:
        """The client identifier that the factory gave, or None (JMS 2.0 §4.3.2)."""
        return self._opened("client_id").client_id

    @property
    def meta_data(self) -> ConnectionMetaData:
        """What is said of this provider (JMS 2.0 §4.3.7)."""
        return self._opened("meta_data").meta_data

    @property
    def exception_listener(self) -> Callable[[JMSException], object] | None:
        """What the loop calls with trouble that no call can raise, such as a lost cluster (JMS 2.0 §4.3.8).

        A function, no coroutine, or an object with ``on_exception``; see `kjms.Connection.exception_listener`. The
        contexts of a connection have it in common.
        """
        listener = self._opened("exception_listener").exception_listener
        return listener.on_exception if isinstance(listener, _InLoop) else listener

    @exception_listener.setter
    def exception_listener(self, listener: Callable[[JMSException], object] | None) -> None:
        context = self._opened("exception_listener")
        context.exception_listener = None if listener is None else _InLoop(asyncio.get_running_loop(), listener)

    @property
    def auto_start(self) -> bool:
        """Whether creating a consumer starts the connection; it does unless this is switched off (JMS 2.0 §11.2.7)."""
        return self._opened("auto_start").auto_start

    @auto_start.setter
    def auto_start(self, value: bool) -> None:
        self._opened("auto_start").auto_start = value

    async def start(self) -> None:
        """Let messages be delivered, to all contexts of the connection (JMS 2.0 §4.3.3)."""
        await self._session("start").run_beside(self._opened("start").start)

    async def stop(self) -> None:
        """Hold delivery to all contexts of the connection (JMS 2.0 §4.3.4)."""
        await self._session("stop").run_beside(self._opened("stop").stop)

    # Making temporary destinations.

    async def create_temporary_queue(self) -> TemporaryQueue:
        """Return a new queue that lives as long as the connection; see `kjms.Session.create_temporary_topic`."""
        return await self._run("create_temporary_queue", self._opened("create").create_temporary_queue)

    async def create_temporary_topic(self) -> TemporaryTopic:
        """Return a new topic that lives as long as the connection; see `kjms.Session.create_temporary_topic`."""
        return await self._run("create_temporary_topic", self._opened("create").create_temporary_topic)

    # Sending, receiving and looking. A consumer's errors come when it is opened.

    def create_producer(self) -> JMSProducer:
        """Return a producer, whose sends name their destinations (JMS 2.0 §11.2.4)."""
        return JMSProducer(self._session("create_producer"))

    async def request(self, destination: Destination, value: Any, *, timeout: int | timedelta | None = None) -> Message:
        """Send *value* to *destination* and return the reply to it. Any number of tasks may do so at once.

        The request has a JMSCorrelationID of its own, and in JMSReplyTo a temporary queue that all requests of this
        context share. It is sent at once, also in a transacted context, and belongs to no transaction. A reply names
        its request by the request's JMSCorrelationID or JMSMessageID; one that comes too late is dropped and counted.

        Args:
            destination: Where to.
            value: A message, whose JMSCorrelationID and JMSReplyTo are set; or the body of one, as for
                `JMSProducer.send`.
            timeout: How long the call may take, in milliseconds; None or 0: without limit.

        Raises:
            TimeoutError: No reply came in that time.
            ReplyException: The reply says that the service raised an exception.
            InvalidDestinationException: *destination* is none, or Kafka has no such topic.
            MessageFormatException: No message can carry *value*.
            IllegalStateException: The context is closed, or was closed meanwhile.
            JMSException: Kafka did not confirm the request within the send timeout.
            ValueError: *timeout* is negative.

        Spec: JMS 2.0 §3.4.5, §3.4.6; §5.10 has requestors for one request at a time.
        """
        seconds = seconds_of(timeout)
        self._opened("request")
        if self._requests is None:
            self._requesting = self.create_context()
            self._requesting.auto_start = self.auto_start
            self._requests = Requests(self._requesting)
        try:
            return await asyncio.wait_for(self._requests.request(destination, value), seconds)
        except asyncio.TimeoutError:  # which is not Python's own in 3.10
            raise TimeoutError(f"request: no reply of {destination} within {seconds or 0:g} s") from None

    @property
    def late_replies(self) -> int:
        """How many replies were dropped, because the request that they name did not wait any more."""
        return 0 if self._requests is None else self._requests.pending.late

    def create_consumer(
        self,
        destination: Destination,
        selector: str | None = None,
        no_local: bool = False,
        *,
        message_selector: str | None = None,
    ) -> JMSConsumer:
        """Return a consumer, to be opened, of a queue, or of a topic's messages from its opening on.

        See `kjms.Session.create_consumer`. Spec: JMS 2.0 §11.2.5.1, §6.11.1.
        """
        context = self._opened("create_consumer")
        return self._consumer(
            destination, lambda: context.create_consumer(destination, either(selector, message_selector), no_local)
        )

    def create_durable_consumer(
        self, topic: Topic, name: str, selector: str | None = None, no_local: bool = False
    ) -> JMSConsumer:
        """Return the consumer, to be opened, of an unshared durable subscription.

        See `kjms.Session.create_durable_consumer`. Spec: JMS 2.0 §11.2.5.1, §6.11.5.
        """
        context = self._opened("create_durable_consumer")
        return self._consumer(topic, lambda: context.create_durable_consumer(topic, name, selector, no_local))

    def create_shared_consumer(
        self, topic: Topic, name: str, selector: str | None = None, no_local: bool = False
    ) -> JMSConsumer:
        """Return a consumer, to be opened, of a shared non-durable subscription.

        See `kjms.Session.create_shared_consumer`. Spec: JMS 2.0 §11.2.5.1, §6.11.4.
        """
        context = self._opened("create_shared_consumer")
        return self._consumer(topic, lambda: context.create_shared_consumer(topic, name, selector, no_local))

    def create_shared_durable_consumer(
        self, topic: Topic, name: str, selector: str | None = None, no_local: bool = False
    ) -> JMSConsumer:
        """Return a consumer, to be opened, of a shared durable subscription.

        See `kjms.Session.create_shared_durable_consumer`. Spec: JMS 2.0 §11.2.5.1, §6.11.6.
        """
        context = self._opened("create_shared_durable_consumer")
        return self._consumer(
            topic,
            lambda: context.create_shared_durable_consumer(topic, name, selector, no_local),
        )

    def _consumer(self, destination: Destination, make: Callable[[], _jms_consumer.JMSConsumer]) -> JMSConsumer:
        return JMSConsumer(self._session("create_consumer"), destination, lambda: make()._consumer)

    def create_browser(self, queue: Queue, selector: str | None = None) -> QueueBrowser:
        """Return a browser of a queue, for ``async for``; see `kjms.Session.create_browser` (JMS 2.0 §5.9)."""
        context = self._opened("create_browser")
        session = self._session("create_browser")
        return QueueBrowser(session, queue, lambda: context.create_browser(queue, selector))

    async def unsubscribe(self, name: str) -> None:
        """End a durable subscription, with all that it keeps; see `kjms.Session.unsubscribe` (JMS 2.0 §6.11.5)."""
        await self._run("unsubscribe", partial(self._opened("unsubscribe").unsubscribe, name))

    # Settling.

    async def acknowledge(self, message: Message | None = None) -> None:
        """Acknowledge all that was received, with CLIENT_ACKNOWLEDGE and INDIVIDUAL_ACKNOWLEDGE; else nothing happens.

        Args:
            message: Acknowledge it, as its own `acknowledge` does, which would hold up the loop: with
                INDIVIDUAL_ACKNOWLEDGE, it alone.

        Raises:
            IllegalStateException: The context is closed.
            JMSException: A partition was lost to another member of the group; its messages are delivered there.

        Spec: JMS 2.0 §4.4.11.
        """
        context = self._opened("acknowledge")
        await self._run("acknowledge", context.acknowledge if message is None else message.acknowledge)

    async def commit(self) -> None:
        """Commit what was sent and received since the last commit or rollback; see `kjms.Session.commit`.

        If it is cancelled, the commit is carried out all the same, but its outcome is unknown.

        Raises:
            TransactionRolledBackException: None of it was committed. What was received is delivered again.
            IllegalStateException: The context is not transacted or closed.

        Spec: JMS 2.0 §4.4.7.
        """
        await self._run("commit", self._opened("commit").commit)

    async def rollback(self) -> None:
        """Destroy what was sent since the last commit or rollback; what was received is delivered again.

        Raises:
            IllegalStateException: The context is not transacted or closed.

        Spec: JMS 2.0 §4.4.7.
        """
        await self._run("rollback", self._opened("rollback").rollback)

    async def recover(self) -> None:
        """Deliver again, in order and marked, what was delivered and not acknowledged (JMS 2.0 §4.4.11).

        Raises:
            IllegalStateException: The context is transacted or closed.
        """
        await self._run("recover", self._opened("recover").recover)


class _InLoop:
    """Calls the methods of an exception listener, or the function that it is, in *loop*, from whatever thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, listener: ExceptionListener) -> None:
        self._loop = loop
        self.on_exception, recovered = listener_methods(listener)
        self.on_recovery = None if recovered is None else partial(self._call, recovered)

    def __call__(self, failure: JMSException) -> None:
        self._call(self.on_exception, failure)

    def _call(self, method: ExceptionListener, failure: JMSException) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits
            self._loop.call_soon_threadsafe(method, failure)


def _close_quietly(connected: Callable[[], _context.JMSContext]) -> None:
    """Close what was connected, if it was, for a task that no longer waits for it."""
    with contextlib.suppress(BaseException):  # there is nothing to close, or no task to raise it in
        connected().close()
