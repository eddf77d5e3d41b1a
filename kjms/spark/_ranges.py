"""The messages at places that the driver knows, as frames: of the batch that it took, and of one that is run again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kjms.spark._decode import decoded, with_helpers
from kjms.spark._pending import DELIVERIES, PLACE, as_sent, cut
from kjms.spark._tables import table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kjms.spark._plans import Run

__all__ = ["messages_of", "records_again", "records_at"]

_PIECES: Final = 10_000  # into which the runs are cut, about: each is a row of a table that all executors get
_SMALLEST: Final = 64  # offsets of a piece


def records_at(spark: SparkSession, options: Mapping[str, str], runs: Sequence[Run], topic: str) -> DataFrame:
    """Return the records in *runs*, with the column `DELIVERIES`, those that were moved as they were sent.

    Args:
        spark: The session.
        options: Those of Spark's Kafka source that say neither what is read nor from where to where.
        runs: Where they stand; at least one.
        topic: The destination's own Kafka topic: what stands in others was moved there.
    """
    own = [run for run in runs if run.topic == topic]
    moved = [run for run in runs if run.topic != topic]
    frames = [_read(spark, options, own)] if own else []
    if moved:
        frames.append(as_sent(_read(spark, options, moved), []))
    return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])


def _read(spark: SparkSession, options: Mapping[str, str], runs: Sequence[Run]) -> DataFrame:
    """Return the records in *runs*, unchanged."""
    assigned: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for topic, number, first, past, _ in runs:
        if str(number) not in starts.setdefault(topic, {}):
            assigned.setdefault(topic, []).append(number)
        starts[topic][str(number)] = min(starts[topic].get(str(number), first), first)
        last = ends.setdefault(topic, {})
        last[str(number)] = max(last.get(str(number), past), past)
    wanted = {"assign": assigned, "startingOffsets": starts, "endingOffsets": ends}
    source = spark.read.format("kafka").options(**{name: json.dumps(each) for name, each in wanted.items()})
    frame = source.options(**options).load()
    if len(runs) == sum(map(len, assigned.values())) and len({run.deliveries for run in runs}) == 1:
        return frame.selectExpr("*", f"{runs[0].deliveries} AS {DELIVERIES}")  # all that is read is in a run
    return _joined(frame, runs, "inner").selectExpr(*(f"`{name}`" for name in frame.columns), f"d AS {DELIVERIES}")


def records_again(pending: DataFrame, runs: Sequence[Run]) -> DataFrame:
    """Return those rows of *pending* that stand in one of *runs*: delivered at least once, so that they come marked.

    A function may have had them before its driver was killed, and other consumers may have had them since.
    """
    from pyspark.sql import functions as f

    return _joined(pending, runs, "left_semi").withColumn(DELIVERIES, f.greatest(DELIVERIES, f.lit(1)))


def _joined(frame: DataFrame, runs: Sequence[Run], how: str) -> DataFrame:
    """Return *frame* joined with *runs*, which are cut into pieces, so that the join looks at few for each row."""
    from pyspark.sql import functions as f

    size = max(_SMALLEST, -(-sum(run.past - run.first for run in runs) // _PIECES))
    pieces = table(
        frame.sparkSession,
        (
            (topic, number, *piece, deliveries)
            for topic, number, first, past, deliveries in runs
            for piece in cut(first, past, size)
        ),
        "t STRING, n INT, b BIGINT, first BIGINT, past BIGINT, d INT",
    )
    topic, number, offset = (f.col(name) for name in PLACE)
    is_near = (topic == f.col("t")) & (number == f.col("n")) & (f.expr(f"`offset` DIV {size}") == f.col("b"))
    return frame.join(f.broadcast(pieces), is_near & (offset >= f.col("first")) & (offset < f.col("past")), how)


def messages_of(records: DataFrame, destination: str) -> DataFrame:
    """Return the messages in *records*, which have the column `DELIVERIES`, as they are delivered.

    Args:
        records: The records.
        destination: The struct of the destination of each, as text of SQL.
    """
    counted = with_helpers(records).selectExpr("*", f"{DELIVERIES} + 1 AS deliveryCount")
    return decoded(counted, destination, ("deliveryCount", "deliveryCount > 1 AS redelivered"))
