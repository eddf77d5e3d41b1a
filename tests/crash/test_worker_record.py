"""Of what a worker's functions noted, each broken promise is found, and nothing in what is permitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from worker_record import Line, history

from tests.history.checker import anomalies


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


def ended(number: str, at: int, pid: int = 1, output: str = "") -> dict[str, Any]:
    return {**began(number, at, pid), "event": "ended", "output": output}


PACKED = "t-1>1.0"
GOOD = [began("t-1", 1), ended("t-1", 2, output=PACKED), began("a-1", 3), ended("a-1", 4)]
REPEATED = [*GOOD[:3], began("a-1", 5, pid=2, count=2), ended("a-1", 6, pid=2)]
ROLLED_BACK = [*GOOD, began("t-1", 5, count=2), ended("t-1", 6, output="t-1>1.1")]
KILLED = {1: 4.5}


def found(
    lines: Sequence[Line],
    packed: Sequence[str] = (PACKED,),
    killed: Mapping[int, float] | None = None,
    bereft: Sequence[int] = (),
) -> set[tuple[str, str]]:
    record = history(["t-1", "a-1"], packed, lines, killed or {}, bereft)
    return {(each.name, " ".join(each.messages)) for each in anomalies(record)}


def test_what_is_permitted() -> None:
    """Each message once; again after its process was killed; marked by inference after a kill."""
    assert found(GOOD) == set()
    assert found(REPEATED, killed=KILLED) == set()
    assert found(REPEATED, bereft=[1]) == set()
    # Its commit was refused, and its session continued with a-1.
    assert found(ROLLED_BACK, ["t-1>1.1"], bereft=[1]) == set()
    assert found(ROLLED_BACK, ["t-1>1.1"], killed={1: 9.0}, bereft=[1]) == set()
    assert found([*GOOD[:2], began("a-1", 3, count=2), ended("a-1", 4)], killed={7: 0.5}) == set()


@pytest.mark.parametrize(
    ("lines", "packed", "killed", "name", "message"),
    [
        (GOOD[:3], [PACKED], {}, "lost write", "a-1"),
        (GOOD, [], {}, "lost output", "t-1"),
        (GOOD, [PACKED, PACKED], {}, "doubled output", "t-1"),
        (GOOD, [PACKED, "t-9>1.7"], {}, "never sent", "t-9>1.7"),
        (REPEATED, [PACKED], {2: 4.5}, "unexplained repeat", "a-1"),
        ([*GOOD, began("t-1", 9, pid=2, count=2)], [PACKED], {1: 4.5}, "delivery after settlement", "t-1"),
        ([*GOOD[:3], began("a-1", 5, pid=2), ended("a-1", 6, pid=2)], [PACKED], KILLED, "unmarked repeat", "a-1"),
        ([*GOOD[:2], began("a-1", 3, count=2), ended("a-1", 4)], [PACKED], {}, "needless mark", "a-1"),
        ([*GOOD[:2], {**began("a-1", 3), "marked": True}, ended("a-1", 4)], [PACKED], {}, "contradictory mark", "a-1"),
    ],
)
def test_what_is_broken(
    lines: Sequence[Line], packed: Sequence[str], killed: Mapping[int, float], name: str, message: str
) -> None:
    """Losses, repetitions and marks that nothing explains are named, and nothing else."""
    assert found(lines, packed, killed) == {(name, message)}


def test_what_was_committed_by_two_sessions() -> None:
    """A message that two transactions have packed was committed twice."""
    lines = [*GOOD, began("t-1", 5, pid=2, count=2), ended("t-1", 6, pid=2, output="t-1>2.0")]
    assert ("committed twice", "t-1") in found(lines, [PACKED, "t-1>2.0"], KILLED)


def test_a_failure_of_the_worker_is_told() -> None:
    """What went wrong beside the messages is an anomaly as well."""
    record = history(["t-1", "a-1"], [PACKED], GOOD, {}, failures=["process 7 outlived its supervisor"])
    assert [each.name for each in anomalies(record)] == ["failure"]
