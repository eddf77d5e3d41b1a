"""Access denied by the broker, reported to waiting consumers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from kjms.errors import JMSException, JMSSecurityException

__all__ = ["AccessDenial"]

_log = logging.getLogger("kjms.consumer")

FRESH_SECONDS: Final = 3.0  # the source tries again every second, and is refused again if nothing has changed
REMINDER_SECONDS: Final = 60.0  # between reports to the exception listeners, while it lasts


class AccessDenial:
    """The reason of the broker's last refusal of a source.

    Args:
        on_error: Receives the denial once in a while, for exception listeners.
    """

    def __init__(self, on_error: Callable[[JMSException], None]) -> None:
        self._on_error = on_error
        self._why: JMSSecurityException | None = None
        self._since = 0.0
        self._reported_at = -REMINDER_SECONDS

    def note(self, why: JMSSecurityException) -> None:
        """Note that the source was refused just now."""
        now = time.monotonic()
        is_due = self._why is None or self._why.reason != why.reason or now - self._reported_at > REMINDER_SECONDS
        self._why, self._since = why, now
        if is_due:
            self._reported_at = now
            _log.warning("%s", why)
            self._on_error(why)

    def failed(self, name: str, error: Exception) -> None:
        """Report why the consumer thread of *name* failed."""
        if isinstance(error, JMSSecurityException):
            self.note(error)
        else:
            _log.error("reading %s failed", name, exc_info=error)
            self._on_error(JMSException(f"reading {name} failed: {error}", None, error))

    def over(self) -> None:
        """Note that the source was let in."""
        self._why = None

    def check(self) -> None:
        """Raise the denial, if there is one.

        Raises:
            JMSSecurityException: The source was refused a moment ago.
        """
        why = self._why
        if why is not None and time.monotonic() - self._since < FRESH_SECONDS:
            raise JMSSecurityException(why.reason, why.error_code, why.linked_exception)
