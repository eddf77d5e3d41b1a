"""Count and log the records of kjms's own topics that cannot be read; each is skipped, and what follows is read."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from typing import Final

from kjms.mapping.internal import LaterVersionError, MalformedError

__all__ = ["SkippedRecords"]

_log: Final = logging.getLogger("kjms.engine")


class SkippedRecords:
    """The records that one engine has skipped; any thread may use it.

    Logs are read again, and in the order of their offsets. So a record is new where its offset is beyond all that were
    skipped in its partition: it is counted and logged once, and of each partition one number is kept.

    >>> skipped = SkippedRecords()
    >>> skipped.add("kjms.registry", 0, 7, MalformedError("it is no JSON"))
    >>> skipped.add("kjms.registry", 0, 7, MalformedError("it is no JSON"))
    >>> skipped.counts()
    (('kjms.registry', 1),)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[tuple[str, int], int] = {}
        self._counts: Counter[str] = Counter()

    def add(self, topic: str | None, partition: int | None, offset: int | None, error: MalformedError) -> None:
        """Count and log that a record was skipped because of *error*, unless that was done before.

        Records of later versions are no damage, and are neither counted nor logged as such.
        """
        if isinstance(error, LaterVersionError):
            _log.debug("skipped %s[%s]@%s: %s", topic, partition, offset, error)
            return
        place, at = (topic or "", partition or 0), offset or 0
        with self._lock:
            if at <= self._last.get(place, -1):
                return
            self._last[place] = at
            self._counts[place[0]] += 1
        _log.warning("skipped the record %s[%d]@%d: %s", *place, at, error)

    def counts(self) -> tuple[tuple[str, int], ...]:
        """Return how many records were skipped, by topic."""
        with self._lock:
            return tuple(sorted(self._counts.items()))
