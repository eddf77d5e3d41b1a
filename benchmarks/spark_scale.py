"""Workloads that read with Spark from growing numbers of partitions and queues: a message should cost the same.

The figure that counts is the processor time of driver and executors together: more executors than the machine has cores
make nothing faster. Each size is an application of its own (`benchmarks._spark_reader`). Only the queues of one size
exist at a time: ten million messages take five gigabytes.
"""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from typing import Final, NamedTuple

from benchmarks._spark_reader import Job, spent
from kjms.bench._stage import Stage
from kjms.bench._workload import Aim, Side, Unit, Workload, workload

FLAT: Final = Aim(1.2)  # within 20 %
FAMILIES: Final = ("kjms", "by the clock")  # processor time of driver and executors; seconds that passed
HEADERS: Final = ({"region": b"EU"}, {"region": b"US"})  # of which the selector takes one
AT_ONCE: Final = 500_000  # messages between two waits for Kafka
TOPICS_AT_ONCE: Final = 250  # a producer that writes to more of them is slow to learn of each new one
WARM_UP: Final = 200_000  # messages that are read before
MISSING: Final = "" if find_spec("pyspark") else "pyspark is not installed"


class Layout(NamedTuple):
    """Where the messages are."""

    queues: int = 1
    partitions: int = 1
    """Of each queue."""
    is_skewed: bool = False
    """Whether half of the messages are in one partition."""


def _scaling(name: str, title: str) -> Workload:
    return workload(
        f"spark-{name}",
        f"Spark: {title}, processor time of driver and executors for a message",
        Unit.MICROSECONDS,
        share=200,
        aim=FLAT,
        set="spark-scale",
        grows=True,
        rounds=1,
        has_warm_up=False,
        missing=MISSING,
    )


def _size(work: Workload, name: str, layout: Layout, *, executors: int = 2, does: str = "read") -> None:
    """Make one size of *work*, with a figure in each of two families."""

    @work.together(*(Side(f"{family}, {name}", family=family) for family in FAMILIES))
    def _(stage: Stage) -> list[float]:
        pattern, warm_up = _filled(stage, layout)
        took = spent(Job(stage.bootstrap_servers, does, executors, pattern, warm_up))
        expected = stage.count if does == "archive" else stage.count // 2
        if took.messages < expected:
            raise RuntimeError(f"{name}: {took.messages} messages of {expected}")
        each = 1e6 / stage.count
        print(
            f"{work.name}, {name}: driver {took.driver * each:.2f} µs, executors {took.executors * each:.2f} µs,"
            f" by the clock {took.elapsed:.1f} s",
            file=sys.stderr,
        )
        return [(took.driver + took.executors) * each, took.elapsed * each]


def _filled(stage: Stage, layout: Layout) -> tuple[str, str]:
    """Return patterns of the queues of *layout*, which hold the messages, and of one that is there to warm up."""
    warm_up = stage.kept("warm-up", lambda: _topics(stage, Layout(partitions=4), WARM_UP))[0]
    kept: dict[Layout, list[str]] = stage.kept("layouts", dict)
    if layout not in kept:
        for other in kept.values():
            stage.delete(other)
        kept.clear()
        kept[layout] = _topics(stage, layout, stage.count)
    names = kept[layout]
    pattern = re.escape(names[0]) if len(names) == 1 else f"(?!{re.escape(warm_up)}$){re.escape(stage.prefix)}-[0-9]+"
    return pattern, re.escape(warm_up)


def _topics(stage: Stage, layout: Layout, messages: int) -> list[str]:
    names = stage.topics(layout.queues, partitions=layout.partitions, is_kept=True)
    in_one = messages // 2 if layout.is_skewed else 0
    for first in range(0, layout.queues, TOPICS_AT_ONCE):
        some = names[first : first + TOPICS_AT_ONCE]
        for count, partitions in ((in_one, 1), (messages - in_one, layout.partitions)):
            mine = count * len(some) // layout.queues
            for done in range(0, mine, AT_ONCE):
                stage.fill(some, min(AT_ONCE, mine - done), partitions=partitions, headers=HEADERS)
    return names


partitions = _scaling("partitions", "2 executors read a queue of so many partitions")
for number in (1, 4, 16, 64):
    _size(partitions, f"{number} partition{'' if number == 1 else 's'}", Layout(partitions=number))
_size(partitions, "64 partitions, half of the messages in one", Layout(partitions=64, is_skewed=True))

executors = _scaling("executors", "so many executors read a queue of 64 partitions")
for number in (1, 2, 4):
    _size(executors, f"{number} executor{'' if number == 1 else 's'}", Layout(partitions=64), executors=number)

queues = _scaling("queues", "2 executors read so many queues by a pattern")
for number in (1, 100, 1_000, 10_000):
    _size(queues, f"{number:,} queue{'' if number == 1 else 's'}", Layout(queues=number))

archives = _scaling("archive", "2 executors archive a queue of so many partitions")
for number in (4, 64):
    _size(archives, f"{number} partitions", Layout(partitions=number), does="archive")
