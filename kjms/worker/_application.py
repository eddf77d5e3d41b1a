"""Applications: listeners, and what they have in common."""

from __future__ import annotations

import importlib
import inspect
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from kjms.client.connection_factory import FactorySettings
from kjms.client.engine_access import options_of
from kjms.client.exception_listener import ExceptionListener, listener_methods
from kjms.errors import shown
from kjms.options import DestinationOptions, FactoryOptions, RedeliveryPolicy, found_class, seconds_to_wait
from kjms.worker._handler import AsyncMiddleware, Middleware, async_call, checked_middleware, plain_call
from kjms.worker._listener import Listener, listeners_of
from kjms.worker._running import Lifespan, Parts, Running

if TYPE_CHECKING:
    from kjms.worker._handler import AsyncCall, PlainCall

__all__ = ["Application"]


class Application:
    """Listeners with what they have in common: connection factory, middleware, and a state that lives as long as they.

    ``kjms worker module:app`` runs one in processes of its own; `running` runs it in this process.

    Args:
        factory: Makes the connections; a `kjms.ConnectionFactory`, or that of `kjms.aio`. None: ``kjms worker`` makes
            one from its options and the configuration file.
        listeners: Functions that `listener` decorates, and modules that hold some.
        middleware: Functions around each call, the first one outermost. ``middleware(context, call_next)`` calls
            ``call_next()`` and returns what that returns; plain ones are called for plain listeners, and async ones,
            which await it, for async listeners. What they raise counts as raised by the listener.
        lifespan: Returns a context manager, plain or async, which is entered before the listeners start and left after
            they have ended. What it yields is the `state` of their contexts: clients, pools, settings.
        exception_listener: Called with failures that no call can raise, and with recoveries, as
            `kjms.Connection.exception_listener` is. None: they are logged.

    Raises:
        TypeError: One of *listeners* is none, an annotation cannot be resolved, or *middleware* is no such function.
        ValueError: There are no listeners, two of a destination differ in their redelivery policy, the factory has a
            client id, or a middleware would never be called.
        ModuleNotFoundError: An annotation needs pydantic, which is not installed.
    """

    def __init__(
        self,
        factory: FactorySettings | None = None,
        listeners: Iterable[Callable[..., Any] | types.ModuleType] = (),
        middleware: Sequence[Middleware | AsyncMiddleware] = (),
        lifespan: Lifespan | None = None,
        exception_listener: ExceptionListener | None = None,
    ) -> None:
        if factory is not None:
            check_factory(factory)
        if lifespan is not None and not callable(lifespan):
            raise TypeError(f"lifespan is a function that returns a context manager, not {shown(lifespan)}")
        if exception_listener is not None:
            listener_methods(exception_listener)
        self.factory = factory
        self.listeners = tuple(_found(listeners))
        if not self.listeners:
            raise ValueError("an application has at least one listener: a function with the decorator @listener(...)")
        self.middleware = checked_middleware(list(middleware), self.listeners)
        self.lifespan = lifespan
        self.exception_listener = exception_listener
        _check_policies(self.listeners)
        self._plain: list[tuple[Listener, PlainCall]] = []
        self._async: list[tuple[Listener, AsyncCall]] = []
        for each in self.listeners:
            if each.is_async:
                self._async.append((each, async_call(each, self.middleware)))
            else:
                self._plain.append((each, plain_call(each, self.middleware)))

    def __repr__(self) -> str:
        sessions = sum(each.concurrency for each in self.listeners)
        return f"<Application: {len(self.listeners)} listeners, {sessions} sessions>"

    def running(
        self,
        factory: FactorySettings | None = None,
        *,
        user: str | None = None,
        password: str | None = None,
        grace: int | timedelta | None = None,
    ) -> Running:
        """Return what runs the listeners in this process: a context manager for ``async with``, and for ``with``.

        Args:
            factory: Makes the connections, if the application has no factory of its own.
            user: The name for SASL; None: the one in the factory, if any.
            password: The password for it.
            grace: Milliseconds at the end for listeners that still run; then their messages are given back, marked and
                not counted, and async ones are cancelled. None: without limit.

        Raises:
            ValueError: There is no factory, *grace* is negative, or a redelivery policy names an exception that does
                not exist.
        """
        chosen = self.factory if self.factory is not None else factory
        if chosen is None:
            raise ValueError("running: give the application, or this call, a ConnectionFactory")
        check_factory(chosen)
        options = with_policies(chosen._options, self.listeners)
        _check_exceptions(options, self.listeners)
        seconds = None if grace is None else seconds_to_wait(grace, "grace")
        parts = Parts(repr(self), self._plain, self._async, self.lifespan, self.exception_listener)
        return Running(parts, options, user, password, seconds)


def check_factory(factory: FactorySettings) -> None:
    """Raise an error unless workers can connect by *factory*.

    Raises:
        TypeError: It is no connection factory.
        ValueError: It has a client id.
    """
    if not isinstance(factory, FactorySettings):
        raise TypeError(f"factory is a ConnectionFactory, not {shown(factory)}")
    client_id = options_of(factory).client_id
    if client_id is not None:
        raise ValueError(
            f"the factory has the client id {client_id!r}, which one connection at a time can use, and a worker has"
            " several; its subscriptions are shared ones, and need none (JMS 2.0 §4.3.2)"
        )


def with_policies(options: FactoryOptions, listeners: Iterable[Listener]) -> FactoryOptions:
    """Return *options* with the redelivery policies of *listeners*."""
    destinations = dict(options.destinations)
    for each in listeners:
        if each.redelivery is not None or each.exceptions:
            name = destination_name_of(each)
            policy = each.redelivery or options.destination(name).redelivery or RedeliveryPolicy()
            policy = replace(policy, **each.exceptions)
            destinations[name] = replace(destinations.get(name, DestinationOptions()), redelivery=policy)
    return replace(options, destinations=destinations)


def destination_name_of(listener: Listener) -> str:
    """Return the name under which the factory's options have the destination of *listener*."""
    from kjms.engine import destination_name

    return destination_name(listener.destination)


def _check_policies(listeners: Sequence[Listener]) -> None:
    chosen: dict[str, Listener] = {}
    for each in listeners:
        other = chosen.setdefault(destination_name_of(each), each)
        if (other.redelivery, other.exceptions) != (each.redelivery, each.exceptions):
            raise ValueError(
                f"{other.name} and {each.name} are on {each.destination}, and differ in their redelivery policy:"
                " it belongs to the destination"
            )


def _check_exceptions(options: FactoryOptions, listeners: Iterable[Listener]) -> None:
    """Raise ValueError unless each exception that the policies of *listeners* name by text exists."""
    for name in map(destination_name_of, listeners):
        policy = options.destination(name).redelivery or RedeliveryPolicy()
        for each in (*policy.dead_letter_on, *policy.retry_on):
            if isinstance(each, str) and found_class(each) is None:
                module = each.rpartition(".")[0]
                try:
                    importlib.import_module(module)
                except ImportError as error:
                    raise ValueError(f"the redelivery policy of {name!r} names {each!r}: {error}") from error
                if found_class(each) is None:
                    raise ValueError(f"the redelivery policy of {name!r} names {each!r}, which is no exception class")


def _found(listeners: Iterable[object]) -> Iterator[Listener]:
    seen: set[int] = set()
    for each in listeners:
        functions: list[object]
        if isinstance(each, types.ModuleType):
            functions = [value for value in vars(each).values() if inspect.isfunction(value) and listeners_of(value)]
        elif listeners_of(each):
            functions = [each]
        else:
            raise TypeError(f"{shown(each)} is no listener: decorate a function with @listener(...), or name a module")
        for function in functions:
            if id(function) not in seen:  # a module may have a function by two names, and be named beside it
                seen.add(id(function))
                yield from listeners_of(function)
