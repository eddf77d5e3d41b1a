"""What the programs of a run did, and saw: the record that `checker` judges. Pure, no clock, no I/O.

Times are seconds of one clock. A call that has not returned has no end, and a call that raised may have done what it
was for or not: its outcome is unknown, and stays so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from enum import Enum


class Outcome(Enum):
    """What is known of a call."""

    DONE = "done"
    UNKNOWN = "unknown"  # it has not returned, or raised
    UNDONE = "undone"  # it certainly had no effect: what a transaction sent that was rolled back


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
    """

    name: str
    sender: str
    sequence: int
    key: int = 0
    group: str = ""
    priority: int = 4
    delay: float = 0.0


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
        outputs: SETTLE: what its transaction sends.
        consumer: RECEIVE: which consumer of the session; GIVE_BACK: the one that is closed, None for all.
        selector: RECEIVE: the consumer's.
        count: RECEIVE: the message's JMSXDeliveryCount.
        is_redelivered: RECEIVE: its JMSRedelivered.
        error: What it raised.
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
    error: str = ""

    def line(self) -> str:
        """Return the call as a line of a report."""
        end = "          " if self.end is None else f"{self.end:10.4f}"
        text = f"{self.begin:10.4f} {end} {self.session:8} {self.what}"
        if self.consumer is not None:
            text += f" [{self.consumer}]"
        text += f" {' '.join(self.messages)}" if self.messages else ""
        text += f" -> {' '.join(self.outputs)}" if self.outputs else ""
        text += f" count {self.count}" if self.count else ""
        text += "" if self.outcome is Outcome.DONE else f" ({self.outcome.value})"
        return text + (f" {self.error}" if self.error else "")


@dataclass(slots=True)
class Disturbance:
    """A time in which promises of pace and place do not hold.

    Args:
        begin: When it began.
        end: When it was over.
        process: Which process; empty: all.
        what: What it was.
    """

    begin: float
    end: float
    process: str
    what: str

    def line(self) -> str:
        """Return it as a line of a report."""
        return f"{self.begin:10.4f} {self.end:10.4f} {self.process:8} * {self.what}"


@dataclass(slots=True)
class Rules:
    """What the destination promises in this run.

    Args:
        matches: Selector -> which keys it matches.
        delay: Seconds before a message that was given back comes again.
        is_ordered: Whether the messages of a sender come in order, also those without a group.
        is_priority_kept: Whether all that is ready is within reach, so that urgent messages overtake.
        is_calm: No fault, and one process: counts are exact, and no message is with two consumers.
        max_deliveries: After so many deliveries a message that was given back is a dead letter; None: never.
        is_shared: Whether messages reach consumers of other processes.
        waiting: Seconds that a message may wait while a consumer waits for it.
    """

    matches: dict[str | None, Callable[[int], bool]]
    delay: float = 0.0
    is_ordered: bool = True
    is_priority_kept: bool = False
    is_calm: bool = True
    max_deliveries: int | None = None
    is_shared: bool = True
    waiting: float = 8.0


@dataclass(slots=True)
class History:
    """All of a run.

    Args:
        rules: What holds in it.
        sent: Name -> message.
        calls: In the order of their begin.
        disturbances: Faults, and threads that stood still.
        killed: Process -> when.
        left: What a last consumer found in the queue, with its JMSXDeliveryCount; None: nothing has looked.
        outputs: What it found where the transactions send to, with how often.
        dead: What it found in the dead-letter queue, with how often.
        ended: When programs stopped, so that later waits count no longer.
    """

    rules: Rules
    sent: dict[str, Sent] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    disturbances: list[Disturbance] = field(default_factory=list)
    killed: dict[str, float] = field(default_factory=dict)
    left: dict[str, int] | None = None
    outputs: Counter[str] = field(default_factory=Counter)
    dead: Counter[str] = field(default_factory=Counter)
    ended: float = float("inf")

    def lines(self, names: Set[str] | None = None) -> list[str]:
        """Return the calls, or those that concern the messages *names*, and the disturbances, in the order of time."""
        calls = (c for c in self.calls if names is None or names & {*c.messages, *c.outputs})
        lines = [(call.begin, call.line()) for call in calls]
        lines += [(each.begin, each.line()) for each in self.disturbances]
        return [line for _, line in sorted(lines, key=lambda each: each[0])]
