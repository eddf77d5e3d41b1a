"""``kjms receive``: receive messages and write them as lines."""

from __future__ import annotations

import argparse
import select
import signal
import sys
import time
from types import FrameType
from typing import IO, TYPE_CHECKING, Any, Final

from kjms.cli import SIGNALLED, WrongUse
from kjms.cli._connecting import add_connection_options, check_exists, connect, destination, seconds
from kjms.cli._terminal import escaped, json_text, moment, say, shown_body
from kjms.errors import InvalidSelectorException
from kjms.mapping.json_form import plain_body, to_json
from kjms.message import BytesMessage, Message

if TYPE_CHECKING:
    from kjms import MessageConsumer

DESCRIPTION: Final = """\
Receive the messages of a queue, or the messages sent to a topic from now on. Write each as a line: the text of a
TextMessage, the bytes of a BytesMessage in base64, other bodies as JSON. Run until Ctrl-C unless an option sets an end.

A message is acknowledged after its line has been written. A message that was not written is delivered again. A damaged
message is also written, and its damage reported. A missing destination is an error, unless --create is given.
"""
EXAMPLES: Final = """\
examples:
  kjms receive orders                                      receive until Ctrl-C
  kjms receive orders --count 1 --headers                  one message with header fields and properties
  kjms receive orders --no-wait > orders.txt               the messages that wait now
  kjms receive topic://prices --wait 60                    until no message arrives for a minute
  kjms receive tomorrow --create                           from a queue that does not exist yet
  kjms receive orders --selector "region = 'EU' AND amount > 10"
  kjms receive images --raw --count 1 > cat.jpeg           the bytes of a BytesMessage
"""

BATCH: Final = 100  # messages acknowledged together under load; an acknowledgement takes 0.3 ms
LOOK_MS: Final = 200  # how soon a signal or a closed pipe is detected while no message arrives
ARRIVE_SECONDS: Final = 3.0  # --no-wait: joining a queue that another program is reading takes up to 1.4 s
NEXT_SECONDS: Final = 0.5  # --no-wait: after the first message, waiting ones follow at once


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    parser.add_argument(
        "destination",
        metavar="DESTINATION",
        type=destination,
        help="receive from this queue (NAME, queue://NAME) or topic (topic://NAME)",
    )
    parser.add_argument(
        "--selector", metavar="TEXT", help="receive only messages that match this selector (JMS 2.0 §3.8)"
    )
    end = parser.add_argument_group("end of the command (without them: Ctrl-C)")
    end.add_argument("--count", metavar="N", type=count, help="end after N messages")
    waiting = end.add_mutually_exclusive_group()
    waiting.add_argument(
        "--wait", metavar="SECONDS", type=seconds, help="end when no message arrives for this many seconds"
    )
    waiting.add_argument(
        "--no-wait", action="store_true", help="end when the messages that wait now have been received"
    )
    add_form_options(parser)
    parser.add_argument("--create", action="store_true", help="create the destination if it does not exist")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="report the start and the number of messages on stderr"
    )
    add_connection_options(parser)


def add_form_options(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the options that say how `Output` writes messages."""
    form = parser.add_argument_group("output format").add_mutually_exclusive_group()
    form.add_argument(
        "--json", action="store_true", help="write each message as a JSON object with all header fields and properties"
    )
    form.add_argument(
        "--headers", action="store_true", help="write header fields and properties in readable form before each body"
    )
    form.add_argument(
        "--raw", action="store_true", help="write the bytes of BytesMessages unchanged, without line ends"
    )


def count(text: str) -> int:
    """Return how many *text* says, at least 1, as argparse wants it."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Receive as *arguments* say.

    Raises:
        WrongUse: The selector's syntax is wrong.
        InvalidDestinationException: There is no such destination, and --create is not given.
        BrokenPipeError: The reader of the output is gone; unwritten messages stay in the queue.
        JMSException: Receiving or acknowledging failed.
    """
    from kjms import Session

    check_selector(arguments.selector)
    output = Output(arguments)
    stop = Stop()
    with (
        connect(arguments, may_create=arguments.create) as connection,
        connection.create_session(Session.CLIENT_ACKNOWLEDGE) as session,
        stop,
    ):
        if not arguments.create:
            check_exists(connection, arguments.destination, "; --create creates it")
        consumer = session.create_consumer(arguments.destination, arguments.selector)
        connection.start()
        if arguments.verbose:
            say("receive", f"waiting for messages of {arguments.destination}")
        _receive(consumer, arguments, output, stop)
    if arguments.verbose:
        say("receive", f"{output.written} received")
    return SIGNALLED + stop.number if stop.number else 0


def check_selector(text: str | None) -> None:
    """Check the syntax of a selector before the command starts.

    Raises:
        WrongUse: Its syntax is wrong; the text shows where.
    """
    from kjms.selector import parse_selector

    try:
        parse_selector(text)
    except InvalidSelectorException as error:
        raise WrongUse(str(error)) from error


def _receive(consumer: MessageConsumer, arguments: argparse.Namespace, output: Output, stop: Stop) -> None:
    """Write messages and acknowledge them; acknowledge in batches under load."""
    limit = arguments.count
    unsettled: Message | None = None
    while not stop.number and (limit is None or output.written < limit):
        message = consumer.receive_no_wait()
        if message is None:
            output.settle(unsettled)
            unsettled = None
            message = _wait(consumer, _timeout(arguments, output), output, stop)
            if message is None:
                return
        output.write(message)
        unsettled = message
        if output.written % BATCH == 0:
            output.settle(unsettled)
            unsettled = None
    output.settle(unsettled)


def _timeout(arguments: argparse.Namespace, output: Output) -> float | None:
    if arguments.no_wait:
        return NEXT_SECONDS if output.written else ARRIVE_SECONDS
    return arguments.wait  # type: ignore[no-any-return]


def _wait(consumer: MessageConsumer, timeout: float | None, output: Output, stop: Stop) -> Message | None:
    """Return the next message; None after *timeout* seconds (None: no limit) or a signal."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while not stop.number:
        output.check_reader()
        left = LOOK_MS if deadline is None else min(LOOK_MS, int((deadline - time.monotonic()) * 1000))
        if left <= 0:
            return None
        message = consumer.receive(left)
        if message is not None:
            return message
    return None


class Stop:
    """Record the first Ctrl-C or SIGTERM, so that each received message is written before the command ends.

    The second signal interrupts at once.
    """

    def __init__(self) -> None:
        self.number = 0

    def __enter__(self) -> None:
        self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}

    def __exit__(self, *error: object) -> None:
        self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


class Output:
    """Write messages to the standard output in the selected format."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.written = 0
        self._command = arguments.command
        self._file = sys.stdout.buffer
        # Programs get the text unchanged, in UTF-8. A terminal gets characters that it can show, without control codes.
        self._is_terminal = sys.stdout.isatty()
        self._form = _json_line if arguments.json else _readable if arguments.headers else _line
        self._raw = arguments.raw
        self._poll = _errors_of(self._file)

    def write(self, message: Message) -> None:
        """Write *message*; `settle` flushes it.

        Write the readable parts of a damaged message, and report its damage on stderr.
        """
        if self._raw and isinstance(message, BytesMessage):
            self._file.write(message.get_body(bytes) or b"")
        else:
            text = self._form(message)
            if self._is_terminal:
                self._file.write(shown_body(text).encode(sys.stdout.encoding, errors="backslashreplace"))
            else:
                self._file.write(text.encode(errors="backslashreplace"))
        self.written += 1
        if message.damage:
            say(self._command, f"{message.jms_message_id} is damaged: {'; '.join(message.damage)}")

    def settle(self, last: Message | None) -> None:
        """Flush the output, then acknowledge all messages up to *last*, the last one written."""
        if last is not None:
            self.flush()
            last.acknowledge()

    def flush(self) -> None:
        """Flush the output.

        Raises:
            BrokenPipeError: The reader of the pipe is gone.
        """
        self._file.flush()
        self.check_reader()

    def check_reader(self) -> None:
        """Check the pipe now instead of at the next message.

        Raises:
            BrokenPipeError: The reader of the pipe is gone.
        """
        if self._poll is not None and any(events & select.POLLERR for _, events in self._poll.poll(0)):
            raise BrokenPipeError


def _errors_of(file: IO[bytes]) -> select.poll | None:
    """Return a poll object that reports a broken *file*; None if the system has none, or *file* has no descriptor."""
    if not hasattr(select, "poll"):
        return None
    try:
        poll = select.poll()
        poll.register(file.fileno(), 0)  # no events: errors are always reported
    except OSError:
        return None
    return poll


def _line(message: Message) -> str:
    return plain_body(message) + "\n"


def _json_line(message: Message) -> str:
    return json_text(to_json(message)) + "\n"


def _readable(message: Message) -> str:
    """Return header fields, properties, an empty line and the body."""
    form = to_json(message)
    fields = [(name, _shown(name, value)) for name, value in form["headers"].items()]
    for name in form["properties"]:
        kind = message.property_type(name)
        value = message.get_object_property(name)
        text = f"{value}" if kind == "string" else f"{message.get_string_property(name)} ({kind})"
        fields.append((escaped(name), escaped(text)))
    fields += [("!", escaped(damage)) for damage in message.damage]
    width = max(len(name) for name, _ in fields)
    lines = [f"{name:<{width}}  {value}" for name, value in fields]
    return "\n".join([*lines, "", plain_body(message), "", ""])


def _shown(name: str, value: Any) -> str:
    if name in {"JMSTimestamp", "JMSExpiration"}:
        return f"{value} ({moment(value, is_precise=True)})"
    return "true" if value is True else "false" if value is False else escaped(str(value))
