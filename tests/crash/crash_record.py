"""The history of a round of the crash test and of the exactly-once test, of what their processes wrote: pure.

What a process wrote is not taken for more than it says. AUTO mode has no call that could report that the
acknowledgement of the last message failed when the process was stopped, or Kafka was away, meanwhile: JMS 2.0 §4.4.12
lets that one come again, so the outcome of such an acknowledgement is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from crash_journal import Event, Journal, Kind

from tests.history.history import IMPLICIT, Call, Disturbance, History, Outcome, Rules, Sent, always, of_processes
from tests.history.history import Kind as Act

AUTO_RECEIVE: Final = "AUTO receive"
AUTO_LISTENER: Final = "AUTO listener"
AUTO_LOOP: Final = "AUTO loop"
CLIENT: Final = "CLIENT"
DUPS_OK: Final = "DUPS_OK"
INDIVIDUAL: Final = "INDIVIDUAL"
MODES: Final = (AUTO_RECEIVE, AUTO_LISTENER, AUTO_LOOP, CLIENT, DUPS_OK, INDIVIDUAL)
AUTO: Final = frozenset({AUTO_RECEIVE, AUTO_LISTENER, AUTO_LOOP})

WRITING_SECONDS: Final = 1.0  # so long may a process of a busy machine take to write down what it got
PARTS: Final = 3  # a message's property ``part`` is its number modulo this
SELECTORS: Final[Mapping[str, Callable[[int], bool]]] = {
    "": always,
    "part = 0": lambda part: part == 0,
    "part > 0": lambda part: part > 0,
    "part = 0 OR part = 2": lambda part: part in {0, 2},
    "part < 2": lambda part: part < 2,
}
"""The selectors of consumers, and which messages they match; empty: none."""

# From which event on a message may be settled, though no call has returned.
_UNDER_WAY: Final = {
    AUTO_RECEIVE: Kind.DELIVERED,  # "when the session has successfully returned from a call to receive"
    AUTO_LISTENER: Kind.RETURNED,
    AUTO_LOOP: Kind.RETURNED,  # just before the loop asks for the next message
    DUPS_OK: Kind.DELIVERED,
}
_ENDS: Final = {
    Kind.ACKNOWLEDGED: Outcome.DONE,
    Kind.COMMITTED: Outcome.DONE,
    Kind.NOT_ACKNOWLEDGED: Outcome.UNKNOWN,
    Kind.FAILED: Outcome.UNKNOWN,
    Kind.REFUSED: Outcome.UNDONE,
}


@dataclass(frozen=True)
class Stop:
    """A process was killed, or paused until *ended*; times are taken just before and just after the signals."""

    began: float
    ended: float
    is_kill: bool


@dataclass(frozen=True)
class Arrived:
    """A message in the target of the exactly-once test.

    Args:
        number: Which one.
        transaction: The name of the transaction that sent it.
        place: How many that transaction had sent before.
        partition: Where it is.
        offset: Where in there.
    """

    number: int
    transaction: str
    place: int
    partition: int
    offset: int

    @property
    def name(self) -> str:
        """Its name in a history."""
        return output(self.number, self.transaction, self.place)


@dataclass
class Round:
    """Everything that is known about one round.

    Args:
        journals: Of all sessions.
        stops: Kills and pauses from outside, by the name of the process.
        outages: When the broker was away.
        dead: What the dead-letter queue holds at the end: the number of each message in it, and its cause.
        failures: What else went wrong.
        max_deliveries: After so many deliveries a message is a dead letter; None: never.
        sources: Exactly-once: partition and offset of each message in the source.
        arrived: What a read-committed reader finds in the target, each partition in its order.
        left: The messages that a fresh consumer still gets from the source, with their JMSXDeliveryCount.
    """

    journals: Sequence[Journal]
    stops: Mapping[str, Sequence[Stop]] = field(default_factory=dict)
    outages: Sequence[tuple[float, float]] = ()
    dead: Sequence[tuple[int, str]] = ()
    failures: Sequence[str] = ()
    max_deliveries: int | None = 3
    sources: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    arrived: Sequence[Arrived] = ()
    left: Mapping[int, int] = field(default_factory=dict)


def output(number: int, transaction: str, place: int) -> str:
    """Return the name of what *transaction* sent for message *number*."""
    return f"{number}>{transaction}.{place}"


def history(record: Round) -> History:
    """Return the history of the round."""
    found = History(_rules(record), left={str(number): count for number, count in record.left.items()})
    for process, stops in record.stops.items():
        for stop in stops:
            if stop.is_kill:
                found.killed[process] = stop.began
            else:
                found.disturbances.append(Disturbance(stop.began, stop.ended, process, "paused"))
    found.disturbances += [Disturbance(*each, "", "the broker is away") for each in record.outages]
    for journal in record.journals:
        for event in journal.events:
            if event.kind is Kind.STALLED:
                found.disturbances.append(Disturbance(event.asked, event.at, journal.process, "did not run"))
            elif event.kind is Kind.STOPPING:
                found.disturbances.append(Disturbance(event.at, event.asked, journal.process, "paused in a commit"))
            elif event.kind is Kind.BROKE:
                found.failures.append(f"{journal.name}: {event.text}")
            elif event.kind is Kind.KILLING:
                last = max(each.events[-1].at for each in record.journals if each.process == journal.process)
                found.killed.setdefault(journal.process, last)
                if len(event.numbers) == 1 and not event.text:  # the message does, not an accident of a commit
                    found.killers[journal.process] = str(event.numbers[0])
    stops_of = {
        process: [(each.began, each.ended) for each in record.stops.get(process, ())]
        + [(each.begin, each.end) for each in found.disturbances if each.process == process]
        + [*record.outages]
        for process in {journal.process for journal in record.journals}
    }
    begin = min((event.at for journal in record.journals for event in journal.events), default=0.0)
    for number, place in record.sources.items():
        found.sent[str(number)] = Sent(str(number), "source", number, key=number % PARTS)
        found.calls.append(_sent_before(str(number), begin))
        found.places[str(number)] = place
    for journal in record.journals:
        if journal.mode:
            found.calls += _Session(journal, stops_of[journal.process]).calls
        else:
            _produced(journal, found)
    found.outputs.update(each.name for each in record.arrived)
    found.places.update({each.name: (each.partition, each.offset) for each in record.arrived})
    found.dead.update(str(number) for number, _ in record.dead)
    found.notes.update({str(number): cause for number, cause in record.dead})
    found.failures += record.failures
    found.calls.sort(key=lambda call: call.begin)
    found.origin = begin
    return found


def _rules(record: Round) -> Rules:
    return of_processes(
        matches={each or None: matches for each, matches in SELECTORS.items()},
        max_deliveries=record.max_deliveries,
        writing=WRITING_SECONDS,
        unseen=1,  # the process was killed before it could write it down
        is_drained=bool(record.sources),
    )


def _sent_before(name: str, at: float) -> Call:
    return Call(Act.SEND, "send", "source", "source", at, end=at, outcome=Outcome.DONE, messages=(name,))


def _produced(journal: Journal, found: History) -> None:
    """Add what a producer sent to *found*."""
    calls: dict[int, Call] = {}
    for event in journal.events:
        for number in event.numbers:
            if event.kind is Kind.INTENDED:
                name = str(number)
                is_fatal = event.text == "fatal"
                found.sent[name] = Sent(name, journal.name, number, key=number % PARTS, is_fatal=is_fatal)
                calls[number] = Call(Act.SEND, "send", journal.process, journal.name, event.at, messages=(name,))
            elif event.kind in {Kind.CONFIRMED, Kind.FAILED}:
                calls[number].end = event.at
                calls[number].error = event.text
                calls[number].outcome = Outcome.DONE if event.kind is Kind.CONFIRMED else Outcome.UNKNOWN
    found.calls += calls.values()


class _Session:
    """Makes the calls of what a session that receives wrote.

    Args:
        journal: What it wrote.
        interruptions: When its process was stopped, or the broker was away.
    """

    def __init__(self, journal: Journal, interruptions: Iterable[tuple[float, float]]) -> None:
        self.calls: list[Call] = []
        self._journal = journal
        self._interruptions = [*interruptions]
        self._consumer = -1  # no consumer yet
        self._selector: str | None = None
        self._delivered: dict[int, float] = {}  # when, the last time
        self._open: dict[int, Call] = {}  # the settlement that is under way
        self._transaction: list[int] = []  # what the present transaction has received
        self._name = ""  # of the present transaction
        for event in journal.events:
            self._take(event)
        if self._transaction and journal.events[-1].kind is not Kind.COMMITTING:
            self._end_transaction(Event(journal.events[-1].at, Kind.LEFT), "the end")

    def _call(self, kind: Act, what: str, event: Event, **about: object) -> Call:
        about = {"messages": _names(event.numbers), "begin": event.at, **about}
        call = Call(kind, what, self._journal.process, self._journal.name, **about)  # type: ignore[arg-type]
        self.calls.append(call)
        return call

    def _take(self, event: Event) -> None:
        under_way = _UNDER_WAY.get(self._journal.mode)
        if event.kind is Kind.DELIVERED:
            self._deliver(event)
        if event.kind is under_way:
            self._settle(IMPLICIT, event)
        elif event.kind is Kind.CHANGED:
            self._consumer, self._selector = self._consumer + 1, event.text or None
            self._call(Act.OTHER, "create consumer", event, end=event.at, consumer=self._consumer)
        elif event.kind is Kind.ACKNOWLEDGING:
            self._settle("acknowledge", event)
        elif event.kind is Kind.COMMITTING:
            self._settle("commit", event, self._outputs(event.numbers))
            self._transaction = []
        elif event.kind in {Kind.RECOVERED, Kind.RAISED}:
            self._call(Act.GIVE_BACK, "recover" if event.kind is Kind.RECOVERED else "the listener raised", event)
        elif event.kind is Kind.ROLLED_BACK:
            self._end_transaction(event, "rollback")
        elif event.kind in _ENDS:
            self._end(event)

    def _deliver(self, event: Event) -> None:
        (number,) = event.numbers
        self._delivered[number] = event.at
        self._open.pop(number, None)
        name = event.text.partition(" ")[0]
        if name:
            self._name = name
            self._transaction.append(number)
        self._call(
            Act.RECEIVE,
            "receive",
            event,
            begin=min(event.asked or event.at, event.at),
            end=event.at,
            outcome=Outcome.DONE,
            consumer=event.consumer if name else max(self._consumer, 0),
            selector=self._selector,
            count=event.count,
            is_redelivered=event.redelivered,
            is_moved=event.moved,
            is_back=event.back,
        )

    def _outputs(self, numbers: Sequence[int]) -> tuple[str, ...]:
        return tuple(output(number, self._name, place) for place, number in enumerate(numbers))

    def _settle(self, what: str, event: Event, outputs: tuple[str, ...] = ()) -> None:
        call = self._call(Act.SETTLE, what, event, outputs=outputs)
        for number in event.numbers:
            self._open[number] = call

    def _end_transaction(self, event: Event, what: str) -> None:
        numbers = self._transaction
        outputs = self._outputs(numbers)
        self._call(Act.GIVE_BACK, what, event, messages=_names(numbers), outputs=outputs, outcome=Outcome.UNDONE)
        self._transaction = []

    def _end(self, event: Event) -> None:
        """Record that a settlement has ended, or that something else failed."""
        if event.kind is Kind.ACKNOWLEDGED:
            for number in event.numbers:
                if number not in self._open:  # a listener or a loop got the next message
                    self._settle(IMPLICIT, Event(event.at, event.kind, (number,)))
        under_way = {id(call): call for number in event.numbers if (call := self._open.pop(number, None)) is not None}
        for call in under_way.values():
            call.end, call.outcome, call.error = event.at, _ENDS[event.kind], self._error(event)
            if call.is_implicit and call.outcome is Outcome.DONE and not self._is_certain(event):
                call.outcome = Outcome.UNKNOWN
        if event.kind is Kind.FAILED and not under_way:
            self._call(Act.OTHER, "call", event, end=event.at, error=event.text)

    def _error(self, event: Event) -> str:
        return "" if _ENDS[event.kind] is Outcome.DONE else event.text

    def _is_certain(self, event: Event) -> bool:
        """Return whether an AUTO acknowledgement that no error followed is certain."""
        if self._journal.mode not in AUTO:
            return False
        delivered = min(self._delivered.get(number, event.at) for number in event.numbers)
        return not any(began <= event.at and delivered <= ended for began, ended in self._interruptions)


def _names(numbers: Iterable[int]) -> tuple[str, ...]:
    return tuple(map(str, numbers))
