"""Detect that the process slept: its partitions may have gone to other members of the group meanwhile."""

from __future__ import annotations

import time
from typing import Final

__all__ = ["STALL_SECONDS", "StallDetector"]

STALL_SECONDS: Final = 2.0  # a third of the session time-out: a longer sleep may have cost the partitions


class StallDetector:
    """Says whether the partitions are surely still this process's; used with the group consumer's lock.

    Args:
        is_member: Whether the consumer is a member of a group: without one, nothing can be lost.

    Attributes:
        seen: When the consumer thread was seen to run last.
        is_certain: Whether nothing has happened since the last proof that may have cost the partitions.
    """

    def __init__(self, *, is_member: bool) -> None:
        self._is_member = is_member
        self.seen = time.monotonic()
        self.is_certain = True

    def check(self, now: float) -> bool:
        """Return whether messages may be dispatched *now*: the consumer thread ran a moment ago."""
        if now - self.seen > STALL_SECONDS and self._is_member:
            self.is_certain = False  # the process slept; the thread, when it has woken, asks the broker
        return self.is_certain

    def tick(self, now: float) -> bool:
        """Note that the consumer thread runs *now*; return whether the partitions are certain."""
        slept, self.seen = now - self.seen, now
        if slept > STALL_SECONDS and self._is_member:
            self.is_certain = False
        return self.is_certain
