"""Draw a soak as one HTML page with plots, which needs nothing else: pure but for writing the file."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.soak.faults import Fault
from tests.soak.measures import SPARE, WARM_UP, Series

WIDTH, HEIGHT = 900, 190
LEFT, RIGHT, TOP, BOTTOM = 56, 170, 12, 26
COLOURS: Final = ("#3b7dd8", "#d1603d", "#3a9a5b", "#8a5cc2", "#b8860b", "#1f9aa8", "#c2477f")
STYLE: Final = """
:root { color-scheme: light dark; --ink: #222; --dim: #888; --line: #ddd; --warm: #88888818; --bad: #c0392b; }
@media (prefers-color-scheme: dark) { :root { --ink: #ddd; --line: #444; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 960px; margin: 2em auto; padding: 0 1em; color: var(--ink); }
table { border-collapse: collapse; margin: 1em 0; }
td, th { padding: .2em .8em; border-bottom: 1px solid var(--line); text-align: right; }
td:first-child, th:first-child { text-align: left; }
svg { width: 100%; height: auto; font-size: 11px; }
svg text { fill: var(--dim); } .fault { stroke: var(--bad); stroke-opacity: .35; } .grid { stroke: var(--line); }
.warm { fill: var(--warm); } .bad { color: var(--bad); } polyline { fill: none; stroke-width: 1.5; }
"""


@dataclass(frozen=True)
class Result:
    """What came of a soak."""

    seed: int
    nodes: int
    seconds: float
    series: Sequence[Series]
    faults: Sequence[Fault]
    report: dict[str, Any]
    problems: Sequence[str]


def write(file: Path, result: Result) -> None:
    """Write the page."""
    file.write_text("\n".join(_page(result)), "utf-8")


def _page(result: Result) -> Iterator[str]:
    yield f"<!doctype html><html lang=en><meta charset=utf-8><title>kjms soak</title><style>{STYLE}</style>"
    yield f"<h1>Soak of {result.seconds / 60:.0f} minutes</h1>"
    brokers = "1 broker" if result.nodes == 1 else f"{result.nodes} brokers"
    yield f"<p>Seed {result.seed}, {brokers}, {len(result.faults)} faults, {result.report['sent']} messages.</p>"
    if result.problems:
        yield "<ul class=bad>"
        yield from (f"<li>{html.escape(problem)}</li>" for problem in result.problems)
        yield "</ul>"
    else:
        yield "<p>All promises were kept.</p>"
    yield from _table(
        ["stream", "sent", "arrived", "missing", "repeated", "outcome of the send unknown"],
        [[*figures.values()] for figures in result.report.get("figures", ())],
    )
    for what in SPARE:
        chosen = [each for each in result.series if each.what == what]
        if chosen:
            yield f"<h2>{what[0].upper()}{what[1:]}</h2>"
            yield from plot(chosen, result.faults, result.seconds)
    yield "<h2>Growth after the warm-up</h2>"
    judged = [(each, growth) for each in result.series if each.is_judged and (growth := each.growth()) is not None]
    yield from _table(
        ["series", "growth", "normal"],
        [[f"{each.of}: {each.what}", f"{growth:+.1f}", f"{SPARE[each.what]:g}"] for each, growth in judged],
    )
    yield "<h2>Faults</h2>"
    yield from _table(["fault", "times"], [[*each] for each in Counter(each.kind for each in result.faults).items()])
    yield "<h2>Errors that calls raised</h2>"
    yield from _table(["activity and error", "times"], [[*each] for each in result.report["errors"].items()])
    yield "</html>"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield f"<table><tr>{''.join(f'<th>{each}</th>' for each in head)}</tr>"
    for row in rows:
        yield f"<tr>{''.join(f'<td>{html.escape(str(each))}</td>' for each in row)}</tr>"
    yield "</table>"


def plot(chosen: Sequence[Series], faults: Sequence[Fault], seconds: float) -> Iterator[str]:
    """Return a picture of some series of one measure; a red line is a fault, and the grey part the warm-up."""
    highest = max((value for each in chosen for value in each.values), default=0) * 1.08 or 1.0
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def x(time: float) -> float:
        return round(LEFT + min(time / seconds, 1) * (right - LEFT), 1)

    def y(value: float) -> float:
        return round(bottom - value / highest * (bottom - TOP), 1)

    yield f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
    warm = x(seconds * WARM_UP) - LEFT
    yield f'<rect class=warm x="{LEFT}" y="{TOP}" width="{warm}" height="{bottom - TOP}"/>'
    for part in range(5):
        value = highest * part / 4
        yield f'<line class=grid x1="{LEFT}" x2="{right}" y1="{y(value)}" y2="{y(value)}"/>'
        yield f'<text x="{LEFT - 6}" y="{y(value) + 4}" text-anchor="end">{value:.0f}</text>'
        minutes = seconds / 60 * part / 4
        yield f'<text x="{x(seconds * part / 4)}" y="{HEIGHT - 8}" text-anchor="middle">{minutes:.0f} min</text>'
    for fault in faults:
        at = x(fault.at)
        title = f"<title>{fault.at / 60:.1f} min: {fault.kind}</title>"
        yield f'<line class=fault x1="{at}" x2="{at}" y1="{TOP}" y2="{bottom}">{title}</line>'
    for number, each in enumerate(chosen):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(f"{x(time)},{y(value)}" for time, value in zip(each.times, each.values, strict=True))
        yield f'<polyline points="{points}" stroke="{colour}"/>'
        label = f"{html.escape(each.of)}: {each.values[-1]:.0f}"
        yield f'<text x="{right + 8}" y="{TOP + 12 + 15 * number}" style="fill: {colour}">{label}</text>'
    yield "</svg>"
