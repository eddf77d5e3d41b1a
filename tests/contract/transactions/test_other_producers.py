"""Transactions of producers that know nothing of kjms, in the Kafka topic of a queue."""

from __future__ import annotations

from typing import Any

import pytest

from kjms import Queue
from kjms.engine.kafka import ProducerPort, open_producer
from tests.helpers import NOTHING_MS, WAIT_SECONDS, Desk


@pytest.fixture
def producer(kafka: Any, queue: Queue) -> ProducerPort:
    """A transactional producer."""
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": queue.queue_name}
    producer = open_producer(settings)
    producer.init_transactions(WAIT_SECONDS)
    return producer


def write(producer: ProducerPort, queue: Queue, value: bytes) -> None:
    """Begin a transaction, and have *value* written in it."""
    producer.begin_transaction()
    producer.produce(queue.queue_name, value, None, 0, headers=[], timestamp=0, on_delivery=lambda *_: None)
    assert producer.flush(WAIT_SECONDS) == 0


def test_a_record_of_an_aborted_transaction_is_not_delivered(desk: Desk, queue: Queue, producer: ProducerPort) -> None:
    """Consumers get what comes before it, and after it."""
    desk.send(queue, "before")
    write(producer, queue, b"aborted")
    producer.abort_transaction(WAIT_SECONDS)
    desk.send(queue, "after")
    assert [body for body, _, _ in desk.left(queue)] == ["before", "after"]


def test_a_record_of_an_open_transaction_is_not_delivered(desk: Desk, queue: Queue, producer: ProducerPort) -> None:
    """It comes when the transaction is committed."""
    desk.send(queue, "before")
    consumer = desk.session().create_consumer(queue)
    assert desk.texts(consumer, 1) == ["before"]
    write(producer, queue, b"open")
    assert consumer.receive(NOTHING_MS) is None
    producer.commit_transaction(WAIT_SECONDS)
    assert desk.texts(consumer, 1) == ["open"]
