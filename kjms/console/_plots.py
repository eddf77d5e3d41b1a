"""Draw figures of the last hour as SVG, without a script, in the colours of the page. Pure."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from markupsafe import Markup, escape

from kjms.console._format import compact, duration

__all__ = ["Line", "plot", "sparkline"]

SPAN: Final = 3_600.0
WIDTH, HEIGHT = 400, 132
LEFT, BOTTOM, TOP, RIGHT = 44, 18, 8, 6
GAP: Final = 60.0
SPARK_WIDTH, SPARK_HEIGHT = 96, 20
STEPS: Final = (1, 2, 5, 10)

Points = Sequence[tuple[float, float]]


class Line(NamedTuple):
    """A line of a plot."""

    label: str
    points: Points


def plot(title: str, lines: Sequence[Line], now: float, unit: str = "", gap: float = GAP) -> Markup:
    """Return a plot of the last hour.

    Args:
        title: What it shows.
        lines: At most three.
        now: The time, in seconds since the epoch.
        unit: ``s`` for durations; otherwise it follows the last values.
        gap: Seconds without a value that interrupt a line.
    """
    show = duration if unit == "s" else compact
    top = max([value for line in lines for _, value in line.points], default=0.0)
    ticks = _ticks(top)
    highest = ticks[-1]

    def x(moment: float) -> float:
        return LEFT + (moment - (now - SPAN)) / SPAN * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return TOP + (1 - value / highest) * (HEIGHT - TOP - BOTTOM)

    latest = [f"{line.label} {show(line.points[-1][1])}{'' if unit == 's' else unit}" for line in lines if line.points]
    parts = [f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>{escape(title)}: ']
    parts.append(f"{escape(', '.join(latest) or 'no figures yet')}</title>")
    for tick in ticks:
        at = y(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 5}" y="{at + 3.5:.1f}" text-anchor="end">{show(tick)}</text>')
    for minutes in (60, 30, 0):
        moment = now - minutes * 60
        anchor = {60: "start", 0: "end"}.get(minutes, "middle")
        label = time.strftime("%H:%M", time.gmtime(moment))
        parts.append(f'<text class="tick" x="{x(moment):.1f}" y="{HEIGHT - 4}" text-anchor="{anchor}">{label}</text>')
    for number, line in enumerate(lines, 1):
        parts += [f'<path class="line l{number}" d="{path}"/>' for path in _paths(line.points, x, y, gap)]
    parts.append("</svg>")
    return Markup("".join(parts))  # noqa: S704 - all text in it is escaped above, or made of numbers


def sparkline(points: Points, now: float, gap: float = GAP) -> Markup:
    """Return a line of the last hour, as small as a word; empty if there is nothing to show."""
    highest = max([value for _, value in points], default=0.0) or 1.0

    def x(moment: float) -> float:
        return (moment - (now - SPAN)) / SPAN * SPARK_WIDTH

    def y(value: float) -> float:
        return 1.5 + (1 - value / highest) * (SPARK_HEIGHT - 3)

    paths = "".join(f'<path class="line l1" d="{path}"/>' for path in _paths(points, x, y, gap))
    return Markup(  # noqa: S704 - numbers alone
        f'<svg class="spark" viewBox="0 0 {SPARK_WIDTH} {SPARK_HEIGHT}" aria-hidden="true">{paths}</svg>'
    )


def _paths(points: Points, x: object, y: object, gap: float) -> list[str]:
    """Return the paths of a line, a new one after each gap."""
    assert callable(x)
    assert callable(y)
    paths: list[list[str]] = []
    last = -math.inf
    for moment, value in points:
        if moment - last > gap:
            paths.append([])
        paths[-1].append(f"{x(moment):.1f},{y(value):.1f}")
        last = moment
    return [f"M{' '.join(path)}" + ("" if len(path) > 1 else f" h{1}") for path in paths]


def _ticks(top: float) -> list[float]:
    """Return three or four round values from 0 to at least *top*.

    >>> _ticks(7), _ticks(0), _ticks(1234)
    ([0.0, 5.0, 10.0], [0.0, 1.0], [0.0, 500.0, 1000.0, 1500.0])
    """
    if top <= 0:
        return [0.0, 1.0]
    size = 10 ** math.floor(math.log10(top / 3))
    step = next(each * size for each in STEPS if each * size * 3 >= top)
    return [step * number for number in range(math.ceil(top / step) + 1)]
