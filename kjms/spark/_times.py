"""Times of messages as timestamps, beside the milliseconds that JMS has. Text of Spark SQL, as in `kjms.spark._sql`."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

__all__ = ["TIMES", "millis", "timestamp_of"]

TIMES: Final = {"timestamp": "sentAt", "expiration": "expiresAt", "deliveryTime": "deliverAt"}
"""The columns of milliseconds, and the timestamp beside each."""

_LAST: Final = 253_402_300_799_999  # the end of the year 9999, the last that Python has


def timestamp_of(number: str) -> str:
    """Return the timestamp of *number*, milliseconds since 1970 UTC; null for 0, and beyond the times that Python has.

    An expiration of never is often the largest long.
    """
    return f"CASE WHEN {number} BETWEEN 1 AND {_LAST} THEN timestamp_millis({number}) END"


def millis(name: str, columns: Container[str]) -> str:
    """Return the milliseconds of the column *name*, and where it is null or missing of the timestamp beside it.

    >>> millis("expiration", {"expiration"}), millis("expiration", {"expiration", "expiresAt"})
    ('`expiration`', 'coalesce(`expiration`, unix_millis(`expiresAt`))')
    """
    given = [f"`{name}`"] if name in columns else []
    given += [f"unix_millis(`{TIMES[name]}`)"] if TIMES[name] in columns else []
    return "NULL" if not given else given[0] if len(given) == 1 else f"coalesce({', '.join(given)})"
