"""``kjms queues``: list, create and delete queues; purge, move, copy and find their messages."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from kjms.cli import FAILED, WrongUse
from kjms.cli._connecting import add_connection_options, connect, destination, queue
from kjms.cli._receive import check_selector, count
from kjms.cli._terminal import agrees, columns, escaped, json_text, moment, say
from kjms.destinations import Queue
from kjms.errors import JMSException

if TYPE_CHECKING:
    from kjms.admin import Admin, Changed, MessageFigures, Progress, QueueFigures, RedeliveryEvent, Source

__all__ = ["Reporter", "add_arguments", "report", "run", "setting"]

DESCRIPTION: Final = """\
List, create and delete queues; delete, move and copy their messages.

  list    List the queues: unsettled messages, those in flight and delayed, dead letters, consuming processes, and the
          age of the oldest message.
  create  Create QUEUE. Programs that use a queue create it themselves, unless their configuration forbids it.
  delete  Delete QUEUE with all its messages. The command refuses it while a process consumes the queue.
  purge   Delete the messages of QUEUE.
  move    Move messages of QUEUE to the queue or topic TARGET, each exactly once, unchanged.
  copy    Copy messages of QUEUE to TARGET, messages in flight included.
  find    Show in which queues and subscriptions the message with the id QUEUE is, and its redeliveries.

purge and move take the messages that are there at the start of the command, beside running consumers: messages that
a consumer has in flight stay. They go in batches; an interrupted command has processed whole batches, and the same
command continues. --dry-run reports the number of messages and changes nothing.
"""
EXAMPLES: Final = """\
examples:
  kjms queues
  kjms queues create orders --partitions 4
  kjms queues purge orders --selector "amount < 0" --dry-run
  kjms queues move orders orders.old --selector "JMSTimestamp < 1790000000000" --limit 1000
  kjms queues find ID:1f0c...-1-7
  kjms queues delete orders.old --yes
"""
CHANGING: Final = frozenset({"purge", "move", "copy"})
SAY_SECONDS: Final = 1.0  # between reports of progress at a terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    parser.add_argument("action", nargs="?", choices=[*ACTIONS], default="list", help="run this action (default: list)")
    parser.add_argument("queue", nargs="?", metavar="QUEUE", help="use this queue: NAME or queue://NAME; find: the id")
    parser.add_argument(
        "target", nargs="?", metavar="TARGET", help="move, copy: to this queue (NAME, queue://NAME) or topic://NAME"
    )
    which = parser.add_argument_group("selection of messages (purge, move, copy)")
    which.add_argument("--selector", metavar="TEXT", help="take only messages that match this selector (JMS 2.0 §3.8)")
    which.add_argument("--id", metavar="ID", action="append", help="take only the message with this id; repeatable")
    which.add_argument("--limit", metavar="N", type=count, help="take at most N messages")
    parser.add_argument("--dry-run", action="store_true", help="report the number of messages, and change nothing")
    parser.add_argument("--yes", action="store_true", help="purge, delete: do not ask for confirmation")
    add_creating_options(parser)
    parser.add_argument(
        "--estimate", action="store_true", help="list: read no messages; show upper bounds instead of numbers"
    )
    parser.add_argument("--json", action="store_true", help="list, find: write a JSON array; else a JSON object")
    add_connection_options(parser)


def add_creating_options(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the options of ``create``."""
    parser.add_argument("--partitions", metavar="N", type=count, help="create: give the Kafka topic N partitions")
    parser.add_argument(
        "--set",
        metavar="NAME=VALUE",
        dest="settings",
        type=setting,
        action="append",
        help="create: give the Kafka topic this setting, such as max.message.bytes=5000000; repeatable",
    )


def setting(text: str) -> tuple[str, str]:
    """Return the name and the value of a topic's setting; a type for argparse."""
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name.strip(), value.strip()


@dataclass(frozen=True)
class Entry:
    """A queue in the list."""

    name: str
    depth: int | None
    """The messages that are not settled; None: they were not counted."""
    depth_up_to: int | None
    """An upper bound of it: offsets that are not settled."""
    in_flight: int | None
    """An upper bound of the messages that consumers have received and not settled."""
    delayed: int | None
    dead_letters: int | None
    consumers: int
    """The processes that consume it."""
    oldest: int | None
    """When the oldest message was sent, in milliseconds since 1970 UTC."""
    error: str | None
    """Why the messages were not counted."""


def run(arguments: argparse.Namespace) -> int:
    """Do what *arguments* say.

    Raises:
        WrongUse: Arguments are missing, or are too many, or the selector's syntax is wrong.
        InvalidDestinationException: There is no such queue.
        IllegalStateException: A queue that is to be deleted has consumers.
        JMSException: The broker does not answer, or refuses it.
    """
    _check(arguments)
    from kjms.admin import Admin

    with connect(arguments, may_create=False) as connection, Admin.of(connection) as admin:
        return ACTIONS[arguments.action](admin, arguments)


def _check(arguments: argparse.Namespace) -> None:
    action = arguments.action
    if action == "list":
        if arguments.queue is not None:
            raise WrongUse("list: give no queue; 'kjms browse QUEUE' shows its messages")
    elif arguments.queue is None:
        raise WrongUse(f"{action}: give {'the id of the message' if action == 'find' else 'the queue'}")
    if (arguments.target is not None) != (action in {"move", "copy"}):
        raise WrongUse(f"{action}: give {'the target, too' if arguments.target is None else 'no target'}")
    for option, actions in (
        ("selector", CHANGING),
        ("id", CHANGING),
        ("limit", CHANGING),
        ("dry_run", CHANGING | {"delete"}),
        ("yes", {"purge", "delete"}),
        ("partitions", {"create"}),
        ("settings", {"create"}),
        ("estimate", {"list"}),
    ):
        if getattr(arguments, option) and action not in actions:
            name = "set" if option == "settings" else option.replace("_", "-")
            raise WrongUse(f"{action}: --{name} is an option of {' and '.join(sorted(actions))} only")
    check_confirmed(arguments, {"purge", "delete"})
    check_selector(arguments.selector)
    try:
        if action not in {"list", "find"}:
            arguments.queue = queue(str(arguments.queue))
        if arguments.target is not None:
            arguments.target = destination(arguments.target)
    except argparse.ArgumentTypeError as error:
        raise WrongUse(f"{action}: {error}") from error


def check_confirmed(arguments: argparse.Namespace, actions: set[str]) -> None:
    """Check that an action that cannot be undone can be confirmed.

    Raises:
        WrongUse: There is neither a terminal nor ``--yes``.
    """
    is_sure = arguments.yes or getattr(arguments, "dry_run", False)
    if arguments.action in actions and not is_sure and not sys.stdin.isatty():
        raise WrongUse(f"{arguments.action}: cannot be undone; without a terminal, confirm it with --yes")


# ------------------------------------------------------------------------------------------------------------ list


def _list(admin: Admin, arguments: argparse.Namespace) -> int:
    counted = admin.queues(estimate=arguments.estimate, progress=Reporter("queues", "counted"))
    entries = [entry(each) for each in counted]
    if arguments.json:
        print(json_text([asdict(each) for each in entries], indent=2))
    else:
        print(table(entries, time.time_ns() // 1_000_000, is_exact=not arguments.estimate))
    return 0


def entry(figures: QueueFigures) -> Entry:
    """Return the line of the list that says *figures*."""
    return Entry(
        name=figures.name,
        depth=figures.depth,
        depth_up_to=figures.depth_up_to,
        in_flight=figures.in_flight,
        delayed=figures.delayed,
        dead_letters=figures.dead_letters,
        consumers=figures.consumers,
        oldest=None if figures.oldest is None else _milliseconds(figures.oldest),
        error=figures.error,
    )


def table(entries: Sequence[Entry], now: int, *, is_exact: bool = True) -> str:
    """Return *entries* in aligned columns, errors below; *now* is in milliseconds since 1970 UTC."""
    if not entries:
        return "There are no queues yet."
    depth = "MESSAGES" if is_exact else "MESSAGES UP TO"
    rows = [("QUEUE", depth, "IN FLIGHT", "DELAYED", "DEAD LETTERS", "PROCESSES", "OLDEST")]
    rows += [
        (
            each.name,
            _number(each.depth if is_exact else each.depth_up_to),
            _number(each.in_flight),
            _number(each.delayed),
            _number(each.dead_letters),
            _number(each.consumers),
            "-" if each.oldest is None else _age(now - each.oldest),
        )
        for each in entries
    ]
    lines = columns(rows, right=[1, 2, 3, 4, 5, 6])
    errors = [f"! {escaped(f'{each.name}: {each.error}')}" for each in entries if each.error]
    return "\n".join([*lines, "", *errors] if errors else lines)


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _age(milliseconds: int) -> str:
    """Return a duration for people, in its two largest units.

    >>> _age(500), _age(65_000), _age(7_200_000), _age(90_061_000)
    ('0 s', '1 min 5 s', '2 h', '1 d 1 h')
    """
    left = max(milliseconds, 0) // 1000
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        if left >= size or (unit == "s" and not parts):
            parts.append(f"{left // size} {unit}")
            left %= size
        if len(parts) == 2 or (parts and not left):
            break
    return " ".join(parts)


def _milliseconds(when: datetime) -> int:
    return round(when.timestamp() * 1000)


# ------------------------------------------------------------------------------------------------- create and delete


def _create(admin: Admin, arguments: argparse.Namespace) -> int:
    admin.create_queue(arguments.queue, partitions=arguments.partitions, config=dict(arguments.settings or ()))
    return _done(arguments, f"{arguments.queue} was created")


def _delete(admin: Admin, arguments: argparse.Namespace) -> int:
    from kjms.admin import Changed

    if arguments.dry_run or not arguments.yes:
        held = admin.queue(arguments.queue, progress=Reporter("queues", "counted")).depth
        if arguments.dry_run:
            return report("queues", arguments, "would be deleted", Changed(held or 0), arguments.queue)
        if not agrees(f"Permanently delete {arguments.queue} and {_messages(held or 0)} in it?"):
            say("queues", "nothing was deleted")
            return FAILED
    admin.delete_queue(arguments.queue)
    return _done(arguments, f"{arguments.queue} was deleted")


def _done(arguments: argparse.Namespace, text: str) -> int:
    if arguments.json:
        print(json_text({"done": 1, "matched": 1, "stayed": {}}))
    else:
        say(arguments.command, text)
    return 0


# -------------------------------------------------------------------------------------------- purge, move and copy


class Reporter:
    """Shows the progress of a command on a terminal, and says what was done when it is interrupted.

    Args:
        command: The command that speaks.
        what: What is done with messages, such as ``moved``.
    """

    def __init__(self, command: str, what: str) -> None:
        self._command = command
        self._what = what
        self._done = 0
        self._is_shown = sys.stderr.isatty()
        self._said_at = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        """Note *progress*; show it, once a second."""
        if progress.total is not None or self._what == "copied":
            self._done = progress.done
        if self._is_shown and time.monotonic() - self._said_at >= SAY_SECONDS:
            self._said_at = time.monotonic()
            of = "" if progress.total is None else f" of {progress.total:,}"
            say(self._command, f"{progress.done:,}{of} messages of {progress.destination}")

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Say how much was done when the block is interrupted."""
        try:
            yield
        except (Exception, KeyboardInterrupt):
            raise
        except BaseException:
            say(self._command, f"{_messages(self._done)} {_were(self._done)} {self._what} before the interruption")
            raise


def _change(admin: Admin, arguments: argparse.Namespace) -> int:
    from kjms.admin import Changed

    what = {"purge": "deleted", "move": "moved", "copy": "copied"}[arguments.action]
    source: Queue = arguments.queue
    selector = _with_ids(arguments)
    if arguments.dry_run or (arguments.action == "purge" and not arguments.yes):
        wanted = admin.count(source, selector, limit=arguments.limit, progress=Reporter("queues", "counted"))
        if arguments.dry_run:
            return report("queues", arguments, f"would be {what}", Changed(wanted), source)
        if wanted and not agrees(f"Permanently delete {_messages(wanted)} of {source}?"):
            say("queues", "nothing was deleted")
            return FAILED
    reporter = Reporter("queues", what)
    how: dict[str, Any] = {"limit": arguments.limit, "message_ids": arguments.id, "progress": reporter}
    with reporter.interruptible():
        if arguments.action == "purge":
            changed = admin.purge(source, arguments.selector, **how)
        else:
            call = admin.move if arguments.action == "move" else admin.copy
            changed = call(source, arguments.target, arguments.selector, **how)
    return report("queues", arguments, what, changed, source)


def _with_ids(arguments: argparse.Namespace) -> str | None:
    """Return the selector of the messages that *arguments* choose."""
    if not arguments.id:
        return str(arguments.selector) if arguments.selector else None
    quoted = ", ".join("'{}'".format(each.replace("'", "''")) for each in arguments.id)
    text = f"JMSMessageID IN ({quoted})"
    return f"({arguments.selector}) AND {text}" if (arguments.selector or "").strip() else text


def report(command: str, arguments: argparse.Namespace, what: str, changed: Changed, source: Source) -> int:
    """Report what was done; return the exit code."""
    if arguments.json:
        print(json_text({"done": int(changed), "matched": changed.matched, "stayed": dict(changed.stayed)}))
        return FAILED if changed.stayed else 0
    verb = "" if what.startswith("would") else f"{_were(changed)} "
    say(command, f"{_messages(changed)} of {source} {verb}{what}")
    for reason, number in changed.stayed.items():
        say(command, f"{_messages(number)} stayed: {reason}")
    return FAILED if changed.stayed else 0


def _messages(number: int) -> str:
    return f"{number:,} message{'' if number == 1 else 's'}"


def _were(number: int) -> str:
    return "was" if number == 1 else "were"


# ------------------------------------------------------------------------------------------------------------ find


def _find(admin: Admin, arguments: argparse.Namespace) -> int:
    reporter = Reporter("queues", "searched")

    def searched(progress: Progress) -> None:
        if progress.total is None:  # messages; with a total, it counts destinations
            reporter(progress)

    found = admin.find(arguments.queue, progress=searched)
    events = admin.redeliveries(arguments.queue, progress=reporter)
    if arguments.json:
        print(json_text([*map(_place, found), *map(_event, events)], indent=2))
    elif not found and not events:
        raise JMSException(f"no queue or subscription has a message with the id {arguments.queue}")
    else:
        print(places(found, events))
    return 0 if found or events else FAILED


def places(found: Sequence[MessageFigures], events: Sequence[RedeliveryEvent]) -> str:
    """Return where a message is, and its redeliveries, in aligned columns."""
    tables = []
    if found:
        rows = [("DESTINATION", "SUBSCRIPTION", "PLACE", "STATE", "DELIVERIES", "POSITION")]
        rows += [
            (
                str(each.destination),
                "-" if each.subscription is None else each.subscription.name,
                each.place,
                each.state,
                f"{each.deliveries:,}",
                f"{each.topic}[{each.partition}]@{each.offset}",
            )
            for each in found
        ]
        tables.append("\n".join(columns(rows, right=[4])))
    if events:
        rows = [("TIME", "EVENT", "DESTINATION", "DELIVERY", "PROCESS", "CAUSE")]
        rows += [
            (
                moment(_milliseconds(each.time), is_precise=True),
                each.event,
                each.destination,
                f"{each.count:,}",
                "-" if each.host is None else f"{each.host}, {each.process}",
                each.cause or "-",
            )
            for each in events
        ]
        tables.append("\n".join(columns(rows, right=[3])))
    return "\n\n".join(tables)


def _place(each: MessageFigures) -> dict[str, Any]:
    subscription = each.subscription
    return {
        "event": None,
        "destination": str(each.destination),
        "subscription": None if subscription is None else subscription.name,
        "client_id": None if subscription is None else subscription.client_id,
        "place": each.place,
        "state": each.state,
        "deliveries": each.deliveries,
        "topic": each.topic,
        "partition": each.partition,
        "offset": each.offset,
        "due": None if each.due is None else _milliseconds(each.due),
    }


def _event(each: RedeliveryEvent) -> dict[str, Any]:
    return {**asdict(each), "time": _milliseconds(each.time)}


ACTIONS: Final[dict[str, Callable[[Admin, argparse.Namespace], int]]] = {
    "list": _list,
    "create": _create,
    "delete": _delete,
    "purge": _change,
    "move": _change,
    "copy": _change,
    "find": _find,
}
