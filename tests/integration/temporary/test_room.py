"""Temporary queues without a consumer: what waits stays in Kafka, and comes in order when one opens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kjms import Connection, InvalidDestinationException, Session, TemporaryQueue
from kjms.engine.statistics import InboxStatistics
from kjms.mapping.temporary import DELETIONS, MESSAGES
from kjms.testing.engine import statistics, tuned
from tests.helpers import WAIT_MS, Eventually, apart, bounds

MANY = 700


@pytest.fixture
def connection(kjms_broker: Any) -> Iterator[Connection]:
    """A connection whose messages wait in Kafka earlier."""
    with tuned(inbox_unread=100), apart(kjms_broker.bootstrap_servers) as connection:
        yield connection


def inbox_of(session: Session) -> InboxStatistics:
    inbox = statistics(session).inbox
    assert inbox is not None
    return inbox


def send_many(session: Session, queue: TemporaryQueue, count: int) -> None:
    with session.create_producer(queue) as producer:
        producer.delivery_mode = 1
        for number in range(count):
            producer.send(session.create_text_message(str(number)))


def test_what_nobody_reads_waits_in_kafka(connection: Connection) -> None:
    """A process keeps so many unread messages; the others come from Kafka, none is lost, none comes twice."""
    session = connection.create_session(Session.DUPS_OK_ACKNOWLEDGE)
    queue, other = session.create_temporary_queue(), session.create_temporary_queue()
    send_many(session, queue, MANY)
    send_many(session, other, 1)
    session.create_producer(queue).send(session.create_text_message("last"))
    assert len(list(session.create_browser(queue))) == MANY + 1
    (waiting,) = [each for each in inbox_of(session).group_consumers if each.name == queue.queue_name]
    assert waiting.unmatched == 100
    assert inbox_of(session).behind == (queue.queue_name,)
    with session.create_consumer(other) as consumer:
        assert consumer.receive(WAIT_MS) is not None  # it is not held up
    consumer = session.create_consumer(queue)
    received = [consumer.receive(WAIT_MS) for _ in range(MANY + 1)]
    assert [message.text for message in received] == [*map(str, range(MANY)), "last"]  # type: ignore[union-attr]
    session.create_producer(queue).send(session.create_text_message("live again"))
    message = consumer.receive(WAIT_MS)
    assert message is not None
    assert message.text == "live again"  # type: ignore[attr-defined]
    assert inbox_of(session).behind == ()


def test_a_selector_finds_what_waits_in_kafka(connection: Connection) -> None:
    """A consumer gets what it selects, though more messages than fit stand before it; those stay for others."""
    session = connection.create_session()
    queue = session.create_temporary_queue()
    send_many(session, queue, MANY)
    session.create_producer(queue).send(session.create_text_message("urgent"), priority=9)
    with session.create_consumer(queue, "JMSPriority = 9") as consumer:
        message = consumer.receive(WAIT_MS)
        assert message is not None
        assert message.get_body(str) == "urgent"
    with session.create_consumer(queue) as consumer:
        received = [consumer.receive(WAIT_MS) for _ in range(MANY)]
    assert [message.get_body(str) for message in received if message is not None] == [*map(str, range(MANY))]


def test_space_is_given_back(kjms_broker: Any, eventually: Eventually) -> None:
    """What was read, and is not needed, is deleted from the inbox; what a full temporary queue needs is not."""
    servers = kjms_broker.bootstrap_servers
    hasty = tuned(inbox_unread=60, inbox_retention_records=10, inbox_retention_seconds=0.05)
    with hasty, apart(servers) as connection:
        session = connection.create_session()
        queue, full = session.create_temporary_queue(), session.create_temporary_queue()
        send_many(session, queue, 50)
        send_many(session, full, 100)
        assert len(list(session.create_browser(full))) == 100
        eventually(lambda: inbox_of(session).freed == 50 + 60)
        assert bounds(servers, inbox_of(session).topic)[MESSAGES] == (110, 150)
        assert len(list(session.create_browser(queue))) == 50
        assert len(list(session.create_browser(full))) == 100


def test_deletions_are_summed_up(kjms_broker: Any, eventually: Eventually) -> None:
    """One record replaces many deletions, and a program that begins to send then knows all of them."""
    servers = kjms_broker.bootstrap_servers
    with tuned(inbox_retention_records=10, inbox_retention_seconds=0.05), apart(servers) as connection:
        session = connection.create_session()
        kept = session.create_temporary_queue()
        queues = []

        def is_summed_up_after_another() -> bool:
            queues.append(session.create_temporary_queue())
            queues[-1].delete()
            return bounds(servers, inbox_of(session).topic)[DELETIONS][0] > 0  # the records before are deleted

        eventually(is_summed_up_after_another)
        assert len(queues) >= 10
        eventually(lambda: inbox_of(session).deletions < 10)
        with apart(servers) as other:
            sending = other.create_session()
            for queue in queues:
                with pytest.raises(InvalidDestinationException, match="deleted"):
                    sending.create_producer(None).send(sending.create_message(), queue)
            sending.create_producer(None).send(sending.create_message(), kept)
