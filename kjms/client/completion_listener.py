"""Completion listeners: what an asynchronous send reports to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kjms.message import Message

__all__ = ["CompletionListener"]


class CompletionListener(Protocol):
    """Called with the outcome of an asynchronous send (JMS 2.0 §4.6.2).

    The listeners of a session are called in the order of sending, one at a time, by a thread that quick listeners of
    other sessions share.
    """

    def on_completion(self, message: Message) -> None:
        """Note that *message* was sent, as surely as a synchronous send would have."""

    def on_exception(self, message: Message, exception: Exception) -> None:
        """Note that *message* was not sent, and why."""
