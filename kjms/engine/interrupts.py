"""What Ctrl-C, and what other handlers of signals raise, must not break in the main thread.

Where C calls Python, a signal's handler may raise: confluent-kafka takes that for a failure of its own and puts another
error in its place, or lets Python do so. And Python's own conditions and events stay locked without end if an
interrupt comes when they have just been locked, which holds up each thread that uses them later.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

__all__ = ["Condition", "Event", "interrupt_behind"]

_HEADER: Final = "expected header key to be unicode string"


def interrupt_behind(error: Exception) -> BaseException | None:
    """Return what a signal's handler raised inside of a call of the Kafka client, which raised *error* instead.

    `produce` calls ``str()`` for the name of each header, where Python runs the handlers of signals, and drops what
    they raised: KeyboardInterrupt stands for it, whatever it was. For a name, ``str()`` fails for no other reason.

    Returns:
        None: *error* is the call's own.
    """
    if isinstance(error, TypeError) and str(error) == _HEADER:
        return KeyboardInterrupt()
    cause = error.__cause__
    return None if isinstance(cause, Exception) else cause


class Condition(threading.Condition):
    """A condition that an interrupt leaves in order: locked in its ``with`` statement, and unlocked after it.

    ``with`` calls the lock's own methods, which are C: no handler of a signal runs between one of them and what Python
    does next. `threading.Condition` has methods in Python around them, at each end of which a handler may raise.

    Args:
        lock: A re-entrant lock, held once while the condition is waited for; None: one of its own.
    """

    _lock: Any
    _waiters: Any

    def __init__(self, lock: threading.RLock | None = None) -> None:
        super().__init__(threading.RLock() if lock is None else lock)

    if not TYPE_CHECKING:
        __enter__ = property(lambda self: self._lock.__enter__)
        __exit__ = property(lambda self: self._lock.__exit__)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until notified, as `threading.Condition` does; the lock is held again when this returns or raises."""
        waiter = threading.Lock()
        waiter.acquire()
        waiters: deque[threading.Lock] = self._waiters
        saved, is_notified = None, False
        try:
            waiters.append(waiter)
            saved = self._lock._release_save()
            is_notified = waiter.acquire(timeout=-1 if timeout is None else max(timeout, 0))
            return is_notified
        finally:
            try:
                if saved is not None:
                    self._lock._acquire_restore(saved)
                elif not self._lock._is_owned():  # an interrupt came when it had just been released
                    self._lock.acquire()
            finally:
                if not is_notified:
                    with suppress(ValueError):  # else the next notification would be for this thread
                        waiters.remove(waiter)


class Event(threading.Event):
    """An event that an interrupt leaves in order: see `Condition`."""

    _cond: threading.Condition

    def __init__(self) -> None:
        super().__init__()
        self._cond = Condition()
