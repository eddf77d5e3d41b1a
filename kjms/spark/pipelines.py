"""Work that is done again and again with messages and Spark: keeping them in files, and sending them from there."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kjms.destinations import Destination
from kjms.errors import JMSException, shown
from kjms.selector import parse_selector
from kjms.spark._predicates import predicate
from kjms.spark._reading import EARLIEST, Pattern, Place, read_stream
from kjms.spark._sources import Decoded
from kjms.spark._writing import write_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from kjms import ConnectionFactory

__all__ = ["archive", "replay", "where"]

DATE: Final = "date"
_ROW: Final = "__kjms_row"
_ORDER: Final = ("kafkaTimestamp", "topic", "partition", "offset")


def where(frame: DataFrame, selector: str) -> DataFrame:
    """Return those messages of *frame* that *selector* is true for.

    Args:
        frame: Messages, with the columns that `kjms.spark.decode` makes; an archive's, for instance.
        selector: The selector.

    Raises:
        InvalidSelectorException: It is no selector.

    Spec: JMS 2.0 §3.8.1.
    """
    parsed = parse_selector(selector)
    source = Decoded(counts="deliveryCount" in frame.columns)
    return frame if parsed is None else frame.where(predicate(parsed.tree, source).expression)


def archive(
    spark: SparkSession,
    factory: ConnectionFactory,
    destinations: Destination | Sequence[Destination] | Pattern,
    path: str,
    *,
    checkpoint: str,
    selector: str | None = None,
    starting: Place = EARLIEST,
    trigger: Mapping[str, Any] | None = None,
    options: Mapping[str, str] | None = None,
    user: str | None = None,
    password: str | None = None,
) -> StreamingQuery:
    """Keep the messages of *destinations* in Parquet files, each once, whatever happens meanwhile; returns the query.

    The files have the columns of `kjms.spark.decode`, and are partitioned by ``date``, the day (in the session's time
    zone) on which Kafka got the message. Read them with Spark, which leaves out what a crash left unfinished.

    Args:
        spark: The session.
        factory: Says which cluster.
        destinations: A queue or topic, several, or a `Pattern`.
        path: The directory of the files.
        checkpoint: Where the query keeps how far it is; started again with it, the query goes on.
        selector: Which messages are kept; None: all.
        starting: Where to begin without a checkpoint.
        trigger: When files are written, as ``{"processingTime": "1 minute"}``, or ``{"availableNow": True}`` to end
            when all is kept that is there now; None: all the time.
        options: More options of Spark's Kafka source.
        user: The name for SASL.
        password: The password for it.

    Raises:
        InvalidSelectorException: The selector is none.
        JMSException: The cluster does not answer, or the session lacks a connector.
    """
    frame = read_stream(
        spark,
        factory,
        destinations,
        selector=selector,
        starting=starting,
        options=options,
        user=user,
        password=password,
    )
    dated = frame.selectExpr("*", f"CAST(kafkaTimestamp AS DATE) AS {DATE}")
    writer = dated.writeStream.format("parquet").partitionBy(DATE).option("checkpointLocation", checkpoint)
    if trigger:
        writer = writer.trigger(**trigger)
    return writer.start(path)


def replay(
    spark: SparkSession,
    factory: ConnectionFactory,
    path: str,
    destination: Destination,
    *,
    selector: str | None = None,
    rate: int | None = None,
    options: Mapping[str, str] | None = None,
    user: str | None = None,
    password: str | None = None,
) -> int:
    """Send the messages of an archive to *destination* as they were, with their ids; return how many.

    Args:
        spark: The session.
        factory: Says which cluster.
        path: The archive's directory.
        destination: A queue or topic.
        selector: Which messages; None: all.
        rate: The most messages per second, which are sent in the order in which Kafka got them; None: as fast as
            possible, in no order.
        options: More options of Spark's Kafka sink.
        user: The name for SASL.
        password: The password for it.

    Raises:
        InvalidSelectorException: The selector is none.
        JMSException: There is no archive, or the cluster does not answer.
        ValueError: *rate* is no whole number of at least 1.
    """
    if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int) or rate < 1):
        raise ValueError(f"rate is a whole number of at least 1 message per second, not {shown(rate)}")
    from pyspark.errors import AnalysisException
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    try:
        frame = spark.read.parquet(path)
    except AnalysisException as error:
        raise JMSException(f"replay: {path} holds no archive ({error.getCondition()})") from error
    messages = where(frame, selector or "").drop(DATE)
    settings = {"options": options, "user": user, "password": password}
    if rate is None:
        messages = messages.persist()
        try:
            write_batch(messages, factory, destination, **settings)  # type: ignore[arg-type]
            return int(messages.count())
        finally:
            messages.unpersist()
    numbered = messages.withColumn(_ROW, f.row_number().over(Window.orderBy(*_ORDER))).persist()
    try:
        count = int(numbered.count())
        for first in range(1, count + 1, rate):
            begin = time.monotonic()
            part = numbered.where(f.col(_ROW).between(first, first + rate - 1)).orderBy(_ROW).drop(_ROW)
            write_batch(part, factory, destination, **settings)  # type: ignore[arg-type]
            if first + rate <= count:
                time.sleep(max(1.0 - (time.monotonic() - begin), 0.0))
        return count
    finally:
        numbered.unpersist()
