"""The time of an in-memory Kafka: real time, and what a test has added to it."""

from __future__ import annotations

import time

__all__ = ["Clock"]


class Clock:
    """Tells the time in seconds; `advance` adds to it."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def milliseconds(self) -> int:
        """Return `time` in milliseconds."""
        return int(self.time() * 1000)

    def monotonic(self) -> float:
        """Return seconds that only ever grow, for deadlines."""
        return time.monotonic() + self._ahead

    def time(self) -> float:
        """Return the seconds since the epoch, UTC."""
        return time.time() + self._ahead

    def advance(self, seconds: float) -> None:
        """Add *seconds*; there is no way back."""
        self._ahead += seconds
