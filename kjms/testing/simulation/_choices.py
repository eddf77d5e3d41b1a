"""What a seed decides in a simulated world: which faults happen, where, and what comes first."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from random import Random
from typing import Final, Literal, TypeAlias, get_args

from kjms.errors import hint, shown

__all__ = ["Choices", "Fault", "checked_faults"]

Fault: TypeAlias = Literal["crash", "pause", "lost partition", "failed send", "lost answer", "aborted transaction"]
"""What a simulated world does to programs; `simulated` says what each of them is."""

MOST_FAULTS: Final = 5  # in one world: few enough to read, and below the ten deliveries of a dead letter
RATES: Final = (0.3, 0.2, 0.1, 0.05, 0.02)  # of places at which a fault happens, while there are faults left
PLACES: Final = ("", "line", "sees", "line", "reaches", "sends", "line", "acknowledges", "commits", "returns")
FAVOURED: Final = 0.1  # the rate, at least, at the kind of places where a world has most of its faults; "": none
UNFAVOURED: Final = 0.25  # of the rate at others


class Choices:
    """Draws what happens from one source of random numbers; its smallest draws are those without faults.

    Args:
        random: The source: of a seed, or of hypothesis, which shrinks what it draws towards 0.
        without: The faults that never happen.

    Attributes:
        made: How often each fault happened, by what it is and where.
        is_over: Whether nothing is drawn any more: the world ends.
    """

    def __init__(self, random: Random, without: Collection[Fault]) -> None:
        self.made: Counter[str] = Counter()
        self.is_over = False
        self._random = random
        self._without = frozenset(without)
        self._left = self.below(MOST_FAULTS + 1)
        self._rate = self.of(RATES)
        self._favourite = PLACES[self.below(len(PLACES))]

    def below(self, limit: int) -> int:
        """Return a number from 0 up to *limit*, and less than that."""
        if limit < 2 or self.is_over:
            return 0
        with _untraced():
            return self._random.randrange(limit)

    def of(self, values: tuple[float, ...]) -> float:
        """Return one of *values*."""
        return values[self.below(len(values))]

    def fault(self, place: str, *faults: Fault) -> Fault | None:
        """Return which of *faults* happens at *place*, which is one of `PLACES`; None: none does."""
        possible = [each for each in faults if each not in self._without]
        if not self._left or self.is_over or not possible:
            return None
        rate = self._rate
        if self._favourite:
            rate = max(rate, FAVOURED) if place == self._favourite else rate * UNFAVOURED
        with _untraced():
            if self._random.random() < 1 - rate:
                return None
        self._left -= 1
        return possible[self.below(len(possible))]


@contextmanager
def _untraced() -> Iterator[None]:
    """Trace no lines of a source of random numbers, which may run much code; other tracers see them."""
    trace = sys.gettrace()
    if not str(getattr(trace, "__module__", "")).startswith("kjms.testing."):
        yield
        return
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(trace)


def checked_faults(without: Collection[str]) -> Collection[Fault]:
    """Return *without*, whose values are faults.

    Raises:
        TypeError: It is one text.
        ValueError: There is no such fault.
    """
    known = get_args(Fault)
    if isinstance(without, str):
        raise TypeError(f"without is a collection of faults, such as ({without!r},), and not text")
    for each in without:
        if each not in known:
            raise ValueError(f"without: there is no fault {shown(each)}{hint(str(each), known)}; there are {known}")
    return without  # type: ignore[return-value]  # each of them was compared
