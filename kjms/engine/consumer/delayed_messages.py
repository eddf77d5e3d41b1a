"""Messages that were given back, and are not due again: pure."""

from __future__ import annotations

import heapq
from typing import Generic, Protocol, TypeVar

from kjms.txn.delivery_states import DELAY, DeliveryState

__all__ = ["DelayedMessages"]


class Delayed(Protocol):
    """A delivery, as far as its delay needs it."""

    state: DeliveryState
    due: int
    order: int

    @property
    def partition(self) -> object:
        """Return where it comes from."""


D = TypeVar("D", bound=Delayed)


class DelayedMessages(Generic[D]):
    """Holds messages until they are due."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, D]] = []  # when due, order

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_due(self) -> int:
        """When the next one is due, in milliseconds since the epoch; 0: none waits."""
        return self._heap[0][0] if self._heap else 0

    def add(self, delivery: D) -> None:
        """Hold *delivery* until it is due."""
        delivery.state = DELAY[delivery.state]
        heapq.heappush(self._heap, (delivery.due, delivery.order, delivery))

    def release(self, now: int) -> list[D]:
        """Remove and return what is due at *now*, in milliseconds since the epoch."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            delivery = heapq.heappop(self._heap)[2]
            delivery.due = 0
            due.append(delivery)
        return due

    def drop(self, partition: object) -> None:
        """Forget the messages of *partition*."""
        self._heap = [entry for entry in self._heap if entry[2].partition is not partition]
        heapq.heapify(self._heap)
