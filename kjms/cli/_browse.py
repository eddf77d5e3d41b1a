"""``kjms browse``: what waits in a queue, a line for each message, and nothing is taken."""

from __future__ import annotations

import argparse
from typing import Final

from kjms.cli._connecting import add_connection_options, check_exists, connect, queue
from kjms.cli._receive import BATCH, Output, add_form_options, check_selector, count
from kjms.cli._terminal import say

DESCRIPTION: Final = """\
Show the messages of a queue and take none: each as a line, as 'kjms receive' writes it. What consumers have received
and not acknowledged is shown, too; what expired is not. A queue that does not exist is not created.
"""
EXAMPLES: Final = """\
examples:
  kjms browse orders                                       the texts
  kjms browse orders --count 1 --headers                   the oldest message with all that stands on it
  kjms browse orders --json | kjms send copy --json        a copy of the queue
  kjms browse orders --selector "region = 'EU' AND amount > 10"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    parser.add_argument("queue", metavar="QUEUE", type=queue, help="NAME or queue://NAME")
    parser.add_argument("--selector", metavar="TEXT", help="only messages that this selector matches (JMS 2.0 §3.8)")
    parser.add_argument("--count", metavar="N", type=count, help="stop after N messages")
    add_form_options(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="say on stderr how many were shown")
    add_connection_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show as *arguments* say.

    Raises:
        WrongUse: The selector's syntax is wrong.
        BrokenPipeError: The reader of the output is gone.
        InvalidDestinationException: There is no such queue.
        JMSException: Kafka does not answer.
    """
    check_selector(arguments.selector)
    output = Output(arguments)
    with connect(arguments, may_create=False) as connection, connection.create_session() as session:
        check_exists(connection, arguments.queue)
        for message in session.create_browser(arguments.queue, arguments.selector):
            output.write(message)
            if output.written == arguments.count:
                break
            if output.written % BATCH == 0:
                output.flush()
        output.flush()
    if arguments.verbose:
        say("browse", f"{output.written} shown")
    return 0
