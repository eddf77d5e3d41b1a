"""Temporary destinations among several processes, on a real Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from kjms import ConnectionFactory, InvalidDestinationException, JMSException, Session, TemporaryQueue
from kjms.destinations import parse_destination
from kjms.mapping.names import REGISTRY, is_internal
from kjms.mapping.temporary import place_of
from kjms.testing.engine import tuned
from tests.helpers import WAIT_MS, WAIT_SECONDS, Eventually, apart, partitions, stored_records

KNOWN_SECONDS = 0.1  # after which a deletion is known everywhere

Start = Callable[[], Any]


def text_of(name: str) -> TemporaryQueue:
    queue = parse_destination(name)
    assert isinstance(queue, TemporaryQueue)
    return queue


@pytest.mark.requirement("JMS-4.4.3-3", "NEV-206")
def test_others_may_only_send(session: Session, programs: Start) -> None:
    """Any process can send to a temporary queue whose name it knows; only its own connection receives."""
    program = programs()
    mine = session.create_temporary_queue()
    assert program.do("send", str(mine), "hello") is None
    reply = session.create_consumer(mine).receive(WAIT_MS)
    assert reply is not None
    assert reply.text == "hello"  # type: ignore[attr-defined]
    assert program.do("consume", str(mine)) == "!InvalidDestinationException"


@pytest.mark.requirement("JMS-4.4.3-6", "JMS-4.4.3-7", "NEV-209", "NET-24")
def test_others_hear_of_a_deletion(session: Session, programs: Start) -> None:
    """A send that begins a tenth of a second after the deletion is refused; so is one to a program that has ended."""
    program = programs()
    name, other = program.do("create"), program.do("create")
    producer = session.create_producer(text_of(name))
    producer.send(session.create_text_message("still there"))
    assert program.do("receive", 0) == "still there"
    for doomed in (name, other):
        producer = session.create_producer(text_of(doomed))
        program.do("delete", [name, other].index(doomed))
        time.sleep(KNOWN_SECONDS)
        with pytest.raises(InvalidDestinationException, match="deleted"):
            producer.send(session.create_message())
    last = session.create_producer(text_of(program.do("create")))
    last.send(session.create_message())
    program.end()
    time.sleep(KNOWN_SECONDS)
    with pytest.raises(InvalidDestinationException, match="deleted"):
        last.send(session.create_message())


def claims_on(servers: str, inbox: str) -> set[bytes]:
    """Return the keys in the registry of what is claimed of *inbox*."""
    there: dict[bytes, bytes] = {}
    for record in stored_records(servers, REGISTRY):
        there[record.key() or b""] = record.value() or b""
    return {key for key, value in there.items() if inbox.encode() in value}


def take_claims_away(servers: str, inbox: str) -> None:
    """Write into the registry that no program claims *inbox*."""
    writer = Producer({"bootstrap.servers": servers})
    for key in claims_on(servers, inbox):
        writer.produce(REGISTRY, None, key, 0)
    assert writer.flush(WAIT_SECONDS) == 0


@pytest.mark.requirement("JMS-4.4.3-7")
def test_a_clean_end_leaves_nothing(kjms_broker: Any, programs: Start) -> None:
    """A program that ends in order deletes its inbox; while it lives, no program can use the inbox as a destination."""
    program = programs()
    inbox = text_of(program.do("create")).queue_name.rpartition("/")[0]
    assert is_internal(inbox)
    assert partitions(kjms_broker.bootstrap_servers, inbox) == 2
    program.end()
    assert partitions(kjms_broker.bootstrap_servers, inbox) == 0


@pytest.mark.requirement("JMS-4.4.3-7")
def test_a_killed_program_is_cleaned_up_after(kjms_broker: Any, programs: Start, eventually: Eventually) -> None:
    """A process that creates an inbox deletes those of engines that do not answer, with their claims, and no other."""
    killed, alive = programs(), programs()
    left = text_of(killed.do("create")).queue_name.rpartition("/")[0]
    name = alive.do("create")
    killed.kill()
    servers = kjms_broker.bootstrap_servers
    with tuned(registry_questions=2), apart(servers) as connection:  # it is certain that the program is gone
        session = connection.create_session()
        session.create_temporary_queue()
        eventually(lambda: not partitions(servers, left))
        eventually(lambda: not claims_on(servers, left))
        session.create_producer(text_of(name)).send(session.create_text_message("alive"))
        assert alive.do("receive", 0) == "alive"


def test_a_program_that_was_taken_for_gone_begins_anew(
    kjms_broker: Any, session: Session, eventually: Eventually
) -> None:
    """When its claim is taken away its temporary destinations are deleted, its connections get that, and stay open."""
    factory = ConnectionFactory(kjms_broker.bootstrap_servers, send_timeout=60_002)  # an engine of its own
    with factory.create_connection() as connection:
        failures: list[JMSException] = []
        connection.exception_listener = failures.append
        connection.start()
        session = connection.create_session()
        queue = session.create_temporary_queue()
        producer, consumer = session.create_producer(queue), session.create_consumer(queue)
        take_claims_away(kjms_broker.bootstrap_servers, place_of(queue)[0])  # as another engine's janitor would
        eventually(lambda: failures)
        assert "lease expired" in str(failures[0])
        eventually(lambda: not partitions(kjms_broker.bootstrap_servers, place_of(queue)[0]))
        with pytest.raises(InvalidDestinationException, match="deleted"):
            producer.send(session.create_message())
        consumer.close()
        queue.delete()
        again = session.create_temporary_queue()
        assert place_of(again)[0] != place_of(queue)[0]
        session.create_producer(again).send(session.create_text_message("hello"))
        assert session.create_consumer(again).receive(WAIT_MS) is not None


@pytest.mark.requirement("JAK-createTemporaryQueue-4", "JAK-createTemporaryTopic-4")
def test_what_kafka_refuses(kjms_broker: Any) -> None:
    """Where Kafka does not let the inbox be made, making a temporary destination raises JMSException."""
    factory = ConnectionFactory(kjms_broker.bootstrap_servers, replication_factor=99, send_timeout=60_003)
    with factory.create_connection() as connection:
        session = connection.create_session()
        for make in (session.create_temporary_queue, session.create_temporary_topic):
            with pytest.raises(JMSException, match="create the Kafka topic"):
                make()
