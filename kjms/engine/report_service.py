"""Which thread serves the delivery reports of a producer: the publisher's, or a sender that waits for its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kjms.engine.kafka import KafkaException

__all__ = ["IDLE_SECONDS", "REST_SECONDS", "ReportService"]

IDLE_SECONDS: Final = 1.0  # so late the thread, with nothing to do, receives errors that belong to no record
REST_SECONDS: Final = 0.05  # since a sender began to wait last: so long the thread leaves reports to senders


class ReportService:
    """Lets one thread at a time serve delivery reports.

    A sender that serves the reports until its own has come needs no other thread to wake it. The publisher's thread
    rests while senders do that, and serves where several wait at a time, or one does not wait for what it sent.

    Attributes:
        trouble: What a sender met while it served, for the publisher's thread to handle.
        is_resting: Whether the publisher's thread rests, until it is called.
    """

    def __init__(self) -> None:
        self.trouble: KafkaException | None = None
        self.is_resting = False
        self._serving = threading.RLock()  # held by the thread that serves, and knows which that is
        self._waiting: set[object] = set()  # the answers that senders wait for
        self._asked_at = self._shared_at = -REST_SECONDS  # when a sender began to wait last; when another did already
        # Wakes the thread. Not an Event: Ctrl-C inside of one may leave its lock taken.
        self._calls: SimpleQueue[None] = SimpleQueue()

    # Of senders.

    def expect(self, answer: object, *, may_serve: bool) -> bool:
        """Note that the present thread will wait for *answer*.

        Args:
            answer: What it waits for.
            may_serve: Whether it may serve; else it is left to the publisher's thread.

        Returns:
            Whether it may, and no other thread waited lately.
        """
        now = time.monotonic()
        if self._waiting or not may_serve:
            self._shared_at = now
        self._waiting.add(answer)
        self._asked_at = now
        return now - self._shared_at > REST_SECONDS

    def came(self, answer: object) -> None:
        """Note that *answer* has come."""
        self._waiting.discard(answer)

    def abandon(self, answer: object) -> None:
        """Note that the present thread waits for *answer* no longer; if it serves, it does not any more."""
        self._waiting.discard(answer)
        with suppress(RuntimeError):  # another thread serves, or none
            self.give_up()

    def take_over(self) -> bool:
        """Serve, unless another thread does; return whether the present thread serves now, until it calls `give_up`."""
        return self._serving.acquire(blocking=False)

    def give_up(self) -> None:
        """Serve no longer; the publisher's thread serves the senders that still wait."""
        self._serving.release()
        if self._waiting:
            self.call()

    def call(self) -> None:
        """Wake the publisher's thread, if it rests."""
        if self.is_resting:
            self._calls.put(None)

    # Of the publisher's thread.

    def wait(self, seconds: float, has_work: Callable[[], object]) -> bool:
        """Wait until senders leave it to the publisher's thread; return whether it serves now, until it calls `end`.

        With nothing to do it rests until it is called, or for `IDLE_SECONDS`: then it serves once.

        Args:
            seconds: How long to wait while there is something to do.
            has_work: Returns whether reports are to come, or there is something else to do for the thread.
        """
        is_left_to_senders = self._asked_at > time.monotonic() - REST_SECONDS > self._shared_at
        if not is_left_to_senders and has_work():
            return self._serving.acquire(timeout=seconds)
        self.is_resting = True  # before the look: a thread that sends after it calls
        try:
            if self._serving.acquire(blocking=False):
                if has_work():
                    return True
                self._serving.release()
            self._calls.get(timeout=seconds if is_left_to_senders else IDLE_SECONDS)
        except Empty:
            return not is_left_to_senders and self._serving.acquire(blocking=False)
        finally:
            self.is_resting = False
        return False

    def end(self) -> None:
        """Let other threads serve."""
        self._serving.release()
