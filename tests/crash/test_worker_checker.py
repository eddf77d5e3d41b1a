"""The checker of the worker test finds each broken promise, and nothing in what is permitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from worker_checker import Figures, Line, figures, violations


def began(number: str, at: int, pid: int = 1, count: int = 1, session: int = 1) -> dict[str, Any]:
    return {
        "event": "began",
        "id": number,
        "at": at,
        "pid": pid,
        "count": count,
        "marked": count > 1,
        "session": session,
    }


def ended(number: str, at: int, pid: int = 1) -> dict[str, Any]:
    return {**began(number, at, pid), "event": "ended"}


GOOD = [began("t-1", 1), ended("t-1", 2), began("a-1", 3), ended("a-1", 4)]
REPEATED = [*GOOD[:3], began("a-1", 5, pid=2, count=2), ended("a-1", 6, pid=2)]


def found(
    lines: Sequence[Line], packed: Sequence[str] = ("t-1",), killed: Sequence[int] = (), bereft: Sequence[int] = ()
) -> list[str]:
    return list(violations(["t-1", "a-1"], ["t-1"], packed, lines, killed, bereft))


def test_what_is_permitted() -> None:
    """Each message once; again after its process was killed; marked by inference after a kill."""
    assert found(GOOD) == []
    assert found(REPEATED, killed=[1]) == []
    assert found(REPEATED, bereft=[1]) == []
    rolled_back = [*GOOD, began("t-1", 5, count=2)]  # its commit was refused, and its session continued with a-1
    assert found(rolled_back, bereft=[1]) == []
    assert found(rolled_back, killed=[1], bereft=[1]) == []
    assert found([*GOOD[:2], began("a-1", 3, count=2), ended("a-1", 4)], killed=[7]) == []


@pytest.mark.parametrize(
    ("lines", "packed", "killed", "words"),
    [
        (GOOD[:3], ["t-1"], [], "a-1 was lost"),
        (GOOD, [], [], "t-1 was packed 0 times"),
        (GOOD, ["t-1", "t-1"], [], "t-1 was packed 2 times"),
        (GOOD, ["t-1", "t-9"], [], "t-9 was packed 1 times"),
        (REPEATED, ["t-1"], [2], "process 1 was not killed"),
        ([*GOOD, began("t-1", 9, pid=2, count=2)], ["t-1"], [1], "its session had begun another one"),
        ([*GOOD[:3], began("a-1", 5, pid=2), ended("a-1", 6)], ["t-1"], [1], "came unmarked"),
        ([*GOOD[:2], began("a-1", 3, count=2), ended("a-1", 4)], ["t-1"], [], "no process was killed"),
    ],
)
def test_what_is_broken(lines: Sequence[Line], packed: Sequence[str], killed: Sequence[int], words: str) -> None:
    """Losses, repetitions and marks that nothing explains are named."""
    assert [words in violation for violation in found(lines, packed, killed)] == [True]


def test_the_figures() -> None:
    """They count messages, deliveries, repetitions and marks."""
    assert figures(["t-1", "a-1"], GOOD) == Figures(2, 2, 2, 0, 0, 0)
    assert figures(["t-1", "a-1"], REPEATED) == Figures(2, 2, 3, 1, 1, 0)
    assert figures(["t-1", "a-1", "a-2"], [*GOOD, began("a-2", 9, count=2)]) == Figures(3, 2, 3, 0, 1, 1)
