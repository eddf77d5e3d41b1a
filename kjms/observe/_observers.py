"""Call observers so that none of them can break messaging."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from kjms.errors import shown
from kjms.observe._observer import Header, Observer

if TYPE_CHECKING:
    from kjms.observe._events import Received, Sending

__all__ = ["Observers", "Told", "checked_observers"]

_log = logging.getLogger("kjms.observe")

REPEAT_SECONDS: Final = 60.0  # an observer that raises, raises for each message

Told: TypeAlias = Literal[
    "sent",
    "received",
    "redelivered",
    "settled",
    "dead_lettered",
    "committed",
    "rolled_back",
    "rebalanced",
    "outage",
    "recovered",
]
"""The methods of an observer that return nothing."""

_METHODS: Final = [*get_args(Told), "sending", "processing"]

_Entered: TypeAlias = "tuple[Observer, AbstractContextManager[object]]"


class Observers:
    """Several observers, called one after the other; what one of them raises is logged.

    Args:
        observers: The observers. Each is called once, however often it is named.

    Raises:
        ValueError: One of them is no `Observer`.
    """

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = checked_observers(observers)
        self._methods: dict[str, list[tuple[Observer, Any]]] = {}
        for observer in self._observers:
            for name in _METHODS:
                if getattr(type(observer), name) is not getattr(Observer, name) or name in vars(observer):
                    self._methods.setdefault(name, []).append((observer, getattr(observer, name)))

    def __repr__(self) -> str:
        return f"<Observers: {', '.join(type(each).__name__ for each in self._observers) or 'none'}>"

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._observers)

    def has(self, method: str) -> bool:
        """Return whether an observer has a *method* of its own, and not the base class's, which does nothing."""
        return method in self._methods

    def tell(self, method: Told, event: object) -> None:
        """Call *method* of each observer with *event*."""
        for observer, call in self._methods.get(method, ()):
            try:
                call(event)
            except Exception:
                _failed(observer, method)

    def sending(self, event: Sending) -> list[Header]:
        """Return the headers that the observers add to the record of a message; the last one of a name counts."""
        headers: dict[str, bytes] = {}
        for observer, call in self._methods.get("sending", ()):
            try:
                own = {}
                for name, value in call(event) or ():
                    own[_checked(name, str)] = _checked(value, bytes)
                headers.update(own)
            except Exception:
                _failed(observer, "sending")
        return list(headers.items())

    @contextmanager
    def processing(self, event: Received) -> Iterator[None]:
        """Return what a listener is called within: what the observers return, the first one outermost."""
        entered: list[_Entered] = []
        for observer, call in self._methods.get("processing", ()):
            try:
                manager = call(event)
                if manager is not None:
                    manager.__enter__()
                    entered.append((observer, manager))
            except Exception:
                _failed(observer, "processing")
        try:
            yield
        except BaseException as error:
            self._leave(entered, error)
            raise
        self._leave(entered, None)

    def _leave(self, entered: list[_Entered], error: BaseException | None) -> None:
        kind, trace = (None, None) if error is None else (type(error), error.__traceback__)
        for observer, manager in reversed(entered):
            try:
                manager.__exit__(kind, error, trace)
            except Exception:
                _failed(observer, "processing")


def checked_observers(observers: Iterable[Observer]) -> tuple[Observer, ...]:
    """Return *observers*, each of them once.

    Raises:
        TypeError: One of them is no `Observer`, or they are no list.
    """
    if isinstance(observers, Observer) or not isinstance(observers, Iterable):
        raise TypeError(f"observers is a list of kjms.observe.Observer, not {shown(observers)}")
    found = list(observers)
    for each in found:
        if not isinstance(each, Observer):
            raise TypeError(
                f"an observer is an object of a class derived from kjms.observe.Observer, not {shown(each)}"
            )
    return tuple({id(each): each for each in found}.values())


def _checked(value: Any, kind: type[Any]) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"a header is a name (str) and a value (bytes), not {shown(value)}")
    return value


class _Complaints:
    """Says which failures are to be logged: the first, and after that one a minute, of each method.

    Args:
        clock: Seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[tuple[type, str], tuple[float, int]] = {}

    def next(self, observer: Observer, method: str) -> int | None:
        """Return how many failures were passed over since the last one that was logged; None: pass over this one."""
        key, now = (type(observer), method), self._clock()
        with self._lock:
            when, skipped = self._last.get(key, (None, 0))
            if when is not None and now - when < REPEAT_SECONDS:
                self._last[key] = when, skipped + 1
                return None
            self._last[key] = now, 0
            return skipped


_complaints = _Complaints()


def _failed(observer: Observer, method: str) -> None:
    """Log what *method* of *observer* raised."""
    skipped = _complaints.next(observer, method)
    if skipped is not None:
        _log.exception(
            "%s of observer %s raised; messages are not affected%s",
            method,
            type(observer).__qualname__,
            f" ({skipped} more since the last report)" if skipped else "",
        )
