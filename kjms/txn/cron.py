"""Find the times that a cron expression names in a time zone: pure, no clock, no I/O.

`cronsim` reads the expression. It follows cron of Debian where clocks change: what has a fixed hour and minute comes
once a day, and what repeats keeps its distance.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Final
from zoneinfo import ZoneInfo

from kjms.errors import shown

__all__ = ["NEVER", "Cron"]

NEVER: Final = (1 << 63) - 1
"""The time of a tick that never comes: the latest that a JMS long holds, in milliseconds since the epoch."""
SECOND_MS: Final = 1_000
LONGEST: Final = 1_000  # characters of an expression
TRIES: Final = 100  # times that may lie before the one that is asked for, where clocks are set back
LAST_MS: Final = 250_000_000_000_000  # the calendar of Python ends in the year 9999

RULE: Final = (
    "a cron expression has five fields (minute, hour, day of month, month, day of week), or six with the seconds first"
)


class Cron:
    """The times of *expression* in the time zone *zone*.

    Args:
        expression: Five fields, or six with the seconds first.
        zone: A name of the IANA time zone database, such as ``Europe/Berlin``.

    Raises:
        ValueError: The expression or the zone is not valid, or the expression names no time.

    >>> cron = Cron("0 6 * * *", "Europe/Berlin")
    >>> datetime.fromtimestamp(cron.after(1_750_000_000_000) / 1000, timezone.utc).isoformat()
    '2025-06-16T04:00:00+00:00'
    """

    def __init__(self, expression: str, zone: str = "UTC") -> None:
        self._zone = _zone(zone)
        self.expression, self.zone = expression, zone
        if not isinstance(expression, str):
            raise ValueError(f"cron: {shown(expression)} is no text; {RULE}")
        fields = expression.split()
        self._offset = 0
        if len(fields) == 6 and fields[0].isdecimal() and fields[0].isascii():  # as cron of Debian does, and later
            self._offset = int(fields[0]) * SECOND_MS
            fields = fields[1:]
        self._fields = " ".join(fields)
        if len(expression) > LONGEST or len(fields) not in {5, 6} or self._offset >= 60 * SECOND_MS:
            raise ValueError(f"cron expression {expression!r:.200}: {RULE}")
        if self.after(0) == NEVER:
            raise ValueError(f"cron expression {expression!r:.200} names no time: no month has such a day")

    def __repr__(self) -> str:
        return f"<Cron {self.expression!r} in {self.zone}>"

    def after(self, time: int) -> int:
        """Return the first time after *time*, in milliseconds since the epoch; NEVER: there is none.

        >>> Cron("*/5 * * * * *").after(7_000), Cron("*/5 * * * * *").after(10_000)
        (10000, 15000)
        """
        from cronsim import CronSim, CronSimError

        start = max(time - self._offset, 0)
        if start > LAST_MS:
            return NEVER
        try:
            times = CronSim(
                self._fields, datetime.fromtimestamp(start // SECOND_MS, timezone.utc).astimezone(self._zone)
            )
            for _ in range(TRIES):  # after clocks were set back, the first are those before
                found = int(next(times).timestamp()) * SECOND_MS
                if found > start:
                    return found + self._offset
        except CronSimError as error:
            raise ValueError(
                f"cron expression {self.expression!r:.200}: {_decapitalized(str(error))}; {RULE}"
            ) from None
        except (StopIteration, OverflowError):
            pass
        return NEVER

    def latest(self, first: int, until: int) -> int:
        """Return the last time that is not after *until*; *first* is one of the times, and not after it.

        >>> Cron("0 * * * *").latest(3_600_000, 100 * 3_600_000 + 1)
        360000000
        """
        span = SECOND_MS
        while until - span > first:
            found = self.after(until - span)
            if found <= until:
                while (later := self.after(found)) <= until:
                    found = later
                return found
            span *= 2
        while (later := self.after(first)) <= until:
            first = later
        return first


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except Exception:  # of an unknown name, a folder, a path, or of what is no text
        raise ValueError(
            f"time zone {name!r:.200} is not known; names are those of the IANA database, such as 'Europe/Berlin'"
        ) from None


def _decapitalized(text: str) -> str:
    return text[:1].lower() + text[1:]
