"""A report as one HTML page that needs nothing else: plots are inline SVG, there is no script. Pure text.

Times are UTC. Of more series than there are colours, the smaller ones are summed up as others.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from html import escape
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kjms.spark._report import Report

__all__ = ["count", "duration", "moment", "page", "size", "totals"]

WIDTH: Final = 920
HEIGHT: Final = 220
LEFT: Final = 64
BOTTOM: Final = 24
TOP: Final = 10
SERIES: Final = 6
OTHERS: Final = "others"
STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --line: #d9dee5; --card: #f5f7f9; --page: #fff;
  --c0: #2a6fbb; --c1: #d9822b; --c2: #2f9e77; --c3: #b8478f; --c4: #7a6ac8; --c5: #8a7a2e; --c6: #9aa3ae; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #9aa6b5; --line: #38424f; --card: #1b222b;
  --page: #12171d; --c0: #62a3e8; --c1: #f0a558; --c2: #57c79d; --c3: #e07fb9; --c4: #a99bf0; --c5: #c7b75c; } }
body { margin: 0 auto; max-width: 960px; padding: 24px 20px 48px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 32px 0 4px; }
p { margin: 0 0 8px; color: var(--soft); } .legend + p { margin-top: 14px; }
.cards { display: flex; flex-wrap: wrap; gap: 12px; margin-top: 16px; }
.card { background: var(--card); border-radius: 8px; padding: 10px 16px; min-width: 110px; }
.card b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; } .card span { color: var(--soft); }
.wide { overflow-x: auto; } svg { display: block; width: 100%; height: auto; min-width: 560px; }
svg text { fill: var(--soft); font-size: 11px; } svg line { stroke: var(--line); }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 4px 0 0; color: var(--soft); font-size: 13px; }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 6px; }
table { border-collapse: collapse; width: 100%; margin-top: 6px; } td, th { padding: 4px 14px 4px 0; text-align: left;
  border-bottom: 1px solid var(--line); vertical-align: top; } th { color: var(--soft); font-weight: 500; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
"""

Points = Mapping[str, Mapping[int, float]]
"""The value of each series by the beginning of the interval."""


def page(report: Report) -> str:
    """Return *report* as a page."""
    since, until = moment(report.since), moment(report.until)
    found = {each.destination for each in report.traffic} | {each.destination for each in report.waiting}
    names = ", ".join(sorted(found)) or "no destination"
    parts = [
        f"<h1>Messages of {escape(names)}</h1>",
        f"<p>{since} to {until} UTC, in intervals of {duration(report.interval)}</p>",
        _cards(report),
        _plot(
            report, "Messages", "per interval, by destination", _by(report.traffic, "destination", "messages"), count
        ),
        _plot(
            report, "Bytes of bodies", "per interval, by destination", _by(report.traffic, "destination", "bytes"), size
        ),
        _sizes(report),
        _replies(report),
        _befallen(report),
        _waiting(report),
    ]
    head = f"<meta charset='utf-8'><meta name='viewport' content='width=device-width'><title>{escape(names)}</title>"
    body = "\n".join(filter(None, parts))
    return (
        f"<!doctype html>\n<html lang='en'><head>{head}<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


class Total(NamedTuple):
    """What came to a destination in the whole time."""

    destination: str
    messages: int
    per_second: float
    peak_per_second: float
    bytes: int
    largest_size: int
    damaged: int


def totals(report: Report) -> list[Total]:
    """Return the sums of *report* by destination."""
    grouped = defaultdict(list)
    for each in report.traffic:
        grouped[each.destination].append(each)
    seconds = (report.until - report.since) / 1000
    return [
        Total(
            name,
            sum(each.messages for each in rows),
            sum(each.messages for each in rows) / seconds,
            max(each.per_second for each in rows),
            sum(each.bytes for each in rows),
            max(each.largest_size for each in rows),
            sum(each.damaged for each in rows),
        )
        for name, rows in sorted(grouped.items())
    ]


# Texts.


def count(value: float) -> str:
    """Return a number as people read it.

    >>> count(1234567), count(0.25)
    ('1,234,567', '0.25')
    """
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:,.3g}"


def size(value: float) -> str:
    """Return bytes in their unit.

    >>> size(900), size(1536), size(3 << 30)
    ('900 B', '1.5 KiB', '3 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.1f}".rstrip("0").rstrip(".") + f" {unit}"
        value /= 1024
    raise AssertionError


def duration(milliseconds: float) -> str:
    """Return a time in a unit that fits.

    >>> duration(250), duration(90_000), duration(3 * 86_400_000)
    ('250 ms', '1.5 min', '3 d')
    """
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if milliseconds >= length:
            return f"{milliseconds / length:.1f}".removesuffix(".0") + f" {unit}"
    return f"{milliseconds:.0f} ms"


def moment(milliseconds: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return a point in time as people read it.

    >>> moment(1_750_000_000_000)
    '2025-06-15 15:06:40'
    """
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc).strftime(form)


# Sections.


def _cards(report: Report) -> str:
    befallen: dict[str, int] = defaultdict(int)
    for each in report.befallen:
        befallen[each.event] += each.messages
    waiting = sum(each.messages for each in report.waiting)
    cards = [
        (count(sum(each.messages for each in report.traffic)), "messages"),
        (size(sum(each.bytes for each in report.traffic)), "of bodies"),
        (count(waiting), "waiting now"),
        (count(befallen["redelivery"]), "redeliveries"),
        (count(befallen["dead letter"]), "dead letters"),
        (count(befallen["expired"]), "expired"),
    ]
    shown = "".join(f"<div class='card'><b>{value}</b><span>{name}</span></div>" for value, name in cards)
    return f"<div class='cards'>{shown}</div>"


def _by(rows: Iterable[object], name: str, value: str) -> Points:
    found: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for row in rows:
        found[str(getattr(row, name))][row.begin] += getattr(row, value)  # type: ignore[attr-defined]
    return found


def _sizes(report: Report) -> str:
    if not report.traffic:
        return ""
    rows = [
        (
            each.destination,
            count(each.messages),
            count(each.per_second),
            count(each.peak_per_second),
            size(each.bytes),
            size(each.bytes / each.messages),
            size(each.largest_size),
            count(each.damaged),
        )
        for each in totals(report)
    ]
    head = ("destination", "messages", "per second", "at most", "bytes", "on average", "largest", "damaged")
    return _table("Rates and sizes", "Over the whole time; the most per second in one interval.", head, rows)


def _replies(report: Report) -> str:
    points: dict[str, dict[int, float]] = defaultdict(dict)
    for each in report.replies:
        points[f"{each.destination}, median"][each.begin] = each.median
        points[f"{each.destination}, 95 %"][each.begin] = each.p95
    told = "from a request to its reply, by when the reply came"
    return _plot(report, "Replies", told, points, duration, is_stacked=False)


def _befallen(report: Report) -> str:
    causes: dict[tuple[str, str, str], list[tuple[int, int | None]]] = defaultdict(list)
    points: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for each in report.befallen:
        causes[each.event, each.destination, each.cause].append((each.messages, each.median_age))
        name = each.event if each.cause == "-" else f"{each.event}: {each.cause}"
        points[name][each.begin] += each.messages
    title = "Redeliveries and dead letters"
    if not causes:
        return _plot(report, title, "", {}, count)
    rows = []
    for key, found in sorted(causes.items(), key=lambda item: -sum(number for number, _ in item[1])):
        ages = [age for _, age in found if age is not None]
        rows.append((*key, count(sum(number for number, _ in found)), duration(max(ages)) if ages else "-"))
    plot = _plot(report, title, "per interval, by cause", points, count)
    head = ("event", "destination", "cause", "messages", "age")
    told = "The age is the time since the message was sent: the largest median of an interval."
    return plot + _table("", told, head, rows, numbers=2)


def _waiting(report: Report) -> str:
    if not report.waiting:
        return ""
    rows = [
        (
            each.destination,
            count(each.messages),
            count(each.delivered_before),
            "-" if each.oldest_age is None else duration(each.oldest_age),
        )
        for each in report.waiting
    ]
    told = "What queues held when this report was made."
    return _table("Waiting", told, ("queue", "messages", "delivered before", "oldest"), rows)


def _table(
    title: str, told: str, head: Sequence[str], rows: Sequence[Sequence[str]], numbers: int | None = None
) -> str:
    """Return a table; the last *numbers* columns are numbers, None: all but the first."""
    first = 1 if numbers is None else len(head) - numbers

    def line(cells: Sequence[str], tag: str) -> str:
        made = (
            f"<{tag}{' class=n' if number >= first else ''}>{escape(cell)}</{tag}>" for number, cell in enumerate(cells)
        )
        return f"<tr>{''.join(made)}</tr>"

    heading = f"<h2>{title}</h2>" if title else ""
    lines = "\n".join([line(head, "th"), *(line(row, "td") for row in rows)])
    return f"{heading}<p>{told}</p><div class='wide'><table>\n{lines}\n</table></div>"


# Plots.


def _plot(
    report: Report, title: str, told: str, points: Points, text: Callable[[float], str], *, is_stacked: bool = True
) -> str:
    """Return a plot of *points*: stacked bars, or lines."""
    if not points:
        return f"<h2>{title}</h2><p>There were none.</p>"
    shown = _largest(points)
    begins = range(report.since, report.until, report.interval)
    if is_stacked:
        top = max((sum(values.get(begin, 0) for values in shown.values()) for begin in begins), default=0)
    else:
        top = max((value for values in shown.values() for value in values.values()), default=0)
    step = _step(top, is_size=text is size)
    top = max(step * math.ceil(top / step), step)
    wide, high = WIDTH - LEFT, HEIGHT - TOP - BOTTOM

    def x(moment: float) -> float:
        return LEFT + wide * (moment - report.since) / (report.until - report.since)

    def y(value: float) -> float:
        return TOP + high * (1 - value / top)

    drawn = []
    for number in range(round(top / step) + 1):
        at = y(number * step)
        drawn.append(f"<line x1='{LEFT}' x2='{WIDTH}' y1='{at:.1f}' y2='{at:.1f}'/>")
        drawn.append(f"<text x='{LEFT - 8}' y='{at + 4:.1f}' text-anchor='end'>{text(number * step)}</text>")
    drawn += _times(report, x)
    draw = _bars if is_stacked else _lines
    drawn += draw(report, shown, x, y, text)
    label = f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img' aria-label='{escape(f'{title}, {told}')}'>"
    legend = "".join(
        f"<span><i style='background:{_colour(name, number)}'></i>{escape(name)}</span>"
        for number, name in enumerate(shown)
    )
    plot = f"<div class='wide'>{label}{''.join(drawn)}</svg></div><div class='legend'>{legend}</div>"
    return f"<h2>{title}</h2><p>{told}</p>{plot}"


def _largest(points: Points) -> dict[str, dict[int, float]]:
    """Return the largest series, and the sum of the others."""
    ranked = sorted(points.items(), key=lambda item: (-sum(item[1].values()), item[0]))
    shown = {name: dict(values) for name, values in ranked[:SERIES]}
    for _, values in ranked[SERIES:]:
        others = shown.setdefault(OTHERS, {})
        for begin, value in values.items():
            others[begin] = others.get(begin, 0) + value
    return shown


def _step(top: float, *, is_size: bool) -> float:
    """Return the distance of the lines of a scale that goes up to *top*: some four of them, at round numbers.

    >>> _step(17, is_size=False), _step(900, is_size=False), _step(5000, is_size=True)
    (5, 250, 2048)
    """
    least = max(top / 4, 0.25)
    base = 2.0 ** (10 * math.floor(math.log(max(least, 1), 1024))) if is_size else 1.0
    power = 10.0 ** math.floor(math.log10(least / base))
    step = next(factor for factor in (1, 2, 2.5, 5, 10) if factor * power * base >= least * 0.999) * power * base
    return max(int(step) if step == int(step) else step, 1)


def _times(report: Report, x: Callable[[float], float]) -> list[str]:
    span = report.until - report.since
    form = "%H:%M:%S" if span < 600_000 else "%H:%M" if span <= 172_800_000 else "%m-%d"
    marks = [report.since + span * number // 6 for number in range(6)]
    return [f"<text x='{x(mark):.1f}' y='{HEIGHT - 6}'>{moment(mark, form)}</text>" for mark in marks]


def _colour(name: str, number: int) -> str:
    return f"var(--c{SERIES if name == OTHERS else number})"


Scale = Callable[[float], float]


def _bars(report: Report, shown: Points, x: Scale, y: Scale, text: Callable[[float], str]) -> list[str]:
    drawn = []
    wide = x(report.since + report.interval) - x(report.since)
    gap = min(2.0, wide / 5)
    below: dict[int, float] = defaultdict(float)
    for number, (name, values) in enumerate(shown.items()):
        for begin, value in sorted(values.items()):
            low, below[begin] = below[begin], below[begin] + value
            high = y(low) - y(below[begin])
            told = f"{moment(begin)}\n{name}: {text(value)}"
            place = (
                f"x='{x(begin) + gap / 2:.1f}' y='{y(below[begin]):.1f}' width='{wide - gap:.1f}' height='{high:.1f}'"
            )
            drawn.append(f"<rect {place} fill='{_colour(name, number)}'><title>{escape(told)}</title></rect>")
    return drawn


def _lines(report: Report, shown: Points, x: Scale, y: Scale, text: Callable[[float], str]) -> list[str]:
    drawn = []
    for number, (name, values) in enumerate(shown.items()):
        colour = _colour(name, number)
        dots = [(begin, x(begin + report.interval / 2), y(value), value) for begin, value in sorted(values.items())]
        path = " ".join(f"{at:.1f},{high:.1f}" for _, at, high, _ in dots)
        drawn.append(f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2'/>")
        for begin, at, high, value in dots:
            told = escape(f"{moment(begin)}\n{name}: {text(value)}")
            drawn.append(f"<circle cx='{at:.1f}' cy='{high:.1f}' r='4' fill='{colour}'><title>{told}</title></circle>")
    return drawn
