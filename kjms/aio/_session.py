"""A session whose waiting an event loop does: threads carry out what takes long, and never wait for messages.

A task waits for a message by an asyncio event, which the engine sets from its own threads. Everything that may talk
to Kafka runs in a thread, one call of a session at a time; a thread cannot be cancelled, so a cancelled task ends at
once and the session is free again when the thread is through. What such a thread received is given back.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from kjms.client.completion_queue import CompletionQueue
from kjms.client.dead_letters import with_handled_exception
from kjms.client.session import Session
from kjms.errors import IllegalStateException, JMSException
from kjms.options import DeliveryMode

if TYPE_CHECKING:
    from kjms.client.connection import Connection
    from kjms.client.consumer import MessageConsumer
    from kjms.client.producer import MessageProducer
    from kjms.destinations import Destination
    from kjms.engine import Delivery
    from kjms.message import Message

__all__ = ["LoopSession"]

P = ParamSpec("P")
T = TypeVar("T")

IN_FLIGHT: Final = 1_000  # sends of one context that Kafka has not confirmed: the next one waits
BACKLOG: Final = 50_000  # of the 100,000 records that librdkafka's buffer holds: beyond that a send may have to wait


class Wakeup(threading.Event):
    """What the engine sets when there may be a message, and *loop* waits for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._changed = asyncio.Event()

    def set(self) -> None:
        """Wake the waiting task; from any thread."""
        if not self.is_set():  # else the loop knows already, or has not looked since
            super().set()
            with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits
                self._loop.call_soon_threadsafe(self._changed.set)

    def clear(self) -> None:
        """Begin anew; what is set from now on ends the next wait."""
        super().clear()
        self._changed.clear()

    async def wait_until(self, deadline: float | None) -> None:
        """Return when it is set, or when the loop's clock says *deadline*."""
        alarm = None if deadline is None else self._loop.call_at(deadline, self._changed.set)
        try:
            await self._changed.wait()
        finally:
            if alarm is not None:
                alarm.cancel()


class SendOutcome:
    """The outcome of a send, which the publisher's thread passes to a future of *loop*: a completion listener."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.future: asyncio.Future[None] = loop.create_future()

    def on_completion(self, message: Message) -> None:
        """Note that it was sent."""
        self._pass_on(None)

    def on_exception(self, message: Message, exception: Exception) -> None:
        """Note that it was not."""
        self._pass_on(exception)

    def _pass_on(self, failure: Exception | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits
            self._loop.call_soon_threadsafe(self._arrive, failure)

    def _arrive(self, failure: Exception | None) -> None:
        if self.future.done():  # cancelled
            return
        if failure is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(failure)


class Look:
    """One look for a message: what it finds reaches the program or goes back, whatever happens meanwhile."""

    def __init__(self, session: LoopSession, consumer: MessageConsumer) -> None:
        self._session = session
        self._consumer = consumer
        self._lock = threading.Lock()
        self._found: tuple[Delivery, Message] | None = None
        self._is_abandoned = False

    def take(self) -> bool:
        """Take a message, if one is at hand, and tell whether there was; a thread's part."""
        if self._is_abandoned:
            return False
        found = self._session._take(self._consumer)
        with self._lock:
            if found is not None and self._is_abandoned:
                self._give_back(found[0])
                return False
            self._found = found
            return found is not None

    def accept(self, read: Callable[[Message], None] | None, *, is_loop: bool) -> Message | None:
        """Return the message, which is the program's now; None if the session was closed meanwhile."""
        session = self._session
        with self._lock:
            if self._is_abandoned or self._found is None:
                return None
            (delivery, message), self._found = self._found, None
            session._core.delivery(read, is_loop=is_loop)(delivery, message)
            return message

    def abandon(self) -> None:
        """Give back what was found, or will be, unless the program has it: the receive was cancelled."""
        with self._lock:
            self._is_abandoned = True
            if self._found is not None:
                self._give_back(self._found[0])
                self._found = None

    def _give_back(self, delivery: Delivery) -> None:
        slot = self._consumer._slot
        slot.reader.give_back([delivery], to=slot, is_counted=False)


class LoopSession(Session):
    """A session of *loop*, whose long calls run in *executor*."""

    def __init__(
        self, connection: Connection, acknowledge_mode: int, *, loop: asyncio.AbstractEventLoop, executor: Executor
    ) -> None:
        wakeup = Wakeup(loop)
        super().__init__(
            connection,
            acknowledge_mode,
            wakeup=wakeup,
            completions=CompletionQueue(None),
            bulk=lambda engine: engine.prompt,  # one publisher for all keeps the order; few sends wait for a batch
        )
        self._wakeup: Wakeup = wakeup
        self._loop = loop
        self._executor = executor
        self._one_call = asyncio.Lock()
        self._room = asyncio.Semaphore(IN_FLIGHT)
        self._is_receiving = False
        self._look: Look | None = None

    def _finish(self) -> None:
        look = self._look
        if look is not None:
            look.abandon()  # what was found, and is not the program's yet, goes back like the rest
        super()._finish()

    # Calls that may take long.

    async def run(self, doing: str, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Return what *call* returns; it is made by a thread, when the session's calls before it are through."""
        await self._one_call.acquire()
        return await self._in_thread(doing, lambda: call(*arguments, **named))

    def _in_thread(self, doing: str, call: Callable[[], T]) -> asyncio.Future[T]:
        """Have a thread make *call*; the next call of the session begins when it ends, even if no task waits for it."""
        try:
            self._check_open(doing)
            future = self._loop.run_in_executor(self._executor, with_handled_exception(call))
        except BaseException:
            self._one_call.release()
            raise
        future.add_done_callback(lambda _: self._one_call.release())
        return asyncio.shield(future)

    async def run_beside(self, call: Callable[[], T]) -> T:
        """Return what *call* returns, which may be made while others are: closing, starting and stopping."""
        return await asyncio.shield(self._loop.run_in_executor(self._executor, with_handled_exception(call)))

    # Sending.

    async def send_message(self, producer: MessageProducer, message: Message, destination: Destination) -> None:
        """Send *message*, in the order of the calls, and return when Kafka has it, if it is to be waited for."""
        is_waited_for = self._transaction is None and producer.delivery_mode == DeliveryMode.PERSISTENT
        outcome = SendOutcome(self._loop) if is_waited_for else None
        await self._one_call.acquire()
        try:
            await self._room.acquire()
        except BaseException:
            self._one_call.release()
            raise
        try:
            send = partial(producer.send, message, destination, completion_listener=outcome)
            if self._sender.knows(destination) and not producer.delivery_delay and self._sender.bulk.backlog < BACKLOG:
                try:
                    send()  # nothing of it takes long
                finally:
                    self._one_call.release()
            else:
                await self._in_thread("send", send)
            if outcome is not None:
                await outcome.future
        finally:
            self._room.release()

    # Receiving.

    def _take(self, consumer: MessageConsumer) -> tuple[Delivery, Message] | None:
        """Return the next message for *consumer*; without one it waits from now on, until its slot rests."""
        core = self._core
        with core.guard.taken_to("receive"):
            if not core.acknowledgement.before_next(consumer._slot):
                raise core.overrun("receive")
            return core.take(consumer._slot, consumer._destination)

    async def receive(
        self,
        consumer: MessageConsumer,
        seconds: float | None,
        read: Callable[[Message], None] | None = None,
        *,
        is_loop: bool = False,
    ) -> Message | None:
        """Return the next message for *consumer*, or for a loop over it; see `Session._receive`.

        Raises:
            IllegalStateException: Another task waits for a message of this session.
        """
        consumer._check_open("receive")
        if consumer._listener is not None:
            raise JMSException("receive: this consumer has a message listener (JMS 2.0 §4.5.2)")
        if self._is_receiving:
            raise IllegalStateException(
                f"receive: another task waits for a message of session {self.number} (JMS 2.0 §4.4.6);"
                " create_context makes a session for this one"
            )
        self._is_receiving = True
        deadline = None if seconds is None else self._loop.time() + seconds
        look = None
        try:
            while True:
                self._wakeup.clear()  # after that, the look finds what came before
                look = self._look = Look(self, consumer)
                try:
                    is_found = await self.run("receive", look.take)
                except IllegalStateException:
                    if consumer._is_closed or self._is_closed:  # meanwhile, perhaps by halves
                        return None
                    raise
                if is_found:
                    return look.accept(read, is_loop=is_loop)
                if consumer._is_closed or not consumer._slot.is_open:
                    return None
                try:
                    consumer._slot.reader.refusal.check()
                except JMSException:
                    consumer._slot.rest()
                    raise
                if deadline is not None and deadline <= self._loop.time():
                    consumer._slot.rest()
                    return None
                await self._wakeup.wait_until(deadline)
        except asyncio.CancelledError:
            if look is not None:
                look.abandon()
            consumer._slot.rest()
            raise
        finally:
            self._is_receiving = False
            self._look = None
