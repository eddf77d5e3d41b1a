"""How quick consumers of one process share the messages of a selector: one after another, each with a batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Final, Generic, Protocol, TypeVar

__all__ = ["SHARE", "STREAK", "Rotation"]

SHARE: Final = 64  # messages of a batch while consumers rotate, beside the first one
STREAK: Final = 32  # messages that a consumer takes one by one before others that wait get theirs
ENOUGH: Final = 500  # messages that consumers take one by one before they rotate
MOST: Final = 1_000_000  # the same after rotations that were slower
WINDOW: Final = 250  # messages from one look at the pace to the next one, while they do not rotate
LONG_WINDOW: Final = 1_000  # the same while they do: the first batches, and a pause, count for less
IDLE_SECONDS: Final = 1.0  # a look that comes so late tells nothing of the pace
NOTHING: Final = 4  # consumers that find nothing, without a whole batch between them, end the rotation
ACTIVE_SECONDS: Final = 0.01  # a consumer that took a message so lately will soon ask for another one
STUCK_SECONDS: Final = 0.01  # a batch that lasts so long ends the rotation


class Taker(Protocol):
    """A consumer, as far as a rotation needs it.

    Attributes:
        taken_at: When it took the message that it is busy with; 0: with none.
    """

    taken_at: float


C = TypeVar("C", bound=Taker)


class Rotation(Generic[C]):
    """Whether the consumers that share a selector rotate: as long as messages come faster by that.

    Threads that take message by message at the same time hold each other up: each message costs twice what it costs a
    lone consumer. In a rotation one consumer at a time is awake, with a batch, and the others wait. Consumers that work
    for long, or wait for something, are faster at the same time.

    Args:
        takers: The consumers that share the selector.
        waiting: Those of them that wait for a message.
        woken: Those that were woken, and have not asked since.
        clock: Tells the time, in seconds.

    Attributes:
        is_on: Whether consumers rotate.
    """

    __slots__ = (
        "_clock",
        "_count",
        "_dispatched",
        "_enough",
        "_looked_at",
        "_moved_at",
        "_nothing",
        "_pace",
        "_takers",
        "_waiting",
        "_woken",
        "is_on",
    )

    def __init__(
        self,
        takers: Collection[C],
        waiting: Collection[C],
        woken: Collection[C],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._takers = takers
        self._waiting = waiting
        self._woken = woken
        self._clock = clock
        self.is_on = False
        self._enough = ENOUGH  # messages until consumers rotate, or do it with more confidence
        self._count = 0  # messages of these so far
        self._pace = 0.0  # seconds for a message, before consumers rotated
        self._looked_at = 0.0
        self._dispatched = 0  # at that time
        self._nothing = 0  # consumers that found nothing since the last whole batch
        self._moved_at = 0.0  # when a batch was given, or a consumer was woken for one

    def gave(self, size: int) -> None:
        """Note that a consumer was given a batch of *size* messages."""
        self._moved_at = self._clock()
        if size >= SHARE:
            self._nothing = 0

    def woke(self) -> None:
        """Note that a consumer was woken, and will be given a batch."""
        self._moved_at = self._clock()

    def look(self, dispatched: int) -> None:
        """Choose whether consumers rotate: one has taken its batch, or `STREAK` messages one by one.

        Args:
            dispatched: How many messages were dispatched so far.
        """
        messages = dispatched - self._dispatched
        if len(self._takers) < 2 or messages < (LONG_WINDOW if self.is_on else WINDOW):
            return
        now = self._clock()
        seconds, self._looked_at, self._dispatched = now - self._looked_at, now, dispatched
        if seconds > IDLE_SECONDS:
            self.stop()
            return
        pace = seconds / messages
        if self.is_on and pace >= self._pace:
            self._back_off()
            return
        self._count += messages
        if not self.is_on:
            self._pace = pace
        if self._count >= self._enough:
            self._count = self._nothing = 0
            if self.is_on:
                self._enough = max(self._enough >> 1, ENOUGH)
            self.is_on = True

    def found_nothing(self) -> None:
        """Note that a consumer found nothing to take, or no batch."""
        self._nothing += 1
        if self.is_on and self._nothing >= NOTHING:
            self.stop()

    def stop(self) -> None:
        """Have consumers not rotate for now."""
        self.is_on, self._count = False, 0

    def _back_off(self) -> None:
        self.stop()
        self._enough = min(2 * self._enough, MOST)

    def is_any_active(self, but: C | None = None) -> bool:
        """Return whether a consumer, other than *but*, will soon ask for a message."""
        since = self._clock() - ACTIVE_SECONDS
        return any(
            each is not but and each not in self._waiting and (each.taken_at > since or each in self._woken)
            for each in self._takers
        )

    def end_where_stuck(self) -> bool:
        """End the rotation where a batch lasts for long; return whether that is so."""
        if self._clock() - self._moved_at < STUCK_SECONDS:
            return False
        self._back_off()
        return True
