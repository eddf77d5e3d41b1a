"""``kjms receive``: messages become lines."""

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
from kjms.cli._json_form import plain_body, to_json
from kjms.cli._terminal import escaped, json_text, moment, say, shown_body
from kjms.errors import InvalidSelectorException
from kjms.message import BytesMessage, Message

if TYPE_CHECKING:
    from kjms import MessageConsumer

DESCRIPTION: Final = """\
Receive the messages of a queue, or those that come to a topic from now on, and write each as a line: the text of a
TextMessage, the bytes of a BytesMessage in base64, other bodies as JSON. Goes on until Ctrl-C unless told otherwise.

A message is acknowledged when its line has been written: what was not written is delivered again. A damaged message is
written, too, with what is wrong with it. A destination that does not exist is an error, unless --create is given.
"""
EXAMPLES: Final = """\
examples:
  kjms receive orders                                      for ever
  kjms receive orders --count 1 --headers                  one message with all that stands on it
  kjms receive orders --no-wait > orders.txt               what waits there now
  kjms receive topic://prices --wait 60                    until nothing came for a minute
  kjms receive tomorrow --create                           a queue that does not exist yet
  kjms receive orders --selector "region = 'EU' AND amount > 10"
  kjms receive images --raw --count 1 > cat.jpeg           a BytesMessage as it was sent
"""

BATCH: Final = 100  # messages acknowledged at once while they pour in; an acknowledgement takes 0.3 ms
LOOK_MS: Final = 200  # how soon a signal, or a reader that went away, is noticed while nothing comes
ARRIVE_SECONDS: Final = 3.0  # --no-wait: joining a queue that another program is reading takes up to 1.4 s
NEXT_SECONDS: Final = 0.5  # --no-wait: what is there comes at once after the first message


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    parser.add_argument(
        "destination", metavar="DESTINATION", type=destination, help="NAME or queue://NAME, topic://NAME"
    )
    parser.add_argument("--selector", metavar="TEXT", help="only messages that this selector matches (JMS 2.0 §3.8)")
    end = parser.add_argument_group("when to stop (else with Ctrl-C)")
    end.add_argument("--count", metavar="N", type=count, help="after N messages")
    waiting = end.add_mutually_exclusive_group()
    waiting.add_argument("--wait", metavar="SECONDS", type=seconds, help="when no message came for so long")
    waiting.add_argument("--no-wait", action="store_true", help="when what waits there now has been received")
    add_form_options(parser)
    parser.add_argument("--create", action="store_true", help="create the destination if it does not exist")
    parser.add_argument("-v", "--verbose", action="store_true", help="say on stderr when it begins, and how many came")
    add_connection_options(parser)


def add_form_options(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the options that say how `Output` writes messages."""
    form = parser.add_argument_group("what to write").add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="each message as a JSON object with all that stands on it")
    form.add_argument("--headers", action="store_true", help="headers and properties, for people, before each body")
    form.add_argument("--raw", action="store_true", help="the bytes of BytesMessages as they are, with nothing added")


def count(text: str) -> int:
    """Return how many *text* says, at least 1, as argparse wants it."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Receive as *arguments* say.

    Raises:
        WrongUse: The selector's syntax is wrong.
        InvalidDestinationException: There is no such destination, and --create is not given.
        BrokenPipeError: The reader of the output is gone; what was not written stays where it was.
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
    """Refuse a selector that is none before anything is done.

    Raises:
        WrongUse: Its syntax is wrong; the text shows where.
    """
    from kjms.selector import parse_selector

    try:
        parse_selector(text)
    except InvalidSelectorException as error:
        raise WrongUse(str(error)) from error


def _receive(consumer: MessageConsumer, arguments: argparse.Namespace, output: Output, stop: Stop) -> None:
    """Write messages and acknowledge them, in batches while they pour in."""
    limit = arguments.count
    unsettled: Message | None = None
    while not stop.number and (limit is None or output.written < limit):
        message = consumer.receive_no_wait()
        if message is None:
            output.settle(unsettled)
            unsettled = None
            message = _wait(consumer, _patience(arguments, output), output, stop)
            if message is None:
                return
        output.write(message)
        unsettled = message
        if output.written % BATCH == 0:
            output.settle(unsettled)
            unsettled = None
    output.settle(unsettled)


def _patience(arguments: argparse.Namespace, output: Output) -> float | None:
    if arguments.no_wait:
        return NEXT_SECONDS if output.written else ARRIVE_SECONDS
    return arguments.wait  # type: ignore[no-any-return]


def _wait(consumer: MessageConsumer, patience: float | None, output: Output, stop: Stop) -> Message | None:
    """Return the next message; None when *patience* (seconds; None: no limit) is at its end, or a signal came."""
    deadline = None if patience is None else time.monotonic() + patience
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
    """Takes the first Ctrl-C or SIGTERM as a request, so that no message is left between receiving and writing.

    The second one interrupts at once, as usual.
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
    """Writes messages to the standard output in the form that was asked for."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.written = 0
        self._command = arguments.command
        self._file = sys.stdout.buffer
        # Programs get the text as it is, in UTF-8; a terminal gets what it can show, and nothing that controls it.
        self._is_terminal = sys.stdout.isatty()
        self._form = _json_line if arguments.json else _readable if arguments.headers else _line
        self._raw = arguments.raw
        self._poll = _errors_of(self._file)

    def write(self, message: Message) -> None:
        """Write *message*; `settle` makes sure that it left this process.

        A damaged message is written as well as it can be read, and its damage is said on stderr.
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
        """Acknowledge everything up to *last*, the last message that was written, after it has left this process."""
        if last is not None:
            self.flush()
            last.acknowledge()

    def flush(self) -> None:
        """Make sure that everything that was written has left this process.

        Raises:
            BrokenPipeError: The reader of the pipe is gone.
        """
        self._file.flush()
        self.check_reader()

    def check_reader(self) -> None:
        """Find out now, and not with the next message, that the reader of the pipe is gone.

        Raises:
            BrokenPipeError: That is so.
        """
        if self._poll is not None and any(events & select.POLLERR for _, events in self._poll.poll(0)):
            raise BrokenPipeError


def _errors_of(file: IO[bytes]) -> select.poll | None:
    """Return what tells that *file* is broken; None where the system cannot, or it is no real file."""
    if not hasattr(select, "poll"):
        return None
    try:
        poll = select.poll()
        poll.register(file.fileno(), 0)  # nothing is asked for, and errors are reported anyway
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
