"""Header fields: what a send sets, when, and what of it the receiver reads."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from kjms import Connection, ConnectionFactory, DeliveryMode, Message, Queue, Session, Topic
from tests.helpers import WAIT_MS

SENT_FIELDS = [
    "jms_message_id", "jms_timestamp", "jms_destination", "jms_delivery_mode", "jms_expiration", "jms_delivery_time",
    "jms_priority",
]  # fmt: skip


@dataclass(frozen=True)
class Sent:
    """A field's value after a send, where the message went, and the times around the call."""

    value: Any
    queue: Queue
    before: int
    after: int


def milliseconds_now() -> int:
    return time.time_ns() // 1_000_000


def fields(message: Message) -> dict[str, Any]:
    return {name: getattr(message, name) for name in SENT_FIELDS}


def with_values_of_its_own(message: Message) -> Message:
    """Fill what is not for clients to set."""
    message.jms_message_id, message.jms_timestamp, message.jms_destination = "ID:mine", 1, Topic("mine")
    message.jms_delivery_mode, message.jms_priority = 1, 0
    message.jms_expiration, message.jms_delivery_time = 1, 2
    return message


def field(name: str, wanted: Callable[[Sent], bool], *ids: str) -> Any:
    return pytest.param(name, wanted, marks=pytest.mark.requirement(*ids), id=name)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        field(
            "jms_destination", lambda sent: sent.value == sent.queue,
            "JMS-3.4.1-1", "JMS-3.4.11-1", "NEV-26", "NEV-59",
        ),
        field(
            "jms_delivery_mode", lambda sent: sent.value == DeliveryMode.PERSISTENT,
            "NEV-27",
        ),
        field(
            "jms_message_id", lambda sent: sent.value.startswith("ID:") and sent.value != "ID:mine",
            "JMS-3.4.3-1", "JMS-3.4.3-3", "JMS-3.4.11-6", "NEV-28", "NEV-29", "NEV-33", "NEV-63",
        ),
        field(
            "jms_timestamp", lambda sent: sent.before <= sent.value <= sent.after,
            "JMS-3.4.4-1", "JMS-3.4.4-3", "JMS-3.4.11-7", "NEV-39", "NEV-64",
        ),
        field(
            "jms_expiration", lambda sent: sent.before + 60_000 <= sent.value <= sent.after + 60_000,
            "JMS-3.4.9-3", "JMS-3.4.11-3", "NEV-61",
        ),
        field(
            "jms_delivery_time", lambda sent: sent.before + 100 <= sent.value <= sent.after + 100,
            "JMS-3.4.11-4",
        ),
        field("jms_priority", lambda sent: sent.value == 7, "JMS-3.4.10-1", "JMS-3.4.11-5", "NEV-54", "NEV-62"),
    ],
)  # fmt: skip
def test_a_send_sets_a_field(session: Session, queue: Queue, name: str, wanted: Callable[[Sent], bool]) -> None:
    """When send returns, the field has the value that holds for this send, whatever the client stored in it."""
    message = with_values_of_its_own(session.create_text_message("x"))
    its_own = getattr(message, name)
    before = milliseconds_now()
    session.create_producer(queue).send(
        message, delivery_mode=DeliveryMode.PERSISTENT, priority=7, time_to_live=60_000, delivery_delay=100
    )
    value = getattr(message, name)
    assert value != its_own
    assert wanted(Sent(value, queue, before, milliseconds_now()))


@pytest.mark.requirement("JMS-3.4.2-1", "JMS-3.4.11-2", "NEV-60", "JMS-3.4.11-12", "JMS-3.4.11-15")
@pytest.mark.parametrize("mode", [DeliveryMode.PERSISTENT, DeliveryMode.NON_PERSISTENT])
@pytest.mark.parametrize("is_told_by", ["the call", "the producer"])
def test_a_send_sets_the_fields_that_are_the_providers(
    session: Session, queue: Queue, mode: DeliveryMode, is_told_by: str
) -> None:
    """When send returns the message has them, whatever was in them before, and the receiver reads the same."""
    message = with_values_of_its_own(session.create_text_message("x"))
    producer = session.create_producer(queue)
    how = {"delivery_mode": mode, "priority": 7, "time_to_live": 60_000}
    if is_told_by == "the producer":
        for name, value in how.items():
            setattr(producer, name, value)
        how = {}
    producer.send(message, **how)  # type: ignore[arg-type]
    assert fields(message) == {
        "jms_message_id": message.jms_message_id, "jms_timestamp": message.jms_timestamp, "jms_destination": queue,
        "jms_delivery_mode": mode, "jms_expiration": message.jms_timestamp + 60_000,
        "jms_delivery_time": message.jms_timestamp, "jms_priority": 7,
    }  # fmt: skip
    received = session.create_consumer(queue).receive(WAIT_MS)
    assert received is not None
    assert fields(received) == fields(message)


@pytest.mark.requirement("JMS-3.4.7-3", "JMS-3.4.11-11", "JMS-3.4.11-15", "NEV-44", "NEV-68")
def test_redelivered_is_for_the_receiver(connection: Connection, queue: Queue) -> None:
    """A send leaves JMSRedelivered alone and does not carry it; each delivery sets it on what the receiver gets."""
    session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    message = session.create_text_message("x")
    message.jms_redelivered = True
    session.create_producer(queue).send(message)
    assert message.jms_redelivered
    consumer = session.create_consumer(queue)
    first = consumer.receive(WAIT_MS)
    assert first is not None
    assert not first.jms_redelivered
    session.recover()
    again = consumer.receive(WAIT_MS)
    assert again is not None
    assert again.jms_redelivered
    assert again.jms_message_id == message.jms_message_id
    again.acknowledge()


@pytest.mark.requirement("JMS-3.4.3-2", "JMS-3.4.3-4", "NEV-28", "NEV-30", "NEV-32")
def test_each_sent_message_has_an_id_of_its_own(kjms_factory: ConnectionFactory, queue: Queue) -> None:
    """Over sessions, connections and destinations, and also for one message that is sent twice."""
    ids = []
    for _ in range(2):
        with kjms_factory.create_connection() as connection:
            for session in (connection.create_session(), connection.create_session()):
                message = session.create_message()
                for destination in (queue, Queue(f"{queue.queue_name}-2")):
                    producer = session.create_producer(destination)
                    for _ in range(25):
                        producer.send(message, delivery_mode=DeliveryMode.NON_PERSISTENT)
                        ids.append(message.jms_message_id)
    assert len(set(ids)) == 2 * 2 * 2 * 25


@pytest.mark.requirement("JMS-3.4.3-6", "JMS-3.4.4-5", "NEV-36")
def test_id_and_timestamp_can_be_switched_off(session: Session, queue: Queue) -> None:
    """The producer's hints are followed: the message has no id and the timestamp 0, here and there."""
    producer = session.create_producer(queue)
    producer.disable_message_id = producer.disable_message_timestamp = True
    message = with_values_of_its_own(session.create_message())
    producer.send(message)
    received = session.create_consumer(queue).receive(WAIT_MS)
    assert received is not None
    for either in (message, received):
        assert either.jms_message_id is None
        assert either.jms_timestamp == 0
