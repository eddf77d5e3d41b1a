"""Where workloads run: a broker, topics of their own, and for raw clients the records and the settings of kjms."""

from __future__ import annotations

import itertools
import uuid
from types import TracebackType
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks._payload import text_message
from kjms import ConnectionFactory, DeliveryMode, Queue
from kjms.engine._settings import common_settings, consumer_settings, producer_settings

__all__ = ["Sample", "Stage"]

WAIT_SECONDS: Final = 30.0


class Sample(NamedTuple):
    """A record as kjms writes it, for raw clients to write, too."""

    value: bytes
    headers: list[tuple[str, bytes | None]]


class Stage:
    """A broker and what workloads need around it.

    Args:
        bootstrap_servers: Kafka's address; what is asked of the stage without one must need no broker.

    Attributes:
        count: How many messages a round of the workload that runs now is to handle.
        factory: Makes kjms connections, with the defaults of kjms.
    """

    def __init__(self, bootstrap_servers: str = "") -> None:
        self.bootstrap_servers = bootstrap_servers
        self.count = 1
        self._topics: list[str] = []
        self._kept: list[str] = []
        self._numbers = itertools.count(1)
        self._prefix = f"bench-{uuid.uuid4().hex[:8]}"
        self._samples: dict[DeliveryMode, Sample] = {}
        if bootstrap_servers:
            self.factory = ConnectionFactory(bootstrap_servers)
            self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})
            self._filler = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 20})

    def __enter__(self) -> Stage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._topics += self._kept
        self.clear()
        if self.bootstrap_servers:
            del self._filler, self._admin  # they would complain of a broker that ends before them

    def clear(self) -> None:
        """Delete the topics that were made."""
        topics, self._topics = self._topics, []
        if topics:
            for deleted in self._admin.delete_topics(topics).values():
                deleted.result(WAIT_SECONDS)

    def topic(self, *, filled: int = 0) -> str:
        """Return the name of a new topic with one partition, holding *filled* messages as kjms writes them."""
        name = f"{self._prefix}-{next(self._numbers)}"
        self._admin.create_topics([NewTopic(name, 1, 1)])[name].result(WAIT_SECONDS)
        self._topics.append(name)
        if filled:
            self.fill(name, filled)
        return name

    def kept_topic(self, partitions: int) -> str:
        """Return the name of a new topic that is there until the stage ends, and not only for a round."""
        name = f"{self._prefix}-{next(self._numbers)}"
        self._admin.create_topics([NewTopic(name, partitions, 1)])[name].result(WAIT_SECONDS)
        self._kept.append(name)
        return name

    def fill(self, topic: str, messages: int) -> None:
        """Write so many messages to *topic*, and return when it has them."""
        value, headers = self.sample()
        for _ in range(messages):
            while True:
                try:
                    self._filler.produce(topic, value, headers=headers)
                    break
                except BufferError:
                    self._filler.poll(0.01)
            self._filler.poll(0)
        left = self._filler.flush(WAIT_SECONDS)
        if left:
            raise TimeoutError(f"{left} of {messages} messages for {topic!r} were not taken in {WAIT_SECONDS} s")

    def sample(self, mode: DeliveryMode = DeliveryMode.PERSISTENT) -> Sample:
        """Return what kjms writes for a message of the payload, as it was read back from Kafka."""
        if mode not in self._samples:
            topic = self.topic()
            with self.factory.create_connection() as connection, connection.create_session() as session:
                session.create_producer(Queue(topic)).send(text_message(), delivery_mode=mode)
            reader = Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": topic})
            reader.assign([TopicPartition(topic, 0, 0)])
            record = reader.poll(WAIT_SECONDS)
            reader.close()
            if record is None:
                raise TimeoutError(f"the sample written to {topic!r} could not be read in {WAIT_SECONDS} s")
            self._samples[mode] = Sample(record.value(), record.headers())
        return self._samples[mode]

    def producer_settings(self, *, linger_ms: int) -> dict[str, Any]:
        """Return librdkafka's settings as the producers of kjms have them."""
        return {
            **_without_callbacks(producer_settings(self._common(), linger_ms=linger_ms)),
            "linger.ms": linger_ms,
            "enable.idempotence": True,
            "message.timeout.ms": 10_000,
            "partitioner": "murmur2_random",
        }

    def consumer_settings(self, group: str) -> dict[str, Any]:
        """Return librdkafka's settings as the readers of kjms have them."""
        return _without_callbacks(consumer_settings(self._common(), group))

    def _common(self) -> dict[str, Any]:
        return common_settings(self.bootstrap_servers, {}, None, None, lambda error: None)


def _without_callbacks(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in {"error_cb", "logger"}}
