"""Running checks in threads, so that one that hangs neither hangs the server nor piles up."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

__all__ = ["Shared", "TooSlowError"]

T = TypeVar("T")
_Outcome = Callable[[], T]

LONGEST_NAME: Final = 40


class TooSlowError(Exception):
    """A call has not ended in time.

    Attributes:
        seconds: Since when it runs.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no answer for {seconds:.1f} s")
        self.seconds = seconds


class Shared(Generic[T]):
    """A function that may block, called in a thread; requests that come meanwhile share the call under way.

    Used in one event loop.

    Args:
        name: What it is called in the thread's name.
        function: The function.
    """

    def __init__(self, name: str, function: Callable[[], T]) -> None:
        self._name = name[:LONGEST_NAME]
        self._function = function
        self._call: asyncio.Future[_Outcome[T]] | None = None
        self._began = 0.0

    async def result(self, timeout: float) -> T:
        """Return what the function returns.

        Raises:
            TooSlowError: It took longer than *timeout* seconds. It still runs, and no second call begins until it ends.
            Exception: What the function raised.
        """
        call = self._call
        if call is None or call.done():
            self._began = time.monotonic()
            call = self._call = self._begin()
        await asyncio.wait([call], timeout=timeout)  # it does not cancel the call
        if not call.done():
            raise TooSlowError(time.monotonic() - self._began)
        return call.result()()

    def _begin(self) -> asyncio.Future[_Outcome[T]]:
        loop = asyncio.get_running_loop()
        call: asyncio.Future[_Outcome[T]] = loop.create_future()

        def run() -> None:
            outcome = _called(self._function)
            with contextlib.suppress(RuntimeError):  # the server has been closed
                loop.call_soon_threadsafe(call.set_result, outcome)

        threading.Thread(target=run, name=f"kjms-health-{self._name}", daemon=True).start()
        return call


def _called(function: Callable[[], T]) -> _Outcome[T]:
    """Call *function*; return what returns its result, or raises its error: not every exception fits into a future."""
    try:
        result = function()
    except BaseException as failure:  # a check that calls sys.exit ends its thread, and fails
        error = failure if isinstance(failure, Exception) else RuntimeError(type(failure).__name__)

        def fail() -> T:
            raise error

        return fail
    return lambda: result
