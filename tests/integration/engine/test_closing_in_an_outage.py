"""A connection is closed while its broker is away."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from kjms import ConnectionFactory, JMSException, Queue, Session, Topic
from kjms.broker import LocalBroker
from kjms.engine.consumer.group_consumer import CLOSE_SECONDS
from tests.helpers import Eventually, send, text

QUEUES = 3


@pytest.mark.slow
def test_closing_waits_for_a_broker_that_is_away_for_a_moment_only(
    breakable_broker: LocalBroker, queue: Queue, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """Threads whose calls get no answer end later; nothing of them is logged as an error, and nothing is lost."""
    before = set(threading.enumerate())
    factory, lost = ConnectionFactory(breakable_broker.bootstrap_servers), list[JMSException]()
    queues = [Queue(f"{queue.queue_name}-{number}") for number in range(QUEUES)]
    connection = factory.create_connection()
    connection.exception_listener = lost.append
    connection.start()
    consumers = [connection.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(each) for each in queues]
    consumers.append(connection.create_session().create_consumer(Topic(f"{queue.queue_name}-topic")))
    for each, consumer in zip(queues, consumers, strict=False):
        send(connection, each, "not acknowledged")
        assert text(consumer.receive(20_000)) == "not acknowledged"
    with caplog.at_level(logging.ERROR, "kjms"):
        breakable_broker.kill()
        eventually(lambda: lost)
        begun = time.monotonic()
        connection.close()
        # One after the other, each consumer's thread, and those of the engine, would have had so long.
        assert time.monotonic() - begun < CLOSE_SECONDS * 2
        breakable_broker.start()
        eventually(lambda: not {each for each in threading.enumerate() if each.name.startswith("kjms-")} - before)
    assert [record.getMessage() for record in caplog.records if record.name.startswith("kjms")] == []
    with factory.create_connection() as connection:
        connection.start()
        for each in queues:
            message = connection.create_session().create_consumer(each).receive(20_000)
            assert text(message) == "not acknowledged"
