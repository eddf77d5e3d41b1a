"""What the contract's tests share: the Kafka that they run on, and connections to it, as of one process or of several.

Each test states a rule of kjms, and runs on each Kafka of the fixture `kafka`: the real one says what is right.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kjms import ConnectionFactory, Queue, Topic
from kjms.broker import LocalBroker
from kjms.engine.kafka import (
    AdminPort,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    KafkaMessage,
    OffsetSpec,
    TopicPartition,
    open_admin,
    open_consumer,
    open_producer,
)
from kjms.mapping.names import queue_group
from kjms.testing import MemoryKafka
from tests.helpers import WAIT_SECONDS, name_of


@pytest.fixture(scope="session")
def memory_kafka() -> Iterator[MemoryKafka]:
    """The in-memory Kafka of all tests, and an open connection to it: the engine that most tests share stays."""
    with MemoryKafka() as kafka, ConnectionFactory(kafka.bootstrap_servers).create_connection():
        yield kafka


@pytest.fixture(scope="session")
def real_kafka(kjms_broker: Any) -> Iterator[Any]:
    """The real Kafka of all tests, and an open connection to it: the engine that most tests share stays."""
    with ConnectionFactory(kjms_broker.bootstrap_servers).create_connection():
        yield kjms_broker


@pytest.fixture(params=["memory", pytest.param("real", marks=pytest.mark.slow)])
def kafka(request: pytest.FixtureRequest) -> Any:
    """The Kafka that the test runs on, with its ``bootstrap_servers``."""
    return request.getfixturevalue(f"{request.param}_kafka")


@pytest.fixture(scope="module")
def own_broker() -> Iterator[LocalBroker]:
    """A real Kafka that has the destinations of one module's tests alone."""
    with LocalBroker() as broker:
        yield broker


@pytest.fixture
def alone(kafka: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A Kafka of the kind of `kafka` that no other tests use: all that it has is the test's."""
    if isinstance(kafka, MemoryKafka):
        with MemoryKafka() as memory:
            yield memory
    else:
        yield request.getfixturevalue("own_broker")


@pytest.fixture
def kjms_factory(kafka: Any) -> ConnectionFactory:
    """A connection factory for the test's Kafka."""
    return ConnectionFactory(kafka.bootstrap_servers)


@pytest.fixture
def admin(kafka: Any) -> AdminPort:
    """What asks the test's Kafka for topics and groups."""
    return open_admin({"bootstrap.servers": kafka.bootstrap_servers})


@pytest.fixture
def settled(admin: AdminPort) -> Callable[[Queue], int]:
    """A function that tells up to which message a queue of one partition is settled, as Kafka has it."""

    def base(queue: Queue) -> int:
        group = queue_group(queue.queue_name)
        asked = [ConsumerGroupTopicPartitions(group)]
        answer = admin.list_consumer_group_offsets(asked, request_timeout=WAIT_SECONDS)[group].result()
        return max([p.offset for p in answer.topic_partitions if p.topic == queue.queue_name], default=0)

    return base


@pytest.fixture
def ends(admin: AdminPort) -> Callable[[Queue | Topic], dict[int, int]]:
    """A function that tells where each partition of a destination's Kafka topic ends, for readers of committed ones."""

    def ends(where: Queue | Topic) -> dict[int, int]:
        name = name_of(where)
        numbers = admin.list_topics(name, timeout=WAIT_SECONDS).topics[name].partitions
        asked = {TopicPartition(name, number): OffsetSpec.latest() for number in numbers}
        level = IsolationLevel.READ_COMMITTED
        found = admin.list_offsets(asked, isolation_level=level, request_timeout=WAIT_SECONDS)
        known = {}
        for place, future in found.items():
            with contextlib.suppress(KafkaException):  # of a partition that was just added
                known[place.partition] = future.result().offset
        return known

    return ends


@pytest.fixture
def commit(kafka: Any) -> Callable[..., None]:
    """A function that commits an offset and metadata for a queue's group, as another program might."""

    def commit(queue: Queue, offset: int, metadata: str) -> None:
        group = queue_group(queue.queue_name)
        consumer = open_consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
        place = TopicPartition(queue.queue_name, 0, offset, metadata)
        consumer.commit(offsets=[place], asynchronous=False)
        consumer.close()

    return commit


@pytest.fixture
def write(kafka: Any) -> Callable[..., None]:
    """A function that writes a record to a destination's Kafka topic, as a program without kjms does."""
    producer = open_producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0})

    def write(
        where: Queue | Topic,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Any = (),
        partition: int = 0,
        timestamp: int = 0,
    ) -> None:
        failures: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _: KafkaMessage) -> None:
            if error is not None:
                failures.append(error)

        name = name_of(where)
        how = {"headers": list(headers), "timestamp": timestamp, "on_delivery": on_delivery}
        producer.produce(name, value, key, partition, **how)
        assert producer.flush(WAIT_SECONDS) == 0
        assert failures == []

    return write
