"""Show values to people: numbers, durations, times, and text that may hold anything. Pure."""

from __future__ import annotations

import re
import time
from datetime import datetime, timezone
from typing import Any, Final
from urllib.parse import urlencode

from markupsafe import Markup, escape

__all__ = ["FILTERS", "compact", "duration", "visible"]

_BIDI: Final = "\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff"  # what hides, or changes the direction of writing
_UNSAFE: Final = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029{_BIDI}\ud800-\udfff]")
_IN_A_LINE: Final = re.compile(f"[\x00-\x1f\x7f-\x9f\u2028\u2029{_BIDI}\ud800-\udfff]")
NONE: Final = "–"


def _escape(match: re.Match[str]) -> str:
    return f'<span class="esc">{repr(match[0])[1:-1]}</span>'


def visible(value: Any) -> Markup:
    r"""Return text for a line of a page: HTML is escaped, and characters that cannot be seen are shown as escapes.

    >>> print(visible("<b>\x1b"))
    &lt;b&gt;<span class="esc">\x1b</span>
    """
    text = NONE if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return Markup(_IN_A_LINE.sub(_escape, str(escape(text))))  # noqa: S704 - escaped


def plain(value: Any) -> str:
    r"""Return text for a title or label as `visible` does, but without markup.

    >>> plain("rlo\u202e")
    'rlo\\u202e'
    """
    return _IN_A_LINE.sub(lambda match: repr(match[0])[1:-1], str(value))


def visible_body(value: Any) -> Markup:
    """Return text as `visible` does, but keep its line ends and tabs."""
    return Markup(_UNSAFE.sub(_escape, str(escape(str(value)))))  # noqa: S704 - escaped


def with_code(value: str) -> Markup:
    """Return text in which parts between backticks are code.

    >>> print(with_code("`a` & b"))
    <code>a</code> &amp; b
    """
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(value))))  # noqa: S704 - escaped


def number(value: float | None) -> str:
    """Return a whole number with separators.

    >>> number(1234567), number(None)
    ('1,234,567', '–')
    """
    return NONE if value is None else f"{value:,.0f}"


def compact(value: float | None) -> str:
    """Return a number in few characters.

    >>> [compact(each) for each in (0, 0.25, 7.5, 12.34, 1234, 1_500_000)]
    ['0', '0.25', '7.5', '12', '1.2k', '1.5M']
    """
    if value is None:
        return NONE
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}" if value < 100 * size else f"{value / size:.0f}{unit}"
    if value >= 10 or value == int(value):
        return f"{value:.0f}"
    return f"{value:.2g}"


def compact_rate(value: float | None) -> str:
    """Return messages a second in few characters."""
    return NONE if value is None else f"{compact(round(value, 2))}/s"


def duration(value: float | None) -> str:
    """Return seconds in the one or two largest units.

    >>> [duration(each) for each in (0.4, 75, 3700, 200_000)]
    ['0 s', '1 min 15 s', '1 h 1 min', '2 d 7 h']
    """
    if value is None:
        return NONE
    left = int(value)
    if left < 60:
        return f"{left} s"
    parts: list[str] = []
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count} {unit}")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if not part.startswith("0 "))


def size(value: int | None) -> str:
    """Return bytes in a unit.

    >>> size(900), size(20_480)
    ('900 B', '20.0 KiB')
    """
    if value is None:
        return NONE
    if value < 1024:
        return f"{value} B"
    for unit, amount in (("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)):
        if value < 1024 * amount:
            return f"{value / amount:.1f} {unit}"
    return f"{value:,} B"


def moment(value: float | None) -> Markup:
    """Return a point in time, in milliseconds since the epoch, as UTC with a machine-readable form."""
    if value is None:
        return escape(NONE)
    try:
        when = datetime.fromtimestamp(value / 1000, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return escape(f"{value} ms")
    form = f"{when:%Y-%m-%d %H:%M:%S}"
    return Markup('<time datetime="{}Z">{}</time>').format(when.isoformat(timespec="milliseconds")[:23], form)


def age(value: float | None) -> str:
    """Return how long ago a point in time was, in milliseconds since the epoch."""
    return NONE if value is None else duration(max(time.time() - value / 1000, 0.0))


def query(values: dict[str, Any]) -> str:
    """Return the parameters of a URL, without empty ones."""
    return urlencode({name: value for name, value in values.items() if value not in (None, "")}, errors="replace")


def short_id(value: str) -> str:
    """Return a message id with its middle left out: ids of one producer differ at their ends.

    >>> short_id("ID:e0189ada4c17467091513570f60f0010-1-386")
    'ID:e0189ad…60f0010-1-386'
    """
    return value if len(value) <= 26 else f"{value[:10]}…{value[-13:]}"


FILTERS: Final = {
    "age": age,
    "code": with_code,
    "compact": compact,
    "duration": duration,
    "id": short_id,
    "moment": moment,
    "number": number,
    "query": query,
    "rate": compact_rate,
    "size": size,
    "plain": plain,
    "v": visible,
    "body": visible_body,
}
"""The filters of the templates."""
