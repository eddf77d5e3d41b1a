"""Partitions that are added to a topic while it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kjms import Connection, ConnectionFactory, MessageConsumer, Queue, Session, TextMessage, Topic
from kjms.engine.kafka import AdminPort, NewPartitions
from kjms.testing.engine import tuned
from tests.helpers import Eventually

SECONDS = 45_000  # well below librdkafka's five minutes
ADDED = 3

Opened = Callable[[Session, str], MessageConsumer]
KINDS: dict[str, Opened] = {
    "queue": lambda session, name: session.create_consumer(Queue(name)),
    "topic": lambda session, name: session.create_consumer(Topic(name)),
    "shared subscription": lambda session, name: session.create_shared_consumer(Topic(name), "shared"),
}


@pytest.fixture
def connection(desk: Any) -> Iterator[Connection]:
    """A connection that looks for added partitions often, where Kafka's group does not tell of them."""
    with tuned(partition_check_seconds=0.2):
        yield desk.connect(is_apart=True)


@pytest.mark.parametrize("opened", KINDS.values(), ids=KINDS)
def test_added_partitions_are_read(
    admin: AdminPort,
    write: Any,
    connection: Connection,
    kjms_destination_name: str,
    opened: Opened,
    ends: Any,
    eventually: Eventually,
) -> None:
    """A consumer receives what is sent to partitions that its topic did not have when the consumer was made."""
    name = kjms_destination_name
    session = connection.create_session()
    with session.create_producer(Topic(name)) as producer, opened(session, name) as consumer:
        producer.send(session.create_text_message("before"))
        assert consumer.receive(SECONDS) is not None
        admin.create_partitions([NewPartitions(name, ADDED)], request_timeout=20)[name].result()
        for number in range(1, ADDED):
            eventually(lambda number=number: number in ends(Topic(name)))  # the broker tells of it a moment later
            write(Topic(name), f"in partition {number}".encode(), partition=number)
        messages = [consumer.receive(SECONDS) for _ in range(1, ADDED)]
    texts = sorted(message.get_body(str) for message in messages if message is not None)
    assert texts == [f"in partition {number}" for number in range(1, ADDED)]


def test_senders_use_added_partitions(
    kafka: Any, admin: AdminPort, kjms_destination_name: str, ends: Any, eventually: Eventually
) -> None:
    """A session that spreads its messages sends to partitions that were added since it began."""
    name = kjms_destination_name
    factory = ConnectionFactory(kafka.bootstrap_servers, ordering="none", kafka={"client.id": "spreading"})
    with factory.create_context() as context, factory.create_context() as other:
        producer, consumer = context.create_producer(), other.create_consumer(Queue(name))
        producer.send(Queue(name), "before")
        assert consumer.receive(SECONDS) is not None
        admin.create_partitions([NewPartitions(name, ADDED)], request_timeout=20)[name].result()

        def is_used() -> bool:
            producer.send(Queue(name), TextMessage("spread"))
            found = ends(Queue(name))
            return len(found) == ADDED and all(found.values())

        eventually(is_used)
