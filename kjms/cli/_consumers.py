"""``kjms consumers``: list the programs that consume queues and named subscriptions."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from kjms.admin import Admin, ConsumerFigures
from kjms.cli._connecting import add_connection_options, connect
from kjms.cli._terminal import columns, json_text

DESCRIPTION: Final = """\
List the processes that consume queues and named subscriptions: one line for each queue or subscription of a process,
however many consumers it has there.

APPLICATION is the name that a program has by ConnectionFactory(application=...), or that of what was started. Programs
that set client.id themselves, and programs without kjms, have '-' for application, host and process. ADDRESS is the
address from which the process connects. PARTITIONS are those of the Kafka topic that it holds. IN FLIGHT is the number
of messages that it has received and not settled, without those that it got from other processes by handover.

Consumers of a topic without a subscription name are in no consumer group, and Kafka does not list them.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    parser.add_argument(
        "destination", nargs="?", metavar="NAME", help="list only the consumers of this queue or subscription"
    )
    parser.add_argument(
        "--estimate", action="store_true", help="do not count messages in flight, for which the command reads messages"
    )
    parser.add_argument("--json", action="store_true", help="write a JSON array with one object per line of the table")
    add_connection_options(parser)


@dataclass(frozen=True)
class Entry:
    """A process that consumes a queue or subscription."""

    destination: str
    """``queue://NAME``, or the topic of the subscription."""
    subscription: str | None
    application: str | None
    """The name of its program; None if its ``client.id`` does not say it."""
    host_name: str | None
    process_id: int | None
    address: str
    """The address from which it connects."""
    client_id: str
    """Kafka's ``client.id``."""
    group: str
    """Kafka's name of the consumer group."""
    member_id: str
    partitions: tuple[int, ...]
    in_flight: int | None
    """The messages that it has received and not settled; None if they were not counted."""


def run(arguments: argparse.Namespace) -> int:
    """Print the consumers.

    Raises:
        JMSException: The cluster did not answer.
    """
    with connect(arguments, may_create=False) as connection, Admin.of(connection) as admin:
        entries = [entry(each) for each in admin.consumers(in_flight=not arguments.estimate)]
    wanted = arguments.destination
    if wanted is not None:
        names = {wanted, f"queue://{wanted}"}
        entries = [each for each in entries if each.destination in names or each.subscription == wanted]
    if arguments.json:
        print(json_text([asdict(each) for each in entries], indent=2))
    else:
        print(table(entries, wanted))
    return 0


def entry(figures: ConsumerFigures) -> Entry:
    """Return the line of the list that says *figures*."""
    return Entry(
        destination=str(figures.destination),
        subscription=figures.subscription,
        application=figures.application,
        host_name=figures.host_name,
        process_id=figures.process_id,
        address=figures.host.lstrip("/"),
        client_id=figures.client_id,
        group=figures.group,
        member_id=figures.member_id,
        partitions=figures.partitions,
        in_flight=figures.in_flight,
    )


def table(entries: Sequence[Entry], wanted: str | None = None) -> str:
    """Return *entries* in aligned columns."""
    if not entries:
        return "No program consumes a queue or subscription." if wanted is None else f"No program consumes {wanted}."
    rows = [("CONSUMES", "APPLICATION", "HOST", "PROCESS", "ADDRESS", "PARTITIONS", "IN FLIGHT")]
    rows += [
        (
            each.destination if each.subscription is None else f"{each.subscription} of {each.destination}",
            each.application or "-",
            each.host_name or "-",
            "-" if each.process_id is None else str(each.process_id),
            each.address,
            ", ".join(map(str, each.partitions)) or "-",
            "-" if each.in_flight is None else f"{each.in_flight:,}",
        )
        for each in entries
    ]
    return "\n".join(columns(rows, right=[3, 6]))
