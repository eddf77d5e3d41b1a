"""What the tests of subscriptions share: connections with client identifiers, and messages."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator

import pytest

from kjms import Connection, ConnectionFactory, MessageConsumer, Session, Topic

SECONDS = 20_000


class Desk:
    """A topic of the test's own, and connections that are closed when it ends."""

    def __init__(self, factory: ConnectionFactory, topic: Topic, stack: contextlib.ExitStack) -> None:
        self.topic = topic
        self.client = f"client-{uuid.uuid4().hex[:12]}"
        self._factory = factory
        self._stack = stack
        self._sender: Session | None = None

    def connect(self, client_id: str | None = None) -> Connection:
        """Return a started connection."""
        connection = self._stack.enter_context(self._factory.create_connection())
        if client_id is not None:
            connection.client_id = client_id
        connection.start()
        return connection

    def session(self, client_id: str | None = None, mode: int = Session.AUTO_ACKNOWLEDGE) -> Session:
        """Return a session of a new connection."""
        return self.connect(client_id).create_session(mode)

    def send(self, *texts: str, topic: Topic | None = None, session: Session | None = None) -> None:
        """Send messages with these texts; the property ``n`` of each is its text's length."""
        if session is None:
            self._sender = session = self._sender or self.session()
        with session.create_producer(topic or self.topic) as producer:
            for text in texts:
                message = session.create_text_message(text)
                message.set_int_property("n", len(text))
                producer.send(message)

    @staticmethod
    def receive(consumer: MessageConsumer, count: int = 1) -> list[str]:
        """Return the texts of the next *count* messages."""
        return [consumer.receive(SECONDS).text for _ in range(count)]  # type: ignore[union-attr]


@pytest.fixture
def desk(kjms_factory: ConnectionFactory, topic: Topic) -> Iterator[Desk]:
    with contextlib.ExitStack() as stack:
        yield Desk(kjms_factory, topic, stack)
