"""In which order messages of transactions appear: as their session sent them, whatever others do at the same time."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest

from kjms import DeliveryMode, Queue, Session, Topic
from tests.helpers import WAIT_MS, Completions


def by_sender(texts: Iterable[str]) -> dict[str, list[int]]:
    """Return the numbers of each sender, in the order in which they are there."""
    numbers = defaultdict(list)
    for text in texts:
        sender, number = text.split()
        numbers[sender].append(int(number))
    return numbers


@pytest.mark.requirement("JMS-4.4.10.2-5", "NEV-232")
@pytest.mark.parametrize("place", [Queue, Topic])
def test_messages_appear_in_the_order_of_sending(desk: Any, kjms_destination_name: str, place: type[Any]) -> None:
    """Over many transactions and several partitions; what was rolled back leaves nothing but its place."""
    destination = place(kjms_destination_name)
    connection = desk.connect(partitions=3)
    session = desk.transacted(connection)
    producer = session.create_producer(destination)
    consumer = desk.connect(is_apart=True).create_session().create_consumer(destination)
    chance = random.Random(7)
    expected: list[str] = []
    number = 0
    for _ in range(40):
        texts = []
        for _ in range(chance.randrange(12)):
            texts.append(str(number))
            producer.send(session.create_text_message(texts[-1]))
            number += 1
        if chance.random() < 0.3:
            session.rollback()
        else:
            session.commit()
            expected += texts
    assert desk.texts(consumer, len(expected)) == expected
    assert desk.stored(destination) == expected


@pytest.mark.requirement("JMS-4.4.10.2-5", "NEV-232")
def test_sessions_that_commit_at_the_same_time_each_keep_their_order(desk: Any, queue: Queue) -> None:
    """However their transactions are put together: each session's messages are in its order, and all are there."""
    connection = desk.connect(partitions=3)
    per_session, sessions = 120, 6

    def send(name: int, session: Session) -> None:
        producer = session.create_producer(queue)
        chance = random.Random(name)
        done = 0
        while done < per_session:
            count = min(chance.randrange(1, 9), per_session - done)
            for number in range(count):
                producer.send(session.create_text_message(f"{name} {done + number}"))
            if chance.random() < 0.2:
                session.rollback()
            else:
                session.commit()
                done += count

    threads = [threading.Thread(target=send, args=(name, desk.transacted(connection))) for name in range(sessions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = {str(name): list(range(per_session)) for name in range(sessions)}
    assert by_sender(desk.stored(queue)) == everything
    assert by_sender(desk.texts(connection.create_session().create_consumer(queue), per_session * sessions)) == (
        everything
    )


@pytest.mark.requirement("JMS-4.4.10.2-5", "NEV-232")
def test_in_a_transaction_every_way_of_sending_keeps_the_order(desk: Any, queue: Queue, other_queue: Queue) -> None:
    """Several producers, waited for or not, persistent or not: one order for each destination."""
    session = desk.transacted()
    listener = Completions()
    producers = [session.create_producer(queue), session.create_producer(None)]
    for number in range(30):
        producers[number % 2].send(
            session.create_text_message(str(number)),
            queue if number % 3 else other_queue,
            delivery_mode=DeliveryMode.NON_PERSISTENT if number % 5 == 0 else DeliveryMode.PERSISTENT,
            completion_listener=listener if number % 4 else None,
        )
    session.commit()
    assert desk.stored(queue) == [str(number) for number in range(30) if number % 3]
    assert desk.stored(other_queue) == [str(number) for number in range(30) if not number % 3]
    assert listener.texts == [str(number) for number in range(30) if number % 4]


def test_a_message_that_changes_after_its_sending_was_sent_as_it_was(desk: Any, queue: Queue) -> None:
    """Until the commit the session keeps what was sent, so that one message can be sent again and again."""
    session = desk.transacted()
    producer = session.create_producer(queue)
    message = session.create_text_message()
    ids = []
    for number in range(4):
        message.text = str(number)
        message.properties["n"] = number
        producer.send(message)
        ids.append(message.jms_message_id)
        message.clear_properties()
    session.commit()
    consumer = session.create_consumer(queue)
    received = [consumer.receive(WAIT_MS) for _ in range(4)]
    assert [(m.text, m.properties["n"], m.jms_message_id) for m in received] == [
        (str(number), number, ids[number]) for number in range(4)
    ]
    session.commit()
