"""``kjms subscriptions``: which named subscriptions there are, what waits in them, and deleting them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from kjms.cli import WrongUse
from kjms.cli._connecting import add_connection_options, connect
from kjms.cli._destinations import waiting
from kjms.cli._terminal import columns, json_text, say
from kjms.client.engine_access import engine_of
from kjms.engine import DURABLE

if TYPE_CHECKING:
    from kjms import Connection

DESCRIPTION: Final = """\
List the subscriptions that have a name, those without an open consumer included, or delete a durable one.

STATE is 'active' where a consumer is open in any program, 'inactive' where none is, and 'not answering' where one was
and its program has not answered for a second: it is busy, asleep or gone. BACKLOG counts what its consumers have not
settled; it is an upper bound: it counts Kafka's offsets, and not every offset is a message the subscription wants.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    parser.add_argument("action", nargs="?", choices=["list", "delete"], default="list", help="list is the default")
    parser.add_argument("name", nargs="?", metavar="NAME", help="the subscription to delete; its messages go with it")
    parser.add_argument(
        "--client-id", metavar="ID", help="delete: the client identifier that it belongs to, if it has one"
    )
    parser.add_argument("--json", action="store_true", help="list: as a JSON array, one object for each subscription")
    add_connection_options(parser)


@dataclass(frozen=True)
class Entry:
    """What is known of a subscription."""

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
    """What its consumers have not settled, at most; None where its Kafka topic is gone."""
    group: str
    """Kafka's name of its consumer group."""


def run(arguments: argparse.Namespace) -> int:
    """Print the subscriptions, or delete one.

    Raises:
        WrongUse: Arguments are missing, or are too many.
        InvalidDestinationException: There is no durable subscription of that name.
        IllegalStateException: It has an open consumer.
        JMSException: The cluster did not say what was asked.
    """
    if arguments.action == "delete":
        if arguments.name is None or arguments.json:
            raise WrongUse("delete: give the name of the subscription, and no --json")
        with connect(arguments, may_create=False) as connection:
            engine_of(connection).admin.remove_subscription(arguments.name, arguments.client_id)
        say("subscriptions", f"{arguments.name} is deleted")
        return 0
    if arguments.name is not None or arguments.client_id is not None:
        raise WrongUse("list: takes neither a name nor --client-id")
    with connect(arguments, may_create=False) as connection:
        entries = find_entries(connection)
    if arguments.json:
        print(json_text([asdict(entry) for entry in entries], indent=2))
    else:
        print(table(entries))
    return 0


def find_entries(connection: Connection) -> list[Entry]:
    """Return the subscriptions of the cluster of *connection*, sorted by name.

    Raises:
        JMSException: Kafka did not say what was asked.
    """
    cluster = engine_of(connection).admin
    topics = cluster.topics()
    found = cluster.subscriptions()
    spans = cluster.spans({f.terms.topic: topics[f.terms.topic] for f in found if f.terms.topic in topics})
    settled = cluster.settled({f.group: str(f.identity) for f in found if f.terms.topic in spans})
    entries = []
    for subscription in found:
        topic = subscription.terms.topic
        span = spans.get(topic)
        entries.append(
            Entry(
                name=subscription.identity.name,
                client_id=subscription.identity.client_id,
                durable=subscription.identity.space == DURABLE,
                shared=subscription.terms.is_shared,
                topic=subscription.terms.destination.topic_name,
                selector=None if subscription.terms.selector is None else subscription.terms.selector.text,
                no_local=subscription.terms.no_local,
                state=subscription.state,
                backlog_up_to=None if span is None else waiting(span, settled[subscription.group].get(topic, {})),
                group=subscription.group,
            )
        )
    return entries


def table(entries: Sequence[Entry]) -> str:
    """Return *entries* in aligned columns."""
    if not entries:
        return "There are no subscriptions."
    rows = [("SUBSCRIPTION", "CLIENT ID", "KIND", "TOPIC", "STATE", "BACKLOG UP TO", "GROUP", "WANTS")]
    rows += [
        (
            entry.name,
            entry.client_id or "-",
            " ".join(["shared"] * entry.shared + ["durable" if entry.durable else "non-durable"]),
            entry.topic,
            entry.state,
            "-" if entry.backlog_up_to is None else f"{entry.backlog_up_to:,}",
            entry.group,
            ", ".join([entry.selector or "all"] + ["not its own"] * entry.no_local),
        )
        for entry in entries
    ]
    return "\n".join(columns(rows, right=[5]))
