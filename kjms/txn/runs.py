"""The unsettled offsets of a partition as runs: those that were read, and those that the previous owner committed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kjms.txn.metadata import State

__all__ = ["RestoredState", "UnsettledRuns"]

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

    def without(self, settled: Collection[int]) -> Iterator[Run]:
        """Return the runs without the offsets *settled*."""
        left = sorted(settled, reverse=True)
        for first, past in self:
            begin = first
            while left and left[-1] < past:
                offset = left.pop()
                if offset >= begin:
                    if offset > begin:
                        yield begin, offset
                    begin = offset + 1
            if begin < past:
                yield begin, past

    def end(self, top: int) -> int:
        """Return *top*, or where the run begins that reaches it: nothing is settled from there on."""
        at = -1 if self._gaps else bisect_left(self.firsts, top) - 1
        return self.firsts[at] if at >= 0 and self.pasts[at] >= top else top

    def below(self, top: int, settled: Collection[int]) -> tuple[list[Run], int | None]:
        """Return the runs below *top* without *settled*, and the first offset where all of them lie beyond *top*."""
        runs: list[Run] = []
        if settled or self._gaps:
            for first, past in self.without(settled):
                if first >= top:
                    if not runs:
                        return runs, first
                    break
                is_joined = bool(runs) and self._gaps.get(runs[-1][1]) == first
                runs.append((runs.pop()[0] if is_joined else first, min(past, top)))
        else:  # there may be a thousand, for every message that is acknowledged
            count = bisect_left(self.firsts, top)
            if not count and self.firsts:
                return runs, self.firsts[0]
            runs += zip(self.firsts[:count], self.pasts[:count], strict=True)
            if runs and runs[-1][1] > top:
                runs[-1] = runs[-1][0], top
        return runs, None

    def joined(self, top: int) -> list[list[Run]]:
        """Return the runs that begin below *top*, those together that only holes of the log part."""
        found: list[list[Run]] = []
        for first, past in self:
            if first >= top:
                break
            if found and self._gaps.get(found[-1][-1][1]) == first:
                found[-1].append((first, past))
            else:
                found.append([(first, past)])
        return found

    def forget_gaps(self, low: int) -> None:
        """Forget holes up to *low*, where there are many."""
        if len(self._gaps) > MOST_GAPS:
            self._gaps = {begin: past for begin, past in self._gaps.items() if begin > low}


class RestoredState:
    """What the previous owner committed, looked up in rising order of offsets.

    Args:
        state: The state; None: nothing was committed.

    Attributes:
        known: From this offset on nothing is settled.
        dispatch_limit: What is unsettled below was possibly delivered.
    """

    __slots__ = ("_next", "_runs", "dispatch_limit", "known")

    def __init__(self, state: State | None) -> None:
        self.known = -1 if state is None else state.known
        self.dispatch_limit = -1 if state is None else state.dispatch_limit
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
