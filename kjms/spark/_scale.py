"""The scales of a report's plots, in units that people read: pure.

A scale has some four lines at round values of one unit, so that the texts beside them differ in the number alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Final, Literal, NamedTuple

__all__ = [
    "INTERVALS",
    "Kind",
    "Scale",
    "count",
    "duration",
    "interval_for",
    "moment",
    "rate",
    "scale",
    "size",
]

Kind = Literal["count", "size", "duration"]

SECOND: Final = 1_000
MINUTE: Final = 60_000
HOUR: Final = 3_600_000
DAY: Final = 86_400_000
DURATIONS: Final = (("d", DAY), ("h", HOUR), ("min", MINUTE), ("s", SECOND), ("ms", 1))
INTERVALS: Final = (MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, DAY)
MOST_INTERVALS: Final = 200  # more bars than that are narrower than a plot shows
LINES: Final = 4
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_STEPS: Final = tuple(
    factor * unit
    for unit, factors in (
        (SECOND, (1, 2, 5, 10, 15, 30)),
        (MINUTE, (1, 2, 5, 10, 15, 30)),
        (HOUR, (1, 2, 3, 6, 12)),
    )
    for factor in factors
)
"""Distances of lines of a duration below a day."""


class Scale(NamedTuple):
    """The values of a plot's lines, the first 0 and the last the top, and the text of each."""

    values: tuple[float, ...]
    texts: tuple[str, ...]


def scale(top: float, kind: Kind) -> Scale:
    """Return the scale that goes up to *top* or a little more.

    >>> scale(17, "count").texts, scale(1, "count").texts
    (('0', '5', '10', '15', '20'), ('0', '1'))
    >>> scale(2_000_000, "size").texts, scale(100_000, "duration").texts
    (('0', '0.5 MiB', '1 MiB', '1.5 MiB', '2 MiB'), ('0', '30 s', '60 s', '90 s', '120 s'))
    """
    unit, length = "", 1.0
    if kind == "size":
        number = 0
        while number < len(_UNITS) - 1 and top >= 1024 ** (number + 1):
            number += 1
        unit, length = f" {_UNITS[number]}", 1024.0**number
        step = _round_step(top / length / LINES, whole=number == 0) * length
    elif kind == "duration":
        step = _duration_step(top / LINES)
        name, length = next((name, length) for name, length in DURATIONS if step >= length)
        unit = f" {name}"
    else:
        step = _round_step(top / LINES, whole=True)
    values = tuple(number * step for number in range(max(1, math.ceil(top / step - 1e-9)) + 1))
    return Scale(values, tuple(f"{_number(value / length)}{unit}" if value else "0" for value in values))


def _number(value: float) -> str:
    whole = round(value)
    return f"{whole:,}" if abs(value - whole) < 1e-9 * max(value, 1) else f"{value:,.6g}"


def _round_step(least: float, *, whole: bool) -> float:
    """Return the smallest of 1, 2, 2.5, 5 times a power of ten that is *least* at least."""
    if whole and least <= 1:
        return 1
    power = 10.0 ** math.floor(math.log10(max(least, 1e-9)))
    factors = (1, 2, 2.5, 5, 10) if not whole or power >= 10 else (1, 2, 5, 10)
    return next(factor for factor in factors if factor * power >= least * 0.999) * power


def _duration_step(least: float) -> float:
    for step in _STEPS:
        if least <= SECOND / 2:
            return _round_step(least, whole=True)
        if step >= least * 0.999:
            return step
    return _round_step(least / DAY, whole=True) * DAY


def interval_for(span: int) -> int:
    """Return the length of the intervals, in milliseconds, in which *span* is shown.

    >>> [duration(interval_for(span)) for span in (HOUR, 6 * HOUR, DAY, 7 * DAY, 30 * DAY)]
    ['1 min', '5 min', '15 min', '1 h', '1 d']
    """
    return next((interval for interval in INTERVALS if span / interval <= MOST_INTERVALS), DAY)


# Texts.


def count(value: float) -> str:
    """Return a number as people read it.

    >>> count(1234567), count(0.25)
    ('1,234,567', '0.25')
    """
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:,.3g}"


def rate(per_second: float) -> str:
    """Return how often something came, in the unit in which that is 1 at least.

    >>> rate(1234.5), rate(2.5), rate(0.25), rate(10 / 86_400), rate(0)
    ('1,234/s', '2.5/s', '15/min', '10/d', '0/s')
    """
    if not per_second:
        return "0/s"
    units: Sequence[tuple[str, int]] = (("s", 1), ("min", 60), ("h", 3_600), ("d", 86_400))
    unit, seconds = next(((unit, seconds) for unit, seconds in units if per_second * seconds >= 0.9995), units[-1])
    number = float(f"{per_second * seconds:.3g}")
    return f"{per_second * seconds:,.0f}/{unit}" if number >= 100 else f"{number:g}/{unit}"


def size(value: float) -> str:
    """Return bytes in their unit.

    >>> size(900), size(1536), size(3 << 30)
    ('900 B', '1.5 KiB', '3 GiB')
    """
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{value:.1f}".rstrip("0").rstrip(".") + f" {unit}"


def duration(milliseconds: float) -> str:
    """Return a time in a unit that fits.

    >>> duration(250), duration(90_000), duration(3 * 86_400_000)
    ('250 ms', '1.5 min', '3 d')
    """
    for unit, length in DURATIONS:
        if milliseconds >= length > 1:
            return f"{milliseconds / length:.1f}".removesuffix(".0") + f" {unit}"
    return f"{milliseconds:.0f} ms"


def moment(milliseconds: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return a point in time as people read it.

    >>> moment(1_750_000_000_000)
    '2025-06-15 15:06:40'
    """
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc).strftime(form)
