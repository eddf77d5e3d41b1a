"""Run an application in this process: open its sessions, and end them in order."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kjms.aio import JMSContext
from kjms.client.connection import Connection
from kjms.client.exception_listener import ExceptionListener, listener_methods
from kjms.errors import IllegalStateException, JMSException
from kjms.options import SessionMode
from kjms.worker._async import AsyncSession
from kjms.worker._plain import PlainSession
from kjms.worker._replies import DroppedReplies

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from kjms.options import FactoryOptions
    from kjms.worker._handler import AsyncCall, PlainCall
    from kjms.worker._listener import Listener

__all__ = ["Failures", "Lifespan", "Parts", "Running"]

Lifespan = Callable[[], "contextlib.AbstractContextManager[Any] | contextlib.AbstractAsyncContextManager[Any]"]

T = TypeVar("T")

_log = logging.getLogger("kjms.worker")
_numbers = itertools.count(1)

CANCEL_SECONDS: Final = 5.0  # for async listeners that were cancelled, and for giving back what they had


@dataclass(frozen=True)
class Parts:
    """What is run.

    Attributes:
        name: Of the application, for people.
        plain: The plain listeners, and what calls their functions.
        asynchronous: The async ones.
        lifespan: Returns what is entered before they start.
        exception_listener: Called with failures that no call can raise.
    """

    name: str
    plain: Sequence[tuple[Listener, PlainCall]]
    asynchronous: Sequence[tuple[Listener, AsyncCall]]
    lifespan: Lifespan | None
    exception_listener: ExceptionListener | None


class Running:
    """An application that runs in this process; made by `Application.running`.

    ``async with`` runs async listeners in the event loop of the caller, and ``with`` in one of its own, in a thread.

    Attributes:
        state: What the application's ``lifespan`` yielded.
        unfinished: How many listeners still ran when the grace period was over.
    """

    def __init__(
        self,
        parts: Parts,
        options: FactoryOptions,
        user: str | None,
        password: str | None,
        grace: float | None,
    ) -> None:
        self.state: Any = None
        self.unfinished = 0
        self._parts = parts
        self._connect: Callable[[], Connection] = lambda: Connection(options, user, password)
        self._grace = grace
        self._stopping = threading.Event()
        self._dropped = DroppedReplies()
        self._hurried = asyncio.Event()
        self._stack = contextlib.AsyncExitStack()
        self._connection: Connection | None = None
        self._plain: list[PlainSession] = []
        self._async: list[AsyncSession] = []
        self._failures = Failures(parts.exception_listener)
        self._is_started = False
        self._thread: _LoopThread | None = None

    def __repr__(self) -> str:
        state = "stopping" if self._stopping.is_set() else "running" if self._is_started else "not started"
        return f"<Running: {self._parts.name}, {state}>"

    @property
    def is_stopping(self) -> bool:
        """Whether the listeners are being ended, or have ended."""
        return self._stopping.is_set()

    @property
    def dropped_replies(self) -> int:
        """How many replies were dropped, because the temporary destination of the asker had gone."""
        return self._dropped.count

    # In the event loop of the caller.

    async def __aenter__(self) -> Self:
        """Start the listeners; return when all of them consume.

        Raises:
            JMSSecurityException: The broker refused the credentials.
            JMSException: No broker answered within the send timeout, or a consumer cannot be opened.
            IllegalStateException: It was started before.
        """
        if self._is_started:
            raise IllegalStateException("running: it was started before; Application.running returns another one")
        self._is_started = True
        try:
            await self._start()
        except BaseException:
            self._stopping.set()
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _start(self) -> None:
        parts, stack = self._parts, self._stack
        if parts.lifespan is not None:
            entered = parts.lifespan()
            if isinstance(entered, contextlib.AbstractAsyncContextManager):
                self.state = await stack.enter_async_context(entered)
            else:
                self.state = stack.enter_context(entered)
        if parts.plain:
            await _in_thread("start", self._start_plain)
        if parts.asynchronous:
            root = JMSContext(SessionMode.AUTO_ACKNOWLEDGE, self._connect)
            stack.push_async_callback(_quietly, root.close)
            await root
            root.exception_listener = self._failures
            for listener, call in parts.asynchronous:
                for _ in range(listener.concurrency):
                    context = root.create_context(listener.session_mode)
                    session = AsyncSession(context, listener, call, self.state, self._stopping, self._dropped)
                    stack.push_async_callback(_quietly, session.close)
                    self._async.append(session)
            for each in self._async:
                await each.start()

    def _start_plain(self) -> None:
        connection = self._connection = self._connect()
        connection.exception_listener = self._failures
        for listener, call in self._parts.plain:
            for _ in range(listener.concurrency):
                self._plain.append(PlainSession(connection, listener, call, self.state, self._stopping, self._dropped))
        connection.start()

    async def stop(self) -> None:
        """End in order; what the end of the ``async with`` statement does. A second call returns at once.

        Listeners get no further message. Those that run have the grace period to finish. What was only held ahead goes
        to other processes, neither marked nor counted.
        """
        if self._stopping.is_set():
            return
        for each in self._plain:
            each.hold()  # first: a listener that returns because of what is set now gets no other message
        self._stopping.set()
        deadline = None if self._grace is None else time.monotonic() + self._grace
        waiting: set[asyncio.Future[Any]] = {task for each in self._async if (task := each.stop()) is not None}
        if self._connection is not None:
            waiting.add(asyncio.ensure_future(_in_thread("stop", self._connection.stop)))
        try:
            await self._finish(waiting, deadline)
        finally:
            await self._close()

    def hurry(self) -> None:
        """End the grace period now; a call of the event loop's thread."""
        self._hurried.set()

    async def _wait_for_listeners(self, waiting: set[asyncio.Future[Any]], deadline: float | None) -> None:
        """Return when *waiting* is empty, or when the grace period is over."""
        hurried = asyncio.ensure_future(self._hurried.wait())
        while waiting and not hurried.done():
            timeout = None if deadline is None else max(deadline - time.monotonic(), 0)
            done, _ = await asyncio.wait({*waiting, hurried}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            waiting -= done
            for each in done:
                if each is not hurried and not each.cancelled() and (failure := each.exception()) is not None:
                    _log.error("stopping failed: %s: %s", type(failure).__name__, failure)
        hurried.cancel()

    async def _finish(self, waiting: set[asyncio.Future[Any]], deadline: float | None) -> None:
        await self._wait_for_listeners(waiting, deadline)
        if not waiting:
            return
        unfinished = [each for each in self._plain if each.interrupt()]
        tasks = [each for each in waiting if isinstance(each, asyncio.Task) and each in self._tasks()]
        for session in self._async:
            session.interrupt()
        self.unfinished = len(unfinished) + len(tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_SECONDS)
        if self.unfinished:
            _log.warning(
                "%d listeners still ran at the end of the grace period: their messages are redelivered",
                self.unfinished,
            )
        if unfinished:  # their threads never let the connection close; the end of the process ends it
            self._connection = None

    def _tasks(self) -> set[asyncio.Task[None]]:
        return {task for each in self._async if (task := each._task) is not None}

    async def _close(self) -> None:
        """Close the connections, and leave the lifespan."""
        connection, self._connection = self._connection, None
        try:
            if connection is not None:
                await _in_thread("close", connection.close)
        except JMSException as failure:
            _log.error("closing failed: %s", failure)
        finally:
            await self._stack.aclose()

    # With an event loop of its own.

    def __enter__(self) -> Self:
        """Start the listeners, as ``async with`` does, with an event loop in a thread of its own."""
        self._thread = _LoopThread()
        try:
            self._thread.call(self.__aenter__())
        except BaseException:
            self._thread.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._thread is not None
        try:
            self._thread.call(self.stop())
        finally:
            self._thread.close()


class _LoopThread:
    """A thread that runs an event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        name = f"kjms-worker-{next(_numbers)}-loop"
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def call(self, coroutine: Any) -> Any:
        """Return what *coroutine* returns, which runs in the loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self) -> None:
        """End the loop and the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _in_thread(doing: str, call: Callable[[], T]) -> T:
    """Return what *call* returns, which a daemon thread calls: it never holds up the end of the process."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(failure: BaseException | None, result: Any) -> None:
        if future.done():
            return
        if failure is None:
            future.set_result(result)
        else:
            future.set_exception(failure)

    def run() -> None:
        failure, result = None, None
        try:
            result = call()
        except BaseException as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits
            loop.call_soon_threadsafe(settle, failure, result)

    threading.Thread(target=run, name=f"kjms-worker-{next(_numbers)}-{doing}", daemon=True).start()
    return await future


async def _quietly(close: Callable[[], Any]) -> None:
    try:
        await close()
    except JMSException as failure:
        _log.error("closing failed: %s", failure)


class Failures:
    """The exception listener of both connections, which passes on once what each of them reports."""

    def __init__(self, listener: ExceptionListener | None) -> None:
        found = (_log_failure, None) if listener is None else listener_methods(listener)
        self._on_exception, self._on_recovery = found
        self._lock = threading.Lock()
        self._last: JMSException | None = None
        self._recovered: JMSException | None = None

    def on_exception(self, failure: JMSException) -> None:
        """Pass on *failure*, unless the other connection reported it."""
        with self._lock:
            is_known, self._last = failure is self._last, failure
        if not is_known:
            self._on_exception(failure)

    def on_recovery(self, failure: JMSException) -> None:
        """Pass on that the outage is over that *failure* reported."""
        with self._lock:
            is_known, self._recovered = failure is self._recovered, failure
        if not is_known and self._on_recovery is not None:
            self._on_recovery(failure)

    __call__ = on_exception  # what a type checker expects of a listener


def _log_failure(failure: JMSException) -> None:
    _log.warning("%s", failure)
