"""Find out whether a cluster is lost, and when it is back, and wait less for it while it may be."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from kjms.engine.interrupts import Event
from kjms.engine.threads import start_thread
from kjms.engine.tuning import DEFAULTS, Tuning
from kjms.errors import JMSException

__all__ = ["FULL_TIMEOUT", "CloseTimeout", "OutageDetector", "level_of"]

ATTEMPT_SECONDS: Final = 0.5  # closing waits so long
OUTAGE_SECONDS: Final = 1.0  # for all threads together that closing waits for while no broker answers
LOOK_SECONDS: Final = 0.05  # between looks whether one does


class OutageDetector:
    """Reports each outage of a cluster once (JMS 2.0 §4.3.8), and its end.

    Args:
        thread_name: The name of the thread that tries to connect, from the first suspicion until a broker answers.
        connect: Returns when a broker has answered; raises a JMSException if none did within so many seconds.
        lost: Called with the failure that was suspected when no broker has answered for some seconds.
        recovered: Called after that, when one answers, with the same failure and the seconds that the outage lasted.
        tuning: Its times and limits.

    Attributes:
        is_reported: Whether an outage was reported that is not over.
        suspicions: How often a client was connected to no broker, ever.
    """

    def __init__(
        self,
        thread_name: str,
        connect: Callable[[float], None],
        lost: Callable[[JMSException], None],
        recovered: Callable[[JMSException, float], None],
        tuning: Tuning = DEFAULTS,
    ) -> None:
        self._tuning = tuning
        self._thread_name = thread_name
        self._connect = connect
        self._lost = lost
        self._recovered = recovered
        self._thread: threading.Thread | None = None
        self._closed = Event()
        self._lock = threading.Lock()
        self.is_reported = False
        self.suspicions = 0

    @property
    def thread(self) -> threading.Thread | None:
        """Its thread; None: none was started yet."""
        return self._thread

    @property
    def is_suspected(self) -> bool:
        """Whether a client was connected to no broker, and none has answered since."""
        return self._thread is not None and self._thread.is_alive()

    def suspect(self, failure: JMSException) -> None:
        """Note *failure*, a client's word for being connected to no broker; from any thread, which need not wait."""
        with self._lock:
            if self._closed.is_set() or (self._thread is not None and self._thread.is_alive()):
                return
            self.suspicions += 1
            self._thread = start_thread(self._find_out, self._thread_name, failure)

    def _find_out(self, failure: JMSException) -> None:
        begin = time.monotonic()
        while not self._closed.is_set():
            try:
                self._connect(ATTEMPT_SECONDS)
            except JMSException:
                if not self.is_reported and time.monotonic() - begin >= self._tuning.outage_seconds:
                    self.is_reported = True
                    self._lost(failure)
                self._closed.wait(self._tuning.outage_pause_seconds)
            else:
                if self.is_reported:
                    self.is_reported = False
                    self._recovered(failure, time.monotonic() - begin)
                return

    def close(self) -> None:
        """Stop trying."""
        with self._lock:
            self._closed.set()
        if self._thread is not None:
            self._thread.join()


class CloseTimeout:
    """Waits for threads that end when the broker answers: as long as they may take, but for a moment in an outage.

    Args:
        is_out: Returns whether no broker answers, as far as is known.
    """

    def __init__(self, is_out: Callable[[], bool] = lambda: False) -> None:
        self._is_out = is_out
        self._left = OUTAGE_SECONDS

    def join(self, thread: threading.Thread, most: float) -> bool:
        """Wait until *thread* ends, for *most* seconds; return whether it has.

        All waits in an outage together take a second.
        """
        deadline = time.monotonic() + most
        while thread.is_alive() and (now := time.monotonic()) < deadline:
            is_out = self._is_out()
            if is_out and self._left <= 0:
                break
            thread.join(min(LOOK_SECONDS, deadline - now))
            if is_out:
                self._left -= time.monotonic() - now
        return not thread.is_alive()


FULL_TIMEOUT: Final = CloseTimeout()


def level_of(failure: JMSException, level: int) -> int:
    """Return the level to log *failure* at: *level*, or DEBUG where a connection is lost or was closed.

    The engine reports outages.

    >>> level_of(JMSException("look up the Kafka topic 'orders'", "_TRANSPORT"), logging.WARNING) == logging.DEBUG
    True
    """
    return logging.DEBUG if failure.error_code in {"_TRANSPORT", "_DESTROY", "_DESTROY_BROKER"} else level
