"""What the tests of the broker share: plain Kafka clients."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic


class PlainKafka:
    """A Kafka program that knows nothing of kjms."""

    def __init__(self, bootstrap_servers: str, **settings: Any) -> None:
        self.client = {"bootstrap.servers": bootstrap_servers, "log_level": 0, **settings}
        self.admin = AdminClient(self.client)

    @property
    def cluster_id(self) -> str:
        return str(self.admin.list_topics(timeout=10).cluster_id)

    def topics(self) -> set[str]:
        return set(self.admin.list_topics(timeout=10).topics)

    def write(self, topic: str, value: bytes) -> None:
        if topic not in self.topics():
            self.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(10)
        producer = Producer(self.client)
        failures = []
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
        assert producer.flush(20) == 0
        assert failures == []

    def read(self, topic: str) -> bytes | None:
        """The topic's first value."""
        consumer = Consumer({**self.client, "group.id": "reader", "enable.auto.commit": False})
        try:
            consumer.assign([TopicPartition(topic, 0, 0)])
            message = consumer.poll(20)
            return message.value() if message is not None and message.error() is None else None
        finally:
            consumer.close()


@pytest.fixture
def plain_kafka() -> type[PlainKafka]:
    return PlainKafka
