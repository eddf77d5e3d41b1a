"""Sessions that acknowledge at about the same time share commits."""

from __future__ import annotations

import threading

import pytest

from kjms import Connection, MessageConsumer, Queue, Session
from kjms.testing.engine import consumer_statistics
from tests.helpers import WAIT_MS

SESSIONS = 8
MESSAGES = 400


@pytest.mark.parametrize("mode", [Session.AUTO_ACKNOWLEDGE, Session.INDIVIDUAL_ACKNOWLEDGE])
def test_sessions_that_acknowledge_together_share_commits(mode: int, connection: Connection, queue: Queue) -> None:
    """Each message is settled in Kafka before its session continues; one commit serves many sessions."""
    with connection.create_session() as session, session.create_producer(queue) as producer:
        for number in range(MESSAGES):
            producer.send(session.create_text_message(str(number)))
    consumers = [connection.create_session(mode).create_consumer(queue) for _ in range(SESSIONS)]
    received: list[str] = []
    is_done = threading.Event()

    def work(consumer: MessageConsumer) -> None:
        while (message := consumer.receive(WAIT_MS)) is not None:
            message.acknowledge()
            received.append(message.text)  # type: ignore[attr-defined]
            if len(received) == MESSAGES:
                is_done.set()

    threads = [threading.Thread(target=work, args=(consumer,)) for consumer in consumers]
    for thread in threads:
        thread.start()
    connection.start()
    assert is_done.wait(WAIT_MS / 1000)
    assert consumer_statistics(consumers[0]).commits < MESSAGES / 2
    for consumer in consumers:
        consumer.close()
    for thread in threads:
        thread.join()
    assert sorted(received, key=int) == [str(number) for number in range(MESSAGES)]
    with connection.create_session() as session, session.create_consumer(queue) as consumer:
        assert consumer.receive(300) is None
