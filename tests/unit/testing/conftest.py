"""Clients of an in-memory Kafka; and, with the slow tests, of a real one: the in-memory one must behave the same."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kjms.engine.kafka import (
    AdminPort,
    ConsumerPort,
    IsolationLevel,
    KafkaError,
    KafkaException,
    KafkaMessage,
    NewTopic,
    OffsetSpec,
    ProducerPort,
    TopicPartition,
    open_admin,
    open_consumer,
    open_producer,
)
from tests.helpers import WAIT_SECONDS, wait_for


@pytest.fixture(params=["memory", pytest.param("real", marks=pytest.mark.slow)])
def servers(request: pytest.FixtureRequest) -> str:
    """The address of each Kafka."""
    name = {"memory": "kafka", "real": "kjms_broker"}[request.param]
    return str(request.getfixturevalue(name).bootstrap_servers)


class Clients:
    """Makes clients with the settings that kjms uses, topics, and closes what it made."""

    def __init__(self, servers: str) -> None:
        self.errors: list[KafkaError] = []
        self._config = {"bootstrap.servers": servers, "allow.auto.create.topics": False, "error_cb": self.errors.append}
        self.admin: AdminPort = open_admin(self._config)
        self._made: list[ConsumerPort] = []

    def topic(self, partitions: int = 1, **settings: str) -> str:
        """Make a topic, of a name that no other has."""
        name = f"t-{uuid.uuid4().hex}"
        new = NewTopic(name, partitions, 1, config={k.replace("_", "."): v for k, v in settings.items()})
        self.admin.create_topics([new], operation_timeout=WAIT_SECONDS, request_timeout=WAIT_SECONDS)[name].result()
        wait_for(lambda: len(self.admin.list_topics(name, timeout=WAIT_SECONDS).topics[name].partitions) == partitions)
        return name

    def consumer(self, group: str | None = None, **settings: Any) -> ConsumerPort:
        """Make a consumer."""
        made = open_consumer(
            {
                **self._config,
                "group.id": group or uuid.uuid4().hex,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "partition.assignment.strategy": "cooperative-sticky",
                "heartbeat.interval.ms": 300,
                "session.timeout.ms": 6_000,
                "enable.partition.eof": True,
                "topic.metadata.refresh.interval.ms": 500,
                **{k.replace("_", "."): v for k, v in settings.items()},
            }
        )
        self._made.append(made)
        return made

    def producer(self, transactional_id: str | None = None, **settings: Any) -> ProducerPort:
        """Make a producer; with an id, one whose transactions are initialised."""
        config = {
            **self._config,
            "enable.idempotence": True,
            "retry.backoff.ms": 5,
            "retry.backoff.max.ms": 50,
            "partitioner": "murmur2_random",
            **{k.replace("_", "."): v for k, v in settings.items()},
        }
        if transactional_id is not None:
            config["transactional.id"] = transactional_id
        made = open_producer(config)
        if transactional_id is not None:
            made.init_transactions(WAIT_SECONDS)
        return made

    def end(self, topic: str, *, is_committed: bool = True) -> int:
        """Return where partition 0 of *topic* ends."""
        level = IsolationLevel.READ_COMMITTED if is_committed else IsolationLevel.READ_UNCOMMITTED
        asked = {TopicPartition(topic, 0): OffsetSpec.latest()}
        answers = self.admin.list_offsets(asked, isolation_level=level, request_timeout=WAIT_SECONDS)
        return int(next(iter(answers.values())).result().offset)

    def close(self) -> None:
        for consumer in self._made:
            consumer.close()


@pytest.fixture
def clients(servers: str) -> Iterator[Clients]:
    """What makes clients."""
    made = Clients(servers)
    yield made
    made.close()


class Reports:
    """What became of records, in the order of the reports."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, int | None]] = []

    def __call__(self, error: Any, message: KafkaMessage) -> None:
        self.heard.append(("" if error is None else error.name(), message.offset()))


@pytest.fixture
def reports() -> Reports:
    """A place for reports."""
    return Reports()


@pytest.fixture
def write(clients: Clients) -> Callable[..., None]:
    """A function that writes values to a partition, and waits until they are confirmed."""
    producer = clients.producer()

    def call(topic: str, *values: bytes, partition: int = 0, timestamp: int = 0, heard: Any = None) -> None:
        for value in values:
            producer.produce(
                topic, value, None, partition, headers=[], timestamp=timestamp, on_delivery=heard or Reports()
            )
        assert producer.flush(WAIT_SECONDS) == 0

    return call


@pytest.fixture
def read() -> Callable[[ConsumerPort, str, int], list[tuple[int, bytes]]]:
    """A function that reads a partition from an offset to its end: the offset and value of each record."""

    def call(consumer: ConsumerPort, topic: str, offset: int) -> list[tuple[int, bytes]]:
        consumer.assign([TopicPartition(topic, 0, offset)])
        found = []
        for message in polled(consumer):
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF"
                return [*found, (message.offset() or 0, b"END")]
            found.append((message.offset() or 0, message.value() or b""))
        raise AssertionError

    return call


def error(call: Callable[[], object]) -> KafkaError:
    """Return the error that *call* raises."""
    with pytest.raises(KafkaException) as raised:
        call()
    return raised.value.args[0]


def polled(consumer: ConsumerPort) -> Iterator[KafkaMessage]:
    """Give what *consumer* gets; fail where that is nothing for long."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is not None:
            yield message
    raise AssertionError("nothing came")
