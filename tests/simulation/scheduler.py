"""A scheduler of threads that a seed decides: one runs at a time, and every switch, wait and deadline is its choice.

A thread is a greenlet, and time is a number. `Scheduler.point` is called wherever another thread may run: at each
operation of a lock, an event or a queue (`threads`), and before statements of kjms (`world`). If no thread can run,
time jumps to the next deadline. A `Process` is a set of threads that can be paused and killed together.
"""

from __future__ import annotations

import heapq
import itertools
import random
import traceback
from asyncio import _get_running_loop, _set_running_loop
from collections.abc import Callable
from typing import Any, Final

from greenlet import getcurrent, greenlet

NEVER: Final = float("inf")
STEP: Final = 2e-6  # virtual seconds that a switch point takes
SPINS: Final = 3_000  # switch points without a wait, after which a thread that waits by looking gives way (PCT)
MASK: Final = (1 << 61) - 1


class Broken(Exception):
    """A run that cannot continue: a deadlock, a standstill, or a livelock."""


class Process:
    """Threads that are paused and killed together.

    Locks that belong to no process are those of the Kafka, which is another machine: a process that holds one ends or
    stops only when it has released it.
    """

    def __init__(self, name: str, scheduler: Scheduler) -> None:
        self.name = name
        self.held = 0  # locks of the Kafka
        self.ahead = 0.0  # seconds by which its clock is ahead of the Kafka's
        self.is_dead = self.is_paused = False
        self.main: Any = None  # its main thread; None: none of its threads is
        self.tasks: list[Task] = []
        self._scheduler = scheduler

    def kill(self) -> None:
        """Let none of its threads run again."""
        self._release_kafka()
        self.is_dead = True

    def pause(self) -> None:
        """Let none of its threads run until `resume`."""
        self._release_kafka()
        self.is_paused = True

    def resume(self) -> None:
        """Let its threads run again."""
        self.is_paused = False

    @property
    def is_able(self) -> bool:
        """Whether its threads may run."""
        return not self.is_dead and not self.is_paused

    def _release_kafka(self) -> None:
        while self.held:
            self._scheduler.switch()


class Task:
    """A thread, as the scheduler sees it."""

    __slots__ = (
        "deadline",
        "error",
        "greenlet",
        "id",
        "interrupt_at",
        "interrupt_in",
        "is_done",
        "is_ready",
        "joiners",
        "priority",
        "process",
        "spins",
        "thread",
        "token",
        "waits_for",
    )

    def __init__(self, number: int, process: Process | None, thread: Any, priority: float) -> None:
        self.id, self.process, self.thread, self.priority = number, process, thread, priority
        self.is_ready = self.is_done = False
        self.token = self.spins = 0  # token: how often it became ready, so that an old timer does not wake it
        self.waits_for = ""
        self.error: BaseException | None = None
        self.joiners: list[Task] = []
        self.deadline = self.interrupt_at = NEVER
        self.interrupt_in = 0  # statements until an interrupt; 0: none comes
        self.greenlet: Any = None

    @property
    def name(self) -> str:
        """Return the names of its process and thread."""
        return f"{self.process.name if self.process else '-'}/{self.thread.name}"

    @property
    def is_able(self) -> bool:
        """Whether its process lets it run."""
        return self.process is None or self.process.is_able


class Policy:
    """How a run is scheduled: by a random walk or by PCT (Burckhardt et al. 2010), with threads that stand still.

    All of it is drawn from the seed, so that the runs of many seeds differ in kind and not in detail alone.
    """

    def __init__(self, rng: random.Random) -> None:
        self.is_pct = rng.random() < 0.4
        self.switch = rng.choice([0.01, 0.05, 0.2, 0.5])  # chance of a switch at each point
        self.stall = rng.choice([0.0, 0.0, 1e-4, 1e-3])  # chance of a pause of the running thread
        self.stalls = rng.choice([(0.0005,), (0.001, 0.03), (0.001, 0.02, 0.3), (0.01, 0.3, 4.5)])  # seconds
        self.gap = rng.choice([0, 0, 100, 1_000, 10_000])  # statements between switches, on average; 0: none
        changes, span = rng.choice([1, 2, 3, 5, 10, 30]), rng.choice([3_000, 20_000, 100_000])
        # Threads of kjms that a busy machine does not run for seconds: from which step on, and for how long.
        frozen = rng.choice([0, 0, 1, 2, 4])
        self.frozen = sorted(((rng.randrange(6_000), rng.choice([0.5, 2.5, 4.5])) for _ in range(frozen)), reverse=True)
        self._many_frozen = frozen
        self.frozen_name = rng.choice(["kjms-consumer", "kjms-consumer", "kjms-"])
        self._many_changes = changes
        self.changes = sorted((rng.randrange(span) for _ in range(changes)), reverse=True)

    def __repr__(self) -> str:
        way = f"pct({self._many_changes})" if self.is_pct else f"walk({self.switch})"
        return f"{way} stall={self.stall}x{self.stalls} frozen={self._many_frozen} gap={self.gap}"


class Scheduler:
    """Run threads one at a time, as a seed says.

    Args:
        seed: Decides everything.
        horizon: Virtual seconds after which a run that has not ended is broken.
        most_steps: Switch points after which it is.
    """

    def __init__(self, seed: int, horizon: float = 600.0, most_steps: int = 1_500_000) -> None:
        self.rng = random.Random(f"schedule {seed}")
        self.chance = random.Random(f"chance {seed}")  # the random numbers of kjms
        self.policy = Policy(self.rng)
        self.now = 0.0
        self.steps = self.switches = self.digest = 0
        self.frozen: list[
            tuple[float, float, str]
        ] = []  # when threads of kjms stood still for seconds, and of which process
        self.current: Task | None = None
        self.failure: BaseException | None = None
        self.tasks: list[Task] = []
        self._ready: list[Task] = []
        self._timers: list[tuple[float, int, Task, int]] = []
        self._horizon, self._most_steps = horizon, most_steps
        self._hub = getcurrent()
        self._numbers, self._order = itertools.count(1), itertools.count()
        self._is_dirty = False  # PCT: whether another thread may have become the one with the highest priority
        self._until_switch = self._drawn(self.policy.switch)
        self._until_stall = self._drawn(self.policy.stall)
        self._until_statement = self.policy.gap or 1 << 60

    @property
    def frozen_until(self) -> float:
        """Until when a thread of kjms stood or stands still."""
        return max((end for _, end, _ in self.frozen), default=0.0)

    # Threads.

    def spawn(self, run: Callable[[], object], thread: Any, process: Process | None) -> Task:
        """Have *run* called as the thread *thread* of *process*."""
        task = Task(next(self._numbers), process, thread, self.rng.random() + 1.0)
        self.tasks.append(task)
        if process is not None:
            process.tasks.append(task)

        def body() -> None:
            _set_running_loop(None)
            try:
                run()
            except BaseException as error:  # a thread may die of anything, and the run reports it
                task.error = error
            task.is_done = True
            for joiner in task.joiners:
                self.wake(joiner)
            self._ready.remove(task)

        task.greenlet = greenlet(body, self._hub)
        self._add(task)
        return task

    def _add(self, task: Task) -> None:
        task.is_ready = True
        task.token += 1
        self._ready.append(task)
        self._is_dirty = True

    def wake(self, task: Task) -> None:
        """Let *task* run again, before its deadline."""
        if not task.is_ready and not task.is_done:
            task.deadline = NEVER
            self._add(task)

    # Where threads give way.

    def _drawn(self, chance: float) -> int:
        """Return after how many points something of that *chance* comes next."""
        return 1 + int(self.rng.expovariate(chance)) if chance else 1 << 60

    def point(self) -> None:
        """Be a place where another thread may run."""
        me = self.current
        if me is None or me.greenlet is not getcurrent():
            return
        self.steps += 1
        self.now += STEP
        if self._timers and self._timers[0][0] <= self.now:
            self._fire()
        if not self._stands_still(me):
            self._give_way(me)
        if self.failure is not None:
            self._hub.switch()

    def _stands_still(self, me: Task) -> bool:
        """Have *me* stand still for a while, if the policy says so."""
        policy = self.policy
        self._until_stall -= 1
        if self._until_stall <= 0:
            self._until_stall = self._drawn(policy.stall)
            self.block(self.now + self.rng.choice(policy.stalls) * self.rng.random(), "stall")
            return True
        if policy.frozen and self.steps >= policy.frozen[-1][0] and me.thread.name.startswith(policy.frozen_name):
            until = self.now + policy.frozen.pop()[1]
            self.frozen.append((self.now, until, me.process.name if me.process else ""))
            self.block(until, "stall")
            return True
        return False

    def _give_way(self, me: Task) -> None:
        policy = self.policy
        if not policy.is_pct:
            self._until_switch -= 1
            if self._until_switch <= 0:
                self._until_switch = self._drawn(policy.switch)
                self.switch()
            return
        me.spins += 1
        if policy.changes and self.steps >= policy.changes[-1]:
            me.priority = len(policy.changes) / 100
            policy.changes.pop()
            self._is_dirty = True
        elif me.spins > SPINS:
            me.spins, me.priority = 0, me.priority / 2
            self._is_dirty = True
        if self._is_dirty:
            self.switch()

    def interrupt(self, statements: int = 0, seconds: float = NEVER) -> None:
        """Interrupt the running thread, as Ctrl-C does, before a statement of kjms, or where it waits.

        Args:
            statements: So many statements from now; 0: before none.
            seconds: So many seconds from now, if it waits then.
        """
        me = self.current
        assert me is not None
        me.interrupt_in, me.interrupt_at = statements, self.now + seconds

    def statement(self) -> None:
        """Be called before a statement; another thread may run there, in runs that switch between statements.

        Raises:
            KeyboardInterrupt: `interrupt` asked for it.
        """
        me = self.current
        if me is not None and me.interrupt_in and me.greenlet is getcurrent():
            me.interrupt_in -= 1
            if not me.interrupt_in:
                me.interrupt_at = NEVER
                raise KeyboardInterrupt
        self._until_statement -= 1
        if self._until_statement < 0:
            self._until_statement = self._drawn(1 / self.policy.gap) if self.policy.gap else 1 << 60
            me = self.current
            if me is not None and me.greenlet is getcurrent():
                if self.policy.is_pct:
                    me.priority = self.rng.random() / 10
                self.switch()

    def switch(self) -> None:
        """Let the chosen thread run; it may be this one."""
        self.steps += 1
        self.now += STEP
        self._go()

    def block(self, deadline: float = NEVER, waits_for: str = "") -> bool:
        """Wait until `wake`; return whether that came before *deadline*.

        Raises:
            KeyboardInterrupt: `interrupt` asked for it.
        """
        me = self.current
        assert me is not None
        asked = deadline
        if me.interrupt_at < deadline and waits_for != "stall":  # an operation of a lock does not end by halves
            deadline = max(me.interrupt_at, self.now)
        me.waits_for, me.deadline, me.spins = waits_for, deadline, 0
        self._ready.remove(me)
        me.is_ready = False
        if deadline < NEVER:
            heapq.heappush(self._timers, (deadline, next(self._order), me, me.token))
        self._go()
        me.waits_for = ""
        if me.deadline != NEVER and me.deadline < asked:
            me.interrupt_in, me.interrupt_at = 0, NEVER
            raise KeyboardInterrupt
        return me.deadline == NEVER

    # The choice.

    def _fire(self) -> None:
        """Let threads run whose deadlines have come."""
        while self._timers and self._timers[0][0] <= self.now:
            _, _, task, token = heapq.heappop(self._timers)
            if token == task.token and not task.is_ready and not task.is_done:
                self._add(task)  # it keeps its deadline, which says that it was not woken

    def _next(self) -> Task | None:
        """Return the thread that runs next; None: the run is broken, and `failure` says how."""
        self._is_dirty = False
        while True:
            able = [task for task in self._ready if task.is_able]
            if able:
                if self.policy.is_pct:
                    return max(able, key=lambda task: task.priority)
                return able[int(self.rng.random() * len(able))]
            while self._timers and (self._timers[0][3] != self._timers[0][2].token or self._timers[0][2].is_ready):
                heapq.heappop(self._timers)
            if not self._timers:
                self._fail("deadlock: no thread can run, and none waits for a time")
                return None
            self.now = max(self.now, self._timers[0][0])
            self._fire()
            if self.now > self._horizon:
                self._fail(f"standstill: the run has not ended within {self._horizon:.0f} virtual seconds")
                return None

    def _fail(self, text: str) -> None:
        self.failure = self.failure or Broken(text)

    def _go(self) -> None:
        if self.steps > self._most_steps:
            self._fail(f"livelock: the run has not ended within {self._most_steps:,} switch points")
        chosen = None if self.failure is not None else self._next()
        if chosen is None:
            self._hub.switch()  # it does not come back
            return
        if chosen is not self.current:
            self.switches += 1
            self.digest = (self.digest * 1_000_003 + chosen.id * 31 + self.steps) & MASK
            self.current = chosen
            loop = _get_running_loop()  # of asyncio, which takes all greenlets for one thread
            chosen.greenlet.switch()
            _set_running_loop(loop)

    def run(self, main: Callable[[], object], thread: Any) -> None:
        """Run *main* as the thread *thread* until it ends, or until the run is broken."""
        task = self.spawn(main, thread, None)
        thread._task = task
        while not task.is_done and self.failure is None:
            chosen = self._next()
            if chosen is None:
                break
            self.current = chosen
            chosen.greenlet.switch()
        self.current = None

    # What a report says.

    def errors(self) -> list[str]:
        """Return what threads died of, each with its traceback."""
        return [
            f"thread {task.name} died: {''.join(traceback.format_exception(task.error))}"
            for task in self.tasks
            if task.error is not None
        ]

    def stacks(self, most: int = 14) -> str:
        """Return where each thread is that has not ended."""
        lines = []
        for task in self.tasks:
            frame = task.greenlet.gr_frame
            if task.is_done or frame is None or (task.process is not None and task.process.is_dead):
                continue
            state = "ready" if task.is_ready else f"waits for {task.waits_for} until {task.deadline:.3f}"
            lines.append(f"--- {task.name}: {state}")
            frames = [each for each in traceback.extract_stack(frame) if "/simulation/" not in each.filename]
            lines += [f"    {each.filename}:{each.lineno} {each.name}: {each.line}" for each in frames[-most:]]
        return "\n".join(lines)
