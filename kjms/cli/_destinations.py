"""``kjms destinations``: list queues and topics, and count the messages that wait in them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from kjms.cli._connecting import add_connection_options, connect
from kjms.cli._queues import Reporter
from kjms.cli._terminal import columns, escaped, json_text

if TYPE_CHECKING:
    from kjms.admin import DestinationFigures

DESCRIPTION: Final = """\
List the cluster's Kafka topics as JMS destinations. KIND is 'queue' if kjms created the topic for a queue, a consumer
has received from it as a queue, or it is the dead-letter queue of one; 'kjms queues' lists these. It is 'topic' if kjms
made or consumed it first as a topic. Otherwise Kafka does not have this information, and KIND is '-'.

WAITING is the number of messages of a queue that its consumers have not settled, without expired and delayed messages.
The command reads these messages to count them; with --estimate, it reads nothing and shows an upper bound. KEPT is an
upper bound of the messages that Kafka keeps: it counts offsets, and Kafka does not use every offset for a message.
"""


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
    """``queue``, ``topic``, or None if Kafka does not have this information."""
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
    from kjms.admin import Admin

    with connect(arguments, may_create=False) as connection, Admin.of(connection) as admin:
        progress = Reporter("destinations", "counted")
        counted = admin.destinations(internal=arguments.all, estimate=arguments.estimate, progress=progress)
        entries = [entry(each) for each in counted]
    if arguments.json:
        print(json_text([asdict(entry) for entry in entries], indent=2))
    else:
        print(table(entries, is_exact=not arguments.estimate))
    return 0


def entry(figures: DestinationFigures) -> Entry:
    """Return the line of the list that says *figures*."""
    return Entry(
        name=figures.name,
        kind=figures.kind,
        topic=figures.topic,
        partitions=figures.partitions,
        waiting=figures.depth,
        waiting_up_to=figures.depth_up_to,
        kept_up_to=figures.kept_up_to,
        retention_ms=figures.retention_ms,
        warnings=figures.warnings,
    )


def table(entries: Sequence[Entry], *, is_exact: bool = True) -> str:
    """Return *entries* in aligned columns, warnings below."""
    if not entries:
        return "There are no destinations yet."
    rows = [("DESTINATION", "KIND", "PARTITIONS", "WAITING" if is_exact else "WAITING UP TO", "KEPT UP TO")]
    rows += [
        (
            each.name,
            each.kind or "-",
            str(each.partitions),
            _number(each.waiting if is_exact else each.waiting_up_to),
            _number(each.kept_up_to),
        )
        for each in entries
    ]
    lines = columns(rows, right=[2, 3, 4])
    warnings = [warning for each in entries for warning in each.warnings]
    if warnings:
        lines += ["", *(f"! {escaped(warning)}" for warning in warnings)]
    return "\n".join(lines)


def _number(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"
