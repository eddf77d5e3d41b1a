"""``kjms dlq``: list, show, retry or purge dead letters."""

from __future__ import annotations

import argparse
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from kjms.cli import FAILED, WrongUse
from kjms.cli._connecting import add_connection_options, check_exists, connect, queue
from kjms.cli._json_form import to_json
from kjms.cli._receive import check_selector
from kjms.cli._terminal import agrees, columns, escaped, json_text, moment, say, shown_body
from kjms.client.dead_letters import (
    CAUSE,
    CUT,
    DELIVERIES,
    DESTINATION,
    EXCEPTION,
    EXCEPTION_TEXT,
    FIRST_FAILURE,
    HOST,
    LAST_FAILURE,
    OFFSET,
    PARTITION,
    PROCESS,
    TOPIC,
    TRACEBACK,
    retried_message,
)
from kjms.client.engine_access import engine_of
from kjms.destinations import Queue, Topic, parse_destination
from kjms.errors import InvalidDestinationException, JMSException
from kjms.mapping.names import destination_for, is_internal, topic_for

if TYPE_CHECKING:
    from kjms import Connection, Message
    from kjms.engine import Delivery, MessageSource
    from kjms.engine.kafka import KafkaError

DESCRIPTION: Final = """\
Work on dead letters: messages that were delivered too often, and expired messages if there is an expiry queue. A
message with the property JMS_kjms_Cause is a dead letter. The command does not change other messages of the same queue.

  list   List the dead-letter queues, with the number and causes of their dead letters. The command finds them by their
         names, as configured ('...dlq' without configuration). With QUEUE: only that queue, whatever its name.
  show   Show the dead letters of QUEUE: cause, origin, deliveries, failures. 'kjms browse QUEUE' shows the messages.
  retry  Move the dead letters back to their origin, unchanged; their delivery count restarts. Kafka confirms each
         message there before its dead letter is deleted. If the command is killed, no message is lost, and a few may be
         delivered twice. They expire at their original time, or never if that time has passed.
  purge  Delete the dead letters.

Without --id and --selector, retry and purge take all dead letters that are there at the start of the command.
"""
EXAMPLES: Final = """\
examples:
  kjms dlq list
  kjms dlq show orders.dlq
  kjms dlq retry orders.dlq --id ID:1f0c...-1-7
  kjms dlq retry orders.dlq --selector "JMS_kjms_Cause LIKE '%TimeoutError%'"
  kjms dlq purge orders.dlq --yes
"""

BATCH: Final = 500  # dead letters sent and settled together
TEMPORARY: Final = "temp-"  # what the text form of temporary destinations begins with
ARRIVE_SECONDS: Final = 10.0  # a consumer that was killed keeps its partitions for 6 s
NEXT_SECONDS: Final = 3.0  # after the first one, waiting ones follow at once
CAUSES_SHOWN: Final = 5
CAUSES_KEPT: Final = 1_000  # an exception's text may differ each time


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
    parser.add_argument("--yes", action="store_true", help="purge: do not ask for confirmation")
    parser.add_argument(
        "--json", action="store_true", help="list: write a JSON array; show: write a JSON object per line"
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


@dataclass(frozen=True)
class Letter:
    """The properties that describe a dead letter; None for those that it lacks."""

    cause: str
    destination: str | None
    """Its origin, such as ``queue://orders``."""
    topic: str | None
    partition: int | None
    offset: int | None
    deliveries: int | None
    omitted: str | None
    """The parts of the message that were too large for the dead-letter queue."""
    exception: str | None = None
    """The type of the exception, where one was raised."""
    exception_message: str | None = None
    """Its text, if the option dead_letter_details is set."""
    traceback: str | None = None
    """Likewise."""
    host: str | None = None
    """Of the process where the last delivery failed."""
    process: int | None = None
    first_failure: int | None = None
    """When a delivery failed first, in milliseconds since the epoch."""
    last_failure: int | None = None


def run(arguments: argparse.Namespace) -> int:
    """Do what *arguments* say.

    Raises:
        WrongUse: Arguments are missing, or are too many, or the selector's syntax is wrong.
        InvalidDestinationException: There is no such queue.
        JMSException: The broker does not answer, or did not take a message.
    """
    _check(arguments)
    with connect(arguments, may_create=False) as connection:
        if arguments.queue is not None:
            check_exists(connection, arguments.queue)
        return ACTIONS[arguments.action](connection, arguments)


def _check(arguments: argparse.Namespace) -> None:
    action = arguments.action
    if action != "list" and arguments.queue is None:
        raise WrongUse(f"{action}: give the queue that holds the dead letters; 'kjms dlq list' lists them")
    for option, actions in (
        ("selector", {"show", "retry", "purge"}),
        ("id", {"show", "retry", "purge"}),
        ("topics", {"retry"}),
        ("yes", {"purge"}),
        ("json", {"list", "show"}),
    ):
        if getattr(arguments, option) and action not in actions:
            raise WrongUse(f"{action}: --{option} is an option of {' and '.join(sorted(actions))} only")
    if action == "purge" and not arguments.yes and not sys.stdin.isatty():
        raise WrongUse("purge: cannot be undone; without a terminal, confirm it with --yes")
    check_selector(arguments.selector)


# ------------------------------------------------------------------------------------------------------------ list


def _list(connection: Connection, arguments: argparse.Namespace) -> int:
    entries = [
        _entry(connection, found)
        for found in ([arguments.queue] if arguments.queue is not None else _dead_letter_queues(connection))
    ]
    if arguments.json:
        print(json_text([asdict(entry) for entry in entries], indent=2))
    else:
        print(table(entries))
    return 0


def _dead_letter_queues(connection: Connection) -> list[Queue]:
    """Return the queues that are named like dead-letter queues or expiry queues, sorted by name."""
    options = connection._options
    names = []
    for chosen in (options.defaults, *options.destinations.values()):
        if chosen.redelivery is not None:
            names.append(".+".join(map(re.escape, chosen.redelivery.dead_letter.split("{queue}"))))
        if chosen.expiry_queue is not None:
            names.append(re.escape(chosen.expiry_queue))
    is_called_so = re.compile("|".join(names), re.DOTALL).fullmatch
    found = []
    for topic in engine_of(connection).admin.topics():
        if not is_internal(topic):
            try:
                named = destination_for(topic, Queue, options.queue_prefix)
            except InvalidDestinationException:  # no prefix of ours: not a destination of kjms
                continue
            if isinstance(named, Queue) and is_called_so(named.queue_name):
                found.append(named)
    return sorted(found, key=str)


def _entry(connection: Connection, found: Queue) -> Entry:
    causes: Counter[str] = Counter()
    last = None
    for message in _letters(connection, found, _selector()):
        letter = _letter(message)
        cause = letter.cause
        last = max(last or 0, letter.last_failure or 0) or None
        causes[cause if cause in causes or len(causes) < CAUSES_KEPT else "other causes"] += 1
    return Entry(found.queue_name, causes.total(), dict(causes.most_common()), last)


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


def _show(connection: Connection, arguments: argparse.Namespace) -> int:
    shown = set()
    for message in _letters(connection, arguments.queue, _selector(arguments)):
        shown.add(message.jms_message_id)
        letter = _letter(message)
        if arguments.json:
            sys.stdout.buffer.write(json_text({**asdict(letter), "message": to_json(message)}).encode() + b"\n")
        else:
            print(_readable(message, letter))
    return _missing(connection, arguments, shown)


def _readable(message: Message, letter: Letter) -> str:
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


def _missing(connection: Connection, arguments: argparse.Namespace, found: set[str | None]) -> int:
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


def _retry(connection: Connection, arguments: argparse.Namespace) -> int:
    found: set[str | None] = set()
    stay: Counter[str] = Counter()
    origins = Origins(connection)
    wanted = 0
    for message in _letters(connection, arguments.queue, _selector(arguments)):
        found.add(message.jms_message_id)
        letter = _letter(message)
        obstacle = _obstacle(letter, arguments)
        if obstacle:
            stay[obstacle] += 1
        else:
            wanted += 1
            origins.find(letter.destination or "")  # before anything is moved
    _missing(connection, arguments, found)
    kinds = f"NOT LIKE '{TEMPORARY}%'" if arguments.topics else "LIKE 'queue:%'"
    selector = _selector(arguments, [f"{CUT} IS NULL", f"{DESTINATION} {kinds}"])
    moved = _take(connection, arguments.queue, selector, wanted, origins.send_back)
    return _result(arguments, "moved back", moved, wanted, stay)


class Origins:
    """The origins of dead letters; sends dead letters back to them."""

    def __init__(self, connection: Connection) -> None:
        self._engine = engine_of(connection)
        self._options = connection._options
        self._topics: dict[str, tuple[str, int]] = {}

    def find(self, origin: str) -> tuple[str, int]:
        """Return the Kafka topic of the destination *origin*, and its number of partitions.

        Raises:
            InvalidDestinationException: It does not exist any more.
        """
        if origin not in self._topics:
            self._topics[origin] = self._engine.topic_of(parse_destination(origin), self._options)
        return self._topics[origin]

    def send_back(self, batch: Sequence[Delivery]) -> tuple[list[Delivery], JMSException | None]:
        """Send the original messages of *batch* again; return the dead letters that succeeded, and the failure."""
        now = time.time_ns() // 1_000_000
        publisher = self._engine.bulk
        reports: SimpleQueue[tuple[Delivery, str, KafkaError | None]] = SimpleQueue()

        def report(delivery: Delivery, topic: str) -> Callable[[KafkaError | None, object], None]:
            return lambda error, _message: reports.put((delivery, topic, error))

        failure: JMSException | None = None
        sent = 0
        for delivery in batch:
            headers = dict(delivery.record.headers() or ())
            topic, partitions = self.find((headers.get(DESTINATION) or b"").decode())
            _, partition, record, _ = retried_message(delivery.record, topic, partitions, now)
            try:
                publisher.send(topic, partition, record, report(delivery, topic))
            except JMSException as refusal:
                failure = refusal
                break
            sent += 1
        arrived = []
        for delivery, topic, error in (reports.get() for _ in range(sent)):
            if error is None:
                arrived.append(delivery)
            else:
                failure = publisher.failure(error, topic)
        return arrived, failure


def _obstacle(letter: Letter, arguments: argparse.Namespace) -> str:
    """Return why a dead letter cannot be retried, or an empty text."""
    if letter.omitted is not None:
        return "stored without headers or body, which were too large for the dead-letter queue"
    try:
        origin = parse_destination(letter.destination or "")
    except InvalidDestinationException:
        return "their origin is not recorded"
    if origin.scheme.startswith(TEMPORARY):
        return "from a temporary destination, which belonged to one program"
    if isinstance(origin, Topic) and not arguments.topics:
        return "from a topic: --topics sends them to every subscription of it again"
    return ""


def _purge(connection: Connection, arguments: argparse.Namespace) -> int:
    found: set[str | None] = set()
    wanted = 0
    selector = _selector(arguments)
    for message in _letters(connection, arguments.queue, selector):
        found.add(message.jms_message_id)
        wanted += 1
    _missing(connection, arguments, found)
    if wanted and not arguments.yes and not agrees(f"Permanently delete {_dead_letters(wanted)} of {arguments.queue}?"):
        say("dlq", "nothing was deleted")
        return FAILED
    deleted = _take(connection, arguments.queue, selector, wanted, lambda batch: (list(batch), None))
    return _result(arguments, "deleted", deleted, wanted, Counter())


def _result(arguments: argparse.Namespace, done_so: str, done: int, wanted: int, stay: Counter[str]) -> int:
    if done or wanted:
        verb = "was" if done == 1 else "were"
        say("dlq", f"{_dead_letters(done)} of {arguments.queue} {verb} {done_so}")
    if done < wanted:
        stay[f"in flight to another consumer of {arguments.queue}"] += wanted - done
    for reason, count in stay.items():
        say("dlq", f"{_dead_letters(count)} stayed: {reason}")
    return FAILED if stay else 0


def _dead_letters(count: int) -> str:
    return f"{count:,} dead letter{'' if count == 1 else 's'}"


def _take(
    connection: Connection,
    found: Queue,
    selector_text: str,
    wanted: int,
    carry_out: Callable[[Sequence[Delivery]], tuple[list[Delivery], JMSException | None]],
) -> int:
    """Receive the present dead letters, pass them to *carry_out* in batches, and settle those that it returns.

    Args:
        connection: The connection.
        found: The queue.
        selector_text: Which of its messages.
        wanted: How many there are.
        carry_out: Processes a batch; returns the deliveries that succeeded, and the failure, if any.

    Returns:
        How many were settled; fewer than *wanted* if other consumers have the rest.

    Raises:
        JMSException: The failure of *carry_out*; each message is settled, or available to other consumers again.
    """
    from kjms.selector import parse_selector

    if not wanted:
        return 0
    engine = engine_of(connection)
    ends = engine.admin.ends(_topic(connection, found))  # excludes messages that become dead letters again meanwhile
    wakeup = threading.Event()
    slot = engine.open_slot(found, connection._options, parse_selector(selector_text), wakeup)
    reader = slot.reader
    later: list[Delivery] = []
    batch: list[Delivery] = []
    done = 0
    try:
        slot.start()
        deadline = time.monotonic() + ARRIVE_SECONDS
        while done < wanted:
            wakeup.clear()
            delivery = slot.poll()
            if delivery is not None:
                record = delivery.record
                is_later = (record.offset() or 0) >= ends.get(record.partition() or 0, 0)
                (later if is_later else batch).append(delivery)
            if batch and (delivery is None or len(batch) == min(BATCH, wanted - done)):
                succeeded, failure = carry_out(batch)
                done += _settle(reader, succeeded)
                ready = set(succeeded)
                batch = [one for one in batch if one not in ready]
                if failure is not None:
                    raise JMSException(
                        f"{_dead_letters(done)} processed before this error: {failure}", failure.error_code, failure
                    )
                deadline = time.monotonic() + NEXT_SECONDS
            elif delivery is None and not wakeup.wait(max(deadline - time.monotonic(), 0)):
                break
    finally:
        reader.give_back([*batch, *later], is_counted=False)
        engine.close_slots([slot])
    return done


def _settle(reader: MessageSource, deliveries: Sequence[Delivery]) -> int:
    """Settle *deliveries*; return for how many Kafka accepted it."""
    receipts = reader.settle(deliveries)
    return len(deliveries) - (reader.flush(receipts=receipts) if receipts else 0)


# --------------------------------------------------------------------------------------------------------- dead letters


def _selector(arguments: argparse.Namespace | None = None, more: Sequence[str] = ()) -> str:
    """Return the selector of the dead letters that *arguments* choose."""
    parts = [f"{CAUSE} IS NOT NULL", *more]
    if arguments is not None and (arguments.selector or "").strip():
        parts.append(f"({arguments.selector})")
    if arguments is not None and arguments.id:
        quoted = ", ".join("'{}'".format(wanted.replace("'", "''")) for wanted in arguments.id)
        parts.append(f"JMSMessageID IN ({quoted})")
    return " AND ".join(parts)


def _letters(connection: Connection, found: Queue, selector: str) -> Iterator[Message]:
    with connection.create_session() as session, session.create_browser(found, selector) as browser:
        yield from browser


def _letter(message: Message) -> Letter:
    text = message.get_string_property

    def number(name: str) -> int | None:
        value = text(name)
        return int(value) if value is not None and value.isdecimal() else None

    return Letter(
        cause=text(CAUSE) or "",
        destination=text(DESTINATION),
        topic=text(TOPIC),
        partition=number(PARTITION),
        offset=number(OFFSET),
        deliveries=number(DELIVERIES),
        omitted=text(CUT),
        exception=text(EXCEPTION),
        exception_message=text(EXCEPTION_TEXT),
        traceback=text(TRACEBACK),
        host=text(HOST),
        process=number(PROCESS),
        first_failure=number(FIRST_FAILURE),
        last_failure=number(LAST_FAILURE),
    )


def _topic(connection: Connection, found: Queue) -> str:
    return topic_for(found, connection._options.queue_prefix)


ACTIONS: Final[dict[str, Callable[[Connection, argparse.Namespace], int]]] = {
    "list": _list,
    "show": _show,
    "retry": _retry,
    "purge": _purge,
}
