"""How many messages may go now, if there may be so many in a second: pure, no clock."""

from __future__ import annotations

from typing import Final

__all__ = ["Pace"]

BURST_SECONDS: Final = 0.1  # what was not used is kept for so long
MANY: Final = 1 << 30


class Pace:
    """Counts messages against a rate.

    Args:
        rate: Messages in a second; None: any number.
        now: Seconds, on the clock of the other calls.

    >>> pace = Pace(10, now=0.0)
    >>> pace.room(0.0), pace.room(0.5), pace.wait(0.5)
    (1, 1, 0.0)
    >>> pace.used(1), pace.room(0.5), pace.wait(0.5)
    (None, 0, 0.1)
    """

    def __init__(self, rate: float | None, now: float) -> None:
        self._rate = rate
        self._most = max(1.0, (rate or 0) * BURST_SECONDS)
        self._room = 1.0
        self._at = now

    def room(self, now: float) -> int:
        """Return how many messages may go."""
        if self._rate is None:
            return MANY
        self._room = min(self._room + (now - self._at) * self._rate, self._most)
        self._at = now
        return int(self._room)

    def used(self, number: int) -> None:
        """Note that *number* messages go."""
        self._room -= number

    def wait(self, now: float) -> float:
        """Return in how many seconds one may go."""
        if self._rate is None or self.room(now):
            return 0.0
        return (1 - self._room) / self._rate
