"""Whether what transacted sessions wrote down, and what two queues hold in the end, is exactly once: pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from crash_checker import BROKE, Round, Stop, Violation, excerpt
from crash_history import Event, History, Kind

LOST: Final = "not in the target"
TWICE: Final = "in the target more than once"
FOREIGN: Final = "in the target, and was never in the source"
LEFT_OVER: Final = "still in the source"
DEAD: Final = "in the dead-letter queue"
NOT_THERE: Final = "commit() returned, and its output is not in the target"
THERE: Final = "rolled back, and its output is in the target"
NOT_COMMITTED: Final = "never committed, and its output is in the target"
TORN: Final = "only part of a transaction is in the target"
OUT_OF_ORDER: Final = "not in the order in which the session sent it"
READ_OUT_OF_ORDER: Final = "not received in the order of its partition"
AGAIN_OUT_OF_ORDER: Final = "not redelivered in its order after a rollback"


@dataclass(frozen=True)
class Arrived:
    """A message in the target.

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


@dataclass
class Moves:
    """Everything that is known about one round.

    Args:
        histories: Of all sessions.
        sources: Partition and offset of each message in the source.
        arrived: What a read-committed reader finds in the target, each partition in its order.
        left: The messages that a fresh consumer still gets from the source.
        dead: What the dead-letter queue holds.
        stops: Kills and pauses from outside, by the name of the process.
        outages: When the broker was away.
    """

    histories: Sequence[History]
    sources: Mapping[int, tuple[int, int]]
    arrived: Sequence[Arrived]
    left: Sequence[int] = ()
    dead: Sequence[int] = ()
    stops: Mapping[str, Sequence[Stop]] = field(default_factory=dict)
    outages: Sequence[tuple[float, float]] = ()


@dataclass
class Transaction:
    """What a session did in one transaction.

    Attributes:
        received: Deliveries, in their order.
        outcome: The last line of the session about it: COMMITTED, REFUSED, ROLLED_BACK, COMMITTING where it never
            learnt the outcome, DELIVERED where it did not get so far.
    """

    name: str
    received: list[Event] = field(default_factory=list)
    outcome: Kind = Kind.DELIVERED

    @property
    def numbers(self) -> list[int]:
        """The messages that it received and sent, in their order."""
        return [event.numbers[0] for event in self.received]


_FATES: Final = frozenset({Kind.COMMITTING, Kind.COMMITTED, Kind.REFUSED, Kind.ROLLED_BACK})


def transactions(history: History) -> list[Transaction]:
    """Return the transactions of a session, in their order."""
    known: dict[str, Transaction] = {}
    for event in history.events:
        name = event.text.partition(" ")[0]
        if event.kind is Kind.DELIVERED:
            known.setdefault(name, Transaction(name)).received.append(event)
        elif event.kind in _FATES:
            known.setdefault(name, Transaction(name)).outcome = event.kind
    return list(known.values())


class Checker:
    """Finds what was not kept in one round."""

    def __init__(self, moves: Moves) -> None:
        self._moves = moves
        self.sessions = {history.name: transactions(history) for history in moves.histories}
        self._arrived: dict[str, list[Arrived]] = defaultdict(list)  # by transaction
        for each in moves.arrived:
            self._arrived[each.transaction].append(each)

    def count(self, *outcomes: Kind) -> int:
        """Return how many transactions had one of these *outcomes*."""
        return sum(each.outcome in outcomes for session in self.sessions.values() for each in session)

    def violations(self) -> list[Violation]:
        """Return every promise that was not kept."""
        found = [*self._messages()]
        for session in self.sessions.values():
            for each in session:
                found += self._outcome(each)
            found += self._sent_in_order(session)
            found += self._received_in_order(session)
            found += self._redelivered_in_order(session)
        named = {each.name for session in self.sessions.values() for each in session}
        for name in self._arrived.keys() - named:
            found.append(Violation(NOT_COMMITTED, self._arrived[name][0].number, f"no session knows {name!r}"))
        for history in self._moves.histories:
            found += [
                Violation(BROKE, -1, f"{history.name}: {event.text}")
                for event in history.events
                if event.kind is Kind.BROKE
            ]
        return found

    def _messages(self) -> Iterator[Violation]:
        """Each message is in the target once, and nowhere else."""
        moves = self._moves
        times = Counter(each.number for each in moves.arrived)
        for number in moves.sources:
            if times[number] == 0:
                yield Violation(LOST, number, "it was in the source")
        for number, count in times.items():
            by = ", ".join(each.transaction for each in moves.arrived if each.number == number)
            if number not in moves.sources:
                yield Violation(FOREIGN, number, f"sent by {by}")
            elif count > 1:
                yield Violation(TWICE, number, f"{count} times, sent by {by}")
        yield from (Violation(LEFT_OVER, number, "a fresh consumer gets it") for number in moves.left)
        yield from (Violation(DEAD, number, "nothing failed so often") for number in moves.dead)

    def _outcome(self, transaction: Transaction) -> Iterator[Violation]:
        """All of a transaction's output is there, or none; and that agrees with the outcome that its session got."""
        sent, there = set(transaction.numbers), {each.number for each in self._arrived[transaction.name]}
        number = min(there or sent, default=-1)
        if transaction.outcome is Kind.COMMITTED and not there:
            yield Violation(NOT_THERE, number, f"{transaction.name}, {len(sent)} messages")
        elif there and transaction.outcome in {Kind.REFUSED, Kind.ROLLED_BACK}:
            text = f"{transaction.name}, {len(there)} of {len(sent)} messages, {transaction.outcome.value}"
            yield Violation(THERE, number, text)
        elif there and transaction.outcome is Kind.DELIVERED:
            yield Violation(NOT_COMMITTED, number, f"{transaction.name}, {len(there)} of {len(sent)} messages")
        if there and sent != there:
            text = f"{transaction.name}: {sorted(sent - there)} missing, {sorted(there - sent)} too many"
            yield Violation(TORN, min(sent ^ there), text)

    def _sent_in_order(self, session: Sequence[Transaction]) -> Iterator[Violation]:
        """A session's messages stand in one partition of the target, in the order in which they were sent."""
        turns = {each.name: turn for turn, each in enumerate(session)}
        mine = [each for name in turns for each in self._arrived[name]]
        mine.sort(key=lambda each: (each.partition, each.offset))
        for before, after in pairwise(mine):
            if before.partition != after.partition:
                text = f"its session {after.transaction} is in partitions {before.partition} and {after.partition}"
                yield Violation(OUT_OF_ORDER, after.number, text)
            elif (turns[before.transaction], before.place) >= (turns[after.transaction], after.place):
                text = (
                    f"place {after.place} of {after.transaction} stands behind"
                    f" place {before.place} of {before.transaction}"
                )
                yield Violation(OUT_OF_ORDER, after.number, text)

    def _received_in_order(self, session: Sequence[Transaction]) -> Iterator[Violation]:
        """What comes to a consumer unmarked comes in the order of its partition.

        Two things come when they come: what was moved, to another process or out of the way, and what another
        consumer or process was to have and did not take. Later messages may have gone before.
        """
        last: dict[tuple[int, int], tuple[int, int]] = {}  # of each consumer and partition: offset and number
        for event in (event for each in session for event in each.received):
            number = event.numbers[0]
            partition, offset = self._moves.sources.get(number, (-1, -1))
            if partition < 0 or event.is_marked or event.moved or event.back:
                continue
            place = event.consumer, partition
            if place in last and offset <= last[place][0]:
                yield Violation(READ_OUT_OF_ORDER, number, f"after message {last[place][1]}, both for the first time")
            last[place] = max(last.get(place, (-1, -1)), (offset, number))

    def _redelivered_in_order(self, session: Sequence[Transaction]) -> Iterator[Violation]:
        """What was rolled back, and comes to a consumer again, comes in the order in which it came to one before.

        That is certain where the next transaction was committed: then no partition was lost meanwhile. What had come
        late the first time may come in its old place instead: a consumer that was stopped meanwhile gets it so.
        """
        for before, after in pairwise(session):
            if before.outcome not in {Kind.REFUSED, Kind.ROLLED_BACK} or after.outcome is not Kind.COMMITTED:
                continue
            turns = {number: turn for turn, number in enumerate(before.numbers)}
            earlier = {event.numbers[0]: event for event in before.received}
            last: dict[tuple[int, int, int], int] = {}  # of each partition and consumers: the message that came last
            for event in after.received:
                number = event.numbers[0]
                if number not in turns:
                    continue
                partition, _ = self._moves.sources.get(number, (-1, -1))
                place = partition, earlier[number].consumer, event.consumer
                if (
                    place in last
                    and turns[number] < turns[last[place]]
                    and not self._is_back_in_place(earlier[last[place]], earlier[number])
                ):
                    text = f"{before.name} had it before message {last[place]}, {after.name} after it"
                    yield Violation(AGAIN_OUT_OF_ORDER, number, text)
                last[place] = number

    def _is_back_in_place(self, late: Event, overtaken: Event) -> bool:
        """Tell whether *late*, which came after *overtaken* of the same partition, has its place before it."""
        if not (late.is_marked or late.moved or late.back):
            return False
        offset, other = (self._moves.sources[event.numbers[0]][1] for event in (late, overtaken))
        return offset < other or late.moved or overtaken.moved  # where they were moved to, they may stand otherwise


def check(moves: Moves) -> list[Violation]:
    """Return what was not kept in *moves*."""
    return Checker(moves).violations()


def account(moves: Moves, violations: Iterable[Violation]) -> Iterator[tuple[Violation, str]]:
    """Return each violation with what histories and queues say about its message, in the order of time."""
    record = Round(moves.histories, stops=moves.stops, outages=moves.outages, dead=moves.dead)
    for violation in violations:
        number = violation.number
        lines = []
        if number in moves.sources:
            lines.append("in the source at partition {} offset {}".format(*moves.sources[number]))
        lines += [
            f"in the target at partition {each.partition} offset {each.offset}: {each.transaction}, place {each.place}"
            for each in moves.arrived
            if each.number == number
        ]
        yield violation, "\n".join([excerpt(record, number), *lines]) if number >= 0 else ""
