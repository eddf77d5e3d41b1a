"""The unsettled offsets of a partition as runs: those that were read, and those that the previous owner committed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import sub
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kjms.txn.metadata import State

__all__ = ["OffsetRuns", "RestoredState", "UnsettledRuns"]

MOST_GAPS: Final = 1_000  # before those that tell nothing any more are forgotten

Run = tuple[int, int]
"""The first offset, and one past the last."""


class UnsettledRuns:
    """The offsets that were read and are not settled, and the holes of the log between them.

    Attributes:
        firsts: Where each run begins, rising.
        pasts: And the offset after its last.
    """

    __slots__ = ("_gaps", "firsts", "pasts")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.pasts: list[int] = []
        self._gaps: dict[int, int] = {}  # holes in the log: where each begins, and the offset after it

    def __iter__(self) -> Iterator[Run]:
        return zip(self.firsts, self.pasts, strict=True)

    def add(self, first: int, past: int) -> None:
        """Add the offsets from *first* to *past*, which are above all others."""
        pasts = self.pasts
        if pasts and pasts[-1] == first:
            pasts[-1] = past
        else:
            self.firsts.append(first)
            pasts.append(past)

    def skip(self, begin: int, past: int) -> None:
        """Note that the log has a hole from *begin* to *past*."""
        self._gaps[begin] = past

    def remove(self, begin: int, end: int) -> None:
        """Take the offsets from *begin* to *end*, all of them in one run, out of it.

        What is changed is changed without a call in between, where Python would run the handler of Ctrl-C.
        """
        firsts, pasts = self.firsts, self.pasts
        at = 0 if firsts[0] == begin else bisect_right(firsts, begin) - 1
        first, past = firsts[at], pasts[at]
        if first == begin:
            if past == end:
                del firsts[at], pasts[at]
            else:
                firsts[at] = end
        else:
            pasts[at] = begin
            if past != end:
                firsts[at + 1 : at + 1] = (end,)
                pasts[at + 1 : at + 1] = (past,)

    def remove_each(self, offsets: Collection[int]) -> None:
        """Take *offsets*, which are in runs, out of them."""
        self.firsts, self.pasts = self.without(offsets)

    def joined(self, offsets: Iterable[int]) -> list[Run]:
        """Return *offsets* as runs; those are one that no other unsettled offset parts."""
        runs: list[Run] = []
        first = past = -1
        for offset in sorted(offsets):
            if offset != past and (past < 0 or self.next_from(past) != offset):
                if past >= 0:
                    runs.append((first, past))
                first = offset
            past = offset + 1
        if past >= 0:
            runs.append((first, past))
        return runs

    def holds(self, offset: int) -> bool:
        """Tell whether *offset* is in a run."""
        at = bisect_right(self.firsts, offset) - 1
        return at >= 0 and offset < self.pasts[at]

    def next_from(self, offset: int) -> int | None:
        """Return the first offset from *offset* on that is in a run; None: none is."""
        at = bisect_right(self.pasts, offset)
        return max(self.firsts[at], offset) if at < len(self.firsts) else None

    def offsets_below(self, low: int) -> Iterator[int]:
        """Return the offsets below *low*, rising."""
        for first, past in self:
            if first >= low:
                return
            yield from range(first, min(past, low))

    def without(self, settled: Collection[int]) -> tuple[list[int], list[int]]:
        """Return the runs without the offsets *settled*: where each begins, and the offset after its last."""
        gone, firsts, pasts = set(settled), self.firsts, self.pasts
        whole = [at for at, first in enumerate(firsts) if first not in gone or pasts[at] - first > 1]
        if len(firsts) - len(whole) == len(gone):  # most are runs of one offset, where there are many
            return [firsts[at] for at in whole], [pasts[at] for at in whole]
        left = sorted(gone, reverse=True)
        begins: list[int] = []
        ends: list[int] = []
        for at in whole:
            begin, past = firsts[at], pasts[at]
            while left and left[-1] < past:
                offset = left.pop()
                if offset >= begin:
                    if offset > begin:
                        begins.append(begin)
                        ends.append(offset)
                    begin = offset + 1
            if begin < past:
                begins.append(begin)
                ends.append(past)
        return begins, ends

    def end(self, top: int) -> int:
        """Return *top*, or where the run begins that reaches it: nothing is settled from there on."""
        at = -1 if self._gaps else bisect_left(self.firsts, top) - 1
        return self.firsts[at] if at >= 0 and self.pasts[at] >= top else top

    def below(self, top: int, settled: Collection[int]) -> tuple[list[int], list[int], int | None]:
        """Return the runs below *top* without *settled*, and the first offset where all of them lie beyond *top*.

        Of the runs: where each begins, and the offset after its last. Those are one that only holes of the log part.
        """
        firsts, pasts = self.without(settled) if settled else (self.firsts, self.pasts)
        count = bisect_left(firsts, top)
        if not count and firsts:
            return [], [], firsts[0]
        firsts, pasts = firsts[:count], pasts[:count]
        if count and pasts[-1] > top:
            pasts[-1] = top
        if self._gaps:
            begins = self._begins(firsts, pasts)
            firsts, pasts = [firsts[at] for at in begins], [pasts[at - 1] for at in (*begins[1:], count) if at]
        return firsts, pasts, None

    def shortest(self, top: int, share: float) -> Iterator[list[int]]:
        """Return the offsets of the shortest *share* of the pieces below *top*.

        A piece is one run, or several that only holes of the log part.
        """
        count = bisect_left(self.firsts, top)
        firsts, pasts = self.firsts[:count], self.pasts[:count]
        lengths = [*map(sub, pasts, firsts)]
        begins = self._begins(firsts, pasts) if self._gaps else range(count)
        ends = [*begins[1:], count]
        if self._gaps:
            lengths = [sum(lengths[begin:end]) for begin, end in zip(begins, ends, strict=True)]
        for number in sorted(range(len(begins)), key=lengths.__getitem__)[: max(1, int(len(begins) * share))]:
            yield [offset for at in range(begins[number], ends[number]) for offset in range(firsts[at], pasts[at])]

    def _begins(self, firsts: Sequence[int], pasts: Sequence[int]) -> Sequence[int]:
        """Return the numbers of the runs that not only a hole of the log parts from the one before."""
        gaps = self._gaps
        return [at for at, first in enumerate(firsts) if not at or gaps.get(pasts[at - 1]) != first]

    def forget_gaps(self, low: int) -> None:
        """Forget holes up to *low*, where there are many."""
        if len(self._gaps) > MOST_GAPS:
            self._gaps = {begin: past for begin, past in self._gaps.items() if begin > low}


class OffsetRuns:
    """Runs of offsets to which others are added in any order.

    Args:
        runs: The first ones, rising and disjoint.
    """

    __slots__ = ("firsts", "pasts")

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self.firsts: list[int] = []
        self.pasts: list[int] = []
        for first, past in runs:
            self.add(first, past)

    def __iter__(self) -> Iterator[Run]:
        return zip(self.firsts, self.pasts, strict=True)

    def copy(self) -> OffsetRuns:
        """Return a copy."""
        copied = OffsetRuns()
        copied.firsts, copied.pasts = self.firsts[:], self.pasts[:]
        return copied

    def add(self, first: int, past: int) -> None:
        """Add the offsets from *first* to *past*."""
        if first >= past:
            return
        low, high = bisect_left(self.pasts, first), bisect_right(self.firsts, past)
        if low < high:  # it meets others
            first, past = min(first, self.firsts[low]), max(past, self.pasts[high - 1])
        self.firsts[low:high], self.pasts[low:high] = [first], [past]

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self.firsts, offset) - 1
        return at >= 0 and offset < self.pasts[at]

    @property
    def end(self) -> int:
        """The offset after the last one; -1: there is none."""
        return self.pasts[-1] if self.pasts else -1

    def forget(self, low: int) -> None:
        """Forget the runs that end at *low* or before."""
        count = bisect_right(self.pasts, low)
        if count:
            del self.firsts[:count], self.pasts[:count]


class RestoredState:
    """What the previous owner committed, looked up in rising order of offsets.

    Args:
        state: The state; None: nothing was committed.

    Attributes:
        known: From this offset on nothing is settled.
    """

    __slots__ = ("_next", "_runs", "known")

    def __init__(self, state: State | None) -> None:
        self.known = -1 if state is None else state.known
        self._runs = () if state is None else tuple(state.runs)
        self._next = 0

    def has_unsettled(self, offset: int) -> bool:
        """Tell whether *offset*, which is not below the last one asked for, is unsettled."""
        while self._next < len(self._runs):
            first, past = self._runs[self._next]
            if offset < past:
                return offset >= first
            self._next += 1
        return False

    def next_from(self, offset: int) -> int:
        """Return the first offset from *offset* on, not below the last one asked for, that is not settled."""
        if offset >= self.known or self.has_unsettled(offset):
            return offset
        return self._runs[self._next][0] if self._next < len(self._runs) else self.known

    def beyond(self, start: int) -> Iterator[Run]:
        """Return the runs from *start* on."""
        for first, past in self._runs[self._next :]:
            if past > start:
                yield max(first, start), past
