"""The threads that do what blocks, for all AMQP sessions of a gateway."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

__all__ = ["WorkerPool"]

_log = logging.getLogger("kjms.gateway")

MOST_THREADS: Final = 64  # so many sessions may wait for Kafka at the same time, in a commit for instance
LINGER_SECONDS: Final = 1.0  # without anything to do, until a thread ends


class WorkerPool:
    """Makes calls in threads, which begin when there are calls and end when there are none."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0  # threads
        self._idle = 0  # of them, with which no call is to begin
        self._numbers = itertools.count(1)

    @property
    def is_full(self) -> bool:
        """Whether calls wait until others return."""
        return self._count >= MOST_THREADS and not self._calls.empty()

    def submit(self, call: Callable[[], None]) -> None:
        """Have *call*, which raises nothing, made soon; for any thread."""
        with self._lock:
            self._calls.put(call)
            if self._idle:
                self._idle -= 1
                return
            if self._count >= MOST_THREADS:
                return
            self._count += 1
        try:
            threading.Thread(target=self._run, name=f"kjms-gateway-worker-{next(self._numbers)}", daemon=True).start()
        except RuntimeError as error:  # the system has no more threads, or the program ends
            with self._lock:
                self._count -= 1
            _log.error("a client's session waits until a thread is free: %s", error)

    def _run(self) -> None:
        while (call := self._next()) is not None:
            call()

    def _next(self) -> Callable[[], None] | None:
        """Return the next call; None: the thread has to end."""
        while True:
            with self._lock:  # a call that comes from now on finds this thread
                try:
                    return self._calls.get_nowait()
                except Empty:
                    self._idle += 1
            try:
                return self._calls.get(timeout=LINGER_SECONDS)
            except Empty:
                with self._lock:
                    if self._idle:  # else a call is about to come, or another thread has taken it
                        self._idle -= 1
                        self._count -= 1
                        return None
