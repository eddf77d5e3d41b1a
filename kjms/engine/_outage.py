"""Whether a cluster that a client lost is gone: it is asked again first, and told of only if it stays away."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from kjms.errors import JMSException

__all__ = ["Outage"]

PATIENCE_SECONDS: Final = 3.0  # a connection that was cut is made anew by then
ATTEMPT_SECONDS: Final = 0.5  # closing waits so long
SAME_SECONDS: Final = 60.0  # failures closer together than this are of the same outage


class Outage:
    """Tells of the outages of a cluster, each once (JMS 2.0 §4.3.8).

    Args:
        thread_name: The name of the thread that asks, while there is doubt.
        connect: Returns when a broker has answered; raises a JMSException if none did within so many seconds.
        tell: Is told of an outage.
    """

    def __init__(
        self, thread_name: str, connect: Callable[[float], None], tell: Callable[[JMSException], None]
    ) -> None:
        self._thread_name = thread_name
        self._connect = connect
        self._tell = tell
        self._last = -SAME_SECONDS
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    def suspect(self, failure: JMSException) -> None:
        """Hear of *failure*, a client's word for being connected to no broker; from any thread, which need not wait."""
        with self._lock:
            if self._is_closed or (self._thread is not None and self._thread.is_alive()):
                return
            self._thread = threading.Thread(target=self._find_out, args=(failure,), name=self._thread_name, daemon=True)
            self._thread.start()

    def _find_out(self, failure: JMSException) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._is_closed:
            try:
                self._connect(ATTEMPT_SECONDS)
            except JMSException:
                now = time.monotonic()
                if now < deadline:
                    continue
                is_new, self._last = now - self._last > SAME_SECONDS, now
                if is_new:
                    self._tell(failure)
            return

    def close(self) -> None:
        """Stop asking."""
        with self._lock:
            self._is_closed = True
        if self._thread is not None:
            self._thread.join()
