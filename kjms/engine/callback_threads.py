"""The threads that call completion listeners: one for all sessions, and one more for each whose listeners take long."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from kjms.engine.threads import start_thread

__all__ = ["CallbackThreads", "Callbacks"]

SLOW_SECONDS: Final = 0.02  # so long others wait behind the callbacks of a session that has no thread of its own
CLOSE_SECONDS: Final = 2.0  # how long closing waits for a callback that does not return


class Callbacks:
    """What one session has called back: by one thread at a time.

    Args:
        call: Calls back whatever there is; it never raises.
    """

    __slots__ = ("_thread", "call")

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call
        self._thread: _Thread | None = None  # its own

    def __repr__(self) -> str:
        return f"<Callbacks of {self.call}>"


class _Thread:
    def __init__(self, lock: threading.Lock) -> None:
        self.changed = threading.Condition(lock)
        self.waiting: deque[Callbacks] = deque()  # what is to be called, each once
        self.current: Callbacks | None = None
        self.since = 0.0  # when it began with that
        self.is_idle = False
        self.is_ending = False
        self.thread: threading.Thread | None = None


class CallbackThreads:
    """Calls back for many sessions, and lets none of them wait long for another one.

    One thread calls for all of them: to wake one for each session would cost more than what they have to do. If the
    callbacks of a session take long while others wait, the thread stays with that session, and a new one calls for the
    others.

    Args:
        name: The name of the threads.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._shared: _Thread | None = None

    def join(self, call: Callable[[], None]) -> Callbacks:
        """Return what `submit` takes, for a session whose callbacks *call* makes.

        Raises:
            RuntimeError: There can be no more threads.
        """
        with self._lock:
            if self._shared is None:
                self._shared = self._started()
        return Callbacks(call)

    def submit(self, callbacks: Callbacks) -> None:
        """Have *callbacks* called soon; not again before the call has begun."""
        with self._lock:
            thread = callbacks._thread or self._shared
            if thread is not None:
                thread.waiting.append(callbacks)
                if thread.is_idle:
                    thread.is_idle = False
                    thread.changed.notify()

    @property
    def are_waiting(self) -> bool:
        """Whether there are callbacks to call, so that `look` may find that others wait behind them for long."""
        return self._shared is not None and bool(self._shared.waiting)

    def look(self) -> None:
        """Give the callbacks that are being called a thread of their own, where others wait behind them for long."""
        thread = self._shared
        if thread is None or not thread.waiting or time.monotonic() - thread.since < SLOW_SECONDS:
            return
        with self._lock:
            slow = thread.current
            others = [each for each in thread.waiting if each is not slow]
            if slow is None or not others or time.monotonic() - thread.since < SLOW_SECONDS:
                return
            try:
                self._shared = self._started(others)
            except RuntimeError:  # there can be no more threads: the others wait
                return
            slow._thread = thread
            thread.waiting = deque(each for each in thread.waiting if each is slow)

    def leave(self, callbacks: Callbacks) -> None:
        """End the thread that *callbacks* have of their own; they have been called."""
        self._end(callbacks._thread)

    def close(self) -> None:
        """End the thread for all."""
        self._end(self._shared)

    def _end(self, thread: _Thread | None) -> None:
        if thread is None or thread.thread is None:
            return
        with self._lock:
            thread.is_ending = True
            thread.changed.notify()
        if thread.thread is not threading.current_thread():
            thread.thread.join(CLOSE_SECONDS)

    def _started(self, waiting: Sequence[Callbacks] = ()) -> _Thread:
        started = _Thread(self._lock)
        started.waiting.extend(waiting)
        started.thread = start_thread(self._run, self._name, started)
        return started

    def _run(self, own: _Thread) -> None:
        while True:
            with self._lock:
                own.current = None
                while not own.waiting:
                    if own.is_ending:
                        return
                    own.is_idle = True
                    own.changed.wait()
                own.is_idle = False
                callbacks = own.waiting.popleft()
                own.current, own.since = callbacks, time.monotonic()
            callbacks.call()
