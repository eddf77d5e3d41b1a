"""Settled records of a queue are deleted, and nothing that a consumer needs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kjms import Connection, ConnectionFactory, Message, Queue, Session, TextMessage
from kjms.broker import LocalBroker
from kjms.testing.engine import statistics, tuned
from tests.helpers import WAIT_MS, Eventually, bounds, send, wait_for


def factory(broker: Any, queue: Queue, **options: Any) -> ConnectionFactory:
    """Return a factory whose connections share their engine, which gives back space, with no other test."""
    return ConnectionFactory(broker.bootstrap_servers, kafka={"client.id": queue.queue_name}, **options)


@pytest.fixture
def kjms_broker(breakable_broker: LocalBroker) -> LocalBroker:
    """A Kafka with few groups: each look for messages that can go asks for the offsets of all."""
    return breakable_broker


@pytest.fixture(autouse=True)
def soon() -> Iterator[None]:
    """Have engines look all the time for what can go."""
    with tuned(retention_seconds=0.05):
        yield


def stays(broker: Any, connection: Connection, topic: str, offset: int) -> bool:
    """Return whether the log of *topic* begins at *offset* still, when the engine has looked for what can go."""
    before = statistics(connection).cleanings
    wait_for(lambda: statistics(connection).cleanings > before + 1)
    return first_offset(broker, topic) == offset


def first_offset(broker: Any, topic: str) -> int:
    return bounds(broker.bootstrap_servers, topic)[0][0]


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
        send(connection, queue, *range(10))
        message = settle(connection, queue, 6)
        assert isinstance(message, TextMessage)
        assert message.text == "6"
        wait_for(lambda: first_offset(kjms_broker, queue.queue_name) == 6)
        assert stays(kjms_broker, connection, queue.queue_name, 6)
    with factory(kjms_broker, queue).create_connection() as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(queue)
        texts = [consumer.receive(WAIT_MS) for _ in range(4)]
        assert [text.text for text in texts if isinstance(text, TextMessage)] == ["6", "7", "8", "9"]


@pytest.mark.parametrize("kept", [None, 2**63 - 1, timedelta.max])
def test_what_was_settled_a_moment_ago_stays(kjms_broker: Any, queue: Queue, kept: int | timedelta | None) -> None:
    """For an hour, or as long as is said, a settled message stays readable, for other programs and to find mistakes."""
    with factory(kjms_broker, queue, keep_settled=kept).create_connection() as connection:
        connection.start()
        send(connection, queue, *range(5))
        settle(connection, queue, 4)
        assert stays(kjms_broker, connection, queue.queue_name, 0)


def test_what_another_group_has_not_read_yet_stays(kjms_broker: Any, queue: Queue) -> None:
    """Nothing is deleted beyond what any other group of Kafka has committed."""
    with factory(kjms_broker, queue, keep_settled=0).create_connection() as connection:
        connection.start()
        send(connection, queue, *range(10))
        archive = Consumer(
            {"bootstrap.servers": kjms_broker.bootstrap_servers, "group.id": f"archive-of-{queue.queue_name}"}
        )
        archive.commit(offsets=[TopicPartition(queue.queue_name, 0, 3)], asynchronous=False)
        settle(connection, queue, 8)
        wait_for(lambda: first_offset(kjms_broker, queue.queue_name) == 3)
        assert stays(kjms_broker, connection, queue.queue_name, 3)
        archive.close()


def test_a_topic_that_others_made_keeps_everything(kjms_broker: Any, queue: Queue) -> None:
    """Only where the option says so is anything deleted from a Kafka topic that kjms did not make."""
    servers, topic = kjms_broker.bootstrap_servers, queue.queue_name
    admin = AdminClient({"bootstrap.servers": servers})
    forever = {"retention.ms": "-1"}  # the records are old, and the broker looks for such at any time
    admin.create_topics([NewTopic(topic, 1, config=forever)])[topic].result()
    producer = Producer({"bootstrap.servers": servers})
    for number in range(5):
        producer.produce(topic, str(number), timestamp=1_000)
    producer.flush()
    with factory(kjms_broker, queue).create_connection() as connection:
        connection.start()
        settle(connection, queue, 4)
        assert stays(kjms_broker, connection, topic, 0)
    with factory(kjms_broker, queue, keep_settled=1_000).create_connection() as connection:
        connection.start()
        assert connection.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(queue).receive(WAIT_MS) is not None
        wait_for(lambda: first_offset(kjms_broker, topic) == 4)


def test_what_was_said_last_of_how_long_it_stays_counts(kjms_broker: Any, queue: Queue) -> None:
    """A connection that says how long settled messages stay counts though another one reads the queue already."""
    with factory(kjms_broker, queue).create_connection() as first:
        first.start()
        send(first, queue, *range(5))
        settle(first, queue, 4)
        assert stays(kjms_broker, first, queue.queue_name, 0)
        with factory(kjms_broker, queue, keep_settled=0).create_connection() as second:
            second.create_session().create_consumer(queue).close()
            with factory(kjms_broker, queue).create_connection() as third:
                third.create_session().create_consumer(queue).close()
            wait_for(lambda: first_offset(kjms_broker, queue.queue_name) == 4)


def test_who_made_a_queue_is_known_to_other_programs(kjms_broker: Any, queue: Queue, eventually: Eventually) -> None:
    """A queue that one program made is given its space back by another one, later."""
    with factory(kjms_broker, queue).create_connection() as connection:
        send(connection, queue, *range(5))
    with tuned(kept_ms=0), factory(kjms_broker, queue).create_connection() as connection:
        connection.start()
        settle(connection, queue, 4)
        eventually(lambda: first_offset(kjms_broker, queue.queue_name) == 4)
