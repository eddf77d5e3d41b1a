"""The definitions of a partition: which are accepted, which messages are due, and what is made up after a pause."""

from __future__ import annotations

from typing import Any

import pytest

from kjms.engine.delayed.periodic import LATE_MS, PeriodicMessages
from kjms.mapping.delayed import Progress
from kjms.mapping.periodic import Definition
from kjms.txn.cron import NEVER

NOW = 1_790_000_000_500
NEXT = 1_790_000_001_000
"""The next second."""


def definition(name: str = "tea", number: int = 1, **changes: Any) -> Definition:
    members: dict[str, Any] = {"cron": "* * * * * *", "timezone": "UTC", "destination": "queue://kitchen", **changes}
    return Definition(name, message_id=f"ID:{number}", **members)


@pytest.fixture
def periodic() -> PeriodicMessages[str]:
    """No definitions."""
    return PeriodicMessages()


def decide(periodic: PeriodicMessages[str], now: int = NOW) -> tuple[list[int], list[Progress]]:
    """Judge, and record the verdict as the owner does."""
    verdict = periodic.judge(now)
    periodic.advance(verdict.accepted)
    for offset in verdict.ended:
        periodic.settle(offset)
    return verdict.ended, verdict.accepted


def sent(periodic: PeriodicMessages[str], now: int) -> list[int]:
    """Return the times for which messages are sent at *now*, and record that they were."""
    ticks = periodic.due(now)
    periodic.advance([each.progress for each in ticks])
    return [time for each in ticks for time in each.times]


def test_a_definition_begins_with_the_next_time(periodic: PeriodicMessages[str]) -> None:
    """Nothing is sent before the definition is accepted; the first time is after that."""
    periodic.add(5, definition(), "hello")
    assert (periodic.next_due, periodic.is_settled) == (0, False)
    assert periodic.due(NOW) == []
    assert decide(periodic) == ([], [Progress(5, NEXT, 0)])
    assert (periodic.next_due, periodic.is_settled, periodic.first_offset) == (NEXT, True, 5)
    assert sent(periodic, NEXT - 1) == []
    assert sent(periodic, NEXT) == [NEXT]
    assert sent(periodic, NEXT) == []
    assert sent(periodic, NEXT + 2_000) == [NEXT + 1_000, NEXT + 2_000]


def test_the_first_definition_of_a_name_wins(periodic: PeriodicMessages[str]) -> None:
    """Of two definitions of the same name, the first in the log is accepted; other names do not matter."""
    for offset, name in enumerate(["tea", "tea", "coffee"]):
        periodic.add(offset, definition(name, offset), "")
    assert decide(periodic) == ([1], [Progress(0, NEXT, 0), Progress(2, NEXT, 0)])


def test_a_replacement_ends_the_one_before(periodic: PeriodicMessages[str]) -> None:
    """It begins after the last time of the one that it replaces, whatever the clock says."""
    periodic.add(1, definition(), "")
    decide(periodic)
    assert sent(periodic, NEXT + 3_000)[-1] == NEXT + 3_000
    periodic.add(9, definition(number=2, replaces="*"), "")
    assert decide(periodic, NOW) == ([1], [Progress(9, NEXT + 4_000, NEXT + 3_000)])
    assert [each.offset for each in periodic] == [9]


def test_both_are_accepted_where_one_replaces_the_other_at_once(periodic: PeriodicMessages[str]) -> None:
    """A definition that is replaced before it was judged was accepted, and ended then."""
    periodic.add(1, definition(), "")
    periodic.add(2, definition(number=2, replaces="*"), "")
    assert decide(periodic) == ([1], [Progress(1, NEXT, 0), Progress(2, NEXT, 0)])
    assert [each.offset for each in periodic] == [2]


def test_a_replacement_of_another_one_is_refused(periodic: PeriodicMessages[str]) -> None:
    """A program that changes a definition which another one has just changed is refused."""
    periodic.add(1, definition(), "")
    decide(periodic)
    periodic.add(2, definition(number=2, replaces="ID:1", is_paused=True), "")
    periodic.add(3, definition(number=3, replaces="ID:1"), "")
    assert decide(periodic) == ([1, 3], [Progress(2, NEVER, 0)])
    assert periodic.due(NEXT) == []


@pytest.mark.parametrize("changes", [{"cron": "often"}, {"timezone": "Mars"}])
def test_a_definition_that_cannot_be_read_is_refused(periodic: PeriodicMessages[str], changes: dict[str, str]) -> None:
    """What another program wrote wrongly ends at once, and holds nothing up."""
    periodic.add(1, definition(**changes), "")
    periodic.add(2, definition(number=2), "")
    assert decide(periodic) == ([1], [Progress(2, NEXT, 0)])


def test_of_many_missed_times_one_is_made_up(periodic: PeriodicMessages[str]) -> None:
    """After a long time without a process, one message is sent, for the last time; then the next one comes."""
    periodic.add(1, definition(cron="0 * * * *"), "")
    hour = 3_600_000
    ((_, ((_, first, _),)),) = (decide(periodic),)
    assert sent(periodic, first + 10 * hour + LATE_MS + 1) == [first + 10 * hour]
    assert periodic.next_due == first + 11 * hour


def test_times_of_the_last_minute_are_all_made_up(periodic: PeriodicMessages[str]) -> None:
    """While another process takes over, no time is lost."""
    periodic.add(1, definition(), "")
    decide(periodic)
    assert sent(periodic, NEXT + LATE_MS) == [NEXT + 1_000 * number for number in range(61)]
    assert sent(periodic, NEXT + 3 * LATE_MS) == [NEXT + 3 * LATE_MS]


def test_progress_never_goes_back(periodic: PeriodicMessages[str]) -> None:
    """What the log says again of the past, as its reader comes to it, sends nothing twice."""
    periodic.add(1, definition(), "")
    decide(periodic)
    assert sent(periodic, NEXT) == [NEXT]
    periodic.advance([Progress(1, NEXT, 0), Progress(7, NEXT, 0)])
    assert sent(periodic, NEXT) == []
    assert periodic.next_due == NEXT + 1_000


def test_a_rewritten_definition_continues(periodic: PeriodicMessages[str]) -> None:
    """A copy at the end of the log has what notes said, and needs no acceptance."""
    periodic.add(9, definition(next=NEXT, last=NEXT - 1_000), "")
    assert periodic.judge(NOW) == ([], [])
    assert sent(periodic, NEXT) == [NEXT]


def test_one_that_fails_is_postponed_alone(periodic: PeriodicMessages[str]) -> None:
    """A definition whose zone is not known here, or whose message is too large, does not stop the others."""
    periodic.add(1, definition("mars", timezone="Mars", next=NEXT), "")
    periodic.add(2, definition("tea", 2, next=NEXT), "")
    assert sent(periodic, NEXT) == [NEXT]
    assert periodic.next_due == NEXT + 1_000
    periodic.postpone(2, NEXT + 5_000)
    assert sent(periodic, NEXT + 1_000) == []
    assert sent(periodic, NEXT + 5_000) == [NEXT + 1_000 * number for number in range(1, 6)]
