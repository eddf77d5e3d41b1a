"""The page of a report of Spark's: colours, scales, units and causes. Pure text, no Spark."""

from __future__ import annotations

import doctest
import json
import os
import re
import shutil
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kjms.errors import JMSException
from kjms.spark import _scale
from kjms.spark._figures import Incident, Replies, Traffic, Waiting
from kjms.spark._page import page
from kjms.spark._report import Report
from kjms.spark._scale import DAY, HOUR, MINUTE, duration, interval_for, rate, scale

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
    for colour, name in [*pairs, *((colour, name.partition(",")[0]) for colour, name in drawn(text))]:
        found.setdefault(name, set()).add(colour)
    return {name: each for name, each in found.items() if name.startswith("queue://")}


def figures(text: str) -> list[dict[str, Any]]:
    """Return what plotly is given for each plot."""
    return [json.loads(each) for each in re.findall(r"<script type='application/json'>(.*?)</script>", text)]


def drawn(text: str) -> list[tuple[str, str]]:
    """Return colour and name of each series of all plots."""
    return [(trace["marker"]["color"], trace["name"]) for figure in figures(text) for trace in figure["data"]]


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
    (colour,) = {colour for colour, name in drawn(text) if name.startswith("redelivery")}
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
        re.findall(r"</i>([^<]+)</button>", text)
    )


def test_a_plot_has_round_lines_and_the_whole_time() -> None:
    """The axes show the report's time in UTC, and values in units that people read."""
    figure, sizes, replies = figures(page(report()))
    assert figure["layout"]["xaxis"]["range"] == ["2025-06-15 14:06:00.000000", "2025-06-15 15:06:40.000000"]
    assert figure["layout"]["yaxis"]["ticktext"] == ["0", "20", "40", "60"]
    assert sizes["layout"]["yaxis"]["ticktext"][-1] == "20 KiB"
    assert replies["layout"]["yaxis"]["ticktext"] == ["0", "30 s", "60 s", "90 s", "120 s"]
    bars = figure["data"][0]
    assert (bars["x"][0], bars["y"][0]) == ("2025-06-15 14:06:30.000000", 30)
    assert bars["hovertext"][0] == "2025-06-15 14:06:00<br>queue://q2: 30"


def test_a_name_is_text_wherever_it_stands() -> None:
    """Names and causes from messages are neither HTML nor script, in the page or in a plot."""
    name = "queue://</script><img src=x onerror=alert(1)>"
    since = UNTIL - HOUR
    found = replace(report(), traffic=(Traffic(since, name, 1, 0.1, 9, 9, 9, 0),), replies=(), waiting=())
    text = page(found)
    assert "<img" not in text.partition("<script>")[0]
    assert figures(text)[0]["data"][0]["name"] == "queue://&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;"


def test_a_report_of_nothing_needs_no_script() -> None:
    """Without a plot the page is small."""
    text = page(replace(report(), traffic=(), replies=(), waiting=()))
    assert "<script" not in text
    assert text.count("There were none.") == 4


def test_a_page_without_plotly_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra to install."""
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(JMSException, match=r"needs plotly, .* pip install 'kjms\[spark\]'"):
        page(report())


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 1280])
def test_a_browser_draws_the_page_without_a_network(tmp_path: Path, width: int) -> None:
    """Each plot is drawn within the page's width, nothing is fetched, and a legend hides what it names."""
    sync_api = pytest.importorskip("playwright.sync_api")
    browsers = ("chromium", "chromium-browser", "google-chrome", "chrome")
    found = next(filter(None, map(shutil.which, browsers)), None)
    if found is None:
        pytest.skip(f"no browser is installed: none of {', '.join(browsers)} is found")
    file = tmp_path / "report.html"
    file.write_text(report(destinations=8).to_html(), "utf-8")
    problems: list[str] = []
    asked: list[str] = []
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        shown = browser.new_page(viewport={"width": width, "height": 800})
        shown.on("pageerror", lambda error: problems.append(str(error)))
        shown.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
        shown.on("request", lambda request: asked.append(request.url))
        shown.goto(file.as_uri())
        bars = shown.locator(".plot >> nth=0").locator(".barlayer .trace")
        sync_api.expect(bars).to_have_count(7, timeout=60_000)
        assert shown.locator(".plot >> nth=0").locator(".xtick text").count() >= 2
        assert shown.locator(".plot:has(.main-svg)").count() == 3
        assert shown.evaluate("document.documentElement.scrollWidth") == width
        fill = bars.first.locator(".point path").first.evaluate("bar => getComputedStyle(bar).fill")
        assert fill == "rgb(42, 111, 187)"
        shown.locator(".legend button").first.click()
        sync_api.expect(bars).to_have_count(6)
        browser.close()
    assert (problems, asked) == ([], [file.as_uri()])


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
