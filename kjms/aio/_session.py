"""A session whose waiting an event loop does: threads carry out what takes long, and never wait for messages.

A task waits for a message by an asyncio event, which the engine sets from its own threads. Everything that may talk
to Kafka runs in a thread, one call of a session at a time; a thread cannot be cancelled, so a cancelled task ends at
once and the session is free again when the thread is through. What such a thread received is given back.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from kjms.client.completion_queue import CompletionQueue
from kjms.client.dead_letters import with_handled_exception
from kjms.client.session import Session
from kjms.engine import Event
from kjms.errors import IllegalStateException, JMSException
from kjms.options import DeliveryMode

if TYPE_CHECKING:
    from kjms.client.connection import Connection
    from kjms.client.consumer import MessageConsumer
    from kjms.client.producer import MessageProducer
    from kjms.destinations import Destination
    from kjms.engine import Delivery, Engine, Publisher
    from kjms.message import Message

__all__ = ["LoopSession"]

P = ParamSpec("P")
T = TypeVar("T")

IN_FLIGHT: Final = 1_000  # sends of one context that Kafka has not confirmed: the next one waits
MANY: Final = 64  # sends under way at the same time, which are worth waiting for a batch
BACKLOG: Final = 50_000  # of the 100,000 records that librdkafka's buffer holds: beyond that a send may have to wait


class Wakeup(Event):
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
    """The outcome of a send, as a future of *loop*: a completion listener, which the loop calls."""

    __slots__ = ("_loop", "future")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.future: asyncio.Future[None] = loop.create_future()

    def on_completion(self, message: Message) -> None:
        """Note that it was sent."""
        if self._is_awaited():
            self.future.set_result(None)

    def on_exception(self, message: Message, exception: Exception) -> None:
        """Note that it was not."""
        if self._is_awaited():
            self.future.set_exception(exception)

    def _is_awaited(self) -> bool:
        """Return whether a task may wait: the send was not cancelled, and the loop is not closed."""
        return not self.future.done() and not self._loop.is_closed()


class SendWindow:
    """Limits the sends under way, and chooses their publisher: single ones are prompt, many wait for a batch.

    The publisher changes only while no send is under way: messages of two publishers may overtake each other.

    Args:
        completions: The sends under way.
        prompt: Sends at once.
        bulk: Sends in batches.

    Attributes:
        reported: Set when sends have been reported.
    """

    def __init__(self, completions: CompletionQueue, prompt: Publisher, bulk: Publisher) -> None:
        self.reported = asyncio.Event()
        self._completions = completions
        self._prompt = prompt
        self._bulk = bulk
        self._most = 0  # sends under way at the same time, since there were none

    def has_room(self, *, is_waited_for: bool) -> bool:
        """Choose the publisher of the next send, and return whether it may be made now."""
        completions = self._completions
        under_way = len(completions)
        if not under_way:
            completions.publisher = self._bulk if self._most >= MANY else self._prompt
            self._most = 0
            return True
        self._most = max(self._most, under_way)
        return not is_waited_for or under_way < (MANY if completions.publisher is self._prompt else IN_FLIGHT)

    async def wait_for_room(self) -> None:
        """Return when fewer sends are under way: none, where the next ones are to be made in batches."""
        completions = self._completions
        few = 1 if completions.publisher is self._prompt else IN_FLIGHT
        while len(completions) >= few:
            self.reported.clear()
            await self.reported.wait()
        self.has_room(is_waited_for=True)


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


def _taken(outcome: asyncio.Future[T]) -> None:
    """Mark the error of *outcome* as taken: asyncio reports one that no task has taken."""
    if not outcome.cancelled():
        outcome.exception()


class LoopSession(Session):
    """A session of *loop*, whose long calls run in *executor*."""

    def __init__(
        self, connection: Connection, acknowledge_mode: int, *, loop: asyncio.AbstractEventLoop, executor: Executor
    ) -> None:
        wakeup = Wakeup(loop)

        def report(call: Callable[[], None]) -> None:
            call()
            self._window.reported.set()

        def pass_on(call: Callable[[], None]) -> None:
            try:
                loop.call_soon_threadsafe(report, call)
            except RuntimeError:  # the loop is closed: no task waits, and failures are logged
                call()

        def completions(engine: Engine) -> CompletionQueue:
            queue = CompletionQueue(engine.prompt, pass_on)
            self._window = SendWindow(queue, engine.prompt, engine.bulk)
            return queue

        super().__init__(connection, acknowledge_mode, wakeup=wakeup, completions=completions)
        self._wakeup: Wakeup = wakeup
        self._loop = loop
        self._executor = executor
        self._one_call = asyncio.Lock()
        self._calls = 0  # that hold this lock, or wait for it
        self._is_receiving = False
        self._look: Look | None = None

    def _finish(self) -> None:
        look = self._look
        if look is not None:
            look.abandon()  # what was found, and is not the program's yet, goes back like the rest
        super()._finish()

    def _end_loop(self, consumer: MessageConsumer) -> None:
        task: asyncio.Task[object] | None = consumer._looper  # type: ignore[assignment] # of this session, so no thread
        if task is None:
            return
        error: BaseException | None
        if not task.done():
            error = None
        elif task.cancelled():
            error = asyncio.CancelledError()
        elif task._exception is None:
            return
        else:
            error = task._exception  # and not by `exception()`: asyncio reports an exception that nothing has taken
        self._core.acknowledgement.loop_failed(error, consumer._slot, judges=True)

    def keep_loops(self, consumers: Iterable[MessageConsumer]) -> None:
        """Note that the present task closes *consumers*: what a loop of its own has is done."""
        for consumer in consumers:
            if consumer._looper is asyncio.current_task():
                consumer._looper = None

    # Calls that may take long.

    async def run(self, doing: str, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Return what *call* returns; it is made by a thread, when the session's calls before it are through."""
        await self._begin_call()
        return await self._in_thread(doing, lambda: call(*arguments, **named))

    async def _begin_call(self) -> None:
        """Return when the calls before are through; `_end_call` lets the next one begin."""
        self._calls += 1
        try:
            await self._one_call.acquire()
        except BaseException:
            self._calls -= 1
            raise

    def _end_call(self) -> None:
        self._calls -= 1
        self._one_call.release()

    def _in_thread(self, doing: str, call: Callable[[], T]) -> asyncio.Future[T]:
        """Have a thread make *call*, which has begun; it ends when the thread is through, even if no task waits.

        The thread has the context variables of the task, as with `asyncio.to_thread`: observers look for a trace there.
        """
        try:
            self._check_open(doing)
            future = self._loop.run_in_executor(self._executor, copy_context().run, with_handled_exception(call))
        except BaseException:
            self._end_call()
            raise
        future.add_done_callback(lambda _: self._end_call())
        outcome = asyncio.shield(future)
        outcome.add_done_callback(_taken)  # a task that is cancelled at this moment never takes it
        return outcome

    async def run_beside(self, call: Callable[[], T]) -> T:
        """Return what *call* returns, which may be made while others are: closing, starting and stopping."""
        return await asyncio.shield(self._loop.run_in_executor(self._executor, with_handled_exception(call)))

    # Sending.

    async def send_message(self, producer: MessageProducer, message: Message, destination: Destination) -> None:
        """Send *message*, in the order of the calls, and return when Kafka has it, if it is to be waited for."""
        is_waited_for = self._transaction is None and producer._delivery_mode == DeliveryMode.PERSISTENT
        outcome = SendOutcome(self._loop) if is_waited_for else None
        window = self._window
        has_room = not self._calls and window.has_room(is_waited_for=is_waited_for)
        if has_room and self._is_quick(producer, destination):
            producer.send(message, destination, completion_listener=outcome)
        else:
            await self._begin_call()
            try:
                if not window.has_room(is_waited_for=is_waited_for):
                    await window.wait_for_room()
                is_quick = self._is_quick(producer, destination)
                if is_quick:
                    producer.send(message, destination, completion_listener=outcome)
            except BaseException:
                self._end_call()
                raise
            if is_quick:
                self._end_call()
            else:
                await self._in_thread("send", partial(producer.send, message, destination, completion_listener=outcome))
        if outcome is not None:
            await outcome.future

    def _is_quick(self, producer: MessageProducer, destination: Destination) -> bool:
        """Return whether a send needs no answer of Kafka first, and finds room in librdkafka's buffer."""
        sender = self._sender
        if producer._delivery_delay or not sender.knows(destination):
            return False
        return sender.completions.publisher.backlog < BACKLOG

    # Receiving.

    def _take(self, consumer: MessageConsumer) -> tuple[Delivery, Message] | None:
        """Return the next message for *consumer*; without one it waits from now on, until its slot rests."""
        core = self._core
        with core.guard.taken_to("receive"):
            if not core.acknowledgement.before_next(consumer._slot):
                raise core.overrun("receive")
            return core.take(consumer._slot, consumer._destination)

    def _take_at_hand(
        self, consumer: MessageConsumer, read: Callable[[Message], None] | None, *, is_loop: bool
    ) -> Message | None:
        """Return the next message, if that takes no thread."""
        core = self._core
        try:
            core.guard.acquire("receive")
        except IllegalStateException:  # the session is being closed, started or stopped
            return None
        try:
            return core.take_at_hand(consumer._slot, consumer._destination, core.delivery(read, is_loop=is_loop))
        finally:
            core.guard.release()

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
        if consumer._is_closed:
            consumer._check_open("receive")
        if consumer._listener is not None:
            raise JMSException("receive: this consumer has a message listener (JMS 2.0 §4.5.2)")
        if self._is_receiving:
            raise IllegalStateException(
                f"receive: another task waits for a message of session {self.number} (JMS 2.0 §4.4.6);"
                " create_context makes a session for this one"
            )
        at_hand = None if self._calls else self._take_at_hand(consumer, read, is_loop=is_loop)
        if at_hand is not None:
            return at_hand
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
