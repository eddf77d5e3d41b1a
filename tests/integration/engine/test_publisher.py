"""How long a send waits for its delivery report, and which thread has the reports called."""

from __future__ import annotations

import threading

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


def test_closing_leaves_the_reports_to_the_thread_of_the_publisher(kjms_broker: LocalBroker, queue: Queue) -> None:
    """In the main thread, Ctrl-C would break a report off while closing waits for the others."""
    with ConnectionFactory(kjms_broker.bootstrap_servers).create_connection() as connection:
        session = connection.create_session()
        session.create_producer(queue).send(session.create_text_message("the queue is there"))
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
