"""A report as one HTML page that needs nothing else: no network, no other file. Pure text.

Times are UTC. A destination has one colour on the whole page; those with the fewest messages, beyond the number of
colours, are summed up as others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

from kjms.spark._figures import Figures, Traffic
from kjms.spark._plots import Series, library, mark, plot
from kjms.spark._scale import count, duration, moment, rate, size

__all__ = ["page", "totals"]

SERIES: Final = 6
OTHERS: Final = "others"
GREY: Final = f"var(--c{SERIES})"
NOT_SAID: Final = "cause not recorded"
NO_CAUSES: Final = {"expired": "time to live is over"}
"""The causes of events that are recorded without one."""
STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --line: #d9dee5; --card: #f5f7f9; --page: #fff;
  --c0: #2a6fbb; --c1: #d9822b; --c2: #2f9e77; --c3: #b8478f; --c4: #7a6ac8; --c5: #8a7a2e; --c6: #9aa3ae;
  --e0: #b3261e; --e1: #5c7080; --e2: #e38179; --e3: #a08d7d; --e4: #6d1b16; --e5: #bcc7cf; --e6: #9aa3ae; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #9aa6b5; --line: #38424f; --card: #1b222b;
  --page: #12171d; --c0: #62a3e8; --c1: #f0a558; --c2: #57c79d; --c3: #e07fb9; --c4: #a99bf0; --c5: #c7b75c;
  --e0: #f2685f; --e1: #8fa5b5; --e2: #f7b3ad; --e3: #c4b1a1; --e4: #b0453d; --e5: #5d6b76; } }
body { margin: 0 auto; max-width: 960px; padding: 24px 20px 48px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 32px 0 4px; }
p { margin: 0 0 8px; color: var(--soft); } .legend + p { margin-top: 14px; }
.cards { display: flex; flex-wrap: wrap; gap: 12px; margin-top: 16px; }
.card { background: var(--card); border-radius: 8px; padding: 10px 16px; min-width: 110px; }
.card b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; } .card span { color: var(--soft); }
.wide { overflow-x: auto; } .plot { height: 240px; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 4px 0 0; }
.legend button { border: 0; padding: 2px 0; background: none; color: var(--soft); font: 13px/1.4 system-ui, sans-serif;
  text-align: left; overflow-wrap: anywhere; cursor: pointer; } .legend button[aria-pressed=false] { opacity: .4; }
.legend i, td i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 6px; }
table { border-collapse: collapse; width: 100%; margin-top: 6px; } td, th { padding: 4px 14px 4px 0; text-align: left;
  border-bottom: 1px solid var(--line); vertical-align: top; } th { color: var(--soft); font-weight: 500; }
.wide table { min-width: 480px; } td:first-child { white-space: nowrap; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
"""


def page(report: Figures) -> str:
    """Return *report* as a page."""
    since, until = moment(report.since), moment(report.until)
    found = {each.destination for each in report.traffic} | {each.destination for each in report.waiting}
    names = ", ".join(sorted(found)) or "no destination"
    colours = _colours(report)
    told = "per interval, by destination"
    parts = [
        f"<h1>Messages of {escape(names)}</h1>",
        f"<p>{since} to {until} UTC, in intervals of {duration(report.interval)}</p>",
        _cards(report),
        plot(report, "Messages", told, _by(report.traffic, "messages", colours), "count"),
        plot(report, "Bytes of bodies", told, _by(report.traffic, "bytes", colours), "size"),
        _sizes(report, colours),
        _replies(report, colours),
        _incidents(report),
        _waiting(report, colours),
    ]
    head = f"<meta charset='utf-8'><meta name='viewport' content='width=device-width'><title>{escape(names)}</title>"
    body = "\n".join(filter(None, parts))
    scripts = library() if "<div class='plot'" in body else ""
    return (
        f"<!doctype html>\n<html lang='en'><head>{head}<style>{STYLE}</style></head>\n<body>\n{body}\n{scripts}\n"
        "</body></html>\n"
    )


Colours = Mapping[str, str]
"""The colour of each destination that has one, those with the most messages first."""


def _colours(report: Figures) -> Colours:
    messages: dict[str, int] = defaultdict(int)
    for each in report.traffic:
        messages[each.destination] += each.messages
    for found in (report.replies, report.waiting):
        for other in found:
            messages[other.destination] += 0
    ranked = sorted(messages, key=lambda name: (-messages[name], name))
    return {name: f"var(--c{number})" for number, name in enumerate(ranked[:SERIES])}


class Total(NamedTuple):
    """What came to a destination in the whole time."""

    destination: str
    messages: int
    per_second: float
    peak_per_second: float
    bytes: int
    largest_size: int
    damaged: int


def totals(report: Figures) -> list[Total]:
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


# Sections.


def _cards(report: Figures) -> str:
    incidents: dict[str, int] = defaultdict(int)
    for each in report.incidents:
        incidents[each.event] += each.messages
    waiting = sum(each.messages for each in report.waiting)
    cards = [
        (count(sum(each.messages for each in report.traffic)), "messages"),
        (size(sum(each.bytes for each in report.traffic)), "of bodies"),
        (count(waiting), "waiting now"),
        (count(incidents["redelivery"]), "redeliveries"),
        (count(incidents["dead letter"]), "dead letters"),
        (count(incidents["expired"]), "expired"),
    ]
    shown = "".join(f"<div class='card'><b>{value}</b><span>{name}</span></div>" for value, name in cards)
    return f"<div class='cards'>{shown}</div>"


def _by(rows: Iterable[Traffic], value: str, colours: Colours) -> list[Series]:
    """Return a series for each destination that has a colour, and one for the others."""
    found = {name: Series(name, colour, {}) for name, colour in colours.items()}
    for row in rows:
        name = row.destination if row.destination in colours else OTHERS
        series = found.setdefault(name, Series(name, GREY, {}))
        series.points[row.begin] = series.points.get(row.begin, 0) + getattr(row, value)
    return [series for series in found.values() if series.points]


def _sizes(report: Figures, colours: Colours) -> str:
    if not report.traffic:
        return ""
    rows = [
        (
            each.destination,
            count(each.messages),
            rate(each.per_second),
            rate(each.peak_per_second),
            size(each.bytes),
            size(each.bytes / each.messages),
            size(each.largest_size),
            count(each.damaged),
        )
        for each in totals(report)
    ]
    head = ("destination", "messages", "rate", "at most", "bytes", "on average", "largest", "damaged")
    told = "Over the whole time; at most is the rate of the busiest interval."
    return _table("Rates and sizes", told, head, rows, colours=colours)


def _replies(report: Figures, colours: Colours) -> str:
    found: list[Series] = []
    others = sorted({each.destination for each in report.replies} - colours.keys())
    for name, colour in [*colours.items(), *((other, GREY) for other in others)]:
        of_one = [each for each in report.replies if each.destination == name]
        if of_one:
            found.append(Series(f"{name}, median", colour, {each.begin: each.median for each in of_one}))
            found.append(Series(f"{name}, 95 %", colour, {each.begin: each.p95 for each in of_one}, is_dashed=True))
    told = "from a request to its reply, by when the reply came"
    return plot(report, "Replies", told, found, "duration", is_stacked=False)


def _incidents(report: Figures) -> str:
    causes: dict[tuple[str, str, str], list[tuple[int, int | None]]] = defaultdict(list)
    points: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for each in report.incidents:
        cause = each.cause if each.cause.strip(" -") else NO_CAUSES.get(each.event, NOT_SAID)
        causes[each.event, each.destination, cause].append((each.messages, each.median_age))
        points[f"{each.event}: {cause}"][each.begin] += each.messages
    title = "Redeliveries and dead letters"
    if not causes:
        return plot(report, title, "", [], "count")
    rows = []
    for key, found in sorted(causes.items(), key=lambda item: -sum(number for number, _ in item[1])):
        ages = [age for _, age in found if age is not None]
        rows.append((*key, count(sum(number for number, _ in found)), duration(max(ages)) if ages else "-"))
    drawn = plot(report, title, "per interval, by cause", _largest(points), "count")
    head = ("event", "destination", "cause", "messages", "age")
    told = "The age is the time since the message was sent: the largest median of an interval."
    return drawn + _table("", told, head, rows, numbers=2)


def _waiting(report: Figures, colours: Colours) -> str:
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
    return _table("Waiting", told, ("queue", "messages", "delivered before", "oldest"), rows, colours=colours)


def _table(
    title: str,
    told: str,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: int | None = None,
    colours: Colours | None = None,
) -> str:
    """Return a table; the last *numbers* columns are numbers, None: all but the first.

    With *colours*, the first column names destinations, and shows the colour of each.
    """
    first = 1 if numbers is None else len(head) - numbers

    def line(cells: Sequence[str], tag: str) -> str:
        made = []
        for number, cell in enumerate(cells):
            field = mark(colours.get(cell, GREY)) if colours is not None and tag == "td" and not number else ""
            made.append(f"<{tag}{' class=n' if number >= first else ''}>{field}{escape(cell)}</{tag}>")
        return f"<tr>{''.join(made)}</tr>"

    heading = f"<h2>{title}</h2>" if title else ""
    lines = "\n".join([line(head, "th"), *(line(row, "td") for row in rows)])
    return f"{heading}<p>{told}</p><div class='wide'><table>\n{lines}\n</table></div>"


def _largest(points: Mapping[str, Mapping[int, float]]) -> list[Series]:
    """Return the largest series, in the colours of incidents, and the sum of the others."""
    ranked = sorted(points.items(), key=lambda item: (-sum(item[1].values()), item[0]))
    shown = [
        Series(name, f"var(--e{number})", dict(ranked[number][1])) for number, (name, _) in enumerate(ranked[:SERIES])
    ]
    others: dict[int, float] = defaultdict(float)
    for _, values in ranked[SERIES:]:
        for begin, value in values.items():
            others[begin] += value
    return [*shown, *([Series(OTHERS, GREY, others)] if others else [])]
