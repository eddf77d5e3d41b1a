"""How many messages a client gets ahead of its answers, while other processes serve the same queue. Pure."""

from __future__ import annotations

from typing import Final

__all__ = ["Window"]

FEWEST: Final = 2  # one that the client works on, and one for when it is done
MOST_SECONDS: Final = 0.1  # of work are sent ahead
TIMEOUT_SECONDS: Final = 0.2  # without an answer, before a client gets another message
MOST_TIMEOUT_SECONDS: Final = 1.0
TIMEOUT_FACTOR: Final = 8  # times the longest wait for an answer so far, likewise


class Window:
    """The number of unsettled messages with which a link counts as busy.

    It doubles when the client has answered for all of them, so that it had to wait for more, and is halved when they
    take it long. It is at least twice as large as the largest number of messages that the client answers for at once.

    A client may also keep its answers back until it has more messages. So the window of a link that has been full for
    long grows: by one message, and by twice as many each time that it has been filled again.

    Attributes:
        size: The number.

    >>> window = Window()
    >>> window.filled(10.0); window.answered(2, 0, 10.01); window.size
    4
    >>> window.answered(1, 3, 10.1); window.answered(3, 1, 10.2); window.size
    6
    >>> window.filled(20.0); window.grow(20.1); window.size
    6
    >>> round(window.grows_at, 2); window.grow(20.3); window.size
    20.2
    7
    """

    def __init__(self) -> None:
        self.size = FEWEST
        self._full_since = 0.0
        self._was_full = False
        self._longest = 0.0  # seconds that a full link has waited for an answer
        self._growth = 1
        self._answers = 0
        self._counted_since = 0.0

    @property
    def grows_at(self) -> float:
        """When the window of the link grows, if there is no answer before."""
        timeout = min(TIMEOUT_SECONDS * self._growth, MOST_TIMEOUT_SECONDS)
        return self._full_since + max(timeout, TIMEOUT_FACTOR * self._longest)

    def filled(self, now: float) -> None:
        """Note that the client has as many messages as the window allows."""
        if not self._full_since:
            self._full_since = now
            self._was_full = True

    def grow(self, now: float) -> None:
        """Let the window grow if it is time to."""
        if now >= self.grows_at:
            self.size += self._growth
            self._growth *= 2
            self._full_since = 0.0

    def answered(self, count: int, left: int, now: float) -> None:
        """Note that the client answered for *count* messages; *left* of them are unsettled."""
        if self._full_since:
            self._longest = max(now - self._full_since, self._longest * 0.9)
            self._full_since = 0.0
        self._growth = 1
        self._answers += count
        if self._answers >= self.size:
            if self._counted_since and now - self._counted_since > MOST_SECONDS:
                self.size = max(self.size // 2, FEWEST)
            self._answers, self._counted_since = 0, now
        if left == 0 and self._was_full:
            self.size *= 2
            self._was_full = False
        if count > 1:
            self.size = max(self.size, 2 * count)
