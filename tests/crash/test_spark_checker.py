"""The checker of the Spark test finds each broken promise, and nothing in what is permitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from spark_checker import Figures, History, Row, deliveries, figures, last_calls, stored_once, violations

SPARK, AGAIN, PYTHON, JAVA = 1, 2, 3, 4  # processes


def got(number: int, at: float, count: int = 1, batch: int | None = None) -> dict[str, Any]:
    line = {"event": "delivered", "id": number, "at": at, "marked": count > 1, "count": count}
    return line if batch is None else {**line, "batch": batch}


def event(name: str, at: float, batch: int | None = None) -> dict[str, Any]:
    return {"event": name, "at": at} if batch is None else {"event": name, "at": at, "batch": batch}


def settled(number: int, at: float, count: int = 1) -> list[dict[str, Any]]:
    return [got(number, at, count), event("acknowledging", at + 1), event("acknowledged", at + 2)]


def run(number: int, at: float, count: int = 1, batch: int = 0) -> list[dict[str, Any]]:
    return [got(number, at, count, batch), event("stored", at + 1, batch)]


GOOD: list[History] = [("spark", SPARK, run(0, 1)), ("python", PYTHON, settled(1, 2)), ("java", JAVA, settled(2, 3))]
ROWS = [Row(0, 0, False)]


def found(histories: Sequence[History], rows: Sequence[Row] = ROWS, killed: Sequence[int] = ()) -> list[str]:
    return list(violations(range(3), deliveries(histories), rows, killed, last_calls(histories)))


def python(lines: Sequence[dict[str, Any]]) -> list[History]:
    """Return the good histories with *lines* of Python's instead."""
    return [GOOD[0], ("python", PYTHON, lines), GOOD[2]]


PERMITTED: list[tuple[str, list[History], list[Row], list[int]]] = [
    ("each once", GOOD, ROWS, []),
    ("marked at first", python(settled(1, 2, count=2)), ROWS, [SPARK]),
    ("again after a kill", [*python([got(1, 2)]), ("java", JAVA, settled(1, 9, 2))], ROWS, [PYTHON]),
    ("again after a kill within an acknowledgement", [*python(settled(1, 2)[:2]), ("java", JAVA, settled(1, 9, 2))],
     ROWS, [PYTHON]),
    ("again after a refusal", python([got(1, 2), event("acknowledging", 3), event("refused", 4), *settled(1, 5, 2)]),
     ROWS, []),
    ("a batch again", [*GOOD, ("spark", AGAIN, run(0, 9, 2))], [Row(0, 0, True)], [SPARK]),
    ("a batch again, of which another consumer has all", [*GOOD, ("python", PYTHON, settled(0, 5, 2)),
     ("spark", AGAIN, [event("stored", 9, 0)])], [], [SPARK]),
    ("stored, and not noted", [("spark", SPARK, run(0, 1)[:1]), *GOOD[1:], ("spark", AGAIN, run(0, 9, 2))],
     [Row(0, 0, True)], [SPARK]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("histories", "rows", "killed"), [each[1:] for each in PERMITTED], ids=[e[0] for e in PERMITTED]
)
def test_what_is_permitted(histories: list[History], rows: list[Row], killed: list[int]) -> None:
    """Each message once; again, and marked, after its process was killed or its acknowledgement was refused."""
    assert found(histories, rows, killed) == []


BROKEN: list[tuple[str, list[History], list[Row], list[int]]] = [
    ("1 was lost: no consumer got it", [GOOD[0], GOOD[2]], ROWS, []),
    ("1 was lost: 2.000 python 3", python([got(1, 2)]), ROWS, [PYTHON]),
    ("1 was lost", python([got(1, 2), event("acknowledging", 3), event("refused", 4)]), ROWS, []),
    ("9 was never sent", [*GOOD, ("java", JAVA, settled(9, 9))], ROWS, []),
    ("came unmarked", [*python([got(1, 2)]), ("java", JAVA, settled(1, 9))], ROWS, [PYTHON]),
    ("no process that had it was killed", [*python([got(1, 2)]), ("java", JAVA, settled(1, 9, 2))], ROWS, []),
    ("1 was acknowledged, and delivered again", [*GOOD, ("java", JAVA, settled(1, 9, 2))], ROWS, [PYTHON]),
    ("the mark and the count disagree", python([{**got(1, 2), "count": 3}, *settled(1, 2)[1:]]), ROWS, []),
    ("batch 0 has 0 rows, and was called with 1", [*GOOD, ("java", JAVA, settled(0, 9, 2))], [], [SPARK]),
    ("batch 0 has 2 rows, and was called with 1", GOOD, ROWS * 2, []),
    ("batch 5 has 1 rows, and was called with 0", GOOD, [*ROWS, Row(1, 5, True)], []),
]  # fmt: skip


@pytest.mark.parametrize(("words", "histories", "rows", "killed"), BROKEN, ids=[each[0] for each in BROKEN])
def test_what_is_broken(words: str, histories: list[History], rows: list[Row], killed: list[int]) -> None:
    """Losses, silent repetitions, repetitions without a reason, and a sink that lacks rows are named."""
    assert any(words in violation for violation in found(histories, rows, killed))


def test_a_message_that_two_kinds_processed_unmarked() -> None:
    """A row of the sink and a delivery elsewhere must not both be unmarked, whatever their order."""
    histories = [*GOOD, ("python", PYTHON, settled(0, 0.5)[:1])]
    assert any("0 was processed more than once, unmarked" in each for each in found(histories, ROWS, [PYTHON]))


def test_the_figures() -> None:
    """They count messages by the kind of their consumers, repetitions, marks and batches."""
    assert figures(deliveries(GOOD), ROWS) == Figures({"spark": 1, "python": 1, "java": 1}, 3, 0, 0, 1, 0)
    again = [*GOOD, ("spark", AGAIN, run(0, 9, 2)), ("java", JAVA, settled(0, 10, 2))]
    assert figures(deliveries(again), [Row(0, 0, True)]) == Figures({"spark": 1, "python": 1, "java": 2}, 5, 1, 1, 1, 1)


def test_what_a_table_has_once() -> None:
    """Numbers that a table lacks, has twice, or should not have are named."""
    assert list(stored_once(range(3), [2, 0, 1])) == []
    assert list(stored_once(range(3), [0, 1, 1, 7])) == [
        "1 is stored 2 times",
        "2 is stored 0 times",
        "7 is stored 1 times, and was never sent",
    ]
