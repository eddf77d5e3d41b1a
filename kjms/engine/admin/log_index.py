"""Which offsets of a partition are messages, so that unsettled offsets can be counted as messages: pure, no I/O.

Kafka's offsets have holes: markers of transactions, aborted records, and records that compaction removed. A `LogIndex`
holds the offsets of the messages that were read, sixteen bytes for each, and forgets those that are settled.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kjms.mapping.delayed import REQUESTS, Note
from kjms.mapping.periodic import Definition
from kjms.txn.metadata import State

__all__ = ["DelayedIndex", "Facts", "LogIndex", "Origin", "Tally", "is_unsettled", "unsettled_runs"]

Origin = tuple[str, int, int]
"""Where a relocated message stood first: topic, partition, offset."""


class Facts(NamedTuple):
    """What decides whether a message is counted.

    Attributes:
        time: When it was sent, in milliseconds since the epoch.
        expiration: When it expires, likewise; 0: never.
        due: When it may be delivered; 0: at once.
        origin: Where it stood first; None: it was not relocated.
        label: The destination that a dead letter came from; empty: it is none.
    """

    time: int
    expiration: int = 0
    due: int = 0
    origin: Origin | None = None
    label: str = ""

    @property
    def is_plain(self) -> bool:
        """Return whether the message counts until it is settled."""
        return not (self.expiration or self.due or self.origin or self.label)


@dataclass
class Tally:
    """How many messages of a partition are not settled.

    Attributes:
        pending: Messages that a consumer gets, or has.
        dispatched: Those of them that consumers have.
        expired: Messages that are expired, and will not be delivered.
        early: Messages that are not due yet.
        oldest: When the oldest pending message was sent, in milliseconds since the epoch; None: there is none.
        labels: How many of the pending messages are dead letters, by where they came from.
    """

    pending: int = 0
    dispatched: int = 0
    expired: int = 0
    early: int = 0
    oldest: int | None = None
    labels: Counter[str] = field(default_factory=Counter)


def unsettled_runs(state: State, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Return the runs of offsets from *begin* to *end* that *state* does not settle: first, and one past the last.

    >>> list(unsettled_runs(State(3, 0, ((3, 4), (6, 8)), 10), 0, 12))
    [(3, 4), (6, 8), (10, 12)]
    >>> list(unsettled_runs(State(3, 0, ((3, 4), (6, 8)), 10), 7, 9))
    [(7, 8)]
    """
    for first, past in (*state.runs, (max(state.known, state.committed_offset), end)):
        low, high = max(first, begin), min(past, end)
        if low < high:
            yield low, high


def is_unsettled(state: State, offset: int) -> bool:
    """Tell whether the message at *offset* is not settled.

    >>> state = State(3, 0, ((3, 4), (6, 8)), 10)
    >>> [offset for offset in range(12) if is_unsettled(state, offset)]
    [3, 6, 7, 10, 11]
    """
    if offset >= state.known:
        return True
    at = bisect_right(state.runs, (offset, sys.maxsize)) - 1
    return at >= 0 and offset < state.runs[at][1]


class LogIndex:
    """The messages of one partition from one offset on.

    Args:
        start: The first offset that it is to know.

    Attributes:
        start: The first offset that it knows.
        position: The offset that is to be read next.
    """

    __slots__ = ("_marked", "_offsets", "_times", "position", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.position = start
        self._offsets = array("q")
        self._times = array("q")
        self._marked: dict[int, Facts] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, offset: int, facts: Facts) -> None:
        """Note that a message was read at *offset*; offsets come in rising order."""
        self._offsets.append(offset)
        self._times.append(facts.time)
        if not facts.is_plain:
            self._marked[offset] = facts

    def move_to(self, offset: int) -> None:
        """Forget what is before *offset*; begin anew there where that was forgotten, or not read yet."""
        if offset < self.start or offset > self.position:
            self.start = self.position = offset
            del self._offsets[:], self._times[:]
            self._marked.clear()
            return
        count = bisect_left(self._offsets, offset)
        if count:
            if self._marked:
                for gone in self._offsets[:count]:
                    self._marked.pop(gone, None)
            del self._offsets[:count], self._times[:count]
        self.start = offset

    def tally(self, state: State, end: int, now: int, is_double: Callable[[Origin], bool]) -> Tally:
        """Return how many messages before *end* are not settled by *state*.

        Args:
            state: The settlement.
            end: The offset after the last that counts.
            now: The time, in milliseconds since the epoch.
            is_double: Returns whether a relocated message is counted elsewhere.
        """
        tally, in_flight = Tally(), state.in_flight
        for first, past in unsettled_runs(state, self.start, end):
            low, high = bisect_left(self._offsets, first), bisect_left(self._offsets, past)
            if low == high:
                continue
            if self._marked:
                self._tally_each(tally, low, high, in_flight, now, is_double)
                continue
            tally.pending += high - low
            for begin, end_of_run in in_flight:
                if begin < past and end_of_run > first:
                    at = bisect_left(self._offsets, begin, low, high)
                    tally.dispatched += bisect_left(self._offsets, end_of_run, at, high) - at
            oldest = min(self._times[low:high])
            tally.oldest = oldest if tally.oldest is None else min(tally.oldest, oldest)
        return tally

    def _tally_each(
        self,
        tally: Tally,
        low: int,
        high: int,
        in_flight: Sequence[tuple[int, int]],
        now: int,
        is_double: Callable[[Origin], bool],
    ) -> None:
        for at in range(low, high):
            offset, time = self._offsets[at], self._times[at]
            facts = self._marked.get(offset)
            if facts is not None:
                if facts.origin is not None and is_double(facts.origin):
                    continue
                if 0 < facts.expiration < now:
                    tally.expired += 1
                    continue
                if facts.due > now:
                    tally.early += 1
                    continue
                if facts.label:
                    tally.labels[facts.label] += 1
            tally.pending += 1
            tally.dispatched += any(first <= offset < past for first, past in in_flight)
            if tally.oldest is None or time < tally.oldest:
                tally.oldest = time


class DelayedIndex:
    """The messages that wait in one partition of a topic for delayed messages.

    Attributes:
        position: The offset that is to be read next.
    """

    __slots__ = ("_due", "position")

    def __init__(self) -> None:
        self.position = 0
        self._due: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._due)

    def overdue(self, now: int) -> int:
        """Return how many messages are due at *now*, in milliseconds since the epoch, and were not moved yet."""
        return sum(due <= now for due in self._due.values())

    def add(self, offset: int, found: int | Note | Definition) -> None:
        """Note what was read at *offset*: when a message is due, what happened to others, or a periodic message."""
        if isinstance(found, int):
            self._due[offset] = found
        elif isinstance(found, Note) and found.kind not in REQUESTS:
            for settled in found.offsets:
                self._due.pop(settled, None)

    def move_to(self, begin: int) -> None:
        """Note that the log begins at *begin*: Kafka has deleted what was before."""
        self.position = max(self.position, begin)
        if self._due and min(self._due) < begin:
            self._due = {offset: due for offset, due in self._due.items() if offset >= begin}
