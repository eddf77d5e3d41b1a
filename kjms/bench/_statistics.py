"""From the rounds of a workload to a comparison: pure arithmetic, no clock, no I/O."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from kjms.bench._workload import MAIN, Aim, Unit

__all__ = ["Comparison", "Result", "SideResult", "Verdict"]


@dataclass(frozen=True)
class Comparison:
    """How one side's figures stand to another's, as quotients.

    Args:
        side: The name of the side whose figures are divided.
        other: The name of the side that they are divided by.
        ratio: The quotient of the medians.
        lowest: The smallest quotient of a single round.
        highest: The largest one.
        is_baseline: Whether this is the comparison that counts.
    """

    side: str
    other: str
    ratio: float
    lowest: float
    highest: float
    is_baseline: bool


@dataclass(frozen=True)
class Verdict:
    """An aim, and what was measured.

    Args:
        aim: What was to be reached.
        measured: The ratio, or the figure.
        is_met: Whether it was.
        text: Both in words: ``aim 0.7x: 0.41x``.
    """

    aim: Aim
    measured: float
    is_met: bool
    text: str


@dataclass(frozen=True)
class SideResult:
    """The figures of one side, round by round."""

    name: str
    figures: Sequence[float]
    is_baseline: bool = True
    family: str = "kjms"

    @property
    def median(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.figures)


@dataclass(frozen=True)
class Result:
    """What came out of a workload; the first side is what was measured, or the smallest size of what grows."""

    name: str
    title: str
    unit: Unit
    messages: int
    sides: Sequence[SideResult]
    aims: Sequence[Aim] = ()
    set: str = MAIN
    grows: bool = False

    @property
    def baseline(self) -> SideResult | None:
        """The best of the sides that may be the baseline; None where there is nothing to compare with."""
        candidates = [side for side in self.sides[1:] if side.is_baseline]
        if not candidates or self.grows:
            return None
        best = max if self.unit.is_more_better else min
        return best(candidates, key=lambda side: side.median)

    def comparisons(self) -> list[Comparison]:
        """Return how the measured side stands to each other one; of what grows, each size to the smallest.

        >>> sides = [SideResult("kjms", [80, 90, 70]), SideResult("raw", [100, 100, 140])]
        >>> Result("send", "send", Unit.MESSAGES_PER_SECOND, 3, sides).comparisons()
        [Comparison(side='kjms', other='raw', ratio=0.8, lowest=0.5, highest=0.9, is_baseline=True)]
        """
        if not self.grows:
            baseline = self.baseline
            return [_comparison(self.sides[0], side, side is baseline) for side in self.sides[1:]]
        smallest: dict[str, SideResult] = {}
        pairs = [(side, smallest.setdefault(side.family, side)) for side in self.sides]
        pairs = [(side, first) for side, first in pairs if side is not first]
        own = [side for side, _ in pairs if side.family == self.sides[0].family]
        worst = (min if self.unit.is_more_better else max)(own, key=lambda side: side.median, default=None)
        return [_comparison(side, first, side is worst) for side, first in pairs]

    def comparison_at(self, side: SideResult) -> Comparison | None:
        """Return the comparison that stands in the row of *side*; None where there is none."""
        comparisons = self.comparisons()
        return next((each for each in comparisons if side.name == (each.side if self.grows else each.other)), None)

    def verdicts(self) -> list[Verdict]:
        """Return what was reached of each aim that there are figures for.

        >>> sides = [SideResult("kjms", [80]), SideResult("raw", [100])]
        >>> Result("a", "a", Unit.MILLISECONDS, 3, sides, [Aim(0.7), Aim(90, is_ratio=False)]).verdicts()[1].text
        'aim 90 ms: 80 ms'
        """
        counting = next((each.ratio for each in self.comparisons() if each.is_baseline), None)
        figures = [side.median for side in self.sides if side.family == self.sides[0].family]
        figure = (min if self.unit.is_more_better else max)(figures) if self.grows else figures[0]
        found = []
        for aim in self.aims:
            measured = counting if aim.is_ratio else figure
            if measured is not None:
                is_met = measured >= aim.bound if self.unit.is_more_better else measured <= aim.bound
                told = (f"{aim.bound:g}x", f"{measured:.2f}x") if aim.is_ratio else self._told(aim.bound, measured)
                found.append(Verdict(aim, measured, is_met, "aim {}: {}".format(*told)))
        return found

    def _told(self, bound: float, measured: float) -> tuple[str, str]:
        return f"{bound:g} {self.unit.text}", f"{measured:.3g} {self.unit.text}"


def _comparison(side: SideResult, other: SideResult, is_baseline: bool) -> Comparison:
    rounds = [own / theirs for own, theirs in zip(side.figures, other.figures, strict=True)]
    return Comparison(side.name, other.name, side.median / other.median, min(rounds), max(rounds), is_baseline)
