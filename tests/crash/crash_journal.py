"""What the processes of a crash test write down: one file per session, one JSON line per event, kept through kill -9.

`crash_record` makes the history of the round of it. A line is written with one system call, so a process that is killed
leaves whole lines. Times are seconds of the system's monotonic clock, which all processes of a machine share, and which
runs on while a process is stopped.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path


class Kind(str, Enum):
    """What happened."""

    # Producers.
    INTENDED = "intended"  # about to send
    CONFIRMED = "confirmed"  # send() returned
    FAILED = "failed"  # send() or receive() raised
    # Consumers.
    DELIVERED = "delivered"  # a receive returned it, or the listener was called with it
    RETURNED = "returned"  # the listener returned: the acknowledgement may be on its way
    RAISED = "raised"  # the listener raised
    ACKNOWLEDGING = "acknowledging"  # about to call acknowledge()
    ACKNOWLEDGED = "acknowledged"  # acknowledge() returned; AUTO: the next message was asked for, and no error came
    NOT_ACKNOWLEDGED = "not acknowledged"  # it raised
    RECOVERED = "recovered"  # recover() was called while these were unacknowledged
    KILLING = "killing"  # the message that kills its consumer is about to
    CHANGED = "changed"  # its consumer was closed, and there is another one; the text is its selector
    LEFT = "left"  # closed in order
    # Transacted sessions: the text begins with the transaction's name.
    COMMITTING = "committing"  # about to call commit()
    COMMITTED = "committed"  # it returned
    REFUSED = "refused"  # it raised TransactionRolledBackException
    ROLLED_BACK = "rolled back"  # about to call rollback()
    STOPPING = "stopping"  # the process is about to be paused
    # The process as a whole.
    STALLED = "stalled"  # its threads did not run from `asked` to `at`
    BROKE = "broke"  # an exception that nobody expected


@dataclass(frozen=True)
class Event:
    """One line of a journal.

    Args:
        at: When it was written down, in seconds: after the fact, but for what is about to happen.
        kind: What happened.
        numbers: The messages that it happened to.
        asked: DELIVERED: since when the session was ready for a message. STALLED: when the stall began. STOPPING: until
            when the process may stand still.
        redelivered: DELIVERED: the message's JMSRedelivered.
        count: DELIVERED: the message's JMSXDeliveryCount.
        moved: DELIVERED: whether the message had been moved, to another process or out of the way, since it was sent.
        back: DELIVERED: whether another consumer was to have it, and did not take it.
        consumer: DELIVERED: how many consumers the session had closed before.
        text: The error, or what else there is to say.
    """

    at: float
    kind: Kind
    numbers: tuple[int, ...] = ()
    asked: float = 0.0
    redelivered: bool = False
    count: int = 1
    moved: bool = False
    back: bool = False
    consumer: int = 0
    text: str = ""

    @property
    def is_marked(self) -> bool:
        """Whether the message said that it may have been delivered before."""
        return self.redelivered and self.count >= 2

    def line(self) -> str:
        """Return the event as a line of JSON."""
        return json.dumps({name: value for name, value in vars(self).items() if value != DEFAULTS.get(name)}) + "\n"

    @staticmethod
    def of(line: str) -> Event:
        """Return the event that *line* holds."""
        values = json.loads(line)
        return Event(**{**values, "kind": Kind(values["kind"]), "numbers": tuple(values.get("numbers", ()))})


DEFAULTS = {each.name: each.default for each in fields(Event)}


@dataclass
class Journal:
    """What one session wrote.

    Args:
        name: The session's name, unique in its round.
        process: The name of its process.
        mode: How it acknowledges; empty for a producer.
        events: What happened, oldest first.
    """

    name: str
    process: str
    mode: str
    events: list[Event] = field(default_factory=list)


class Writer:
    """Appends to a journal's file; may be used by several threads."""

    def __init__(self, folder: Path, process: str, session: str, mode: str) -> None:
        path = folder / f"{session}.journal"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(self._file, (json.dumps({"name": session, "process": process, "mode": mode}) + "\n").encode())

    def write(self, kind: Kind, *numbers: int, **more: object) -> None:
        """Write the event down, as of now."""
        event = Event(now(), kind, numbers, **more)  # type: ignore[arg-type]
        os.write(self._file, event.line().encode())


def now() -> float:
    """Return the time that all processes share, in seconds."""
    return time.monotonic()


def journals(folder: Path) -> list[Journal]:
    """Return the journals in *folder*, as far as they were written."""
    return [journal for path in sorted(folder.glob("*.journal")) for journal in _read(path)]


def _read(path: Path) -> Iterator[Journal]:
    whole = path.read_text(encoding="utf-8").rpartition("\n")[0]
    if whole:
        first, *lines = whole.split("\n")
        yield Journal(**json.loads(first), events=list(_events(lines)))


def _events(lines: Iterable[str]) -> Iterator[Event]:
    for line in lines:
        yield Event.of(line)
