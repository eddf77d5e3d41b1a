"""Topics: non-durable subscriptions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kjms import Connection, Topic
from tests.helpers import WAIT_MS, send


@pytest.mark.requirement("JMS-A.1.6-2")
def test_every_subscriber_gets_what_is_sent_after_its_creation(connection: Connection, topic: Topic) -> None:
    """A non-durable subscription starts where the topic stood when the consumer was created."""
    session = connection.create_session()
    send(session, topic, "before")
    first = session.create_consumer(topic)
    send(session, topic, "one")
    second = connection.create_session().create_consumer(topic)
    send(session, topic, "two")
    assert [first.receive(WAIT_MS).text for _ in range(2)] == ["one", "two"]  # type: ignore[union-attr]
    assert second.receive(WAIT_MS).text == "two"  # type: ignore[union-attr]
    assert first.receive_no_wait() is None
    assert second.receive(100) is None


def test_a_subscription_made_before_start_misses_nothing(kjms_factory: object, topic: Topic) -> None:
    """The subscription exists from the consumer's creation on, also while the connection is stopped."""
    with kjms_factory.create_connection() as connection:  # type: ignore[attr-defined]
        session = connection.create_session()
        consumer = session.create_consumer(topic)
        send(session, topic, "early")
        assert consumer.receive(50) is None
        connection.start()
        assert consumer.receive(WAIT_MS).text == "early"


def test_a_selector_on_a_topic_skips_the_rest(connection: Connection, topic: Topic) -> None:
    """Messages that a subscriber's selector does not want are not delivered to it."""
    session = connection.create_session()
    consumer = session.create_consumer(topic, "kind = 'x'")
    with session.create_producer(topic) as producer:
        for number in range(10):
            message = session.create_text_message(str(number))
            message.properties["kind"] = "x" if number % 3 == 0 else "y"
            producer.send(message)
    assert [consumer.receive(WAIT_MS).text for _ in range(4)] == ["0", "3", "6", "9"]  # type: ignore[union-attr]


def test_a_listener_hears_a_topic(
    connection: Connection, topic: Topic, eventually: Callable[[Callable[[], object]], None]
) -> None:
    """A message listener is called for every message, in order."""
    heard: list[str] = []
    consumer = connection.create_session().create_consumer(topic)
    consumer.message_listener = lambda message: heard.append(message.text)
    send(connection.create_session(), topic, *map(str, range(100)))
    eventually(lambda: len(heard) == 100)
    assert heard == [str(number) for number in range(100)]
