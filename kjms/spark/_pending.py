"""What of queues is not settled yet, as records of Spark's Kafka source: what a queue browser shows, as a frame.

The driver asks Kafka where the queues' groups stand. Spark then reads from the first unsettled offset of each partition
to its end, and joins the runs of unsettled offsets, cut into pieces so that the join looks at few for each record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kjms.client.engine_access import engine_of, options_of
from kjms.mapping.names import queue_group
from kjms.mapping.relocated import RELOCATED
from kjms.spark._cluster import connected
from kjms.spark._sql import quoted
from kjms.spark._tables import table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from kjms import ConnectionFactory
    from kjms.destinations import Destination
    from kjms.engine import GroupProgress

__all__ = ["DELIVERIES", "PLACE", "as_sent", "cut", "pending_records"]

DELIVERIES: Final = "__kjms_deliveries"
"""How often the message was delivered."""

PLACE: Final = ("topic", "partition", "offset")
"""The columns that say where a record stands."""

_TOLD: Final = "__kjms_told"
_PIECES: Final = 10_000  # into which the runs are cut, about: each is a row of a table that all executors get
_SMALLEST: Final = 64  # offsets of a piece
_HEADER: Final = r"^1(;[0-9]{1,18}){5};(?s).+"


@dataclass(frozen=True)
class _Part:
    """A partition that has unsettled messages, and from where to where it is read."""

    standing: GroupProgress
    first: int

    def runs(self) -> Iterator[tuple[int, int]]:
        """Return the runs of unsettled offsets; what follows all that is known is one of them."""
        state, end = self.standing.state, self.standing.end
        for first, past in (*state.runs, (state.known, end)):
            if max(first, self.first) < min(past, end):
                yield max(first, self.first), min(past, end)


def pending_records(
    spark: SparkSession,
    factory: ConnectionFactory,
    queues: Mapping[str, Destination],
    options: Mapping[str, str],
    user: str | None,
    password: str | None,
    group: str | None = None,
) -> DataFrame:
    """Return the records of the messages that *queues* hold, with the column `DELIVERIES`.

    A message that was relocated, here or to another process, counts as it did where it was sent.

    Args:
        spark: The session.
        factory: Says which cluster.
        queues: By their Kafka topics.
        options: Those of Spark's Kafka source that say neither what is read nor from where to where.
        user: The name for SASL.
        password: The password for it.
        group: The consumer group of a subscription, where the only destination is its topic; None: they are queues.

    Raises:
        InvalidDestinationException: There is no such queue.
        JMSException: The broker does not answer, or a later kjms settled messages.
    """
    found: list[_Part] = []
    with connected(factory, user, password) as connection:
        engine = engine_of(connection)
        for topic, queue in queues.items():
            engine.topic_of(queue, options_of(factory))
            for standing, low in engine.progress(queue, topic, group or queue_group(topic)):
                found.append(_Part(standing, min(max(standing.state.committed_offset, low), standing.end)))
    own = [part for part in found if part.standing.topic in queues]
    moved = [part for part in found if part.standing.topic not in queues and part.first < part.standing.end]
    # What is settled meanwhile, and its space given back, is no loss.
    settings = {"failOnDataLoss": "false", **options}
    frame = _read(spark, settings, own)
    return frame.unionByName(as_sent(_read(spark, settings, moved), own)) if moved else frame


def _read(spark: SparkSession, options: Mapping[str, str], parts: Sequence[_Part]) -> DataFrame:
    """Return the unsettled records of *parts*."""
    from pyspark.sql import functions as f

    assigned: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for part in parts:
        topic, number = part.standing.topic, part.standing.number
        assigned.setdefault(topic, []).append(number)
        starts.setdefault(topic, {})[str(number)] = part.first
        ends.setdefault(topic, {})[str(number)] = part.standing.end
    wanted = {"assign": assigned, "startingOffsets": starts, "endingOffsets": ends}
    source = spark.read.format("kafka").options(**{name: json.dumps(each) for name, each in wanted.items()})
    unsettled = _within(source.options(**options).load(), parts)
    histories = [
        (part.standing.topic, part.standing.number, offset, history.deliveries)
        for part in parts
        for offset, history in part.standing.state.histories.items()
    ]
    if not histories:
        return unsettled.selectExpr("*", f"0 AS {DELIVERIES}")
    told = f.broadcast(table(spark, histories, f"topic STRING, partition INT, offset BIGINT, {DELIVERIES} INT"))
    return unsettled.join(told, list(PLACE), "left").fillna(0, DELIVERIES)


def _within(frame: DataFrame, parts: Sequence[_Part]) -> DataFrame:
    """Return those rows of *frame* that stand in a run of *parts*."""
    runs, fits = _runs(frame, parts)
    return frame.join(runs, fits, "left_semi")


def _runs(frame: DataFrame, parts: Sequence[_Part]) -> tuple[DataFrame, Column]:
    """Return a table of the runs of *parts*, and the condition that a row of *frame* stands in one of them."""
    from pyspark.sql import functions as f

    span = sum(part.standing.end - part.first for part in parts)
    size = max(_SMALLEST, -(-span // _PIECES))
    pieces = table(
        frame.sparkSession,
        (
            (part.standing.topic, part.standing.number, *piece)
            for part in parts
            for first, past in part.runs()
            for piece in cut(first, past, size)
        ),
        "t STRING, n INT, b BIGINT, first BIGINT, past BIGINT",
    )
    topic, number, offset = (f.col(name) for name in PLACE)
    is_near = (topic == f.col("t")) & (number == f.col("n")) & (f.expr(f"`offset` DIV {size}") == f.col("b"))
    return f.broadcast(pieces), is_near & (offset >= f.col("first")) & (offset < f.col("past"))


def cut(first: int, past: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Return the run from *first* to before *past* in pieces that each lie in one bucket of *size* offsets.

    >>> list(cut(5, 21, 10))
    [(0, 5, 10), (1, 10, 20), (2, 20, 21)]
    """
    for bucket in range(first // size, (past - 1) // size + 1):
        yield bucket, max(first, bucket * size), min(past, (bucket + 1) * size)


def as_sent(copies: DataFrame, own: Sequence[_Part]) -> DataFrame:
    """Return *copies*, of messages that were moved, as they stood where they were sent first; each once.

    One that was moved while the driver looked may be unsettled in both places.
    """
    from pyspark.sql import functions as f

    # As kjms.mapping.relocated writes it: 1;DELIVERIES;EXCUSED;DUE;PARTITION;OFFSET;TOPIC, and perhaps ;FAILED
    first = f"get(filter(headers, h -> h.key = '{RELOCATED}'), 0)"
    told = copies.selectExpr("*", f"try_validate_utf8(CAST({first}.value AS STRING)) AS {_TOLD}")
    is_told = f"{_TOLD} RLIKE {quoted(_HEADER)}"

    def part(number: int, otherwise: str, kind: str) -> str:
        return f"CASE WHEN {is_told} THEN CAST(split_part({_TOLD}, ';', {number}) AS {kind}) ELSE {otherwise} END"

    topic = f"CASE WHEN {is_told} THEN split_part({_TOLD}, ';', 7) ELSE topic END"
    origin = {"topic": topic, "partition": part(5, "partition", "INT"), "offset": part(6, "offset", "BIGINT")}
    history = f"greatest({DELIVERIES}, {part(2, '0', 'INT')})"
    kept = [name for name in copies.columns if name not in {*PLACE, DELIVERIES}]
    placed = told.selectExpr(*kept, f"{history} AS {DELIVERIES}", *(f"{sql} AS {name}" for name, sql in origin.items()))
    runs, is_there = _runs(placed, own)
    once = placed.join(runs, is_there, "left_anti").dropDuplicates(list(PLACE))
    return once.select(*(f.col(f"`{name}`") for name in copies.columns))
