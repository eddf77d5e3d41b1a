"""What tests of the contract do again and again: connect, as of one process or of several, send, and look."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

from kjms import (
    Connection,
    ConnectionFactory,
    IllegalStateException,
    Message,
    MessageConsumer,
    Queue,
    Session,
    TextMessage,
    Topic,
)
from kjms.engine.kafka import KafkaError, KafkaMessage, TopicPartition, open_admin, open_consumer

SECONDS = 20_000  # milliseconds in which a message has come, on a busy machine, too
WAIT = SECONDS / 1000
END = "the end"
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

    def session(self, mode: int = Session.AUTO_ACKNOWLEDGE, connection: Connection | None = None) -> Session:
        """Return a new session."""
        return (connection or self.connection).create_session(mode)

    def transacted(self, connection: Connection | None = None) -> Session:
        """Return a new transacted session."""
        return self.session(Session.SESSION_TRANSACTED, connection)

    def send(
        self, where: Queue | Topic, *texts: object, by: Session | None = None, properties: Any = (), **how: Any
    ) -> list[TextMessage]:
        """Send messages with these texts, by a session of their own unless *by* is one; return them."""
        session = by or self.session()
        sent = []
        with session.create_producer(where) as producer:
            for each in texts:
                sent.append(session.create_text_message(str(each)))
                for name, value in dict(properties).items():
                    sent[-1].set_object_property(name, value)
                producer.send(sent[-1], **how)
        if by is None:
            session.close()
        return sent

    @staticmethod
    def texts(consumer: MessageConsumer, count: int) -> list[str | None]:
        """Return the texts of the next *count* messages."""
        return [text(consumer.receive(SECONDS)) for _ in range(count)]

    @staticmethod
    def seen(consumer: MessageConsumer, count: int) -> list[tuple[str | None, bool, int]]:
        """Return of the next *count* messages the text, whether it is marked, and JMSXDeliveryCount."""
        return [seen(consumer.receive(SECONDS)) for _ in range(count)]

    def left(self, queue: Queue, connection: Connection | None = None) -> list[tuple[str | None, bool, int]]:
        """Return, and take away, what is left in *queue*: text, mark, and count of each message."""
        self.send(queue, END)
        found = []
        with self.session(connection=connection) as session, session.create_consumer(queue) as consumer:
            while (message := seen(consumer.receive(SECONDS)))[0] != END:
                found.append(message)
        return found

    def stored(self, where: Queue | Topic) -> list[str]:
        """Return the texts of all messages of a destination that a plain read-committed Kafka consumer sees."""
        name = where.queue_name if isinstance(where, Queue) else where.topic_name
        return [(record.value() or b"").decode() for record in self.records(name)]

    def records(self, topic: str) -> list[KafkaMessage]:
        """Return the records of a Kafka topic that a plain read-committed consumer sees now."""
        servers = {"bootstrap.servers": self.servers}
        metadata = open_admin(servers).list_topics(topic, timeout=WAIT).topics[topic]
        if metadata.error is not None:
            return []
        settings = {**servers, "group.id": "the tests' own", "enable.partition.eof": True, "fetch.wait.max.ms": 10}
        consumer = open_consumer({**settings, "enable.auto.commit": False, "isolation.level": "read_committed"})
        try:
            left = set(metadata.partitions)
            consumer.assign([TopicPartition(topic, number, 0) for number in left])
            found = []
            while left:
                record = consumer.poll(WAIT)
                assert record is not None, f"{topic} cannot be read to its end"
                error = record.error()
                if error is None:
                    found.append(record)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    left.discard(record.partition())
            return found
        finally:
            consumer.close()


def text(message: Message | None) -> str | None:
    """Return the text of a message that has come."""
    assert isinstance(message, TextMessage)
    return message.text


def seen(message: Message | None) -> tuple[str | None, bool, int]:
    """Return a message's text, whether it is marked, and its count."""
    assert message is not None
    return text(message), message.jms_redelivered, message.get_int_property("JMSXDeliveryCount")


def refused(call: Callable[[], object]) -> bool:
    """Return whether *call* raises IllegalStateException, as what a session does while another thread uses it."""
    try:
        call()
    except IllegalStateException:
        return True
    return False
