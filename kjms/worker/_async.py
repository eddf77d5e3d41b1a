"""Async listeners: each of their sessions has a task of the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kjms.client.dead_letters import says_all, with_handled_exception
from kjms.errors import IllegalStateException, JMSException
from kjms.options import SessionMode
from kjms.worker._context import AsyncContext
from kjms.worker._opening import open_consumer
from kjms.worker._replies import answers, with_exception

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from kjms.aio import JMSConsumer, JMSContext
    from kjms.message import Message
    from kjms.worker._handler import AsyncCall
    from kjms.worker._listener import Listener
    from kjms.worker._replies import DroppedReplies

__all__ = ["AsyncSession"]

_log = logging.getLogger("kjms.worker")

FAILURE_SECONDS: Final = 1.0  # a delivery that Kafka made fail is tried again after that


class AsyncSession:
    """One session of an async listener, and the task that serves it.

    Args:
        context: The session: a context of its own.
        listener: The listener.
        call: Calls its function.
        state: For the listener's contexts.
        stopping: For the listener's contexts; `stop` is called after it is set.
        dropped: Counts replies whose asker has gone.
    """

    def __init__(
        self,
        context: JMSContext,
        listener: Listener,
        call: AsyncCall,
        state: Any,
        stopping: threading.Event,
        dropped: DroppedReplies,
    ) -> None:
        self._context = context
        self._listener = listener
        self._call = call
        self._state = state
        self._stopping = stopping
        self._dropped = dropped
        self._is_waiting = False  # for a message: the task can be cancelled
        self._has_message = False  # that is neither done nor given back
        self._is_interrupted = False
        self._task: asyncio.Task[None] | None = None
        self._processing: Callable[[Message], AbstractContextManager[None]] = lambda _: contextlib.nullcontext()

    async def start(self) -> None:
        """Open the consumer, and serve it from now on.

        Raises:
            JMSException: The consumer cannot be opened.
        """
        consumer = await open_consumer(self._context, self._listener)
        self._processing = self._context._session("start")._core.acknowledgement.processing
        self._task = asyncio.create_task(self._serve(consumer), name=f"kjms-worker-{self._listener.name}")

    def stop(self) -> asyncio.Task[None] | None:
        """Take no further message; return the task, which ends after the message that it has."""
        if self._task is not None and self._is_waiting:
            self._task.cancel()
        return self._task

    def interrupt(self) -> None:
        """Cancel the listener that still runs, and give back its message."""
        if self._task is not None and not self._task.done():
            self._is_interrupted = True
            self._task.cancel()

    async def close(self) -> None:
        """Close the context; a message that is not done by now goes back first, and is never acknowledged by this.

        Raises:
            JMSException: Kafka did not take an acknowledgement; everything is closed nevertheless.
        """
        if self._has_message:
            await self._give_back_uncounted()
        await self._context.close()

    async def _serve(self, consumer: JMSConsumer) -> None:
        while not self._stopping.is_set():
            self._is_waiting = True
            try:
                message = await anext(consumer, None)
            except asyncio.CancelledError:
                return
            except JMSException as failure:
                if self._stopping.is_set() or consumer._is_closed:
                    return
                _log.error("%s: receiving failed: %s", self._listener.name, failure)
                await self._pause()
                continue
            except Exception:
                _log.exception("%s: receiving failed", self._listener.name)
                await self._pause()
                continue
            finally:
                self._is_waiting = False
            if message is None:  # closed
                return
            await self._deliver(consumer, message)

    async def _pause(self) -> None:
        self._is_waiting = True
        try:
            await asyncio.sleep(FAILURE_SECONDS)
        except asyncio.CancelledError:
            if not self._stopping.is_set():
                raise
        finally:
            self._is_waiting = False

    async def _deliver(self, consumer: JMSConsumer, message: Message) -> None:
        number, count = message.jms_message_id, message.get_int_property("JMSXDeliveryCount")
        self._has_message = True
        context = AsyncContext(message, self._listener, self._state, self._stopping, self._context, self._dropped)
        try:
            with self._processing(message):
                result = await self._call(context)
                if result is not None:
                    await context.reply(result)
        except BaseException as error:  # SystemExit, too, would end the loop, and all messages that are under way
            if not self._is_current():  # the loop has ended, and closes this coroutine, which can wait for nothing
                with contextlib.suppress(IllegalStateException):  # the session is closed, and has given it back
                    self._context._session("give back")._core.acknowledgement.interrupt()
                raise
            if self._is_interrupted:
                await self._give_back_uncounted()
                return
            if answers(self._listener, message, error) and await self._has_answered(context, error):
                return
            if says_all(error):
                raised = f"{self._listener.name} raised {type(error).__name__}"
                _log.warning("%s: delivery %d of message %s: %s", raised, count, number, error)
            else:
                _log.exception("%s raised: delivery %d of message %s", self._listener.name, count, number)
            await self._settled(self._giving_back(consumer, error))
            if isinstance(error, KeyboardInterrupt) and _can_be_ctrl_c():
                raise
        else:
            if self._listener.session_mode == SessionMode.SESSION_TRANSACTED:
                await self._settled(self._context.commit())
            else:
                self._has_message = False  # it is acknowledged before the next one, or when the context closes

    async def _has_answered(self, context: AsyncContext[Any], error: BaseException) -> bool:
        """Reply with what the function raised, settle its message, and return whether that came through."""
        trace = None if says_all(error) else error
        _log.warning("%s raised, and replies with that: %r", self._listener.name, error, exc_info=trace)

        async def answer() -> None:
            transaction = self._context._session("reply")._transaction
            if transaction is not None:
                transaction.forget_sent()
            await context.reply(with_exception(error))
            await context.acknowledge()

        await self._settled(answer())
        return not self._has_message

    def _is_current(self) -> bool:
        """Return whether the event loop runs this session's task at the moment."""
        try:
            return asyncio.current_task() is self._task
        except RuntimeError:  # no loop runs
            return False

    async def _settled(self, settling: Coroutine[Any, Any, None]) -> None:
        """Wait for what settles the message, which nothing interrupts: it takes the session's own limits of time."""
        outcome = asyncio.ensure_future(settling)
        while not outcome.done():
            try:
                await asyncio.wait({outcome})
            except asyncio.CancelledError:  # the grace period is over, and the outcome matters
                continue
        failure = outcome.exception()
        if isinstance(failure, JMSException):
            _log.error("%s: its message was not settled: %s", self._listener.name, failure)
        elif failure is not None:
            _log.error("%s: its message was not settled", self._listener.name, exc_info=failure)
        else:
            self._has_message = False

    def _giving_back(self, consumer: JMSConsumer, error: BaseException) -> Coroutine[Any, Any, None]:
        """Return what gives the message back, for another task: the exception that is handled now is its cause."""
        mode, session = self._listener.session_mode, self._context._session("give back")
        call: Callable[[], Any]
        if mode == SessionMode.SESSION_TRANSACTED:
            call = session.rollback
        elif mode in {SessionMode.CLIENT_ACKNOWLEDGE, SessionMode.INDIVIDUAL_ACKNOWLEDGE}:
            call = session.recover
        else:
            assert consumer._consumer is not None
            failed = session._core.acknowledgement.loop_failed
            call = partial(failed, error, consumer._consumer._slot, "the listener", judges=True)
        return session.run("give back", with_handled_exception(call))

    async def _give_back_uncounted(self) -> None:
        try:
            session = self._context._session("give back")
            await session.run("give back", session._core.acknowledgement.interrupt)
        except IllegalStateException:
            pass  # the session is closed, and has given it back


def _can_be_ctrl_c() -> bool:
    """Return whether Ctrl-C can come here: in the main thread, of a process that leaves it to no other."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
