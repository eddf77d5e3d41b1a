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
    return next((status for kind, status in STATUS if isinstance(error, kind)), 500)
