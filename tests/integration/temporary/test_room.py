"""Temporary queues that nobody reads: what waits stays in Kafka, and comes in order when somebody does."""

from __future__ import annotations

import contextlib

import pytest
from confluent_kafka import Consumer, TopicPartition

import kjms.engine._inbox as inbox_room
import kjms.engine._mailbox as mailbox_room
from kjms import Connection, Session, TemporaryQueue
from kjms.engine._deletions import Deletions
from kjms.engine._mailbox import Mailbox
from kjms.engine._settings import consumer_settings
from kjms.mapping.temporary import place_of
from tests.helpers import WAIT_MS

MANY = 700


@pytest.fixture(autouse=True)
def few_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the others wait in Kafka earlier."""
    monkeypatch.setattr(mailbox_room, "MOST_UNREAD", 100)


def mailbox_of(session: Session, queue: TemporaryQueue) -> Mailbox:
    inbox = session._engine.temporaries._inbox
    assert inbox is not None
    return inbox.entries[int(queue.queue_name.rpartition("/")[2])].mailboxes[0]


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
    mailbox = mailbox_of(session, queue)
    assert mailbox.buffer.kept_back == 100
    with session.create_consumer(other) as consumer:
        assert consumer.receive(WAIT_MS) is not None  # it is not held up
    consumer = session.create_consumer(queue)
    received = [consumer.receive(WAIT_MS) for _ in range(MANY + 1)]
    assert [message.text for message in received] == [*map(str, range(MANY)), "last"]  # type: ignore[union-attr]
    session.create_producer(queue).send(session.create_text_message("live again"))
    message = consumer.receive(WAIT_MS)
    assert message is not None
    assert message.text == "live again"  # type: ignore[attr-defined]
    assert not mailbox.gaps()


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


def test_space_is_given_back(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read, and is in nobody's way, is deleted from the inbox; what a full mailbox still needs is not."""
    monkeypatch.setattr(inbox_room, "SPACE_RECORDS", 10)
    session = connection.create_session()
    queue, full = session.create_temporary_queue(), session.create_temporary_queue()
    inbox = session._engine.temporaries._inbox
    assert inbox is not None
    before = inbox._positions[0]
    send_many(session, queue, 50)
    assert len(list(session.create_browser(queue))) == 50
    mailbox = mailbox_of(session, full)
    monkeypatch.setattr(type(mailbox), "_is_full", lambda self: self is mailbox)
    send_many(session, full, 20)
    assert len(list(session.create_browser(full))) == 20
    inbox._give_space_back()
    assert inbox._spared == before + 50
    assert len(list(session.create_browser(full))) == 20


def test_deletions_are_summed_up(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """One record takes the place of many deletions; who begins to send then knows them all."""
    session = connection.create_session()
    monkeypatch.setattr(inbox_room, "SPACE_RECORDS", 10**9)
    queues = [session.create_temporary_queue() for _ in range(13)]
    kept = queues.pop()
    for queue in queues:
        queue.delete()
    engine, inbox = session._engine, session._engine.temporaries._inbox
    assert inbox is not None
    inbox.wait_until_read(engine.topics.ends(inbox.topic, 2))
    monkeypatch.setattr(inbox_room, "SPACE_RECORDS", 10)
    inbox._give_space_back()
    deletions = Deletions(consumer_settings(engine._settings, None), 20)
    assert engine.topics.ends(inbox.topic, 2)[1] > 12
    assert all(deletions.includes(*place_of(queue)) for queue in queues)
    assert not deletions.includes(*place_of(kept))
    assert inbox._deleted_since == 0
    with contextlib.closing(Consumer(deletions._config)) as consumer:
        low, _ = consumer.get_watermark_offsets(TopicPartition(inbox.topic, 1), 20)
    assert low >= 12
    deletions.close()
