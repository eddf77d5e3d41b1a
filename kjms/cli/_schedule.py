"""``kjms schedule``: list, cancel or deliver delayed messages, and define periodic ones."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from kjms.cli import FAILED, WrongUse
from kjms.cli._connecting import (
    add_connection_options,
    check_exists,
    connect,
    credentials,
    destination,
    factory,
    queue,
)
from kjms.cli._send import add_message_options, dress
from kjms.cli._terminal import agrees, columns, json_text, moment, say
from kjms.client.engine_access import engine_of
from kjms.destinations import Destination, Queue, Topic
from kjms.engine import DelayedMessage, PeriodicMessage, destination_name
from kjms.errors import InvalidDestinationException, JMSException
from kjms.mapping.bridges import decoder
from kjms.mapping.names import delayed, destination_for, is_internal
from kjms.message import BytesMessage, Message, TextMessage
from kjms.options import DeliveryMode
from kjms.schedule import Schedule, Schedules
from kjms.txn.cron import NEVER

if TYPE_CHECKING:
    from kjms import Connection

DESCRIPTION: Final = """\
List, cancel or deliver delayed messages: those that were sent with a delivery delay and are not due yet. Define, pause
and remove periodic messages: those that are sent at the times of a cron expression.

  list    List the delayed and the periodic messages of a DESTINATION, or of all, in the order of their due times.
  add     Define the periodic message NAME: its text is MORE, and it is sent to --queue or --topic by --cron.
  remove  Remove the periodic message NAME. The command returns when it is certain that no further one is sent.
  pause   Send no further messages of the periodic message NAME; resume ends that.
  cancel  Cancel the messages of a DESTINATION with these ids, or --all. The command returns when it is certain that
          they will not be delivered. It reports messages that became due in the meantime; those are delivered.
  deliver Deliver messages of a DESTINATION with these ids, or --all, now instead of at their times.
  run     Deliver delayed and periodic messages of these destinations, or of all, until Ctrl-C. Programs that use a
          destination deliver its messages themselves: run this command when no such program may be running.
"""
EXAMPLES: Final = """\
examples:
  kjms send orders "ten pens" --delay 60000
  kjms schedule list orders
  kjms schedule cancel orders ID:1f0c...-1-7
  kjms schedule deliver orders ID:1f0c...-1-8
  kjms schedule add nightly "close the books" --cron "0 2 * * *" --timezone Europe/Berlin --queue jobs
  kjms schedule remove nightly
  kjms schedule run
"""
LOOK_SECONDS: Final = 2.0  # between checks for new destinations with delayed messages


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    parser.add_argument(
        "action", nargs="?", choices=[*ACTIONS, *PERIODIC], default="list", help="run this action (default: list)"
    )
    parser.add_argument(
        "destination",
        nargs="?",
        metavar="DESTINATION|NAME",
        help="use this queue (NAME, queue://NAME) or topic (topic://NAME); add, remove, pause, resume: the name of the"
        " periodic message",
    )
    parser.add_argument(
        "more",
        nargs="*",
        metavar="MORE",
        help="cancel, deliver: take the messages with these ids; run: serve these destinations, too; add: the text of"
        " the message (default: no body)",
    )
    parser.add_argument(
        "--all", action="store_true", help="cancel, deliver: take all delayed messages of the destination"
    )
    parser.add_argument("--yes", action="store_true", help="cancel --all: do not ask for confirmation")
    parser.add_argument("--dry-run", action="store_true", help="cancel, deliver: report the number, and change nothing")
    parser.add_argument("--json", action="store_true", help="list: write a JSON array with one object per message")
    periodic = parser.add_argument_group("periodic messages")
    where = periodic.add_mutually_exclusive_group()
    where.add_argument(
        "--queue", metavar="QUEUE", type=queue, help="add: send to this queue; remove, pause, resume: use this queue's"
    )
    where.add_argument("--topic", metavar="TOPIC", type=_topic_named, help="the same for this topic")
    periodic.add_argument(
        "--cron",
        metavar="EXPRESSION",
        help="add: send at these times: minute, hour, day of month, month and day of week, or with the seconds first",
    )
    periodic.add_argument(
        "--timezone", metavar="ZONE", help="add: read the times in this IANA time zone (default: UTC)"
    )
    periodic.add_argument("--replace", action="store_true", help="add: replace the periodic message of that name")
    periodic.add_argument("--bytes", action="store_true", help="add: send the whole standard input as a BytesMessage")
    add_message_options(parser)
    add_connection_options(parser)


@dataclass(frozen=True)
class Entry:
    """A delayed message in the list, or a periodic one."""

    due: int | None
    """When it may be delivered, in milliseconds since 1970 UTC; None: a periodic message is paused."""
    waits: int | None
    """The milliseconds from now until then; negative if it is overdue."""
    destination: str
    """The name of its queue or topic."""
    message_id: str | None
    type: str | None
    """Its JMSType."""
    schedule: str | None = None
    """The name of a periodic message, of which this is the next one."""
    cron: str | None = None
    timezone: str | None = None
    paused: bool | None = None


def run(arguments: argparse.Namespace) -> int:
    """Do what *arguments* say.

    Raises:
        WrongUse: Arguments are missing, or are too many.
        InvalidDestinationException: There is no such destination.
        JMSException: The broker does not answer, or there is no such message.
    """
    _check(arguments)
    if arguments.action in PERIODIC:
        schedules = Schedules(factory(arguments, may_create=False), *credentials(arguments))
        with schedules:
            return PERIODIC[arguments.action](schedules, arguments)
    with connect(arguments, may_create=False) as connection:
        for named in (arguments.destination, *(arguments.more if arguments.action == "run" else ())):
            if named is not None:
                check_exists(connection, named)
        return ACTIONS[arguments.action](connection, arguments)


def _check(arguments: argparse.Namespace) -> None:
    action = arguments.action
    if action not in ASKING and (arguments.all or arguments.dry_run):
        raise WrongUse(f"{action}: --all and --dry-run are options of cancel and deliver only")
    if action != "cancel" and arguments.yes:
        raise WrongUse(f"{action}: --yes is an option of cancel only")
    if action != "list" and arguments.json:
        raise WrongUse(f"{action}: --json is an option of list only")
    if action == "list" and arguments.more:
        raise WrongUse("list: give one destination, or none to list all")
    if action in ASKING:
        if arguments.destination is None or bool(arguments.more) == arguments.all:
            raise WrongUse(f"{action}: give the destination, and either message ids or --all")
        is_sure = action != "cancel" or arguments.yes or arguments.dry_run
        if arguments.all and not is_sure and not sys.stdin.isatty():
            raise WrongUse("cancel: --all cannot be undone; without a terminal, confirm it with --yes")
    if action in PERIODIC:
        _check_periodic(arguments)
        return
    given = [name for name in PERIODIC_OPTIONS if getattr(arguments, name)]
    if given:
        names = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise WrongUse(f"{action}: {names} {'is an option' if len(given) == 1 else 'are options'} of periodic messages")
    try:
        arguments.destination = None if arguments.destination is None else destination(arguments.destination)
        if action == "run":
            arguments.more = [destination(text) for text in arguments.more]
    except argparse.ArgumentTypeError as error:
        raise WrongUse(f"{action}: {error}") from error


def _check_periodic(arguments: argparse.Namespace) -> None:
    action = arguments.action
    if arguments.destination is None:
        raise WrongUse(f"{action}: give the name of the periodic message")
    if action != "add":
        given = [name for name in PERIODIC_OPTIONS if name not in {"queue", "topic"} and getattr(arguments, name)]
        if given or arguments.more:
            raise WrongUse(f"{action}: give the name of the periodic message, and perhaps --queue or --topic")
    elif arguments.cron is None or not (arguments.queue or arguments.topic):
        raise WrongUse("add: give --cron, and --queue or --topic")
    elif len(arguments.more) > 1 or (arguments.more and arguments.bytes):
        raise WrongUse("add: give one TEXT, or --bytes")


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
            entries += [_periodic(connection, each, named) for each in delayed.read_periodic()]
    entries.sort(key=lambda entry: NEVER if entry.due is None else entry.due)
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


def _periodic(connection: Connection, each: PeriodicMessage, named: Destination) -> Entry:
    definition = each.definition
    due = None if definition.next is None or definition.next == NEVER else definition.next
    return Entry(
        due,
        None if due is None else due - time.time_ns() // 1_000_000,
        destination_name(named),
        None,
        _message(connection, named, each.waiting).jms_type,
        definition.name,
        definition.cron,
        definition.timezone,
        definition.is_paused,
    )


def table(entries: Sequence[Entry]) -> str:
    """Return *entries* in aligned columns: delayed messages, then periodic ones."""
    delayed = [entry for entry in entries if entry.schedule is None]
    periodic = [entry for entry in entries if entry.schedule is not None]
    tables = []
    if delayed or not periodic:
        tables.append(_table_of_delayed(delayed))
    if periodic:
        tables.append(_table_of_periodic(periodic))
    return "\n\n".join(tables)


def _table_of_delayed(entries: Sequence[Entry]) -> str:
    if not entries:
        return "There are no delayed messages."
    rows = [("DUE (UTC)", "IN", "DESTINATION", "MESSAGE ID", "TYPE")]
    rows += [(*_when(entry), entry.destination, entry.message_id or "-", entry.type or "-") for entry in entries]
    return "\n".join(columns(rows))


def _table_of_periodic(entries: Sequence[Entry]) -> str:
    rows = [("NEXT (UTC)", "IN", "DESTINATION", "NAME", "CRON", "TIME ZONE")]
    rows += [
        (*_when(entry), entry.destination, entry.schedule or "-", entry.cron or "-", entry.timezone or "-")
        for entry in entries
    ]
    return "\n".join(columns(rows))


def _when(entry: Entry) -> tuple[str, str]:
    if entry.due is None or entry.waits is None:
        return "paused" if entry.paused else "never", "-"
    return moment(entry.due).removesuffix(" UTC"), how_long(entry.waits)


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


# ----------------------------------------------------------------------------------------------- cancel and deliver


def _ask(connection: Connection, arguments: argparse.Namespace) -> int:
    named = arguments.destination
    with engine_of(connection).admin.delayed(_topic(connection, named)) as delayed:
        entries = delayed.read()
        if arguments.all:
            chosen, missing = entries, []
        else:
            ids = {_message(connection, named, entry).jms_message_id: entry for entry in entries}
            chosen = [ids[wanted] for wanted in dict.fromkeys(arguments.more) if wanted in ids]
            missing = [wanted for wanted in dict.fromkeys(arguments.more) if wanted not in ids]
        is_cancelled = arguments.action == "cancel"
        if arguments.dry_run:
            done = 0
            say("schedule", f"{_messages(len(chosen))} of {named} would be {ASKING[arguments.action]}")
        elif (
            arguments.all
            and is_cancelled
            and chosen
            and not arguments.yes
            and not agrees(f"Cancel {_messages(len(chosen))} of {named}?")
        ):
            say("schedule", "nothing was cancelled")
            return FAILED
        else:
            done = delayed.cancel(chosen) if is_cancelled else delayed.deliver(chosen)
            _say(named, done, ASKING[arguments.action])
            if done < len(chosen):
                _say(named, len(chosen) - done, f"{'delivered' if is_cancelled else 'cancelled'} in the meantime")
    if missing:
        raise JMSException(f"{named} has no delayed message with this id: {', '.join(missing)}")
    return 0 if arguments.dry_run or done == len(chosen) else FAILED


def _messages(count: int) -> str:
    return f"{count:,} delayed message{'' if count == 1 else 's'}"


def _say(named: Destination, count: int, what: str) -> None:
    say("schedule", f"{_messages(count)} of {named} {'was' if count == 1 else 'were'} {what}")


# -------------------------------------------------------------------------------------------------------- periodic


def _topic_named(text: str) -> Topic:
    """Return the topic that *text* names, with or without ``topic://``; a type for argparse."""
    named = destination(text if "://" in text else f"topic://{text}")
    if not isinstance(named, Topic):
        raise argparse.ArgumentTypeError(f"{text!r} is not a topic: write NAME or topic://NAME")
    return named


def _add(schedules: Schedules, arguments: argparse.Namespace) -> int:
    how: dict[str, Any] = {}
    if arguments.priority is not None:
        how["priority"] = arguments.priority
    if arguments.ttl is not None:
        how["time_to_live"] = arguments.ttl
    if arguments.non_persistent:
        how["delivery_mode"] = DeliveryMode.NON_PERSISTENT
    message: Message = Message()
    if arguments.bytes:
        message = data = BytesMessage()
        data.write_bytes(sys.stdin.buffer.read())
    elif arguments.more:
        message = TextMessage(arguments.more[0])
    dress(message, arguments)
    added = schedules.add(
        arguments.destination,
        arguments.queue or arguments.topic,
        message,
        cron=arguments.cron,
        timezone=arguments.timezone or "UTC",
        replace=arguments.replace,
        **how,
    )
    _say_next(added, "is sent")
    return 0


def _remove(schedules: Schedules, arguments: argparse.Namespace) -> int:
    schedules.remove(arguments.destination, arguments.queue or arguments.topic)
    say("schedule", f"{arguments.destination} was removed")
    return 0


def _pause(schedules: Schedules, arguments: argparse.Namespace) -> int:
    schedules.pause(arguments.destination, arguments.queue or arguments.topic)
    say("schedule", f"{arguments.destination} is paused")
    return 0


def _resume(schedules: Schedules, arguments: argparse.Namespace) -> int:
    _say_next(schedules.resume(arguments.destination, arguments.queue or arguments.topic), "is sent again")
    return 0


def _say_next(found: Schedule, what: str) -> None:
    first = "never" if found.next_time is None else f"{found.next_time:%Y-%m-%d %H:%M:%S %Z}"
    say("schedule", f"{found.name} {what} to {found.destination}, next at {first}")


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
    "cancel": _ask,
    "deliver": _ask,
    "run": _run,
}
PERIODIC: Final[dict[str, Callable[[Schedules, argparse.Namespace], int]]] = {
    "add": _add,
    "remove": _remove,
    "pause": _pause,
    "resume": _resume,
}
ASKING: Final = {"cancel": "cancelled", "deliver": "delivered"}
"""What the process that serves delayed messages is asked for, and what becomes of them then."""
PERIODIC_OPTIONS: Final = (
    "queue",
    "topic",
    "cron",
    "timezone",
    "replace",
    "bytes",
    "property",
    "group",
    "type",
    "correlation_id",
    "reply_to",
    "priority",
    "ttl",
    "non_persistent",
)
"""The options of `PERIODIC`, as argparse calls them."""
