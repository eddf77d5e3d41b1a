"""How long a send waits for its delivery report, and which thread has the reports called."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from kjms import ConnectionFactory, JMSException, Queue
from kjms.broker import LocalBroker
from kjms.engine.kafka import KafkaError, KafkaMessage
from kjms.engine.publisher import Publisher
from kjms.mapping import KafkaRecord
from kjms.testing.engine import engine_of, tuned
from tests.helpers import WAIT_SECONDS, Completions


def test_a_send_waits_no_longer_than_the_send_timeout(kjms_broker: LocalBroker, queue: Queue) -> None:
    """A send whose delivery report never comes fails when its time is over, and so does what waits behind it."""
    factory = ConnectionFactory(kjms_broker.bootstrap_servers, send_timeout=1_000, kafka={"client.id": "silent"})
    with tuned(report_seconds=0.2), factory.create_connection() as connection:
        session = connection.create_session()
        producer = session.create_producer(queue)
        producer.send(session.create_text_message("reported"))
        going_on = threading.Event()
        for publisher in (engine_of(connection).prompt, engine_of(connection).bulk):
            Stuck(going_on).keep(publisher, queue)
        try:
            with pytest.raises(JMSException, match=r"not confirmed by .* within 1000 ms"):
                producer.send(session.create_text_message("not reported"))
            producer.send(session.create_text_message("not waited for"), completion_listener=Completions())
            with pytest.raises(JMSException, match="1 messages sent before"):
                producer.send(session.create_text_message("behind it"))
        finally:
            going_on.set()


def make(broker: LocalBroker, queue: Queue) -> None:
    """Make *queue*, which a publisher does not do."""
    with ConnectionFactory(broker.bootstrap_servers).create_connection() as connection:
        session = connection.create_session()
        session.create_producer(queue).send(session.create_text_message("the queue is there"))


def test_closing_leaves_the_reports_to_the_thread_of_the_publisher(kjms_broker: LocalBroker, queue: Queue) -> None:
    """In the main thread, Ctrl-C would break a report off while closing waits for the others."""
    make(kjms_broker, queue)
    publisher = Publisher({"bootstrap.servers": kjms_broker.bootstrap_servers}, "closing", send_timeout=10_000)
    threads: list[threading.Thread] = []
    for _ in range(2_000):
        publisher.send(
            queue.queue_name, 0, KafkaRecord(None, b"", [], 0), lambda *_: threads.append(threading.current_thread())
        )
    thread = publisher.thread
    publisher.close()
    assert len(threads) == 2_000
    assert {*threads} == {thread}


def test_closing_sends_what_lingers_at_once(kjms_broker: LocalBroker, queue: Queue) -> None:
    """A program that asks the Kafka client to wait for more records does not wait for them when it closes."""
    make(kjms_broker, queue)
    config: dict[str, Any] = {"bootstrap.servers": kjms_broker.bootstrap_servers, "linger.ms": 20_000}
    publisher = Publisher(config, "lingering", send_timeout=30_000)
    errors: list[KafkaError | None] = []
    publisher.send(queue.queue_name, 0, KafkaRecord(None, b"", [], 0), lambda error, _: errors.append(error))
    begin = time.monotonic()
    publisher.close()
    assert errors == [None]
    assert time.monotonic() - begin < config["linger.ms"] / 1000


class Stuck:
    """Keeps the thread busy that serves the reports of a publisher, so that no other one comes."""

    def __init__(self, going_on: threading.Event) -> None:
        self._going_on = going_on
        self._has_begun = threading.Event()

    def keep(self, publisher: Publisher, queue: Queue) -> None:
        """Return when the thread of *publisher* is busy with the report of a record of *queue*."""
        publisher.send(queue.queue_name, 0, KafkaRecord(None, b"", [], 0), self._report)
        assert self._has_begun.wait(WAIT_SECONDS)

    def _report(self, error: KafkaError | None, record: KafkaMessage) -> None:
        self._has_begun.set()
        self._going_on.wait(60)
