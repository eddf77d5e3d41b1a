"""What lets Kafka delete messages of a queue that were not received, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["CLEANUP", "RETENTION", "RETENTION_BYTES", "duration", "retention", "retention_warnings"]

RETENTION: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
CLEANUP: Final = "cleanup.policy"
UNLIMITED: Final = "-1"


def retention(settings: Mapping[str, str]) -> int | None:
    """Return after how many milliseconds Kafka deletes messages of a topic with these settings; None is never."""
    value = settings.get(RETENTION, UNLIMITED)
    return None if value == UNLIMITED or "delete" not in settings.get(CLEANUP, "delete") else int(value)


def retention_warnings(queue: str, settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each setting that lets Kafka delete messages of *queue* before they are received.

    >>> retention_warnings("orders", {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"})
    ()
    """
    found = []
    policy = settings.get(CLEANUP, "delete")
    age = retention(settings)
    if age is not None:
        found.append(
            f"after {duration(age)}, received or not: {RETENTION}={age}, and {RETENTION}={UNLIMITED} keeps them"
        )
    size = settings.get(RETENTION_BYTES, UNLIMITED)
    if size != UNLIMITED and "delete" in policy:
        found.append(
            f"beyond {int(size):,} bytes in a partition, received or not: {RETENTION_BYTES}={size}, and"
            f" {RETENTION_BYTES}={UNLIMITED} keeps them"
        )
    if "compact" in policy:
        found.append(f"of the same group (record key) but the last, received or not: {CLEANUP}={policy}")
    return tuple(f"Kafka deletes messages of queue {queue} {how}" for how in found)


def duration(milliseconds: int) -> str:
    """Return *milliseconds* in the largest unit that gives a whole number.

    >>> duration(604_800_000), duration(90_000)
    ('7 days', '90 seconds')
    """
    for unit, size in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000)):
        if milliseconds >= size and milliseconds % size == 0:
            count = milliseconds // size
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{milliseconds} ms"
