"""Where workloads run: a broker, topics of their own, and for raw clients the records and the settings of kjms."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kjms import Connection, ConnectionFactory, DeliveryMode, Queue, Session, aio
from kjms.bench._payload import text_message
from kjms.engine import admin_settings, common_settings, consumer_settings, producer_settings
from kjms.options import DEFAULT_SEND_TIMEOUT

__all__ = ["Sample", "Stage"]

WAIT_SECONDS: Final = 60.0
AT_ONCE: Final = 250  # topics that one request asks to make or delete
OURS: Final = frozenset({"error_cb", "logger", "allow.auto.create.topics"})


class Sample(NamedTuple):
    """A record as kjms writes it, for raw clients to write, too."""

    value: bytes
    headers: list[tuple[str, bytes | None]]


class Stage:
    """A broker and what workloads need around it.

    Args:
        bootstrap_servers: Kafka's address; what is asked of the stage without one must need no broker.
        kafka: Settings that every client needs, such as those of security.
        user: The name for SASL.
        password: The password for it.
        prefix: What the names of its topics begin with.
        is_own: Whether the broker is there for this stage alone.
        send_timeout: Milliseconds until connecting, or sending a message, fails.

    Attributes:
        count: How many messages a round of the workload that runs now is to handle.
        factory: Makes kjms connections, with the defaults of kjms.
    """

    def __init__(
        self,
        bootstrap_servers: str = "",
        *,
        kafka: Mapping[str, Any] | None = None,
        user: str | None = None,
        password: str | None = None,
        prefix: str = "kjms-bench-",
        is_own: bool = False,
        send_timeout: int = DEFAULT_SEND_TIMEOUT,
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.is_own = is_own
        self.count = 1
        self.prefix = f"{prefix}{uuid.uuid4().hex[:8]}"
        self._kafka = dict(kafka or {})
        self._credentials = user, password
        self._topics: dict[str, bool] = {}  # what was made, and whether it is there for all rounds
        self._kept: dict[Hashable, Any] = {}
        self._numbers = itertools.count(1)
        self._samples: dict[DeliveryMode, Sample] = {}
        if bootstrap_servers:
            self._common = common_settings(bootstrap_servers, self._kafka, user, password, lambda error: None)
            self._options: dict[str, Any] = {"send_timeout": send_timeout}
            self.factory = ConnectionFactory(bootstrap_servers, kafka=self._kafka, **self._options)
            self.admin = AdminClient(_without(admin_settings(self._common), OURS))

    def __enter__(self) -> Stage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bootstrap_servers:
            try:
                self.forget()
                # What kjms made beside them: for messages that were relocated or handed over.
                left = [name for name in self.admin.list_topics(timeout=WAIT_SECONDS).topics if self._is_ours(name)]
                self.delete(left)
            finally:
                del self.admin  # it would complain of a broker that ends before it

    def _is_ours(self, topic: str) -> bool:
        return topic.startswith(f"{self.prefix}-")

    def connect(self, **options: Any) -> Connection:
        """Return a new connection of a factory with these *options* besides those that the cluster needs."""
        factory = self.factory
        if options:
            kafka = {**self._kafka, **options.pop("kafka", {})}
            factory = ConnectionFactory(self.bootstrap_servers, kafka=kafka, **{**self._options, **options})
        return factory.create_connection(*self._credentials)

    def context(self, session_mode: int = Session.AUTO_ACKNOWLEDGE) -> aio.JMSContext:
        """Return a new context for asyncio, with what `connect` gives a connection."""
        factory = aio.ConnectionFactory(self.bootstrap_servers, kafka=self._kafka, **self._options)
        return factory.create_context(session_mode, *self._credentials)

    # Topics, and what is in them.

    def clear(self) -> None:
        """Delete the topics that were made for a round."""
        topics = [name for name, is_kept in self._topics.items() if not is_kept]
        self._topics = {name: True for name, is_kept in self._topics.items() if is_kept}
        self.delete(topics)

    def forget(self) -> None:
        """Delete everything that was made for a workload."""
        self._kept.clear()
        self._topics = dict.fromkeys(self._topics, False)
        self.clear()

    def delete(self, topics: Sequence[str]) -> None:
        """Delete Kafka topics; it does no harm if one is not there."""
        for first in range(0, len(topics), AT_ONCE):
            for deleted in self.admin.delete_topics(list(topics[first : first + AT_ONCE])).values():
                try:
                    deleted.result(WAIT_SECONDS)
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:  # it is gone already
                        raise

    def kept(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return what *make* returns; it is called once for all rounds of a workload."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def topic(self, *, filled: int = 0, partitions: int = 1, is_kept: bool = False) -> str:
        """Return the name of a new topic, holding *filled* messages as kjms writes them.

        Args:
            filled: How many messages.
            partitions: Into how many partitions they go in turn.
            is_kept: Whether the topic is there for all rounds of the workload, and not only for this one.
        """
        (name,) = self.topics(1, partitions=partitions, is_kept=is_kept)
        if filled:
            self.fill([name], filled, partitions=partitions)
        return name

    def topics(self, count: int, *, partitions: int = 1, is_kept: bool = False) -> list[str]:
        """Return the names of so many new topics; arguments as of `topic`."""
        names = [f"{self.prefix}-{next(self._numbers)}" for _ in range(count)]
        self._topics.update(dict.fromkeys(names, is_kept))
        for first in range(0, count, AT_ONCE):
            wanted = [NewTopic(name, partitions) for name in names[first : first + AT_ONCE]]
            for made in self.admin.create_topics(wanted).values():
                made.result(WAIT_SECONDS)
        return names

    def fill(
        self,
        topics: Sequence[str],
        messages: int,
        *,
        partitions: int = 1,
        headers: Sequence[Mapping[str, bytes]] = ({},),
        body: bytes | None = None,
    ) -> None:
        """Write so many messages to *topics* in turn, and return when they are there.

        Args:
            topics: Where they go.
            messages: How many in all.
            partitions: How many partitions each topic has; they get messages in turn.
            headers: Values in place of those that the payload's headers have, message by message in turn.
            body: In place of the payload's.
        """
        value, usual = self.sample()
        value = value if body is None else body
        kinds = [[(name, each.get(name, text)) for name, text in usual] for each in headers]
        filler = Producer({**self.plain_settings(Producer), "linger.ms": 20})
        for number in range(messages):
            topic, partition = topics[number % len(topics)], number // len(topics) % partitions
            while True:
                try:
                    filler.produce(topic, value, headers=kinds[number % len(kinds)], partition=partition)
                    break
                except BufferError:
                    filler.poll(0.01)
            if number % 100 == 0:
                filler.poll(0)
        left = filler.flush(WAIT_SECONDS)
        if left:
            raise TimeoutError(f"{left} of {messages} messages for {topics[0]!r} were not taken in {WAIT_SECONDS} s")

    def sample(self, mode: DeliveryMode = DeliveryMode.PERSISTENT) -> Sample:
        """Return what kjms writes for a message of the payload, as it was read back from Kafka."""
        if mode not in self._samples:
            topic = self.topic()
            with self.connect() as connection, connection.create_session() as session:
                session.create_producer(Queue(topic)).send(text_message(), delivery_mode=mode)
            reader = Consumer({**self.plain_settings(Consumer), "group.id": topic})
            reader.assign([TopicPartition(topic, 0, 0)])
            record = reader.poll(WAIT_SECONDS)
            reader.close()
            if record is None:
                raise TimeoutError(f"the sample written to {topic!r} could not be read in {WAIT_SECONDS} s")
            self._samples[mode] = Sample(record.value(), record.headers())
        return self._samples[mode]

    # Settings for raw clients.

    def plain_settings(self, client: type) -> dict[str, Any]:
        """Return the settings that a `Producer` or `Consumer` needs for the cluster, and none besides."""
        chosen = producer_settings(self._common) if client is Producer else consumer_settings(self._common, None)
        named = {*self._kafka, *(name for name in self._common if name.startswith(("sasl.", "security.")))}
        return {name: value for name, value in chosen.items() if name in named or name == "bootstrap.servers"}

    def producer_settings(self, *, linger_ms: int) -> dict[str, Any]:
        """Return librdkafka's settings as the producers of kjms have them."""
        return {
            **_without(producer_settings(self._common, linger_ms=linger_ms), {"error_cb", "logger"}),
            "linger.ms": linger_ms,
            "enable.idempotence": True,
            "message.timeout.ms": self._options["send_timeout"],
            "partitioner": "murmur2_random",
        }

    def consumer_settings(self, group: str) -> dict[str, Any]:
        """Return librdkafka's settings as the readers of kjms have them."""
        return _without(consumer_settings(self._common, group), {"error_cb", "logger"})


def _without(settings: Mapping[str, Any], names: frozenset[str] | set[str]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in names}
