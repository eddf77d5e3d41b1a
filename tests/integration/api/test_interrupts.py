"""Ctrl-C in the middle of sends: each that left is reported, and nothing waits for one that never did."""

from __future__ import annotations

import logging

import pytest

from kjms import ConnectionFactory, Queue, SessionMode
from kjms.admin import Admin
from kjms.broker import LocalBroker
from tests.helpers import WAIT_MS, Completions, consume, drain, interrupted, text, texts_of

MESSAGES = 40_000
ROUNDS = 20


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupted_send_is_reported_if_it_left_and_else_forgotten(
    kjms_broker: LocalBroker, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """Wherever Ctrl-C comes, closing needs no time-out, and as many messages are in Kafka as were reported."""
    factory = ConnectionFactory(kjms_broker.bootstrap_servers, send_timeout=2_000)
    sent = Completions()
    with factory.create_connection() as connection:
        for round_ in range(40):
            with connection.create_session() as session:
                producer, message = session.create_producer(queue), session.create_text_message("7 pens")
                producer.send(message)
                with interrupted(0.004 + round_ / 10_000):
                    while True:
                        producer.send(message, completion_listener=sent)
        assert "neither confirmed nor given up" not in caplog.text
    with Admin(factory) as admin:
        assert admin.count(queue) == 40 + len(sent.sent)
    assert sent.failed == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_of_a_send_that_waits_is_raised_as_it_is(kjms_broker: LocalBroker, queue: Queue) -> None:
    """Ctrl-C is KeyboardInterrupt wherever it comes, also in the middle of a delivery report, and sending continues."""
    with ConnectionFactory(kjms_broker.bootstrap_servers).create_connection() as connection:
        session = connection.create_session()
        producer, message = session.create_producer(queue), session.create_text_message("7 pens")
        for round_ in range(100):
            producer.send(message)
            with interrupted(0.004 + round_ / 10_000):
                while True:
                    producer.send(message)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("mode", "lost"),
    [
        (SessionMode.AUTO_ACKNOWLEDGE, 1),
        (SessionMode.CLIENT_ACKNOWLEDGE, 0),
        (SessionMode.INDIVIDUAL_ACKNOWLEDGE, 0),
    ],
)
def test_an_interrupted_receive_or_acknowledge_holds_nothing_up(
    kjms_factory: ConnectionFactory, queue: Queue, mode: SessionMode, lost: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Wherever Ctrl-C comes, session and connection close in order, and the next consumer of the process has the rest.

    In AUTO, a message that was acknowledged may not have been returned yet.
    """
    received: set[str] = set()
    with kjms_factory.create_connection() as staying:
        staying.start()
        with staying.create_session() as session:
            producer, sent = session.create_producer(queue), Completions()
            for number in range(MESSAGES):
                producer.send(session.create_text_message(str(number)), completion_listener=sent)
        for round_ in range(ROUNDS):
            with kjms_factory.create_connection() as connection, connection.create_session(mode) as session:
                consumer = session.create_consumer(queue)
                connection.start()
                message = consumer.receive(WAIT_MS)
                received.add(text(message))
                message.acknowledge()
                with interrupted(0.003 + round_ / 5_000):
                    while True:
                        for _ in range(10):
                            message = consumer.receive(WAIT_MS)
                            received.add(text(message))
                            if mode == SessionMode.INDIVIDUAL_ACKNOWLEDGE:
                                message.acknowledge()
                        message.acknowledge()
        rest = consume(staying, queue, mode=SessionMode.DUPS_OK_ACKNOWLEDGE)
        least = len(set(sent.texts) - received) - ROUNDS * lost
        received.update(texts_of(drain(rest, count=least)))
    missing = set(sent.texts) - received
    assert len(missing) <= ROUNDS * lost, missing
    with Admin(kjms_factory) as admin:
        assert admin.count(queue) == 0
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [each for each in warnings if not (lost and "is acknowledged, and was not returned" in each)] == []
