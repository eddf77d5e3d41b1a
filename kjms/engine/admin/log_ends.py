"""Find where logs end behind the transactions that have committed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from kjms.engine.kafka import IsolationLevel

__all__ = ["ends_after_commits"]

MOST_SECONDS: Final = 2.0  # a transaction that is being committed takes milliseconds
PAUSE_SECONDS: Final = 0.005

K = TypeVar("K")


def ends_after_commits(find: Callable[[IsolationLevel], Mapping[K, int]]) -> Mapping[K, int]:
    """Return where partitions end, behind every transaction whose offsets are committed by now.

    Kafka ends a transaction in each partition on its own: for a moment its offsets are committed, and its records
    cannot be read yet. So what is open now is waited for, but not long: what stays open has settled nothing.

    Args:
        find: Asks the broker where the partitions end.
    """
    deadline = time.monotonic() + MOST_SECONDS
    wanted = find(IsolationLevel.READ_UNCOMMITTED)
    while True:
        ends = find(IsolationLevel.READ_COMMITTED)
        if time.monotonic() > deadline or all(end >= wanted.get(place, 0) for place, end in ends.items()):
            return ends
        time.sleep(PAUSE_SECONDS)
