"""The batches that were processed, and not settled as a whole: what is left of them is settled when it comes again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kjms.spark._plans import Processed

if TYPE_CHECKING:
    from kjms.spark._plans import Place, Plan, PlanStore

__all__ = ["FormerBatches"]

CHECK_SECONDS: Final = 60.0  # between looks whether messages were settled elsewhere


class FormerBatches:
    """Knows what former batches made of their messages, so that none is processed a second time.

    Args:
        plans: What is kept of batches.
        unsettled: Returns the runs of offsets that may be unsettled: topic, partition, first and one past; None: that
            is not known, since messages were moved.
    """

    def __init__(self, plans: PlanStore, unsettled: Callable[[], Sequence[tuple[str, int, int, int]] | None]) -> None:
        self._plans = plans
        self._unsettled = unsettled
        self._checked_at = 0.0
        self._batches: dict[int, Processed] = {}
        for batch in plans.batches():
            kept = plans.read(batch)
            if kept is not None and kept.failed is not None:
                self.add(batch, kept.plan, kept.failed)

    def __bool__(self) -> bool:
        return bool(self._batches)

    def add(self, batch: int, plan: Plan, failed: Mapping[Place, str]) -> None:
        """Note that a batch was processed, and is not settled as a whole."""
        self._batches[batch] = Processed(plan, failed)

    def outcome(self, place: Place, deliveries: int) -> str | None:
        """Return what a former batch made of the message at *place*; see `Processed.outcome`."""
        for each in self._batches.values():
            outcome = each.outcome(place, deliveries)
            if outcome is not None:
                return outcome
        return None

    def forget_before(self, batch: int) -> None:
        """Forget the batches before *batch*, which Spark does not run again, if nothing is left to be settled of them.

        Raises:
            JMSException: Kafka does not answer.
        """
        self._check(time.monotonic())
        for number in self._plans.batches():
            if number < batch and (number not in self._batches or self._batches[number].left <= 0):
                self._batches.pop(number, None)
                self._plans.forget(number)

    def _check(self, now: float) -> None:
        """Look, now and then, whether other consumers have settled what is left."""
        if not self._batches or (self._checked_at and now - self._checked_at < CHECK_SECONDS):
            return
        self._checked_at = now
        unsettled = self._unsettled()
        for each in self._batches.values():
            if unsettled is not None and not each.holds_any(unsettled):
                each.left = 0
