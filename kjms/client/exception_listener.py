"""Exception listeners: what a connection reports trouble to that no call can raise."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Any

from kjms.engine import start_thread
from kjms.errors import JMSException, ResourceAllocationException, shown

__all__ = ["ExceptionListener", "ExceptionReporter", "listener_methods"]

_log = logging.getLogger("kjms.connection")

ExceptionListener = Callable[[JMSException], object]


def listener_methods(listener: Any) -> tuple[ExceptionListener, ExceptionListener | None]:
    """Return what an exception listener is called by when a failure is reported, and when an outage is over.

    Raises:
        ValueError: *listener* is not a function and has no ``on_exception``.
    """
    on_exception = listener if callable(listener) else getattr(listener, "on_exception", None)
    if not callable(on_exception):
        raise ValueError(f"an exception listener is a function or has on_exception, and is not {shown(listener)}")
    on_recovery = getattr(listener, "on_recovery", None)
    return on_exception, on_recovery if callable(on_recovery) else None


class ExceptionReporter:
    """Calls the exception listener of a connection, one report after the other (JMS 2.0 §4.3.8).

    Args:
        number: The connection's.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self.listener: ExceptionListener | None = None
        self._on_recovery: ExceptionListener | None = None
        self._reporting = threading.Lock()

    def set(self, listener: ExceptionListener | None) -> None:
        """Report to *listener* from now on.

        Raises:
            ValueError: It is not a function and has no ``on_exception``.
        """
        self.listener, self._on_recovery = (None, None) if listener is None else listener_methods(listener)

    def report(self, failure: JMSException) -> None:
        """Report *failure*, which no call can raise."""
        self._call(self.listener, failure)

    def report_recovery(self, failure: JMSException) -> None:
        """Report that the outage is over that *failure* reported, if the listener has a method for it."""
        self._call(self._on_recovery, failure)

    def _call(self, listener: ExceptionListener | None, failure: JMSException) -> None:
        """Call *listener* in a thread of its own: it may close the connection."""
        if listener is None:
            return

        def call() -> None:
            try:
                with self._reporting:
                    listener(failure)
            except Exception:
                _log.exception("the exception listener of connection %d raised", self._number)

        with contextlib.suppress(ResourceAllocationException):  # the interpreter ends, perhaps
            start_thread(call, f"kjms-connection-{self._number}-exception")
