"""The figures of the last hour, in a fixed amount of memory for each queue. Pure."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

__all__ = ["FIELDS", "History", "Rates"]

SPAN: Final = 3_600.0  # seconds
STEP: Final = 10.0
SLOTS: Final = round(SPAN / STEP)
FIELDS: Final = ("depth", "age", "sent", "settled", "in_flight")
"""Messages, seconds, messages a second, messages a second, messages."""
WIDTH: Final = 1 + len(FIELDS)  # with the time


class Rates(NamedTuple):
    """Messages a second, between the last two counts; None: not known yet.

    Attributes:
        sent: Offsets that were written: an upper bound, since transactions write markers.
        settled: Messages that were consumed, moved or deleted.
    """

    sent: float | None = None
    settled: float | None = None


class _Series:
    """A ring of slots; each has a time and a value of each field."""

    __slots__ = ("last", "rates", "values")

    def __init__(self) -> None:
        self.values = array("d", [0.0, *[math.nan] * len(FIELDS)]) * SLOTS
        self.last: tuple[float, float, float] | None = None  # time, end, depth
        self.rates = Rates()

    def rate(self, now: float, end: float | None, depth: float | None) -> Rates:
        last, self.last = self.last, None if end is None or depth is None else (now, end, depth)
        if last is None or self.last is None or now <= last[0] or self.last[1] < last[1]:
            self.rates = Rates()  # the first count, or the topic was made anew
        else:
            seconds = now - last[0]
            sent = self.last[1] - last[1]
            settled = max(sent - (self.last[2] - last[2]), 0.0)
            self.rates = Rates(sent / seconds, settled / seconds)
        return self.rates


class History:
    """What each queue and subscription held in the last hour."""

    def __init__(self) -> None:
        self._series: dict[str, _Series] = {}

    def add(self, now: float, figures: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Add what was counted; forget what is not among it.

        Args:
            now: The time, in seconds since the epoch.
            figures: The figures by key.
        """
        kept = {}
        for key, each in figures:
            series = kept[key] = self._series.get(key) or _Series()
            rates = series.rate(now, each.get("end"), each.get("depth"))
            age = None if each["depth"] is None else 0.0 if each["oldest"] is None else now - each["oldest"] / 1000
            row = each["depth"], None if age is None else max(age, 0.0), rates.sent, rates.settled, each["in_flight"]
            slot = round(now // STEP) % SLOTS * WIDTH
            series.values[slot : slot + WIDTH] = array("d", [now, *(math.nan if v is None else v for v in row)])
        self._series = kept

    def rates(self, key: str) -> Rates:
        """Return the present rates."""
        series = self._series.get(key)
        return Rates() if series is None else series.rates

    def points(self, key: str, field: str, now: float) -> list[tuple[float, float]]:
        """Return the time and the value of a field, oldest first, of the last hour."""
        series = self._series.get(key)
        return [] if series is None else sorted(_points(series.values, 1 + FIELDS.index(field), now - SPAN))


def _points(values: array[float], column: int, since: float) -> Iterator[tuple[float, float]]:
    for slot in range(0, len(values), WIDTH):
        if values[slot] > since and not math.isnan(values[slot + column]):
            yield values[slot], values[slot + column]
