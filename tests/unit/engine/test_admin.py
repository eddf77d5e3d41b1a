"""What tools ask of a cluster: `kjms.engine.Admin`, on the in-memory Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kjms import ConnectionFactory, InvalidDestinationException, JMSContext, Queue, Topic
from kjms import admin as tools
from kjms.client.engine_access import engine_of
from kjms.engine import Admin
from kjms.mapping.names import REGISTRY, queue_group
from kjms.testing import MemoryKafka

ORDERS = Queue("orders")


@pytest.fixture
def factory() -> Iterator[ConnectionFactory]:
    with MemoryKafka() as kafka:
        yield ConnectionFactory(kafka.bootstrap_servers)


@pytest.fixture
def context(factory: ConnectionFactory) -> Iterator[JMSContext]:
    with factory.create_context() as context:
        yield context


@pytest.fixture
def admin(factory: ConnectionFactory) -> Iterator[Admin]:
    with factory.create_connection() as connection:
        yield engine_of(connection).admin


def test_topics_spans_and_what_is_settled(admin: Admin, factory: ConnectionFactory) -> None:
    """Topics, their offsets and settings, and the offsets that groups have committed are those of the cluster."""
    with factory.create_context() as context:
        for _ in range(3):
            context.create_producer().send(ORDERS, "x")
        consumer = context.create_consumer(ORDERS)
        assert consumer.receive(10_000) is not None
        assert consumer.receive(10_000) is not None
    group = queue_group("orders")
    assert admin.partitions("orders") == admin.topics()["orders"] == 1
    assert admin.partitions("none") == 0
    assert admin.spans({"orders": 1}) == {"orders": [(0, 3)]}
    assert admin.ends("orders") == {0: 3}
    assert group in admin.groups()
    assert admin.settled({group: "orders"})[group]["orders"] == admin.committed(group, "orders") == {0: 2}
    assert admin.settings(["orders"], ["retention.ms"]) == {"orders": {"retention.ms": "-1"}}


def test_a_queue_is_made_anew_that_a_broker_still_lists(
    factory: ConnectionFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers learn of a deletion one after the other; the one that makes topics knows what is there."""
    with factory.create_connection() as connection, tools.Admin.of(connection) as admin:
        admin.create_queue(ORDERS)
        admin.delete_queue(ORDERS)
        monkeypatch.setattr(engine_of(connection).topics, "look_up", lambda _: 1)
        admin.create_queue(ORDERS)
        with pytest.raises(InvalidDestinationException, match="queue://orders exists already"):
            admin.create_queue(ORDERS)


def test_looking_at_subscriptions_makes_no_topic(admin: Admin) -> None:
    """A cluster without subscriptions has none, and gets no registry by the question."""
    assert admin.subscriptions() == []
    with pytest.raises(InvalidDestinationException, match="no durable subscription 'daily'"):
        admin.remove_subscription("daily", None)
    assert REGISTRY not in admin.topics()


def test_subscriptions_are_found_and_removed(admin: Admin, context: JMSContext) -> None:
    """A durable subscription is listed until it is removed."""
    context.create_shared_durable_consumer(Topic("prices"), "daily").close()
    (found,) = admin.subscriptions()
    assert (found.identity.name, found.terms.topic) == ("daily", "prices")
    admin.remove_subscription("daily", None)
    assert admin.subscriptions() == []


def test_delayed_messages_are_read_and_cancelled(admin: Admin, context: JMSContext) -> None:
    """Messages that wait for their time are listed, and are gone when they are cancelled."""
    context.create_producer().set_delivery_delay(3_600_000).send(ORDERS, "later")
    with admin.delayed("orders") as delayed:
        (waiting,) = delayed.read()
        assert delayed.cancel([waiting]) == 1
        assert delayed.read() == []
