"""Ctrl-C while the Kafka client works: what a signal's handler raises there reaches the program."""

from __future__ import annotations

import inspect
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from kjms.engine.interrupts import interrupt_behind
from kjms.engine.publisher import Publisher
from kjms.mapping import KafkaRecord
from tests.helpers import interrupted

RECORD = KafkaRecord(None, b"7 pens", [(f"name-{number}", b"value") for number in range(10)], 0)


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    """A publisher whose broker never answers, and whose buffer never is full."""
    config = {"bootstrap.servers": "127.0.0.1:9", "log_level": 0, "queue.buffering.max.messages": 0}
    publisher = Publisher(config, "publisher", send_timeout=1_000)
    yield publisher
    publisher.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_while_sending_raises_keyboard_interrupt(publisher: Publisher) -> None:
    """One in ten comes where the Kafka client reads a header's name, and would be a TypeError about it."""
    for _ in range(200):
        with interrupted(0.002):
            while True:
                publisher.send("orders", 0, RECORD, lambda error, record: None)


def test_an_error_of_the_call_is_none() -> None:
    """What the Kafka client itself refuses stays its error."""
    producer = Producer({"bootstrap.servers": "127.0.0.1:9", "log_level": 0})
    with pytest.raises(TypeError, match="expected header value") as refused:
        producer.produce("orders", headers={"amount": 7})
    assert interrupt_behind(refused.value) is None
    assert interrupt_behind(KafkaException("refused")) is None


def test_what_a_failed_call_names_is_found() -> None:
    """Python names the handler's exception where C returned a result all the same."""
    interrupt = KeyboardInterrupt()
    error = SystemError("a call returned a result with an exception set")
    error.__cause__ = interrupt
    assert interrupt_behind(error) is interrupt


def test_an_interrupt_that_comes_late_is_forgotten() -> None:
    """A signal may arrive when its block is left: it neither raises elsewhere nor ends the process."""
    handler: Any = None
    with interrupted(0.001):
        handler = signal.getsignal(signal.SIGVTALRM)
        while True:
            pass
    handler(signal.SIGVTALRM, inspect.currentframe())
    signal.raise_signal(signal.SIGVTALRM)
