"""``kjms browse``: show the messages of a queue or subscription without receiving them."""

from __future__ import annotations

import argparse
from typing import Final

from kjms.cli import WrongUse
from kjms.cli._connecting import add_connection_options, connect, queue
from kjms.cli._receive import BATCH, Output, add_form_options, check_selector, count
from kjms.cli._terminal import say

DESCRIPTION: Final = """\
Show the messages of a queue, or of a durable subscription, without receiving them. Write each as a line, in the format
of 'kjms receive'. The output includes messages that consumers have received and not acknowledged, but not expired
messages. A queue that does not exist is not created.
"""
EXAMPLES: Final = """\
examples:
  kjms browse orders                                       the texts
  kjms browse orders --count 1 --headers                   the oldest message with header fields and properties
  kjms browse orders --json | kjms send copy --json        copy the queue
  kjms browse orders --selector "region = 'EU' AND amount > 10"
  kjms browse --subscription daily --client-id billing
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    parser.add_argument(
        "queue", nargs="?", metavar="QUEUE", type=queue, help="show the messages of this queue: NAME or queue://NAME"
    )
    parser.add_argument("--subscription", metavar="NAME", help="show the messages that wait for this subscription")
    parser.add_argument(
        "--client-id", metavar="ID", help="--subscription: it belongs to this client identifier (default: none)"
    )
    parser.add_argument("--selector", metavar="TEXT", help="show only messages that match this selector (JMS 2.0 §3.8)")
    parser.add_argument("--count", metavar="N", type=count, help="end after N messages")
    add_form_options(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="report the number of messages on stderr")
    add_connection_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show as *arguments* say.

    Raises:
        WrongUse: Arguments are missing, or are too many, or the selector's syntax is wrong.
        BrokenPipeError: The reader of the output is gone.
        InvalidDestinationException: There is no such queue or subscription.
        JMSException: The broker does not answer.
    """
    if (arguments.queue is None) == (arguments.subscription is None):
        raise WrongUse("give a queue, or --subscription")
    if arguments.client_id is not None and arguments.subscription is None:
        raise WrongUse("--client-id is an option of --subscription only")
    check_selector(arguments.selector)
    output = Output(arguments)
    from kjms.admin import Admin, Subscription

    source = arguments.queue or Subscription(arguments.subscription, arguments.client_id)
    with connect(arguments, may_create=False) as connection, Admin.of(connection) as admin:
        for each in admin.messages(source, arguments.selector):
            output.write(each.message)
            if output.written == arguments.count:
                break
            if output.written % BATCH == 0:
                output.flush()
        output.flush()
    if arguments.verbose:
        say("browse", f"{output.written} shown")
    return 0
