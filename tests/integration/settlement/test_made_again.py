"""A topic that is deleted and made again, under the same name, while a consumer is open."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from kjms import Connection, ConnectionFactory, Queue, Session, Topic
from kjms.testing.engine import statistics, tuned
from tests.helpers import Eventually, text, texts

SECONDS = 30_000

MakeAgain = Callable[..., None]


def send(broker: Any, destination: Queue | Topic, *texts: str) -> None:
    """Send by a connection of its own, with its own Kafka clients."""
    apart = {"client.id": "apart"}
    with ConnectionFactory(broker.bootstrap_servers, kafka=apart).create_connection() as connection:
        session = connection.create_session()
        producer = session.create_producer(destination)
        for text in texts:
            producer.send(session.create_text_message(text))


def name_of(destination: Queue | Topic) -> str:
    return destination.queue_name if isinstance(destination, Queue) else destination.topic_name


KINDS = ["queue", "plain", "durable"]


@pytest.fixture(params=KINDS)
def opened(request: pytest.FixtureRequest, kjms_broker: Any, queue: Queue) -> Any:
    """A consumer of each kind, its destination, and what the exception listener heard."""
    heard: list[Exception] = []
    name = queue.queue_name
    with ConnectionFactory(kjms_broker.bootstrap_servers, client_id=f"of {name}").create_connection() as connection:
        connection.exception_listener = heard.append
        connection.start()
        session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        if request.param == "queue":
            destination: Queue | Topic = queue
            consumer = session.create_consumer(destination)
        else:
            destination = Topic(name)
            is_durable = request.param == "durable"
            consumer = (
                session.create_durable_consumer(destination, "it")
                if is_durable
                else session.create_consumer(destination)
            )
        yield consumer, destination, heard


@pytest.mark.parametrize("count", [3, 8])
def test_a_consumer_reads_the_new_topic_from_its_start(
    kjms_broker: Any,
    opened: Any,
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
    count: int,
    make_again: MakeAgain,
) -> None:
    """With fewer messages than before, and with more, the open consumer gets all of the new topic's, unmarked."""
    consumer, destination, heard = opened
    send(kjms_broker, destination, *(f"old {n}" for n in range(5)))
    for _ in range(5):
        message = consumer.receive(SECONDS)
        assert text(message).startswith("old")
        message.acknowledge()
    make_again(name_of(destination))
    eventually(lambda: heard)
    send(kjms_broker, destination, *(f"new {n}" for n in range(count)))
    got = []
    for _ in range(count):
        message = consumer.receive(SECONDS)
        assert message is not None
        assert not message.jms_redelivered
        message.acknowledge()
        got.append(text(message))
    assert got == [f"new {n}" for n in range(count)]
    assert consumer.receive(300) is None
    assert [str(failure) for failure in heard] == [
        f"the Kafka topic {name_of(destination)!r} of {destination} was deleted and made again:"
        " it is read from its start; messages of the former topic that were not acknowledged are gone"
    ]
    assert [r.levelno for r in caplog.records if "made again" in r.getMessage()] == [logging.WARNING]


@pytest.mark.parametrize("count", [3, 8])
def test_a_topic_made_again_before_its_consumer_began_to_read_is_noticed(
    kjms_broker: Any, topic: Topic, eventually: Eventually, make_again: MakeAgain, count: int
) -> None:
    """A consumer of a topic, created before and started after it was made again, gets all of the new topic's."""
    send(kjms_broker, topic, *(f"old {n}" for n in range(5)))
    heard: list[Exception] = []
    with ConnectionFactory(kjms_broker.bootstrap_servers).create_connection() as connection:
        connection.exception_listener = heard.append
        consumer = connection.create_session().create_consumer(topic)
        make_again(topic.topic_name)
        send(kjms_broker, topic, *(f"new {n}" for n in range(count)))
        connection.start()
        eventually(lambda: heard)
        left = {f"new {n}" for n in range(count)}
        while left:
            message = consumer.receive(SECONDS)
            assert message is not None, left
            left.discard(text(message))


def test_messages_that_are_there_before_it_is_noticed_are_not_lost(
    kjms_broker: Any, opened: Any, make_again: MakeAgain
) -> None:
    """What is sent right after the topic was made again reaches the open consumer, each message at least once."""
    consumer, destination, heard = opened
    send(kjms_broker, destination, *(f"old {n}" for n in range(5)))
    texts(consumer, 5)
    make_again(name_of(destination))
    send(kjms_broker, destination, *(f"new {n}" for n in range(8)))
    left = {f"new {n}" for n in range(8)}
    while left:
        message = consumer.receive(SECONDS)
        assert message is not None, left
        left.discard(text(message))
        message.acknowledge()
    assert len(heard) == 1


def test_a_new_consumer_goes_on_in_the_new_topic(
    kjms_broker: Any, queue: Queue, eventually: Eventually, make_again: MakeAgain
) -> None:
    """What the open consumer acknowledged of the new topic does not come again to another process."""
    heard: list[Exception] = []
    with ConnectionFactory(kjms_broker.bootstrap_servers).create_connection() as connection:
        connection.exception_listener = heard.append
        connection.start()
        consumer = connection.create_session().create_consumer(queue)
        send(kjms_broker, queue, *"abcdefgh")
        texts(consumer, 8)
        make_again(queue.queue_name)
        eventually(lambda: heard)
        send(kjms_broker, queue, *"123456")
        assert texts(consumer, 4) == [*"1234"]
    apart = {"client.id": "another process"}
    with ConnectionFactory(kjms_broker.bootstrap_servers, kafka=apart).create_connection() as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(queue)
        assert texts(consumer, 2) == ["5", "6"]
        assert consumer.receive(300) is None


def test_a_former_message_is_acknowledged_in_vain(
    kjms_broker: Any, connection: Connection, queue: Queue, eventually: Eventually, make_again: MakeAgain
) -> None:
    """A message that a session has of the former topic can be acknowledged, which settles nothing of the new one."""
    heard: list[Exception] = []
    connection.exception_listener = heard.append
    session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    consumer = session.create_consumer(queue)
    send(kjms_broker, queue, "a", "b")
    old = consumer.receive(SECONDS)
    assert old is not None
    make_again(queue.queue_name)
    eventually(lambda: heard)
    send(kjms_broker, queue, "1", "2")
    old.acknowledge()
    assert texts(consumer, 2) == ["1", "2"]
    session.recover()
    assert texts(consumer, 2) == ["1", "2"]


def test_a_consumer_that_comes_later_forgets_the_former_topic(
    kjms_broker: Any, queue: Queue, eventually: Eventually, make_again: MakeAgain
) -> None:
    """A consumer of the same process that opens after the topic was made again reads it from its start."""
    with tuned(grace_seconds=0.1), ConnectionFactory(kjms_broker.bootstrap_servers).create_connection() as connection:
        connection.start()
        with connection.create_session() as session, session.create_consumer(queue) as consumer:
            send(kjms_broker, queue, *"abcde")
            texts(consumer, 5)
        eventually(
            lambda: not statistics(connection).of(queue.queue_name).is_reading
        )  # the group is left a moment after its last consumer
        make_again(queue.queue_name, partitions=2)
        send(kjms_broker, queue, *"12345678")
        consumer = connection.create_session().create_consumer(queue)
        assert sorted(texts(consumer, 8)) == [*"12345678"]


def test_the_same_process_sends_to_the_new_topic(
    kjms_broker: Any, connection: Connection, queue: Queue, eventually: Eventually, make_again: MakeAgain
) -> None:
    """Producers that sent to the former topic send to the new one, in transactions as well."""
    heard: list[Exception] = []
    connection.exception_listener = heard.append
    session = connection.create_session()
    transacted = connection.create_session(Session.SESSION_TRANSACTED)
    consumer = session.create_consumer(queue)
    producers = session.create_producer(queue), transacted.create_producer(queue)
    for number in range(4):
        if number == 2:
            make_again(queue.queue_name)
            eventually(lambda: heard)
        producers[0].send(session.create_text_message(f"sent {number}"))
        producers[1].send(session.create_text_message(f"committed {number}"))
        transacted.commit()
        assert texts(consumer, 2) == [f"sent {number}", f"committed {number}"]
