"""The Kafka consumer of a group consumer, which one thread at a time may use."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import get_ident
from typing import Final

from kjms.engine.kafka import ConsumerPort
from kjms.errors import JMSException

__all__ = ["COMMIT_SECONDS", "ConsumerClient"]

COMMIT_SECONDS: Final = 10.0  # how long a commit is tried again after transient errors, as of a rebalance


class ConsumerClient:
    """The Kafka consumer, and the lock that guards it, `turn`.

    Locks: a thread that holds the group consumer's lock never waits for `turn`; one that holds `turn` may take that
    lock. The consumer thread holds `turn` while it polls, so the rebalance callbacks run with it.

    Args:
        name: The destination's name, for errors.
        lock: The group consumer's lock.
        changed: Its condition.

    Attributes:
        turn: Held by the thread that is inside of the Kafka consumer.
        consumer: The Kafka consumer; None: there is none now.
        waiting: The other threads that wait for `turn`, or hold it, by their identifiers.
        is_awaited: Whether the consumer thread is to be woken when none of them does any more.
    """

    def __init__(self, name: str, lock: threading.RLock, changed: threading.Condition) -> None:
        self._name = name
        self._lock = lock
        self._changed = changed
        self.turn = threading.RLock()
        self.consumer: ConsumerPort | None = None
        self.waiting: set[int] = set()
        self.is_awaited = False

    @contextmanager
    def held(self, seconds: float) -> Iterator[None]:
        """Acquire `turn`, as soon as the consumer thread is out of its poll, for the length of a ``with`` statement.

        Raises:
            JMSException: It did not come out in time: the broker does not answer, or the thread does not run.
        """
        self.acquire(seconds)
        try:
            yield
        finally:
            self.release()

    def acquire(self, seconds: float, before: float = 0.0) -> None:
        """Acquire `turn`, as soon as the consumer thread is out of its poll.

        Args:
            seconds: How long to wait.
            before: For how many seconds the broker was asked in vain before that.

        Raises:
            JMSException: It did not come out in time: the broker does not answer, or the thread does not run.
        """
        with self._lock:
            self.waiting.add(get_ident())
        if not self.turn.acquire(timeout=seconds):
            self._leave()
            text = (
                f"acknowledge messages of {self._name}: the thread of the Kafka consumer has been busy for"
                f" {before + seconds:.1f} s: the broker does not answer it, or the thread does not run, because the"
                " process was stopped or another thread keeps the interpreter"
            )
            raise JMSException(text)

    def release(self) -> None:
        """Release `turn`."""
        self.turn.release()
        self._leave()

    def abandon(self) -> None:
        """Release what the present thread holds, if anything, and let it wait no more: it was interrupted somewhere."""
        with suppress(RuntimeError):  # `turn` is not, or not any more, held by this thread
            while True:
                self.turn.release()
        self._leave()

    def _leave(self) -> None:
        with self._lock:
            self.waiting.discard(get_ident())
            if self.is_awaited and not self.waiting:
                self.is_awaited = False
                self._changed.notify()
