"""``kjms schedule``: list, cancel or deliver delayed messages."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from kjms.cli import FAILED, WrongUse
from kjms.cli._connecting import add_connection_options, check_exists, connect, destination
from kjms.cli._terminal import agrees, columns, json_text, moment, say
from kjms.client.engine_access import engine_of
from kjms.destinations import Destination, Queue, Topic
from kjms.engine import DelayedMessage, destination_name
from kjms.errors import InvalidDestinationException, JMSException
from kjms.mapping.bridges import decoder
from kjms.mapping.names import delayed, destination_for, is_internal

if TYPE_CHECKING:
    from kjms import Connection, Message

DESCRIPTION: Final = """\
List, cancel or deliver delayed messages: those that were sent with a delivery delay and are not due yet.

  list    List the delayed messages of a DESTINATION, or of all, in the order of their due times.
  cancel  Cancel the messages of a DESTINATION with these ids, or --all. The command returns when it is certain that
          they will not be delivered. It reports messages that became due in the meantime; those are delivered.
  run     Deliver delayed messages of these destinations, or of all, until Ctrl-C. Programs that use a destination
          deliver its delayed messages themselves: run this command when no such program may be running.
"""
EXAMPLES: Final = """\
examples:
  kjms send orders "ten pens" --delay 60000
  kjms schedule list orders
  kjms schedule cancel orders ID:1f0c...-1-7
  kjms schedule run
"""
LOOK_SECONDS: Final = 2.0  # between checks for new destinations with delayed messages


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    parser.add_argument("action", nargs="?", choices=[*ACTIONS], default="list", help="run this action (default: list)")
    parser.add_argument(
        "destination",
        nargs="?",
        metavar="DESTINATION",
        type=destination,
        help="use this queue (NAME, queue://NAME) or topic (topic://NAME)",
    )
    parser.add_argument(
        "more",
        nargs="*",
        metavar="MORE",
        help="cancel: cancel the messages with these ids; run: serve these destinations, too",
    )
    parser.add_argument("--all", action="store_true", help="cancel: cancel all delayed messages of the destination")
    parser.add_argument("--yes", action="store_true", help="cancel --all: do not ask for confirmation")
    parser.add_argument("--json", action="store_true", help="list: write a JSON array with one object per message")
    add_connection_options(parser)


@dataclass(frozen=True)
class Entry:
    """A delayed message in the list."""

    due: int
    """When it may be delivered, in milliseconds since 1970 UTC."""
    waits: int
    """The milliseconds from now until then; negative if it is overdue."""
    destination: str
    """The name of its queue or topic."""
    message_id: str | None
    type: str | None
    """Its JMSType."""


def run(arguments: argparse.Namespace) -> int:
    """Do what *arguments* say.

    Raises:
        WrongUse: Arguments are missing, or are too many.
        InvalidDestinationException: There is no such destination.
        JMSException: The broker does not answer, or there is no such message.
    """
    _check(arguments)
    with connect(arguments, may_create=False) as connection:
        for named in (arguments.destination, *(arguments.more if arguments.action == "run" else ())):
            if named is not None:
                check_exists(connection, named)
        return ACTIONS[arguments.action](connection, arguments)


def _check(arguments: argparse.Namespace) -> None:
    action = arguments.action
    if action != "cancel" and (arguments.all or arguments.yes):
        raise WrongUse(f"{action}: --all and --yes are options of cancel only")
    if action != "list" and arguments.json:
        raise WrongUse(f"{action}: --json is an option of list only")
    if action == "list" and arguments.more:
        raise WrongUse("list: give one destination, or none to list all")
    if action == "cancel":
        if arguments.destination is None or bool(arguments.more) == arguments.all:
            raise WrongUse("cancel: give the destination, and either message ids or --all")
        if arguments.all and not arguments.yes and not sys.stdin.isatty():
            raise WrongUse("cancel: --all cannot be undone; without a terminal, confirm it with --yes")
    if action == "run":
        try:
            arguments.more = [destination(text) for text in arguments.more]
        except argparse.ArgumentTypeError as error:
            raise WrongUse(f"run: {error}") from error


# ------------------------------------------------------------------------------------------------------------ list


def _list(connection: Connection, arguments: argparse.Namespace) -> int:
    if arguments.destination is not None:
        found = [(_topic(connection, arguments.destination), arguments.destination)]
    else:
        found = _with_delayed(connection)
    entries = []
    for topic, named in found:
        with engine_of(connection).admin.delayed(topic) as delayed:
            entries += [_shown(entry, _message(connection, named, entry), named) for entry in delayed.read()]
    entries.sort(key=lambda entry: entry.due)
    if arguments.json:
        print(json_text([asdict(entry) for entry in entries], indent=2))
    else:
        print(table(entries))
    return 0


def _topic(connection: Connection, named: Destination) -> str:
    topic, _ = engine_of(connection).topic_of(named, connection._options)
    return topic


def _with_delayed(connection: Connection) -> list[tuple[str, Destination]]:
    """Return the Kafka topics that have, or had, delayed messages, each with its destination."""
    options = connection._options
    topics = engine_of(connection).admin.topics()
    found: list[tuple[str, Destination]] = []
    for topic in sorted(topics):
        if is_internal(topic) or delayed(topic) not in topics:
            continue
        for kind in (Queue, Topic):
            with contextlib.suppress(InvalidDestinationException):  # no prefix of ours
                found.append((topic, destination_for(topic, kind, options.queue_prefix, options.topic_prefix)))
                break
    return found


def _message(connection: Connection, named: Destination, entry: DelayedMessage) -> Message:
    convention = connection._options.destination(destination_name(named)).convention or "kjms"
    return decoder(convention)(entry.record, named, 1)


def _shown(entry: DelayedMessage, message: Message, named: Destination) -> Entry:
    waits = entry.due - time.time_ns() // 1_000_000
    return Entry(entry.due, waits, destination_name(named), message.jms_message_id, message.jms_type)


def table(entries: Sequence[Entry]) -> str:
    """Return *entries* in aligned columns."""
    if not entries:
        return "There are no delayed messages."
    rows = [("DUE (UTC)", "IN", "DESTINATION", "MESSAGE ID", "TYPE")]
    rows += [
        (
            moment(entry.due).removesuffix(" UTC"),
            how_long(entry.waits),
            entry.destination,
            entry.message_id or "-",
            entry.type or "-",
        )
        for entry in entries
    ]
    return "\n".join(columns(rows))


def how_long(milliseconds: int) -> str:
    """Return a duration for people.

    >>> how_long(500), how_long(65_000), how_long(90_061_000), how_long(-1)
    ('0:00:00', '0:01:05', '1 day, 1:01:01', 'overdue')
    """
    if milliseconds < 0:
        return "overdue"
    try:
        return str(timedelta(seconds=milliseconds // 1000))
    except OverflowError:
        return f"{milliseconds} ms"


# ---------------------------------------------------------------------------------------------------------- cancel


def _cancel(connection: Connection, arguments: argparse.Namespace) -> int:
    named = arguments.destination
    with engine_of(connection).admin.delayed(_topic(connection, named)) as delayed:
        entries = delayed.read()
        if arguments.all:
            chosen, missing = entries, []
        else:
            ids = {_message(connection, named, entry).jms_message_id: entry for entry in entries}
            chosen = [ids[wanted] for wanted in dict.fromkeys(arguments.more) if wanted in ids]
            missing = [wanted for wanted in dict.fromkeys(arguments.more) if wanted not in ids]
        if (
            arguments.all
            and chosen
            and not arguments.yes
            and not agrees(f"Cancel {_messages(len(chosen))} of {named}?")
        ):
            say("schedule", "nothing was cancelled")
            return FAILED
        done = delayed.cancel(chosen)
    _say(named, done, "cancelled")
    if done < len(chosen):
        _say(named, len(chosen) - done, "delivered in the meantime")
    if missing:
        raise JMSException(f"{named} has no delayed message with this id: {', '.join(missing)}")
    return 0 if done == len(chosen) else FAILED


def _messages(count: int) -> str:
    return f"{count:,} delayed message{'' if count == 1 else 's'}"


def _say(named: Destination, count: int, what: str) -> None:
    say("schedule", f"{_messages(count)} of {named} {'was' if count == 1 else 'were'} {what}")


# ------------------------------------------------------------------------------------------------------------- run


def _run(connection: Connection, arguments: argparse.Namespace) -> int:
    admin = engine_of(connection).admin
    if arguments.destination is not None:
        named: Iterable[Destination] = (arguments.destination, *arguments.more)
        for topic, each in [(_topic(connection, each), each) for each in named]:
            admin.serve_delayed(topic)
            _announce(each)
    known: set[str] = set()
    while True:
        if arguments.destination is None:
            for topic, each in _with_delayed(connection):
                if topic not in known:
                    known.add(topic)
                    admin.serve_delayed(topic)
                    _announce(each)
        time.sleep(LOOK_SECONDS)


def _announce(named: Destination) -> None:
    say("schedule", f"serving {destination_name(named)}")


ACTIONS: Final[dict[str, Callable[[Connection, argparse.Namespace], int]]] = {
    "list": _list,
    "cancel": _cancel,
    "run": _run,
}
