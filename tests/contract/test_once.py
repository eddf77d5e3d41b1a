"""Exactly once: of what moves from one destination to another in transactions nothing is lost or doubled."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from kjms import Queue, Topic, TransactionRolledBackException
from tests.contract.moving import Mover
from tests.helpers import WAIT_SECONDS

MESSAGES = 120


@pytest.mark.requirement("JMS-4.4.7-2", "JMS-4.4.7-3", "NEV-216", "NEV-217")
@pytest.mark.parametrize("partitions", [1, 3])
def test_processes_that_move_messages_in_transactions_move_each_once(
    desk: Any, queue: Queue, other_queue: Queue, partitions: int
) -> None:
    """Processes come and go, and roll back, as they move messages; in the end each message is there once."""
    options = {"is_apart": True, "partitions": partitions, "ordering": "none"}
    desk.send(queue, *range(MESSAGES), by=desk.connect(**options).create_session())

    def is_done() -> bool:
        return len(desk.stored(other_queue)) >= MESSAGES

    seeds = itertools.count(partitions)
    movers = [Mover(desk.connect(**options), queue, other_queue, next(seeds), is_done) for _ in range(3)]
    while not is_done():
        for number, mover in enumerate(movers):
            mover.thread.join(0.1)
            if not mover.thread.is_alive():
                assert mover.raised is None
                movers[number] = Mover(desk.connect(**options), queue, other_queue, next(seeds), is_done)
    for mover in movers:
        mover.thread.join(WAIT_SECONDS)
        assert mover.raised is None
    assert sorted(map(int, desk.stored(other_queue))) == list(range(MESSAGES))
    assert desk.left(queue) == []


@pytest.mark.requirement("JMS-4.4.7-2", "JMS-4.4.7-3")
def test_one_transaction_moves_between_destinations_of_all_kinds(
    desk: Any, queue: Queue, other_queue: Queue, topic: Topic
) -> None:
    """Received from a queue and a subscription, sent to queues, one of them delayed, and a topic: all of it or none."""
    session = desk.transacted(desk.connect(client_id=f"of {topic.topic_name}"))
    later = Queue(f"{queue.queue_name}-later")
    target = Topic(f"{topic.topic_name}-target")
    watcher = desk.session().create_consumer(target)
    orders, news = session.create_consumer(queue), session.create_durable_consumer(topic, "it")
    desk.send(queue, "order")
    desk.send(topic, "news")
    for end in (session.rollback, session.commit):
        assert desk.texts(orders, 1) + desk.texts(news, 1) == ["order", "news"]
        for place in (other_queue, target):
            desk.send(place, "sent", by=session)
        desk.send(later, "sent", by=session, delivery_delay=100)
        assert desk.stored(other_queue) == []
        assert watcher.receive_no_wait() is None
        end()
    assert desk.texts(watcher, 1) == ["sent"]
    assert desk.left(other_queue) == [("sent", False, 1)]
    assert desk.texts(desk.session().create_consumer(later), 1) == ["sent"]
    assert desk.left(later) == []
    session.rollback()
    desk.send(topic, "the next")
    assert desk.seen(news, 1) == [("the next", False, 1)]
    assert desk.left(queue) == []


@pytest.mark.requirement("JMS-4.4.7-2")
def test_a_transaction_that_kafka_cannot_carry_out_does_none_of_it(desk: Any, queue: Queue, other_queue: Queue) -> None:
    """A send that Kafka does not take fails the commit: nothing was sent, and what was received comes again."""
    desk.send(queue, *"ab")
    session = desk.transacted()
    consumer = session.create_consumer(queue)
    assert desk.texts(consumer, 2) == ["a", "b"]
    desk.send(other_queue, "small", by=session)
    desk.send(other_queue, "x" * 2_000_000, by=session)
    with pytest.raises(TransactionRolledBackException, match="MSG_SIZE_TOO_LARGE"):
        session.commit()
    assert desk.seen(consumer, 2) == [("a", True, 2), ("b", True, 2)]
    session.commit()
    assert desk.stored(other_queue) == []
    assert desk.left(queue) == []


@pytest.mark.requirement("JMS-4.4.7-1")
def test_each_transaction_ends_in_the_next(desk: Any, queue: Queue) -> None:
    """After a commit or rollback the session is in a new transaction, which has its own messages alone."""
    session = desk.transacted()
    for number in range(6):
        desk.send(queue, number, by=session)
        (session.rollback if number % 3 == 0 else session.commit)()
    assert desk.stored(queue) == ["1", "2", "4", "5"]
