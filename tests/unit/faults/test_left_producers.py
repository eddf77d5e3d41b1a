"""Producers of a bridge and of delayed messages after a transaction of which a request may arrive again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kjms import ConnectionFactory, Queue, TextMessage
from kjms.engine import Engine
from kjms.engine.delayed.partition import PartitionProducer
from kjms.engine.kafka import KafkaError
from kjms.engine.settings import producer_settings
from kjms.engine.transactions.bridged import Bridged
from kjms.engine.transactions.errors import AbortedError
from kjms.engine.transactions.plan import Copy
from kjms.errors import JMSException
from kjms.mapping import encode
from kjms.testing import MemoryKafka
from kjms.testing.engine import engine_of
from tests.helpers import Intercepted, intercepted, stored_records


@pytest.fixture
def engine(kjms_factory: ConnectionFactory) -> Iterator[Engine]:
    with kjms_factory.create_connection() as connection:
        yield engine_of(connection)


@pytest.fixture
def topic(engine: Engine, queue: Queue) -> str:
    """The Kafka topic of a queue, which is there."""
    return engine.topic_of(queue, engine.options)[0]


def copies(topic: str, text: str) -> list[Copy]:
    return [Copy(topic, 0, encode(TextMessage(text)))]


def texts(kafka: MemoryKafka, topic: str) -> list[str]:
    return [(record.value() or b"").decode() for record in stored_records(kafka.bootstrap_servers, topic)]


def opened(engine: Engine) -> PartitionProducer:
    producer = PartitionProducer(producer_settings(engine.settings), "kjms-delayed.test.0")
    producer.open()
    return producer


def test_a_bridge_refuses_what_arrives_late(kafka: MemoryKafka, engine: Engine, topic: str) -> None:
    """It begins again after the transaction, by itself; the late commit does not commit the next one."""
    bridged = Bridged(engine, topic, "bridge")
    bridged.begin()
    late = kafka.faults.delay("commit_transaction")
    codes: list[int] = []

    class Late(Intercepted):
        def begin_transaction(self) -> None:
            self.inner.begin_transaction()
            if late.is_under_way:
                codes.append(late.arrive())

    with intercepted(kafka.bootstrap_servers, producer=Late):
        bridged.write(copies(topic, "a"), ["1"])
        bridged.write(copies(topic, "b"), ["2"])
    assert codes == [KafkaError.INVALID_PRODUCER_EPOCH]
    assert texts(kafka, topic) == ["a", "b"]
    assert [bridged.has(each) for each in "12"] == [True, True]


def test_a_bridge_that_begins_again_knows_what_another_brought(kafka: MemoryKafka, engine: Engine, topic: str) -> None:
    """Another bridge of its name has begun meanwhile: the first one ends it, and knows the ids of both."""
    second = Bridged(engine, topic, "bridge")

    class Overtaken(Intercepted):
        def commit_transaction(self, *arguments: Any) -> None:
            self.inner.commit_transaction(*arguments)
            if not second.has("1"):
                second.begin()
                second.write(copies(topic, "b"), ["2"])

    with intercepted(kafka.bootstrap_servers, producer=Overtaken):
        first = Bridged(engine, topic, "bridge")
        first.begin()
    kafka.faults.delay("commit_transaction")
    first.write(copies(topic, "a"), ["1"])
    assert [first.has(each) for each in "12"] == [True, True]
    with pytest.raises(JMSException):
        second.write(copies(topic, "c"), ["3"])
    first.write(copies(topic, "d"), ["4"])
    assert texts(kafka, topic) == ["a", "b", "d"]


def test_delayed_messages_wait_until_their_producer_is_opened_again(
    kafka: MemoryKafka, engine: Engine, topic: str
) -> None:
    """What it had written is there; it writes no more before, and what arrives late is refused after that."""
    producer = opened(engine)
    late = kafka.faults.delay("commit_transaction")
    producer.write(copies(topic, "a"))
    assert not producer.is_open
    with pytest.raises(AbortedError) as raised:
        producer.write(copies(topic, "b"))
    assert raised.value.is_passing
    producer.open()
    assert late.arrive() == KafkaError.INVALID_PRODUCER_EPOCH
    producer.write(copies(topic, "b"))
    assert texts(kafka, topic) == ["a", "b"]


def test_a_producer_that_was_left_does_not_fence_its_successor(kafka: MemoryKafka, engine: Engine, topic: str) -> None:
    """Another process owns the partition by now: what the former owner tries changes nothing for it."""
    former = opened(engine)
    kafka.faults.delay("commit_transaction")
    former.write(copies(topic, "a"))
    successor = opened(engine)
    with pytest.raises(AbortedError):
        former.write(copies(topic, "b"))
    successor.write(copies(topic, "c"))
    assert successor.is_open
    assert texts(kafka, topic) == ["a", "c"]
