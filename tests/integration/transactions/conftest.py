"""What the tests of transacted sessions share: sessions, messages, and a reader that knows nothing of kjms."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from kjms import (
    Connection,
    ConnectionFactory,
    JMSException,
    Message,
    MessageConsumer,
    Queue,
    Session,
    TextMessage,
    Topic,
)
from kjms.broker import LocalBroker

SECONDS = 20_000
END = "the end"
HASTY = {"session.timeout.ms": 1_000, "heartbeat.interval.ms": 200}  # how soon a group misses another program

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
        """Return, and take away, what is left in *queue*: text, mark, and count of each message."""
        self.send(queue, END)
        found = []
        with self.connection.create_session() as session, session.create_consumer(queue) as consumer:
            while (message := seen(consumer.receive(SECONDS)))[0] != END:
                found.append(message)
        return found

    def stored(self, where: Queue | Topic) -> list[str]:
        """Return the texts of all messages of a destination that a plain read-committed Kafka consumer sees."""
        return stored(self.servers, getattr(where, "queue_name", "") or getattr(where, "topic_name", ""))

    def commit_together(self, connection: Connection, *sessions: Session) -> list[Exception | None]:
        """Commit *sessions* in one Kafka transaction, in their order; return what each commit raised."""
        committer = connection._engine.committer
        carry_out, batches = committer._carry_out, []
        outcomes: list[Exception | None] = [None] * len(sessions)

        def wait_for_all(batch: list[Any]) -> None:
            batches.append(len(batch))
            deadline = time.monotonic() + SECONDS / 1000
            while len(batches) == 1 and len(committer._units) < len(sessions):
                assert time.monotonic() < deadline
                time.sleep(0.001)
            carry_out(batch)

        def commit(number: int) -> None:
            try:
                sessions[number].commit()
            except JMSException as error:
                outcomes[number] = error

        first = self.session(connection)
        self.send(Queue(f"first-{uuid.uuid4().hex}"), "first", by=first)
        committer._carry_out = wait_for_all  # type: ignore[method-assign]
        try:
            threads = [threading.Thread(target=first.commit)]
            threads += [threading.Thread(target=commit, args=(number,)) for number in range(len(sessions))]
            for number, thread in enumerate(threads):
                thread.start()
                while len(committer._units) < number or not batches:
                    time.sleep(0.001)
            for thread in threads:
                thread.join()
        finally:
            del committer._carry_out  # type: ignore[method-assign]
        assert batches[:2] == [1, len(sessions)]
        first.close()
        return outcomes

    @contextlib.contextmanager
    def program(self, code: str, **names: object) -> Iterator[subprocess.Popen[str]]:
        """Run *code*, with *names* to use, in another process, until it has printed "ready"."""
        begin = "import os, sys, time\nfrom kjms import *\n"
        begin += f"factory = ConnectionFactory({self.servers!r}, kafka={HASTY!r})\n"
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
    consumer = Consumer({**settings, "enable.partition.eof": True, "fetch.wait.max.ms": 10})
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


@pytest.fixture(scope="session")
def own_broker() -> Iterator[LocalBroker]:
    """A Kafka that may be killed, and that lets a group find out within a second that a member is gone."""
    with LocalBroker(config={"group.min.session.timeout.ms": "500"}) as broker:
        yield broker


@pytest.fixture
def own_desk(own_broker: LocalBroker) -> Iterator[Desk]:
    """A desk at that Kafka."""
    with contextlib.ExitStack() as stack:
        yield Desk(own_broker.bootstrap_servers, stack)
