"""What producers are made for, what can be set on them, and what goes with each message."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kjms import (
    DeliveryMode,
    InvalidDestinationException,
    Message,
    MessageConsumer,
    MessageProducer,
    Queue,
    QueueSender,
    Session,
    Topic,
    TopicPublisher,
)
from tests.helpers import WAIT_MS, text


def received(consumer: MessageConsumer) -> Message:
    message = consumer.receive(WAIT_MS)
    assert message is not None
    return message


@pytest.mark.requirement(
    "JAK-createProducer-1", "JAK-createProducer-2", "JAK-createProducer-3", "JAK-createProducer-4", "JMS-4.6-1",
    "JMS-A.1.6-1", "NET-316", "NET-318",
)  # fmt: skip
def test_a_producer_is_of_a_destination_or_of_none(session: Session, kjms_destination_name: str) -> None:
    """It sends to its queue or topic; one that was made without a destination to the one that each send names."""
    queue, topic = Queue(kjms_destination_name), Topic(f"{kjms_destination_name}-topic")
    consumers = {place: session.create_consumer(place) for place in (queue, topic)}
    producers = {place: session.create_producer(place) for place in (queue, topic)}
    for place, producer in producers.items():
        assert isinstance(producer, MessageProducer)
        assert producer.destination == place
        producer.send(session.create_text_message(f"to {place}"))
    free = session.create_producer(None)
    assert free.destination is None
    assert session.create_producer().destination is None
    for place, consumer in consumers.items():
        assert text(consumer.receive(WAIT_MS)) == f"to {place}"
        free.send(session.create_text_message(f"free, to {place}"), place)
        assert text(consumer.receive(WAIT_MS)) == f"free, to {place}"
    for wrong in (None, "orders", [queue, topic]):  # one destination at a time
        with pytest.raises(InvalidDestinationException):
            free.send(session.create_text_message("nowhere"), wrong)  # type: ignore[arg-type]
        if wrong is not None:
            with pytest.raises(InvalidDestinationException):
                session.create_producer(wrong)  # type: ignore[arg-type]
    for consumer in consumers.values():
        assert consumer.receive_no_wait() is None
    assert issubclass(QueueSender, MessageProducer)
    assert issubclass(TopicPublisher, MessageProducer)


@pytest.mark.requirement("JMS-3.4.11-16", "JMS-4.6-3", "NET-320", "NET-323", "NEV-257", "NEV-258", "NEV-259")
def test_the_producer_says_how_messages_are_sent(session: Session, queue: Queue) -> None:
    """Its delivery mode, priority, time to live and delay, or those of the send, count; not what the message has."""
    assert [(mode.name, mode.value) for mode in DeliveryMode] == [("NON_PERSISTENT", 1), ("PERSISTENT", 2)]
    producer, consumer = session.create_producer(queue), session.create_consumer(queue)
    assert (producer.delivery_mode, producer.priority, producer.time_to_live, producer.delivery_delay) == (2, 4, 0, 0)
    producer.delivery_mode, producer.priority = DeliveryMode.NON_PERSISTENT, 7
    producer.time_to_live, producer.delivery_delay = timedelta(hours=1), 300
    message = session.create_text_message("x")
    message.jms_delivery_mode, message.jms_priority, message.jms_expiration = 2, 1, 1
    message.jms_delivery_time = 1
    for given, wanted in (
        ({}, (1, 7, 3_600_000, 300)),
        ({"delivery_mode": 2, "priority": 0, "time_to_live": 7_200_000, "delivery_delay": 0}, (2, 0, 7_200_000, 0)),
        ({"delivery_mode": DeliveryMode.PERSISTENT}, (2, 7, 3_600_000, 300)),
        ({"time_to_live": 0, "priority": 9}, (1, 9, None, 300)),
    ):
        producer.send(message, **given)  # type: ignore[arg-type]
        got = received(consumer)
        lives = got.jms_expiration - got.jms_timestamp if got.jms_expiration else None
        delay = got.jms_delivery_time - got.jms_timestamp
        assert (got.jms_delivery_mode, got.jms_priority, lives, delay) == wanted


@pytest.mark.requirement("NEV-35")
def test_ids_can_be_left_out(session: Session, queue: Queue) -> None:
    """disable_message_id is the producer's hint; it can be set and taken back."""
    producer, consumer = session.create_producer(queue), session.create_consumer(queue)
    assert producer.disable_message_id is False
    for hint in (True, False):
        producer.disable_message_id = hint
        assert producer.disable_message_id is hint
        producer.send(session.create_message())
        assert (received(consumer).jms_message_id is None) is hint
