"""What the tests of transacted sessions share: sessions, messages, and a reader that knows nothing of kjms."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from kjms import Connection, ConnectionFactory, Message, MessageConsumer, Queue, Session, TextMessage, Topic

SECONDS = 20_000
SOON = 400  # milliseconds in which nothing more is to come

_numbers = itertools.count(1)


class Desk:
    """Connections that are closed when the test ends, and what is done with them again and again.

    Args:
        servers: Where Kafka is.
        stack: What ends with the test.
    """

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

    def connect(self, *, client_id: str | None = None, is_apart: bool = False, **options: Any) -> Connection:
        """Return a new started connection; one that is *apart* shares nothing with others, as in another process."""
        if is_apart:
            options["kafka"] = {"client.id": f"apart-{next(_numbers)}", **options.get("kafka", {})}
        factory = ConnectionFactory(self.servers, client_id=client_id, **options)
        connection = self._stack.enter_context(factory.create_connection())
        connection.start()
        return connection

    def session(self, connection: Connection | None = None) -> Session:
        """Return a new transacted session."""
        return (connection or self.connection).create_session(Session.SESSION_TRANSACTED)

    def send(self, where: Queue | Topic, *texts: object, by: Session | None = None, **how: Any) -> None:
        """Send messages with these texts: in the transaction of the session *by*, or without one."""
        session = by or self.connection.create_session()
        with session.create_producer(where) as producer:
            for text in texts:
                producer.send(session.create_text_message(str(text)), **how)
        if by is None:
            session.close()

    @staticmethod
    def texts(consumer: MessageConsumer, count: int) -> list[str | None]:
        """Return the texts of the next *count* messages."""
        return [text(consumer.receive(SECONDS)) for _ in range(count)]

    @staticmethod
    def seen(consumer: MessageConsumer, count: int) -> list[tuple[str | None, bool, int]]:
        """Return of the next *count* messages the text, whether it is marked, and JMSXDeliveryCount."""
        return [seen(consumer.receive(SECONDS)) for _ in range(count)]

    def left(self, queue: Queue) -> list[tuple[str | None, bool, int]]:
        """Return, and take away, what another process would find in *queue*: text, mark, and count of each."""
        with self.connect(is_apart=True) as connection:
            consumer = connection.create_session().create_consumer(queue)
            found = []
            wait = 1_500  # to become a member of the group
            while (message := consumer.receive(wait)) is not None:
                found.append(seen(message))
                wait = SOON
        return found

    def stored(self, where: Queue | Topic) -> list[str]:
        """Return the texts of all messages of a destination that a plain read-committed Kafka consumer sees."""
        return stored(self.servers, getattr(where, "queue_name", "") or getattr(where, "topic_name", ""))

    @contextlib.contextmanager
    def program(self, code: str, **names: object) -> Iterator[subprocess.Popen[str]]:
        """Run *code*, with *names* to use, in another process, until it has printed "ready"."""
        begin = "import os, sys, time\nfrom kjms import *\n"
        begin += f"factory = ConnectionFactory({self.servers!r})\n"
        begin += "".join(f"{name} = {value!r}\n" for name, value in names.items())
        child = subprocess.Popen(
            [sys.executable, "-c", begin + code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            yield child
        finally:
            child.kill()
            child.communicate()


def text(message: Message | None) -> str | None:
    assert isinstance(message, TextMessage)
    return message.text


def seen(message: Message | None) -> tuple[str | None, bool, int]:
    assert message is not None
    return text(message), message.jms_redelivered, message.get_int_property("JMSXDeliveryCount")


def stored(servers: str, topic: str) -> list[str]:
    settings = {"bootstrap.servers": servers, "group.id": uuid.uuid4().hex, "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False})
    try:
        metadata = consumer.list_topics(topic, 10).topics[topic]
        if metadata.error is not None:
            return []
        left = set(metadata.partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in left])
        texts = []
        while left:
            record = consumer.poll(20)
            assert record is not None, f"{topic} cannot be read to its end"
            error = record.error()
            if error is None:
                texts.append((record.value() or b"").decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(record.partition())
        return texts
    finally:
        consumer.close()


@pytest.fixture
def desk(kjms_broker: Any) -> Iterator[Desk]:
    with contextlib.ExitStack() as stack:
        yield Desk(kjms_broker.bootstrap_servers, stack)


@pytest.fixture
def other_queue(queue: Queue) -> Queue:
    """Another queue of this test's own."""
    return Queue(f"{queue.queue_name}-other")


@pytest.fixture
def make_desk() -> Iterator[Callable[[str], Desk]]:
    """A function that returns a desk at another Kafka."""
    with contextlib.ExitStack() as stack:
        yield lambda servers: Desk(servers, stack)
