"""Of what transacted sessions wrote, each broken promise is found, and nothing where all were kept."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest
from crash_journal import Event, Journal, Kind
from crash_record import Arrived, Round, history
from exactly_once_plan import plan

from tests.history.checker import anomalies
from tests.history.report import account, minimal


def session(
    *transactions: tuple[str, Kind | None, list[int]],
    marked: tuple[int, ...] = (),
    moved: tuple[int, ...] = (),
    back: tuple[int, ...] = (),
    second: tuple[int, ...] = (),
) -> Journal:
    """A session that received *marked* as redelivered and the others for the first time, *moved* and *back* so.

    It received *second* by its second consumer.
    """
    events = []
    received: Counter[int] = Counter()
    clock = itertools.count(2.0 + sum(map(ord, transactions[0][0])) * 100)
    for name, outcome, numbers in transactions:
        for number in numbers:
            count = 1 + (number in marked) + received[number]
            received[number] += 1
            how = {"redelivered": count > 1, "count": count, "moved": number in moved, "back": number in back}
            consumer = int(number in second)
            events.append(Event(next(clock), Kind.DELIVERED, (number,), consumer=consumer, text=name, **how))  # type: ignore[arg-type]
        if outcome in {Kind.COMMITTED, Kind.REFUSED}:
            events.append(Event(next(clock), Kind.COMMITTING, tuple(numbers), text=name))
        if outcome is not None:
            text = f"{name} the reason" if outcome is Kind.REFUSED else name
            events.append(Event(next(clock), outcome, tuple(numbers), text=text))
    return Journal(f"of {transactions[0][0]}", "p", "receive loop", events)


def there(*transactions: tuple[str, list[int]]) -> list[Arrived]:
    """What stands in the one partition of the target, in this order."""
    rows = [(number, name, place) for name, numbers in transactions for place, number in enumerate(numbers)]
    return [Arrived(*row, partition=0, offset=offset) for offset, row in enumerate(rows)]


def source(*numbers: int) -> dict[int, tuple[int, int]]:
    return {number: (0, number) for number in numbers}


def moved_by(journals: list[Journal], sources: dict[int, tuple[int, int]], arrived: list[Arrived]) -> Round:
    return Round(journals, sources=sources, arrived=arrived, max_deliveries=None)


GOOD = moved_by(
    [session(("a", Kind.COMMITTED, [1, 2]), ("b", Kind.COMMITTED, [3]))],
    source(1, 2, 3),
    there(("a", [1, 2]), ("b", [3])),
)
FINE = {
    "all committed": GOOD,
    "no program knows the outcome, and it is there": replace(
        GOOD, journals=[session(("a", Kind.COMMITTING, [1, 2]), ("b", Kind.COMMITTED, [3]))]
    ),
    "no program knows the outcome, and it is not there": moved_by(
        [session(("a", Kind.COMMITTING, [1])), session(("b", Kind.COMMITTED, [1]), marked=(1,))],
        source(1),
        there(("b", [1])),
    ),
    "rolled back, and moved again": moved_by(
        [session(("a", Kind.ROLLED_BACK, [1]), ("b", Kind.REFUSED, [1]), ("c", Kind.COMMITTED, [1]), marked=(1,))],
        source(1),
        there(("c", [1])),
    ),
    "left open": moved_by(
        [session(("a", Kind.COMMITTED, [1]), ("b", None, [2])), session(("c", Kind.COMMITTED, [2]), marked=(2,))],
        source(1, 2),
        there(("a", [1]), ("c", [2])),
    ),
    "redelivered messages come between others": moved_by(
        [session(("a", Kind.COMMITTED, [3]), ("b", Kind.COMMITTED, [1]), marked=(1,))],
        source(1, 3),
        there(("a", [3]), ("b", [1])),
    ),
    "what another consumer did not take comes late": moved_by(
        [session(("a", Kind.COMMITTED, [3, 1, 2, 4]), back=(1, 2))],
        source(1, 2, 3, 4),
        there(("a", [3, 1, 2, 4])),
    ),
    "what was moved comes late": moved_by(
        [session(("a", Kind.COMMITTED, [3, 1]), moved=(1,))], source(1, 3), there(("a", [3, 1]))
    ),
    "what came late comes in its place after a rollback": moved_by(
        [session(("a", Kind.ROLLED_BACK, [3, 1]), ("b", Kind.COMMITTED, [1, 3]), marked=(1,))],
        source(1, 3),
        there(("b", [1, 3])),
    ),
    "what came late comes late again after a rollback": moved_by(
        [session(("a", Kind.ROLLED_BACK, [3, 1]), ("b", Kind.COMMITTED, [3, 1]), back=(1,))],
        source(1, 3),
        there(("b", [3, 1])),
    ),
    "what was moved has a place of its own": moved_by(
        [session(("a", Kind.ROLLED_BACK, [1, 3]), ("b", Kind.COMMITTED, [3, 1]), moved=(3,))],
        source(1, 3),
        there(("b", [3, 1])),
    ),
    "a second consumer gets what the first one left": moved_by(
        [session(("a", Kind.COMMITTED, [3, 1]), second=(1,))], source(1, 3), there(("a", [3, 1]))
    ),
    "two consumers have no order among each other": moved_by(
        [session(("a", Kind.ROLLED_BACK, [3, 1]), ("b", Kind.COMMITTED, [1, 3]), marked=(1, 3), second=(1,))],
        source(1, 3),
        there(("b", [1, 3])),
    ),
    "partitions have no order among each other": moved_by(
        [session(("a", Kind.COMMITTED, [2, 1]))], {1: (0, 0), 2: (1, 9)}, there(("a", [2, 1]))
    ),
}


@pytest.mark.parametrize("moves", FINE.values(), ids=FINE.keys())
def test_nothing_is_held_against_what_was_moved_exactly_once(moves: Round) -> None:
    """Histories that may be are no violations."""
    assert anomalies(history(moves)) == []


BAD = {
    "lost write: lost": replace(GOOD, sources=source(1, 2, 3, 4)),
    "committed twice: twice": moved_by(
        [session(("a", Kind.COMMITTED, [1]), ("b", Kind.COMMITTING, [1]), marked=(1,))],
        source(1),
        there(("a", [1]), ("b", [1])),
    ),
    "never sent: foreign": replace(GOOD, sources=source(1, 2)),
    "left over: left over": replace(GOOD, left={2: 1}),
    "dead letter: dead": replace(GOOD, dead=[(2, "")]),
    "lost output: not there": replace(GOOD, arrived=there(("a", [1, 2]))),
    "aborted read: there": replace(GOOD, journals=[session(("a", Kind.REFUSED, [1, 2]), ("b", Kind.COMMITTED, [3]))]),
    "aborted read: there: rollback()": replace(
        GOOD, journals=[session(("a", Kind.ROLLED_BACK, [1, 2]), ("b", Kind.COMMITTED, [3]))]
    ),
    "aborted read: not committed": replace(GOOD, journals=[session(("a", Kind.COMMITTED, [1, 2]), ("b", None, [3]))]),
    "never sent: by an unknown transaction": replace(GOOD, journals=[session(("a", Kind.COMMITTED, [1, 2]))]),
    "torn transaction: torn": replace(GOOD, arrived=there(("a", [1]), ("b", [3]))),
    "order: out of order": replace(GOOD, arrived=there(("b", [3]), ("a", [1, 2]))),
    "order: out of order: inside of a transaction": replace(
        GOOD, arrived=[Arrived(2, "a", 1, 0, 0), Arrived(1, "a", 0, 0, 1), Arrived(3, "b", 0, 0, 2)]
    ),
    "order: out of order: in two partitions": replace(GOOD, arrived=[*there(("a", [1, 2])), Arrived(3, "b", 0, 1, 0)]),
    "order: read out of order": replace(GOOD, sources={1: (0, 9), 2: (0, 8), 3: (1, 0)}),
    "order: read out of order: by a second consumer": moved_by(
        [session(("a", Kind.COMMITTED, [3, 2, 1]), second=(1, 2))], source(1, 2, 3), there(("a", [3, 2, 1]))
    ),
    "redelivery order: again out of order": moved_by(
        [session(("a", Kind.ROLLED_BACK, [1, 2]), ("b", Kind.COMMITTED, [2, 1]), marked=(1, 2))],
        source(1, 2),
        there(("b", [2, 1])),
    ),
    "order: read out of order: behind one that came late": moved_by(
        [session(("a", Kind.COMMITTED, [4, 1, 3]), back=(1,))], source(1, 3, 4), there(("a", [4, 1, 3]))
    ),
    "redelivery order: again out of order: for the first time": moved_by(
        [session(("a", Kind.ROLLED_BACK, [1, 2]), ("b", Kind.COMMITTED, [2, 1]))], source(1, 2), there(("b", [2, 1]))
    ),
    "redelivery order: again out of order: behind one that it stood before": moved_by(
        [session(("a", Kind.ROLLED_BACK, [1, 2]), ("b", Kind.COMMITTED, [2, 1]), back=(1, 2))],
        source(1, 2),
        there(("b", [2, 1])),
    ),
    "failure: broke": replace(
        GOOD, journals=[*GOOD.journals, Journal("t", "q", "listener", [Event(0.0, Kind.BROKE, text="it")])]
    ),
}


@pytest.mark.parametrize(("name", "moves"), BAD.items(), ids=BAD.keys())
def test_each_kind_of_broken_promise_is_found(name: str, moves: Round) -> None:
    """An anomaly is found under its name, and in the smallest history that shows it."""
    whole = history(moves)
    found = anomalies(whole)
    assert name.partition(":")[0] in {each.name for each in found}
    for each in found:
        assert (each.name, each.messages) in [(e.name, e.messages) for e in anomalies(minimal(whole, each))]
        assert account(whole, each) or not each.messages


def test_the_plan_is_a_function_of_the_seed() -> None:
    """A seed and a round's number say what is done, and to whom; another seed says something else."""
    assert plan(7, 1, 20, 6) == plan(7, 1, 20, 6)
    assert plan(7, 1, 20, 6) != plan(8, 1, 20, 6)
    whats = [each.what for each in plan(7, 1, 10, 6).disturbances]
    assert "kill" in whats
    assert {"stop broker", "kill broker"} & set(whats)
