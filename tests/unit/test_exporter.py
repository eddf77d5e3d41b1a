"""`kjms.exporter.ClusterCollector`: what it gives to Prometheus, also while the cluster is away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from kjms import Connection, ConnectionFactory, Queue, RedeliveryPolicy, Session, Topic
from kjms.exporter import ClusterCollector
from kjms.health import Unhealthy
from kjms.testing import MemoryKafka
from tests.helpers import WAIT_MS, browse, send, send_with_length, take, wait_for

prometheus_client = pytest.importorskip("prometheus_client")

ORDERS = Queue("orders")
Value = Callable[..., float | None]


@pytest.fixture
def kafka() -> Iterator[MemoryKafka]:
    with MemoryKafka() as kafka:
        yield kafka


@pytest.fixture
def factory(kafka: MemoryKafka) -> ConnectionFactory:
    redelivery = RedeliveryPolicy(max_deliveries=2)
    return ConnectionFactory(kafka.bootstrap_servers, redelivery=redelivery, send_timeout=1_000)


@pytest.fixture
def connection(factory: ConnectionFactory) -> Iterator[Connection]:
    with factory.create_connection() as connection:
        connection.start()
        yield connection


@pytest.fixture
def collector(factory: ConnectionFactory) -> Iterator[ClusterCollector]:
    with ClusterCollector(factory, interval=timedelta(milliseconds=20)) as collector:
        yield collector


@pytest.fixture
def value(collector: ClusterCollector) -> Value:
    """A function that returns the value of a metric; None: there is none."""
    registry = prometheus_client.CollectorRegistry()
    registry.register(collector)

    def value(name: str, **labels: Any) -> float | None:
        found: float | None = registry.get_sample_value(name, labels)
        return found

    return value


def test_metrics_are_the_truth_counted_otherwise(connection: Connection, value: Value) -> None:
    """The depth is what a browser shows; deliveries and dead letters are those that a program has seen."""
    of = {"queue": "orders", "kind": "queue"}
    send_with_length(connection, ORDERS, *map(str, range(20)))
    with connection.create_session(Session.SESSION_TRANSACTED) as session:
        consumer = session.create_consumer(ORDERS)
        for _ in range(2):
            take(consumer, 1)
            session.rollback()
        take(consumer, 4)
        session.commit()
        consumer.close()
    wait_for(lambda: len(browse(connection, ORDERS)) == 15)  # the dead letter moves after the rollback
    wait_for(lambda: value("kjms_queue_depth_messages", **of) == 15)
    wait_for(lambda: value("kjms_queue_dead_letters", **of) == 1)
    wait_for(lambda: value("kjms_queue_dead_lettered_total", **of) == 1)
    wait_for(lambda: value("kjms_queue_redeliveries_total", **of) == 1)
    assert value("kjms_queue_depth_messages", queue="orders.dlq", kind="dead-letter") == 1
    assert value("kjms_queue_oldest_message_age_seconds", **of) > 0  # type: ignore[operator]
    assert value("kjms_queue_counted", **of) == 1


def test_subscriptions_have_metrics_of_their_own(connection: Connection, value: Value) -> None:
    """The labels name, client id and topic identify a subscription."""
    with connection.create_session() as session:
        session.create_shared_durable_consumer(Topic("prices"), "daily").close()
        send(connection, Topic("prices"), "1")
    of = {"subscription": "daily", "client_id": "", "topic": "prices"}
    wait_for(lambda: value("kjms_subscription_depth_messages", **of) == 1)
    assert value("kjms_subscription_active", **of) == 0


def test_an_outage_is_said_and_ends(kafka: MemoryKafka, connection: Connection, value: Value) -> None:
    """Without the cluster kjms_up is 0 and no figure is old; when it is back, the figures are."""
    of = {"queue": "orders", "kind": "queue"}
    send(connection, ORDERS, "ten pens")
    wait_for(lambda: value("kjms_queue_depth_messages", **of) == 1)
    assert value("kjms_up") == 1
    with kafka.faults.outage():
        wait_for(lambda: value("kjms_up") == 0)
        assert value("kjms_queue_depth_messages", **of) is None
        assert value("kjms_collection_failures_total") > 0  # type: ignore[operator]
    wait_for(lambda: value("kjms_up") == 1)
    assert value("kjms_queue_depth_messages", **of) == 1


def test_the_cluster_may_come_later(kafka: MemoryKafka, collector: ClusterCollector, value: Value) -> None:
    """A collector that starts without a cluster is not ready, and finds the cluster when it is there."""
    assert kafka.bootstrap_servers
    with (
        kafka.faults.outage(),
        ClusterCollector(
            ConnectionFactory(kafka.bootstrap_servers, kafka={"client.id": "late"}, send_timeout=100), interval=20
        ) as late,
    ):
        wait_for(lambda: "no Kafka broker answers" in repr(late))
        with pytest.raises(Unhealthy, match="no Kafka broker answers"):
            late.check()
    wait_for(lambda: value("kjms_up") == 1)
    assert collector.check().startswith("0 queues")


def test_without_reading_there_are_bounds_alone(factory: ConnectionFactory, connection: Connection) -> None:
    """An estimate has unsettled offsets and consumers, and no depth."""
    send(connection, ORDERS, "ten pens")
    with connection.create_session() as session, ClusterCollector(factory, interval=20, estimate=True) as collector:
        assert session.create_consumer(ORDERS).receive(WAIT_MS) is not None
        registry = prometheus_client.CollectorRegistry()
        registry.register(collector)
        of = {"queue": "orders", "kind": "queue"}
        wait_for(lambda: registry.get_sample_value("kjms_queue_consumers", of) == 1)
        wait_for(lambda: registry.get_sample_value("kjms_queue_unsettled_offsets", of) == 0)
        assert registry.get_sample_value("kjms_queue_depth_messages", of) is None


def test_an_interval_is_positive(factory: ConnectionFactory) -> None:
    """An interval of 0 would ask the cluster without a pause."""
    with pytest.raises(ValueError, match="interval must be positive"):
        ClusterCollector(factory, interval=0)
