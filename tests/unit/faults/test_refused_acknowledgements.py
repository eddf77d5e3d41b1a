"""An `acknowledge` that the broker refuses: it can be called again; what is settled next settles the message, too."""

from __future__ import annotations

from typing import Any

import pytest

from kjms import JMSSecurityException, Queue, Session
from kjms.engine.kafka import KafkaError
from kjms.mapping.names import queue_group
from kjms.testing import MemoryKafka
from tests.helpers import committed

REFUSED = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "refused")
each_mode = pytest.mark.parametrize("mode", [Session.CLIENT_ACKNOWLEDGE, Session.INDIVIDUAL_ACKNOWLEDGE])


@pytest.mark.requirement("JMS-4.4.11-5")
@each_mode
def test_it_can_be_called_again(kafka: MemoryKafka, desk: Any, queue: Queue, mode: int) -> None:
    """The same call on the same message returns when the message is settled, and not before."""
    desk.send(queue, *"ab")
    consumer = desk.session(mode).create_consumer(queue)
    message = consumer.receive(5_000)
    for _ in range(2):
        kafka.faults.fail("commit", REFUSED)
        with pytest.raises(JMSSecurityException):
            message.acknowledge()
    message.acknowledge()
    assert committed(kafka.bootstrap_servers, queue) == 1


@each_mode
def test_the_next_one_settles_both(kafka: MemoryKafka, desk: Any, queue: Queue, mode: int) -> None:
    """`recover` does not bring it again: the session has acknowledged it, and the next acknowledgement settles it."""
    desk.send(queue, *"abc")
    session = desk.session(mode)
    consumer = session.create_consumer(queue)
    message = consumer.receive(5_000)
    kafka.faults.fail("commit", REFUSED)
    with pytest.raises(JMSSecurityException):
        message.acknowledge()
    session.recover()
    following = consumer.receive(5_000)
    assert desk.seen(consumer, 1) == [("c", False, 1)]
    assert following.text == "b"
    following.acknowledge()
    assert committed(kafka.bootstrap_servers, queue) == (3 if mode == Session.CLIENT_ACKNOWLEDGE else 2)


@each_mode
def test_a_message_that_never_is_settled_comes_to_the_next_program(
    kafka: MemoryKafka, desk: Any, queue: Queue, mode: int
) -> None:
    """A program that ends before Kafka allows it leaves the message to the next one, marked."""
    desk.send(queue, *"ab")
    connection = desk.connect(is_apart=True)
    message = connection.create_session(mode).create_consumer(queue).receive(5_000)
    with kafka.faults.refuse("Read", group=queue_group(queue.queue_name)):
        with pytest.raises(JMSSecurityException):
            message.acknowledge()
        connection.close()
    assert desk.left(queue) == [("a", True, 2), ("b", True, 2)]  # Kafka does not know what was not dispatched
