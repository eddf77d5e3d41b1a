"""What becomes of messages that a session of the gateway, or of a bridge, has when its consumers and itself end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from kjms import Connection, Message, MessageConsumer, Queue, RedeliveryPolicy, Session, TextMessage
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


def told(connection: Connection, queue: Queue) -> dict[str, object]:
    """Return what the next dead letter of *queue* says, which is consumed."""
    with connection.create_session() as session, session.create_consumer(Queue(f"{queue.queue_name}.dlq")) as consumer:
        letter = consumer.receive(WAIT_MS)
    assert letter is not None
    return {name: letter.get_object_property(f"JMS_kjms_{name}") for name in ("Cause", "Deliveries")}


@pytest.fixture
def policy() -> RedeliveryPolicy:
    return RedeliveryPolicy(max_deliveries=3)


@pytest.fixture
def limited(process: Open, policy: RedeliveryPolicy) -> Connection:
    """A connection with *policy*."""
    return process(redelivery=policy)


def released(
    session: BrokeredSession, consumer: MessageConsumer, links: list[int], *, is_limited: bool = True
) -> list[bool]:
    """Return of each release of the next message by these links whether it was a repeated one."""
    repeated = []
    for link in links:
        ((delivery, message),) = polled(session, consumer, 1)
        assert message.get_int_property("JMSXDeliveryCount") == 1
        repeated.append(session.release([delivery], link, is_limited=is_limited))
    return repeated


def test_what_a_link_releases_again_and_again_becomes_a_dead_letter(limited: Connection, queue: Queue) -> None:
    """A link may release a message as often as the policy allows deliveries; the cause tells all of these."""
    send(limited, queue, "one")
    session = brokered(limited)
    assert released(session, session.create_consumer(queue), [7, 8, 7, 8, 7]) == [False, False, True, True, False]
    assert told(limited, queue) == {"Cause": "delivered 5 times; the client released it", "Deliveries": 5}
    session.close()


def test_failures_and_releases_add_up(limited: Connection, queue: Queue) -> None:
    """A dead letter tells of all deliveries, those that were released and those that failed."""
    send(limited, queue, "one")
    session = brokered(limited)
    consumer = session.create_consumer(queue)
    released(session, consumer, [7])
    ((delivery, _),) = polled(session, consumer, 1)
    session.fail([delivery], "it failed")
    ((delivery, message),) = polled(session, consumer, 1)
    assert message.get_int_property("JMSXDeliveryCount") == 2
    session.release([delivery], 7)
    assert told(limited, queue) == {"Cause": "delivered 3 times; the client released it", "Deliveries": 3}
    session.close()


def test_releases_may_be_unlimited(limited: Connection, queue: Queue) -> None:
    """Where the operator says so, a message that is released comes again however often that is."""
    send(limited, queue, "one")
    session = brokered(limited)
    repeated = released(session, session.create_consumer(queue), [7] * 20, is_limited=False)
    assert repeated == [False] + [True] * 19
    session.close()
    assert received(limited, queue, 1) == [("one", 1)]


def test_repeated_releases_are_delayed(process: Open, queue: Queue) -> None:
    """A message that a link releases the first time comes at once; from then on the policy says when."""
    connection = process(redelivery=RedeliveryPolicy(max_deliveries=5, delay=200, multiplier=2.0))
    send(connection, queue, "one")
    session = brokered(connection)
    consumer = session.create_consumer(queue)
    times = []
    for _ in range(4):
        ((delivery, _),) = polled(session, consumer, 1)
        times.append(time.monotonic())
        session.release([delivery], 7)
    session.close()
    assert [b - a >= least for a, b, least in zip(times, times[1:], (0.0, 0.35, 0.75), strict=False)] == [True] * 3


@pytest.mark.parametrize("expiry_queue", [True, False])
def test_what_expires_at_a_client_is_no_dead_letter(
    process: Open, queue: Queue, other_queue: Queue, caplog: pytest.LogCaptureFixture, expiry_queue: bool
) -> None:
    """A client that finds a message undeliverable since it has expired has it go where expired messages go."""
    connection = process(expiry_queue=other_queue.queue_name if expiry_queue else None)
    with connection.create_session() as sender:
        producer = sender.create_producer(queue)
        producer.send(TextMessage("expires"), time_to_live=10 * WAIT_MS)
        producer.send(TextMessage("undecodable"), time_to_live=20 * WAIT_MS)
    session = brokered(connection)
    found = polled(session, session.create_consumer(queue), 2)
    expires = found[0][1].jms_expiration
    session._core._now_ms = lambda: expires + 1
    session.cannot_deliver([delivery for delivery, _ in found], "the client found it undeliverable")
    session.close()
    assert received(connection, Queue(f"{queue.queue_name}.dlq"), 1) == [("undecodable", 1)]
    assert [record.levelname for record in caplog.records if "dead letter" in record.message] == ["WARNING"]
    if expiry_queue:
        with connection.create_session() as receiver, receiver.create_consumer(other_queue) as consumer:
            assert text(consumer.receive(WAIT_MS)) == "expires"
