"""The HTTP status of a response to what failed. Pure."""

from __future__ import annotations

from typing import Final

from kjms.child_process import CalledOff
from kjms.console._access import Forbidden, LoginNeeded
from kjms.console._cluster import Unreachable
from kjms.errors import (
    IllegalStateException,
    InvalidDestinationException,
    JMSException,
    JMSSecurityException,
    ResourceAllocationException,
)

__all__ = ["status_of"]

CODES: Final = {
    "TOPIC_ALREADY_EXISTS": 409, "MSG_SIZE_TOO_LARGE": 413, "_MSG_SIZE_TOO_LARGE": 413, "RECORD_LIST_TOO_LARGE": 413
}  # fmt: skip
"""By Kafka's name of an error, which says more than the type."""
STATUS: Final[tuple[tuple[type[Exception], int], ...]] = (
    (LoginNeeded, 401),
    (Forbidden, 403),
    (JMSSecurityException, 403),
    (InvalidDestinationException, 404),
    (IllegalStateException, 409),
    (ResourceAllocationException, 429),
    (Unreachable, 503),
    (CalledOff, 503),
    (ValueError, 400),
    (JMSException, 502),
)


def status_of(error: Exception) -> int:
    """Return the status of a response to what raised *error*.

    >>> status_of(InvalidDestinationException("no")), status_of(Unreachable("no")), status_of(KeyError("no"))
    (404, 503, 500)
    """
    code = error.error_code if isinstance(error, JMSException) else None
    return CODES.get(code or "") or next((status for kind, status in STATUS if isinstance(error, kind)), 500)
