"""Messages whose time is over: they vanish, or go to the expiry queue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from kjms import Connection, ConnectionFactory, DestinationOptions, Message, Queue, Session, TextMessage, Topic
from tests.helpers import NOTHING_MS, WAIT_MS, now_ms, wait_for, wait_past


@contextmanager
def started(broker: Any, **options: Any) -> Iterator[Connection]:
    with ConnectionFactory(broker.bootstrap_servers, **options).create_connection() as connection:
        connection.start()
        yield connection


def message(session: Session, text: str) -> TextMessage:
    made = session.create_text_message(text)
    made.set_short_property("size", 7)
    return made


@pytest.mark.requirement("AMQP-3.2.1-24")
@pytest.mark.parametrize(
    ("of_the_producer", "given", "lives"),
    [
        pytest.param(
            60_000, None, 60_000, marks=pytest.mark.requirement("JMS-3.4.9-1", "NET-322", "NET-326", "AMQP-3.2.1-25")
        ),
        pytest.param(60_000, 90_000, 90_000, marks=pytest.mark.requirement("NEV-48", "NET-325", "NET-327")),
        pytest.param(60_000, 0, 0, marks=pytest.mark.requirement("JMS-3.4.9-5", "NEV-49", "AMQP-3.2.1-26")),
        pytest.param(0, None, 0, marks=pytest.mark.requirement("JMS-3.4.9-5", "NEV-49", "AMQP-3.2.1-26")),
    ],
)
def test_the_expiration_is_the_time_of_sending_plus_the_time_to_live(
    session: Session, queue: Queue, of_the_producer: int, given: int | None, lives: int
) -> None:
    """JMSExpiration is that sum in milliseconds since 1970, 0 without a time to live, and does not change after."""
    producer, consumer = session.create_producer(queue), session.create_consumer(queue)
    producer.time_to_live = of_the_producer
    sent = message(session, "x")
    before = now_ms()
    producer.send(sent, time_to_live=given)
    after = now_ms()
    if lives:
        assert before + lives <= sent.jms_expiration <= after + lives
    else:
        assert sent.jms_expiration == 0
    received = consumer.receive(WAIT_MS)
    assert received is not None
    assert received.jms_expiration == sent.jms_expiration


@pytest.mark.parametrize("lives", [2**63 - 1, 2**63, timedelta.max])
def test_a_message_that_outlives_a_long_never_expires(session: Session, queue: Queue, lives: int | timedelta) -> None:
    """JMSExpiration, a long, cannot hold the sum, and says 0, which is never; a time that it holds is kept."""
    producer, consumer = session.create_producer(queue), session.create_consumer(queue)
    producer.time_to_live = lives
    producer.send(sent := message(session, "x"))
    fits = lives == timedelta.max
    received = consumer.receive(2**63 - 1)  # what Java programs write for "without limit"
    assert received is not None
    assert received.jms_expiration == sent.jms_expiration
    assert (sent.jms_expiration != 0) == fits


def test_a_time_to_live_below_a_millisecond_is_one(session: Session, queue: Queue) -> None:
    """It is not 0, which means that the message never expires."""
    producer = session.create_producer(queue)
    producer.send(sent := message(session, "x"), time_to_live=timedelta(microseconds=1))
    assert sent.jms_expiration == sent.jms_timestamp + 1


@pytest.mark.requirement("JMS-4.8-1", "JMS-4.8-2", "JMS-3.4.9-6", "JMS-3.4.9-7", "NEV-50", "NEV-52", "NET-329")
def test_an_expired_message_is_delivered_to_nobody(session: Session, queue: Queue) -> None:
    """A message that expires before its delivery is gone, for receivers and listeners; the others come."""
    producer = session.create_producer(queue)
    for round_ in range(2):
        producer.send(stale := message(session, "stale"), time_to_live=1)
        producer.send(message(session, f"fresh {round_}"), time_to_live=600_000)
    wait_past(stale.jms_expiration)
    consumer = session.create_consumer(queue)
    received = consumer.receive(WAIT_MS)
    assert isinstance(received, TextMessage)
    assert received.text == "fresh 0"
    heard: list[str | None] = []
    consumer.message_listener = lambda m: heard.append(m.text)  # type: ignore[attr-defined]
    wait_for(lambda: heard)
    assert heard == ["fresh 1"]
    consumer.close()
    assert list(session.create_browser(queue)) == []


def test_an_expired_message_goes_to_the_expiry_queue(kafka: Any, queue: Queue) -> None:
    """It is there with all that it carried, when it expired, why it came, and from where; and it expires no more."""
    expired = Queue(f"{queue.queue_name}-expired")
    with started(kafka, expiry_queue=expired.queue_name) as connection:
        session = connection.create_session()
        sent = message(session, "stale")
        sent.jms_correlation_id = "c-1"
        producer = session.create_producer(queue)
        producer.send(sent, time_to_live=1, priority=7)
        producer.send(message(session, "fresh"))
        wait_past(sent.jms_expiration)
        fresh = session.create_consumer(queue).receive(WAIT_MS)
        assert isinstance(fresh, TextMessage)
        assert fresh.text == "fresh"
        moved = session.create_consumer(expired).receive(WAIT_MS)
        assert isinstance(moved, TextMessage)
        assert (moved.text, moved.jms_message_id, moved.jms_timestamp) == (
            "stale",
            sent.jms_message_id,
            sent.jms_timestamp,
        )
        assert (moved.jms_correlation_id, moved.jms_priority, moved.jms_redelivered) == ("c-1", 7, False)
        assert (moved.get_short_property("size"), moved.jms_expiration) == (7, 0)
        assert {name: value for name, value in moved.properties.items() if name.startswith("JMS_kjms_")} == {
            "JMS_kjms_Cause": "expired",
            "JMS_kjms_Deliveries": 0,
            "JMS_kjms_OriginalDestination": str(queue),
            "JMS_kjms_OriginalTopic": queue.queue_name,
            "JMS_kjms_OriginalPartition": 0,
            "JMS_kjms_OriginalOffset": 0,
            "JMS_kjms_OriginalExpiration": sent.jms_expiration,
        }
        assert list(session.create_browser(queue)) == []


def test_a_destination_has_an_expiry_queue_of_its_own(kafka: Any, queue: Queue) -> None:
    """The destination's option wins over the factory's, and holds for subscriptions of a topic, too."""
    ours, theirs = (Queue(f"{queue.queue_name}-{name}") for name in ("ours", "theirs"))
    prices = Topic(f"{queue.queue_name}-prices")
    destinations = {prices.topic_name: DestinationOptions(expiry_queue=ours.queue_name)}
    with started(kafka, expiry_queue=theirs.queue_name, destinations=destinations) as connection:
        session = connection.create_session()
        subscriber = session.create_shared_durable_consumer(prices, queue.queue_name)
        session.create_producer(prices).send(price := message(session, "price"), time_to_live=1)
        wait_past(price.jms_expiration)
        assert subscriber.receive(NOTHING_MS) is None
        moved = session.create_consumer(ours).receive(WAIT_MS)
        assert moved is not None
        assert moved.get_string_property("JMS_kjms_OriginalDestination") == str(prices)
        subscriber.close()
        session.unsubscribe(queue.queue_name)


def test_what_expires_in_the_expiry_queue_vanishes(kafka: Any, queue: Queue) -> None:
    """An expiry queue takes what expires elsewhere; a message sent to itself with a time to live is gone after that."""
    with started(kafka, expiry_queue=queue.queue_name) as connection:
        session = connection.create_session()
        producer = session.create_producer(queue)
        producer.send(stale := message(session, "stale"), time_to_live=1)
        producer.send(message(session, "fresh"))
        wait_past(stale.jms_expiration)
        consumer = session.create_consumer(queue)
        received: Message | None = consumer.receive(WAIT_MS)
        assert isinstance(received, TextMessage)
        assert received.text == "fresh"
        assert consumer.receive(NOTHING_MS) is None


def test_a_dead_letter_does_not_expire(kafka: Any, queue: Queue) -> None:
    """The message stays in the expiry queue, also after its time, so that the reason can be found."""
    with started(kafka) as connection:
        session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        sent = message(session, "bad")
        session.create_producer(queue).send(sent, time_to_live=600_000)
        consumer = session.create_consumer(queue)
        for _ in range(10):
            assert consumer.receive(WAIT_MS) is not None
            session.recover()
        assert consumer.receive(NOTHING_MS) is None
        dead = session.create_consumer(Queue(f"{queue.queue_name}.dlq")).receive(WAIT_MS)
        assert dead is not None
        assert dead.jms_expiration == 0
        assert dead.get_long_property("JMS_kjms_OriginalExpiration") == sent.jms_expiration


@pytest.mark.parametrize("name", ["", 7])
def test_an_expiry_queue_that_cannot_be_is_refused_at_once(name: Any) -> None:
    """A name that no queue can have is refused when the factory is made, not when a message expires."""
    with pytest.raises((TypeError, ValueError), match="expiry_queue"):
        ConnectionFactory(expiry_queue=name)
    with pytest.raises((TypeError, ValueError), match="expiry_queue"):
        ConnectionFactory(destinations={"orders": DestinationOptions(expiry_queue=name)})
