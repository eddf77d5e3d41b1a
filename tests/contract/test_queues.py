"""Queues: each message is consumed once, in order, by a consumer that is free."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kjms import (
    BytesMessage,
    Connection,
    ConnectionFactory,
    Message,
    MessageFormatException,
    Queue,
    Session,
    TextMessage,
    Topic,
)
from tests.helpers import WAIT_MS, Eventually, send, wait_for, wait_past


def texts(session: Session, queue: Queue, count: int) -> list[str]:
    """Receive *count* texts, and find that there are no more."""
    with session.create_consumer(queue) as consumer:
        received = [consumer.receive(WAIT_MS) for _ in range(count)]
        assert consumer.receive_no_wait() is None
    return [message.text for message in received if isinstance(message, TextMessage)]


@pytest.mark.requirement("JMS-4.4.10.1-2", "JMS-5.8-4")
def test_messages_arrive_in_the_order_of_sending(session: Session, queue: Queue) -> None:
    """What one session sends to a queue arrives in that order."""
    sent = [f"message {number}" for number in range(50)]
    send(session, queue, *sent)
    assert texts(session, queue, 50) == sent


def test_a_message_arrives_with_its_headers_and_properties(session: Session, queue: Queue) -> None:
    """Headers set by the sender and typed properties survive Kafka exactly."""
    message = session.create_text_message("Grüße, 世界 🌍")
    message.jms_correlation_id = "order-42"
    message.jms_reply_to = Queue("answers")
    message.jms_type = "greeting"
    message.set_int_property("amount", 100)
    message.set_long_property("big", 1 << 40)
    message.set_double_property("price", 9.75)
    message.set_boolean_property("vip", True)
    message.properties["region"] = "EU"
    with session.create_producer(queue) as producer:
        producer.send(message, priority=7, time_to_live=60_000)
    received = session.create_consumer(queue).receive(WAIT_MS)
    assert isinstance(received, TextMessage)
    assert received.text == "Grüße, 世界 🌍"
    assert received.jms_message_id == message.jms_message_id
    assert received.jms_message_id is not None
    assert received.jms_message_id.startswith("ID:")
    assert received.jms_timestamp == message.jms_timestamp > 0
    assert received.jms_expiration == message.jms_timestamp + 60_000
    assert received.jms_destination == queue
    assert (received.jms_correlation_id, received.jms_reply_to, received.jms_type) == (
        "order-42",
        Queue("answers"),
        "greeting",
    )
    assert (received.jms_priority, int(received.jms_delivery_mode), received.jms_redelivered) == (7, 2, False)
    assert dict(received.properties) | {"JMSXDeliveryCount": 1} == {
        "amount": 100,
        "big": 1 << 40,
        "price": 9.75,
        "vip": True,
        "region": "EU",
        "JMSXDeliveryCount": 1,
    }
    assert received.get_int_property("JMSXDeliveryCount") == 1
    with pytest.raises(MessageFormatException, match="big"):
        received.get_int_property("big")


def test_bytes_arrive_as_bytes(session: Session, queue: Queue) -> None:
    """A BytesMessage's body is the record's value."""
    message = session.create_bytes_message()
    message.write_int(7)
    message.write_utf("x")
    session.create_producer(queue).send(message)
    received = session.create_consumer(queue).receive(WAIT_MS)
    assert isinstance(received, BytesMessage)
    assert (received.body_length, received.read_int(), received.read_utf()) == (7, 7, "x")


@pytest.mark.requirement("JMS-9.2.2-2", "JMS-B.4.4-2")
def test_receive_with_time_out_returns_none(session: Session, queue: Queue) -> None:
    """A receive with a time-out, and one without waiting, return None when nothing came."""
    consumer = session.create_consumer(queue)
    assert consumer.receive(50) is None
    assert consumer.receive_no_wait() is None
    assert session.create_producer(queue).destination == queue


def test_a_queue_is_shared_by_its_consumers(connection: Connection, queue: Queue, eventually: Eventually) -> None:
    """Each message goes to one of the consumers, and a free one gets the next."""
    got: dict[str, list[str]] = {"a": [], "b": []}
    both_have_one = threading.Barrier(2)

    def listener(name: str) -> Callable[[Message], None]:
        def on_message(message: Message) -> None:
            if not got[name]:
                got[name].append(message.text)  # type: ignore[attr-defined]
                both_have_one.wait(20)
            else:
                got[name].append(message.text)  # type: ignore[attr-defined]

        return on_message

    for name in got:
        connection.create_session().create_consumer(queue).message_listener = listener(name)
    sent = [str(number) for number in range(100)]
    send(connection.create_session(), queue, *sent)
    eventually(lambda: len(got["a"]) + len(got["b"]) >= 100)
    assert sorted(got["a"] + got["b"], key=int) == sent
    assert got["a"]
    assert got["b"]


def test_two_connections_share_a_queue_with_several_partitions(
    kjms_factory: ConnectionFactory, kafka: Any, kjms_destination_name: str
) -> None:
    """A queue may have several partitions; no message is lost or doubled."""
    factory = ConnectionFactory(kafka.bootstrap_servers, partitions=4, ordering="none")  # type: ignore[attr-defined]
    queue = Queue(kjms_destination_name)
    with factory.create_connection() as one, kjms_factory.create_connection() as other:
        one.start()
        other.start()
        send(one.create_session(), queue, *[str(number) for number in range(200)])
        consumers = [c.create_session().create_consumer(queue) for c in (one, other)]
        received = []
        while len(received) < 200:
            for consumer in consumers:
                message = consumer.receive(1_000)
                if message is not None:
                    received.append(int(message.text))  # type: ignore[attr-defined]
        assert sorted(received) == list(range(200))


def test_iteration_ends_when_the_consumer_is_closed(connection: Connection, queue: Queue) -> None:
    """``for message in consumer`` ends when another thread closes the consumer."""
    session = connection.create_session()
    send(connection.create_session(), queue, "a", "b")
    consumer = session.create_consumer(queue)
    seen: list[str] = []
    both = threading.Event()

    def read() -> None:
        for message in consumer:
            seen.append(message.text)  # type: ignore[attr-defined]
            if len(seen) == 2:
                both.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert both.wait(20)
    consumer.close()
    reader.join(20)
    assert not reader.is_alive()
    assert seen == ["a", "b"]


def test_selectors_share_out_a_queue(connection: Connection, queue: Queue) -> None:
    """A consumer with a selector gets what it wants; the rest stays for others."""
    session = connection.create_session()
    with session.create_producer(queue) as producer:
        for number in range(20):
            message = session.create_text_message(str(number))
            message.set_int_property("n", number)
            producer.send(message)
    small = session.create_consumer(queue, "n < 10")
    assert small.message_selector == "n < 10"
    assert [small.receive(WAIT_MS).text for _ in range(10)] == [str(n) for n in range(10)]  # type: ignore[union-attr]
    assert small.receive(200) is None
    small.close()
    assert texts(session, queue, 10) == [str(n) for n in range(10, 20)]


@pytest.mark.parametrize("destination", [Queue, Topic])
def test_a_selector_that_takes_texts_for_numbers_is_told(
    connection: Connection, queue: Queue, destination: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It matches nothing where programs have set numbers as strings: the log says so, once and without the value."""
    where, session = destination(queue.queue_name), connection.create_session()
    with caplog.at_level(logging.WARNING, "kjms.consumer"):
        consumer, others = session.create_consumer(where, "n * 2 > 4"), session.create_consumer(where, "kind = 'x'")
        with session.create_producer(where) as producer:
            for number in ["71000000001", "72000000001", 1, "many", None]:
                message = session.create_text_message(str(number))
                message.set_object_property("n", number)
                producer.send(message)
            wanted = session.create_text_message("wanted")
            wanted.set_string_property("kind", "x")
            producer.send(wanted)
        assert others.receive(WAIT_MS) is not None
        wait_for(lambda: caplog.messages)
        assert consumer.receive_no_wait() is None
    (told,) = caplog.messages
    assert f"the selector n * 2 > 4 on {where} takes n for a number" in told
    assert "000000001" not in told


def test_expired_messages_are_not_delivered(session: Session, queue: Queue) -> None:
    """A message whose time to live is over is not delivered."""
    with session.create_producer(queue) as producer:
        producer.send(stale := session.create_text_message("stale"), time_to_live=1)
        wait_past(stale.jms_expiration)
        producer.send(session.create_text_message("fresh"))
    assert texts(session, queue, 1) == ["fresh"]
