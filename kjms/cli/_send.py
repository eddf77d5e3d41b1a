"""``kjms send``: arguments or lines become messages."""

from __future__ import annotations

import argparse
import re
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kjms.cli import WrongUse
from kjms.cli._connecting import add_connection_options, connect, destination
from kjms.errors import JMSException

if TYPE_CHECKING:
    from kjms import Message

DESCRIPTION: Final = """\
Send messages to a queue or topic: each TEXT is a message, and without any, each line of the standard input is.
Returns when Kafka has all of them.
"""
EXAMPLES: Final = """\
examples:
  kjms send orders "ten pens"                            to the queue orders
  kjms send orders "ten pens" --property amount:int=10   with a typed property
  kjms send topic://prices < prices.txt                  to a topic, one message per line
  kjms send images --bytes < cat.jpeg                    the whole input as one BytesMessage
  kjms receive old --json --no-wait | kjms send new --json
"""
PROPERTY_TYPES: Final = ("boolean", "byte", "short", "int", "long", "float", "double", "string")


def add_parser(subparsers: Any) -> None:
    """Add the command to those that argparse knows."""
    parser = subparsers.add_parser(
        "send",
        help="send messages",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("destination", metavar="DESTINATION", type=destination, help="NAME or queue://NAME, topic://NAME")
    parser.add_argument("text", metavar="TEXT", nargs="*", help="a message (without any: the lines of the standard input)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="each message is a JSON object, as 'receive --json' writes them")
    form.add_argument("--bytes", action="store_true", help="the standard input as a whole is one BytesMessage")
    message = parser.add_argument_group("what every message gets")
    message.add_argument(
        "--property",
        metavar="NAME[:TYPE]=VALUE",
        type=property_setting,
        action="append",
        default=[],
        help=f"a property (can be repeated); TYPE is one of {', '.join(PROPERTY_TYPES)} (the default)",
    )
    message.add_argument("--group", metavar="ID", help="the message group, JMSXGroupID: its messages stay in order")
    message.add_argument("--type", metavar="TEXT", help="JMSType")
    message.add_argument("--correlation-id", metavar="TEXT", help="JMSCorrelationID")
    message.add_argument("--reply-to", metavar="DESTINATION", type=destination, help="JMSReplyTo")
    message.add_argument("--priority", metavar="0-9", type=int, choices=range(10), help="JMSPriority (else 4)")
    message.add_argument("--ttl", metavar="MS", type=int, help="milliseconds after which it expires (else never)")
    message.add_argument("--non-persistent", action="store_true", help="JMSDeliveryMode NON_PERSISTENT")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="print the id of each message that was sent, and at the end a summary"
    )
    add_connection_options(parser)
