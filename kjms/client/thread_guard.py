"""One thread at a time: the rule for sessions, and the error that names both threads when it is broken."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

from kjms.errors import IllegalStateException

__all__ = ["ThreadGuard"]


class ThreadGuard:
    """The turn to use a session (JMS 2.0 §4.4.6): nobody waits for it, the second caller learns who the first one is.

    Args:
        owner: What is taken turns at, for error texts.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._holder = 0  # the identifier of its thread
        self._lock = threading.RLock()  # re-entrant: a listener may use its own session

    def take(self, action: str) -> int:
        """Take the turn for *action*, such as "receive", and return what `give_back` wants.

        Raises:
            IllegalStateException: Another thread holds it.
        """
        if not self._lock.acquire(blocking=False):
            holder = self._holder
            name = next((thread.name for thread in threading.enumerate() if thread.ident == holder), "?")
            raise IllegalStateException(
                f"{self._owner}: thread {threading.current_thread().name!r} tried to {action} while thread"
                f" {name!r} was using it (JMS 2.0 §4.4.6)"
            )
        outer, self._holder = self._holder, get_ident()
        return outer

    def give_back(self, outer: int) -> None:
        """Give the turn back to *outer*, or to nobody."""
        self._holder = outer
        self._lock.release()

    @contextmanager
    def taken_to(self, action: str) -> Iterator[None]:
        """Hold the turn for *action*; the hot paths of sending and receiving call `take` and `give_back` themselves."""
        outer = self.take(action)
        try:
            yield
        finally:
            self.give_back(outer)

    @contextmanager
    def waited_for(self, seconds: float = -1) -> Iterator[None]:
        """Hold the turn as soon as whoever has it is through: for the session's own thread, and for closing.

        Args:
            seconds: Go on without it after so long, where whoever has it cannot get through; -1: never.
        """
        if not self._lock.acquire(timeout=seconds):
            yield
            return
        outer, self._holder = self._holder, get_ident()
        try:
            yield
        finally:
            self.give_back(outer)
