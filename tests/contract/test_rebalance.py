"""What sessions have received and not settled when a partition goes to another process."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable

import pytest

from kjms import Connection, DestinationOptions, MessageConsumer, Queue, Session
from kjms.testing import MemoryKafka
from kjms.testing.engine import consumer_statistics
from tests.helpers import Desk, Eventually, take, wait_for

MESSAGES = 40


@pytest.fixture
def process(desk: Desk, queue: Queue) -> Callable[[], Connection]:
    """A function that returns a started connection of another process, for a queue of two partitions."""
    two = {queue.queue_name: DestinationOptions(partitions=2, ordering="none")}
    return functools.partial(desk.connect, is_apart=True, destinations=two)


def partitions(consumer: MessageConsumer) -> int:
    return len(consumer_statistics(consumer).numbers)


@pytest.mark.requirement("JMS-4.4.11-5", "JMS-4.4.11-6")
@pytest.mark.parametrize("mode", [Session.CLIENT_ACKNOWLEDGE, Session.SESSION_TRANSACTED])
def test_what_a_session_has_stays_with_it(
    process: Callable[[], Connection], queue: Queue, eventually: Eventually, mode: int
) -> None:
    """A process joins, and gets a partition: what the other's session has of it can be acknowledged all the same."""
    first = process()
    with first.create_session() as session, session.create_producer(queue) as producer:
        for number in range(MESSAGES):
            producer.send(session.create_text_message(str(number)))
    session = first.create_session(mode)
    consumer = session.create_consumer(queue)
    have = take(consumer, MESSAGES // 2)
    late = process().create_session().create_consumer(queue)
    eventually(lambda: partitions(consumer) == partitions(late) == 1)
    if mode == Session.SESSION_TRANSACTED:
        session.commit()
    else:
        have[-1].acknowledge()
    consumer.close()
    rest = take(late, MESSAGES - len(have))
    assert sorted(int(m.text) for m in [*have, *rest]) == list(range(MESSAGES))
    assert late.receive(300) is None
    assert not any(message.jms_redelivered for message in rest)


@pytest.mark.requirement("JMS-4.4.11-8")
def test_what_a_session_gives_back_comes_again(
    process: Callable[[], Connection], queue: Queue, eventually: Eventually
) -> None:
    """What a session had when its partition went, and does not acknowledge, comes again, marked and counted."""
    first = process()
    with first.create_session() as session, session.create_producer(queue) as producer:
        for number in range(MESSAGES):
            producer.send(session.create_text_message(str(number)))
    session = first.create_session(Session.CLIENT_ACKNOWLEDGE)
    consumer = session.create_consumer(queue)
    have = take(consumer, MESSAGES // 2)
    late = process().create_session().create_consumer(queue)
    eventually(lambda: partitions(consumer) == partitions(late) == 1)
    session.recover()
    again = take(consumer, len(have))
    assert {message.text for message in again} == {message.text for message in have}
    assert {message.get_int_property("JMSXDeliveryCount") for message in again} == {2}
    first.close()
    rest = take(late, MESSAGES)
    assert sorted(int(message.text) for message in rest) == list(range(MESSAGES))
    texts = {message.text for message in have}
    assert {message.get_int_property("JMSXDeliveryCount") for message in rest if message.text in texts} == {3}


@pytest.mark.requirement("JMS-4.3.5-6")
def test_a_rebalance_leaves_no_thread(queue: Queue) -> None:
    """Where coordinators can move, messages in flight are moved with a thread's help; it ends with the connection."""
    two = {queue.queue_name: DestinationOptions(partitions=2, ordering="none")}
    before = {*threading.enumerate()}
    with MemoryKafka(nodes=3) as kafka, contextlib.ExitStack() as stack:
        desk = Desk(kafka.bootstrap_servers, stack)
        first, late = (desk.connect(is_apart=True, destinations=two) for _ in range(2))
        desk.send(queue, *map(str, range(MESSAGES)), by=first.create_session())
        consumer = first.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(queue)
        take(consumer, MESSAGES // 2)
        other = late.create_session().create_consumer(queue)
        wait_for(lambda: partitions(consumer) == partitions(other) == 1)
    wait_for(lambda: {*threading.enumerate()} <= before)
