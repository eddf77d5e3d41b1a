"""How long consumers of this process have waited, and how many messages to request for them in advance. Pure."""

from __future__ import annotations

from typing import Final

__all__ = ["RequestWindow", "Starvation"]

STARVATION_LIMIT_SECONDS: Final = 2.0  # a consumer that has not asked again for that long does not wait
QUICK_SECONDS: Final = 0.25  # consumers that take longer for a message, on an average, get none in advance
AHEAD_SECONDS: Final = 0.2  # of work for each consumer, at the most, is requested in advance
AVERAGED: Final = 8  # messages over which it is averaged how long they take


class Starvation:
    """Since when consumers have waited, whether in one receive or in several that found nothing.

    Attributes:
        since: The time; 0: no consumer waits, or did a short while ago.
    """

    def __init__(self) -> None:
        self.since = 0.0
        self._missed_at = 0.0  # when a receive found nothing last

    def missed(self, now: float) -> None:
        """Record that a consumer waits, or found nothing."""
        self._missed_at = now
        self.since = self.since or now

    def seconds(self, now: float, *, is_waiting: bool) -> float:
        """Return the starvation time; *is_waiting*: whether a consumer waits now."""
        if is_waiting:
            self.missed(now)
        elif now - self._missed_at > STARVATION_LIMIT_SECONDS:
            self.since = 0.0
        return now - self.since if self.since else 0.0


class RequestWindow:
    """How many messages to request before a consumer waits: more while they are too few, none for slow consumers.

    Attributes:
        size: Messages that are requested in advance.
    """

    def __init__(self) -> None:
        self.size = 0
        self._work = 0.0  # seconds that a consumer takes for a message, on an average
        self._requested = 0
        self._arrived = 0  # messages that waited here when some arrived last
        self._taken = 0  # messages taken since the last request
        self._taken_in_all = 0  # the same since the window grew last

    @property
    def is_quick(self) -> bool:
        """Whether consumers settle a message soon."""
        return self._work <= QUICK_SECONDS

    def worked(self, seconds: float) -> None:
        """Record that a consumer took *seconds* for a message."""
        self._work += (seconds - self._work) / AVERAGED
        if self._work > QUICK_SECONDS:
            self.size = 0

    def stuck(self, seconds: float) -> None:
        """Record that messages were requested for consumers that took none for *seconds*."""
        self.size = 0
        self._work = max(self._work, seconds)

    def arrived(self, unread: int) -> None:
        """Record that messages arrived, so that *unread* wait here: peers may send more than the window."""
        self._arrived = unread

    def took(self) -> bool:
        """Record that a consumer took a message that was handed over; return whether to request more."""
        self._taken += 1
        self._taken_in_all += 1
        return self.size > 0 and self._taken * 2 >= max(self.size, self._arrived)

    def missed(self, consumers: int, waiting: int, most: int) -> bool:
        """Record that a consumer found nothing; return whether to request more.

        Args:
            consumers: How many there are.
            waiting: How many of them wait.
            most: The largest size.
        """
        is_soon = self.size * 2 * self._work <= AHEAD_SECONDS * consumers  # twice as many would be settled soon
        if self._taken_in_all > self.size and self.is_quick and is_soon:
            soon = int(AHEAD_SECONDS * consumers / self._work) if self._work else most
            self.size = min(max(self.size * 2, min(self._arrived, soon), consumers), most)
            self._arrived = self._taken_in_all = 0
            return True
        if self.size:
            return self._taken * 2 >= self.size
        return self._taken > 0 or waiting > self._requested

    def shrink(self, unread: int) -> None:
        """Halve the size where *unread* messages are more than half of it."""
        if unread * 2 > self.size:
            self.size //= 2

    def room(self, waiting: int) -> int:
        """Return how many messages to request while *waiting* consumers wait."""
        self._requested = max(self.size, waiting)
        return self._requested

    def published(self) -> None:
        """Record that the request was published."""
        self._taken = 0
