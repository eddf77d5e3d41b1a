"""The replicas of the Kafka topics that kjms keeps for itself: as many as the factory's replication_factor asks for.

The broker is one node and refuses a topic with two replicas, so a refusal shows what was asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kjms import Connection, ConnectionFactory, JMSException, Queue, RedeliveryPolicy, Session
from kjms.broker import LocalBroker
from kjms.mapping.names import BOOKKEEPING, REDELIVERIES, REGISTRY
from kjms.testing.engine import engine_of, statistics
from tests.helpers import WAIT_MS, Eventually

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    """A Kafka of one node that no kjms has used before."""
    with LocalBroker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result()
        yield broker


@pytest.fixture
def connection(broker: LocalBroker) -> Iterator[Connection]:
    factory = ConnectionFactory(
        broker.bootstrap_servers, replication_factor=2, redelivery=RedeliveryPolicy(max_deliveries=2)
    )
    with factory.create_connection() as connection:
        connection.start()
        yield connection


def receive_and_recover(connection: Connection) -> None:
    with connection.create_session(Session.CLIENT_ACKNOWLEDGE) as session:
        session.create_producer(Queue("orders")).send(session.create_text_message("again"))
        consumer = session.create_consumer(Queue("orders"))
        assert consumer.receive(WAIT_MS) is not None
        session.recover()
        again = consumer.receive(WAIT_MS)
        assert again is not None
        again.acknowledge()


def refused(lines: list[str], topic: str) -> bool:
    return any(f"create the Kafka topic {topic!r}" in line and "replication" in line.lower() for line in lines)


def test_bookkeeping_follows_the_factory(connection: Connection) -> None:
    """A transaction that only sends needs kjms.bookkeeping, which is made with the factory's replicas."""
    session = connection.create_session(Session.SESSION_TRANSACTED)
    session.create_producer(Queue("orders")).send(session.create_text_message("one"))
    with pytest.raises(JMSException) as raised:
        session.commit()
    assert refused([str(raised.value)], BOOKKEEPING)


def test_redeliveries_follow_the_factory(
    connection: Connection, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """The topic for redeliveries is made with the factory's replicas."""
    receive_and_recover(connection)
    eventually(lambda: refused([record.getMessage() for record in caplog.records], REDELIVERIES))


def test_registry_and_inbox_follow_the_factory(connection: Connection) -> None:
    """The registry, which comes before an inbox, is made with the factory's replicas."""
    with pytest.raises(JMSException) as raised:
        connection.create_session().create_temporary_queue()
    assert refused([str(raised.value)], REGISTRY)


@pytest.mark.parametrize("suffix", ["delayed", "overflow"])
def test_topics_beside_a_destination_follow_the_factory(connection: Connection, suffix: str) -> None:
    """What stands beside a destination has its replicas, and the factory's where they are more."""
    session = connection.create_session()
    if suffix == "delayed":
        with pytest.raises(JMSException) as raised:
            session.create_producer(Queue("orders")).send(session.create_text_message("late"), delivery_delay=60_000)
        assert refused([str(raised.value)], "orders.kjms.delayed")
        return
    session.create_producer(Queue("orders"))
    with pytest.raises(JMSException) as raised:
        engine_of(connection).overflows.of("orders", "kjms.queue.orders").ensure(0)
    assert refused([str(raised.value)], "orders.kjms.overflow")


def test_a_second_factory_of_the_process_is_followed(broker: LocalBroker, connection: Connection) -> None:
    """Connections share an engine: the largest replication_factor of their factories counts."""
    with ConnectionFactory(broker.bootstrap_servers, replication_factor=3).create_connection() as second:
        assert statistics(second).name == statistics(connection).name
        assert engine_of(connection).topics.replication_factor == 3


def test_too_few_replicas_are_reported_once(broker: LocalBroker, caplog: pytest.LogCaptureFixture) -> None:
    """An internal topic that exists with fewer replicas is used, and reported once with both numbers."""

    def send_in_a_transaction(connection: Connection) -> None:
        with connection.create_session(Session.SESSION_TRANSACTED) as session:
            session.create_producer(Queue("orders")).send(session.create_text_message("one"))
            session.commit()

    with ConnectionFactory(broker.bootstrap_servers).create_connection() as connection:
        send_in_a_transaction(connection)
    assert "replication_factor" not in caplog.text
    with ConnectionFactory(broker.bootstrap_servers, replication_factor=2).create_connection() as connection:
        for _ in range(2):
            send_in_a_transaction(connection)
            engine_of(connection).topics.look_up(BOOKKEEPING)
    lines = [record for record in caplog.records if "replication_factor" in record.getMessage()]
    assert [record.levelno for record in lines] == [logging.WARNING]
    assert f"{BOOKKEEPING!r} has a partition with 1 of the 2 replicas" in lines[0].getMessage()
