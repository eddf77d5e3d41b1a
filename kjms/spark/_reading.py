"""Destinations as frames: what of Kafka is read, from where to where, and what a row is then."""

from __future__ import annotations

import json
import re
import time
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kjms.checking import checked
from kjms.client.engine_access import engine_of, options_of
from kjms.destinations import Destination, Queue, Topic
from kjms.errors import InvalidDestinationException, shown
from kjms.spark._cluster import connected, source_options, topic_of
from kjms.spark._decode import decoded, selected, with_helpers
from kjms.spark._pending import DELIVERIES, pending_records
from kjms.spark._require import require_kafka
from kjms.spark._sources import Record
from kjms.spark._sql import quoted, regex

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kjms import Connection, ConnectionFactory

__all__ = ["Pattern", "Place", "Subscription", "read_batch", "read_stream"]

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
# What Spark understands as an offset beside offsets.
_NAMED_OFFSETS: Final = {EARLIEST: -2, LATEST: -1}
_ESCAPED: Final = r"^--([a-zA-Z0-9._]|-[0-9a-f]{2})+\z"
# Topics that kjms keeps for itself.
INTERNAL: Final = r"(?!kjms\.)(?!.*\.kjms\.(delayed|overflow|interest|handover|bridged)(\.|$))"


@dataclass(frozen=True)
class Pattern:
    """All queues or topics whose Kafka topics fit a regular expression; a stream finds new ones as they come.

    Args:
        kind: `kjms.Queue` or `kjms.Topic`: what they are.
        expression: A regular expression of Java's, for whole names of Kafka topics.

    >>> Pattern(Topic, "prices[.].*")
    Pattern(kind=<class 'kjms.destinations.Topic'>, expression='prices[.].*')
    """

    kind: type[Queue] | type[Topic]
    expression: str


@dataclass(frozen=True)
class Subscription:
    """A place to start from: where a durable or shared subscription stands, which this does not change.

    Args:
        name: The subscription's name.
        client_id: The client identifier that it belongs to, if it has one.
    """

    name: str
    client_id: str | None = None


Place: TypeAlias = "str | int | datetime | Subscription | Mapping[tuple[Destination, int], int]"
"""``earliest``, ``latest``, a time (milliseconds since 1970 UTC, or a datetime), where a subscription stands, or the
offset of each partition of each destination; partitions that are not named start at their beginning."""

Destinations: TypeAlias = "Destination | Sequence[Destination] | Pattern"


@checked
def read_batch(
    spark: SparkSession,
    factory: ConnectionFactory,
    destinations: Destinations,
    *,
    selector: str | None = None,
    pending: bool = False,
    starting: Place = EARLIEST,
    ending: Place = LATEST,
    options: Mapping[str, str] | None = None,
    user: str | None = None,
    password: str | None = None,
) -> DataFrame:
    """Return the messages that stand in *destinations* now: nothing is consumed.

    Args:
        spark: The session, see `spark_session`.
        factory: Says which cluster.
        destinations: A queue or topic, several, or a `Pattern`.
        selector: Which messages are wanted; the others' bodies are not decoded. None: all.
        pending: Of queues, what is not settled when this is called, and no more: what a queue browser shows, with the
            columns ``deliveryCount`` and ``redelivered`` as the next consumer will see them. It has no *starting* and
            no *ending*.
        starting: Where to begin.
        ending: Where to end.
        options: More options of Spark's Kafka source; they win. Where one of Kafka's own is among them (``kafka.…``),
            a missing topic is Spark's to tell.
        user: The name for SASL; None: the one in the factory's *kafka*, if any.
        password: The password for it.

    Raises:
        InvalidSelectorException: The selector is none.
        InvalidDestinationException: There is no such destination or subscription.
        JMSException: The cluster does not answer, or the session lacks a connector; *pending*: a later kjms settled
            messages.
        ValueError: *pending* stands beside a place.

    Spec: JMS 2.0 §3.8.1 (selectors), §6.2.12 (what is pending is what a browser shows).
    """
    asked = _Asked(factory, destinations, user, password)
    if pending:
        if (starting, ending) != (EARLIEST, LATEST):
            raise ValueError("pending: give neither starting nor ending; pending messages have fixed places")
        require_kafka(spark)
        settings = {**asked.common(), **(options or {})}
        records = pending_records(spark, factory, asked.queues(), settings, user, password)
        return _pending(records, asked, selector)
    asked.require(options or {})
    settings = {**asked.options(starting, "starting"), **asked.place(ending, "ending"), **(options or {})}
    require_kafka(spark)
    frame = with_helpers(spark.read.format("kafka").options(**settings).load())
    return decoded(selected(frame, selector), asked.destination())


def sized_batch(
    spark: SparkSession,
    factory: ConnectionFactory,
    destinations: Sequence[Destination],
    *,
    starting: Place,
    ending: Place,
    user: str | None,
    password: str | None,
) -> DataFrame:
    """Return the messages of *destinations*, with ``at``, where each was read, and ``size``, of its body in bytes."""
    asked = _Asked(factory, destinations, user, password)
    asked.require({})
    settings = {**asked.options(starting, "starting"), **asked.place(ending, "ending")}
    require_kafka(spark)
    records = with_helpers(spark.read.format("kafka").options(**settings).load())
    more = (f"{asked.destination()} AS at", "coalesce(octet_length(value), 0) AS size")
    return decoded(records, asked.destination(), more)


@checked
def read_stream(
    spark: SparkSession,
    factory: ConnectionFactory,
    destinations: Destinations,
    *,
    selector: str | None = None,
    starting: Place = LATEST,
    options: Mapping[str, str] | None = None,
    user: str | None = None,
    password: str | None = None,
) -> DataFrame:
    """Return a streaming frame of the messages of *destinations*; nothing is consumed. Arguments as `read_batch`.

    Where a query starts that has no checkpoint is *starting*; one that has continues where it was.
    """
    frame, destination = stream_of(spark, factory, destinations, starting, options, user, password)
    return decoded(selected(with_helpers(frame), selector), destination)


def stream_of(
    spark: SparkSession,
    factory: ConnectionFactory,
    destinations: Destinations,
    starting: Place,
    options: Mapping[str, str] | None,
    user: str | None,
    password: str | None,
) -> tuple[DataFrame, str]:
    """Return the records that `read_stream` reads, and the struct of the destination of each, as text of SQL."""
    asked = _Asked(factory, destinations, user, password)
    asked.require(options or {})
    settings = {**asked.options(starting, "starting"), **(options or {})}
    require_kafka(spark)
    return spark.readStream.format("kafka").options(**settings).load(), asked.destination()


def _pending(records: DataFrame, asked: _Asked, selector: str | None) -> DataFrame:
    """Return the messages of *records*, of which it is known how often they were delivered, that are to be seen now."""
    counted = with_helpers(records).selectExpr("*", f"{DELIVERIES} + 1 AS deliveryCount")
    wanted = selected(counted, selector, Record(count="CAST(deliveryCount AS STRING)"))
    more = ("deliveryCount", "deliveryCount > 1 AS redelivered")
    now = time.time_ns() // 1_000_000
    is_seen = f"NOT expiration BETWEEN 1 AND {now - 1} AND deliveryTime <= greatest({now}, `timestamp`)"
    return decoded(wanted, asked.destination(), more).where(is_seen)


def topics_among(factory: ConnectionFactory, destinations: Destinations, there: Collection[str]) -> list[str]:
    """Return those of the Kafka topics *there* that `read_stream` reads.

    Raises:
        ValueError: Only Java understands the pattern.
    """
    return _Asked(factory, destinations, None, None).among(there)


class _Asked:
    """What is to be read, in the words of Spark's Kafka source."""

    def __init__(
        self, factory: ConnectionFactory, destinations: Destinations, user: str | None, password: str | None
    ) -> None:
        self._factory = factory
        self._user = user
        self._password = password
        if isinstance(destinations, Pattern):
            self._pattern: Pattern | None = destinations
            self._topics: dict[str, Destination] = {}
            return
        self._pattern = None
        given = [destinations] if isinstance(destinations, Destination) else list(destinations)
        if not given or not all(isinstance(each, Destination) for each in given):
            raise InvalidDestinationException(f"destinations must be queues and topics, not {shown(destinations)}")
        self._topics = {topic_of(factory, each): each for each in given}

    def among(self, there: Collection[str]) -> list[str]:
        """Return those of the Kafka topics *there* that are read.

        Raises:
            ValueError: Only Java understands the pattern.
        """
        if self._pattern is None:
            return [topic for topic in self._topics if topic in there]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # Python 3.10 only warns of global flags that are not at the start
                is_read = re.compile(_read_by(self._pattern)).search
        except (re.error, DeprecationWarning) as error:
            raise ValueError(
                f"an archive's pattern is read by Java and by Python, and {self._pattern.expression!r} only by Java:"
                f" {getattr(error, 'msg', error)}"
            ) from error
        return [topic for topic in there if is_read(topic)]

    def queues(self) -> dict[str, Queue]:
        """Return what is read, by Kafka topic.

        Raises:
            InvalidDestinationException: Others than queues are read.
        """
        queues = {topic: each for topic, each in self._topics.items() if type(each) is Queue}
        if self._pattern is not None or len(queues) < len(self._topics):
            raise InvalidDestinationException(
                "pending: give queues by their names; a pattern or a topic has no pending messages"
            )
        return queues

    def require(self, options: Mapping[str, str]) -> None:
        """Raise what is wrong where a destination is not there: Spark's own error does not say which.

        The cluster is not asked where *options* of Spark's say how to reach the cluster: kjms may have no way to it.

        Raises:
            InvalidDestinationException: There is no such destination.
            JMSException: The broker does not answer.
        """
        if not self._topics or any(name.startswith("kafka.") for name in options):
            return
        with connected(self._factory, self._user, self._password) as connection:
            for topic, destination in self._topics.items():
                if not engine_of(connection).admin.partitions(topic):
                    raise InvalidDestinationException(f"there is no {destination}: no Kafka topic {topic!r}")

    def options(self, start: Place, which: str) -> dict[str, str]:
        """Return all options but those that say where a batch ends."""
        if self._pattern is not None:
            what = {"subscribePattern": _read_by(self._pattern)}
        else:
            what = {"subscribe": ",".join(self._topics)}
        return {**self.common(), **what, **self.place(start, which)}

    def common(self) -> dict[str, str]:
        """Return the options that do not depend on what is read."""
        return source_options(self._factory, self._user, self._password)

    def place(self, place: Place, which: str) -> dict[str, str]:
        """Return the options for where to begin or to end; *which* is ``starting`` or ``ending``."""
        if isinstance(place, str) and place in _NAMED_OFFSETS:
            return {f"{which}Offsets": place}
        if isinstance(place, datetime):
            place = round(place.timestamp() * 1000)
        if isinstance(place, int) and not isinstance(place, bool):
            if which == "starting":
                return {"startingTimestamp": str(place), "startingOffsetsByTimestampStrategy": LATEST}
            return {"endingTimestamp": str(place)}
        if self._pattern is None and isinstance(place, (Subscription, Mapping)):
            return {f"{which}Offsets": json.dumps(self._offsets(place, EARLIEST if which == "starting" else LATEST))}
        raise ValueError(
            f"{which}: a place is 'earliest', 'latest', a time, a subscription or the offsets of partitions"
            f"{' (the last two not with a pattern)' if self._pattern else ''}, unlike {shown(place)}"
        )

    def _offsets(self, place: Subscription | Mapping[tuple[Destination, int], int], other: str) -> dict[str, Any]:
        """Return the offset of each partition, as Spark wants it."""
        with connected(self._factory, self._user, self._password) as connection:
            admin = engine_of(connection).admin
            counts = {topic: admin.partitions(topic) for topic in self._topics}
            known = (
                _standing(connection, place)
                if isinstance(place, Subscription)
                else {
                    (topic_of(self._factory, destination), number): offset
                    for (destination, number), offset in place.items()
                }
            )
        unknown = [topic for topic, _ in known if topic not in counts]
        if unknown:
            raise InvalidDestinationException(f"offsets are given for {unknown[0]!r}, which is not read")
        return {
            topic: {str(number): known.get((topic, number), _NAMED_OFFSETS[other]) for number in range(count)}
            for topic, count in counts.items()
        }

    def destination(self) -> str:
        """Return the struct of the destination that a record was read from, as text of SQL."""
        if self._pattern is None:
            branches = "".join(
                f" WHEN {quoted(topic)} THEN {destination_struct(each)}" for topic, each in self._topics.items()
            )
            return f"CASE topic{branches} END"
        options = options_of(self._factory)
        prefix = options.queue_prefix if issubclass(self._pattern.kind, Queue) else options.topic_prefix
        rest = f"substring(topic, {len(prefix) + 1})"
        read = f"try_url_decode(replace(substring({rest}, 3), '-', '%'))"
        name = f"coalesce(CASE WHEN {rest} RLIKE {regex(_ESCAPED)} THEN {read} END, {rest})"
        return _struct(self._pattern.kind.scheme, name)


def _read_by(pattern: Pattern) -> str:
    """Return an expression that Spark finds in the names of the Kafka topics that *pattern* reads, and in no other.

    Spark takes a topic if the expression fits any part of its name.
    """
    return f"^{INTERNAL}(?:{pattern.expression})$"


def destination_struct(destination: Destination) -> str:
    """Return the struct of *destination*, as text of SQL."""
    return _struct(destination.scheme, quoted(destination._name))


def _struct(scheme: str, name: str) -> str:
    return f"named_struct('destinationType', '{scheme}', 'name', {name})"


def _standing(connection: Connection, subscription: Subscription) -> dict[tuple[str, int], int]:
    """Return what the subscription has settled from the beginning on, by topic and partition.

    Raises:
        InvalidDestinationException: There is no such subscription.
        JMSException: Kafka does not say.
    """
    admin = engine_of(connection).admin
    for found in admin.subscriptions():
        if (found.identity.name, found.identity.client_id) == (subscription.name, subscription.client_id):
            topic = found.terms.topic
            return {(topic, number): offset for number, offset in admin.committed(found.group, topic).items()}
    whose = "" if subscription.client_id is None else f" of client {subscription.client_id!r}"
    raise InvalidDestinationException(f"there is no subscription {subscription.name!r}{whose}")
