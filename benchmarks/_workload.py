"""What a workload is, and the registry of all of them.

A module of this package whose name has no underscore in front holds workloads; the runner finds it by itself. A
workload has *sides*: functions that do the same work in different ways. The first one is what is measured, the others
are what it is compared with. A side prepares what it needs, measures, and returns one figure in the workload's unit:

    hello = workload("hello", "say hello", Unit.MICROSECONDS, needs_broker=False)

    @hello.side("kjms")
    def _(stage: Stage) -> float:
        return per_call(lambda: encode(message), stage.count)

    @hello.side("raw")
    def _(stage: Stage) -> float:
        return per_call(by_hand, stage.count)
"""

from __future__ import annotations

import enum
import gc
import importlib
import pkgutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import benchmarks

if TYPE_CHECKING:
    from benchmarks._stage import Stage

__all__ = ["Clock", "Side", "Unit", "Workload", "load_workloads", "per_call", "workload"]

SideFunction = Callable[["Stage"], float]


class Unit(enum.Enum):
    """What a figure counts, and whether more of it is better."""

    MESSAGES_PER_SECOND = ("messages/s", True)
    MILLISECONDS = ("ms", False)
    MICROSECONDS = ("µs", False)
    MEGABYTES = ("MB", False)

    def __init__(self, text: str, is_more_better: bool) -> None:
        self.text = text
        self.is_more_better = is_more_better


@dataclass(frozen=True)
class Side:
    """One way of doing a workload's work.

    Args:
        name: What tables call it.
        run: Does the work and returns the figure.
        is_baseline: Whether it may be the baseline, which is the fastest of those that may. A side that differs in more
            than the code, such as in its settings, is there to be looked at only.
    """

    name: str
    run: SideFunction
    is_baseline: bool


@dataclass
class Workload:
    """Some work, and the ways of doing it that are compared.

    Args:
        name: What the command line and JSON call it.
        title: What tables call it.
        unit: What its figures count.
        share: Its messages as a share of those that the command line names: slow work needs fewer of them.
        needs_broker: Whether a Kafka has to run.
    """

    name: str
    title: str
    unit: Unit
    share: float = 1.0
    needs_broker: bool = True
    sides: list[Side] = field(default_factory=list)

    def side(self, name: str, *, is_baseline: bool = True) -> Callable[[SideFunction], SideFunction]:
        """Return a decorator that makes a function a side of this workload; the first is what is measured."""

        def add(function: SideFunction) -> SideFunction:
            self.sides.append(Side(name, function, is_baseline))
            return function

        return add


_registry: dict[str, Workload] = {}


def workload(name: str, title: str, unit: Unit, *, share: float = 1.0, needs_broker: bool = True) -> Workload:
    """Return a new workload that the runner knows.

    Raises:
        ValueError: There is one of that name already.
    """
    if name in _registry:
        raise ValueError(f"there are two workloads called {name!r}")
    made = _registry[name] = Workload(name, title, unit, share, needs_broker)
    return made


def load_workloads() -> dict[str, Workload]:
    """Import every module that holds workloads, and return them all by name."""
    for module in pkgutil.iter_modules(benchmarks.__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"benchmarks.{module.name}")
    return dict(_registry)


class Clock:
    """Measures the seconds of a ``with`` block; what was prepared before costs the garbage collector nothing in it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._started = 0.0

    def __enter__(self) -> Clock:
        gc.collect()
        gc.freeze()
        self._started = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._started
        gc.unfreeze()


def per_call(function: Callable[[], object], calls: int) -> float:
    """Return the microseconds that one call of *function* takes, over *calls* of them."""
    with Clock() as clock:
        for _ in range(calls):
            function()
    return clock.seconds / calls * 1e6
