"""What JMS says of queues: names, what they hold, and which consumer gets it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kjms import (
    BytesMessage,
    Connection,
    ConnectionFactory,
    Destination,
    MapMessage,
    Message,
    MessageConsumer,
    ObjectMessage,
    Queue,
    Session,
    StreamMessage,
    TextMessage,
    Topic,
)
from kjms.engine.kafka import AdminPort, ConfigResource, ResourceType
from tests.helpers import WAIT_MS


def send(session: Session, destination: Queue, *numbers: int) -> None:
    with session.create_producer(destination) as producer:
        for number in numbers:
            message = session.create_text_message(str(number))
            message.set_int_property("n", number)
            producer.send(message)


def receive(consumer: MessageConsumer, count: int) -> list[int]:
    return [consumer.receive(WAIT_MS).get_int_property("n") for _ in range(count)]  # type: ignore[union-attr]


@pytest.fixture
def another(kafka: Any) -> ConnectionFactory:
    """A factory whose connections share no Kafka client with others, as those of another program."""
    return ConnectionFactory(kafka.bootstrap_servers, send_timeout=12_346)


@pytest.mark.requirement("JAK-createQueue-1", "JAK-createQueue-2", "JMS-5.3-1", "NET-336", "NET-337")
def test_a_queue_is_a_name_and_makes_nothing(kafka: Any, admin: AdminPort, kjms_destination_name: str) -> None:
    """create_queue wraps the name, makes no Kafka topic, and gives what every method takes that takes a destination."""
    name = kjms_destination_name
    factory = ConnectionFactory(kafka.bootstrap_servers, queue_prefix="q.")

    def topics() -> set[str]:
        return {topic for topic in admin.list_topics(timeout=10).topics if name in topic}

    with factory.create_connection() as connection:
        connection.start()
        session = connection.create_session()
        queue = session.create_queue(name)
        assert isinstance(queue, Queue)
        assert isinstance(queue, Destination)
        assert queue.queue_name == name
        assert queue == Queue(name) != Topic(name)
        assert topics() == set()
        consumer = session.create_consumer(queue)
        assert topics() == {f"q.{name}"}
        message = session.create_message()
        message.jms_reply_to = queue
        session.create_producer(queue).send(message)
        session.create_producer().send(message, queue)
        assert len(list(session.create_browser(queue))) == 2
        for _ in range(2):
            received = consumer.receive(WAIT_MS)
            assert received is not None
            assert (received.jms_destination, received.jms_reply_to) == (queue, queue)


@pytest.mark.requirement("JMS-5.11-1", "NET-338")
def test_a_queue_holds_its_messages_whoever_is_there(
    admin: AdminPort, connection: Connection, another: ConnectionFactory, queue: Queue
) -> None:
    """Messages are kept before there ever was a consumer, after the sender has gone, and between consumers."""
    with another.create_connection() as sending:
        send(sending.create_session(), queue, 1, 2, 3)
    session = connection.create_session()
    with session.create_consumer(queue) as consumer:
        assert receive(consumer, 2) == [1, 2]
    send(session, queue, 4)
    connection.close()
    with another.create_connection() as later:
        later.start()
        consumer = later.create_session().create_consumer(queue)
        assert receive(consumer, 2) == [3, 4]
        assert consumer.receive_no_wait() is None
    resource = ConfigResource(ResourceType.TOPIC, queue.queue_name)
    config = admin.describe_configs([resource], request_timeout=10)[resource].result(10)
    assert (config["retention.ms"].value, config["retention.bytes"].value) == ("-1", "-1")  # however long that is


@pytest.mark.requirement("JMS-5.8-1", "NEV-224")
def test_receivers_of_several_sessions_share_a_queue(
    connection: Connection, another: ConnectionFactory, queue: Queue
) -> None:
    """Receivers of several sessions, connections and programs may be open at once: each message goes to one of them."""
    with another.create_connection() as elsewhere:
        elsewhere.start()
        session = connection.create_session()
        consumers = [
            session.create_consumer(queue),
            session.create_consumer(queue),
            connection.create_session().create_consumer(queue),
            elsewhere.create_session().create_consumer(queue),
        ]
        send(session, queue, *range(20))
        received: list[int] = []
        while len(received) < 20:
            for consumer in consumers:
                message = consumer.receive(10)
                if message is not None:
                    received.append(message.get_int_property("n"))
        assert sorted(received) == list(range(20))
        assert [consumer.receive_no_wait() for consumer in consumers] == [None] * 4


@pytest.mark.requirement("NEV-275")
def test_a_queue_holds_a_mixture(session: Session, queue: Queue) -> None:
    """Messages of every type, mode and priority, with properties and without, stand in one queue beside each other."""
    made: list[Message] = [
        session.create_message(),
        session.create_text_message("text"),
        session.create_bytes_message(),
        session.create_map_message(),
        session.create_stream_message(),
        session.create_object_message({"any": ["value"]}),
    ]
    assert isinstance(made[2], BytesMessage)
    made[2].write_int(7)
    assert isinstance(made[3], MapMessage)
    made[3].set_int("n", 7)
    assert isinstance(made[4], StreamMessage)
    made[4].write_string("streamed")
    made[5].properties["size"] = 1
    with session.create_producer(queue) as producer:
        for number, message in enumerate(made):
            producer.send(message, delivery_mode=1 + number % 2, priority=4)
    consumer = session.create_consumer(queue)
    bodies: dict[type[Message], Callable[[Any], object]] = {
        Message: lambda _: None,
        TextMessage: lambda message: message.text,
        BytesMessage: lambda message: message.read_int(),
        MapMessage: lambda message: message.get_int("n"),
        StreamMessage: lambda message: message.read_string(),
        ObjectMessage: lambda message: message.object,
    }
    received = [consumer.receive(WAIT_MS) for _ in made]
    assert [(type(m), bodies[type(m)](m)) for m in received if m is not None] == list(
        zip(bodies, [None, "text", 7, 7, "streamed", {"any": ["value"]}], strict=True)
    )
