"""Make calls that may never return in a thread of their own, so that the caller can continue without them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple

from kjms.engine.threads import start_thread

__all__ = ["CallThread", "GivenUpError"]


class GivenUpError(Exception):
    """A call has not returned in time; it may still do so, and do what it was made for."""


class _Call(NamedTuple):
    function: Callable[..., object]
    arguments: tuple[object, ...]
    errors: list[BaseException]
    returned: threading.Lock  # released once


class CallThread:
    """A thread that makes calls for another one, one at a time; it starts with the first, and waits for the next.

    Args:
        name: Its name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[_Call | None] | None = None

    def call(self, seconds: float, function: Callable[..., object], *arguments: object) -> None:
        """Return when *function* has returned, or raise what it raises.

        Raises:
            GivenUpError: It has not returned after *seconds*. The thread is left to it, and ends when it returns.
        """
        calls = self._calls
        if calls is None:
            calls = SimpleQueue()
            start_thread(_run, self._name, calls)
            self._calls = calls
        call = _Call(function, arguments, [], threading.Lock())
        call.returned.acquire()
        calls.put(call)
        try:
            if not call.returned.acquire(timeout=seconds):
                raise GivenUpError(f"no answer within {seconds:.1f} s")
        except BaseException:  # an interrupt, too
            self.end()
            raise
        if call.errors:
            raise call.errors.pop()

    def end(self) -> None:
        """Have the thread end when it has returned from its call; the next call gets another one."""
        calls, self._calls = self._calls, None
        if calls is not None:
            calls.put(None)


def _run(calls: SimpleQueue[Any]) -> None:
    while (call := calls.get()) is not None:
        try:
            call.function(*call.arguments)
        except BaseException as error:
            call.errors.append(error)
        call.returned.release()
        del call  # not kept until the next one: it has the producer
