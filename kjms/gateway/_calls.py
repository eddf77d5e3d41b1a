"""Calls that other threads want made in the event loop's thread."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

__all__ = ["CallQueue"]


class CallQueue:
    """Calls to the loop's thread, in the order of posting; one wake-up of the loop makes all that are there.

    Args:
        make: Makes a call; it raises nothing.
        then: Called after them.
    """

    def __init__(self, make: Callable[..., None], then: Callable[[], None]) -> None:
        self._make = make
        self._then = then
        self._loop = asyncio.get_running_loop()
        self._calls: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._is_announced = False
        self._lock = threading.Lock()

    def post(self, call: Callable[..., None], *values: Any) -> None:
        """Have *call* called in the loop's thread; for any thread."""
        self._calls.append((call, values))
        if self._is_announced:
            return
        with self._lock:
            if self._is_announced:
                return
            self._is_announced = True
        try:
            self._loop.call_soon_threadsafe(self._run)
        except RuntimeError:  # the loop is closed, and its thread makes no calls any more
            return

    def _run(self) -> None:
        with self._lock:
            self._is_announced = False
        for _ in range(len(self._calls)):
            call, values = self._calls.popleft()
            self._make(call, *values)
        if self._calls:
            self.post(lambda: None)
        self._then()
