"""Plans draw everything that the simulation knows, and smaller plans lead to the smallest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.plans import SECOND_KEY, Plan, drawn, skew_of, smaller

PLANS = [drawn(seed) for seed in range(400)]


def sessions(plan: Plan, kind: str) -> list[Plan]:
    return [each for process in plan["processes"] for each in process["sessions"] if each["kind"] == kind]


DRAWN: dict[str, Callable[[Plan], Any]] = {
    **{
        kind: lambda plan, kind=kind: plan["is_topic"] and plan["subscription"] == kind
        for kind in ("plain", "shared", "durable", "shared durable")
    },
    **{
        way: lambda plan, way=way: any(each["way"] == way for each in sessions(plan, "receive"))
        for way in ("receive", "listener", "aio")
    },
    **{
        action: lambda plan, action=action: any(
            op[3] == action for each in sessions(plan, "receive") for op in each["ops"]
        )
        for action in ("settle", "keep", "back", "reopen", "quit", "browse", "cancel")
    },
    **{
        kind: lambda plan, kind=kind: any(fault[1] == kind for fault in plan["faults"])
        for kind in ("kill", "pause", "lose", "time_out", "outage", "move", "late")
    },
    "requests": lambda plan: sessions(plan, "request") and sessions(plan, "reply"),
    "interrupts": lambda plan: any("interrupt" in each for each in sessions(plan, "receive")),
    "a second queue": lambda plan: any(op[1] >= SECOND_KEY for each in sessions(plan, "send") for op in each["ops"]),
    "expiry": lambda plan: any(op[5:] not in ([], [0]) for each in sessions(plan, "send") for op in each["ops"]),
    "delays": lambda plan: any(op[4] for each in sessions(plan, "send") for op in each["ops"]),
    "two targets": lambda plan: plan["targets"] == 2,
    "latency": lambda plan: plan["network"][0],
    "late markers": lambda plan: plan["network"][1],
    "clocks that differ": skew_of,
    "calm runs": lambda plan: not plan["faults"] and len(plan["processes"]) == 1,
}


@pytest.mark.parametrize("what", DRAWN)
def test_plans_draw_everything(what: str) -> None:
    """Some plans have it, and some have not."""
    assert 3 < sum(bool(DRAWN[what](plan)) for plan in PLANS) < 397


@pytest.mark.parametrize("plan", PLANS[:40], ids=range(40))
def test_smaller_plans_come_to_an_end(plan: Plan) -> None:
    """Each step leaves something out; the last plan has nothing that can be left out."""
    steps = 0
    while (step := next(smaller(plan), None)) is not None:
        assert step != plan
        plan, steps = step, steps + 1
        assert steps < 1_000
    assert [each["sessions"] for each in plan["processes"]] == [[]]
    assert not plan["faults"]
    assert {*plan} & {"network", "second", "targets"} == set()


def test_calm_plans_have_no_faults() -> None:
    """The command's options hold."""
    for seed in range(50):
        plan = drawn(seed, most_processes=1, most_faults=0)
        assert (len(plan["processes"]), plan["faults"]) == (1, [])
