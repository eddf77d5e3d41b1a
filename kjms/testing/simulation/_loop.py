"""The event loop of a simulated process: its time is virtual, and it waits as a strand does."""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any, Final

from kjms.testing.simulation._strands import ProcessCrashed

if TYPE_CHECKING:
    from kjms.testing.simulation._process import Process

__all__ = ["SimulatedLoop"]

MOST_ROUNDS: Final = 10_000  # of a loop whose process has crashed, until its tasks have ended


class _Selector(selectors.DefaultSelector):
    """Looks for real events, and waits in virtual time."""

    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the events that there are, or those after a wait."""
        events = super().select(0)
        if not events and (timeout is None or timeout > 0):
            self._loop.wait(timeout, lambda: bool(super(_Selector, self).select(0)))
            events = super().select(0)
        return events


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop of *process*."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._is_unwinding = False
        super().__init__(_Selector(self))

    def time(self) -> float:
        """Return the virtual time, in seconds."""
        return self._process.scheduler.now

    def wait(self, timeout: float | None, has_events: Any) -> None:
        """Let other strands run until there is something to do; what tells so writes to the loop's own socket."""
        process = self._process
        if not self._is_unwinding:
            until = None if timeout is None else process.scheduler.now + timeout
            process.scheduler.pause(has_events, until, is_idle=not process.has_messages)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report what no task has taken, unless the process has crashed."""
        if not self._process.is_dead and not isinstance(context.get("exception"), ProcessCrashed):
            super().call_exception_handler(context)

    def _run_once(self) -> None:
        super()._run_once()  # type: ignore[misc]  # asyncio has it for every loop, and its stubs do not
        if not self._is_unwinding:
            self._process.check()

    def run(self, main: Any) -> None:
        """Run the coroutine *main*, and what is left when it ends."""
        asyncio.set_event_loop(self)
        try:
            self.run_until_complete(main)
        finally:
            self._unwind()
            asyncio.set_event_loop(None)
            self.close()

    def _unwind(self) -> None:
        """End the tasks that are left: their code is unwound."""
        self._is_unwinding = True
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        for _ in range(MOST_ROUNDS):
            if all(task.done() for task in tasks):
                break
            self.call_soon(lambda: None)
            self._run_once()
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # a task that refuses to end
            if task.done() and not task.cancelled():
                task.exception()  # taken: asyncio reports it no more
