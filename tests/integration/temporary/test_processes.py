"""Temporary destinations among several processes, on a real Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import kjms.engine._janitor as janitor
from kjms import ConnectionFactory, InvalidDestinationException, JMSException, Session, TemporaryQueue
from kjms.destinations import parse_destination
from kjms.engine._claims import USE
from kjms.mapping.names import is_internal
from kjms.mapping.temporary import place_of
from tests.helpers import WAIT_MS, Eventually

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


@pytest.mark.requirement("JMS-4.4.3-7")
def test_a_clean_end_leaves_nothing(kjms_factory: ConnectionFactory, session: Session, programs: Start) -> None:
    """A program that ends in order takes its inbox along; while it lives, the inbox is no destination of anybody's."""
    program = programs()
    inbox = text_of(program.do("create")).queue_name.rpartition("/")[0]
    topics = session._engine.topics
    assert is_internal(inbox)
    assert topics.look_up(inbox) == 2
    program.end()
    assert topics.look_up(inbox) == 0


@pytest.mark.requirement("JMS-4.4.3-7")
def test_a_killed_program_is_cleaned_up_after(
    kjms_factory: ConnectionFactory, programs: Start, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever makes an inbox deletes those of engines that do not answer, with their claims, and no other one."""
    monkeypatch.setattr(janitor, "QUESTIONS", 2)  # it is certain that the program is gone
    killed, alive = programs(), programs()
    left = text_of(killed.do("create")).queue_name.rpartition("/")[0]
    name = alive.do("create")
    killed.kill()
    options = ConnectionFactory(kjms_factory._options.bootstrap_servers, send_timeout=60_001)  # an engine of its own
    with options.create_connection() as connection:
        connection.start()
        session = connection.create_session()
        engine = connection._engine
        session.create_temporary_queue()
        eventually(lambda: not engine.topics.look_up(left))
        with engine.registry.reading() as claims:
            eventually(lambda: not claims.all(USE, janitor.inbox_resource(left)))
        session.create_producer(text_of(name)).send(session.create_text_message("alive"))
        assert alive.do("receive", 0) == "alive"


def test_a_program_that_was_taken_for_gone_begins_anew(
    kjms_broker: Any, session: Session, eventually: Eventually
) -> None:
    """When its claim is taken away its temporary destinations are deleted, its connections hear of it, and go on."""
    factory = ConnectionFactory(kjms_broker.bootstrap_servers, send_timeout=60_002)  # an engine of its own
    with factory.create_connection() as connection:
        failures: list[JMSException] = []
        connection.exception_listener = failures.append
        connection.start()
        others, session = session._engine.registry, connection.create_session()
        queue = session.create_temporary_queue()
        producer, consumer = session.create_producer(queue), session.create_consumer(queue)
        with others.reading():  # as another engine's janitor would
            others.take_away([connection._engine.temporaries._claim])
        eventually(lambda: failures)
        assert "took this one for gone" in str(failures[0])
        eventually(lambda: not connection._engine.topics.look_up(place_of(queue)[0]))
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
