"""One thread at a time: the rule for sessions, and the error that names both threads when it is broken."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import get_ident

from kjms.errors import IllegalStateException

__all__ = ["ThreadGuard"]


class ThreadGuard:
    """Raise IllegalStateException when a second thread uses a session (JMS 2.0 §4.4.6); the error names both.

    Args:
        owner: What is guarded, for error texts.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._holder = 0  # the identifier of the thread that holds the lock, or held it last
        lock = threading.RLock()  # re-entrant: a listener may use its own session
        self._acquire = lock.acquire
        self.release = lock.release  # without a call in Python: one for each message

    def acquire(self, action: str) -> None:
        """Begin *action*, such as "receive", which `release` ends.

        Raises:
            IllegalStateException: Another thread uses the session.
        """
        try:
            if self._acquire(False):  # blocking=False takes twice as long
                self._holder = get_ident()
                return
        except BaseException:  # Ctrl-C, which is raised when one of the two calls has returned
            with suppress(RuntimeError):  # another thread has it
                self.release()
            raise
        holder = self._holder
        name = next((thread.name for thread in threading.enumerate() if thread.ident == holder), "?")
        raise IllegalStateException(
            f"{self._owner}: thread {threading.current_thread().name!r} tried to {action} while thread"
            f" {name!r} was using it (JMS 2.0 §4.4.6)"
        )

    def acquire_later(self) -> None:
        """Begin an action when that of another thread has ended; `release` ends it."""
        self._acquire()
        self._holder = get_ident()

    @contextmanager
    def taken_to(self, action: str) -> Iterator[None]:
        """Guard *action*; the hot paths of sending and receiving call `acquire` and `release` themselves."""
        self.acquire(action)
        try:
            yield
        finally:
            self.release()

    @contextmanager
    def waited_for(self, seconds: float = -1) -> Iterator[None]:
        """Wait until the action of another thread ends: for the session's own thread, and for closing.

        Args:
            seconds: Continue unguarded after so long, where the other action cannot end; -1: never.
        """
        if not self._acquire(timeout=seconds):
            yield
            return
        self._holder = get_ident()
        try:
            yield
        finally:
            self.release()
