"""Frames that are sent, with ids by which a batch that is written again is recognised."""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kjms.checking import checked
from kjms.client.engine_access import engine_of, options_of
from kjms.destinations import Destination, Queue, Topic
from kjms.errors import InvalidDestinationException, JMSException, MessageFormatException, shown
from kjms.spark._cluster import connected, kafka_options
from kjms.spark._encode import KEY, encode, encoded
from kjms.spark._require import is_connect, require_kafka
from kjms.spark._sql import case, quoted
from kjms.spark._times import TIMES, millis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

    from kjms import ConnectionFactory

__all__ = ["Sink", "send_stream", "write_batch", "write_stream"]

_ID: Final = "messageID"
_PLACE: Final = frozenset({"topic", "partition", "offset"})  # where a row was read from tells it from all others


@checked
def write_batch(
    frame: DataFrame,
    factory: ConnectionFactory,
    destination: Destination,
    *,
    identity: Sequence[str] | None = None,
    query: str | None = None,
    options: Mapping[str, str] | None = None,
    user: str | None = None,
    password: str | None = None,
) -> None:
    """Send the messages in *frame* to *destination*, which is made where it is missing and the factory allows that.

    A message's id is its ``messageID``, or else made of *query* and of what stands in the row, so that the same row
    that is written again, by a task that is tried again for instance, has the same id: consumers of a factory with
    ``drop_duplicates`` get it once. It goes to the same partition, too, unless its JMSXGroupID says another.

    Args:
        frame: The messages, see `encode`.
        factory: Says which cluster.
        destination: A queue or topic.
        identity: The columns that tell a row from the others, where there are such. None: all columns, and equal rows
            are numbered, for which Spark sorts the frame.
        query: What the ids begin with; give the same one to a program that is run again. None: a new one.
        options: More options of Spark's Kafka sink; they win.
        user: The name for SASL; None: the one in the factory's *kafka*, if any.
        password: The password for it.

    Raises:
        MessageFormatException: Columns do not fit; the text names each. Nothing was written.
        InvalidDestinationException: There is no such destination, and it may not be made.
        JMSException: The cluster does not answer.

    Spec: JMS 2.0 §3.4.3 (ids), §4.4 (what a send sets).
    """
    sink = Sink(frame, factory, [destination], identity, options, user, password)
    sink.write(frame, f"{query or uuid.uuid4().hex}-0")


@checked
def write_stream(
    frame: DataFrame,
    factory: ConnectionFactory,
    destination: Destination,
    *,
    checkpoint: str,
    identity: Sequence[str] | None = None,
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    options: Mapping[str, str] | None = None,
    user: str | None = None,
    password: str | None = None,
) -> StreamingQuery:
    """Send the messages of the streaming *frame* to *destination*; returns the query, which runs.

    After a crash the last batch may be written again, with the ids that its messages had, which are made of the query's
    id, the batch's number and the row. With Spark Connect, kjms does not see the batches: ids are made of *checkpoint*
    and the row, so that rows need something that tells them apart. Arguments as `write_batch`, and:

    Args:
        frame: The messages.
        factory: Says which cluster.
        destination: A queue or topic.
        checkpoint: Where the query keeps how far it is; started again with it, the query continues.
        identity: As in `write_batch`. With Spark Connect, it is needed unless the frame has ``messageID``, or the place
            where each row was read.
        trigger: When batches are made, as ``{"processingTime": "5 seconds"}`` or ``{"availableNow": True}``; None: as
            fast as possible.
        name: What Spark calls the query.
        options: More options of Spark's Kafka sink.
        user: The name for SASL.
        password: The password for it.

    Raises:
        MessageFormatException: Columns do not fit; the text names each. Nothing was written.
        InvalidDestinationException: There is no such destination, and it may not be made.
        JMSException: The cluster does not answer; with Spark Connect: nothing tells the rows apart.
    """
    sink = Sink(frame, factory, [destination], identity, options, user, password)
    return send_stream(frame, sink, checkpoint, trigger, name)


def send_stream(
    frame: DataFrame,
    sink: Sink,
    checkpoint: str,
    trigger: Mapping[str, Any] | None,
    name: str | None,
    change: Callable[[DataFrame], DataFrame] | None = None,
) -> StreamingQuery:
    """Start a query that sends what *change* makes of the streaming *frame*, or of each of its batches.

    A batch has ids of its own, the same when it is sent again. A session of Spark Connect would run a function of
    batches on its server, where kjms need not be: there, Spark's own sink gets records that are made without one.
    """
    change = change or _as_it_is
    if is_connect(frame.sparkSession):
        writer = sink.streamed(change(frame), checkpoint)
    else:
        started = threading.Event()
        ids: list[str] = []

        def write_one(batch: DataFrame, number: int) -> None:
            started.wait()  # only then the query's id is known, which it keeps over restarts
            sink.write(change(batch), f"{ids[0]}-{number}")

        writer = frame.writeStream.foreachBatch(write_one)
    writer = writer.option("checkpointLocation", checkpoint)
    if trigger:
        writer = writer.trigger(**trigger)
    if name:
        writer = writer.queryName(name)
    query = writer.start()
    if not is_connect(frame.sparkSession):
        ids.append(query.id)
        started.set()
    return query


def _as_it_is(frame: DataFrame) -> DataFrame:
    return frame


class _Target(NamedTuple):
    """A Kafka topic that messages are written to."""

    topic: str
    partitions: int
    later: str | None
    """Where those wait that are not due yet; None: the frame says of none when it is due."""


class Sink:
    """Where frames of one kind go, checked beforehand.

    Args:
        frame: One of them.
        factory: Says which cluster.
        destinations: Queues and topics. If there are several, the frames' column ``destination`` says which is meant.
        identity: The columns that tell a row from the others.
        options: More options of Spark's Kafka sink.
        user: The name for SASL.
        password: The password for it.

    Raises:
        MessageFormatException: Columns do not fit; the text names each.
        InvalidDestinationException: There is no such destination, and it may not be made.
        JMSException: The cluster does not answer.
    """

    def __init__(
        self,
        frame: DataFrame,
        factory: ConnectionFactory,
        destinations: Sequence[Destination],
        identity: Sequence[str] | None,
        options: Mapping[str, str] | None,
        user: str | None,
        password: str | None,
    ) -> None:
        require_kafka(frame.sparkSession)
        for destination in destinations:
            if type(destination) not in {Queue, Topic}:
                raise InvalidDestinationException(f"frames are sent to queues and topics, not to {shown(destination)}")
        needed = [*(identity or ()), *(["destination"] if len(destinations) > 1 else [])]
        unknown = [name for name in needed if name not in frame.columns]
        if unknown:
            raise MessageFormatException(f"the frame has no column {', '.join(unknown)}, which is needed to send it")
        encode(frame)  # tells what does not fit
        self._identity = identity
        self._options = {**kafka_options(factory, user, password), **(options or {})}
        self._targets: dict[Destination, _Target] = {}
        with connected(factory, user, password) as connection:
            for destination in destinations:
                topic, partitions = engine_of(connection).topic_of(destination, options_of(factory))
                later = None
                if {"deliveryTime", TIMES["deliveryTime"]}.intersection(frame.columns):
                    later = engine_of(connection).admin.prepare_delayed(topic, partitions)
                self._targets[destination] = _Target(topic, partitions, later)

    def write(self, frame: DataFrame, batch: str) -> None:
        """Write the messages of *frame*, whose ids begin with *batch* where they have none."""
        records = self._records(_with_ids(frame, batch, self._identity))
        records.write.format("kafka").options(**self._options).save()

    def streamed(self, frame: DataFrame, checkpoint: str) -> DataStreamWriter:
        """Return a writer of the messages of a streaming *frame*, whose ids are made of *checkpoint* and the row.

        Raises:
            JMSException: Nothing tells the rows apart.
        """
        if not self._identity and _ID not in frame.columns and not _PLACE.issubset(frame.columns):
            raise JMSException(
                "with Spark Connect, kjms does not see the batches of a stream, and makes the ids of messages of their"
                " rows: give identity=[...], the columns that tell a row from all others, or a column messageID"
            )
        query = hashlib.sha256(checkpoint.encode()).hexdigest()[:32]
        records = self._records(_with_ids(frame, query, self._identity, is_stream=True))
        return records.writeStream.format("kafka").options(**self._options)

    def _records(self, named: DataFrame) -> DataFrame:
        """Return the Kafka records of messages that have ids."""
        from pyspark.sql import functions as f

        topic = self._chosen({each: quoted(target.topic) for each, target in self._targets.items()})
        later = {each: quoted(target.later) for each, target in self._targets.items() if target.later is not None}
        if later:
            due = millis("deliveryTime", named.columns)
            topic = case((f"{due} > unix_millis(current_timestamp())", self._chosen(later)), otherwise=topic)
        # Kafka's own choice for messages without a group would differ from one attempt to the next.
        count = self._chosen({each: str(target.partitions) for each, target in self._targets.items()})
        spread = f"CASE WHEN `{KEY}` IS NULL THEN CAST(pmod(hash({_ID}), {count}) AS INT) END"
        return encoded(named, topic=f.expr(topic), partition=f.expr(spread))

    def _chosen(self, values: Mapping[Destination, str]) -> str:
        """Return which of *values*, by destination, is that of a row, as text of SQL."""
        if len(values) == 1:
            return next(iter(values.values()))
        return case(*((is_for(destination), value) for destination, value in values.items()))


def is_for(destination: Destination) -> str:
    """Return whether a row's column ``destination`` is this one, as text of SQL."""
    name = quoted(destination._name)
    return f"(destination.destinationType = {quoted(destination.scheme)} AND destination.name = {name})"


def _with_ids(frame: DataFrame, batch: str, identity: Sequence[str] | None, *, is_stream: bool = False) -> DataFrame:
    """Return *frame* with an id in each row that has none: made of *batch* and the row, however rows are ordered.

    Rows of a stream cannot be numbered: where nothing tells them apart, a missing id is a random one.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    beside = {beside for name, beside in TIMES.items() if name in frame.columns}
    columns = list(identity or (name for name in frame.columns if name not in beside))
    values = {name: f.expr(millis(name, frame.columns) if name in TIMES else f"`{name}`") for name in columns}
    digest = f.md5(f.to_json(f.struct(*(value.alias(name) for name, value in values.items()))))
    made = [f.lit(f"ID:spark-{batch}-"), digest]
    if identity is None and not _PLACE.issubset(columns):  # equal rows: which is which does not matter
        if is_stream:
            made[1] = f.expr("uuid()")
        else:
            made += [f.lit("-"), f.row_number().over(Window.partitionBy(digest).orderBy(digest)).cast("string")]
    given = f.col(_ID) if _ID in frame.columns else f.lit(None).cast("string")
    return frame.withColumn(_ID, f.coalesce(given, f.concat(*made)))
