"""Whether what all processes of a crash test wrote down can be the history of a queue that keeps its promises: pure.

Nothing here trusts the order of lines in different files alone. A process may be stopped, or wait for a processor,
between the moment when a message was handed to it and the moment when it wrote that down. So each delivery has an
earliest moment, and only what is certain is held against the queue.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from crash_history import Event, History, Kind

AUTO_RECEIVE: Final = "AUTO receive"
AUTO_LISTENER: Final = "AUTO listener"
AUTO_LOOP: Final = "AUTO loop"
CLIENT: Final = "CLIENT"
DUPS_OK: Final = "DUPS_OK"
INDIVIDUAL: Final = "INDIVIDUAL"
MODES: Final = (AUTO_RECEIVE, AUTO_LISTENER, AUTO_LOOP, CLIENT, DUPS_OK, INDIVIDUAL)

WRITING_SECONDS: Final = 1.0  # so long may a process of a busy machine take to write down what it got

# From which event on the acknowledgement of a message may be on its way, though nobody has heard of its success.
_UNDER_WAY: Final = {
    AUTO_RECEIVE: Kind.DELIVERED,  # "when the session has successfully returned from a call to receive"
    AUTO_LISTENER: Kind.RETURNED,
    AUTO_LOOP: Kind.RETURNED,  # just before the loop asks for the next message
    CLIENT: Kind.ACKNOWLEDGING,
    DUPS_OK: Kind.DELIVERED,
    INDIVIDUAL: Kind.ACKNOWLEDGING,
}


@dataclass(frozen=True)
class Stop:
    """A process was killed, or paused until *ended*; times are taken just before and just after the signals."""

    began: float
    ended: float
    is_kill: bool


@dataclass
class Round:
    """Everything that is known about one round.

    Args:
        histories: Of all sessions.
        stops: Kills and pauses from outside, by the name of the process.
        outages: When the broker was away.
        dead: What the dead-letter queue holds at the end, a number for each message in it.
        causes: What is written on the dead letters, for people.
        fatal: The messages that kill their consumers.
        max_deliveries: After so many deliveries a message is a dead letter.
        is_drained: Whether the queue ran dry at the end; else the round was given up.
    """

    histories: Sequence[History]
    stops: Mapping[str, Sequence[Stop]] = field(default_factory=dict)
    outages: Sequence[tuple[float, float]] = ()
    dead: Sequence[int] = ()
    causes: Mapping[int, str] = field(default_factory=dict)
    fatal: frozenset[int] = frozenset()
    max_deliveries: int = 3
    is_drained: bool = True


@dataclass(frozen=True)
class Violation:
    """A promise that was not kept.

    Args:
        rule: Which one, in a few words.
        number: The message; -1 where it is about none.
        text: What happened.
    """

    rule: str
    number: int
    text: str


LOST: Final = "lost"
AGAIN: Final = "acknowledged, and delivered again"
UNMARKED: Final = "repeated without a mark"
CONTRADICTORY: Final = "JMSRedelivered and JMSXDeliveryCount disagree"
NEVER_SENT: Final = "never sent"
NOT_DEAD: Final = "kills its consumers, and is not in the dead-letter queue"
WRONGLY_DEAD: Final = "dead without having failed often enough"
DEAD_TWICE: Final = "in the dead-letter queue more than once"
DEAD_ACKNOWLEDGED: Final = "acknowledged, and in the dead-letter queue"
FALSE_SUCCESS: Final = "acknowledge() succeeded though another had been given the message"
BROKE: Final = "a process failed"


@dataclass(frozen=True)
class _Delivery:
    session: History
    index: int  # of its event in the session
    event: Event
    earliest: float  # before that it was not handed out

    @property
    def number(self) -> int:
        return self.event.numbers[0]


@dataclass(frozen=True)
class _Acknowledgement:
    session: History
    at: float  # it was durable by then, if it is certain
    is_certain: bool  # False: an error or an interruption came between, or the mode promises nothing


class Checker:
    """Finds what was not kept in one round."""

    def __init__(self, record: Round) -> None:
        self._record = record
        self._stops = {history.name: sorted(self._interruptions(history), key=_began) for history in record.histories}
        self._deliveries: dict[int, list[_Delivery]] = defaultdict(list)
        self._acknowledgements: dict[int, list[_Acknowledgement]] = defaultdict(list)
        self._sent: set[int] = set()
        self._confirmed: set[int] = set()
        for history in record.histories:
            if history.mode:
                self._take_consumer(history)
            else:
                self._take_producer(history)
        for deliveries in self._deliveries.values():
            deliveries.sort(key=lambda delivery: delivery.event.at)

    # What happened.

    @property
    def confirmed(self) -> int:
        """How many messages were confirmed to their producers."""
        return len(self._confirmed)

    @property
    def deliveries(self) -> int:
        """How many deliveries there were."""
        return sum(map(len, self._deliveries.values()))

    @property
    def redeliveries(self) -> int:
        """How many of them came marked."""
        return sum(delivery.event.is_marked for each in self._deliveries.values() for delivery in each)

    @property
    def unaccounted(self) -> set[int]:
        """The confirmed messages that are neither settled, as far as can be known, nor dead."""
        dead = set(self._record.dead)
        return {number for number in self._confirmed if number not in dead and not self._acknowledgements.get(number)}

    @property
    def last_event(self) -> float:
        """When a consumer wrote something down last."""
        return max(
            (history.events[-1].at for history in self._record.histories if history.mode and history.events),
            default=0.0,
        )

    def _interruptions(self, history: History) -> Iterator[Stop]:
        yield from self._record.stops.get(history.process, ())
        for other in self._record.histories:
            if other.process == history.process:
                for event in other.events:
                    if event.kind is Kind.STALLED:
                        yield Stop(event.asked, event.at, is_kill=False)

    def _take_producer(self, history: History) -> None:
        for event in history.events:
            if event.kind is Kind.INTENDED:
                self._sent.update(event.numbers)
            elif event.kind is Kind.CONFIRMED:
                self._confirmed.update(event.numbers)

    def _take_consumer(self, history: History) -> None:
        under_way = _UNDER_WAY[history.mode]
        delivered: dict[int, float] = {}  # when, the last time
        for index, event in enumerate(history.events):
            if event.kind is Kind.DELIVERED:
                (number,) = event.numbers
                delivered[number] = event.at
                earliest = self._earliest(history, event)
                self._deliveries[number].append(_Delivery(history, index, event, earliest))
            if event.kind is Kind.ACKNOWLEDGED:
                for number in event.numbers:
                    certain = self._is_certain(history, delivered.get(number, event.at), event.at)
                    self._acknowledgements[number].append(_Acknowledgement(history, event.at, certain))
            elif event.kind is under_way:
                for number in event.numbers:
                    self._acknowledgements[number].append(_Acknowledgement(history, event.at, is_certain=False))

    def _earliest(self, history: History, event: Event) -> float:
        earliest = event.at - WRITING_SECONDS
        for stop in reversed(self._stops[history.name]):
            if not stop.is_kill and stop.began <= event.at and stop.ended >= earliest:
                earliest = min(earliest, stop.began - WRITING_SECONDS)
        return max(earliest, event.asked)

    def _is_certain(self, history: History, delivered: float, acknowledged: float) -> bool:
        """Return whether a success that the session was given is certain.

        acknowledge() speaks for itself. In AUTO mode no call can report that the acknowledgement of the last message
        failed when the process was stopped or Kafka was away meanwhile: JMS 2.0 §4.4.12 lets that one come again.
        """
        if history.mode == DUPS_OK:
            return False
        if history.mode in {CLIENT, INDIVIDUAL}:
            return True
        times = [(stop.began, stop.ended) for stop in self._stops[history.name]] + list(self._record.outages)
        return not any(began <= acknowledged and delivered <= ended for began, ended in times)

    # What is wrong with it.

    def violations(self) -> list[Violation]:
        """Return every promise that was not kept."""
        found = [*self._broken(), *self._losses(), *self._dead_letters()]
        for number in sorted(self._deliveries):
            found += [
                *self._strangers(number),
                *self._contradictions(number),
                *self._repeats(number),
                *self._unmarked(number),
                *self._false_successes(number),
            ]
        return found + list(self._too_many_excuses())

    def _broken(self) -> Iterator[Violation]:
        for history in self._record.histories:
            for event in history.events:
                if event.kind is Kind.BROKE:
                    yield Violation(BROKE, -1, f"{history.name}: {event.text}")

    def _losses(self) -> Iterator[Violation]:
        for number in sorted(self.unaccounted):
            if number in self._record.fatal:
                times = len(self._deliveries.get(number, ()))
                yield Violation(NOT_DEAD, number, f"it was delivered {times} times")
                continue
            times = len(self._deliveries.get(number, ()))
            end = "the queue ran dry" if self._record.is_drained else "the round was given up"
            yield Violation(LOST, number, f"confirmed, delivered {times} times, never acknowledged until {end}")

    def _dead_letters(self) -> Iterator[Violation]:
        dead = list(self._record.dead)
        for number in sorted(set(dead)):
            if dead.count(number) > 1:
                yield Violation(DEAD_TWICE, number, f"{dead.count(number)} times")
            if number not in self._sent:
                yield Violation(NEVER_SENT, number, "it is in the dead-letter queue")
                continue
            certain = [known for known in self._acknowledgements.get(number, ()) if known.is_certain]
            if certain:
                yield Violation(DEAD_ACKNOWLEDGED, number, f"{certain[0].session.name} acknowledged it")
            if number not in self._record.fatal:
                # One delivery may have gone unseen: its process was killed before it could write it down.
                failures = [each for each in self._deliveries.get(number, ()) if not self._fell_with_another(each)]
                if len(failures) + 1 < self._record.max_deliveries:
                    times = len(self._deliveries.get(number, ()))
                    text = f"delivered {times} times, {times - len(failures)} of them to a process that another message"
                    yield Violation(WRONGLY_DEAD, number, f"{text} killed; {self._record.max_deliveries} were allowed")

    def _fell_with_another(self, delivery: _Delivery) -> bool:
        """Tell whether a message that kills its consumer ended the process while its program had this one."""
        last = delivery.session.process
        settled = any(
            delivery.number in event.numbers and event.kind is not Kind.ACKNOWLEDGING
            for event in delivery.session.events[delivery.index + 1 :]
        )
        return not settled and any(
            event.kind is Kind.KILLING
            for history in self._record.histories
            if history.process == last
            for event in history.events
        )

    def _strangers(self, number: int) -> Iterator[Violation]:
        if number not in self._sent:
            yield Violation(NEVER_SENT, number, f"{self._deliveries[number][0].session.name} got it")

    def _contradictions(self, number: int) -> Iterator[Violation]:
        for delivery in self._deliveries[number]:
            event = delivery.event
            if event.redelivered is not (event.count >= 2):
                text = f"JMSRedelivered {event.redelivered}, JMSXDeliveryCount {event.count}"
                yield Violation(CONTRADICTORY, number, f"{delivery.session.name}: {text}")

    def _repeats(self, number: int) -> Iterator[Violation]:
        for known in self._acknowledgements.get(number, ()):
            for delivery in self._deliveries[number]:
                if known.is_certain and delivery.earliest > known.at:
                    late = delivery.event.at - known.at
                    where = f"acknowledged by {known.session.name}, {late:.2f} s later given to {delivery.session.name}"
                    yield Violation(AGAIN, number, where)
                    return

    def _unmarked(self, number: int) -> Iterator[Violation]:
        for delivery, earlier in self._unmarked_repeats(number):
            if not self._is_excused(delivery) and not self._is_excused(earlier):
                text = f"first {earlier.session.name}, then {delivery.session.name} got it unmarked"
                yield Violation(UNMARKED, number, text)
                return

    def _unmarked_repeats(self, number: int) -> Iterator[tuple[_Delivery, _Delivery]]:
        """Return each delivery that should have come marked, with the one that it repeats."""
        before: list[_Delivery] = []
        for delivery in self._deliveries[number]:  # by the time when they were written down
            if not delivery.event.is_marked:
                for earlier in before:
                    # If neither is certainly the first, one of them at least has to be marked.
                    if earlier.event.at <= delivery.earliest or not earlier.event.is_marked:
                        yield delivery, earlier
                        break
            before.append(delivery)

    def _is_excused(self, delivery: _Delivery) -> bool:
        """Tell whether the process was stopped while this message was just being handed over."""
        for stop in self._stops[delivery.session.name]:
            if stop.is_kill:
                if delivery.event.at >= stop.began:  # written while the signal was on its way
                    return True
            elif delivery.event.asked <= stop.ended and stop.began <= delivery.event.at:
                return True
        return False

    def _too_many_excuses(self) -> Iterator[Violation]:
        """One message per session may come again unmarked; a second one has no excuse."""
        excused: dict[str, list[int]] = defaultdict(list)
        for number in sorted(self._deliveries):
            for delivery, earlier in self._unmarked_repeats(number):
                for each in (delivery, earlier):
                    if self._is_excused(each):
                        excused[each.session.name].append(number)
                        break
        for session, numbers in excused.items():
            for number in numbers[1:]:
                yield Violation(UNMARKED, number, f"as was message {numbers[0]} of the same stopped session {session}")

    def _false_successes(self, number: int) -> Iterator[Violation]:
        """acknowledge() of a message whose partition went to another member raises."""
        for mine in self._deliveries[number]:
            if mine.session.mode not in {CLIENT, INDIVIDUAL}:
                continue
            began = self._acknowledging(mine)
            for other in self._deliveries[number]:
                if other.session is mine.session or began is None:
                    continue
                if mine.event.at < other.earliest and other.event.at < began:
                    text = f"{mine.session.name} acknowledged it after {other.session.name} had got it"
                    yield Violation(FALSE_SUCCESS, number, text)
                    return

    def _acknowledging(self, delivery: _Delivery) -> float | None:
        """Return when the session's acknowledgement of *delivery*, which then succeeded, was begun."""
        began = None
        for event in delivery.session.events[delivery.index + 1 :]:
            if delivery.number not in event.numbers:
                continue
            if event.kind is Kind.ACKNOWLEDGING:
                began = event.at
            else:
                return began if event.kind is Kind.ACKNOWLEDGED else None
        return None


def excerpt(record: Round, number: int, context: int = 2) -> str:
    """Return what the histories say about message *number*, in the order of time, with what happened around it."""
    lines: list[tuple[float, str]] = []
    begin = min((history.events[0].at for history in record.histories if history.events), default=0.0)
    involved: set[str] = set()
    for history in record.histories:
        about = {index for index, event in enumerate(history.events) if number in event.numbers}
        if not about:
            continue
        involved.add(history.process)
        near = {index + step for index in about for step in range(-context, context + 1)}
        who = f"{history.name} ({history.mode or 'producer'})"
        for index in sorted(near & set(range(len(history.events)))):
            event = history.events[index]
            lines.append((event.at, f"{'>' if index in about else ' '} {who}: {_told(event, begin, number)}"))
        last = history.events[-1]
        if len(history.events) - 1 not in near:
            lines.append((last.at, f"  {who}: ... its last line: {_told(last, begin, number)}"))
    for process in involved:
        for stop in record.stops.get(process, ()):
            if stop.is_kill:
                lines.append((stop.began, f"* {process} was killed"))
            else:
                lines.append((stop.began, f"* {process} was paused until {stop.ended - begin:.3f}"))
    for began, ended in record.outages:
        lines.append((began, f"* the broker was away until {ended - begin:.3f}"))
    if number in record.dead:
        times, cause = list(record.dead).count(number), record.causes.get(number, "")
        lines.append((float("inf"), f"* in the dead-letter queue: {times} time(s) {cause}"))
    return "\n".join(f"{at - begin:9.3f} {line}" for at, line in sorted(lines, key=lambda line: line[0]))


def _told(event: Event, begin: float, number: int) -> str:
    if len(event.numbers) > 6:
        named = f"{number} and {len(event.numbers) - 1} others" if number in event.numbers else f"{len(event.numbers)}"
    else:
        named = " ".join(map(str, event.numbers))
    parts = [event.kind.value, named]
    if event.kind is Kind.DELIVERED:
        parts.append(
            f"JMSRedelivered {event.redelivered} JMSXDeliveryCount {event.count} (ready {event.asked - begin:.3f})"
        )
    if event.text:
        parts.append(event.text)
    return " ".join(filter(None, parts))


def check(record: Round) -> list[Violation]:
    """Return what was not kept in *record*."""
    return Checker(record).violations()


def summary(violations: Iterable[Violation]) -> str:
    """Return how many violations there are of each rule, in a line."""
    counts: dict[str, int] = defaultdict(int)
    for violation in violations:
        counts[violation.rule] += 1
    return ", ".join(f"{count} {rule}" for rule, count in sorted(counts.items(), key=lambda item: -item[1])) or "none"


def _began(stop: Stop) -> float:
    return stop.began
