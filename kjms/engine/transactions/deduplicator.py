"""Recognize duplicates: a record with the id of an earlier one is a duplicate, wherever it is.

Producers that try again write such records, Spark's above all: a batch whose outcome it did not learn is written once
more, with the same ids. The record that was seen first counts, and its place is kept, so that it is no duplicate of
itself when it is read again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kjms.mapping import SourceRecord

__all__ = ["LOOK_BACK", "Deduplicator"]

MOST: Final = 100_000  # ids that are kept, those seen last: some 20 MB
LOOK_BACK: Final = 10_000  # offsets of each partition that are read again when it is taken over

Place = tuple[str | None, int | None, int | None]


class Deduplicator:
    """The ids that a group consumer has seen; the caller holds its lock.

    Args:
        most: How many ids are kept.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._places: dict[bytes, Place] = {}

    def sees(self, record: SourceRecord) -> bool:
        """Return whether *record* repeats one that was seen; if not, record it. Without an id it repeats none."""
        try:
            message_id = dict(record.headers() or ()).get("JMSMessageID")
        except Exception:  # the client raises on header names that are no UTF-8
            return False
        if not message_id:
            return False
        place = record.topic(), record.partition(), record.offset()
        first = self._places.get(message_id)
        if first is not None:
            return first != place
        if len(self._places) >= self._most:
            del self._places[next(iter(self._places))]
        self._places[message_id] = place
        return False
