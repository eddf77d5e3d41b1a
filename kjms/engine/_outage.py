"""Find out whether a cluster is lost, and when it is back: a client's loss of its connections may be a moment's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from kjms.errors import JMSException

__all__ = ["Outage"]

PATIENCE_SECONDS: Final = 3.0  # a connection that was cut is made anew by then
ATTEMPT_SECONDS: Final = 0.5  # closing waits so long
PAUSE_SECONDS: Final = 0.1  # between attempts, which may fail at once


class Outage:
    """Reports each outage of a cluster once (JMS 2.0 §4.3.8), and its end.

    Args:
        thread_name: The name of the thread that tries to connect, from the first suspicion until a broker answers.
        connect: Returns when a broker has answered; raises a JMSException if none did within so many seconds.
        lost: Called with the failure that was suspected when no broker has answered for some seconds.
        recovered: Called after that, when one answers, with the same failure and the seconds that the outage lasted.
    """

    def __init__(
        self,
        thread_name: str,
        connect: Callable[[float], None],
        lost: Callable[[JMSException], None],
        recovered: Callable[[JMSException, float], None],
    ) -> None:
        self._thread_name = thread_name
        self._connect = connect
        self._lost = lost
        self._recovered = recovered
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._lock = threading.Lock()

    def suspect(self, failure: JMSException) -> None:
        """Note *failure*, a client's word for being connected to no broker; from any thread, which need not wait."""
        with self._lock:
            if self._closed.is_set() or (self._thread is not None and self._thread.is_alive()):
                return
            self._thread = threading.Thread(target=self._find_out, args=(failure,), name=self._thread_name, daemon=True)
            self._thread.start()

    def _find_out(self, failure: JMSException) -> None:
        begin = time.monotonic()
        is_reported = False
        while not self._closed.is_set():
            try:
                self._connect(ATTEMPT_SECONDS)
            except JMSException:
                if not is_reported and time.monotonic() - begin >= PATIENCE_SECONDS:
                    is_reported = True
                    self._lost(failure)
                self._closed.wait(PAUSE_SECONDS)
            else:
                if is_reported:
                    self._recovered(failure, time.monotonic() - begin)
                return

    def close(self) -> None:
        """Stop trying."""
        with self._lock:
            self._closed.set()
        if self._thread is not None:
            self._thread.join()
