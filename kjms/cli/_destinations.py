"""``kjms destinations``: list queues and topics, and count the messages that wait in them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

from kjms.cli._connecting import add_connection_options, connect
from kjms.cli._terminal import columns, escaped, json_text
from kjms.client.engine_access import engine_of
from kjms.destinations import Queue, Topic
from kjms.errors import InvalidDestinationException, JMSException
from kjms.mapping.names import destination_for, handover, is_internal, overflow, queue_group

if TYPE_CHECKING:
    from kjms import Connection

DESCRIPTION: Final = """\
List the cluster's Kafka topics as JMS destinations. KIND is 'queue' once a consumer has received from the topic as a
queue. Before that, and for JMS topics, Kafka does not have this information, and KIND is '-'.

WAITING is the number of messages of a queue that its consumers have not settled, without expired and delayed messages.
The command reads these messages to count them; with --estimate, it reads nothing and shows an upper bound. KEPT is an
upper bound of the messages that Kafka keeps: it counts offsets, and Kafka does not use every offset for a message.
"""

RETENTION: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
CLEANUP: Final = "cleanup.policy"
UNLIMITED: Final = "-1"
COUNTED_AT_ONCE: Final = 4  # queues; each takes a Kafka consumer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    parser.add_argument("--all", action="store_true", help="include the internal topics of kjms and Kafka")
    parser.add_argument(
        "--estimate", action="store_true", help="show an upper bound of the waiting messages, and do not read them"
    )
    parser.add_argument("--json", action="store_true", help="write a JSON array with one object per destination")
    add_connection_options(parser)


@dataclass(frozen=True)
class Entry:
    """A Kafka topic in the list of destinations."""

    name: str
    kind: str | None
    """``queue``, or None if it was not consumed as one."""
    topic: str
    """The Kafka topic's name."""
    partitions: int
    waiting: int | None
    """The messages that a queue's consumers have not settled; None if it is not a queue, or they were not counted."""
    waiting_up_to: int | None
    """The upper bound of it that Kafka's offsets give; None if it is not a queue."""
    kept_up_to: int
    """An upper bound of the messages that Kafka keeps."""
    retention_ms: int | None
    """The milliseconds after which Kafka deletes messages; None: never."""
    warnings: tuple[str, ...]


def run(arguments: argparse.Namespace) -> int:
    """Print the destinations.

    Raises:
        JMSException: The cluster did not answer.
    """
    with connect(arguments, may_create=False) as connection:
        entries = find_entries(connection, with_internal=arguments.all, is_exact=not arguments.estimate)
    if arguments.json:
        print(json_text([asdict(entry) for entry in entries], indent=2))
    else:
        print(table(entries, is_exact=not arguments.estimate))
    return 0


def find_entries(connection: Connection, *, with_internal: bool, is_exact: bool = True) -> list[Entry]:
    """Return the destinations of the cluster of *connection*, sorted by name, without topics that change meanwhile.

    Args:
        connection: The connection.
        with_internal: Whether to include the internal topics of kjms and Kafka.
        is_exact: Whether to count the waiting messages one by one.

    Raises:
        JMSException: Kafka did not answer.
    """
    options = connection._options
    cluster = engine_of(connection).admin
    everything = cluster.topics()
    topics = {
        topic: partitions
        for topic, partitions in everything.items()
        if with_internal or not (is_internal(topic) or topic.startswith("__"))
    }
    groups = cluster.groups()
    queues = [topic for topic in topics if queue_group(topic) in groups]
    beside = {topic: _beside(topic, everything) for topic in queues}
    spans = cluster.spans(topics | {each: everything[each] for found in beside.values() for each in found})
    settings = cluster.settings(topics, (RETENTION, RETENTION_BYTES, CLEANUP))
    committed = cluster.settled({queue_group(topic): repr(topic) for topic in queues})
    settled = {topic: committed[queue_group(topic)] for topic in queues}
    names = {
        topic: _name(topic, topic in settled, options.queue_prefix, options.topic_prefix)
        for topic in topics.keys() & spans.keys() & settings.keys()
    }
    may_wait = [
        topic
        for topic in settled.keys() & names.keys()
        if any(waiting(spans.get(each, ()), settled[topic].get(each, {})) for each in (topic, *beside[topic]))
    ]
    counts = _counts(connection, may_wait) if is_exact else {}
    entries = []
    for topic, name in names.items():
        is_queue = topic in settled
        counted = counts.get(topic, 0) if is_exact and is_queue else None
        warnings = retention_warnings(name, settings[topic]) if is_queue else ()
        if isinstance(counted, JMSException):
            warnings += (f"Cannot count the messages that wait in queue {name}: {counted}",)
        entries.append(
            Entry(
                name=name,
                kind="queue" if is_queue else None,
                topic=topic,
                partitions=len(spans[topic]),
                waiting=counted if isinstance(counted, int) else None,
                waiting_up_to=waiting(spans[topic], settled[topic].get(topic, {})) if is_queue else None,
                kept_up_to=sum(end - begin for begin, end in spans[topic]),
                retention_ms=_retention(settings[topic]),
                warnings=warnings,
            )
        )
    return sorted(entries, key=lambda entry: entry.name)


def _beside(topic: str, topics: Iterable[str]) -> list[str]:
    """Return those of *topics* that hold messages of the queue *topic* which were relocated or handed over."""
    group = queue_group(topic)
    return [each for each in (overflow(topic, group), handover(topic, group)) if each in topics]


def _counts(connection: Connection, topics: Sequence[str]) -> dict[str, int | JMSException]:
    """Return how many messages wait in each queue of the Kafka *topics*, or why they cannot be counted."""

    def count(topic: str) -> int | JMSException:
        try:
            return _count(connection, topic)
        except JMSException as error:
            return error

    with ThreadPoolExecutor(COUNTED_AT_ONCE) as pool:
        return dict(zip(topics, pool.map(count, topics), strict=True))


def _count(connection: Connection, topic: str) -> int:
    """Return how many messages of the queue with the Kafka topic *topic* wait: those that a browser shows.

    Raises:
        JMSException: The broker does not answer, or refuses to let them be read.
    """
    options = connection._options
    try:
        queue = destination_for(topic, Queue, options.queue_prefix)
    except InvalidDestinationException:  # no prefix of ours: not a destination of kjms
        options = replace(options, queue_prefix="")
        queue = destination_for(topic, Queue)
    assert isinstance(queue, Queue)
    browsing = engine_of(connection).browse(queue, options, None)
    try:
        return sum(1 for _ in iter(browsing.next, None))
    finally:
        browsing.close()


def _name(topic: str, is_queue: bool, queue_prefix: str, topic_prefix: str) -> str:
    try:
        return str(destination_for(topic, Queue if is_queue else Topic, queue_prefix, topic_prefix)).partition("://")[2]
    except InvalidDestinationException:  # no prefix of ours: not a destination of kjms
        return topic


def waiting(spans: Sequence[tuple[int, int]], settled: Mapping[int, int]) -> int:
    """Return how many offsets lie between what is settled and the end, over all partitions.

    Args:
        spans: The first offset and the one after the last, by partition.
        settled: The offsets that the queue's group has committed; a partition may be missing.

    >>> waiting([(0, 10), (5, 8)], {0: 4})
    9
    """
    return sum(end - max(begin, min(end, settled.get(number, begin))) for number, (begin, end) in enumerate(spans))


def _retention(settings: Mapping[str, str]) -> int | None:
    """Return after how many milliseconds Kafka deletes messages of a topic with these settings; None is never."""
    value = settings.get(RETENTION, UNLIMITED)
    return None if value == UNLIMITED or "delete" not in settings.get(CLEANUP, "delete") else int(value)


def retention_warnings(queue: str, settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each setting that lets Kafka delete messages of *queue* before they are received.

    >>> retention_warnings("orders", {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"})
    ()
    """
    found = []
    policy = settings.get(CLEANUP, "delete")
    age = _retention(settings)
    if age is not None:
        found.append(
            f"after {duration(age)}, received or not: {RETENTION}={age}, and {RETENTION}={UNLIMITED} keeps them"
        )
    size = settings.get(RETENTION_BYTES, UNLIMITED)
    if size != UNLIMITED and "delete" in policy:
        found.append(
            f"beyond {int(size):,} bytes in a partition, received or not: {RETENTION_BYTES}={size}, and"
            f" {RETENTION_BYTES}={UNLIMITED} keeps them"
        )
    if "compact" in policy:
        found.append(f"of the same group (record key) but the last, received or not: {CLEANUP}={policy}")
    return tuple(f"Kafka deletes messages of queue {queue} {how}" for how in found)


def duration(milliseconds: int) -> str:
    """Return *milliseconds* in the largest unit that gives a whole number.

    >>> duration(604_800_000), duration(90_000)
    ('7 days', '90 seconds')
    """
    for unit, size in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000)):
        if milliseconds >= size and milliseconds % size == 0:
            count = milliseconds // size
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{milliseconds} ms"


def table(entries: Sequence[Entry], *, is_exact: bool = True) -> str:
    """Return *entries* in aligned columns, warnings below."""
    if not entries:
        return "There are no destinations yet."
    rows = [("DESTINATION", "KIND", "PARTITIONS", "WAITING" if is_exact else "WAITING UP TO", "KEPT UP TO")]
    rows += [
        (
            entry.name,
            entry.kind or "-",
            str(entry.partitions),
            _number(entry.waiting if is_exact else entry.waiting_up_to),
            _number(entry.kept_up_to),
        )
        for entry in entries
    ]
    lines = columns(rows, right=[2, 3, 4])
    warnings = [warning for entry in entries for warning in entry.warnings]
    if warnings:
        lines += ["", *(f"! {escaped(warning)}" for warning in warnings)]
    return "\n".join(lines)


def _number(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"
