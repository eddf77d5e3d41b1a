"""What becomes of messages that a session of the gateway, or of a bridge, has when its consumers and itself end."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kjms import Connection, Message, MessageConsumer, Queue, Session
from kjms.client.brokered_session import BrokeredSession
from kjms.mapping.names import REDELIVERIES
from tests.helpers import WAIT_MS, Eventually, send, stored_records, text, wait_for

Open = Callable[..., Connection]


def brokered(connection: Connection) -> BrokeredSession:
    return connection._create_session(BrokeredSession, Session.INDIVIDUAL_ACKNOWLEDGE, 1)


def polled(session: BrokeredSession, consumer: MessageConsumer, count: int) -> list[tuple[Any, Message]]:
    """Return the next *count* messages, with their deliveries."""
    found: list[tuple[Any, Message]] = []

    def is_there() -> bool:
        while len(found) < count and (one := session.poll(consumer)) is not None:
            found.append(one)
        return len(found) == count

    wait_for(is_there)
    return found


def received(connection: Connection, queue: Queue, count: int) -> list[tuple[str | None, int]]:
    """Return the text and the delivery count of the next *count* messages, which are consumed."""
    with connection.create_session() as session, session.create_consumer(queue) as consumer:
        messages = [consumer.receive(WAIT_MS) for _ in range(count)]
    return [(text(each), each.get_int_property("JMSXDeliveryCount")) for each in messages if each is not None]


@pytest.mark.parametrize("ends", ["consumer", "session"])
def test_an_orderly_end_counts_nothing(connection: Connection, queue: Queue, ends: str) -> None:
    """Messages that were waiting in a client are delivered again as if for the first time, however often that is."""
    send(connection, queue, "one", "two", "three")
    session = brokered(connection)
    for _ in range(12):
        consumer = session.create_consumer(queue)
        found = polled(session, consumer, 3)
        assert [message.get_int_property("JMSXDeliveryCount") for _, message in found] == [1, 1, 1]
        if ends == "consumer":
            consumer.close()
        else:
            session.close()
            session = brokered(connection)
    session.close()
    assert received(connection, queue, 3) == [("one", 1), ("two", 1), ("three", 1)]


def test_a_lost_client_counts_once(connection: Connection, queue: Queue) -> None:
    """What a lost client may have seen comes marked; the oldest of it alone comes nearer to the dead-letter queue."""
    send(connection, queue, "seen", "seen, too", "not sent")
    for _ in range(10):
        session = brokered(connection)
        deliveries = [delivery for delivery, _ in polled(session, session.create_consumer(queue), 3)]
        session.lose(deliveries[:2], "the client was lost")
        session.close()
    assert received(connection, queue, 2) == [("seen, too", 11), ("not sent", 1)]
    assert received(connection, Queue(f"{queue.queue_name}.dlq"), 1) == [("seen", 1)]


def test_a_client_that_is_cut_off_in_order_costs_no_message_a_delivery(connection: Connection, queue: Queue) -> None:
    """What a client may have seen whose gateway ends comes marked, and no nearer to the dead-letter queue."""
    send(connection, queue, "one", "two")
    for _ in range(11):
        session = brokered(connection)
        deliveries = [delivery for delivery, _ in polled(session, session.create_consumer(queue), 2)]
        session.give_up(deliveries[:1])
        session.close()
    (first, second) = received(connection, queue, 2)
    assert first[0] == "one"
    assert first[1] > 1
    assert second == ("two", 1)


def test_a_redelivery_is_logged_once(kafka: Any, connection: Connection, queue: Queue, eventually: Eventually) -> None:
    """A repeated delivery that is given back unseen is not logged a second time; the next one that fails is."""
    send(connection, queue, "one")
    session = brokered(connection)
    consumer = session.create_consumer(queue)
    for count in (1, 2, 3):
        for _ in range(4):
            ((delivery, message),) = polled(session, consumer, 1)
            assert message.get_int_property("JMSXDeliveryCount") == count
            session.release([delivery])
        ((delivery, _),) = polled(session, consumer, 1)
        session.fail([delivery], "the client gave it back")
    session.close()

    def logged() -> list[int]:
        events = [json.loads(record.value() or b"") for record in stored_records(kafka.bootstrap_servers, REDELIVERIES)]
        return [event["delivery"] for event in events if event["destination"] == str(queue)]

    eventually(lambda: len(logged()) >= 2)
    assert received(connection, queue, 1) == [("one", 4)]
    eventually(lambda: logged()[2:])
    assert logged() == [2, 3, 4]
