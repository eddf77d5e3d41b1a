"""Threads of simulated processes, of which one at a time runs, and the virtual time in which they run."""

from __future__ import annotations

import heapq
import itertools
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from kjms.engine import Event

if TYPE_CHECKING:
    from types import FrameType

    from kjms.testing.simulation._choices import Choices

__all__ = ["Owner", "ProcessCrashed", "Scheduler", "SimulatedEvent", "SimulatedLock", "Strand"]

HANDLER_SECONDS: Final = 30.0  # real seconds for a handler to return, or to call kjms
POLL_SECONDS: Final = 0.001  # of real time, while a handler waits for something that is not simulated
IDLE_ROUNDS: Final = 3  # waits of a program that end without a message, before it is stopped
MOST_TURNS: Final = 200_000  # of strands in one run: a program that needs more does not end

_numbers = itertools.count(1)


class ProcessCrashed(BaseException):
    """Unwinds the code of a simulated process that has crashed; each later call to kjms there raises it again."""


Trace: TypeAlias = "Callable[[FrameType, str, Any], Any]"
"""What `sys.settrace` takes."""


class Owner(Protocol):
    """The process of a strand, as its scheduler sees it."""

    is_dead: bool

    def check(self) -> None:
        """Raise ProcessCrashed in a process that has crashed."""


class Strand:
    """A thread that runs when its scheduler says so.

    Args:
        scheduler: The scheduler.
        process: What it belongs to.
        name: Of the thread.
        run: What it does.
        trace: Sees the lines that it runs, unless a debugger does.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        process: Owner,
        name: str,
        run: Callable[[], None],
        trace: Trace | None,
    ) -> None:
        self.process = process
        self.is_done = False
        self.is_stuck = False
        self.is_ready: Callable[[], bool] = lambda: True
        self.until: float | None = None
        self.is_idle = False
        self.rounds = 0
        self._scheduler = scheduler
        self._run = run
        self._trace = trace
        self._turn = threading.Semaphore(0)
        context = copy_context()
        self.thread = threading.Thread(target=lambda: context.run(self._body), name=name, daemon=True)
        self.thread.start()

    def can_run(self, now: float) -> bool:
        """Return whether what it waits for has come."""
        return self.process.is_dead or self.is_ready() or (self.until is not None and self.until <= now)

    def resume(self) -> None:
        """Let it run until it pauses or ends; a call of the scheduler's thread."""
        self._turn.release()

    def wait_for_turn(self) -> None:
        """Return when the scheduler lets it run."""
        self._turn.acquire()

    def where(self) -> str:
        """Return the stack of its thread."""
        frame = sys._current_frames().get(self.thread.ident or 0)
        return "" if frame is None else "".join(traceback.format_stack(frame)[-6:])

    def _body(self) -> None:
        self.wait_for_turn()
        if self._trace is not None and sys.gettrace() is None:
            sys.settrace(self._trace)
        try:
            self.process.check()
            self._run()
        except ProcessCrashed:
            pass
        except BaseException as error:
            if not self.process.is_dead:
                self._scheduler.failures.append(error)
        finally:
            self.is_done = True
            self._scheduler.give_turn_back()


class Scheduler:
    """Runs strands one at a time, as a seed decides, in virtual time.

    Args:
        choices: What decides.

    Attributes:
        now: Virtual seconds since the beginning.
        failures: What strands raised, which ends the run.
    """

    def __init__(self, choices: Choices) -> None:
        self.now = 0.0
        self.failures: list[BaseException] = []
        self._choices = choices
        self._strands: list[Strand] = []
        self._current: Strand | None = None
        self._returned = threading.Semaphore(0)
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    @property
    def current(self) -> Strand | None:
        """The strand whose code calls this; None: other code does."""
        current = self._current
        return current if current is not None and current.thread is threading.current_thread() else None

    def spawn(
        self,
        process: Owner,
        name: str,
        run: Callable[[], None],
        trace: Trace | None = None,
    ) -> Strand:
        """Return a new strand, which runs when the scheduler resumes it."""
        strand = Strand(self, process, f"kjms-simulated-{next(_numbers)}-{name}", run, trace)
        self._strands.append(strand)
        return strand

    def at(self, time: float, call: Callable[[], None]) -> None:
        """Make *call* at the virtual *time*, in seconds."""
        heapq.heappush(self._timers, (time, next(self._order), call))

    def pause(self, is_ready: Callable[[], bool], until: float | None = None, *, is_idle: bool = False) -> None:
        """Let other strands run until *is_ready*, or *until* that virtual time; a call of a strand.

        Args:
            is_ready: Whether it can run again.
            until: When it runs in any case.
            is_idle: Whether it waits for a message: the run ends when all strands do.

        Raises:
            ProcessCrashed: Its process crashed meanwhile.
        """
        strand = self.current
        if strand is None:
            return
        strand.process.check()
        strand.is_ready, strand.until, strand.is_idle = is_ready, until, is_idle
        self.give_turn_back()
        strand.wait_for_turn()
        strand.process.check()

    def give_turn_back(self) -> None:
        """Let the scheduler's thread run."""
        self._returned.release()

    def run(self) -> None:
        """Run strands until all of them are done, or wait for messages that do not come.

        Raises:
            TimeoutError: A strand neither returned nor called kjms for half a minute of real time.
            RuntimeError: The strands do not come to an end.
        """
        for _ in range(MOST_TURNS):
            if self.failures:
                return
            strands = self._strands = [each for each in self._strands if not each.is_done]
            ready = [each for each in strands if each.process.is_dead]  # at once: nothing of it runs beside others
            ready = ready or [each for each in strands if each.can_run(self.now)]
            if ready:
                self._resume(ready[self._choices.below(len(ready))])
                continue
            if not self._pass_time(strands):
                return
        raise RuntimeError(f"the simulated programs do not come to an end: they took {MOST_TURNS} turns")

    def _pass_time(self, strands: list[Strand]) -> bool:
        """Let time pass until a strand can run, or may; return False where nothing more comes."""
        is_busy = any(not each.is_idle for each in strands)
        times = [self._timers[0][0]] if self._timers else []
        if times or is_busy:
            for each in strands:
                each.rounds = 0
            times += [each.until for each in strands if each.until is not None]
        else:  # only waits that may end without a message are left
            waiting = [each for each in strands if each.until is not None and each.rounds < IDLE_ROUNDS]
            for each in waiting:
                each.rounds += 1
            times += [each.until for each in waiting if each.until is not None]
        if times:
            self.now = max(self.now, min(times))
            while self._timers and self._timers[0][0] <= self.now:
                heapq.heappop(self._timers)[2]()
            return True
        if is_busy:
            self._wait_really(strands)
        return is_busy

    def _wait_really(self, strands: list[Strand]) -> None:
        deadline = time.monotonic() + HANDLER_SECONDS
        while not any(each.can_run(self.now) for each in strands):
            if time.monotonic() > deadline:
                raise self._stuck(next(each for each in strands if not each.is_idle))
            time.sleep(POLL_SECONDS)

    def _resume(self, strand: Strand) -> None:
        self._current = strand
        strand.resume()
        if not self._returned.acquire(timeout=HANDLER_SECONDS):
            raise self._stuck(strand)
        self._current = None

    def _stuck(self, strand: Strand) -> TimeoutError:
        strand.is_stuck = True
        return TimeoutError(
            f"{strand.thread.name} neither returned nor called kjms for {HANDLER_SECONDS:g} s; it may wait for a lock"
            " that a paused handler has: simulated(seed, without=('pause', 'lost partition')) pauses none\n"
            f"{strand.where()}"
        )

    def end(self) -> None:
        """Unwind all strands; their processes have ended."""
        self.failures.clear()
        self._timers.clear()
        for strand in self._strands:
            while not (strand.is_done or strand.is_stuck):
                self._resume(strand)
        for strand in self._strands:
            strand.thread.join(HANDLER_SECONDS)


class SimulatedEvent(Event):
    """An event that strands wait for in virtual time.

    Args:
        scheduler: The scheduler.
        has_timeouts: Whether waits end when their time is over; else they end by events alone, and their strand is
            idle meanwhile.
    """

    def __init__(self, scheduler: Scheduler, *, has_timeouts: bool = False) -> None:
        super().__init__()
        self._scheduler = scheduler
        self._has_timeouts = has_timeouts

    def wait(self, timeout: float | None = None) -> bool:
        """Return when it is set, or when the time is over."""
        until = None if timeout is None or not self._has_timeouts else self._scheduler.now + timeout
        if not self.is_set():
            self._scheduler.pause(self.is_set, until, is_idle=not self._has_timeouts)
        return self.is_set()


class SimulatedLock:
    """A re-entrant lock that strands wait for in virtual time."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._owner: int | None = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock, when it is free."""
        me = threading.get_ident()
        if self._owner not in {None, me}:
            if not blocking:
                return False
            self._scheduler.pause(lambda: self._owner is None)
        self._owner = me
        self._depth += 1
        return True

    def release(self) -> None:
        """Release it."""
        self._depth -= 1
        if not self._depth:
            self._owner = None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
