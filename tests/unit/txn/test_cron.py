"""The times of cron expressions: time zones, clocks that are set forward and back, and what is refused."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from kjms.txn.cron import NEVER, Cron


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def times(cron: Cron, after: str, count: int) -> list[int]:
    found, time = [], ms(after)
    for _ in range(count):
        time = cron.after(time)
        found.append(time)
    return found


BERLIN = "Europe/Berlin"
TIMES = [  # expression, zone, after, the next times
    ("0 6 * * *", "UTC", "2026-01-01T05:59:59+00:00", ["2026-01-01T06:00+00:00", "2026-01-02T06:00+00:00"]),
    ("0 6 * * *", "UTC", "2026-01-01T06:00:00+00:00", ["2026-01-02T06:00+00:00"]),
    ("0 6 * * *", BERLIN, "2026-07-01T00:00:00+00:00", ["2026-07-01T04:00+00:00"]),
    ("0 6 * * *", "Asia/Kathmandu", "2026-01-01T00:00:00+00:00", ["2026-01-01T00:15+00:00"]),
    ("*/20 * * * * *", "UTC", "2026-01-01T00:00:01+00:00", ["2026-01-01T00:00:20+00:00", "2026-01-01T00:00:40+00:00"]),
    ("30 0 * * * *", "UTC", "2026-01-01T12:00:10+00:00", ["2026-01-01T12:00:30+00:00", "2026-01-01T13:00:30+00:00"]),
    ("30 0 * * * *", "UTC", "2026-01-01T12:00:30+00:00", ["2026-01-01T13:00:30+00:00"]),
    ("5 0 0 1 JAN *", "UTC", "2026-01-01T00:00:05+00:00", ["2027-01-01T00:00:05+00:00"]),
    ("0 0 29 2 *", "UTC", "2026-01-01T00:00:00+00:00", ["2028-02-29T00:00+00:00"]),
    # In the gap of spring, 02:30 does not exist: it comes at the end of the gap, once.
    ("30 2 * * *", BERLIN, "2026-03-28T12:00+01:00", ["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"]),
    ("0 30 2 * * *", BERLIN, "2026-03-28T12:00+01:00", ["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"]),
    ("0,30 2 * * *", BERLIN, "2026-03-28T12:00+01:00", ["2026-03-29T03:00+02:00", "2026-03-30T02:00+02:00"]),
    # In the fold of autumn, 02:30 comes twice: it is the first that counts.
    ("30 2 * * *", BERLIN, "2026-10-24T12:00+02:00", ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"]),
    ("15 30 2 * * *", BERLIN, "2026-10-24T12:00+02:00", ["2026-10-25T02:30:15+02:00", "2026-10-26T02:30:15+01:00"]),
    ("30 2 * * *", BERLIN, "2026-10-25T02:10+01:00", ["2026-10-26T02:30+01:00"]),
    # What repeats within the hour keeps its distance.
    (
        "*/30 * * * *",
        BERLIN,
        "2026-10-25T01:45+02:00",
        ["2026-10-25T00:00+00:00", "2026-10-25T00:30+00:00", "2026-10-25T01:00+00:00", "2026-10-25T01:30+00:00"],
    ),
    ("*/30 * * * *", BERLIN, "2026-03-29T01:15+01:00", ["2026-03-29T00:30+00:00", "2026-03-29T01:00+00:00"]),
]


@pytest.mark.parametrize(("expression", "zone", "after", "expected"), TIMES)
def test_times_are_those_of_the_expression(expression: str, zone: str, after: str, expected: list[str]) -> None:
    """The times follow the expression in its zone, also where the clocks change."""
    assert times(Cron(expression, zone), after, len(expected)) == [ms(each) for each in expected]


@pytest.mark.parametrize(
    "expression", ["30 2 * * *", "0,30 2 * * *", "*/15 * * * *", "*/10 30 2 * * *", "59 1,2,3 * * *"]
)
@pytest.mark.parametrize("day", ["2026-03-29T00:00+01:00", "2026-10-25T00:00+02:00"])
def test_times_only_rise(expression: str, day: str) -> None:
    """Whichever moment of a day on which the clocks change is asked for, the next time is after it."""
    cron = Cron(expression, BERLIN)
    for minute in range(0, 6 * 60, 5):
        asked = ms(day) + minute * 60_000
        assert cron.after(asked) > asked


def test_an_expression_may_have_no_further_time() -> None:
    """Beyond the end of the calendar there is no time."""
    assert Cron("0 0 1 1 *").after(NEVER) == NEVER


@pytest.mark.parametrize(
    ("first", "until", "expected"),
    [
        ("2026-01-01T00:00+00:00", "2026-01-01T00:00+00:00", "2026-01-01T00:00+00:00"),
        ("2026-01-01T00:00+00:00", "2026-01-01T00:59+00:00", "2026-01-01T00:00+00:00"),
        ("2026-01-01T00:00+00:00", "2026-01-01T01:00+00:00", "2026-01-01T01:00+00:00"),
        ("2020-01-01T00:00+00:00", "2026-01-01T01:30+00:00", "2026-01-01T01:00+00:00"),
    ],
)
def test_the_latest_time_is_found(first: str, until: str, expected: str) -> None:
    """Of all times up to a moment, the last one is found without a walk through the others."""
    assert Cron("0 * * * *").latest(ms(first), ms(until)) == ms(expected)


@pytest.mark.parametrize("expression", ["*/7 * * * *", "15 */2 3 * * *", "0 3 * * MON", "30 2 * * *"])
def test_the_latest_time_is_the_last_of_all(expression: str) -> None:
    """From whichever of the times on, and up to whichever moment: between two times, at one, and just before it."""
    cron = Cron(expression, BERLIN)
    every = times(cron, "2026-10-20T00:00+02:00", 60)
    for first in (0, 30):
        for last in range(first, 59, 7):
            for until in (every[last], every[last] + 1, every[last + 1] - 1):
                assert cron.latest(every[first], until) == every[last]


def test_an_expression_has_a_thousand_characters_at_most() -> None:
    """A longer one is refused though its fields are valid."""
    longest = "0 * * * *".rjust(1_000)
    assert Cron(longest).after(0) == 3_600_000
    with pytest.raises(ValueError, match="five fields"):
        Cron(longest + " ")


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("61 * * * *", "'61 * * * *': bad minute"),
        ("60 0 0 * * *", "five fields"),
        ("x 0 0 * * *", "bad second"),
        ("* * * *", "five fields"),
        ("* * * * * * *", "five fields"),
        ("", "five fields"),
        ("0 0 31 2 *", "bad day-of-month"),
        ("* * * * MOO", "bad day-of-week"),
        ("* " * 1_000, "five fields"),
        (7, "cron: 7 (int) is no text"),
        (None, "no text"),
    ],
)
def test_a_bad_expression_is_refused(expression: Any, why: str) -> None:
    """The error has the value, what is wrong, and the rule."""
    with pytest.raises(ValueError, match="minute, hour, day of month") as raised:
        Cron(expression)
    assert why in str(raised.value)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../UTC", "/etc/passwd", "Europe", None])
def test_an_unknown_zone_is_refused(zone: str) -> None:
    """The error has the name, and says where names come from."""
    with pytest.raises(ValueError, match=r"time zone .* is not known; names are those of the IANA database"):
        Cron("* * * * *", zone)
