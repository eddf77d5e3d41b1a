"""Partitions that are added to a topic while it is used."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from kjms import Connection, ConnectionFactory, MessageConsumer, Queue, Session, TextMessage, Topic
from kjms.broker import LocalBroker

SECONDS = 45_000  # well below librdkafka's five minutes
ADDED = 3

Opened = Callable[[Session, str], MessageConsumer]
KINDS: dict[str, Opened] = {
    "queue": lambda session, name: session.create_consumer(Queue(name)),
    "topic": lambda session, name: session.create_consumer(Topic(name)),
    "shared subscription": lambda session, name: session.create_shared_consumer(Topic(name), "shared"),
}


@pytest.mark.parametrize("opened", KINDS.values(), ids=KINDS)
def test_added_partitions_are_read(
    kjms_broker: LocalBroker, connection: Connection, kjms_destination_name: str, opened: Opened
) -> None:
    """A consumer receives what is sent to partitions that its topic did not have when the consumer was made."""
    name = kjms_destination_name
    session = connection.create_session()
    with session.create_producer(Topic(name)) as producer, opened(session, name) as consumer:
        producer.send(session.create_text_message("before"))
        assert consumer.receive(SECONDS) is not None
        servers = {"bootstrap.servers": kjms_broker.bootstrap_servers}
        admin = AdminClient(servers)
        admin.create_partitions([NewPartitions(name, ADDED)])[name].result()
        plain = Producer(servers)
        for number in range(1, ADDED):
            plain.produce(name, f"in partition {number}".encode(), partition=number)
        plain.flush()
        messages = [consumer.receive(SECONDS) for _ in range(1, ADDED)]
    texts = sorted(message.get_body(str) for message in messages if message is not None)
    assert texts == [f"in partition {number}" for number in range(1, ADDED)]


def test_senders_use_added_partitions(
    kjms_broker: LocalBroker, kjms_destination_name: str, eventually: Callable[[Callable[[], object]], None]
) -> None:
    """A session that spreads its messages sends to partitions that were added since it began."""
    name = kjms_destination_name
    factory = ConnectionFactory(kjms_broker.bootstrap_servers, ordering="none", kafka={"client.id": "spreading"})
    servers = {"bootstrap.servers": kjms_broker.bootstrap_servers}
    with factory.create_context() as context, factory.create_context() as other:
        producer, consumer = context.create_producer(), other.create_consumer(Queue(name))
        producer.send(Queue(name), "before")
        admin = AdminClient(servers)
        admin.create_partitions([NewPartitions(name, ADDED)])[name].result()

        def is_spread() -> bool:
            producer.send(Queue(name), TextMessage("spread"))
            message = consumer.receive(1_000)
            return message is not None and len(consumer._consumer._feed.reader.numbers()) == ADDED

        eventually(is_spread)

        def is_used() -> bool:
            producer.send(Queue(name), TextMessage("spread"))
            return all(context._connection._engine.topics.ends(name, ADDED).values())

        eventually(is_used)
