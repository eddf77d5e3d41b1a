"""From the rounds of a workload to a comparison: pure arithmetic, no clock, no I/O."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks._workload import Unit

__all__ = ["Comparison", "Result", "SideResult"]


@dataclass(frozen=True)
class Comparison:
    """How one side's figures stand to another's, as quotients.

    Args:
        other: The name of the side that is divided by.
        ratio: The quotient of the medians.
        lowest: The smallest quotient of a single round.
        highest: The largest one.
        is_baseline: Whether this is the comparison that counts.
    """

    other: str
    ratio: float
    lowest: float
    highest: float
    is_baseline: bool


@dataclass(frozen=True)
class SideResult:
    """The figures of one side, round by round."""

    name: str
    figures: Sequence[float]
    is_baseline: bool = True

    @property
    def median(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.figures)


@dataclass(frozen=True)
class Result:
    """What came out of a workload; the first side is what was measured."""

    name: str
    title: str
    unit: Unit
    messages: int
    sides: Sequence[SideResult]

    @property
    def baseline(self) -> SideResult | None:
        """The best of the sides that may be the baseline; None where there is nothing to compare with."""
        candidates = [side for side in self.sides[1:] if side.is_baseline]
        if not candidates:
            return None
        best = max if self.unit.is_more_better else min
        return best(candidates, key=lambda side: side.median)

    def comparisons(self) -> list[Comparison]:
        """Return how the measured side stands to each other one.

        >>> sides = [SideResult("kjms", [80, 90, 70]), SideResult("raw", [100, 100, 140])]
        >>> Result("send", "send", Unit.MESSAGES_PER_SECOND, 3, sides).comparisons()
        [Comparison(other='raw', ratio=0.8, lowest=0.5, highest=0.9, is_baseline=True)]
        """
        measured, baseline = self.sides[0], self.baseline
        compared = []
        for side in self.sides[1:]:
            rounds = [own / other for own, other in zip(measured.figures, side.figures, strict=True)]
            ratio = measured.median / side.median
            compared.append(Comparison(side.name, ratio, min(rounds), max(rounds), side is baseline))
        return compared
