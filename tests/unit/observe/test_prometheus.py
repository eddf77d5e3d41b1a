"""The metrics of `PrometheusObserver`, compared with what the tests count themselves."""

from __future__ import annotations

import contextlib
import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kjms import Connection, ConnectionFactory, JMSException, Message, Queue, RedeliveryPolicy, Session, TextMessage
from kjms.client.config import configuration
from kjms.gateway._metrics import Metrics
from kjms.observe import DeadLettered, Outage, Rebalanced, Received, Recovered, Sending, Sent, Settled
from kjms.observe.prometheus import PrometheusObserver
from kjms.testing import MemoryKafka
from tests.helpers import WAIT_MS, send, texts, wait_for

KNOWN = inspect.signature(ConnectionFactory).parameters
ORDERS, LABEL = Queue("orders"), {"destination": "queue://orders"}


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def connect(registry: CollectorRegistry) -> Iterator[Callable[..., Connection]]:
    """A function that returns a started connection to a Kafka of the test's own, observed in *registry*."""
    with contextlib.ExitStack() as stack:
        kafka = stack.enter_context(MemoryKafka())

        def connect(**options: Any) -> Connection:
            factory = ConnectionFactory(kafka.bootstrap_servers, observers=[PrometheusObserver(registry)], **options)
            connection = stack.enter_context(factory.create_connection())
            connection.start()
            return connection

        yield connect


@pytest.fixture
def value(registry: CollectorRegistry) -> Callable[..., float]:
    """A function that returns the value of a sample, 0 where there is none."""

    def value(name: str, **labels: str) -> float:
        return registry.get_sample_value(name, labels) or 0.0

    return value


def test_messages_are_counted(connect: Callable[..., Connection], value: Callable[..., float]) -> None:
    """Sends, deliveries and settlements are as many as the program made, with a time each."""
    connection = connect()
    send(connection, ORDERS, *range(7))
    with connection.create_session(Session.CLIENT_ACKNOWLEDGE) as session:
        consumer = session.create_consumer(ORDERS)
        assert texts(consumer, 5) == ["0", "1", "2", "3", "4"]
        session.recover()
        assert texts(consumer, 7) == [str(number) for number in range(7)]
        session._acknowledge()
    counts = {name: value(f"kjms_messages_{name}_total", **LABEL) for name in ("sent", "received", "redelivered")}
    assert counts == {"sent": 7, "received": 12, "redelivered": 5}
    outcomes = {each: value("kjms_messages_settled_total", **LABEL, outcome=each) for each in OUTCOMES}
    assert outcomes == {"acknowledged": 7, "returned": 5, "dead-lettered": 0}
    assert value("kjms_send_duration_seconds_count", **LABEL) == 7
    assert value("kjms_queue_time_seconds_count", **LABEL) == 12
    assert value("kjms_processing_duration_seconds_count", **LABEL, outcome="acknowledged") == 7
    assert value("kjms_processing_duration_seconds_count", **LABEL, outcome="returned") == 5
    assert 0 < value("kjms_send_duration_seconds_sum", **LABEL) < WAIT_MS / 1000


OUTCOMES = ("acknowledged", "returned", "dead-lettered")


def test_dead_letters_and_transactions_are_counted(
    connect: Callable[..., Connection], value: Callable[..., float]
) -> None:
    """A message that fails twice is one dead letter; commits and rollbacks are apart."""
    connection = connect(redelivery=RedeliveryPolicy(max_deliveries=2))

    def listen(_: Message) -> None:
        raise RuntimeError("no")

    session = connection.create_session()
    session.create_consumer(ORDERS).message_listener = listen
    send(connection, ORDERS, "one")
    wait_for(lambda: value("kjms_dead_letters_total", **LABEL) == 1)
    assert value("kjms_messages_settled_total", **LABEL, outcome="dead-lettered") == 1
    assert value("kjms_messages_settled_total", **LABEL, outcome="returned") == 1
    with connection.create_session(Session.SESSION_TRANSACTED) as transacted:
        for end in (transacted.commit, transacted.commit, transacted.rollback):
            send(transacted, Queue("others"), "two")
            end()
    assert value("kjms_transactions_total", outcome="committed") == 2
    assert value("kjms_transactions_total", outcome="rolled_back") == 1
    assert value("kjms_commit_duration_seconds_count") == 2
    assert value("kjms_messages_sent_total", destination="queue://others") == 2


def test_a_send_that_fails_is_counted_by_its_error(
    connect: Callable[..., Connection], value: Callable[..., float]
) -> None:
    """A failed send is none that was sent."""
    producer = connect().create_session().create_producer(ORDERS)
    with pytest.raises(JMSException) as raised:
        producer.send(TextMessage("x" * 30_000_000))
    assert value("kjms_send_errors_total", **LABEL, error=type(raised.value).__name__) == 1
    assert value("kjms_messages_sent_total", **LABEL) == 0


def test_rebalances_and_outages_are_counted(registry: CollectorRegistry, value: Callable[..., float]) -> None:
    """Partitions that moved are counted; an outage is on until its end, which adds its time."""
    observer, error = PrometheusObserver(registry), JMSException("gone")
    observer.rebalanced(Rebalanced(ORDERS, "g", "assigned", (0, 1, 2), 4.0))
    observer.rebalanced(Rebalanced(ORDERS, "g", "revoked", (1,), 4.0))
    assert value("kjms_rebalances_total", **LABEL, change="assigned") == 3
    assert value("kjms_rebalances_total", **LABEL, change="revoked") == 1
    assert value("kjms_rebalance_duration_seconds_sum", **LABEL) == pytest.approx(0.008)
    observer.outage(Outage("kafka:9092", error))
    assert value("kjms_outage", cluster="kafka:9092") == 1
    observer.recovered(Recovered("kafka:9092", error, 2_500.0))
    assert value("kjms_outage", cluster="kafka:9092") == 0
    assert value("kjms_outages_total", cluster="kafka:9092") == 1
    assert value("kjms_outage_seconds_total", cluster="kafka:9092") == 2.5


def sample_names(registry: CollectorRegistry, label: str) -> set[str]:
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {sample.labels[label] for family in families for sample in family.samples if label in sample.labels}


def test_labels_are_bounded(registry: CollectorRegistry, connect: Callable[..., Connection]) -> None:
    """Temporary destinations share a label, and so do destinations beyond the limit."""
    observer = PrometheusObserver(registry, max_destinations=3)
    for number in range(10):
        observer.sent(Sent(Sending(Queue(f"q{number}"), TextMessage("x")), 1.0))
    session = connect().create_session()
    for _ in range(10):
        observer.sent(Sent(Sending(session.create_temporary_queue(), TextMessage("x")), 1.0))
    assert sample_names(registry, "destination") == {"queue://q0", "queue://q1", "queue://q2", "other", "temporary"}
    assert registry.get_sample_value("kjms_messages_sent_total", {"destination": "other"}) == 7
    assert registry.get_sample_value("kjms_messages_sent_total", {"destination": "temporary"}) == 10


def test_a_program_names_the_label(registry: CollectorRegistry) -> None:
    """Destinations that the program gives one label are counted together."""
    observer = PrometheusObserver(registry, label=lambda destination: str(destination).rpartition("-")[0])
    for number in range(3):
        observer.settled(Settled(Queue(f"orders-{number}"), (Received(Queue("q"), TextMessage("x")),)))
        observer.dead_lettered(DeadLettered(Queue(f"orders-{number}"), Queue("d"), TextMessage("x"), 1))
    assert sample_names(registry, "destination") == {"queue://orders"}


def test_observers_of_a_registry_share_its_metrics(registry: CollectorRegistry) -> None:
    """A second observer of a registry counts in the same metrics."""
    for _ in range(2):
        PrometheusObserver(registry).sent(Sent(Sending(ORDERS, TextMessage("x")), 1.0))
    assert registry.get_sample_value("kjms_messages_sent_total", LABEL) == 2


def test_an_observer_can_be_pickled() -> None:
    """A spawned process has an observer of its own registry; one with a registry of its own says that it cannot go."""
    assert pickle.loads(pickle.dumps(PrometheusObserver(max_destinations=5)))._most == 5
    with pytest.raises(TypeError, match="leave out the registry"):
        pickle.dumps(PrometheusObserver(CollectorRegistry()))


@pytest.mark.parametrize("max_destinations", [0, -1])
def test_a_wrong_limit_is_refused(registry: CollectorRegistry, max_destinations: int) -> None:
    """There is at least one label."""
    with pytest.raises(ValueError, match="max_destinations is at least 1"):
        PrometheusObserver(registry, max_destinations=max_destinations)


@pytest.mark.parametrize("extra", ["prometheus", "otel"])
def test_a_missing_package_is_named(extra: str) -> None:
    """Without its package, an observer says what to install."""
    package = {"prometheus": "prometheus_client", "otel": "opentelemetry"}[extra]
    code = f"import sys; sys.modules[{package!r}] = None; import kjms.observe.{extra}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"pip install 'kjms[{extra}]'" in run.stderr.splitlines()[-1]


def test_a_file_and_the_environment_name_observers(tmp_path: Path) -> None:
    """``observers = ["prometheus"]``, or KJMS_OBSERVERS, gives a factory its observers by name."""
    file = tmp_path / "kjms.toml"
    file.write_text('observers = ["prometheus"]\n')
    (observer,) = configuration(file, KNOWN, {}).settings["observers"]
    assert isinstance(observer, PrometheusObserver)
    named = configuration(None, KNOWN, {"KJMS_OBSERVERS": "prometheus, otel"}).settings["observers"]
    assert [type(each).__name__ for each in named] == ["PrometheusObserver", "OpenTelemetryObserver"]
    with pytest.raises(ValueError, match="an observer is one of prometheus, otel, not 'statsd'"):
        configuration(None, KNOWN, {"KJMS_OBSERVERS": "statsd"})
    file.write_text('observers = "prometheus"\n')
    with pytest.raises(ValueError, match="observers is a list of names"):
        configuration(file, KNOWN, {})


def test_the_gateway_serves_its_counts() -> None:
    """What a gateway counts is served under the names that it had, with a text for each."""
    metrics = Metrics(connections=2)
    metrics.messages_received_total += 3
    content_type, body = metrics.exposition()
    assert content_type.startswith("text/plain")
    families = {family.name: family for family in text_string_to_metric_families(body.decode())}
    assert families["kjms_gateway_connections"].type == "gauge"
    assert families["kjms_gateway_messages_received"].type == "counter"
    assert families["kjms_gateway_messages_received"].samples[0].value == 3
    assert {"kjms_gateway_opened", "kjms_gateway_refused", "kjms_gateway_bytes_sent", "python_info"} <= set(families)
    assert all(family.documentation for family in families.values())
