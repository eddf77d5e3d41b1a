"""Commits that Kafka does not take, and those that it takes although they are large: all of it or nothing."""

from __future__ import annotations

from typing import Any

import pytest

from kjms import Message, Queue, ResourceAllocationException, Session, TransactionRolledBackException
from kjms.engine.kafka import AdminPort, NewTopic
from tests.helpers import Eventually, text

TOO_LARGE = "x" * 1_200_000  # characters; a Kafka topic takes about a million bytes unless told otherwise


def committed(session: Session, desk: Any, written: Queue) -> None:
    """Commit *session*, which cannot be; say what it has written if it can."""
    session.commit()
    pytest.fail(f"was committed, with texts of {[len(each) for each in desk.stored(written)]} characters")


@pytest.mark.requirement("JAK-commit-8", "JAK-commit-9", "NET-47", "JMS-7.3-19", "NEV-331")
def test_a_commit_that_fails_says_so_and_is_a_rollback(desk: Any, queue: Queue, other_queue: Queue) -> None:
    """The exception has the cause; nothing was sent, what was received is redelivered, and the session stays usable."""
    desk.send(queue, "a", "b")
    session = desk.transacted()
    consumer = session.create_consumer(queue)
    for count in (1, 2):
        assert desk.seen(consumer, 2) == [("a", count > 1, count), ("b", count > 1, count)]
        desk.send(other_queue, "small", TOO_LARGE, "small", by=session)
        with pytest.raises(TransactionRolledBackException, match="Message size too large") as raised:
            committed(session, desk, other_queue)
        assert isinstance(raised.value.linked_exception, ResourceAllocationException)
        assert raised.value.error_code == "MSG_SIZE_TOO_LARGE"
        assert other_queue.queue_name in str(raised.value)
        assert TOO_LARGE not in str(raised.value)
    assert desk.seen(consumer, 2) == [("a", True, 3), ("b", True, 3)]
    desk.send(other_queue, "c", by=session)
    session.commit()
    session.close()
    assert desk.stored(other_queue) == ["c"]
    assert desk.left(queue) == []


def test_messages_that_are_too_large_together_are_none_too_large(desk: Any, admin: AdminPort, queue: Queue) -> None:
    """A topic that takes small batches only takes as many messages in one transaction as any other."""
    new = NewTopic(queue.queue_name, 1, 1, config={"max.message.bytes": "4000"})
    admin.create_topics([new], operation_timeout=10, request_timeout=10)[queue.queue_name].result()
    session = desk.transacted()
    texts = [str(number).ljust(500) for number in range(100)]
    desk.send(queue, *texts, by=session)
    session.commit()
    assert desk.stored(queue) == texts


def test_after_a_commit_that_failed_the_oldest_message_comes_first(
    desk: Any, queue: Queue, other_queue: Queue, eventually: Eventually
) -> None:
    """With several listeners, too: as after a rollback that the program asked for."""
    session = desk.transacted()
    heard: list[str] = []
    failures: list[Exception] = []

    def listener(message: Message) -> None:
        heard.append(text(message))
        if len(heard) == 3:
            desk.send(queue, TOO_LARGE, by=session)
            try:
                session.commit()
            except TransactionRolledBackException as failure:
                failures.append(failure)
        elif len(heard) == 6:
            session.commit()

    for place in (queue, other_queue):
        session.create_consumer(place).message_listener = listener
    for number, place in enumerate((other_queue, queue, other_queue), 1):
        desk.send(place, number)
        eventually(lambda count=number: len(heard) >= count)
    eventually(lambda: len(heard) == 6)
    assert len(failures) == 1
    assert heard[3] == "1"
    assert sorted(heard[3:]) == ["1", "2", "3"]


def test_a_transaction_may_be_larger_than_the_buffer(desk: Any, queue: Queue, other_queue: Queue) -> None:
    """However few messages librdkafka may hold at a time, all are written, once and in their order."""
    connection = desk.connect(is_apart=True, kafka={"queue.buffering.max.messages": 100})
    session = desk.transacted(connection)
    desk.send(queue, *range(1_000), by=session)
    session.commit()
    consumer = session.create_consumer(queue)
    desk.send(other_queue, *desk.texts(consumer, 1_000), by=session)
    session.commit()
    assert desk.stored(other_queue) == [str(number) for number in range(1_000)]
    connection.close()
    assert desk.left(queue) == []
