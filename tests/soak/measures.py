"""Samples of what programs and the cluster hold, and whether they stay flat: pure but for taking one."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import psutil
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from kjms.mapping.names import REGISTRY

WARM_UP: Final = 1 / 3  # of the samples, which are not judged
FEWEST: Final = 12  # samples, without which nothing is judged
SPARE: Final = {"MB": 24.0, "threads": 12.0, "files": 24.0, "topics": 12.0, "groups": 2.0, "registry entries": 4.0}
"""By how much each may grow after the warm-up, over the whole run: ups and downs that do not grow with time.

Topics beside a destination are made when they are first needed: some of them late, and once.
"""
SECONDS: Final = 5.0  # for an answer; a broker may be away


@dataclass
class Series:
    """Samples of one measure of one thing, such as the memory of a program: seconds since the begin, and values."""

    what: str
    of: str
    is_judged: bool = True
    times: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, time: float, value: float) -> None:
        """Add a sample."""
        self.times.append(time)
        self.values.append(value)

    def growth(self) -> float | None:
        """Return by how much it grew after the warm-up: the slope that half of all pairs exceed, times the span.

        >>> Series("MB", "a", times=list(range(30)), values=[5.0 + 0.5 * each for each in range(30)]).growth()
        9.5
        """
        first = int(len(self.values) * WARM_UP)
        samples = list(zip(self.times[first:], self.values[first:], strict=True))
        if len(samples) < FEWEST:
            return None
        slopes = [(late - early) / (then - now) for (now, early), (then, late) in itertools.combinations(samples, 2)]
        return statistics.median(slopes) * (samples[-1][0] - samples[0][0])

    def problem(self) -> str | None:
        """Return what is wrong with it; None: it is flat, or not judged."""
        growth = self.growth()
        if not self.is_judged or growth is None or growth <= SPARE[self.what]:
            return None
        return f"{self.of}: {growth:.1f} {self.what} more, and {SPARE[self.what]:g} are normal"


class Samples:
    """All series of a run."""

    def __init__(self) -> None:
        self.series: dict[tuple[str, str], Series] = {}

    def add(self, what: str, of: str, time: float, value: float, *, is_judged: bool = True) -> None:
        """Add a sample to the series of *what* and *of*."""
        self.series.setdefault((what, of), Series(what, of, is_judged)).add(time, value)

    def add_process(self, of: str, process_id: int | None, time: float, *, is_judged: bool) -> None:
        """Add what a process holds; one that has just ended has no sample."""
        for what, value in held(process_id).items():
            self.add(what, of, time, value, is_judged=is_judged)

    def problems(self) -> list[str]:
        """Return what is not flat."""
        return [problem for each in self.series.values() if (problem := each.problem()) is not None]

    def latest(self, of: str) -> str:
        """Return the last sample of a program, as text."""
        found = [series for (_, name), series in self.series.items() if name == of and series.values]
        return ", ".join(f"{series.values[-1]:.0f} {series.what}" for series in found)


def held(process_id: int | None) -> Mapping[str, float]:
    """Return what a process holds; nothing if it is gone."""
    try:
        process = psutil.Process(process_id)
        return {
            "MB": process.memory_info().rss / 1_000_000,
            "threads": process.num_threads(),
            "files": process.num_fds(),
        }
    except psutil.Error:
        return {}


def cluster_figures(servers: str) -> Mapping[str, int]:
    """Return how many topics, groups, and entries of kjms's registry a cluster has."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    topics = admin.list_topics(timeout=SECONDS).topics
    groups = admin.list_consumer_groups(request_timeout=SECONDS).result().valid
    found = {"topics": len(topics), "groups": len(groups)}
    if REGISTRY in topics:
        found["registry entries"] = len(live_keys(servers, REGISTRY))
    return found


def live_keys(servers: str, topic: str) -> Sequence[Any]:
    """Return the keys of a compacted topic of one partition whose last record is no deletion."""
    place = TopicPartition(topic, 0)
    settings = {"bootstrap.servers": servers, "log_level": 0, "group.id": "soak-looks", "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    last: dict[Any, bool] = {}
    try:
        place.offset, end = consumer.get_watermark_offsets(place, SECONDS)
        consumer.assign([place])
        while place.offset < end:
            record = consumer.poll(SECONDS)
            if record is None or record.error() is not None:
                break
            last[record.key()] = record.value() is not None
    finally:
        consumer.close()
    return [key for key, is_live in last.items() if is_live]
