"""Connections and sessions of a simulated process: those of kjms, which wait in virtual time."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast

from kjms import aio
from kjms.client.blocking_receiver import BlockingReceiver, Receiving
from kjms.client.connection import Connection
from kjms.client.connection_factory import ConnectionFactory
from kjms.client.context import JMSContext
from kjms.client.listener_thread import ListenerThread
from kjms.client.session import Session
from kjms.options import FactoryOptions, SessionMode, checked_mode
from kjms.testing.simulation._strands import ProcessCrashed, SimulatedEvent, SimulatedLock

if TYPE_CHECKING:
    from kjms.client.session_core import SessionCore
    from kjms.engine import Delivery, Engine
    from kjms.errors import JMSException
    from kjms.message import Message
    from kjms.testing.simulation._engine import SimulatedEngine
    from kjms.testing.simulation._process import Process

__all__ = ["SimulatedAsyncContext", "SimulatedAsyncFactory", "SimulatedConnection", "SimulatedFactory"]

P = ParamSpec("P")
S = TypeVar("S", bound=Session)
T = TypeVar("T")

LOOK_SECONDS: Final = 0.001  # that a look takes which finds no message; twice as long for each further one
MOST_LOOKS: Final = 12  # so that a program that only looks, while messages are delayed, comes to its end


class SimulatedConnection(Connection):
    """A connection of a simulated process.

    Args:
        engine: The engine of the process.
        options: The factory's options.
        name: What the identifiers of its messages begin with; the same in each run with the same seed.
    """

    def __init__(self, engine: SimulatedEngine, options: FactoryOptions, name: str) -> None:
        self._simulated = engine
        engine.process.check()
        super().__init__(options, None, None)
        self._id = name
        self._numbers = itertools.count(1)

    @property
    def process(self) -> Process:
        """The process that it belongs to."""
        return self._simulated.process

    def _acquire_engine(self, user: str | None, password: str | None) -> Engine:
        return cast("Engine", self._simulated)

    def create_session(self, session_mode: int | bool = Session.AUTO_ACKNOWLEDGE, acknowledge_mode: int = 1) -> Session:
        """Return a new session; see `kjms.Connection.create_session`."""
        return self._create_session(cast("type[Session]", SimulatedSession), session_mode, acknowledge_mode)

    def _open_session(
        self, session_class: Callable[[Connection, int], S], session_mode: int | bool, acknowledge_mode: int = 1
    ) -> S:
        session = super()._open_session(session_class, session_mode, acknowledge_mode)
        session._sender._id = f"{self._id}-{next(self._numbers)}"  # and not that of all sessions of the test's process
        return session

    def _tell(self, failure: JMSException) -> None:
        """Pass *failure* to the exception listener, at once."""
        listener = self._reporter.listener
        if listener is not None and not self._is_closed:
            listener(failure)


class SimulatedSession(Session):
    """A session whose waits are those of a strand."""

    def __init__(self, connection: SimulatedConnection, acknowledge_mode: int) -> None:
        process = connection.process
        super().__init__(connection, acknowledge_mode, wakeup=SimulatedEvent(process.scheduler))
        core = self._core
        core.delivering = cast("threading.RLock", SimulatedLock(process.scheduler))
        self._listeners = SimulatedListenerThread(
            process, self.number, core, self._consumers, self._wakeup, connection._tell, connection._ownership.check
        )
        self._receive = SimulatedReceiver(process, self.number, core, self._listeners, self._wakeup, connection).receive


class SimulatedListenerThread(ListenerThread):
    """Delivers to message listeners in a strand of *process*."""

    def __init__(self, process: Process, number: int, core: SessionCore, *others: Any) -> None:
        super().__init__(number, core, *others)
        self._process = process
        self._ending = SimulatedEvent(process.scheduler, has_timeouts=True)
        self._has_ended = SimulatedEvent(process.scheduler, has_timeouts=True)

    def _start_thread(self) -> None:
        self._thread = self._process.spawn("delivery", self._run_to_the_end).thread

    def _run_to_the_end(self) -> None:
        try:
            self._run()
        finally:
            self._has_ended.set()

    def join(self) -> None:
        """Return when the strand has ended."""
        if self._thread is not None and not self.is_current:
            self._has_ended.wait()

    def _listener_failed(self, error: BaseException, delivery: Delivery, count: int, message: Message) -> None:
        if isinstance(error, ProcessCrashed):
            raise error
        super()._listener_failed(error, delivery, count, message)


class SimulatedReceiver(BlockingReceiver):
    """Waits for messages in virtual time; returns None when the process is to end."""

    def __init__(self, process: Process, *parts: Any) -> None:
        super().__init__(*parts)
        self._process = process
        self._looks = 0  # that found no message, one after the other

    def _wait(
        self,
        consumer: Receiving,
        seconds: float | None,
        deliver: Callable[[Delivery, Message], None],
        *,
        is_next: bool = True,
    ) -> Message | None:
        slot, process, wakeup = consumer._slot, self._process, self._wakeup
        scheduler = process.scheduler
        until = None if seconds is None else scheduler.now + (seconds or LOOK_SECONDS * 2**self._looks)
        self._looks = min(self._looks + 1, MOST_LOOKS)
        while True:
            wakeup.clear()
            found = self._core.take(slot, consumer._destination, deliver)
            if found is not None:
                self._looks = 0
                return found[1]
            if consumer._is_closed or not slot.is_open or self._connection._is_closing:
                return None
            if process.is_stopping:
                process.refuse_to_wait()
                return None
            if until is not None and until <= scheduler.now:
                return None
            scheduler.pause(lambda: wakeup.is_set() or process.is_stopping, until, is_idle=True)


class SimulatedFactory(ConnectionFactory):
    """Makes connections of a simulated process.

    Args:
        engine: The engine of the process.
        options: The factory's options.
    """

    def __init__(self, engine: SimulatedEngine, options: FactoryOptions) -> None:
        self._engine = engine
        self._options = options

    def create_connection(self, user: str | None = None, password: str | None = None) -> Connection:
        """Return a new connection, stopped; name and password do not matter."""
        return SimulatedConnection(self._engine, self._options, self._engine.next_name())

    def create_context(
        self,
        session_mode: int = SessionMode.AUTO_ACKNOWLEDGE,
        user: str | None = None,
        password: str | None = None,
    ) -> JMSContext:
        """Return a new context; name and password do not matter."""
        chosen = checked_mode(session_mode)
        session_class = cast("Callable[[Connection, int], Session]", SimulatedSession)
        return JMSContext(self.create_connection(), chosen, set(), session_class)


class InlineExecutor(Executor):
    """Makes each call at once, in the thread of the caller."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Return the outcome of the call."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


class SimulatedAsyncContext(aio.JMSContext):
    """A context for asyncio that makes all calls in the thread of its loop."""

    def _new_threads(self) -> Executor:
        return InlineExecutor()


class SimulatedAsyncFactory(aio.ConnectionFactory):
    """Makes contexts for asyncio in a simulated process.

    Args:
        engine: The engine of the process.
        options: The factory's options.
    """

    def __init__(self, engine: SimulatedEngine, options: FactoryOptions) -> None:
        self._engine = engine
        self._options = options

    def create_context(
        self,
        session_mode: int = SessionMode.AUTO_ACKNOWLEDGE,
        user: str | None = None,
        password: str | None = None,
    ) -> aio.JMSContext:
        """Return a new context; name and password do not matter."""
        engine, options = self._engine, self._options
        return SimulatedAsyncContext(
            checked_mode(session_mode), lambda: SimulatedConnection(engine, options, engine.next_name())
        )
