"""Exception listeners: what a connection reports trouble to that no call can raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kjms.errors import JMSException, shown

__all__ = ["ExceptionListener", "listener_methods"]

ExceptionListener = Callable[[JMSException], object]


def listener_methods(listener: Any) -> tuple[ExceptionListener, ExceptionListener | None]:
    """Return what an exception listener is called by when a failure is told, and when an outage is over.

    Raises:
        ValueError: *listener* is not a function and has no ``on_exception``.
    """
    on_exception = listener if callable(listener) else getattr(listener, "on_exception", None)
    if not callable(on_exception):
        raise ValueError(f"an exception listener is a function or has on_exception, and is not {shown(listener)}")
    on_recovery = getattr(listener, "on_recovery", None)
    return on_exception, on_recovery if callable(on_recovery) else None
