"""What a workload is, and the registry of all of them.

A workload has *sides*: ways of doing the same work. The first one is what is measured, the others are what it is
compared with. A side prepares what it needs, measures, and returns one figure in the workload's unit:

    hello = workload("hello", "say hello", Unit.MICROSECONDS, needs_broker=False)

    @hello.side("kjms")
    def _(stage: Stage) -> float:
        return per_call(lambda: encode(message), stage.count)

    @hello.side("raw")
    def _(stage: Stage) -> float:
        return per_call(by_hand, stage.count)

In a workload that *grows* the sides are sizes of the same work, and each is compared with the smallest, the first one.
"""

from __future__ import annotations

import enum
import gc
import importlib
import pkgutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kjms.bench._stage import Stage

__all__ = [
    "Aim",
    "Clock",
    "Part",
    "Side",
    "Unit",
    "Workload",
    "at_once",
    "load_workloads",
    "per_call",
    "workload",
]

SideFunction = Callable[["Stage"], float]
PartFunction = Callable[["Stage"], Sequence[float]]
MAIN: Final = "main"  # the set of workloads that are run where nothing else is said


class Unit(enum.Enum):
    """What a figure counts, and whether more of it is better."""

    MESSAGES_PER_SECOND = ("messages/s", True)
    MILLISECONDS = ("ms", False)
    MICROSECONDS = ("µs", False)
    MEGABYTES = ("MB", False)
    EVEN_SHARES = ("shares", True)
    PERCENT = ("% of a processor", False)
    THREADS = ("threads", False)

    def __init__(self, text: str, is_more_better: bool) -> None:
        self.text = text
        self.is_more_better = is_more_better


@dataclass(frozen=True)
class Aim:
    """What a workload is to reach: at least that where more is better, at most that where less is.

    Args:
        bound: The number.
        is_ratio: Whether it is of the ratio to the baseline (in a workload that grows: of each ratio to the smallest
            size), or of the figure itself.
    """

    bound: float
    is_ratio: bool = True


@dataclass(frozen=True)
class Side:
    """One way of doing a workload's work.

    Args:
        name: What tables call it.
        is_baseline: Whether it may be the baseline, which is the best of those that may. A side that differs in more
            than the code, such as in its settings, is there to be looked at only.
        family: In a workload that grows: sides of one family are compared with each other.
    """

    name: str
    is_baseline: bool = True
    family: str = "kjms"


@dataclass(frozen=True)
class Part:
    """What is run at once: as a rule one side, or several that one piece of work has figures for."""

    sides: tuple[Side, ...]
    run: PartFunction


@dataclass
class Workload:
    """Some work, and the ways of doing it that are compared.

    Args:
        name: What the command line and JSON call it.
        title: What tables call it.
        unit: What its figures count.
        share: Its messages as a share of those that the command line names: slow work needs fewer of them.
        needs_broker: Whether a Kafka has to run.
        aims: What it is to reach.
        set: The set that it belongs to, which has a table of its own.
        grows: Whether its sides are sizes of the same work.
        rounds: How many rounds it takes at most; 0 is no limit.
        has_warm_up: Whether a round goes before that does not count. Sides that warm up by themselves need none.
        missing: Why it cannot be run here; empty where it can.
        versions: Returns the versions of what takes part in it and in no other set, by name.
    """

    name: str
    title: str
    unit: Unit
    share: float = 1.0
    needs_broker: bool = True
    aims: tuple[Aim, ...] = ()
    set: str = MAIN
    grows: bool = False
    rounds: int = 0
    has_warm_up: bool = True
    missing: str = ""
    versions: Callable[[], Mapping[str, str]] = dict
    parts: list[Part] = field(default_factory=list)

    @property
    def sides(self) -> list[Side]:
        """All sides, in order."""
        return [side for part in self.parts for side in part.sides]

    def side(
        self, name: str, *, is_baseline: bool = True, family: str = "kjms"
    ) -> Callable[[SideFunction], SideFunction]:
        """Return a decorator that makes a function a side of this workload; the first is what is measured."""

        def add(function: SideFunction) -> SideFunction:
            self.parts.append(Part((Side(name, is_baseline, family),), lambda stage: (function(stage),)))
            return function

        return add

    def together(self, *sides: str | Side) -> Callable[[PartFunction], PartFunction]:
        """Return a decorator for a function that returns the figures of several *sides*, or of sides of these names."""

        def add(function: PartFunction) -> PartFunction:
            made = tuple(each if isinstance(each, Side) else Side(each) for each in sides)
            self.parts.append(Part(made, function))
            return function

        return add


_registry: dict[str, Workload] = {}


def workload(
    name: str,
    title: str,
    unit: Unit,
    *,
    share: float = 1.0,
    needs_broker: bool = True,
    aim: Aim | Sequence[Aim] = (),
    set: str = MAIN,
    grows: bool = False,
    rounds: int = 0,
    has_warm_up: bool = True,
    missing: str = "",
    versions: Callable[[], Mapping[str, str]] = dict,
) -> Workload:
    """Return a new workload that the runner knows; arguments as of `Workload`.

    Raises:
        ValueError: There is one of that name already.
    """
    if name in _registry:
        raise ValueError(f"there are two workloads called {name!r}")
    aims = (aim,) if isinstance(aim, Aim) else tuple(aim)
    _registry[name] = made = Workload(
        name, title, unit, share, needs_broker, aims, set, grows, rounds, has_warm_up, missing, versions
    )
    return made


def load_workloads(*packages: ModuleType) -> dict[str, Workload]:
    """Import every module of *packages* that holds workloads, and return all that are known by name."""
    for package in packages:
        for module in pkgutil.iter_modules(package.__path__):
            if not module.name.startswith("_"):
                importlib.import_module(f"{package.__name__}.{module.name}")
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


def at_once(functions: Iterable[Callable[[], object]]) -> None:
    """Call all *functions*, each in a thread of its own, and return when all have returned.

    Raises:
        Exception: What the first of them raised that failed.
    """
    failures: list[BaseException] = []

    def call(function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException as failure:  # told by the thread that waits
            failures.append(failure)

    threads = [threading.Thread(target=call, args=(function,), daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
