"""``kjms dlq``: list, show, retry or purge dead letters."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from kjms.cli import FAILED, WrongUse
from kjms.cli._connecting import add_connection_options, check_exists, connect, destination, queue
from kjms.cli._queues import Reporter
from kjms.cli._receive import check_selector
from kjms.cli._terminal import agrees, columns, escaped, json_text, moment, say, shown_body
from kjms.client.engine_access import engine_of
from kjms.destinations import Queue
from kjms.errors import JMSException
from kjms.mapping.dead_letters import CAUSE, DESTINATION
from kjms.mapping.json_form import to_json
from kjms.mapping.names import topic_for

if TYPE_CHECKING:
    from kjms import Connection, Message
    from kjms.admin import Admin, DeadLetter, DeadLetterQueue

DESCRIPTION: Final = """\
Work on dead letters: messages that were delivered too often, and expired messages if there is an expiry queue. A
message with the property JMS_kjms_Cause is a dead letter. The command does not change other messages of the same queue.

  list   List the dead-letter queues, with the number and causes of their dead letters. The command finds them by their
         names, as configured ('...dlq' without configuration). With QUEUE: only that queue, whatever its name.
  show   Show the dead letters of QUEUE: cause, origin, deliveries, failures. 'kjms browse QUEUE' shows the messages.
  retry  Move the dead letters back to their origin, unchanged; their delivery count restarts. Each moves exactly once,
         also if the command is killed; the same command continues. They expire at their original time, or never if that
         time has passed. QUEUE may also be the queue that they came from. A dead letter that names a destination whose
         dead letters go elsewhere, as configured, stays, unless --origin names that destination.
  purge  Delete the dead letters.

Without --id and --selector, retry and purge take all dead letters that are there at the start of the command. --dry-run
says how many that are.
"""
EXAMPLES: Final = """\
examples:
  kjms dlq list
  kjms dlq show orders.dlq
  kjms dlq retry orders.dlq --id ID:1f0c...-1-7
  kjms dlq retry orders.dlq --selector "JMS_kjms_Cause LIKE '%TimeoutError%'"
  kjms dlq purge orders.dlq --yes
"""

CAUSES_SHOWN: Final = 5
HINTS: Final = {
    "from a topic": ": --topics includes them",
    "from a destination whose": "; --origin NAME moves those from there back all the same",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    parser.add_argument("action", nargs="?", choices=[*ACTIONS], default="list", help="run this action (default: list)")
    parser.add_argument("queue", nargs="?", metavar="QUEUE", type=queue, help="use the dead letters of this queue")
    which = parser.add_argument_group("selection of dead letters (show, retry, purge)")
    which.add_argument(
        "--selector", metavar="TEXT", help="take only dead letters that match this selector (JMS 2.0 §3.8)"
    )
    which.add_argument(
        "--id", metavar="ID", action="append", help="take only the dead letter with this JMSMessageID; repeatable"
    )
    parser.add_argument(
        "--topics",
        action="store_true",
        help="retry: include dead letters of topics; each subscription of the topic receives them again",
    )
    parser.add_argument(
        "--origin",
        metavar="NAME",
        action="append",
        type=destination,
        help="retry: take only dead letters from this queue, or topic://NAME, wherever its dead letters go; repeatable",
    )
    parser.add_argument("--yes", action="store_true", help="purge: do not ask for confirmation")
    parser.add_argument("--dry-run", action="store_true", help="retry, purge: report the number, and change nothing")
    parser.add_argument(
        "--json",
        action="store_true",
        help="list: write a JSON array; show: write a JSON object per line; retry, purge: write a JSON object",
    )
    add_connection_options(parser)


@dataclass(frozen=True)
class Entry:
    """A dead-letter queue in the list."""

    name: str
    dead_letters: int
    causes: dict[str, int]
    """The number of dead letters by cause, most frequent first."""
    last_failure: int | None = None
    """When the last of them failed, in milliseconds since the epoch; None if unknown."""


def run(arguments: argparse.Namespace) -> int:
    """Do what *arguments* say.

    Raises:
        WrongUse: Arguments are missing, or are too many, or the selector's syntax is wrong.
        InvalidDestinationException: There is no such queue.
        JMSException: The broker does not answer, or did not take a message.
    """
    from kjms.admin import Admin

    _check(arguments)
    with connect(arguments, may_create=False) as connection:
        if arguments.queue is not None:
            check_exists(connection, arguments.queue)
        with Admin.of(connection) as admin:
            return ACTIONS[arguments.action](admin, connection, arguments)


def _check(arguments: argparse.Namespace) -> None:
    action = arguments.action
    if action != "list" and arguments.queue is None:
        raise WrongUse(f"{action}: give the queue that holds the dead letters; 'kjms dlq list' lists them")
    for option, actions in (
        ("selector", {"show", "retry", "purge"}),
        ("id", {"show", "retry", "purge"}),
        ("topics", {"retry"}),
        ("origin", {"retry"}),
        ("yes", {"purge"}),
        ("dry_run", {"retry", "purge"}),
    ):
        if getattr(arguments, option) and action not in actions:
            raise WrongUse(
                f"{action}: --{option.replace('_', '-')} is an option of {' and '.join(sorted(actions))} only"
            )
    if action == "purge" and not (arguments.yes or arguments.dry_run) and not sys.stdin.isatty():
        raise WrongUse("purge: cannot be undone; without a terminal, confirm it with --yes")
    check_selector(arguments.selector)


# ------------------------------------------------------------------------------------------------------------ list


def _list(admin: Admin, connection: Connection, arguments: argparse.Namespace) -> int:
    counted = admin.dead_letters(arguments.queue, progress=Reporter("dlq", "counted"))
    entries = [entry(each) for each in counted]
    if arguments.json:
        print(json_text([asdict(each) for each in entries], indent=2))
    else:
        print(table(entries))
    return 0


def entry(figures: DeadLetterQueue) -> Entry:
    """Return the lines of the list that say *figures*."""
    last = figures.last_failure
    return Entry(
        figures.name,
        figures.dead_letters,
        dict(figures.causes),
        None if last is None else round(last.timestamp() * 1000),
    )


def table(entries: Sequence[Entry]) -> str:
    """Return *entries* in aligned columns, a line for each cause."""
    if not entries:
        return "There are no dead-letter queues."
    rows = [("QUEUE", "DEAD LETTERS", "LAST FAILURE", "CAUSES")]
    for entry in entries:
        causes = [f"{count:,} x {cause}" for cause, count in entry.causes.items()]
        if len(causes) > CAUSES_SHOWN + 1:
            causes[CAUSES_SHOWN:] = [f"... and {len(causes) - CAUSES_SHOWN:,} other causes"]
        last = "-" if entry.last_failure is None else moment(entry.last_failure)
        rows.append((entry.name, f"{entry.dead_letters:,}", last, causes[0] if causes else "-"))
        rows += [("", "", "", cause) for cause in causes[1:]]
    return "\n".join(columns(rows, right=[1]))


# ------------------------------------------------------------------------------------------------------------ show


def _show(admin: Admin, connection: Connection, arguments: argparse.Namespace) -> int:
    shown = set()
    for each in admin.messages(arguments.queue, _selector(arguments)):
        message, letter = each.message, each.dead_letter
        assert letter is not None
        shown.add(message.jms_message_id)
        if arguments.json:
            sys.stdout.buffer.write(json_text({**asdict(letter), "message": to_json(message)}).encode() + b"\n")
        else:
            print(_readable(message, letter))
    return _missing(connection, arguments, shown)


def _readable(message: Message, letter: DeadLetter) -> str:
    lines = [
        ("cause", letter.cause),
        ("origin", letter.destination),
        ("position", None if letter.offset is None else f"{letter.topic}[{letter.partition}]@{letter.offset}"),
        ("deliveries", letter.deliveries),
        ("sent", moment(message.jms_timestamp)),
        ("first failed", None if letter.first_failure is None else moment(letter.first_failure)),
        ("last failed", None if letter.last_failure is None else moment(letter.last_failure)),
        ("host", letter.host and f"{letter.host}, process {letter.process}"),
        ("exception", letter.exception),
        ("message", letter.exception_message),
        ("omitted", letter.omitted),
        *(("damaged", damage) for damage in message.damage),
    ]
    shown = [f"  {name:<12} {escaped(str(value))}" for name, value in lines if value is not None]
    if letter.traceback:
        shown.append("  traceback")
        shown += [f"    {shown_body(line)}" for line in letter.traceback.splitlines()]
    return "\n".join([escaped(str(message.jms_message_id)), *shown])


def _missing(connection: Connection, arguments: argparse.Namespace, found: Collection[str | None]) -> int:
    """Report dead letters that were not found; return the exit code."""
    missing = [wanted for wanted in dict.fromkeys(arguments.id or ()) if wanted not in found]
    if missing:
        raise JMSException(f"{arguments.queue} has no dead letter with this id: {', '.join(missing)}")
    if not found:
        named = arguments.queue
        policy = connection._options.destination(named.queue_name).redelivery
        other = None if policy is None else Queue(policy.dead_letter_queue(named.queue_name))
        hint = ""
        if other is not None and engine_of(connection).admin.partitions(_topic(connection, other)):
            hint = f"; the dead letters of this queue are in {other}"
        say("dlq", f"{named} has no matching dead letters{hint}")
    return 0


# ------------------------------------------------------------------------------------------------- retry and purge


def _retry(admin: Admin, connection: Connection, arguments: argparse.Namespace) -> int:
    _check_ids(admin, connection, arguments)
    if arguments.dry_run:
        return _result(connection, arguments, "would be moved back", _count(admin, arguments))
    how = {"selector": arguments.selector, "message_ids": arguments.id, "topics": arguments.topics}
    how["origin"] = arguments.origin or ()
    reporter = Reporter("dlq", "moved back")
    with reporter.interruptible():
        moved = admin.retry_dead_letters(arguments.queue, **how, progress=reporter)
    return _result(connection, arguments, "moved back", moved)


def _purge(admin: Admin, connection: Connection, arguments: argparse.Namespace) -> int:
    _check_ids(admin, connection, arguments)
    if arguments.dry_run:
        return _result(connection, arguments, "would be deleted", _count(admin, arguments))
    if not arguments.yes:
        wanted = _count(admin, arguments)
        if wanted and not agrees(f"Permanently delete {_dead_letters(wanted)} of {arguments.queue}?"):
            say("dlq", "nothing was deleted")
            return FAILED
    reporter = Reporter("dlq", "deleted")
    with reporter.interruptible():
        purged = admin.purge(arguments.queue, _selector(arguments), progress=reporter)
    return _result(connection, arguments, "deleted", purged)


def _count(admin: Admin, arguments: argparse.Namespace) -> int:
    return admin.count(arguments.queue, _selector(arguments), progress=Reporter("dlq", "counted"))


def _check_ids(admin: Admin, connection: Connection, arguments: argparse.Namespace) -> None:
    """Check that there are dead letters with the ids that were given.

    Raises:
        JMSException: One of them is missing.
    """
    if arguments.id:
        found = {each.message_id for each in admin.messages(arguments.queue, _selector(arguments))}
        _missing(connection, arguments, found)


def _result(connection: Connection, arguments: argparse.Namespace, done_so: str, done: int) -> int:
    """Report what was done; return the exit code."""
    from kjms.admin import Changed

    changed = done if isinstance(done, Changed) else Changed(done)
    if arguments.json:
        print(json_text({"done": int(changed), "matched": changed.matched, "stayed": dict(changed.stayed)}))
        return FAILED if changed.stayed else 0
    if not changed.matched:
        return _missing(connection, arguments, ())
    if done_so.startswith("would"):
        say("dlq", f"{_dead_letters(done)} of {arguments.queue} {done_so}")
        return 0
    if changed or changed.matched > sum(changed.stayed.values()):
        say("dlq", f"{_dead_letters(changed)} of {arguments.queue} {'was' if changed == 1 else 'were'} {done_so}")
    for reason, count in changed.stayed.items():
        hint = next((hint for begin, hint in HINTS.items() if reason.startswith(begin)), "")
        say("dlq", f"{_dead_letters(count)} stayed: {reason}{hint}")
    return FAILED if changed.stayed else 0


def _dead_letters(count: int) -> str:
    return f"{count:,} dead letter{'' if count == 1 else 's'}"


def _selector(arguments: argparse.Namespace) -> str:
    """Return the selector of the dead letters that *arguments* choose."""
    parts = [f"{CAUSE} IS NOT NULL"]
    if (arguments.selector or "").strip():
        parts.append(f"({arguments.selector})")
    if arguments.id:
        quoted = ", ".join("'{}'".format(wanted.replace("'", "''")) for wanted in arguments.id)
        parts.append(f"JMSMessageID IN ({quoted})")
    if arguments.origin:
        quoted = ", ".join("'{}'".format(str(wanted).replace("'", "''")) for wanted in arguments.origin)
        parts.append(f"{DESTINATION} IN ({quoted})")
    return " AND ".join(parts)


def _topic(connection: Connection, found: Queue) -> str:
    return topic_for(found, connection._options.queue_prefix)


ACTIONS: Final[dict[str, Callable[[Admin, Connection, argparse.Namespace], int]]] = {
    "list": _list,
    "show": _show,
    "retry": _retry,
    "purge": _purge,
}
