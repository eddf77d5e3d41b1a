"""``kjms send``: send arguments or lines as messages."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from kjms.cli import WrongUse
from kjms.cli._connecting import add_connection_options, connect, destination
from kjms.cli._terminal import say
from kjms.errors import JMSException
from kjms.mapping.json_form import Draft, from_json
from kjms.message import BytesMessage, Message, TextMessage
from kjms.message._values import parsed
from kjms.options import DeliveryMode

DESCRIPTION: Final = """\
Send messages to a queue or topic. Each TEXT is a message. Without TEXT, each line of the standard input is a message.
The command returns when Kafka has all messages.
"""
EXAMPLES: Final = """\
examples:
  kjms send orders "ten pens"                            send to the queue orders
  kjms send orders "ten pens" --property amount:int=10   set a typed property
  kjms send topic://prices < prices.txt                  send to a topic, one message per line
  kjms send images --bytes < cat.jpeg                    send the whole input as one BytesMessage
  kjms send orders "ten pens" --delay 60000              deliver after a minute
  kjms receive old --json --no-wait | kjms send new --json
"""
PROPERTY_TYPES: Final = ("boolean", "byte", "short", "int", "long", "float", "double", "string")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    parser.add_argument(
        "destination",
        metavar="DESTINATION",
        type=destination,
        help="send to this queue (NAME, queue://NAME) or topic (topic://NAME)",
    )
    parser.add_argument(
        "text", metavar="TEXT", nargs="*", default=[], help="send this text (default: the lines of the input)"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--json", action="store_true", help="read each message as a JSON object, as 'receive --json' writes it"
    )
    form.add_argument("--bytes", action="store_true", help="send the whole standard input as one BytesMessage")
    message = add_message_options(parser)
    message.add_argument(
        "--delay",
        metavar="MS",
        type=_milliseconds,
        help="deliver messages after this many milliseconds (default: at once)",
    )
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="print the id of each sent message, and a summary on stderr",
    )
    add_connection_options(parser)


def add_message_options(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Give *parser* the options that set header fields and properties of messages; return their group."""
    message = parser.add_argument_group("header fields and properties of every message")
    message.add_argument(
        "--property",
        metavar="NAME[:TYPE]=VALUE",
        type=property_setting,
        action="append",
        default=[],
        help=f"set a property; TYPE is one of {', '.join(PROPERTY_TYPES)} (default: string); repeatable",
    )
    message.add_argument(
        "--group", metavar="ID", help="set the message group, JMSXGroupID; the messages of a group stay in order"
    )
    message.add_argument("--type", metavar="TEXT", help="set JMSType")
    message.add_argument("--correlation-id", metavar="TEXT", help="set JMSCorrelationID")
    message.add_argument("--reply-to", metavar="DESTINATION", type=destination, help="set JMSReplyTo")
    message.add_argument("--priority", metavar="0-9", type=int, choices=range(10), help="set JMSPriority (default: 4)")
    message.add_argument(
        "--ttl",
        metavar="MS",
        type=_milliseconds,
        help="let messages expire after this many milliseconds (default: never)",
    )
    message.add_argument("--non-persistent", action="store_true", help="set JMSDeliveryMode to NON_PERSISTENT")
    return message


def run(arguments: argparse.Namespace) -> int:
    """Send the messages that *arguments* name.

    Raises:
        WrongUse: Both TEXT and --bytes are there.
        JMSException: A message was not sent; the text says how many were.
        ValueError: The input holds what is no message; the text says in which line, and how many were sent.
    """
    if arguments.bytes and arguments.text:
        raise WrongUse("--bytes sends the standard input: give no TEXT with it")
    how = _how(arguments)
    tally = Tally(announce=arguments.verbose)
    with connect(arguments) as connection:
        try:
            with connection.create_session() as session:  # closing it waits for every send
                producer = session.create_producer(arguments.destination)
                for draft in _drafts(arguments):
                    dress(draft.message, arguments)
                    producer.send(draft.message, completion_listener=tally, **{**draft.how, **how})
                    if tally.failure is not None:
                        break
        except (JMSException, ValueError) as error:
            tally.failure = tally.failure or error
        if isinstance(tally.failure, OSError):  # the reader of the ids is gone
            raise tally.failure
        if tally.failure is not None:
            raise JMSException(f"{tally.failure}; {_messages(tally.sent)} sent") from tally.failure
    if arguments.verbose:
        say("send", f"{_messages(tally.sent)} sent to {arguments.destination}")
    return 0


def _messages(count: int) -> str:
    return "1 message was" if count == 1 else f"{count} messages were"


def _how(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of ``MessageProducer.send`` that the options decide for all messages."""
    how: dict[str, Any] = {}
    if arguments.priority is not None:
        how["priority"] = arguments.priority
    if arguments.ttl is not None:
        how["time_to_live"] = arguments.ttl
    if arguments.delay is not None:
        how["delivery_delay"] = arguments.delay
    if arguments.non_persistent:
        how["delivery_mode"] = DeliveryMode.NON_PERSISTENT
    return how


def dress(message: Message, arguments: argparse.Namespace) -> None:
    """Set the properties and header fields that the options give on *message*."""
    for setting in arguments.property:
        setting.apply(message)
    if arguments.group is not None:
        message.set_string_property("JMSXGroupID", arguments.group)
    if arguments.type is not None:
        message.jms_type = arguments.type
    if arguments.correlation_id is not None:
        message.jms_correlation_id = arguments.correlation_id
    if arguments.reply_to is not None:
        message.jms_reply_to = arguments.reply_to


def _drafts(arguments: argparse.Namespace) -> Iterator[Draft]:
    """Yield the messages one by one; read lines as they arrive."""
    if arguments.bytes:
        message = BytesMessage()
        message.write_bytes(sys.stdin.buffer.read())
        yield Draft(message)
        return
    lines = arguments.text or _lines()
    for number, line in enumerate(lines, 1):
        if not arguments.json:
            yield Draft(TextMessage(line))
            continue
        try:
            draft = from_json(line, time.time_ns() // 1_000_000)
        except ValueError as error:
            raise ValueError(f"message {number}: {error}") from error
        yield draft


def _lines() -> Iterator[str]:
    """Return the lines of the standard input, which is UTF-8 whatever the locale says, without their line ends."""
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield line.removesuffix(b"\n").decode()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"line {number} of the input is not UTF-8 (byte {error.start + 1}); --bytes sends the input unchanged"
            ) from None


def _milliseconds(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of milliseconds")
    return int(text)


@dataclass(frozen=True)
class PropertySetting:
    """A property as the command line gives it."""

    name: str
    kind: str
    value: Any

    def apply(self, message: Message) -> None:
        """Set it on *message*."""
        getattr(message, f"set_{self.kind}_property")(self.name, self.value)


def property_setting(text: str) -> PropertySetting:
    """Return what ``NAME:TYPE=VALUE`` says, as argparse wants it."""
    left, separator, value_text = text.partition("=")
    name, _, kind = left.partition(":")
    kind = kind or "string"
    if not separator or kind not in PROPERTY_TYPES:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE or NAME:TYPE=VALUE ({', '.join(PROPERTY_TYPES)})")
    value: Any = value_text
    try:
        if kind == "boolean":
            value = {"true": True, "false": False}[value_text.lower()]
        elif kind != "string":
            value = parsed(kind, value_text)
    except (KeyError, ValueError):
        raise argparse.ArgumentTypeError(f"property {name!r}: {value_text!r} is not a valid {kind}") from None
    setting = PropertySetting(name, kind, value)
    try:
        setting.apply(Message())
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return setting


class Tally:
    """Count sent messages and keep the first failure; Kafka's reports arrive in another thread.

    Args:
        announce: Whether to print the id of each message that was sent.
    """

    def __init__(self, *, announce: bool) -> None:
        self.sent = 0
        self.failure: Exception | None = None
        self._announce = announce

    def on_completion(self, message: Message) -> None:
        """Count *message* as sent."""
        self.sent += 1
        if self._announce:
            try:
                print(message.jms_message_id, flush=True)
            except OSError as error:
                self.failure = self.failure or error

    def on_exception(self, message: Message, exception: Exception) -> None:
        """Keep the first failure: later ones most likely have the same cause."""
        self.failure = self.failure or exception
