"""How much a client may send ahead: as much as it likes, as far as AMQP is concerned; TCP holds it back."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from amqp_peer import Peer
from confluent_kafka.admin import AdminClient, NewTopic
from java_remote import JavaObject

from kjms import BytesMessage, Queue, Session

if TYPE_CHECKING:
    from gateway_thread import RunningGateway

HEARTBEAT_SECONDS = 30.0  # when Qpid JMS sends, at the latest, what it has left in a buffer


@pytest.fixture
def large_queue(kjms_broker: Any, kjms_destination_name: str) -> str:
    """A Kafka topic that takes messages of 9 MB."""
    admin = AdminClient({"bootstrap.servers": kjms_broker.bootstrap_servers})
    config = {"max.message.bytes": str(9 << 20), "retention.ms": "-1"}
    admin.create_topics([NewTopic(kjms_destination_name, 1, 1, config=config)])[kjms_destination_name].result(20)
    return kjms_destination_name


def test_large_messages_from_java_do_not_wait(there: JavaObject, here: Session, large_queue: str) -> None:
    """A message larger than any AMQP session window that could be chosen arrives at once."""
    data = os.urandom(8 << 20)
    message = there.createBytesMessage()
    message.writeBytes(data)
    producer = there.createProducer(there.createQueue(large_queue))
    began = time.monotonic()
    producer.send(message)
    assert time.monotonic() - began < HEARTBEAT_SECONDS / 2
    received = here.create_consumer(Queue(large_queue)).receive(20_000)
    assert isinstance(received, BytesMessage)
    assert received.get_body(bytes) == data


def test_large_transactions_from_java_do_not_wait(
    connect: Callable[..., JavaObject], here: Session, kjms_destination_name: str
) -> None:
    """A transaction larger than any AMQP session window that could be chosen commits at once."""
    session = connect().createSession(True, 0)
    producer = session.createProducer(session.createQueue(kjms_destination_name))
    message = session.createBytesMessage()
    message.writeBytes(os.urandom(300_000))
    began = time.monotonic()
    for _ in range(40):
        producer.send(message)
    session.commit()
    assert time.monotonic() - began < HEARTBEAT_SECONDS / 2
    consumer = here.create_consumer(Queue(kjms_destination_name))
    assert all(consumer.receive(20_000) for _ in range(40))


def test_tcp_holds_back_a_client_that_sends_faster_than_kafka_takes(
    start_gateway: Callable[..., RunningGateway], here: Session, kjms_destination_name: str,
    eventually: Callable[[Callable[[], object]], None],
) -> None:  # fmt: skip
    """The gateway reads no more of a client while it holds so much of it, and resumes when that is sent."""
    from proton import Message

    largest, size, count = 200_000, 90_000, 400
    running = start_gateway(max_message_size=largest)
    with Peer(running.port, kjms_destination_name) as peer:
        sender = peer.session.sender("sender")
        sender.target.address = kjms_destination_name
        sender.open()
        peer.wait(lambda: sender.credit >= count)
        (served,) = running.gateway.clients.connections
        (worker,) = [each.worker for each in served._sessions._sessions.values()]
        flow = served._sessions.flow
        go_on = threading.Event()
        worker.do(lambda session: go_on.wait(60), lambda result, failure: None)
        for number in range(count):
            sender.delivery(str(number))
            sender.send(Message(body=bytes(size)).encode())
            sender.advance()
        peer.socket.settimeout(60)
        writing = threading.Thread(target=peer.write)
        writing.start()
        eventually(lambda: flow.is_held_back)
        time.sleep(0.5)
        assert writing.is_alive()
        assert largest < flow.held < 4 * largest
        go_on.set()
        writing.join(60)
        assert not writing.is_alive()
        consumer = here.create_consumer(Queue(kjms_destination_name))
        assert all(consumer.receive(20_000) for _ in range(count))
        eventually(lambda: flow.held == flow.unfinished == 0)


def test_unfinished_messages_are_bounded(
    start_gateway: Callable[..., RunningGateway], kjms_destination_name: str
) -> None:
    """A client that begins many large messages at the same time and ends none loses a link, with a clear error."""
    largest = 100_000
    with Peer(start_gateway(max_message_size=largest).port, kjms_destination_name) as peer:
        senders = [peer.session.sender(str(number)) for number in range(9)]
        for sender in senders:
            sender.target.address = kjms_destination_name
            sender.open()
        peer.wait(lambda: all(sender.credit for sender in senders))
        for sender in senders:
            sender.delivery("1")
            sender.send(bytes(largest - 5_000))
        peer.wait(lambda: any(sender.remote_condition for sender in senders))
        (refused,) = [sender.remote_condition for sender in senders if sender.remote_condition]
        assert refused.name == "amqp:resource-limit-exceeded"
