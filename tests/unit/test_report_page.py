"""The page of a report of Spark's: colours, scales, units and causes. Pure text, no Spark."""

from __future__ import annotations

import doctest
import re
from itertools import pairwise

import pytest

from kjms.spark import _scale
from kjms.spark._figures import Incident, Replies, Traffic, Waiting
from kjms.spark._page import page
from kjms.spark._report import Report
from kjms.spark._scale import DAY, HOUR, MINUTE, duration, interval_for, rate, scale, times

UNTIL = 1_750_000_000_000


def report(span: int = HOUR, destinations: int = 3, **more: object) -> Report:
    """Return a report in which the destination with the most messages has the fewest bytes."""
    step = interval_for(span)
    since = UNTIL - span - (UNTIL - span) % step
    names = [f"queue://q{number}" for number in range(destinations)]
    traffic = [
        Traffic(begin, name, 10 * (number + 1), 0.1, 10_000 // (number + 1), 100, 900, 0)
        for begin in range(since, UNTIL, step)
        for number, name in enumerate(names)
    ]
    parts: dict[str, object] = {
        "replies": (Replies(since, names[0], 3, 20_000, 100_000, 120_000),),
        "incidents": (),
        "waiting": tuple(Waiting(name, 3, 0, 5_000) for name in names),
    }
    return Report(since, UNTIL, step, tuple(traffic), **{**parts, **more})  # type: ignore[arg-type]


def colours(text: str) -> dict[str, set[str]]:
    """Return the colours of each destination in legends, tables and plots."""
    found: dict[str, set[str]] = {}
    pairs = re.findall(r"<i style='background:(var\(--\w+\))'></i>(queue://q\d+)", text)
    pairs += re.findall(r"fill='(var\(--\w+\))'><title>[^<]*\n(queue://q\d+)", text)
    for colour, name in pairs:
        found.setdefault(name, set()).add(colour)
    return found


def test_a_destination_has_one_colour_on_the_whole_page() -> None:
    """Plots, legends and tables show a destination in one colour, and no two destinations share one."""
    found = colours(page(report()))
    assert sorted(found) == ["queue://q0", "queue://q1", "queue://q2"]
    assert all(len(each) == 1 for each in found.values())
    assert len(set.union(*found.values())) == 3


def test_what_befalls_messages_has_other_colours_than_destinations() -> None:
    """A cause is not drawn in the colour of a destination."""
    incidents = (Incident(UNTIL - HOUR, "redelivery", "queue://q0", "the listener raised KeyError", 2, 5),)
    text = page(report(incidents=incidents))
    (colour,) = set(re.findall(r"fill='(var\(--\w+\))'><title>[^<]*\nredelivery", text))
    assert colour not in set.union(*colours(text).values())


def test_more_destinations_than_colours_are_others_in_every_plot() -> None:
    """The same destinations are summed up in each plot; replies of one of them are shown all the same."""
    text = page(report(destinations=9))
    legends = re.findall(r"<div class='legend'>(.*?)</div>", text)
    assert [re.findall(r"(queue://q\d|others)", legend) for legend in legends[:2]] == [
        ["queue://q8", "queue://q7", "queue://q6", "queue://q5", "queue://q4", "queue://q3", "others"]
    ] * 2
    assert "queue://q0, median" in text


@pytest.mark.parametrize("nothing", ["-", "", " "])
def test_no_cause_is_empty(nothing: str) -> None:
    """An event without a recorded cause says so; a message that expired has a cause of its own."""
    incidents = tuple(Incident(UNTIL - HOUR, event, "queue://q0", nothing, 2, 5) for event in ("redelivery", "expired"))
    text = page(report(incidents=incidents))
    cells = re.findall(r"<tr><td>(?:redelivery|expired)</td><td>[^<]*</td><td>([^<]*)</td>", text)
    assert sorted(cells) == ["cause not recorded", "time to live is over"]
    assert {"redelivery: cause not recorded", "expired: time to live is over"} <= set(
        re.findall(r"</i>([^<]+)</span>", text)
    )


@pytest.mark.parametrize(
    "top", [1, 2, 3, 7, 11, 99, 1_000, 1_024, 5_000, 70_000, 999_999, 3 << 20, 5 << 30, 86_400_000, 10**12]
)
@pytest.mark.parametrize("kind", ["count", "size", "duration"])
def test_a_scale_is_round_in_one_unit(top: float, kind: _scale.Kind) -> None:
    """A scale has 1 to 7 equal steps up to the top, each of at most five characters in one unit."""
    values, texts = scale(top, kind)
    assert values[-1] >= top > values[-2]
    assert 2 <= len(values) <= 8
    assert max(b - a for a, b in pairwise(values)) == pytest.approx(min(b - a for a, b in pairwise(values)))
    assert texts[0] == "0"
    assert len(set(texts)) == len(texts)
    assert len({text.partition(" ")[2] for text in texts[1:]}) == 1
    if kind != "count":
        assert all(len(text.partition(" ")[0].replace(",", "")) <= 6 for text in texts)
    else:
        assert not any("." in text for text in texts), "there is no half a message"


@pytest.mark.parametrize("span", [60_000, 600_000, HOUR, 6 * HOUR, DAY, 2 * DAY, 7 * DAY, 30 * DAY, 365 * DAY])
def test_times_are_round_moments(span: int) -> None:
    """The marks of the time stand at round moments, two at least and nine at most."""
    marks = times(UNTIL - span, UNTIL)
    assert 2 <= len(marks) <= 9
    steps = {b - a for (a, _), (b, _) in pairwise(marks)}
    assert len(steps) == 1
    assert all(mark % steps.copy().pop() == 0 for mark, _ in marks)
    if span <= DAY:
        assert all(text.endswith(":00") or text.count(":") == 1 for _, text in marks if span > 600_000)


def test_intervals_are_those_that_people_name() -> None:
    """Without an interval, a report has intervals of 1, 5 or 15 minutes, an hour or a day."""
    spans = [MINUTE * number for number in (1, 10, 60, 200, 300, 1_000, 1_440, 10_080, 43_200, 500_000)]
    assert {interval_for(span) for span in spans} == {MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, DAY}
    assert duration(interval_for(DAY)) == "15 min"


def test_rates_have_a_unit_that_fits() -> None:
    """No rate is shown as a small fraction."""
    assert [rate(10 / 86_400), rate(1 / 3_600), rate(0.5), rate(3), rate(12_345)] == [
        "10/d", "1/h", "30/min", "3/s", "12,345/s",
    ]  # fmt: skip
    assert "0.1/s" not in page(report())


def test_the_texts_are_as_documented() -> None:
    """The examples of the module are true."""
    assert doctest.testmod(_scale).failed == 0
