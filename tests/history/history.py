"""What the programs of a run did, and saw: the record that `checker` judges. Pure, no clock, no I/O.

Times are seconds of one clock. A call that has not returned has no end, and a call that raised may have done what it
was for or not: its outcome is unknown, and stays so. What a run does not record keeps its default: no check uses it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

IMPLICIT: Final = "implicit"
"""What a call is named that a session makes by itself: the settlement of AUTO and DUPS_OK."""

SHOWN: Final = 6
"""How many messages, and outputs, a line of a report names."""


class Outcome(Enum):
    """What is known of a call."""

    DONE = "done"
    UNKNOWN = "unknown"  # it has not returned, or raised
    UNDONE = "undone"  # it certainly had no effect: a commit that was refused, a send that was rolled back


class Kind(Enum):
    """What a call is for."""

    SEND = "send"
    RECEIVE = "receive"
    SETTLE = "settle"  # acknowledge, commit; AUTO and DUPS_OK: the time until the next receive has returned
    GIVE_BACK = "give back"  # rollback, recover, close with messages that are not settled
    OTHER = "other"


@dataclass(slots=True)
class Sent:
    """A message that a program made.

    Args:
        name: Its text, unique in the run.
        sender: The session that sends it.
        sequence: Its place among those of the session.
        key: The int property ``k``, for selectors.
        group: Its JMSXGroupID; empty: none.
        priority: Its JMSPriority.
        delay: Its delivery delay, in seconds.
        is_fatal: Whether it kills each process that receives it.
    """

    name: str
    sender: str
    sequence: int
    key: int = 0
    group: str = ""
    priority: int = 4
    delay: float = 0.0
    is_fatal: bool = False


@dataclass(slots=True)
class Call:
    """A call of a program.

    Args:
        kind: What it is for.
        what: Its name, for people.
        process: The process that makes it.
        session: The session.
        begin: When it began.
        timeout: How long it is to wait, in seconds.
        end: When it ended; None: it has not.
        outcome: What is known of it.
        messages: Those that are sent, received, settled or given back.
        outputs: SETTLE, GIVE_BACK: what its transaction sends; one for each of the messages where both are as many.
        overwrites: SETTLE: where its outputs take the place of those of earlier calls; empty: nowhere.
        consumer: RECEIVE: which consumer of the session; GIVE_BACK: the one that is closed, None for all.
        selector: RECEIVE: the consumer's.
        count: RECEIVE: the message's JMSXDeliveryCount.
        is_redelivered: RECEIVE: its JMSRedelivered.
        is_moved: RECEIVE: whether it has left its place in the log, for the overflow or another process.
        is_back: RECEIVE: whether it was to go to another consumer first, which did not take it.
        error: What it raised.
        others: How many more messages it is about, which a report leaves out.
    """

    kind: Kind
    what: str
    process: str
    session: str
    begin: float
    timeout: float = 0.0
    end: float | None = None
    outcome: Outcome = Outcome.UNKNOWN
    messages: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    consumer: int | None = None
    selector: str | None = None
    count: int = 0
    is_redelivered: bool = False
    is_moved: bool = False
    is_back: bool = False
    error: str = ""
    overwrites: str = ""
    others: int = 0

    @property
    def is_implicit(self) -> bool:
        """Whether the session makes it by itself."""
        return self.what == IMPLICIT

    def line(self, origin: float = 0.0) -> str:
        """Return the call as a line of a report, whose times begin at *origin*."""
        end = "          " if self.end is None else f"{self.end - origin:10.4f}"
        what = "is settled" if self.is_implicit else self.what
        text = f"{self.begin - origin:10.4f} {end} {self.session:8} {what}"
        if self.consumer is not None:
            text += f" [{self.consumer}]"
        text += f" {shortened(self.messages)}" if self.messages else ""
        text += f" and {self.others} others" if self.others else ""
        text += f" -> {shortened(self.outputs)}" if self.outputs else ""
        text += f" count {self.count}" if self.count else ""
        text += " redelivered" if self.is_redelivered else ""
        text += "" if self.outcome is Outcome.DONE else f" ({self.outcome.value})"
        return text + (f" {self.error}" if self.error else "")


def shortened(names: Sequence[str]) -> str:
    """Return *names* in a line, with the number of those left out.

    >>> shortened(["a", "b"]), shortened(["x"] * 9)
    ('a b', 'x x x x x x and 3 more')
    """
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return " ".join(names[:SHOWN]) + more


@dataclass(slots=True)
class Disturbance:
    """A time in which promises of pace and place do not hold.

    Args:
        begin: When it began.
        end: When it was over.
        process: Which process did not run, or not all of it; empty: all were concerned, and ran.
        what: What it was.
    """

    begin: float
    end: float
    process: str
    what: str

    def line(self, origin: float = 0.0) -> str:
        """Return it as a line of a report, whose times begin at *origin*."""
        return f"{self.begin - origin:10.4f} {self.end - origin:10.4f} {self.process:8} * {self.what}"


def always(key: int) -> bool:
    """Return True: what a consumer without a selector matches."""
    return True


@dataclass(slots=True)
class Rules:
    """What the destination promises in this run, and how well the run was watched.

    Args:
        matches: Selector -> which keys it matches.
        delay: Seconds before a message that was given back comes again.
        is_ordered: Whether the messages of a sender come in order, also those without a group.
        is_priority_kept: Whether all that is ready is within reach, so that urgent messages overtake.
        is_calm: No fault, and one process: counts are exact, and no message is with two consumers.
        max_deliveries: After so many deliveries a message that was given back is a dead letter; None: never.
        is_shared: Whether messages reach consumers of other processes.
        waiting: Seconds that a message may wait while a consumer waits for it.
        call: Seconds that a call may take beside its own time limit.
        writing: Seconds that a process may take to record what it received.
        zombie: Seconds after a disturbance until a process must know that its partitions are gone. 0: a disturbed
            process is judged as well, from the moment since which its call may have had the message.
        unseen: How many deliveries of a message may be without a record, since they ended with the process; None:
            one for each kill and disturbance.
        is_drained: Whether a last consumer must find nothing.
        is_explained: Whether only kills, refusals and disturbances may repeat a message.
        needless: Which share of the messages may come marked at first where no process was killed or disturbed.
    """

    matches: dict[str | None, Callable[[int], bool]] = field(default_factory=lambda: {None: always})
    delay: float = 0.0
    is_ordered: bool = True
    is_priority_kept: bool = False
    is_calm: bool = True
    max_deliveries: int | None = None
    is_shared: bool = True
    waiting: float = 8.0
    call: float = 60.0
    writing: float = 0.0
    zombie: float = 12.0
    unseen: int | None = None
    is_drained: bool = False
    is_explained: bool = False
    needless: float = 1.0


def of_processes(**about: object) -> Rules:
    """Return the rules for real processes that are killed: files record them, and no promise of pace is looked at.

    Args:
        about: Fields that differ.
    """
    known: dict[str, object] = {
        "is_calm": False,
        "waiting": float("inf"),
        "call": float("inf"),
        "zombie": 0.0,
    }
    return Rules(**{**known, **about})  # type: ignore[arg-type]


@dataclass(slots=True)
class History:
    """All of a run.

    Args:
        rules: What holds in it.
        sent: Name -> message.
        calls: In the order of their begin.
        disturbances: Faults, and threads that stood still.
        killed: Process -> when.
        killers: Process -> the message that killed it; the others were killed from outside.
        left: What a last consumer found in the queue, with its JMSXDeliveryCount; None: nothing has looked.
        outputs: What it found where the transactions send to, with how often.
        dead: What it found in the dead-letter queue, with how often.
        places: The partition and offset of a message or an output.
        notes: What else is known of a message, for people.
        failures: What went wrong beside all calls: a process that ended by itself, a log that cannot be read.
        ended: When programs stopped, so that later waits count no longer.
        origin: The time that reports show as 0.
    """

    rules: Rules
    sent: dict[str, Sent] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    disturbances: list[Disturbance] = field(default_factory=list)
    killed: dict[str, float] = field(default_factory=dict)
    killers: dict[str, str] = field(default_factory=dict)
    left: dict[str, int] | None = None
    outputs: Counter[str] = field(default_factory=Counter)
    dead: Counter[str] = field(default_factory=Counter)
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    ended: float = float("inf")
    origin: float = 0.0

    def lines(self, names: Set[str] | None = None) -> list[str]:
        """Return the calls, or those that concern the messages *names*, and the disturbances, in the order of time."""
        calls = [c for c in self.calls if names is None or names & {*c.messages, *c.outputs}]
        lines = [(call.begin, call.line(self.origin)) for call in calls]
        lines += [(each.begin, each.line(self.origin)) for each in self.disturbances]
        for process, at in self.killed.items():
            by = f" by {self.killers[process]}" if process in self.killers else ""
            lines.append((at, f"{at - self.origin:10.4f} {'':10} {process:8} * killed{by}"))
        return [line for _, line in sorted(lines, key=lambda each: each[0])]
