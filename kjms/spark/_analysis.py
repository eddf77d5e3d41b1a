"""The outcomes of messages, as frames: settlement by group and partition, redeliveries, and dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from kjms.checking import checked
from kjms.client.engine_access import engine_of, options_of
from kjms.destinations import Destination, Queue, Topic
from kjms.errors import InvalidDestinationException, MessageFormatException, shown
from kjms.mapping.names import REDELIVERIES, destination_for, is_internal, queue_group
from kjms.spark._cluster import connected, source_options, topic_of
from kjms.spark._require import require_kafka
from kjms.spark._sql import quoted
from kjms.spark._tables import table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kjms import Connection, ConnectionFactory
    from kjms.engine import GroupProgress

__all__ = ["dead_letters", "redeliveries", "settlement"]

_QUEUE_GROUPS: Final = queue_group("")
_SETTLEMENT: Final = (
    "scheme STRING, name STRING, group STRING, subscription STRING, clientID STRING, place STRING, topic STRING,"
    " partition INT, begin BIGINT, end BIGINT, committedOffset BIGINT, dispatchLimit BIGINT, unsettledUpTo BIGINT,"
    " runs INT, redelivered INT, mostDeliveries INT, overflowUpTo BIGINT"
)
_EVENT: Final = (
    "event STRING, time BIGINT, destination STRING, group STRING, topic STRING, partition INT, offset BIGINT,"
    " message_id STRING, delivery INT, cause STRING"
)
_NO_EVENTS: Final = "value STRING"
_LETTER: Final = {
    "cause": ("Cause", "STRING"),
    "deliveries": ("Deliveries", "INT"),
    "originalTopic": ("OriginalTopic", "STRING"),
    "originalPartition": ("OriginalPartition", "INT"),
    "originalOffset": ("OriginalOffset", "BIGINT"),
    "originalExpiration": ("OriginalExpiration", "BIGINT"),
    "omitted": ("Omitted", "STRING"),
}


@checked
def settlement(
    spark: SparkSession,
    factory: ConnectionFactory,
    destinations: Destination | Sequence[Destination] | None = None,
    *,
    user: str | None = None,
    password: str | None = None,
) -> DataFrame:
    """Return how far queues and subscriptions are settled: a row for each group and partition.

    Args:
        spark: The session.
        factory: Says which cluster.
        destinations: Queues, and topics whose durable and shared subscriptions are meant; None: all there are.
        user: The name for SASL; None: the one in the factory's *kafka*, if any.
        password: The password for it.

    Returns:
        A frame of the present moment, with the columns that docs/spark.md lists. Numbers of unsettled messages are
        those of their offsets, not each of which is a message.

    Raises:
        InvalidDestinationException: A queue that was named is not there.
        JMSException: The broker does not answer, or a later kjms settled messages.
    """
    given = [destinations] if isinstance(destinations, Destination) else destinations
    rows: list[tuple[Any, ...]] = []
    with connected(factory, user, password) as connection:
        for destination, topic, group, name, client_id in _groups(connection, factory, given):
            found = engine_of(connection).progress(destination, topic, group)
            whose = destination.scheme, destination._name, group, name, client_id
            overflow = {each.number: _unsettled(each, low) for each, low in found if _place(each, topic) == "overflow"}
            for each, low in found:
                place = _place(each, topic)
                moved = overflow.get(each.number, 0) if place == "destination" else 0
                rows.append((*whose, place, *_row(each, low), moved))
    made = table(spark, rows, _SETTLEMENT)
    rest = [name for name in made.columns if name not in {"scheme", "name"}]
    return made.selectExpr("named_struct('destinationType', scheme, 'name', name) AS destination", *map(_named, rest))


def _named(name: str) -> str:
    return f"`{name}`"


Group = tuple[Destination, str, str, "str | None", "str | None"]
"""A destination, its Kafka topic, the group, and of a subscription the name and the client identifier."""


def _groups(
    connection: Connection, factory: ConnectionFactory, destinations: Sequence[Destination] | None
) -> Iterator[Group]:
    engine, options = engine_of(connection), options_of(factory)
    wanted = None if destinations is None else {topic_of(factory, each) for each in destinations}
    if destinations is None:
        there = engine.admin.topics()
        for group in sorted(engine.admin.groups()):
            topic = group[len(_QUEUE_GROUPS) :]
            if group.startswith(_QUEUE_GROUPS) and topic in there and not is_internal(topic):
                try:
                    queue = destination_for(topic, Queue, options.queue_prefix, options.topic_prefix)
                except InvalidDestinationException:  # without the prefix that ours have: it is not kjms's
                    continue
                yield queue, topic, group, None, None
    else:
        for each in destinations:
            if type(each) is Queue:
                topic, _ = engine.topic_of(each, options)
                yield each, topic, queue_group(topic), None, None
            elif type(each) is not Topic:
                raise InvalidDestinationException(f"settlement exists for queues and topics, not for {shown(each)}")
    for found in engine.admin.subscriptions():
        terms, identity = found.terms, found.identity
        if wanted is None or terms.topic in wanted:
            yield terms.destination, terms.topic, found.group, identity.name, identity.client_id


def _place(standing: GroupProgress, topic: str) -> str:
    if standing.topic == topic:
        return "destination"
    return "overflow" if ".kjms.overflow" in standing.topic[-40:] else "handover"


def _row(standing: GroupProgress, low: int) -> tuple[Any, ...]:
    state = standing.state
    place = standing.topic, standing.number, low, standing.end, state.committed_offset, state.dispatch_limit
    most = max((history.deliveries for history in state.histories.values()), default=0)
    return *place, _unsettled(standing, low), len(state.runs), len(state.histories), most


def _unsettled(standing: GroupProgress, low: int) -> int:
    """Return how many offsets are not settled."""
    state, end = standing.state, standing.end
    runs = (*state.runs, (state.known, end))
    return sum(max(0, min(past, end) - max(first, low)) for first, past in runs)


@checked
def redeliveries(
    spark: SparkSession,
    factory: ConnectionFactory,
    *,
    since: int | datetime | None = None,
    until: int | datetime | None = None,
    options: Mapping[str, str] | None = None,
    user: str | None = None,
    password: str | None = None,
) -> DataFrame:
    """Return what happened to messages, as `kjms.redeliveries` holds it: a row for each event.

    Args:
        spark: The session.
        factory: Says which cluster.
        since: The first point in time, in milliseconds since 1970 UTC or as a datetime; None: all that is kept.
        until: The point in time before which the events happened; None: now.
        options: More options of Spark's Kafka source; they win.
        user: The name for SASL; None: the one in the factory's *kafka*, if any.
        password: The password for it.

    Returns:
        A frame with ``event`` (``redelivery``, ``dead letter`` or ``expired``), ``time`` (milliseconds since 1970 UTC),
        ``destination``, ``group``, where the message stood (``topic``, ``partition``, ``offset``), its ``messageID``,
        ``delivery``, which is the number of the delivery that follows, or was the last, and the ``cause``.

    Raises:
        JMSException: The cluster does not answer, or the session lacks a connector.
    """
    require_kafka(spark)
    with connected(factory, user, password) as connection:
        is_there = engine_of(connection).admin.partitions(REDELIVERIES) > 0
    if is_there:
        settings = {**source_options(factory, user, password), "subscribe": REDELIVERIES}
        if since is not None:
            settings |= {"startingTimestamp": str(millis(since)), "startingOffsetsByTimestampStrategy": "latest"}
        records = spark.read.format("kafka").options(**{**settings, **(options or {})}).load()
    else:
        records = table(spark, [], _NO_EVENTS)
    told = records.selectExpr(f"inline(array(from_json(CAST(value AS STRING), {quoted(_EVENT)})))")
    columns = {"destination": _destination("destination"), "messageID": "message_id"}
    order = ("event", "time", "destination", "group", "topic", "partition", "offset", "messageID", "delivery", "cause")
    frame = told.where("event IS NOT NULL").selectExpr(
        *(f"{columns.get(name, _named(name))} AS `{name}`" for name in order)
    )
    if since is not None:
        frame = frame.where(f"time >= {millis(since)}")
    return frame if until is None else frame.where(f"time < {millis(until)}")


def millis(when: int | datetime) -> int:
    """Return *when* in milliseconds since 1970 UTC."""
    return round(when.timestamp() * 1000) if isinstance(when, datetime) else int(when)


def dead_letters(frame: DataFrame) -> DataFrame:
    """Return the dead letters in *frame*, with what stands on them as columns of their own.

    Args:
        frame: Messages of dead-letter or expiry queues, with the columns that `kjms.spark.decode` makes, such as
            ``read_batch(spark, factory, Queue("orders.dlq"), pending=True)``.

    Returns:
        Those that say why they are there, with the columns ``cause``, ``deliveries``, ``originalDestination``,
        ``originalTopic``, ``originalPartition``, ``originalOffset``, ``originalExpiration`` and ``omitted`` before the
        others.

    Raises:
        MessageFormatException: *frame* has no properties.
    """
    if "properties" not in frame.columns:
        raise MessageFormatException("dead_letters: the frame has no column properties: it takes what decode makes")

    def said(name: str) -> str:
        return f"try_element_at(properties, 'JMS_kjms_{name}')"

    columns = [f"TRY_CAST({said(name)} AS {kind}) AS {column}" for column, (name, kind) in _LETTER.items()]
    columns.insert(2, f"{_destination(said('OriginalDestination'))} AS originalDestination")
    return frame.where(f"{said('Cause')} IS NOT NULL").selectExpr(*columns, "*")


def _destination(text: str) -> str:
    """Return the struct of a destination that stands there as text, ``queue://orders``."""
    scheme = f"substring_index({text}, '://', 1)"
    struct = f"named_struct('destinationType', {scheme}, 'name', substring({text}, length({scheme}) + 4))"
    return f"CASE WHEN contains({text}, '://') THEN {struct} END"
