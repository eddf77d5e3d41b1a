"""Records in Kafka that no AMQP message can carry: they become dead letters, and what comes after them arrives."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from kjms import ConnectionFactory, Queue, Session, TextMessage
from tests.helpers import WAIT_MS

if TYPE_CHECKING:
    from kjms.broker import Broker

DAMAGED = [
    (b"\x7f", [("kjms", b"1;object")]),
    (b"\x0e\x02", [("kjms", b"1;object")]),
    (b"\x00\x53\x77", [("kjms", b"1;object/amqp")]),
    (b"\x02", [("kjms", b"1;map")]),
]


@pytest.fixture
def with_damage(here: Session, kjms_broker: Broker, kjms_destination_name: str) -> str:
    """The name of a queue with messages "0" to "4" and between them records that are no bodies of their types."""
    good = here.create_producer(Queue(kjms_destination_name))
    raw = Producer({"bootstrap.servers": kjms_broker.bootstrap_servers})
    for number in range(5):
        good.send(TextMessage(str(number)))
        for value, headers in DAMAGED if number < 4 else ():
            raw.produce(kjms_destination_name, value, headers=headers)
        raw.flush(20)
    return kjms_destination_name


def assert_dead_letters(here: Session, name: str) -> None:
    """Each damaged record is a dead letter that says why; no good message is."""
    letters = here.create_consumer(Queue(f"{name}.dlq"))
    for _ in range(4 * len(DAMAGED)):
        letter = letters.receive(WAIT_MS)
        assert letter is not None
        assert not isinstance(letter, TextMessage)
        assert "no form in AMQP" in letter.get_string_property("JMS_kjms_Cause")
    assert letters.receive_no_wait() is None


def test_a_gateway_serves_on_after_damaged_records(gateway: Any, here: Session, with_damage: str) -> None:
    """A client receives every good message once, by one link; damaged records are dead letters."""
    from proton.utils import BlockingConnection

    connection = BlockingConnection(gateway.url, allowed_mechs="ANONYMOUS", timeout=WAIT_MS / 1000)
    receiver = connection.create_receiver(with_damage, credit=10)
    for number in range(5):
        message = receiver.receive(WAIT_MS / 1000)
        assert (message.body, message.delivery_count) == (str(number), 0)
        receiver.accept()
    assert_dead_letters(here, with_damage)
    connection.close()


def test_a_bridge_moves_on_after_damaged_records(
    start_gateway: Callable[..., Any], kjms_factory: ConnectionFactory, here: Session, with_damage: str
) -> None:
    """``kjms bridge out`` moves every good message, and leaves damaged records as dead letters."""
    from kjms.bridge import BridgeOptions, BridgeOut, PeerOptions

    other = start_gateway()
    target = Queue(f"{with_damage}-2")
    bridge = BridgeOut(kjms_factory, PeerOptions(other.url), Queue(with_damage), target, BridgeOptions(count=5))
    assert bridge.run() == (5, 0, 4 * len(DAMAGED))
    consumer = here.create_consumer(target)
    for number in range(5):
        message = consumer.receive(WAIT_MS)
        assert isinstance(message, TextMessage)
        assert (message.text, message.get_int_property("JMSXDeliveryCount")) == (str(number), 1)
    assert_dead_letters(here, with_damage)
