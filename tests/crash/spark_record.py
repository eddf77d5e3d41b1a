"""The history of a round of the Spark tests, of what consumers of three kinds wrote and what Spark has stored: pure.

A batch of Spark overwrites its folder when it is run again; what the folder has in the end tells which messages it has
settled, since the function of a batch returns before they are. A session
of Python or Java settles by `acknowledge()` or `commit()`; what is refused is certainly not settled, since no broker
fails in these rounds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.history.history import Call, History, Kind, Outcome, Sent, of_processes

__all__ = ["KINDS", "Figures", "Lines", "Row", "figures", "history", "tables"]

KINDS: Final = ("spark", "python", "java")
ENDS: Final = {"stored": Outcome.UNKNOWN, "acknowledged": Outcome.DONE, "refused": Outcome.UNDONE}

Line = Mapping[str, Any]
Lines = tuple[str, int, Sequence[Line]]
"""What one session noted: the kind of consumer, its process, and its lines in order."""


@dataclass(frozen=True)
class Row:
    """What Spark's sink has of a message.

    Attributes:
        number: The message.
        batch: The batch that has it.
        is_marked: Whether it is marked as redelivered.
    """

    number: int
    batch: int
    is_marked: bool

    @property
    def name(self) -> str:
        """Its name among the outputs of a history."""
        return stored(self.number, self.batch, is_marked=self.is_marked)


@dataclass(frozen=True)
class Figures:
    """What happened.

    Attributes:
        processed: How many messages each kind of consumer has processed.
        deliveries: All deliveries, also those that a batch of Spark repeated.
        repeated: Messages that were processed more than once.
        marked: Messages of which a delivery was marked.
        batches: Batches in Spark's sink.
        again: Batches that Spark has run again.
    """

    processed: Mapping[str, int]
    deliveries: int
    repeated: int
    marked: int
    batches: int
    again: int


def stored(number: int, batch: int, *, is_marked: bool) -> str:
    """Return the name of the row of message *number* in *batch*."""
    return f"{number}@{batch}{' marked' if is_marked else ''}"


def history(
    sent: Collection[int],
    sessions: Iterable[Lines],
    rows: Iterable[Row],
    killed: Mapping[int, float],
    *,
    left: Collection[int] = (),
    dead: Collection[int] = (),
) -> History:
    """Return the history of a round.

    Args:
        sent: The messages.
        sessions: What the sessions noted.
        rows: Spark's sink.
        killed: The processes that were killed, with the time.
        left: What is still in the queue.
        dead: What is in the dead-letter queue.
    """
    found = History(of_processes(is_drained=True, is_explained=True), left=dict.fromkeys(map(str, left), 2))
    of_process = {}
    for number, (kind, process, lines) in enumerate(sessions):
        of_process[process] = f"{kind}-{process}"
        found.calls += _calls(f"{kind}-{process}", f"{kind}-{process}.{number}", lines)
    found.origin = min((call.begin for call in found.calls), default=0.0)
    for each in sent:
        name = str(each)
        found.sent[name] = Sent(name, "sender", each)
        found.calls.append(_done(Kind.SEND, found.origin, name))
    found.calls.sort(key=lambda call: call.begin)
    found.killed = {of_process.get(process, str(process)): at for process, at in killed.items()}
    found.outputs = Counter(row.name for row in rows)
    found.dead.update(map(str, dead))
    return found


def _done(kind: Kind, at: float, name: str, **about: Any) -> Call:
    what = kind.value
    return Call(kind, what, "sender", "sender", at, end=at, outcome=Outcome.DONE, messages=(name,), **about)


def _calls(process: str, session: str, lines: Sequence[Line]) -> Iterable[Call]:
    held: list[Line] = []  # delivered, and not settled
    settling: Call | None = None
    for line in lines:
        event, at = line["event"], line["at"]
        if event == "delivered":
            held.append(line)
            yield _received(process, session, line)
            continue
        if settling is None:
            settling = _settling(process, session, line, held)
            yield settling
        if event in ENDS:
            settling.end, settling.outcome = at, ENDS[event]
            held, settling = [], None
    if held and settling is None and "batch" in held[0]:  # it was killed while it stored them, or before
        yield _settling(process, session, held[-1], held)


def _received(process: str, session: str, line: Line) -> Call:
    return Call(
        Kind.RECEIVE,
        "receive",
        process,
        session,
        line["at"],
        end=line["at"],
        outcome=Outcome.DONE,
        messages=(str(line["id"]),),
        count=line["count"],
        is_redelivered=line["marked"],
    )


def _settling(process: str, session: str, line: Line, held: Sequence[Line]) -> Call:
    """Return the call that begins to settle what the session has *held*."""
    call = Call(Kind.SETTLE, "acknowledge", process, session, line["at"])
    call.messages = tuple(str(each["id"]) for each in held)
    if (batch := line.get("batch")) is not None:
        call.what, call.overwrites = "store", f"batch {batch}"
        call.outputs = tuple(stored(each["id"], batch, is_marked=each["marked"]) for each in held)
    return call


def figures(found: History, sessions: Iterable[Lines]) -> Figures:
    """Count what happened in the history *found*, which *sessions* noted."""
    places: dict[str, list[str]] = defaultdict(list)
    for text, times in found.outputs.items():
        places[text.partition("@")[0]] += ["spark"] * times
    for call in found.calls:
        if call.kind is Kind.SETTLE and not call.overwrites and call.outcome is not Outcome.UNDONE:
            for name in call.messages:
                places[name].append(call.session.partition("-")[0])
    processed = Counter(kind for kinds in places.values() for kind in set(kinds))
    receives = [call for call in found.calls if call.kind is Kind.RECEIVE]
    runs = {(process, line["batch"]) for _, process, lines in sessions for line in lines if "batch" in line}
    return Figures(
        {kind: processed[kind] for kind in KINDS},
        len(receives),
        sum(len(kinds) > 1 for kinds in places.values()),
        len({call.messages for call in receives if call.count > 1}),
        len({text.partition("@")[2].partition(" ")[0] for text in found.outputs}),
        len(runs) - len({batch for _, batch in runs}),
    )


def tables(sent: Iterable[int], rows: Iterable[int], left: Iterable[int]) -> History:
    """Return the history of a drain: each message of *sent* is to be stored once, as a row of its number.

    Args:
        sent: The messages.
        rows: The numbers that the table has.
        left: The messages that the queue still has.
    """
    found = History(of_processes(is_drained=True), left=dict.fromkeys(map(str, left), 2))
    for each in sent:
        name = str(each)
        found.sent[name] = Sent(name, "sender", each)
        found.calls.append(_done(Kind.SEND, 0.0, name))
        found.calls.append(_done(Kind.RECEIVE, 1.0, name, count=1))
        found.calls.append(_done(Kind.SETTLE, 2.0, name, outputs=(name,)))
    found.outputs = Counter(map(str, rows))
    return found
