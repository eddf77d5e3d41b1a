"""What an object's repr tells: what it is, where it is, and in which state, and never a password or a body."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import kjms
from kjms import ConnectionFactory, JMSException, Queue, Topic, aio
from kjms.broker import LocalBroker

PASSWORD, BODY = "pa55word", "b0dy"


@pytest.fixture
def objects(kjms_broker: Any, queue: Queue, topic: Topic) -> Iterator[list[object]]:
    """One object of each public class that has a life, open."""
    servers = kjms_broker.bootstrap_servers
    factory = ConnectionFactory(servers, kafka={"sasl.password": PASSWORD})
    with factory.create_connection() as connection, factory.create_context() as context:
        session = connection.create_session()
        messages = [
            session.create_text_message(BODY), session.create_object_message(BODY), session.create_bytes_message(),
            session.create_map_message(), session.create_stream_message(), session.create_message(),
        ]  # fmt: skip
        messages[0].properties["name"] = "value"
        yield [
            factory, connection, connection.meta_data, session, session.create_producer(queue),
            session.create_consumer(topic), session.create_browser(queue), session.create_temporary_queue(),
            context, context.create_producer(), context.create_consumer(queue), *messages, queue, topic,
            kjms.RedeliveryPolicy(), kjms.DestinationOptions(), aio.ConnectionFactory(servers),
            aio.ConnectionFactory(servers).create_context(), LocalBroker(), JMSException("x"),
            kjms.QueueConnectionFactory(servers),
        ]  # fmt: skip


def test_a_repr_tells(objects: list[object]) -> None:
    """Each repr names the class, and is no bare address; passwords and bodies are in none."""
    for each in objects:
        text = repr(each)
        assert type(each).__name__ in text, text
        assert " object at 0x" not in text
        assert PASSWORD not in text
        assert BODY not in text


def test_a_repr_tells_the_state(kjms_factory: ConnectionFactory, queue: Queue) -> None:
    """Open and closed, started and stopped look different."""
    connection = kjms_factory.create_connection()
    session = connection.create_session()
    consumer = session.create_consumer(queue)
    seen = [repr(connection)]
    connection.start()
    seen.append(repr(connection))
    assert queue.queue_name in repr(consumer)
    assert "1 consumers" in repr(session)
    connection.close()
    seen.append(repr(connection))
    assert [word for word, text in zip(["stopped", "started", "closed"], seen, strict=True) if word in text] == [
        "stopped", "started", "closed",
    ]  # fmt: skip
    assert "closed" in repr(session)
    assert "closed" in repr(consumer)
