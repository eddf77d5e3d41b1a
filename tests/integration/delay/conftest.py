"""What the tests of delayed messages share: connections, as of this process or of another, messages, and the log."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from kjms import Connection, ConnectionFactory, Queue, Session, TextMessage, Topic
from kjms.engine._later import Later

SECONDS = 20_000
_numbers = itertools.count(1)


class Desk:
    """Connections that are closed when the test ends, and what is done with them again and again."""

    def __init__(self, servers: str, stack: contextlib.ExitStack) -> None:
        self.servers = servers
        self._stack = stack
        self._connection: Connection | None = None

    @property
    def connection(self) -> Connection:
        """A started connection."""
        if self._connection is None:
            self._connection = self.connect()
        return self._connection

    def connect(self, *, is_apart: bool = False, **options: Any) -> Connection:
        """Return a new started connection; one that is *apart* shares nothing with others, as in another process."""
        if is_apart:
            options["kafka"] = {"client.id": f"apart-{next(_numbers)}", **options.get("kafka", {})}
        connection = self._stack.enter_context(ConnectionFactory(self.servers, **options).create_connection())
        connection.start()
        return connection

    def session(self, mode: int = Session.AUTO_ACKNOWLEDGE) -> Session:
        """Return a new session of the connection."""
        return self.connection.create_session(mode)

    def send(
        self, where: Queue | Topic, *texts: str, by: Session | None = None, properties: Any = (), **how: Any
    ) -> list[TextMessage]:
        """Send messages with these texts, in a session of their own unless *by* is one; return them."""
        session = by or self.session()
        sent = []
        with session.create_producer(where) as producer:
            for text in texts:
                sent.append(session.create_text_message(text))
                for name, value in dict(properties).items():
                    sent[-1].set_object_property(name, value)
                producer.send(sent[-1], **how)
        return sent

    def stored(self, topic: str) -> list[Any]:
        """Return the records of a Kafka topic that a plain read-committed consumer sees now."""
        return stored(self.servers, topic)

    def served(self, where: Queue | Topic, connection: Connection | None = None) -> Later | None:
        """Return what serves the delayed messages of *where* in this process, if it has got a partition."""
        schedule = (connection or self.connection)._engine.schedule
        name = where.queue_name if isinstance(where, Queue) else where.topic_name
        found = schedule._laters.get(name)
        return found if found is not None and found.partitions else None


def stored(servers: str, topic: str) -> list[Any]:
    settings = {"bootstrap.servers": servers, "group.id": "tests", "enable.partition.eof": True}
    consumer = Consumer(
        {**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    )
    try:
        numbers = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
        ended, records = 0, []
        while ended < len(numbers):
            record = consumer.poll(20)
            assert record is not None
            if record.error() is None:
                records.append(record)
            else:
                assert record.error().code() == KafkaError._PARTITION_EOF
                ended += 1
        return records
    finally:
        consumer.close()


@pytest.fixture
def desk(kjms_broker: Any) -> Iterator[Desk]:
    with contextlib.ExitStack() as stack:
        yield Desk(kjms_broker.bootstrap_servers, stack)
