"""A send names its message and its destination in either order."""

from __future__ import annotations

from typing import Any

import pytest

from kjms import (
    Connection,
    InvalidDestinationException,
    JMSException,
    Message,
    MessageFormatException,
    Queue,
    Session,
    TextMessage,
    TopicConnectionFactory,
)
from tests.helpers import WAIT_MS


class Foreign:
    """A text message of another implementation."""

    text = "from elsewhere"

    def property_names(self) -> list[str]:
        return []

    def get_object_property(self, name: str) -> Any:
        raise KeyError(name)


@pytest.mark.requirement("JMS-4.6.1-1", "JMS-4.6-2")
def test_the_destination_may_stand_before_the_message(connection: Connection, session: Session, queue: Queue) -> None:
    """send(destination, message), the order of JMS, is the same as send(message, destination)."""
    producer = session.create_producer(None)
    sends: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((queue, TextMessage("1")), {}),
        ((TextMessage("2"), queue), {}),
        ((TextMessage("3"),), {"destination": queue}),
        ((), {"destination": queue, "message": TextMessage("4")}),
        ((queue, TextMessage("5"), 2, 7), {"time_to_live": 60_000}),
        ((queue, Foreign()), {}),
    ]
    for arguments, named in sends:
        producer.send(*arguments, **named)
    connection.start()
    consumer = session.create_consumer(queue)
    received = [consumer.receive(WAIT_MS) for _ in sends]
    texts = {message.text: message for message in received if isinstance(message, TextMessage)}
    assert set(texts) == {*"12345", "from elsewhere"}
    assert texts["5"].jms_priority == 7
    assert texts["5"].jms_expiration > 0


@pytest.mark.requirement("JMS-4.6.1-1")
def test_a_producer_with_a_destination_refuses_what_is_none(session: Session, queue: Queue) -> None:
    """A pair that is no message and destination is refused by an error that says which of the two is missing."""
    producer = session.create_producer(None)
    message = TextMessage("x")
    other = Queue("other")
    pairs: list[tuple[tuple[Any, ...], type[JMSException], str]] = [
        ((queue, other), MessageFormatException, f"queue://{queue.queue_name} and queue://other are both destinations"),
        ((queue,), MessageFormatException, "the message is None"),
        ((queue, None), MessageFormatException, "the message is None"),
        ((None, queue), MessageFormatException, "the message is None"),
        ((queue, "text"), MessageFormatException, "a str is not a message"),
        ((message, message), InvalidDestinationException, r"not .*\(TextMessage\)"),
        ((message, "orders"), InvalidDestinationException, r"not 'orders' \(str\)"),
        (("orders", message), InvalidDestinationException, r"not 'orders' \(str\)"),
        ((message, 2), InvalidDestinationException, r"not 2 \(int\)"),
        ((message,), InvalidDestinationException, "neither the producer nor the call names a destination"),
    ]
    for pair, kind, text in pairs:
        with pytest.raises(kind, match=text):
            producer.send(*pair)
    assert message.jms_destination is None


@pytest.mark.requirement("JMS-4.6.1-1")
def test_a_publisher_takes_both_orders(kafka: Any, kjms_destination_name: str) -> None:
    """TopicPublisher.publish(topic, message) is the same as publish(message, topic)."""
    with TopicConnectionFactory(kafka.bootstrap_servers).create_topic_connection() as connection:
        connection.start()
        session = connection.create_topic_session()
        topic = session.create_topic(kjms_destination_name)
        subscriber = session.create_subscriber(topic)
        publisher = session.create_publisher(None)
        publisher.publish(topic, TextMessage("1"))
        publisher.publish(TextMessage("2"), topic)
        received: list[Message | None] = [subscriber.receive(WAIT_MS) for _ in range(2)]
        assert [message.text for message in received if isinstance(message, TextMessage)] == ["1", "2"]
