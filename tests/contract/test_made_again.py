"""A topic that is deleted and made again, under the same name, while a consumer is open."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kjms import Connection, ConnectionFactory, MessageConsumer, Queue, Session, Topic
from kjms.testing.engine import statistics, tuned
from tests.helpers import WAIT_MS, Desk, Eventually, apart, make_again, name_of, send, text, texts


def send_apart(kafka: Any, destination: Queue | Topic, *bodies: str) -> None:
    """Send by a connection of its own, with its own Kafka clients."""
    with apart(kafka.bootstrap_servers) as connection:
        send(connection, destination, *bodies)


def take_all(consumer: MessageConsumer, bodies: list[str]) -> None:
    """Receive until each of *bodies* came, and acknowledge; what was there before, or came already, may come, too."""
    left = set(bodies)
    while left:
        message = consumer.receive(WAIT_MS)
        assert message is not None, left
        left.discard(text(message))
        message.acknowledge()


OLD = [f"old {n}" for n in range(5)]
NEW = [f"new {n}" for n in range(8)]


class Opened:
    """A consumer of a kind, its session and destination, and what the exception listener got."""

    def __init__(self, kind: str, connection: Connection, name: str) -> None:
        self.heard: list[Exception] = []
        connection.exception_listener = self.heard.append
        self.session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        self.destination: Queue | Topic = Queue(name) if kind == "queue" else Topic(name)
        if kind == "durable":
            self.consumer = self.session.create_durable_consumer(Topic(name), "it")
        else:
            self.consumer = self.session.create_consumer(self.destination)


@pytest.fixture(params=["queue", "plain", "durable"])
def opened(request: pytest.FixtureRequest, desk: Desk, kjms_destination_name: str) -> Opened:
    """A consumer of each kind."""
    connection = desk.connect(client_id=f"of {kjms_destination_name}")
    return Opened(request.param, connection, kjms_destination_name)


@pytest.fixture
def heard(connection: Connection) -> list[Exception]:
    """What the exception listener of the connection got."""
    heard: list[Exception] = []
    connection.exception_listener = heard.append
    return heard


def made_again(failures: list[Exception]) -> list[str]:
    """Return what says that a topic was made again; a consumer that reads in between reports a missing topic first."""
    return [str(failure) for failure in failures if "UNKNOWN_TOPIC_OR_PART" not in str(failure)]


@pytest.mark.parametrize("count", [3, 8])
def test_a_consumer_reads_the_new_topic_from_its_start(
    kafka: Any, opened: Opened, eventually: Eventually, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    """With fewer messages than before, and with more, the open consumer gets all of the new topic's, unmarked."""
    consumer, name = opened.consumer, name_of(opened.destination)
    send_apart(kafka, opened.destination, *OLD)
    for _ in OLD:
        message = consumer.receive(WAIT_MS)
        assert message is not None
        assert text(message).startswith("old")
        message.acknowledge()
    make_again(kafka.bootstrap_servers, name)
    eventually(lambda: made_again(opened.heard))
    send_apart(kafka, opened.destination, *NEW[:count])
    got = []
    for _ in range(count):
        message = consumer.receive(WAIT_MS)
        assert message is not None
        assert not message.jms_redelivered
        message.acknowledge()
        got.append(text(message))
    assert got == NEW[:count]
    assert consumer.receive(300) is None
    assert made_again(opened.heard) == [
        f"the Kafka topic {name!r} of {opened.destination} was deleted and made again:"
        " it is read from its start; messages of the former topic that were not acknowledged are gone"
    ]
    assert [r.levelno for r in caplog.records if "made again" in r.getMessage()] == [logging.WARNING]


@pytest.mark.parametrize("count", [3, 8])
def test_a_topic_made_again_before_its_consumer_began_to_read_is_noticed(
    kafka: Any, kjms_factory: ConnectionFactory, topic: Topic, eventually: Eventually, count: int
) -> None:
    """A consumer of a topic, created before and started after it was made again, gets all of the new topic's."""
    send_apart(kafka, topic, *OLD)
    heard: list[Exception] = []
    with kjms_factory.create_connection() as connection:
        connection.exception_listener = heard.append
        consumer = connection.create_session().create_consumer(topic)
        make_again(kafka.bootstrap_servers, topic.topic_name)
        send_apart(kafka, topic, *NEW[:count])
        connection.start()
        eventually(lambda: made_again(heard))
        take_all(consumer, NEW[:count])


@pytest.mark.parametrize("sender", ["the same session", "another process"])
def test_messages_that_are_there_before_it_is_noticed_are_not_lost(kafka: Any, opened: Opened, sender: str) -> None:
    """What is sent right after the topic was made again reaches the open consumer, each message at least once.

    This holds however short a time the former topic was read: the same session sends, and reads it, in milliseconds.
    """
    producer = opened.session.create_producer(opened.destination)

    def put(bodies: list[str]) -> None:
        if sender == "the same session":
            for body in bodies:
                producer.send(opened.session.create_text_message(body))
        else:
            send_apart(kafka, opened.destination, *bodies)

    put(OLD)
    assert texts(opened.consumer, len(OLD)) == OLD
    make_again(kafka.bootstrap_servers, name_of(opened.destination))
    put(NEW)
    take_all(opened.consumer, NEW)
    assert len(made_again(opened.heard)) == 1


def test_a_new_consumer_goes_on_in_the_new_topic(
    kafka: Any, desk: Desk, connection: Connection, queue: Queue, heard: list[Exception], eventually: Eventually
) -> None:
    """What the open consumer acknowledged of the new topic does not come again to another process."""
    consumer = connection.create_session().create_consumer(queue)
    send_apart(kafka, queue, *"abcdefgh")
    assert texts(consumer, 8) == [*"abcdefgh"]
    make_again(kafka.bootstrap_servers, queue.queue_name)
    eventually(lambda: made_again(heard))
    send_apart(kafka, queue, *"123456")
    assert texts(consumer, 4) == [*"1234"]
    connection.close()
    consumer = desk.connect(is_apart=True).create_session().create_consumer(queue)
    assert texts(consumer, 2) == ["5", "6"]
    assert consumer.receive(300) is None


def test_a_former_message_is_acknowledged_in_vain(
    kafka: Any, connection: Connection, queue: Queue, heard: list[Exception], eventually: Eventually
) -> None:
    """A message that a session has of the former topic can be acknowledged, which settles nothing of the new one."""
    session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    consumer = session.create_consumer(queue)
    send_apart(kafka, queue, "a", "b")
    old = consumer.receive(WAIT_MS)
    assert old is not None
    make_again(kafka.bootstrap_servers, queue.queue_name)
    eventually(lambda: made_again(heard))
    send_apart(kafka, queue, "1", "2")
    old.acknowledge()
    assert texts(consumer, 2) == ["1", "2"]
    session.recover()
    assert texts(consumer, 2) == ["1", "2"]


def test_a_consumer_that_comes_later_forgets_the_former_topic(
    kafka: Any, desk: Desk, queue: Queue, eventually: Eventually
) -> None:
    """A consumer of the same process that opens after the topic was made again reads it from its start."""
    with tuned(grace_seconds=0.1):
        connection = desk.connect(is_apart=True)
        with connection.create_session() as session, session.create_consumer(queue) as consumer:
            send_apart(kafka, queue, *"abcde")
            assert texts(consumer, 5) == [*"abcde"]
        eventually(
            lambda: not statistics(connection).of(queue.queue_name).is_reading
        )  # the group is left a moment after its last consumer
        make_again(kafka.bootstrap_servers, queue.queue_name, partitions=2)
        send_apart(kafka, queue, *"12345678")
        consumer = connection.create_session().create_consumer(queue)
        assert sorted(texts(consumer, 8)) == [*"12345678"]


def test_the_same_process_sends_to_the_new_topic(
    kafka: Any, connection: Connection, queue: Queue, heard: list[Exception], eventually: Eventually
) -> None:
    """Producers that sent to the former topic send to the new one, in transactions as well."""
    session = connection.create_session()
    transacted = connection.create_session(Session.SESSION_TRANSACTED)
    consumer = session.create_consumer(queue)
    producers = session.create_producer(queue), transacted.create_producer(queue)
    for number in range(4):
        if number == 2:
            make_again(kafka.bootstrap_servers, queue.queue_name)
            eventually(lambda: made_again(heard))
        producers[0].send(session.create_text_message(f"sent {number}"))
        producers[1].send(session.create_text_message(f"committed {number}"))
        transacted.commit()
        assert texts(consumer, 2) == [f"sent {number}", f"committed {number}"]
