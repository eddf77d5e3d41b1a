"""The Kafka consumer of a group consumer, which one thread at a time may use."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kjms import JMSException
from kjms.engine.consumer.client import ConsumerClient


def test_an_error_says_for_how_long_the_broker_did_not_answer() -> None:
    """A last short attempt comes after attempts that took the whole time: the error has all of it."""
    lock = threading.RLock()
    client = ConsumerClient("orders", lock, threading.Condition(lock))
    with client.held(1), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.acquire, 0.1, 9.9)
        with pytest.raises(
            JMSException, match=r"messages of orders: the thread .* busy for 10\.0 s: .* or the thread does not run"
        ):
            waiting.result()
    assert client.waiting == set()
    client.acquire(0)
    client.release()
