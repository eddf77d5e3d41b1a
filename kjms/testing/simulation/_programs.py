"""The programs of a simulated world: worker applications and functions, each in several processes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from kjms.client.connection_factory import ConnectionFactory
from kjms.client.engine_access import options_of
from kjms.errors import JMSException, shown
from kjms.options import DestinationOptions, FactoryOptions, SessionMode
from kjms.testing.simulation._loop import SimulatedLoop
from kjms.testing.simulation._sessions import (
    SimulatedAsyncContext,
    SimulatedAsyncFactory,
    SimulatedConnection,
    SimulatedFactory,
)
from kjms.testing.simulation._strands import ProcessCrashed
from kjms.worker import Application
from kjms.worker._application import with_policies
from kjms.worker._async import AsyncSession
from kjms.worker._plain import PlainSession
from kjms.worker._replies import DroppedReplies

if TYPE_CHECKING:
    from kjms.client.connection_factory import FactorySettings
    from kjms.testing.simulation._engine import SimulatedEngine
    from kjms.worker import Listener

__all__ = ["Program", "Running", "program_of"]

Program: TypeAlias = "Application | Callable[[Any], Any]"
"""An `Application`, or a function of a `kjms.ConnectionFactory`; an async one gets a `kjms.aio.ConnectionFactory`."""


class Running(Protocol):
    """A program, which each of its processes runs.

    Attributes:
        name: For people.
        files: The source files of its own code.
    """

    name: str
    files: frozenset[str]

    def run(self, engine: SimulatedEngine) -> None:
        """Run the program in the process of *engine*, until it ends."""


def program_of(program: Program, factory: FactorySettings | None) -> Running:
    """Return what runs *program*.

    Raises:
        TypeError: It is no program.
    """
    if isinstance(program, Application):
        chosen = program.factory if program.factory is not None else factory
        return _RunningApplication(program, _options(chosen))
    if not callable(program):
        raise TypeError(f"a program is an Application, or a function of a ConnectionFactory, not {shown(program)}")
    return _RunningFunction(program, _options(factory))


def _options(factory: FactorySettings | None) -> FactoryOptions:
    return options_of(ConnectionFactory() if factory is None else factory)


def _calm(options: FactoryOptions) -> FactoryOptions:
    """Return *options* for a simulation: without observers, and without jitter, which no seed decides."""

    def calm(each: DestinationOptions) -> DestinationOptions:
        policy = each.redelivery
        return each if policy is None else replace(each, redelivery=replace(policy, jitter=0.0))

    return replace(
        options,
        observers=(),
        kafka={},
        defaults=calm(options.defaults),
        destinations={name: calm(each) for name, each in options.destinations.items()},
    )


def _file_of(function: object) -> str:
    code = getattr(inspect.unwrap(cast("Any", function)), "__code__", None)
    return "" if code is None else str(code.co_filename)


class _RunningFunction:
    """A function of a connection factory."""

    def __init__(self, function: Callable[[Any], Any], options: FactoryOptions) -> None:
        inner: Any = function
        while isinstance(inner, functools.partial):
            inner = inner.func
        self.name = getattr(inner, "__name__", type(inner).__name__)
        self.files = frozenset({_file_of(inner)} - {""})
        self._function = function
        self._options = _calm(options)

    def run(self, engine: SimulatedEngine) -> None:
        """Call the function."""
        if not (inspect.iscoroutinefunction(self._function)):
            with contextlib.suppress(SystemExit):
                self._function(SimulatedFactory(engine, self._options))
            return
        process = engine.process
        loop = SimulatedLoop(process)

        async def main() -> None:
            task = asyncio.current_task()
            assert task is not None

            def stop() -> None:
                loop.call_soon_threadsafe(task.cancel)

            process.on_stop = stop
            try:
                await self._function(SimulatedAsyncFactory(engine, self._options))
            except asyncio.CancelledError:
                if not process.is_stopping:
                    raise

        loop.run(main())


class _RunningApplication:
    """A worker application."""

    def __init__(self, application: Application, options: FactoryOptions) -> None:
        listeners = application.listeners
        self.name = getattr(listeners[0].function, "__name__", "worker")
        self.files = frozenset(_file_of(each.function) for each in listeners)
        self._application = application
        self._options = _calm(with_policies(options, listeners))

    def run(self, engine: SimulatedEngine) -> None:
        """Run the listeners until the process is stopped."""
        loop = SimulatedLoop(engine.process)
        loop.run(self._main(engine, loop))

    async def _main(self, engine: SimulatedEngine, loop: SimulatedLoop) -> None:
        process, application = engine.process, self._application
        stopped, stopping = asyncio.Event(), threading.Event()

        def stop() -> None:
            stopping.set()
            loop.call_soon_threadsafe(stopped.set)

        process.on_stop = stop
        async with contextlib.AsyncExitStack() as stack:
            state: Any = None
            if application.lifespan is not None:
                entered = application.lifespan()
                if isinstance(entered, contextlib.AbstractAsyncContextManager):
                    state = await stack.enter_async_context(entered)
                else:
                    state = stack.enter_context(entered)
            dropped = DroppedReplies()
            if application._plain:
                connection = self._connect(engine)
                stack.callback(connection.close)
                for listener, call in application._plain:
                    for _ in range(listener.concurrency):
                        noted = _noting(engine, listener, call)
                        PlainSession(connection, listener, noted, state, stopping, dropped)
                connection.start()
            sessions = []
            if application._async:
                root = SimulatedAsyncContext(SessionMode.AUTO_ACKNOWLEDGE, lambda: self._connect(engine))
                await root
                stack.push_async_callback(root.close)
                for listener, async_call in application._async:
                    for _ in range(listener.concurrency):
                        context = root.create_context(listener.session_mode)
                        noted_call = _noting_async(engine, listener, async_call)
                        session = AsyncSession(context, listener, noted_call, state, stopping, dropped)
                        stack.push_async_callback(session.close)
                        sessions.append(session)
                for session in sessions:
                    await session.start()
            await stopped.wait()
            tasks = [task for session in sessions if (task := session.stop()) is not None]
            if tasks:
                await asyncio.wait(tasks)

    def _connect(self, engine: SimulatedEngine) -> SimulatedConnection:
        connection = SimulatedConnection(engine, self._options, engine.next_name())
        listener = self._application.exception_listener
        if listener is not None:
            connection.exception_listener = listener
        return connection


def _noting(engine: SimulatedEngine, listener: Listener, call: Callable[[Any], object]) -> Callable[[Any], object]:
    """Return *call*, which notes what it raises."""

    def noted(context: Any) -> object:
        try:
            result = call(context)
        except BaseException as error:
            _note_failure(engine, listener, error)
            raise
        engine.process.before(f"returns from {listener.name}")
        return result

    return noted


def _noting_async(engine: SimulatedEngine, listener: Listener, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    async def noted(context: Any) -> object:
        try:
            result: object = await call(context)
        except BaseException as error:
            _note_failure(engine, listener, error)
            raise
        engine.process.before(f"returns from {listener.name}")
        return result

    return noted


def _note_failure(engine: SimulatedEngine, listener: Listener, error: BaseException) -> None:
    if not isinstance(error, ProcessCrashed):
        engine.process.note(f"{listener.name} raises {type(error).__name__}")


def is_of_kafka(error: BaseException) -> bool:
    """Return whether *error* comes from Kafka, or was raised because of such an error."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, JMSException):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
