"""A message that becomes a dead letter loses nothing: its dead-letter queue takes it whole, or it stays where it is."""

from __future__ import annotations

from typing import Any

import pytest

from kjms import Connection, ConnectionFactory, JMSException, Queue, RedeliveryPolicy, Session
from kjms.engine.kafka import AdminPort, ConfigResource, NewTopic, ResourceType
from tests.helpers import WAIT_MS, WAIT_SECONDS, Eventually, apart, browse, send, topics

MB = 1_000_000
ONCE = RedeliveryPolicy(max_deliveries=1)


def make(admin: AdminPort, queue: Queue, limit: int) -> None:
    """Make the topic of *queue*, for messages of up to *limit* bytes."""
    new = NewTopic(queue.queue_name, 1, 1, config={"max.message.bytes": str(limit)})
    admin.create_topics([new], operation_timeout=10, request_timeout=10)[queue.queue_name].result()


def fail(connection: Connection, queue: Queue, count: int = 1) -> None:
    """Receive *count* messages, and roll back."""
    with connection.create_session(Session.SESSION_TRANSACTED) as session:
        consumer = session.create_consumer(queue)
        for _ in range(count):
            assert consumer.receive(WAIT_MS) is not None
        session.rollback()


def test_the_dead_letter_of_a_large_message_is_whole(
    kafka: Any, admin: AdminPort, queue: Queue, dead: Queue, eventually: Eventually
) -> None:
    """A dead-letter queue that kjms makes takes all that the queue takes, and what a dead letter says besides."""
    make(admin, queue, 5 * MB)
    body = "x" * (5 * MB - 200)
    with ConnectionFactory(kafka.bootstrap_servers, redelivery=ONCE).create_connection() as connection:
        connection.start()
        send(connection, queue, body)
        fail(connection, queue)
        eventually(lambda: browse(connection, dead) == [body])
        with connection.create_session() as session, session.create_browser(dead) as browser:
            (letter,) = browser
        assert letter.get_string_property("JMS_kjms_Omitted") is None


def test_a_message_that_is_too_large_for_its_dead_letter_queue_stays(
    kafka: Any, admin: AdminPort, queue: Queue, dead: Queue, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing of it is dropped; the operator is notified of the sizes, once, and others go their way."""
    make(admin, queue, 5 * MB)
    make(admin, dead, MB)
    heard: list[JMSException] = []
    with apart(kafka.bootstrap_servers, redelivery=ONCE) as connection:
        connection.exception_listener = heard.append
        connection.start()
        send(connection, queue, "y" * 3 * MB, "small")
        fail(connection, queue, 2)
        eventually(lambda: browse(connection, dead) == ["small"])
        eventually(lambda: len(heard) == 2)
        again = caplog.text.count("tried again")
        eventually(lambda: caplog.text.count("tried again") > again + 1)
        early, told = heard
        assert "larger messages stay in their queue" in str(early)
        assert f"a dead letter for the Kafka topic '{dead.queue_name}' has 3000" in str(told)
        assert "max.message.bytes allows 1000000" in str(told)
        assert told.error_code == "MSG_SIZE_TOO_LARGE"
    with ConnectionFactory(kafka.bootstrap_servers).create_connection() as connection:
        assert browse(connection, queue) == ["y" * 3 * MB]


def test_details_that_are_too_large_are_left_out(
    kafka: Any, admin: AdminPort, queue: Queue, dead: Queue, eventually: Eventually
) -> None:
    """They are no part of the message, which reaches its dead-letter queue, can be retried, and says so."""
    make(admin, dead, 3 * MB)
    make(admin, queue, 5 * MB)
    body = "z" * (3 * MB - 1_500)
    options = {"redelivery": ONCE, "dead_letter_details": "message"}
    with ConnectionFactory(kafka.bootstrap_servers, **options).create_connection() as connection:
        connection.start()
        send(connection, queue, body)
        try:
            raise ValueError("many details" * 300)
        except ValueError:
            fail(connection, queue)
        eventually(lambda: browse(connection, dead) == [body])
        with connection.create_session() as session, session.create_browser(dead) as browser:
            (letter,) = browser
        assert letter.get_string_property("JMS_kjms_Omitted") == "details"
        assert letter.get_string_property("JMS_kjms_Exception") == "ValueError"
        assert letter.get_string_property("JMS_kjms_ExceptionMessage") is None


def test_the_limit_of_a_dead_letter_queue_is_that_of_its_source(
    kafka: Any, admin: AdminPort, queue: Queue, dead: Queue, eventually: Eventually
) -> None:
    """Of one whose source has Kafka's own limit, too: a message of exactly that size has more headers as a letter."""
    with ConnectionFactory(kafka.bootstrap_servers, redelivery=ONCE).create_connection() as connection:
        connection.start()
        send(connection, queue, "small")
        fail(connection, queue)
        eventually(lambda: dead.queue_name in topics(kafka.bootstrap_servers))
    places = [ConfigResource(ResourceType.TOPIC, each.queue_name) for each in (queue, dead)]
    answers = admin.describe_configs(places, request_timeout=WAIT_SECONDS)
    source, letters = (int(answers[place].result()["max.message.bytes"].value) for place in places)
    assert letters - source == 128 * 1024
