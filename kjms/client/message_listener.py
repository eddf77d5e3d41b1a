"""Message listeners: what a session calls for each message."""

from __future__ import annotations

from collections.abc import Callable

from kjms.errors import shown
from kjms.message import Message

__all__ = ["MessageListener", "called_as_listener"]

MessageListener = Callable[[Message], object]


def called_as_listener(listener: MessageListener | None) -> MessageListener | None:
    """Return what is to be called for each message: *listener*, or its ``on_message``.

    Raises:
        ValueError: It is not a function and has no ``on_message``.
    """
    if listener is None or callable(listener):
        return listener
    on_message = getattr(listener, "on_message", None)
    if not callable(on_message):
        raise ValueError(f"a message listener is a function or has on_message, and is not {shown(listener)}")
    return on_message
