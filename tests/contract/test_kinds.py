"""A queue and a topic of one name are one Kafka topic: a program that takes one for the other is warned, or refused."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kjms import Connection, ConnectionFactory, InvalidDestinationException, JMSException, Queue, Topic
from kjms.admin import Admin
from kjms.engine.kafka import AdminPort, NewTopic
from kjms.testing.engine import statistics
from tests.helpers import WAIT_MS, WAIT_SECONDS, send, text, wait_for

Open = Callable[..., tuple[Connection, list[JMSException]]]


@pytest.fixture
def program(kafka: Any, request: pytest.FixtureRequest) -> Iterator[Open]:
    """A function that returns a connection as of another process, and what its exception listener receives."""
    with contextlib.ExitStack() as stack:

        def opened(**options: Any) -> tuple[Connection, list[JMSException]]:
            own = {"client.id": f"program-{len(told)}"}
            factory = ConnectionFactory(kafka.bootstrap_servers, kafka=own, **options)
            connection = stack.enter_context(factory.create_connection())
            told.append([])
            connection.exception_listener = told[-1].append
            connection.start()
            return connection, told[-1]

        told: list[list[JMSException]] = []
        yield opened


def wait_until_looked(connection: Connection) -> None:
    """Wait until the engine of *connection* has read for what the topics are used that it uses."""
    wait_for(lambda: "kjms-destinations" not in statistics(connection).threads)


@pytest.fixture(params=[(Queue, Topic), (Topic, Queue)], ids=["queue-first", "topic-first"])
def kinds(request: pytest.FixtureRequest, queue: Queue) -> tuple[Queue | Topic, Queue | Topic]:
    """A destination, and that of the other kind with the same name."""
    first, other = request.param
    return first(queue.queue_name), other(queue.queue_name)


def test_a_program_that_consumes_the_other_kind_is_told_once(
    program: Open, kinds: tuple[Any, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Its log and its exception listeners get one warning, however often the destination is opened; it may continue."""
    first, _ = program()
    send(first, kinds[0], "x")
    first.close()  # what was made is on record then
    other, told = program()
    with caplog.at_level(logging.WARNING, "kjms.destinations"):
        for _ in range(3):
            other.create_session().create_consumer(kinds[1])
        wait_for(lambda: told)
        send(other, kinds[1], "x")
        wait_until_looked(other)
    assert len(told) == 1
    assert isinstance(told[0], InvalidDestinationException)
    assert f"{kinds[1]} and {kinds[0]} are one Kafka topic" in str(told[0])
    assert f"first as a {kinds[0].scheme}" in str(told[0])
    assert caplog.messages == [str(told[0])]


def test_the_same_kind_is_told_nothing(program: Open, kinds: tuple[Any, Any]) -> None:
    """Neither the program that makes a destination receives a warning, nor do others that use it as what it is."""
    for _ in range(2):
        connection, told = program()
        send(connection, kinds[0], "x")
        connection.create_session().create_consumer(kinds[0])
        wait_until_looked(connection)
        assert told == []


def test_one_program_that_uses_both_is_told(program: Open, kinds: tuple[Any, Any]) -> None:
    """A process that made the Kafka topic needs no look at what is on record."""
    connection, told = program()
    send(connection, kinds[0], "x")
    send(connection, kinds[1], "y")
    wait_for(lambda: told)
    assert f"first as a {kinds[0].scheme}" in str(told[0])


def test_an_option_refuses_the_other_kind(program: Open, kinds: tuple[Any, Any]) -> None:
    """With strict_kinds, producers and consumers of the other kind are refused each time, and those of the kind not."""
    first, _ = program()
    send(first, kinds[0], "x")
    first.close()  # what was made is on record then
    strict, told = program(strict_kinds=True)
    session = strict.create_session()
    send(strict, kinds[0], "y")
    session.create_consumer(kinds[0]).close()
    for _ in range(2):
        with pytest.raises(InvalidDestinationException, match="are one Kafka topic"):
            session.create_producer(kinds[1])
        with pytest.raises(InvalidDestinationException, match="are one Kafka topic"):
            session.create_consumer(kinds[1])
    assert told == []


def test_a_strict_program_refuses_itself(program: Open, kinds: tuple[Any, Any]) -> None:
    """A process that made the Kafka topic for one kind cannot use it as the other."""
    strict, _ = program(strict_kinds=True)
    send(strict, kinds[0], "x")
    with pytest.raises(InvalidDestinationException, match="are one Kafka topic"):
        strict.create_session().create_producer(kinds[1])


def test_a_topic_that_others_made_is_what_it_is_used_as_first(
    program: Open, kinds: tuple[Any, Any], admin: AdminPort
) -> None:
    """Such a topic can be used as a queue and as a topic; the program with the second use is warned of the first."""
    name = kinds[0]._name
    admin.create_topics([NewTopic(name, 1, 1)], request_timeout=WAIT_SECONDS)[name].result()
    first, told = program()
    first.create_session().create_consumer(kinds[0]).close()
    wait_until_looked(first)
    assert told == []
    other, told = program()
    consumer = other.create_session().create_consumer(kinds[1])
    wait_for(lambda: told)
    send(first, kinds[0], "x")
    assert text(consumer.receive(WAIT_MS)) == "x"


def test_a_look_and_a_send_put_nothing_on_record(program: Open, queue: Queue, admin: AdminPort) -> None:
    """Browsing a Kafka topic as a queue does not make it one, and sending to it does not: that needs more rights."""
    admin.create_topics([NewTopic(queue.queue_name, 1, 1)], request_timeout=WAIT_SECONDS)[queue.queue_name].result()
    first, _ = program()
    assert list(first.create_session().create_browser(queue)) == []
    send(first, queue, "x")
    other, told = program()
    other.create_session().create_consumer(Topic(queue.queue_name))
    wait_until_looked(other)
    assert told == []


def test_a_topic_that_was_made_anew_is_another(program: Open, queue: Queue, kafka: Any) -> None:
    """What was on record for a deleted Kafka topic says nothing of a new one with its name."""
    first, _ = program()
    send(first, queue, "x")
    with Admin(ConnectionFactory(kafka.bootstrap_servers)) as operator:
        operator.delete_queue(queue.queue_name)
        operator.create_topic(queue.queue_name)
    other, told = program()
    other.create_session().create_consumer(Topic(queue.queue_name))
    wait_until_looked(other)
    assert told == []


def test_the_list_of_destinations_shows_both_kinds(program: Open, queue: Queue, kafka: Any) -> None:
    """It knows the kind of topics that kjms made, and warns of a queue on one of them."""
    connection, told = program()
    send(connection, Topic(queue.queue_name), "x")
    wait_until_looked(connection)

    def shown(operator: Admin) -> Any:
        return next(each for each in operator.destinations(estimate=True) if each.topic == queue.queue_name)

    with Admin(ConnectionFactory(kafka.bootstrap_servers)) as operator:
        wait_for(lambda: shown(operator).kind == "topic")
        assert shown(operator).warnings == ()
        consumer = connection.create_session().create_consumer(queue)
        wait_for(lambda: shown(operator).kind == "queue")
        assert any("was made or consumed first as a topic" in warning for warning in shown(operator).warnings)
        consumer.close()
    assert len(told) == 1
