"""The plan of a batch that is consumed: its messages, kept beside Spark's checkpoint before they are processed.

A batch that is run again, after its driver was killed, is one of the same messages. The plan is written before the
function sees the batch, and its outcome after the function has returned and before anything is settled. So what is
known of a batch decides what a restart does: nothing (it is a new one), the plan (run the function again), or the plan
and the outcome (settle what is left).
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from kjms.errors import JMSException, shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kjms.engine import Delivery

__all__ = ["Kept", "Place", "Plan", "PlanStore", "Processed", "Run", "place_of", "runs_below"]

VERSION: Final = 1
FOLDER: Final = "kjms"
PLAN: Final = ".plan"
OUTCOME: Final = ".outcome"
SOURCE: Final = "source"

Place: TypeAlias = "tuple[str, int, int]"
"""The Kafka topic, partition and offset where a message was sent."""


class Run(NamedTuple):
    """Messages with consecutive offsets.

    Attributes:
        topic: The Kafka topic.
        number: Its partition.
        first: The offset of the first one.
        past: The offset after the last one.
        deliveries: How often each was delivered before.
    """

    topic: str
    number: int
    first: int
    past: int
    deliveries: int


def place_of(delivery: Delivery) -> Place:
    """Return where the message of *delivery* was sent, wherever it was moved since."""
    record = delivery.record
    return str(record.topic()), int(record.partition() or 0), int(record.offset() or 0)


@dataclass(frozen=True)
class Plan:
    """The messages of a batch.

    Attributes:
        runs: Where the executors read them, with all their deliveries.
        sent: Where they were sent, with the deliveries that count towards the maximum.
    """

    runs: Sequence[Run]
    sent: Sequence[Run]

    @classmethod
    def of(cls, deliveries: Iterable[Delivery]) -> Plan:
        """Return the plan of *deliveries*."""
        read: list[tuple[str, int, int, int]] = []
        sent: list[tuple[str, int, int, int]] = []
        for delivery in deliveries:
            partition = delivery.partition
            read.append((partition.topic, partition.number, delivery.offset, delivery.count - 1))
            sent.append((*place_of(delivery), delivery.counted - 1))
        return cls(_runs(sorted(read)), _runs(sorted(sent)))

    @property
    def count(self) -> int:
        """How many messages are in it."""
        return sum(run.past - run.first for run in self.sent)

    def written(self) -> str:
        """Return the plan as text.

        >>> plan = Plan([Run("a", 0, 5, 9, 0)], [Run("a", 0, 5, 9, 0)])
        >>> Plan.read(plan.written()) == plan
        True
        """
        return json.dumps({"version": VERSION, "runs": self.runs, "sent": self.sent})

    @classmethod
    def read(cls, text: str) -> Plan:
        """Return what `written` returned as *text*.

        Raises:
            ValueError: It is no plan, or one of a later kjms.
        """
        held = json.loads(text)
        if held["version"] > VERSION:
            raise ValueError(f"version {held['version']}; this kjms reads versions up to {VERSION}")
        return cls([Run(*run) for run in held["runs"]], [Run(*run) for run in held["sent"]])


def _runs(places: Iterable[tuple[str, int, int, int]]) -> list[Run]:
    """Return the runs of *places*: topic, number, offset and deliveries, sorted.

    >>> _runs([("a", 0, 5, 0), ("a", 0, 6, 0), ("a", 0, 7, 1), ("a", 1, 8, 1)])[0]
    Run(topic='a', number=0, first=5, past=7, deliveries=0)
    """
    found: list[Run] = []
    key: tuple[str, int, int] | None = None
    first = past = 0
    for topic, number, offset, deliveries in places:
        if offset == past and key == (topic, number, deliveries):
            past += 1
            continue
        if key is not None:
            found.append(Run(key[0], key[1], first, past, key[2]))
        key, first, past = (topic, number, deliveries), offset, offset + 1
    if key is not None:
        found.append(Run(key[0], key[1], first, past, key[2]))
    return found


class Processed:
    """The messages of a batch that was processed, and are not known to be settled: they come again, and are settled.

    Args:
        plan: The batch.
        failed: The reasons of those that failed, by place.

    Attributes:
        left: How many did not come yet.

    >>> done = Processed(Plan([], [Run("a", 0, 5, 9, 0)]), {("a", 0, 6): "bad"})
    >>> done.outcome(("a", 0, 5), 0), done.outcome(("a", 0, 6), 0), done.outcome(("a", 0, 9), 0)
    ('', 'bad', None)
    """

    def __init__(self, plan: Plan, failed: Mapping[Place, str]) -> None:
        self.left = plan.count
        self._failed = dict(failed)
        self._by_partition: dict[tuple[str, int], tuple[list[int], list[Run]]] = {}
        for run in plan.sent:
            firsts, runs = self._by_partition.setdefault((run.topic, run.number), ([], []))
            firsts.append(run.first)
            runs.append(run)

    def outcome(self, place: Place, deliveries: int) -> str | None:
        """Return what became of the message at *place*: the reason why it failed, or ``""``; None: it is not in it.

        A message that failed and came back since is delivered again.

        Args:
            place: Where it was sent.
            deliveries: How often it was delivered, of what counts.
        """
        topic, number, offset = place
        firsts, runs = self._by_partition.get((topic, number), ([], []))
        at = bisect_right(firsts, offset) - 1
        if at < 0 or offset >= runs[at].past:
            return None
        reason = self._failed.get(place)
        if reason is not None and deliveries > runs[at].deliveries:
            return None
        self.left -= 1
        return reason or ""

    def holds_any(self, runs: Iterable[tuple[str, int, int, int]]) -> bool:
        """Return whether a message of the batch is in one of *runs*: topic, partition, first offset, and one past."""
        return any(
            run.first < past and first < run.past
            for topic, number, first, past in runs
            for run in self._by_partition.get((topic, number), ([], []))[1]
        )


@dataclass
class Kept:
    """What is kept of a batch.

    Attributes:
        plan: Its messages.
        failed: The reasons of those that failed, by place; None: the function has not returned yet, as far as is known.
    """

    plan: Plan
    failed: dict[Place, str] | None = None


class PlanStore:
    """Keeps the plans of a query in the folder of its checkpoint, through Hadoop's file systems, as Spark does.

    Args:
        spark: The session.
        checkpoint: The folder of the checkpoint.
    """

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        self._jvm: Any = spark._jvm
        self._folder = self._jvm.org.apache.hadoop.fs.Path(checkpoint, FOLDER)
        self._files = self._folder.getFileSystem(spark._jsc.hadoopConfiguration())

    def claim(self, source: str) -> None:
        """Note what the query consumes.

        Raises:
            JMSException: The checkpoint is that of a query that consumes something else.
        """
        known = self._read(SOURCE)
        if known is None:
            self._write(SOURCE, source)
        elif known != source:
            raise JMSException(
                f"this checkpoint is of a query that consumes {known}, not {source}: batches of one cannot be run again"
                " with messages of the other; choose another checkpoint"
            )

    def write(self, batch: int, plan: Plan) -> None:
        """Keep the *plan* of a batch durably."""
        self._write(f"{batch}{PLAN}", plan.written())

    def finish(self, batch: int, failed: Mapping[Place, str]) -> None:
        """Note durably that a batch was processed, and which of its messages failed."""
        self._write(f"{batch}{OUTCOME}", json.dumps([[*place, reason] for place, reason in failed.items()]))

    def read(self, batch: int) -> Kept | None:
        """Return what is kept of a batch; None: nothing is.

        Raises:
            JMSException: It cannot be read.
        """
        text = self._read(f"{batch}{PLAN}")
        if text is None:
            return None
        outcome = self._read(f"{batch}{OUTCOME}")
        try:
            kept = Kept(Plan.read(text))
            if outcome is not None:
                kept.failed = {(topic, number, offset): why for topic, number, offset, why in json.loads(outcome)}
        except (ValueError, KeyError, TypeError) as error:
            raise JMSException(
                f"the plan of batch {batch} in {self._folder.toString()} cannot be read: {shown(str(error))}"
            ) from error
        return kept

    def batches(self) -> list[int]:
        """Return the batches of which plans are kept, oldest first."""
        if not self._files.exists(self._folder):
            return []
        names = (each.getPath().getName() for each in self._files.listStatus(self._folder))
        return sorted(int(name[: -len(PLAN)]) for name in names if name.endswith(PLAN) and name[0].isdigit())

    def forget(self, batch: int) -> None:
        """Delete what is kept of a batch."""
        for ending in (PLAN, OUTCOME):  # the plan first: an outcome alone says nothing
            self._files.delete(self._path(f"{batch}{ending}"), False)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._folder, name)

    def _write(self, name: str, text: str) -> None:
        """Write a file that is there as a whole, or not at all."""
        part, path = self._path(f".{name}.part"), self._path(name)
        with closing(self._files.create(part, True)) as stream:
            stream.write(bytearray(text.encode()))
            stream.hsync()
        self._files.delete(path, False)
        if not self._files.rename(part, path):
            raise JMSException(f"{path.toString()} cannot be written")

    def _read(self, name: str) -> str | None:
        path = self._path(name)
        if not self._files.exists(path):
            return None
        with closing(self._files.open(path)) as stream:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))


def runs_below(places: Iterable[tuple[str, int, int]], most: int) -> Iterator[bool]:
    """Say of each of *places*, sorted, whether it is in one of the first *most* runs.

    >>> list(runs_below([("a", 0, 1), ("a", 0, 2), ("a", 0, 5), ("a", 1, 6)], 2))
    [True, True, True, False]
    """
    count, past = 0, ("", 0, 0)
    for topic, number, offset in places:
        if (topic, number, offset) != past:
            count += 1
        past = topic, number, offset + 1
        yield count <= most
