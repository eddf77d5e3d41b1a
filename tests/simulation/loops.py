"""asyncio in the world of a `Scheduler`: an event loop that waits in virtual time, and a pool of its threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from tests.simulation import threads
from tests.simulation.threads import Event, SimpleQueue, Thread

Result = TypeVar("Result")


class Loop(asyncio.BaseEventLoop):
    """An event loop without I/O: it waits for times, and for other threads."""

    def __init__(self) -> None:
        super().__init__()
        self._woken = Event()
        self._selector = self

    def select(self, timeout: float | None) -> list[Any]:
        """Wait until another thread wakes the loop; return no event, as there are no sockets."""
        self._woken.wait(timeout)
        self._woken.clear()
        return []

    def _process_events(self, events: list[Any]) -> None:
        """Do nothing: there are none."""

    def _write_to_self(self) -> None:
        self._woken.set()

    def time(self) -> float:
        """Return virtual seconds."""
        return threads.monotonic()


class ThreadPool:
    """`concurrent.futures.ThreadPoolExecutor`; `Future` is that of the simulation, see `world`."""

    Future: type[Any]

    def __init__(self, max_workers: int, thread_name_prefix: str = "") -> None:
        self._most, self._name = max_workers, thread_name_prefix
        self._calls = SimpleQueue()
        self._count = self._idle = 0
        self._is_shut = False

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        if self._is_shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future = self.Future()
        if self._idle:
            self._idle -= 1
        elif self._count < self._most:
            Thread(target=self._run, name=f"{self._name}_{self._count}", daemon=True).start()
            self._count += 1
        self._calls.put((future, function, arguments, named))
        return future

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function, arguments, named = call
            if future.set_running_or_notify_cancel():
                try:
                    result = function(*arguments, **named)
                except BaseException as error:
                    future.set_exception(error)
                else:
                    future.set_result(result)
            del call, future
            self._idle += 1

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._is_shut = True
        for _ in range(self._count):
            self._calls.put(None)
