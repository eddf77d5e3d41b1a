"""What sessions have in their hands when a partition goes to another process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kjms import Connection, ConnectionFactory, DestinationOptions, MessageConsumer, Queue, Session

SECONDS = 20_000
MESSAGES = 40
Eventually = Callable[[Callable[[], object]], None]
_numbers = itertools.count()


@pytest.fixture
def process(kafka: Any, queue: Queue) -> Iterator[Callable[[], Connection]]:
    """A function that returns a started connection with an engine of its own, as another process would have."""
    connections: list[Connection] = []

    def begin() -> Connection:
        factory = ConnectionFactory(
            kafka.bootstrap_servers,
            kafka={"client.id": f"rebalance-{next(_numbers)}"},
            destinations={queue.queue_name: DestinationOptions(partitions=2, ordering="none")},
        )
        connections.append(factory.create_connection())
        connections[-1].start()
        return connections[-1]

    yield begin
    for connection in connections:
        connection.close()


def partitions(consumer: MessageConsumer) -> int:
    return len(consumer._feed.reader.numbers())


def received(consumer: MessageConsumer, count: int) -> list[Any]:
    messages = [consumer.receive(SECONDS) for _ in range(count)]
    assert None not in messages
    return messages


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
    have = received(consumer, MESSAGES // 2)
    late = process().create_session().create_consumer(queue)
    eventually(lambda: partitions(consumer) == partitions(late) == 1)
    if mode == Session.SESSION_TRANSACTED:
        session.commit()
    else:
        have[-1].acknowledge()
    consumer.close()
    rest = received(late, MESSAGES - len(have))
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
    have = received(consumer, MESSAGES // 2)
    late = process().create_session().create_consumer(queue)
    eventually(lambda: partitions(consumer) == partitions(late) == 1)
    session.recover()
    again = received(consumer, len(have))
    assert {message.text for message in again} == {message.text for message in have}
    assert {message.get_int_property("JMSXDeliveryCount") for message in again} == {2}
    first.close()
    rest = received(late, MESSAGES)
    assert sorted(int(message.text) for message in rest) == list(range(MESSAGES))
    texts = {message.text for message in have}
    assert {message.get_int_property("JMSXDeliveryCount") for message in rest if message.text in texts} == {3}
