"""Unmatched messages that are dropped from memory, and what waits until they are re-read: pure."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

from kjms.txn.delivery_states import EVICT, DeliveryState
from kjms.txn.states import PartitionSettlement

__all__ = ["Eviction"]


class Evicting(Protocol):
    """A partition, as far as eviction needs it."""

    is_overflow: bool
    is_crowded: bool
    settlement: PartitionSettlement[Any]


P = TypeVar("P", bound=Evicting)


class Evictable(Protocol):
    """A delivery, as far as eviction needs it."""

    state: DeliveryState
    partition: Any
    offset: int
    ready_in: int
    is_relocating: bool


D = TypeVar("D", bound=Evictable)


class Eviction(Generic[P]):
    """The partitions with evicted messages.

    Args:
        is_possible: Whether messages can be re-read.
        most_unmatched: How many unmatched messages are held before the older half of them is evicted.

    Attributes:
        wants_reread: Whether a consumer has come whose selector may match evicted messages.
        due_at: How many unmatched messages are too many for now.
        is_urgent: Whether one has come that gets them in order, all of them: nothing newer is made ready meanwhile.
    """

    def __init__(self, *, is_possible: bool, most_unmatched: int) -> None:
        self.wants_reread = self.is_urgent = False
        self._most_unmatched = most_unmatched
        self.due_at = most_unmatched if is_possible else sys.maxsize
        self._evicted: set[P] = set()  # the partitions of which messages were evicted
        self._passed_over: set[P] = set()  # whose messages a consumer that came has not been given yet
        self._in_order: set[P] = set()  # of which nothing is made ready before the evicted ones
        self._is_overflow_first = False  # nor of any partition but the overflow topic: what is there is older

    def joined(self, *, is_for_all: bool) -> set[P]:
        """Note that a consumer came with another selector, or with none; return where it waits for a re-read."""
        self._evicted = {partition for partition in self._evicted if partition.settlement.evicted}
        evicted = self._with_evicted()
        self._passed_over |= evicted  # older ones come first
        if is_for_all:
            self._in_order |= evicted
            self._is_overflow_first = any(partition.is_overflow for partition in self._evicted)
            self.is_urgent = bool(self._in_order) or self._is_overflow_first
        self.wants_reread = self.wants_reread or self.is_urgent or bool(evicted)
        return evicted

    def peer_joined(self) -> None:
        """Note that a peer came with a selector that none had."""
        self.wants_reread = self.wants_reread or bool(self._with_evicted())

    def holds_back(self, partition: P) -> bool:
        """Return whether nothing of *partition* is made ready before what is evicted has been re-read."""
        return partition in self._in_order or (self._is_overflow_first and not partition.is_overflow)

    def evict(self, delivery: Evictable) -> None:
        """Drop *delivery* from memory."""
        self._evicted.add(delivery.partition)
        delivery.state = EVICT[delivery.state]
        delivery.ready_in = 0
        delivery.partition.settlement.evict(delivery.offset)

    def trim(self, unmatched: list[D], is_wanted_elsewhere: Callable[[D], bool]) -> list[D]:
        """Return what is left of *unmatched* without the older half, which is evicted."""
        half = len(unmatched) >> 1
        kept = []
        for delivery in unmatched[:half]:
            # What makes a settlement large is relocated before it is evicted: then it is together.
            if _stays(delivery) or delivery.partition.is_crowded or is_wanted_elsewhere(delivery):
                kept.append(delivery)
            else:
                self.evict(delivery)
        left = kept + unmatched[half:]
        self.due_at = max(self._most_unmatched, len(left) + half)
        return left

    def reread(self, everything: Iterable[D], *, is_for_all: bool) -> tuple[list[P], list[D], int]:
        """Return the partitions to be re-read, and what of *everything* is to be matched anew, and how much was ready.

        Args:
            everything: What is ready or unmatched, oldest first; what is of these partitions is evicted with it.
            is_for_all: Whether a consumer without a selector is there: then the overflow topic is re-read first.
        """
        everything = list(everything)
        partitions = self._with_evicted() | {d.partition for d in everything if self.holds_back(d.partition)}
        passed_over, self._passed_over = self._passed_over | partitions, set()
        left, ready = [], 0
        for delivery in everything:
            if delivery.partition in passed_over or not delivery.ready_in:
                ready += bool(delivery.ready_in)
                if delivery.partition in partitions and not _stays(delivery):
                    self.evict(delivery)
                else:
                    left.append(delivery)
        self._evicted |= partitions
        overflow = {partition for partition in partitions if partition.is_overflow}
        self._is_overflow_first = self._is_overflow_first and bool(overflow) and is_for_all
        first = overflow if self._is_overflow_first else partitions
        self._in_order = partitions - first
        self.is_urgent = self.wants_reread = self._is_overflow_first
        return list(first), left, ready

    def drop(self, partition: P) -> None:
        """Forget *partition*: another process has it now."""
        self._evicted.discard(partition)
        self._passed_over.discard(partition)
        self._in_order.discard(partition)

    def _with_evicted(self) -> set[P]:
        return {partition for partition in self._evicted if partition.settlement.has_evicted}


def _stays(delivery: Evictable) -> bool:
    """Return whether *delivery* cannot be evicted: it is being relocated, or reading has not come to it yet."""
    return delivery.is_relocating or delivery.offset >= delivery.partition.settlement.position
