"""The picture of docs/performance.md: how far each figure is from its aim, as SVG for light and dark pages. Pure.

One line for each aim. Its dot stands at measured / aim, turned so that right is better, on a logarithmic axis; the thin
line through it goes from the worst round to the best. Fonts are the reader's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from kjms.bench._report import Report
from kjms.bench._statistics import Result, Verdict

__all__ = ["plot"]

WIDTH: Final = 1020
LEFT: Final = 500  # where the axis begins, right of the titles
RIGHT: Final = 860  # where it ends, left of the figures
LINE: Final = 22  # from one row to the next
HEAD: Final = 46
LEAST, MOST = 1 / 16, 16.0  # what the axis shows; what lies beyond stands at its end
TICKS: Final = {1 / 16: "1/16", 1 / 4: "1/4", 1.0: "aim", 4.0: "4x", 16.0: "16x"}
HEADINGS: Final = {"main": "beside the Kafka client", "growth": "as it grows", "rivals": "beside JMS brokers' clients"}
STYLE: Final = """
text { font: 13px system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; fill: #1f2328; }
.heading { font-weight: 600; }
.faint { fill: #59636e; font-size: 12px; }
.grid { stroke: #d1d9e0; }
.aim { stroke: #59636e; }
.met { fill: #0969da; stroke: #0969da; }
.short { fill: #bc4c00; stroke: #bc4c00; }
.reach { stroke-width: 5; stroke-opacity: .35; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; }
  .faint { fill: #9198a1; }
  .grid { stroke: #3d444d; }
  .aim { stroke: #9198a1; }
  .met { fill: #4493f8; stroke: #4493f8; }
  .short { fill: #db6d28; stroke: #db6d28; }
}
"""


@dataclass(frozen=True)
class Row:
    """An aim: what its line says, and where its dot and the ends of its thin line stand, as multiples of the aim."""

    title: str
    told: str
    is_met: bool
    reached: float
    worst: float
    best: float


def plot(reports: Sequence[Report]) -> str:
    """Return the picture of all aims that there are figures for."""
    lines: list[str] = []
    y = HEAD
    for report in reports:
        for name in report.sets:
            rows = [row for result in report.of(name).results for row in _rows(result)]
            if rows:
                lines.append(f'<text class="heading" x="8" y="{y + 14}">{escape(HEADINGS.get(name, name))}</text>')
                y += LINE + 4
            for row in rows:
                lines += _drawn(row, y)
                y += LINE
            y += 8 if rows else 0
    ticks = [
        f'<line class="{"aim" if at == 1 else "grid"}" x1="{_x(at):.1f}" x2="{_x(at):.1f}" y1="{HEAD - 14}" y2="{y}"/>'
        f'<text class="faint" x="{_x(at):.1f}" y="{HEAD - 22}" text-anchor="middle">{text}</text>'
        for at, text in TICKS.items()
    ]
    legend = (
        f'<circle class="met" cx="14" cy="{HEAD - 26}" r="4"/><text class="faint" x="24" y="{HEAD - 22}">met</text>'
        f'<circle class="short" cx="64" cy="{HEAD - 26}" r="4"/>'
        f'<text class="faint" x="74" y="{HEAD - 22}">not met; right is better</text>'
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 8}" role="img">',
            "<title>How far each figure is from its aim</title>",
            f"<style>{STYLE}</style>",
            *ticks,
            legend,
            *lines,
            "</svg>",
        ]
    )


def _rows(result: Result) -> Iterator[Row]:
    for verdict in result.verdicts():
        aim, measured = verdict.text.removeprefix("aim ").split(": ")
        sign = 1 if result.unit.is_more_better else -1
        ends = sorted((each / verdict.aim.bound) ** sign for each in _spread(result, verdict))
        reached = (verdict.measured / verdict.aim.bound) ** sign if verdict.measured else 0.0
        told = f"{measured}, aim {aim.split()[0]}"
        yield Row(result.title, told, verdict.is_met, reached, ends[0], ends[-1])


def _spread(result: Result, verdict: Verdict) -> list[float]:
    """Return the figures of single rounds that *verdict* is made of, its least and its largest; none is 0."""
    if verdict.aim.is_ratio:
        (counting,) = [each for each in result.comparisons() if each.is_baseline]
        return [counting.lowest, counting.highest]
    side = min(result.sides, key=lambda side: abs(side.median - verdict.measured))
    return [max(each, verdict.aim.bound * LEAST / 2) for each in side.figures]


def _drawn(row: Row, y: int) -> list[str]:
    middle, kind = y + 9.5, "met" if row.is_met else "short"
    at = _x(row.reached)
    return [
        f'<text x="20" y="{y + 14}">{escape(row.title)}</text>',
        f'<line class="{kind} reach" x1="{_x(1):.1f}" x2="{at:.1f}" y1="{middle}" y2="{middle}"/>',
        f'<line class="{kind}" x1="{_x(row.worst):.1f}" x2="{_x(row.best):.1f}" y1="{middle}" y2="{middle}"/>',
        f'<circle class="{kind}" cx="{at:.1f}" cy="{middle}" r="4.5"/>',
        f'<text class="faint" x="{RIGHT + 16}" y="{y + 14}">{escape(row.told)}</text>',
    ]


def _x(multiple: float) -> float:
    """Return where *multiple* of the aim stands."""
    share = math.log(min(max(multiple, LEAST), MOST) / LEAST) / math.log(MOST / LEAST)
    return LEFT + share * (RIGHT - LEFT)
