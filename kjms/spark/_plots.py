"""The plots of a report, drawn by plotly.js in the reader's browser from figures that plotly checks here. No I/O.

The library is part of the page: nothing is fetched when the page is read. Colours are CSS variables of the page, which
its script resolves, so that a plot follows the browser's light or dark mode.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kjms.errors import JMSException
from kjms.spark._figures import Figures
from kjms.spark._scale import Kind, count, duration, moment, scale, size

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["Series", "library", "mark", "plot"]

TEXTS: Final[Mapping[Kind, Callable[[float], str]]] = {"count": count, "size": size, "duration": duration}
SHARE: Final = 0.9  # of its interval that a bar fills
INK: Final = "var(--ink)"
SOFT: Final = "var(--soft)"
LINE: Final = "var(--line)"

SCRIPT: Final = """
const resolved = value => typeof value === 'string'
  ? value.replace(/^var[(](--\\w+)[)]$/, (_, name) => getComputedStyle(document.body).getPropertyValue(name).trim())
  : Array.isArray(value) ? value.map(resolved)
  : value && typeof value === 'object'
    ? Object.fromEntries(Object.entries(value).map(([name, held]) => [name, resolved(held)])) : value;
const isCoarse = matchMedia('(pointer: coarse)').matches;
const draw = () => document.querySelectorAll('.plot').forEach(place => {
  const {data, layout} = resolved(JSON.parse(place.previousElementSibling.textContent));
  layout.dragmode = isCoarse ? false : 'zoom';
  Plotly.react(place, data, layout, {displayModeBar: false, responsive: true});
  const keys = place.nextElementSibling.querySelectorAll('button');
  keys.forEach((key, number) => {
    key.setAttribute('aria-pressed', 'true');
    key.onclick = () => {
      const isShown = key.getAttribute('aria-pressed') !== 'true';
      key.setAttribute('aria-pressed', String(isShown));
      Plotly.restyle(place, {visible: isShown ? true : 'legendonly'}, [number]);
    };
  });
});
draw();
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
"""
"""Draws the plots, again in other colours when the mode changes; a click on an entry of a legend hides its series."""


class Series(NamedTuple):
    """What is drawn in one colour: a value by the beginning of its interval."""

    name: str
    colour: str
    points: dict[int, float]
    is_dashed: bool = False


def library() -> str:
    """Return the scripts that draw the plots of a page: plotly.js, and what calls it.

    Raises:
        JMSException: plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise JMSException(
            "the page of a report needs plotly, which is not installed: pip install 'kjms[spark]'"
        ) from None
    return f"<script>{get_plotlyjs()}</script>\n<script>{SCRIPT}</script>"


def plot(
    report: Figures, title: str, told: str, shown: Sequence[Series], kind: Kind, *, is_stacked: bool = True
) -> str:
    """Return a plot of *shown*, stacked bars or lines, with its heading and its legend."""
    if not shown:
        return f"<h2>{title}</h2><p>There were none.</p>"
    figure = _figure(report, shown, kind, is_stacked=is_stacked).to_json().replace("<", "\\u003c")
    data = f"<script type='application/json'>{figure}</script>"
    place = f"<div class='plot' role='img' aria-label='{escape(f'{title}, {told}')}'></div>"
    keys = "".join(
        f"<button>{mark(series.colour, is_dashed=series.is_dashed)}{escape(series.name)}</button>" for series in shown
    )
    return f"<h2>{title}</h2><p>{told}</p>{data}{place}<div class='legend'>{keys}</div>"


def mark(colour: str, *, is_dashed: bool = False) -> str:
    """Return a small field of *colour*, for legends and tables."""
    if is_dashed:
        return f"<i style='background:repeating-linear-gradient(90deg,{colour} 0 3px,transparent 3px 5px)'></i>"
    return f"<i style='background:{colour}'></i>"


def _figure(report: Figures, shown: Sequence[Series], kind: Kind, *, is_stacked: bool) -> Figure:
    try:
        from plotly import graph_objects
    except ImportError:
        library()  # says what is missing
        raise
    heights: dict[int, float] = defaultdict(float)
    for series in shown:
        for begin, value in series.points.items():
            heights[begin] = heights[begin] + value if is_stacked else max(heights[begin], value)
    chosen = scale(max(heights.values(), default=0), kind)
    return graph_objects.Figure(
        [_bars(report, series, kind) if is_stacked else _line(report, series, kind) for series in shown],
        {
            "barmode": "stack",
            "showlegend": False,
            "margin": {"l": 8, "r": 8, "t": 10, "b": 8},
            "font": {"family": "system-ui, sans-serif", "size": 12, "color": SOFT},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "hoverlabel": {"bgcolor": "var(--card)", "bordercolor": LINE, "font": {"color": INK}, "align": "left"},
            "xaxis": {
                "type": "date", "range": [_iso(report.since), _iso(report.until)], "automargin": True,
                "showgrid": False, "linecolor": LINE, "ticks": "outside", "tickcolor": LINE,
            },
            "yaxis": {
                "range": [0, chosen.values[-1] * 1.01], "tickvals": chosen.values, "ticktext": chosen.texts,
                "automargin": True, "fixedrange": True, "gridcolor": LINE, "zeroline": False,
            },
        },
    )  # fmt: skip


def _bars(report: Figures, series: Series, kind: Kind) -> Any:
    from plotly import graph_objects

    points = sorted(series.points.items())
    ends = [min(begin + report.interval, report.until) for begin, _ in points]
    return graph_objects.Bar(
        x=[_iso((begin + end) / 2) for (begin, _), end in zip(points, ends, strict=True)],
        y=[value for _, value in points],
        width=[(end - begin) * SHARE for (begin, _), end in zip(points, ends, strict=True)],
        marker={"color": series.colour, "line": {"width": 0}},
        **_told(series, points, kind),
    )


def _line(report: Figures, series: Series, kind: Kind) -> Any:
    from plotly import graph_objects

    points = sorted(series.points.items())
    return graph_objects.Scatter(
        x=[_iso(min(begin + report.interval / 2, report.until)) for begin, _ in points],
        y=[value for _, value in points],
        mode="lines+markers",
        line={"color": series.colour, "width": 2, "dash": "dash" if series.is_dashed else "solid"},
        marker={"color": series.colour, "size": 5 if series.is_dashed else 7},
        cliponaxis=False,
        **_told(series, points, kind),
    )


def _told(series: Series, points: Sequence[tuple[int, float]], kind: Kind) -> dict[str, Any]:
    """Return what is said where the mouse is; plotly reads the text as a subset of HTML."""
    name = escape(series.name, quote=False)
    return {
        "name": name,
        "hovertext": [f"{moment(begin)}<br>{name}: {TEXTS[kind](value)}" for begin, value in points],
        "hoverinfo": "text",
    }


def _iso(milliseconds: float) -> str:
    return moment(round(milliseconds), "%Y-%m-%d %H:%M:%S.%f")
