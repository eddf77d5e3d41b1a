"""``kjms subscriptions``: list named subscriptions and their backlog, or delete one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from kjms.admin import Admin, SubscriptionFigures
from kjms.cli import WrongUse
from kjms.cli._connecting import add_connection_options, connect
from kjms.cli._terminal import columns, json_text, say
from kjms.client.engine_access import engine_of

DESCRIPTION: Final = """\
List all named subscriptions, including those without an open consumer, or delete a durable one.

STATE is 'active' if a program has an open consumer, 'inactive' if no program has one, and 'not answering' if a program
had one and does not answer for a second. BACKLOG is an upper bound of the messages that the subscription has not
settled: it counts offsets, and not every offset is a message that the subscription receives.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    parser.add_argument(
        "action", nargs="?", choices=["list", "delete"], default="list", help="run this action (default: list)"
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="delete: delete this subscription and its messages")
    parser.add_argument(
        "--client-id", metavar="ID", help="delete: delete the subscription of this client identifier (default: none)"
    )
    parser.add_argument("--json", action="store_true", help="list: write a JSON array with one object per subscription")
    add_connection_options(parser)


@dataclass(frozen=True)
class Entry:
    """A subscription in the list."""

    name: str
    client_id: str | None
    durable: bool
    shared: bool
    topic: str
    """The name of the JMS topic."""
    selector: str | None
    no_local: bool
    state: str
    """``active``, ``inactive`` or ``not answering``."""
    backlog_up_to: int | None
    """An upper bound of its unsettled messages; None if its Kafka topic does not exist."""
    group: str
    """Kafka's name of its consumer group."""


def run(arguments: argparse.Namespace) -> int:
    """Print the subscriptions, or delete one.

    Raises:
        WrongUse: Arguments are missing, or are too many.
        InvalidDestinationException: There is no durable subscription of that name.
        IllegalStateException: It has an open consumer.
        JMSException: The cluster did not answer.
    """
    if arguments.action == "delete":
        if arguments.name is None or arguments.json:
            raise WrongUse("delete: give the name of the subscription; --json is an option of list only")
        with connect(arguments, may_create=False) as connection:
            engine_of(connection).admin.remove_subscription(arguments.name, arguments.client_id)
        say("subscriptions", f"{arguments.name} was deleted")
        return 0
    if arguments.name is not None or arguments.client_id is not None:
        raise WrongUse("list: give neither a name nor --client-id")
    with connect(arguments, may_create=False) as connection, Admin.of(connection) as admin:
        entries = [entry(each) for each in admin.subscriptions(estimate=True)]
    if arguments.json:
        print(json_text([asdict(entry) for entry in entries], indent=2))
    else:
        print(table(entries))
    return 0


def entry(figures: SubscriptionFigures) -> Entry:
    """Return the line of the list that says *figures*."""
    return Entry(
        name=figures.name,
        client_id=figures.client_id,
        durable=figures.durable,
        shared=figures.shared,
        topic=figures.topic,
        selector=figures.selector,
        no_local=figures.no_local,
        state=figures.state,
        backlog_up_to=figures.depth_up_to,
        group=figures.group,
    )


def table(entries: Sequence[Entry]) -> str:
    """Return *entries* in aligned columns."""
    if not entries:
        return "There are no subscriptions."
    rows = [("SUBSCRIPTION", "CLIENT ID", "KIND", "TOPIC", "STATE", "BACKLOG UP TO", "GROUP", "SELECTOR")]
    rows += [
        (
            entry.name,
            entry.client_id or "-",
            " ".join(["shared"] * entry.shared + ["durable" if entry.durable else "non-durable"]),
            entry.topic,
            entry.state,
            "-" if entry.backlog_up_to is None else f"{entry.backlog_up_to:,}",
            entry.group,
            ", ".join([entry.selector or "all"] + ["no-local"] * entry.no_local),
        )
        for entry in entries
    ]
    return "\n".join(columns(rows, right=[5]))
