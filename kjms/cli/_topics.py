"""``kjms topics``: create and delete topics."""

from __future__ import annotations

import argparse
from typing import Final

from kjms.cli import FAILED, WrongUse
from kjms.cli._connecting import add_connection_options, connect, destination
from kjms.cli._queues import add_creating_options, check_confirmed
from kjms.cli._terminal import agrees, say
from kjms.destinations import Topic

DESCRIPTION: Final = """\
Create and delete topics. 'kjms destinations' lists them.

  create  Create TOPIC. Programs that use a topic create it themselves, unless their configuration forbids it.
  delete  Delete TOPIC with all its messages. The command refuses it while the topic has named subscriptions.
"""
EXAMPLES: Final = """\
examples:
  kjms topics create prices --partitions 4 --set retention.ms=86400000
  kjms topics delete prices --yes
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    parser.add_argument("action", choices=["create", "delete"], help="run this action")
    parser.add_argument("topic", metavar="TOPIC", type=topic, help="use this topic: NAME or topic://NAME")
    add_creating_options(parser)
    parser.add_argument("--yes", action="store_true", help="delete: do not ask for confirmation")
    add_connection_options(parser)


def topic(text: str) -> Topic:
    """Return the topic that *text* names, with or without ``topic://``; a type for argparse."""
    named = destination(text if "://" in text else f"topic://{text}")
    if not isinstance(named, Topic):
        raise argparse.ArgumentTypeError(f"{text!r} is not a topic: write NAME or topic://NAME")
    return named


def run(arguments: argparse.Namespace) -> int:
    """Do what *arguments* say.

    Raises:
        WrongUse: Arguments do not fit the action.
        InvalidDestinationException: There is no such topic, or there is one already.
        IllegalStateException: A topic that is to be deleted has subscriptions.
        JMSException: The broker does not answer, or refuses it.
    """
    is_new = arguments.action == "create"
    if not is_new and (arguments.partitions or arguments.settings):
        raise WrongUse("delete: --partitions and --set are options of create only")
    if is_new and arguments.yes:
        raise WrongUse("create: --yes is an option of delete only")
    check_confirmed(arguments, {"delete"})
    from kjms.admin import Admin

    with connect(arguments, may_create=False) as connection, Admin.of(connection) as admin:
        if is_new:
            admin.create_topic(arguments.topic, partitions=arguments.partitions, config=dict(arguments.settings or ()))
        elif not arguments.yes and not agrees(f"Permanently delete {arguments.topic} and all messages in it?"):
            say("topics", "nothing was deleted")
            return FAILED
        else:
            admin.delete_topic(arguments.topic)
    say("topics", f"{arguments.topic} was {'created' if is_new else 'deleted'}")
    return 0
