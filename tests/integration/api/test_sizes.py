"""How large a message may be: the topic's max.message.bytes decides, and nothing in the client."""

from __future__ import annotations

import os
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from kjms import BytesMessage, Connection, Queue, ResourceAllocationException, Session, SessionMode
from tests.helpers import WAIT_MS, WAIT_SECONDS, Completions, wait_for

LIMIT = 8 << 20


@pytest.fixture
def admin(kjms_broker: Any) -> AdminClient:
    """A client that makes topics."""
    return AdminClient({"bootstrap.servers": kjms_broker.bootstrap_servers})


@pytest.fixture
def large(admin: AdminClient, queue: Queue) -> Queue:
    """A queue on a topic that takes messages of 8 MiB."""
    name = queue.queue_name
    new = NewTopic(name, 1, 1, config={"max.message.bytes": str(LIMIT), "retention.ms": "-1"})
    admin.create_topics([new])[name].result(20)
    return queue


def test_a_topic_says_how_large_a_message_may_be(connection: Connection, session: Session, large: Queue) -> None:
    """Whatever the topic allows can be sent in every way, and received."""
    bodies = [os.urandom(size) for size in (1_000_000, 1_048_588, 3_000_000, LIMIT - 2_000)]
    producer = session.create_producer(large)
    producer.send(BytesMessage(bodies[0]))
    completed = Completions()
    producer.send(BytesMessage(bodies[1]), completion_listener=completed)
    assert completed.done.wait(WAIT_SECONDS)
    assert completed.failed == []
    with connection.create_session(SessionMode.SESSION_TRANSACTED) as transacted:
        transacted.create_producer(large).send(BytesMessage(bodies[2]))
        transacted.commit()
    producer.send(BytesMessage(bodies[3]))
    consumer = session.create_consumer(large)
    for body in bodies:
        received = consumer.receive(WAIT_MS)
        assert received is not None
        assert received.get_body(bytes) == body


def limit_of(admin: AdminClient, queue: Queue) -> int:
    """Return how many bytes a message may have in the topic of *queue*, as the broker says."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, queue.queue_name)
    return int(admin.describe_configs([resource])[resource].result(WAIT_SECONDS)["max.message.bytes"].value)


@pytest.mark.requirement("NET-43", "JMS-7.3-1")
def test_what_a_topic_does_not_take_is_refused_with_its_limit(
    session: Session, large: Queue, admin: AdminClient
) -> None:
    """The error names the message's size and the topic's limit; a limit that is raised counts for the next message."""
    producer = session.create_producer(large)
    message = BytesMessage(os.urandom(LIMIT + 1))
    for listener in (None, Completions()):
        with pytest.raises(ResourceAllocationException, match=rf"max\.message\.bytes allows {LIMIT} ") as raised:
            producer.send(message, completion_listener=listener)
        assert raised.value.error_code == "MSG_SIZE_TOO_LARGE"
    wider = ConfigEntry("max.message.bytes", str(2 * LIMIT), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, large.queue_name, incremental_configs=[wider])
    admin.incremental_alter_configs([resource])[resource].result(20)
    wait_for(lambda: limit_of(admin, large) == 2 * LIMIT)  # the broker learns of it from the controller
    producer.send(message)
    received = session.create_consumer(large).receive(WAIT_MS)
    assert received is not None
    assert len(received.get_body(bytes)) == LIMIT + 1


@pytest.mark.slow
def test_a_limit_that_is_lowered_takes_nothing_that_is_there(
    connection: Connection, session: Session, large: Queue, admin: AdminClient
) -> None:
    """A message that is larger by now is delivered and settled; the next one of its size is refused with the limit."""
    body, small = os.urandom(3_000_000), 2_000_000
    producer = session.create_producer(large)
    producer.send(BytesMessage(body))
    producer.send(BytesMessage(body))
    lower = ConfigEntry("max.message.bytes", str(small), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, large.queue_name, incremental_configs=[lower])
    admin.incremental_alter_configs([resource])[resource].result(20)
    wait_for(lambda: limit_of(admin, large) == small)
    with pytest.raises(ResourceAllocationException, match=r"max\.message\.bytes"):
        producer.send(BytesMessage(body))
    with connection.create_session(SessionMode.SESSION_TRANSACTED) as transacted:
        consumer = transacted.create_consumer(large)
        for end in (transacted.rollback, transacted.commit):
            received = consumer.receive(WAIT_MS)
            assert received is not None
            assert received.get_body(bytes) == body
            end()
        received = consumer.receive(WAIT_MS)
        assert received is not None
        assert received.get_body(bytes) == body
        transacted.commit()
    producer.send(BytesMessage(b"x"))
    received = session.create_consumer(large).receive(WAIT_MS)
    assert received is not None
    assert received.get_body(bytes) == b"x"
