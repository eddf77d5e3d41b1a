"""``kjms subscriptions``: list named subscriptions and their backlog, or delete one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from kjms.cli import FAILED, WrongUse
from kjms.cli._connecting import add_connection_options, connect
from kjms.cli._queues import Reporter, check_confirmed, report
from kjms.cli._receive import check_selector, count
from kjms.cli._terminal import agrees, columns, json_text, say

if TYPE_CHECKING:
    from kjms.admin import SubscriptionFigures

DESCRIPTION: Final = """\
List all named subscriptions, including those without an open consumer, delete a durable one, or purge it: delete the
messages that wait for it.

STATE is 'active' if a program has an open consumer, 'inactive' if no program has one, and 'not answering' if a program
had one and does not answer for a second. BACKLOG is an upper bound of the messages that the subscription has not
settled: it counts offsets, and not every offset is a message that the subscription receives.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    parser.add_argument(
        "action", nargs="?", choices=["list", "delete", "purge"], default="list", help="run this action (default: list)"
    )
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="delete: delete this subscription and its messages; purge: its messages"
    )
    parser.add_argument(
        "--client-id",
        metavar="ID",
        help="delete, purge: use the subscription of this client identifier (default: none)",
    )
    parser.add_argument("--selector", metavar="TEXT", help="purge: delete only messages that match this selector")
    parser.add_argument("--limit", metavar="N", type=count, help="purge: delete at most N messages")
    parser.add_argument("--dry-run", action="store_true", help="purge: report the number, and delete nothing")
    parser.add_argument("--yes", action="store_true", help="purge: do not ask for confirmation")
    parser.add_argument(
        "--json",
        action="store_true",
        help="list: write a JSON array with one object per subscription; purge: an object",
    )
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
    from kjms.admin import Admin

    purging = [name for name in ("selector", "limit", "dry_run", "yes") if getattr(arguments, name)]
    if arguments.action == "purge":
        return _purge(arguments)
    if purging:
        raise WrongUse(f"{arguments.action}: --{purging[0].replace('_', '-')} is an option of purge only")
    if arguments.action == "delete":
        if arguments.name is None or arguments.json:
            raise WrongUse("delete: give the name of the subscription; --json is an option of list only")
        with connect(arguments, may_create=False) as connection, Admin.of(connection) as admin:
            admin.unsubscribe(arguments.name, arguments.client_id)
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


def _purge(arguments: argparse.Namespace) -> int:
    from kjms.admin import Admin, Changed, Subscription

    if arguments.name is None:
        raise WrongUse("purge: give the name of the subscription")
    check_confirmed(arguments, {"purge"})
    check_selector(arguments.selector)
    named = Subscription(arguments.name, arguments.client_id)
    with connect(arguments, may_create=False) as connection, Admin.of(connection) as admin:
        if arguments.dry_run or not arguments.yes:
            counting = Reporter("subscriptions", "counted")
            wanted = admin.count(named, arguments.selector, limit=arguments.limit, progress=counting)
            if arguments.dry_run:
                return report("subscriptions", arguments, "would be deleted", Changed(wanted), named)
            if wanted and not agrees(f"Permanently delete {wanted:,} messages of {named}?"):
                say("subscriptions", "nothing was deleted")
                return FAILED
        reporter = Reporter("subscriptions", "deleted")
        with reporter.interruptible():
            changed = admin.purge(named, arguments.selector, limit=arguments.limit, progress=reporter)
    return report("subscriptions", arguments, "deleted", changed, named)


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
