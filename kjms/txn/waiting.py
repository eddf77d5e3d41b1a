"""Which messages of a partition wait for their time: pure, no clock, no I/O."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, Generic, TypeVar

__all__ = ["NEVER", "Waiting"]

T = TypeVar("T")

NEVER: Final = 1 << 63
"""Later than any time, in milliseconds since the epoch."""
KEPT: Final = 0.75  # of the limit is kept when it is passed, so that choosing costs little for each message
PRUNE: Final = 1_024  # entries that may be kept beyond need before they are thrown out


class Waiting(Generic[T]):
    """The messages of one partition that are not settled, in the order in which they fall due.

    There may be more than fit into memory. Those due first are held; of the others it is known that they come after
    the *horizon*, a time and, of those due at the same time, an offset. When that comes near, the log is read again
    for what is due from the horizon on: into another object like this one, which this one takes in.

    Args:
        limit: How many messages it holds.

    Attributes:
        horizon: A time and an offset; every message before is held.
        forgotten: How many messages are not held.

    >>> waiting = Waiting(limit=100)
    >>> for offset, due in enumerate([30, 10, 20]): waiting.add(offset, due, f"message {offset}")
    >>> waiting.take(20, most=10)
    [(1, 'message 1'), (2, 'message 2')]
    >>> waiting.settle(1); waiting.put_back(2); waiting.next_due, waiting.committed_offset(3)
    (20, 0)
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.horizon = NEVER, 0
        self.forgotten = 0
        self._oldest_forgotten = NEVER
        self._held: dict[int, tuple[int, T]] = {}
        self._heap: list[tuple[int, int]] = []  # due and offset; some were settled, or taken
        self._order: deque[int] = deque()  # the keys of _held and some that were settled, rising
        self._gone: set[int] | None = set()  # what others settled, as the log says; until it has been read

    def __len__(self) -> int:
        return len(self._held)

    @property
    def next_due(self) -> int:
        """When the next message is due that is held; NEVER: none is."""
        heap, held = self._heap, self._held
        while heap and heap[0][1] not in held:
            heapq.heappop(heap)
        return heap[0][0] if heap else NEVER

    @property
    def is_short(self) -> bool:
        """Whether there is room for much of what is not held."""
        return self.forgotten > 0 and len(self._held) <= self.limit // 2

    def add(self, offset: int, due: int, message: T) -> None:
        """Note that *message* waits at *offset*; offsets come in rising order."""
        if (due, offset) >= self.horizon:
            self._forget(offset)
            return
        self._held[offset] = due, message
        heapq.heappush(self._heap, (due, offset))
        self._order.append(offset)
        if len(self._held) > self.limit:
            self._make_room()
        if len(self._order) > 2 * len(self._held) + PRUNE:
            self._order = deque(offset for offset in self._order if offset in self._held)

    def _forget(self, offset: int) -> None:
        self.forgotten += 1
        self._oldest_forgotten = min(self._oldest_forgotten, offset)

    def _make_room(self) -> None:
        entries = sorted((due, offset) for offset, (due, _) in self._held.items())
        kept = max(1, int(self.limit * KEPT))
        self.horizon = entries[kept]
        for _, offset in entries[kept:]:
            del self._held[offset]
            self._forget(offset)
        self._heap = entries[:kept]

    def take(self, now: int, most: int) -> list[tuple[int, T]]:
        """Return the messages that are due at *now*, *most* of them, with their offsets, in the order of their times.

        They are to be settled or put back.
        """
        heap, held = self._heap, self._held
        taken: list[tuple[int, T]] = []
        while len(taken) < most and self.next_due <= now:
            offset = heapq.heappop(heap)[1]
            taken.append((offset, held[offset][1]))
        return taken

    def put_back(self, offset: int) -> None:
        """Note that the message at *offset*, which was taken, waits still."""
        if offset in self._held:
            heapq.heappush(self._heap, (self._held[offset][0], offset))

    def postpone(self, offset: int, due: int) -> None:
        """Let the message at *offset*, which was taken or put back, be due at *due*."""
        if offset in self._held:
            self._held[offset] = due, self._held[offset][1]
            self._heap = [(due if at == offset else when, at) for when, at in self._heap]
            heapq.heapify(self._heap)

    def settle(self, offset: int) -> None:
        """Note that the message at *offset* waits no more; to settle it again changes nothing."""
        self._held.pop(offset, None)
        if self._gone is not None:
            self._gone.add(offset)

    def caught_up(self) -> None:
        """Note that all was read that others settled; from now on only what is held is settled, or cancelled."""
        if not self.forgotten:
            self._gone = None

    def is_gone(self, offset: int) -> bool:
        """Tell whether the log said that the message at *offset*, which may stand before that, was settled."""
        return self._gone is not None and offset in self._gone

    def take_in(self, other: Waiting[T]) -> None:
        """Hold what *other* holds, and forget what it has forgotten: it has read all from the horizon on."""
        for due, offset, message in other.all():
            if offset not in self._held:
                self._held[offset] = due, message
                heapq.heappush(self._heap, (due, offset))
        self._order = deque(sorted(self._held))
        self.horizon, self.forgotten = other.horizon, other.forgotten
        self._oldest_forgotten = other._oldest_forgotten
        if not self.forgotten:
            self._gone = None

    def may_hold(self, offset: int) -> bool:
        """Tell whether the message at *offset* waits; of one that is not held, whether it is possible."""
        return offset in self._held or offset >= self._oldest_forgotten

    def message(self, offset: int) -> T | None:
        """Return the message at *offset*; None: it is not held."""
        entry = self._held.get(offset)
        return None if entry is None else entry[1]

    def committed_offset(self, position: int) -> int:
        """Return the offset before which nothing waits; **position* is where reading continues."""
        order, held = self._order, self._held
        while order and order[0] not in held:
            order.popleft()
        return min(order[0] if order else position, self._oldest_forgotten)

    def oldest(self, most: int) -> list[tuple[int, int, T]]:
        """Return the offsets, times and messages of the *most* that stand first in the log."""
        return [(offset, *self._held[offset]) for offset in _some(self._order, self._held, most)]

    def all(self) -> list[tuple[int, int, T]]:
        """Return the times, offsets and messages of all that are held, those due first first."""
        return sorted(((due, offset, message) for offset, (due, message) in self._held.items()), key=_time_and_offset)


def _some(offsets: Iterable[int], held: dict[int, tuple[int, T]], most: int) -> Iterator[int]:
    for offset in offsets:
        if most <= 0:
            return
        if offset in held:
            most -= 1
            yield offset


def _time_and_offset(entry: tuple[int, int, object]) -> tuple[int, int]:
    return entry[0], entry[1]
