"""Work that is done again and again with messages and Spark: keeping, sending again, routing, converting, reporting."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kjms.destinations import Destination
from kjms.errors import JMSException, shown
from kjms.selector import Selector, parse_selector
from kjms.spark._archives import Archive, Registration, archive_name, archives, forget_archive
from kjms.spark._confluent import confluent_decoded
from kjms.spark._draining import drain
from kjms.spark._predicates import predicate
from kjms.spark._reading import EARLIEST, Pattern, Place, read_stream, stream_of, topics_among
from kjms.spark._report import Report, report
from kjms.spark._require import is_connect
from kjms.spark._sinks import read_kept, start_keeping
from kjms.spark._sources import Decoded
from kjms.spark._sql import case, quoted
from kjms.spark._writing import Sink, send_stream, write_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from kjms import ConnectionFactory

__all__ = [
    "Archive",
    "Report",
    "archive",
    "archives",
    "convert",
    "drain",
    "forget_archive",
    "replay",
    "report",
    "route",
    "where",
]

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
    format: str = "parquet",
    selector: str | None = None,
    starting: Place = EARLIEST,
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    options: Mapping[str, str] | None = None,
    user: str | None = None,
    password: str | None = None,
) -> StreamingQuery:
    """Keep the messages of *destinations* in files or a table, each once, whatever happens meanwhile; return the query.

    The archive has the columns of `kjms.spark.decode`, and is partitioned by ``date``, the day (in the session's time
    zone) on which Kafka got the message. Read it with Spark, which leaves out what a crash left unfinished. Tables get
    the columns that a later version of kjms adds.

    The cluster knows the archive, as the consumer group ``kjms.archive.<name>``: settled messages of queues stay until
    the archive has them, also while it is stopped, see `archives` and `forget_archive`.

    Args:
        spark: The session.
        factory: Says which cluster.
        destinations: A queue or topic, several, or a `Pattern`.
        path: The directory of the archive; with ``iceberg`` also the name of a table, which has no slash.
        checkpoint: Where the query keeps how far it is; started again with it, the query continues.
        format: ``parquet``, ``delta`` or ``iceberg``. The last two need a session that has them:
            ``spark_session(formats=["delta"])``.
        selector: Which messages are kept; None: all.
        starting: Where to begin without a checkpoint.
        trigger: When files are written, as ``{"processingTime": "1 minute"}``, or ``{"availableNow": True}`` to end
            when all is kept that is there now; None: all the time.
        name: The archive's name, of letters, digits, ``.``, ``_`` and ``-``; None: one that is made of *checkpoint*,
            which a session of Spark Connect cannot do. An archive whose *options* say how Spark reaches the cluster
            (``kafka.…``) is known only if it is named here, since kjms may have no way to it.
        options: More options of Spark's Kafka source.
        user: The name for SASL.
        password: The password for it.

    Raises:
        InvalidSelectorException: The selector is none.
        InvalidDestinationException: There is no such destination, or *name* has other characters.
        JMSException: The cluster does not answer, or the session lacks a connector.
        ValueError: There is no such format, or only Java understands a pattern: kjms has to know its topics, too.
    """
    if name is None and is_connect(spark):
        raise JMSException(
            "archive: give a name, as in name='orders'. Without one, kjms makes it of the checkpoint's full path, which"
            " a session of Spark Connect does not know"
        )
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
    start = partial(start_keeping, dated, path, format, DATE, checkpoint, trigger)
    if name is None and any(option.startswith("kafka.") for option in options or ()):
        return start()
    wanted = partial(topics_among, factory, destinations)
    registration = Registration(factory, name or archive_name(spark, checkpoint), wanted, user, password)
    try:
        query = start()
    except BaseException:
        registration.close()
        raise
    registration.follow(query)
    return query


def replay(
    spark: SparkSession,
    factory: ConnectionFactory,
    path: str,
    destination: Destination,
    *,
    format: str = "parquet",
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
        path: The archive's directory, or the name of its table.
        destination: A queue or topic.
        format: The archive's format.
        selector: Which messages; None: all.
        rate: The most messages per second, which are sent in the order in which Kafka got them; None: as fast as
            possible, in no order.
        options: More options of Spark's Kafka sink.
        user: The name for SASL.
        password: The password for it.

    Raises:
        InvalidSelectorException: The selector is none.
        JMSException: There is no archive, or the cluster does not answer.
        ValueError: *rate* is no whole number of at least 1, or there is no such format.
    """
    if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int) or rate < 1):
        raise ValueError(f"rate is a whole number of at least 1 message per second, not {shown(rate)}")
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    messages = where(read_kept(spark, path, format), selector or "").drop(DATE)
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


def route(
    spark: SparkSession,
    factory: ConnectionFactory,
    source: Destination | Sequence[Destination] | Pattern,
    routes: Mapping[Destination, str | None],
    *,
    checkpoint: str,
    otherwise: Destination | None = None,
    transform: Callable[[DataFrame], DataFrame] | None = None,
    starting: Place = EARLIEST,
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    options: Mapping[str, str] | None = None,
    user: str | None = None,
    password: str | None = None,
) -> StreamingQuery:
    """Send the messages of *source* on to the destinations whose selectors want them; returns the query, which runs.

    Each message goes to every destination whose selector is true for it, with the id that it has; nothing is consumed.
    After a crash the last batch may be sent again, with the same ids: consumers of a factory with ``drop_duplicates``
    get each message once.

    Args:
        spark: The session.
        factory: Says which cluster.
        source: A queue or topic, several, or a `Pattern`.
        routes: The selector of each destination; None: all messages.
        checkpoint: Where the query keeps how far it is; started again with it, the query continues.
        otherwise: Where messages go that no selector wants; None: nowhere.
        transform: Changes the messages that are sent: it is given a frame with the columns of `kjms.spark.decode`,
            ``destination`` saying where a message goes, and returns one of the same kind, see `kjms.spark.encode`.
            If it makes several messages of one, they need ids of their own, or null in ``messageID``. With Spark
            Connect, it is called once, with a streaming frame.
        starting: Where to begin without a checkpoint.
        trigger: When batches are made, as ``{"availableNow": True}`` to end when all is sent that is there now; None:
            as fast as possible.
        name: What Spark calls the query.
        options: More options of Spark's Kafka source.
        user: The name for SASL.
        password: The password for it.

    Raises:
        InvalidSelectorException: A selector is none.
        InvalidDestinationException: There is no such destination, and it may not be made.
        MessageFormatException: What *transform* returns cannot be sent; the text names each column.
        ValueError: There are no routes.
        JMSException: The cluster does not answer, or the session lacks a connector.

    Spec: JMS 2.0 §3.8.1.
    """
    if not routes:
        raise ValueError("route: routes is empty; give the selector of each destination")
    selectors = {destination: parse_selector(text) for destination, text in routes.items()}
    targets = list(dict.fromkeys([*routes, *([otherwise] if otherwise is not None else [])]))
    wanted = None
    if otherwise is None and all(selectors.values()):  # the bodies of the others need no decoding
        wanted = " OR ".join(f"({selector.text})" for selector in selectors.values() if selector is not None)
    read = read_stream(
        spark, factory, source, selector=wanted, starting=starting, options=options, user=user, password=password
    )
    goes = f"explode({_routes(selectors, otherwise)}) AS destination"

    def routed(frame: DataFrame) -> DataFrame:
        sent = frame.selectExpr(*(f"`{each}`" for each in frame.columns if each != "destination"), goes)
        return transform(sent) if transform else sent

    sink = Sink(routed(read), factory, targets, None, None, user, password)
    return send_stream(read, sink, checkpoint, trigger, name, routed)


def _routes(selectors: Mapping[Destination, Selector | None], otherwise: Destination | None) -> str:
    """Return an array of the destinations of a row."""

    def struct(destination: Destination) -> str:
        return f"named_struct('destinationType', '{destination.scheme}', 'name', {quoted(destination._name)})"

    wanted = [
        case(("TRUE" if selector is None else predicate(selector.tree, Decoded()).expression, struct(destination)))
        for destination, selector in selectors.items()
    ]
    found = f"array_compact(array({', '.join(wanted)}))"
    if otherwise is None:
        return found
    return (
        f"transform(array({found}), held -> CASE WHEN size(held) > 0 THEN held ELSE array({struct(otherwise)}) END)[0]"
    )


def convert(
    spark: SparkSession,
    factory: ConnectionFactory,
    source: Destination | Sequence[Destination] | Pattern,
    destination: Destination,
    *,
    checkpoint: str,
    schema: str | None = None,
    starting: Place = EARLIEST,
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    options: Mapping[str, str] | None = None,
    user: str | None = None,
    password: str | None = None,
) -> StreamingQuery:
    """Write the messages that Confluent's JMS connectors left in *source* to *destination*; returns the query.

    The records of the connectors hold the struct ``io.confluent.connect.jms.Value``, in Avro or JSON; other records are
    sent as they read. A message keeps its id, so that what is sent again after a crash can be dropped.

    Args:
        spark: The session.
        factory: Says which cluster.
        source: What the connectors' Kafka topics are as destinations.
        destination: A queue or topic.
        checkpoint: Where the query keeps how far it is; started again with it, the query continues.
        schema: The Avro schema that the records were written with; None: the connectors' present one.
        starting: Where to begin without a checkpoint.
        trigger: As in `route`.
        name: What Spark calls the query.
        options: More options of Spark's Kafka source.
        user: The name for SASL.
        password: The password for it.

    Raises:
        InvalidDestinationException: There is no such destination, and it may not be made.
        JMSException: The cluster does not answer, or the session lacks a connector.

    Spec: docs/wire-format.md, records of other bridges.
    """
    records, place = stream_of(spark, factory, source, starting, options, user, password)
    frame = confluent_decoded(records, place, schema)
    sink = Sink(frame, factory, [destination], None, None, user, password)
    return send_stream(frame, sink, checkpoint, trigger, name)
