"""Of what consumers of three kinds noted, each broken promise is found, and nothing in what is permitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from spark_record import Figures, Lines, Row, figures, history, tables

from tests.history.checker import anomalies

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


GOOD: list[Lines] = [("spark", SPARK, run(0, 1)), ("python", PYTHON, settled(1, 2)), ("java", JAVA, settled(2, 3))]
ROWS = [Row(0, 0, False)]


def found(histories: Sequence[Lines], rows: Sequence[Row] = ROWS, killed: Sequence[int] = ()) -> set[tuple[str, str]]:
    record = history(range(3), histories, rows, dict.fromkeys(killed, 100.0))
    return {(each.name, " ".join(each.messages)) for each in anomalies(record)}


def python(lines: Sequence[dict[str, Any]]) -> list[Lines]:
    """Return the good histories with *lines* of Python's instead."""
    return [GOOD[0], ("python", PYTHON, lines), GOOD[2]]


PERMITTED: list[tuple[str, list[Lines], list[Row], list[int]]] = [
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
def test_what_is_permitted(histories: list[Lines], rows: list[Row], killed: list[int]) -> None:
    """Each message once; again, and marked, after its process was killed or its acknowledgement was refused."""
    assert found(histories, rows, killed) == set()


BROKEN: list[tuple[str, str, list[Lines], list[Row], list[int]]] = [
    ("lost write", "1", [GOOD[0], GOOD[2]], ROWS, []),
    ("lost write", "1", python([got(1, 2)]), ROWS, [PYTHON]),
    ("lost write", "1", python([got(1, 2), event("acknowledging", 3), event("refused", 4)]), ROWS, []),
    ("never sent", "9", [*GOOD, ("java", JAVA, settled(9, 9))], ROWS, []),
    ("unmarked repeat", "1", [*python([got(1, 2)]), ("java", JAVA, settled(1, 9))], ROWS, [PYTHON]),
    ("unexplained repeat", "1", [*python([got(1, 2)]), ("java", JAVA, settled(1, 9, 2))], ROWS, []),
    ("delivery after settlement", "1", [*GOOD, ("java", JAVA, settled(1, 9, 2))], ROWS, [PYTHON]),
    ("contradictory mark", "1", python([{**got(1, 2), "count": 3}, *settled(1, 2)[1:]]), ROWS, []),
    ("lost output", "0", [*GOOD, ("java", JAVA, settled(0, 9, 2))], [], [SPARK]),
    ("doubled output", "0", GOOD, ROWS * 2, []),
    ("never sent", "1@5 marked", GOOD, [*ROWS, Row(1, 5, True)], []),
    ("overwritten output", "0", [*GOOD, ("spark", AGAIN, run(0, 9, 2))], [Row(0, 0, False), Row(0, 0, True)], [SPARK]),
    ("unmarked repeat", "0", [*GOOD, ("python", PYTHON, settled(0, 0.5)[:1])], ROWS, [PYTHON]),
]


@pytest.mark.parametrize(("name", "message", "histories", "rows", "killed"), BROKEN, ids=[each[0] for each in BROKEN])
def test_what_is_broken(name: str, message: str, histories: list[Lines], rows: list[Row], killed: list[int]) -> None:
    """Losses, silent repetitions, repetitions without a reason, and a sink that lacks rows are named."""
    assert (name, message) in found(histories, rows, killed)


def test_what_is_left() -> None:
    """In the end the queue and the dead-letter queue are empty."""
    record = history(range(3), GOOD, ROWS, {}, left=[1], dead=[2])
    assert {("left over", "1"), ("dead letter", "2")} <= {(each.name, *each.messages) for each in anomalies(record)}


def test_the_figures() -> None:
    """They count messages by the kind of their consumers, repetitions, marks and batches."""
    assert figures(history(range(3), GOOD, ROWS, {}), GOOD) == Figures(
        {"spark": 1, "python": 1, "java": 1}, 3, 0, 0, 1, 0
    )
    again = [*GOOD, ("spark", AGAIN, run(0, 9, 2)), ("java", JAVA, settled(0, 10, 2))]
    assert figures(history(range(3), again, [Row(0, 0, True)], {}), again) == Figures(
        {"spark": 1, "python": 1, "java": 2}, 5, 1, 1, 1, 1
    )


def test_what_a_table_has_once() -> None:
    """Numbers that a table lacks, has twice, or should not have are named."""
    assert anomalies(tables(range(3), [2, 0, 1], [])) == []
    found = {(each.name, *each.messages) for each in anomalies(tables(range(3), [0, 1, 1, 7], [2]))}
    assert {("doubled output", "1"), ("lost output", "2"), ("never sent", "7"), ("left over", "2")} <= found
