"""Kafka gets the space back of what a queue has settled, and nothing is deleted that somebody needs."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kjms import Connection, ConnectionFactory, Message, Queue, Session, TextMessage
from tests.helpers import WAIT_MS, Eventually


def factory(broker: Any, queue: Queue, **options: Any) -> ConnectionFactory:
    """Return a factory whose connections share their engine, which gives back space, with no other test."""
    return ConnectionFactory(broker.bootstrap_servers, kafka={"client.id": queue.queue_name}, **options)


def send(connection: Connection, queue: Queue, count: int) -> None:
    with connection.create_session() as session, session.create_producer(queue) as producer:
        for number in range(count):
            producer.send(session.create_text_message(str(number)))


def first_offset(broker: Any, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), 10)[0])
    finally:
        consumer.close()


def settle(connection: Connection, queue: Queue, count: int) -> Message | None:
    """Settle the first *count* messages, and return the next one, unsettled."""
    consumer = connection.create_session(101).create_consumer(queue)
    for _ in range(count):
        message = consumer.receive(WAIT_MS)
        assert message is not None
        message.acknowledge()
    return consumer.receive(WAIT_MS)


def test_what_is_settled_and_old_enough_is_deleted(kjms_broker: Any, queue: Queue) -> None:
    """Of a queue that kjms made, the records before the oldest unsettled one go; the others are delivered."""
    with factory(kjms_broker, queue, keep_settled=0).create_connection() as connection:
        connection.start()
        send(connection, queue, 10)
        message = settle(connection, queue, 6)
        assert isinstance(message, TextMessage)
        assert message.text == "6"
        assert connection._engine.space.give_back() == 1
        assert first_offset(kjms_broker, queue.queue_name) == 6
        assert connection._engine.space.give_back() == 0
    with factory(kjms_broker, queue).create_connection() as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(queue)
        texts = [consumer.receive(WAIT_MS) for _ in range(4)]
        assert [text.text for text in texts if isinstance(text, TextMessage)] == ["6", "7", "8", "9"]


def test_what_was_settled_a_moment_ago_stays(kjms_broker: Any, queue: Queue) -> None:
    """For an hour a settled message stays readable, for other programs and for those who look for mistakes."""
    with factory(kjms_broker, queue).create_connection() as connection:
        connection.start()
        send(connection, queue, 5)
        settle(connection, queue, 4)
        assert connection._engine.space.give_back() == 0
    assert first_offset(kjms_broker, queue.queue_name) == 0


def test_what_another_group_has_not_read_yet_stays(kjms_broker: Any, queue: Queue) -> None:
    """Nothing is deleted beyond what any other group of Kafka has committed."""
    with factory(kjms_broker, queue, keep_settled=0).create_connection() as connection:
        connection.start()
        send(connection, queue, 10)
        settle(connection, queue, 8)
        archive = Consumer(
            {"bootstrap.servers": kjms_broker.bootstrap_servers, "group.id": f"archive-of-{queue.queue_name}"}
        )
        archive.commit(offsets=[TopicPartition(queue.queue_name, 0, 3)], asynchronous=False)
        assert connection._engine.space.give_back() == 1
        assert first_offset(kjms_broker, queue.queue_name) == 3
        archive.close()


def test_a_topic_that_others_made_keeps_everything(kjms_broker: Any, queue: Queue) -> None:
    """Only where the option says so is anything deleted from a Kafka topic that kjms did not make."""
    servers, topic = kjms_broker.bootstrap_servers, queue.queue_name
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": servers})
    for number in range(5):
        producer.produce(topic, str(number), timestamp=1_000)
    producer.flush()
    with factory(kjms_broker, queue).create_connection() as connection:
        connection.start()
        settle(connection, queue, 4)
        assert connection._engine.space.give_back() == 0
    with factory(kjms_broker, queue, keep_settled=1_000).create_connection() as connection:
        connection.start()
        assert connection.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(queue).receive(WAIT_MS) is not None
        assert connection._engine.space.give_back() == 1
    assert first_offset(kjms_broker, topic) == 4


def test_what_was_said_last_of_how_long_it_stays_counts(kjms_broker: Any, queue: Queue) -> None:
    """A connection that says how long settled messages stay is heard though another one reads the queue already."""
    with factory(kjms_broker, queue).create_connection() as first:
        first.start()
        send(first, queue, 5)
        settle(first, queue, 4)
        assert first._engine.space.give_back() == 0
        with factory(kjms_broker, queue, keep_settled=0).create_connection() as second:
            second.create_session().create_consumer(queue).close()
            with factory(kjms_broker, queue).create_connection() as third:
                third.create_session().create_consumer(queue).close()
            assert first._engine.space.give_back() == 1
    assert first_offset(kjms_broker, queue.queue_name) == 4


def test_who_made_a_queue_is_known_to_other_programs(
    kjms_broker: Any, queue: Queue, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue that one program made is given its space back by another one, later."""
    with factory(kjms_broker, queue).create_connection() as connection:
        send(connection, queue, 5)
    monkeypatch.setattr("kjms.engine._space.DEFAULT_MS", 0)
    with factory(kjms_broker, queue).create_connection() as connection:
        connection.start()
        settle(connection, queue, 4)
        eventually(lambda: connection._engine.space.give_back() == 1)
    assert first_offset(kjms_broker, queue.queue_name) == 4
