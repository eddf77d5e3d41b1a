"""What goes through destinations over time: rates, sizes, latencies, what was delivered again, and what stays."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from kjms.destinations import Destination, Queue
from kjms.errors import shown
from kjms.options import milliseconds
from kjms.spark import _page
from kjms.spark._analysis import redeliveries
from kjms.spark._cluster import topic_of
from kjms.spark._figures import Figures, Incident, Replies, Traffic, Waiting
from kjms.spark._reading import read_batch, sized_batch
from kjms.spark._scale import interval_for
from kjms.spark._sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from kjms import ConnectionFactory

__all__ = ["Report", "report"]

DAY: Final = 86_400_000
T = TypeVar("T")
_COLUMNS: Final = (
    "topic", "`partition`", "`offset`", "concat(at.destinationType, '://', at.name) AS destination", "size",
    "size(damage) > 0 AS bad", "unix_millis(kafkaTimestamp) AS stored", "nullif(timestamp, 0) AS sent", "messageID",
    "correlationID", "replyTo IS NOT NULL AS isRequest",
)  # fmt: skip


class Report(Figures):
    """What was found; times are in milliseconds since 1970 UTC."""

    def to_json(self) -> str:
        """Return all of it as a JSON object."""
        return json.dumps(asdict(self), ensure_ascii=False)

    def to_html(self) -> str:
        """Return it as a page with plots, which needs no network and no other file; it has about 5 MB.

        Raises:
            JMSException: plotly is not installed.
        """
        return _page.page(self)


def report(
    spark: SparkSession,
    factory: ConnectionFactory,
    destinations: Destination | Sequence[Destination],
    *,
    since: int | datetime | timedelta | None = None,
    until: int | datetime | None = None,
    interval: int | timedelta | None = None,
    user: str | None = None,
    password: str | None = None,
) -> Report:
    """Return what went through *destinations* in some time; nothing is consumed.

    Args:
        spark: The session.
        factory: Says which cluster.
        destinations: Queues and topics. For replies, those which the requests go to and those of the replies.
        since: The beginning: a point in time (milliseconds since 1970 UTC, or a datetime), or how long before *until*;
            None: a day. Without *interval*, a length or None goes back to the beginning of an interval.
        until: The end; None: now.
        interval: The time that is summed up in one figure, in milliseconds or as a timedelta; None: 1, 5 or 15 minutes,
            an hour or a day.
        user: The name for SASL; None: the one in the factory's *kafka*, if any.
        password: The password for it.

    Raises:
        InvalidDestinationException: There is no such destination.
        JMSException: The cluster does not answer, or the session lacks a connector.
        ValueError: The times make no sense.
    """
    end = time.time_ns() // 1_000_000 + 1 if until is None else _millis(until)
    begin = end - DAY
    if since is not None:
        begin = end - _millis(since) if isinstance(since, timedelta) else _millis(since)
    step = interval_for(end - begin) if interval is None else _millis(interval)
    if interval is None and (since is None or isinstance(since, timedelta)):
        begin -= begin % step
    if begin >= end or step < 1:
        raise ValueError(
            f"since {shown(since)}, until {shown(until)}, interval {shown(interval)}: the interval is empty"
        )
    given = [destinations] if isinstance(destinations, Destination) else list(destinations)
    read = sized_batch(spark, factory, given, starting=begin, ending=end, user=user, password=password)
    within = f"kafkaTimestamp >= timestamp_millis({begin}) AND kafkaTimestamp < timestamp_millis({end})"
    messages = read.where(within).selectExpr(*_COLUMNS).persist()
    events = redeliveries(spark, factory, since=begin, until=end, user=user, password=password)
    places = ", ".join(quoted(str(each)) for each in given)
    events = events.where(f"concat(destination.destinationType, '://', destination.name) IN ({places})")
    try:
        return Report(
            begin,
            end,
            step,
            _rows(Traffic, _traffic(messages, begin, step)),
            _rows(Replies, _replies(messages, begin, step)),
            _rows(Incident, _incidents(events, messages, begin, step)),
            _waiting(spark, factory, [each for each in given if type(each) is Queue], user, password),
        )
    finally:
        messages.unpersist()


def _millis(when: int | datetime | timedelta) -> int:
    if isinstance(when, timedelta):
        return milliseconds(when, "a time of the report")
    return round(when.timestamp() * 1000) if isinstance(when, datetime) else int(when)


def _rows(kind: type[T], frame: DataFrame) -> tuple[T, ...]:
    return tuple(kind(**row.asDict()) for row in frame.collect())


def _interval(column: str, begin: int, step: int) -> str:
    return f"CAST({begin} + ({column} - {begin}) DIV {step} * {step} AS BIGINT) AS begin"


def _part(column: str, share: float) -> Column:
    from pyspark.sql import functions as f

    return f.percentile_approx(column, share)


def _traffic(messages: DataFrame, begin: int, step: int) -> DataFrame:
    from pyspark.sql import functions as f

    grouped = messages.selectExpr("*", _interval("stored", begin, step)).groupBy("begin", "destination")
    return grouped.agg(
        f.count("*").alias("messages"),
        f.expr(f"count(*) * 1000D / {step}").alias("per_second"),
        f.sum("size").alias("bytes"),
        _part("size", 0.5).alias("median_size"),
        f.max("size").alias("largest_size"),
        f.sum(f.col("bad").cast("int")).alias("damaged"),
    ).orderBy("begin", "destination")


def _replies(messages: DataFrame, begin: int, step: int) -> DataFrame:
    from pyspark.sql import functions as f

    requests = messages.where("isRequest AND sent IS NOT NULL").select("messageID", "sent", "destination")
    answers = messages.where("correlationID IS NOT NULL").selectExpr("correlationID AS messageID", "stored")
    took = requests.join(answers, "messageID").selectExpr("*", "stored - sent AS took").where("took >= 0")
    grouped = took.selectExpr("*", _interval("stored", begin, step)).groupBy("begin", "destination")
    return grouped.agg(
        f.count("*").alias("replies"),
        _part("took", 0.5).alias("median"),
        _part("took", 0.95).alias("p95"),
        f.max("took").alias("slowest"),
    ).orderBy("begin", "destination")


def _incidents(events: DataFrame, messages: DataFrame, begin: int, step: int) -> DataFrame:
    from pyspark.sql import functions as f

    sent = messages.select("topic", "partition", "offset", "sent")
    aged = events.join(sent, ["topic", "partition", "offset"], "left").selectExpr(
        _interval("time", begin, step),
        "event",
        "concat(destination.destinationType, '://', destination.name) AS destination",
        "coalesce(nullif(cause, ''), '-') AS cause",
        "`time` - sent AS age",
    )
    grouped = aged.groupBy("begin", "event", "destination", "cause")
    return grouped.agg(f.count("*").alias("messages"), _part("age", 0.5).alias("median_age")).orderBy(
        "begin", "event", "destination", "cause"
    )


def _waiting(
    spark: SparkSession, factory: ConnectionFactory, queues: Sequence[Queue], user: str | None, password: str | None
) -> tuple[Waiting, ...]:
    from pyspark.sql import functions as f

    if not queues:
        return ()
    held = read_batch(spark, factory, queues, pending=True, user=user, password=password)
    now = time.time_ns() // 1_000_000
    aged = held.selectExpr("topic", "CAST(redelivered AS INT) AS before", f"{now} - nullif(timestamp, 0) AS age")
    summed = aged.groupBy("topic").agg(f.count("*"), f.sum("before"), f.max("age"))
    found = {row[0]: tuple(row)[1:] for row in summed.collect()}
    return tuple(Waiting(str(queue), *found.get(topic_of(factory, queue), (0, 0, None))) for queue in queues)
