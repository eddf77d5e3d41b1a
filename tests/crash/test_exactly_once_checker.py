"""The exactly-once test's checker: it finds each kind of broken promise, and none where all were kept."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from crash_checker import BROKE
from crash_history import Event, History, Kind
from exactly_once_checker import (
    AGAIN_OUT_OF_ORDER,
    DEAD,
    FOREIGN,
    LEFT_OVER,
    LOST,
    NOT_COMMITTED,
    NOT_THERE,
    OUT_OF_ORDER,
    READ_OUT_OF_ORDER,
    THERE,
    TORN,
    TWICE,
    Arrived,
    Moves,
    account,
    check,
)
from exactly_once_plan import plan


def session(
    *transactions: tuple[str, Kind | None, list[int]],
    marked: tuple[int, ...] = (),
    moved: tuple[int, ...] = (),
    back: tuple[int, ...] = (),
    second: tuple[int, ...] = (),
) -> History:
    """A session that received *marked* as redelivered and the others for the first time, *moved* and *back* so.

    It received *second* by its second consumer.
    """
    events = []
    received: Counter[int] = Counter()
    for name, outcome, numbers in transactions:
        for number in numbers:
            count = 1 + (number in marked) + received[number]
            received[number] += 1
            how = {"redelivered": count > 1, "count": count, "moved": number in moved, "back": number in back}
            consumer = int(number in second)
            events.append(Event(0.0, Kind.DELIVERED, (number,), consumer=consumer, text=name, **how))  # type: ignore[arg-type]
        if outcome in {Kind.COMMITTED, Kind.REFUSED}:
            events.append(Event(0.0, Kind.COMMITTING, tuple(numbers), text=name))
        if outcome is not None:
            text = f"{name} the reason" if outcome is Kind.REFUSED else name
            events.append(Event(0.0, outcome, tuple(numbers), text=text))
    return History(f"of {transactions[0][0]}", "p", "receive loop", events)


def there(*transactions: tuple[str, list[int]]) -> list[Arrived]:
    """What stands in the one partition of the target, in this order."""
    rows = [(number, name, place) for name, numbers in transactions for place, number in enumerate(numbers)]
    return [Arrived(*row, partition=0, offset=offset) for offset, row in enumerate(rows)]


def source(*numbers: int) -> dict[int, tuple[int, int]]:
    return {number: (0, number) for number in numbers}


GOOD = Moves(
    [session(("a", Kind.COMMITTED, [1, 2]), ("b", Kind.COMMITTED, [3]))],
    source(1, 2, 3),
    there(("a", [1, 2]), ("b", [3])),
)
FINE = {
    "all committed": GOOD,
    "nobody heard of the outcome, and it is there": replace(
        GOOD, histories=[session(("a", Kind.COMMITTING, [1, 2]), ("b", Kind.COMMITTED, [3]))]
    ),
    "nobody heard of the outcome, and it is not there": Moves(
        [session(("a", Kind.COMMITTING, [1])), session(("b", Kind.COMMITTED, [1]))], source(1), there(("b", [1]))
    ),
    "rolled back, and moved again": Moves(
        [session(("a", Kind.ROLLED_BACK, [1]), ("b", Kind.REFUSED, [1]), ("c", Kind.COMMITTED, [1]), marked=(1,))],
        source(1),
        there(("c", [1])),
    ),
    "left open": Moves(
        [session(("a", Kind.COMMITTED, [1]), ("b", None, [2])), session(("c", Kind.COMMITTED, [2]))],
        source(1, 2),
        there(("a", [1]), ("c", [2])),
    ),
    "redelivered messages come between others": Moves(
        [session(("a", Kind.COMMITTED, [3]), ("b", Kind.COMMITTED, [1]), marked=(1,))],
        source(1, 3),
        there(("a", [3]), ("b", [1])),
    ),
    "what another consumer did not take comes late": Moves(
        [session(("a", Kind.COMMITTED, [3, 1, 2, 4]), back=(1, 2))],
        source(1, 2, 3, 4),
        there(("a", [3, 1, 2, 4])),
    ),
    "what was moved comes late": Moves(
        [session(("a", Kind.COMMITTED, [3, 1]), moved=(1,))], source(1, 3), there(("a", [3, 1]))
    ),
    "what came late comes in its place after a rollback": Moves(
        [session(("a", Kind.ROLLED_BACK, [3, 1]), ("b", Kind.COMMITTED, [1, 3]), marked=(1,))],
        source(1, 3),
        there(("b", [1, 3])),
    ),
    "what came late comes late again after a rollback": Moves(
        [session(("a", Kind.ROLLED_BACK, [3, 1]), ("b", Kind.COMMITTED, [3, 1]), back=(1,))],
        source(1, 3),
        there(("b", [3, 1])),
    ),
    "what was moved has a place of its own": Moves(
        [session(("a", Kind.ROLLED_BACK, [1, 3]), ("b", Kind.COMMITTED, [3, 1]), moved=(3,))],
        source(1, 3),
        there(("b", [3, 1])),
    ),
    "a second consumer gets what the first one left": Moves(
        [session(("a", Kind.COMMITTED, [3, 1]), second=(1,))], source(1, 3), there(("a", [3, 1]))
    ),
    "two consumers have no order among each other": Moves(
        [session(("a", Kind.ROLLED_BACK, [3, 1]), ("b", Kind.COMMITTED, [1, 3]), marked=(1, 3), second=(1,))],
        source(1, 3),
        there(("b", [1, 3])),
    ),
    "partitions have no order among each other": Moves(
        [session(("a", Kind.COMMITTED, [2, 1]))], {1: (0, 0), 2: (1, 9)}, there(("a", [2, 1]))
    ),
}


@pytest.mark.parametrize("moves", FINE.values(), ids=FINE.keys())
def test_nothing_is_held_against_what_was_moved_exactly_once(moves: Moves) -> None:
    """Histories that may be are no violations."""
    assert check(moves) == []


BAD = {
    LOST: replace(GOOD, sources=source(1, 2, 3, 4)),
    TWICE: Moves(
        [session(("a", Kind.COMMITTED, [1]), ("b", Kind.COMMITTING, [1]), marked=(1,))],
        source(1),
        there(("a", [1]), ("b", [1])),
    ),
    FOREIGN: replace(GOOD, sources=source(1, 2)),
    LEFT_OVER: replace(GOOD, left=[2]),
    DEAD: replace(GOOD, dead=[2]),
    NOT_THERE: replace(GOOD, arrived=there(("a", [1, 2]))),
    THERE: replace(GOOD, histories=[session(("a", Kind.REFUSED, [1, 2]), ("b", Kind.COMMITTED, [3]))]),
    f"{THERE}: rollback()": replace(
        GOOD, histories=[session(("a", Kind.ROLLED_BACK, [1, 2]), ("b", Kind.COMMITTED, [3]))]
    ),
    NOT_COMMITTED: replace(GOOD, histories=[session(("a", Kind.COMMITTED, [1, 2]), ("b", None, [3]))]),
    f"{NOT_COMMITTED}: by nobody": replace(GOOD, histories=[session(("a", Kind.COMMITTED, [1, 2]))]),
    TORN: replace(GOOD, arrived=there(("a", [1]), ("b", [3]))),
    OUT_OF_ORDER: replace(GOOD, arrived=there(("b", [3]), ("a", [1, 2]))),
    f"{OUT_OF_ORDER}: inside of a transaction": replace(
        GOOD, arrived=[Arrived(2, "a", 1, 0, 0), Arrived(1, "a", 0, 0, 1), Arrived(3, "b", 0, 0, 2)]
    ),
    f"{OUT_OF_ORDER}: in two partitions": replace(GOOD, arrived=[*there(("a", [1, 2])), Arrived(3, "b", 0, 1, 0)]),
    READ_OUT_OF_ORDER: replace(GOOD, sources={1: (0, 9), 2: (0, 8), 3: (1, 0)}),
    f"{READ_OUT_OF_ORDER}: by a second consumer": Moves(
        [session(("a", Kind.COMMITTED, [3, 2, 1]), second=(1, 2))], source(1, 2, 3), there(("a", [3, 2, 1]))
    ),
    AGAIN_OUT_OF_ORDER: Moves(
        [session(("a", Kind.ROLLED_BACK, [1, 2]), ("b", Kind.COMMITTED, [2, 1]), marked=(1, 2))],
        source(1, 2),
        there(("b", [2, 1])),
    ),
    f"{READ_OUT_OF_ORDER}: behind one that came late": Moves(
        [session(("a", Kind.COMMITTED, [4, 1, 3]), back=(1,))], source(1, 3, 4), there(("a", [4, 1, 3]))
    ),
    f"{AGAIN_OUT_OF_ORDER}: for the first time": Moves(
        [session(("a", Kind.ROLLED_BACK, [1, 2]), ("b", Kind.COMMITTED, [2, 1]))], source(1, 2), there(("b", [2, 1]))
    ),
    f"{AGAIN_OUT_OF_ORDER}: behind one that it stood before": Moves(
        [session(("a", Kind.ROLLED_BACK, [1, 2]), ("b", Kind.COMMITTED, [2, 1]), back=(1, 2))],
        source(1, 2),
        there(("b", [2, 1])),
    ),
    BROKE: replace(
        GOOD, histories=[*GOOD.histories, History("t", "q", "listener", [Event(0.0, Kind.BROKE, text="it")])]
    ),
}


@pytest.mark.parametrize(("name", "moves"), BAD.items(), ids=BAD.keys())
def test_each_kind_of_broken_promise_is_found(name: str, moves: Moves) -> None:
    """A violation is reported under its rule, with an account."""
    rule = name.partition(":")[0]
    found = check(moves)
    assert rule in {violation.rule for violation in found}
    assert len(list(account(moves, found))) == len(found)


def test_the_plan_is_a_function_of_the_seed() -> None:
    """A seed and a round's number say what is done, and to whom; another seed says something else."""
    assert plan(7, 1, 20, 6) == plan(7, 1, 20, 6)
    assert plan(7, 1, 20, 6) != plan(8, 1, 20, 6)
    whats = [each.what for each in plan(7, 1, 10, 6).disturbances]
    assert "kill" in whats
    assert {"stop broker", "kill broker"} & set(whats)
