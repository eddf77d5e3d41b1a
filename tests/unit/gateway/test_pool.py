"""The threads that all AMQP sessions of a gateway share."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kjms.gateway import _pool
from kjms.gateway._pool import WorkerPool
from tests.helpers import WAIT_SECONDS


def test_every_call_is_made_by_few_threads_that_end(
    monkeypatch: pytest.MonkeyPatch, eventually: Callable[[Callable[[], object]], None]
) -> None:
    """Calls that block each other's threads wait for a free one; idle threads are used again, and end at last."""
    monkeypatch.setattr(_pool, "MOST_THREADS", 3)
    monkeypatch.setattr(_pool, "LINGER_SECONDS", 0.001)
    pool, threads, made = WorkerPool(), set[threading.Thread](), threading.Semaphore(0)

    def call() -> None:
        threads.add(threading.current_thread())
        made.release()

    for _ in range(300):  # threads end and begin meanwhile
        pool.submit(call)
        assert made.acquire(timeout=WAIT_SECONDS)

    go_on = threading.Event()
    for _ in range(3):
        pool.submit(lambda: (made.release(), go_on.wait(WAIT_SECONDS))[0])
    for _ in range(3):
        assert made.acquire(timeout=WAIT_SECONDS)
    pool.submit(call)
    assert pool.is_full
    assert not made.acquire(blocking=False)
    go_on.set()
    assert made.acquire(timeout=WAIT_SECONDS)
    eventually(lambda: not any(thread.is_alive() for thread in threads))
