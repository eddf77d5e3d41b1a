"""Run plans by seed, each in a child process with the same memory, and make failing plans smaller.

It runs in the simulated world: `world.install` comes before its import.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import re
import select
import signal
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from tests.history.history import Disturbance
from tests.simulation import plans, threads
from tests.simulation.programs import Run
from tests.simulation.scheduler import Scheduler
from tests.simulation.views import judged

LIMIT_SECONDS: Final = 300.0  # real time; a run takes 0.2 s, and this ends one that loops without a switch point
MOST_LINES: Final = 200


@dataclass
class Result:
    """What came of a run.

    Args:
        seed: Its schedule.
        name: The promise that was broken; empty: none was.
        failure: What happened, for people.
        digest: A number that two runs share only if their schedules were the same.
        seconds: How long it took in virtual time.
        real_seconds: And in real time.
        steps: Its switch points.
        switches: How often another thread ran.
        policy: How it was scheduled.
        messages: How many were sent.
        lines: The history of what is broken, what was logged, and where threads were.
    """

    seed: int
    name: str = ""
    failure: str = ""
    digest: int = 0
    seconds: float = 0.0
    real_seconds: float = 0.0
    steps: int = 0
    switches: int = 0
    policy: str = ""
    messages: int = 0
    lines: list[str] = field(default_factory=list)


class _Log(logging.Handler):
    """Keeps what is logged, with virtual time."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info and record.exc_info[0] is not None:
            text += "\n" + "".join(traceback.format_exception(*record.exc_info))
        self.lines.append(f"{threads.sched.now:10.4f} {record.levelname} {record.name}: {text}")


def simulated(plan: plans.Plan, seed: int, *, is_long: bool = False) -> Result:
    """Run *plan* with the schedule *seed* in this process, once: what it leaves is not taken away."""
    gc.disable()  # a collection would run finalizers at another moment each time
    log = _Log()
    logger = logging.getLogger("kjms")
    logger.addHandler(log)
    logger.propagate = False
    begin = time.perf_counter()
    scheduler = Scheduler(seed)
    main = threads.enter(scheduler)
    run = Run(plan)
    scheduler.run(run.main, main)
    result = Result(
        seed,
        digest=scheduler.digest,
        seconds=scheduler.now,
        steps=scheduler.steps,
        switches=scheduler.switches,
        policy=repr(scheduler.policy),
        messages=len(run.history.sent),
    )
    run.history.disturbances += [Disturbance(*each, "a thread stands still") for each in scheduler.frozen]
    found = judged(run.history)
    died = scheduler.errors()
    about: tuple[str, ...] = ()
    if died:
        result.name, result.failure = "a thread died", died[0]
    elif found:
        result.name, result.failure, about = found[0].name, found[0].text, found[0].messages
    if scheduler.failure is not None and not result.name:
        result.name, result.failure = str(scheduler.failure).partition(":")[0], str(scheduler.failure)
    if result.failure or is_long:
        result.lines = [
            *(f"{each.name}: {each.text}" for each in found[:20]),
            *(run.history.lines() if is_long or not about else run.history.lines({*about})[-MOST_LINES:]),
            *log.lines[-MOST_LINES:],
            scheduler.stacks() if scheduler.failure is not None else "",
        ]
    result.real_seconds = time.perf_counter() - begin
    return result


def forked(plan: plans.Plan, seed: int, *, is_long: bool = False) -> Result:
    """Run *plan* with the schedule *seed* in a child process, so that each run begins with the same memory."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            result = asdict(simulated(plan, seed, is_long=is_long))
        except BaseException:  # the parent reports whatever it was
            result = {"seed": seed, "name": "the simulation failed", "failure": traceback.format_exc()}
        with os.fdopen(writing, "w") as file:
            json.dump(result, file)
        os._exit(0)
    os.close(writing)
    answer = b"".join(_read(reading, pid))
    os.close(reading)
    os.waitpid(pid, 0)
    if not answer:
        text = f"no answer within {LIMIT_SECONDS:.0f} s: a loop without a switch point, or the process ended"
        return Result(seed, "the simulation failed", text)
    return Result(**json.loads(answer))


def _read(reading: int, pid: int) -> Iterator[bytes]:
    until = time.monotonic() + LIMIT_SECONDS
    while select.select([reading], [], [], max(until - time.monotonic(), 0))[0]:
        chunk = os.read(reading, 1 << 20)
        if not chunk:
            return
        yield chunk
    os.kill(pid, signal.SIGKILL)


def kind_of(result: Result) -> str:
    """Return what the failures of one kind share: names and numbers are left out."""
    last = result.failure.strip().splitlines()[-1:] or [""]
    return f"{result.name}: " + re.sub(r"\bp\d[\w.>]*|[\d.]+", "#", last[0])[:140]


def shortened(plan: plans.Plan, seed: int, *, tries: int, seconds: float) -> Iterator[tuple[plans.Plan, int]]:
    """Return smaller and smaller plans that fail in the same way, each with a schedule.

    Args:
        plan: A plan that fails.
        seed: The schedule with which it does.
        tries: How many schedules are tried for each smaller plan.
        seconds: When to stop.
    """
    until = time.monotonic() + seconds
    name = forked(plan, seed).name
    has_shrunk = bool(name)
    while has_shrunk:
        has_shrunk = False
        for smaller in plans.smaller(plan):
            for other in [seed, *range(seed + 1, seed + tries)]:
                if time.monotonic() > until:
                    return
                if forked(smaller, other).name == name:
                    plan, seed, has_shrunk = smaller, other, True
                    break
            if has_shrunk:
                yield plan, seed
                break


def plan_of(path: str) -> Any:
    """Return the plan in the file *path*."""
    with open(path, encoding="utf-8") as file:
        return json.load(file)
