"""How long to wait before a process is started again that ended by itself: pure, the clock is an argument."""

from __future__ import annotations

from typing import Final

__all__ = ["Backoff"]

FIRST_SECONDS: Final = 1.0  # before the second restart; the first one is at once
MOST_SECONDS: Final = 30.0
STABLE_SECONDS: Final = 10.0  # a process that served so long begins anew


class Backoff:
    """The waiting times of one place for a process.

    >>> backoff = Backoff()
    >>> [backoff.delay_after(served_for) for served_for in (0.0, 0.0, 0.0, 0.0, 60.0, 0.0)]
    [0.0, 1.0, 2.0, 4.0, 0.0, 1.0]
    """

    def __init__(self) -> None:
        self._failures = 0

    def delay_after(self, served_for: float) -> float:
        """Return how many seconds to wait after a process ended by itself that had served so many seconds."""
        if served_for >= STABLE_SECONDS:
            self._failures = 0
        self._failures += 1
        if self._failures == 1:
            return 0.0
        return float(min(FIRST_SECONDS * 2 ** min(self._failures - 2, 16), MOST_SECONDS))
