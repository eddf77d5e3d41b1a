"""What a consumer is made from, and how its messages are asked for."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from datetime import timedelta
from typing import Any

import pytest

from kjms import (
    Connection,
    ConnectionFactory,
    InvalidDestinationException,
    Message,
    MessageConsumer,
    Queue,
    Session,
    Topic,
)
from tests.helpers import NOTHING_SECONDS, WAIT_MS, Eventually, send, text, texts_of

Aside = Callable[[Callable[[], Any]], "Future[Any]"]


@pytest.fixture
def aside() -> Iterator[Aside]:
    """A function that calls its argument in another thread, and returns when that thread has begun."""
    with ThreadPoolExecutor(1) as pool:

        def call(function: Callable[[], Any]) -> Future[Any]:
            begun = threading.Event()

            def run() -> Any:
                begun.set()
                return function()

            future = pool.submit(run)
            assert begun.wait(20)
            return future

        yield call


@pytest.fixture(params=[Queue, Topic])
def destination(request: pytest.FixtureRequest, kjms_destination_name: str) -> Any:
    """A queue, and then a topic, of this test's own."""
    return request.param(kjms_destination_name)


def waits(future: Future[Any]) -> bool:
    """Tell whether *future* is still without a result, after a moment."""
    try:
        future.result(NOTHING_SECONDS)
    except FutureTimeoutError:
        return True
    return False


@pytest.mark.requirement("JAK-createConsumer-1", "JAK-createConsumer-2", "NEV-247", "NET-307", "NET-309", "JMS-B.4.4-3")
@pytest.mark.parametrize("kind", [Queue, Topic])
def test_a_consumer_is_made_from_a_destination(
    connection: Connection, kjms_destination_name: str, kind: Callable[[str], Any]
) -> None:
    """It receives that destination's messages and no others, with a selector those that match."""
    session = connection.create_session()
    destination, other = kind(kjms_destination_name), kind(f"{kjms_destination_name}-other")
    for arguments, expected in [((), "ab"), (("region = 'EU'",), "b"), (("region = 'EU'", False), "b")]:
        with session.create_consumer(destination, *arguments) as consumer:
            assert isinstance(consumer, MessageConsumer)
            send(connection, other, "elsewhere", properties={"region": "EU"})
            send(connection, destination, "a")
            send(connection, destination, "b", properties={"region": "EU"})
            assert "".join(str(text(consumer.receive(WAIT_MS))) for _ in expected) == expected
            assert consumer.receive_no_wait() is None


@pytest.mark.requirement("JMS-B.4.4-3")
def test_the_third_argument_leaves_out_local_messages(
    kjms_factory: ConnectionFactory, connection: Connection, topic: Topic
) -> None:
    """With no_local, what the consumer's own connection sends to the topic does not come."""
    consumer = connection.create_session().create_consumer(topic, None, True)
    send(connection, topic, "mine")
    with kjms_factory.create_connection() as other:
        send(other, topic, "yours")
    assert text(consumer.receive(WAIT_MS)) == "yours"


@pytest.mark.requirement("JAK-createConsumer-3")
def test_what_is_no_destination_is_refused(session: Session) -> None:
    """create_consumer raises InvalidDestinationException, for None as well."""
    wrong: Any
    for wrong in (None, "orders", 7, object(), Queue):
        with pytest.raises(InvalidDestinationException, match="a destination is a Queue or a Topic"):
            session.create_consumer(wrong)


@pytest.mark.requirement("JAK-createConsumer-3")
def test_a_destination_that_is_not_there_is_refused(kafka: Any, destination: Any) -> None:
    """Where destinations are not made on first use, create_consumer raises InvalidDestinationException."""
    strict = ConnectionFactory(kafka.bootstrap_servers, create_destinations=False)
    with strict.create_connection() as connection, pytest.raises(InvalidDestinationException):
        connection.create_session().create_consumer(destination)


@pytest.mark.requirement("NET-308")
def test_all_consumers_are_message_consumers(kjms_factory: ConnectionFactory, queue: Queue, topic: Topic) -> None:
    """However a consumer was made, it can be used as a MessageConsumer."""
    with kjms_factory.create_connection() as connection:
        connection.client_id = f"client-{uuid.uuid4().hex}"
        session = connection.create_session()
        consumers = [
            session.create_consumer(queue),
            session.create_consumer(topic),
            session.create_durable_subscriber(topic, "one"),
            session.create_durable_consumer(topic, "two"),
            session.create_shared_consumer(topic, "three"),
            session.create_shared_durable_consumer(topic, "four"),
        ]
        assert all(isinstance(consumer, MessageConsumer) for consumer in consumers)
        for consumer in consumers:
            assert consumer.receive_no_wait() is None
            consumer.close()
        for name in ("one", "two", "four"):
            session.unsubscribe(name)


@pytest.mark.requirement("JMS-9.2.2-1", "NET-310")
def test_receive_waits_for_the_next_message(connection: Connection, destination: Any, aside: Aside) -> None:
    """Without an argument it returns when a message has come, and not before."""
    consumer = connection.create_session().create_consumer(destination)
    for name in "ab":
        waiting = aside(consumer.receive)
        assert waits(waiting)
        send(connection, destination, name)
        assert text(waiting.result(20)) == name


@pytest.mark.requirement("NET-311", "JMS-9.2.2-2")
def test_receive_can_wait_for_a_while_or_poll(
    connection: Connection, queue: Queue, aside: Aside, eventually: Eventually
) -> None:
    """With a time it waits no longer than that; receive_no_wait returns what is at hand, and never waits."""
    consumer = connection.create_session().create_consumer(queue)
    assert consumer.receive_no_wait() is None
    began = time.monotonic()
    assert consumer.receive(150) is None
    assert time.monotonic() - began >= 0.15
    waiting = aside(lambda: consumer.receive(WAIT_MS))
    assert waits(waiting)
    send(connection, queue, "a", "b")
    assert text(waiting.result(20)) == "a"
    polled: list[Message] = []

    def poll() -> bool:
        message = consumer.receive_no_wait()
        if message is not None:
            polled.append(message)
        return message is not None

    eventually(poll)
    assert texts_of(polled) == ["b"]


def test_less_than_a_millisecond_is_no_wait_without_limit(connection: Connection, queue: Queue, aside: Aside) -> None:
    """A time is rounded up to whole milliseconds, of which 0 is without limit; a negative one is refused."""
    consumer = connection.create_session().create_consumer(queue)
    assert aside(lambda: consumer.receive(timedelta(microseconds=500))).result(20) is None
    with pytest.raises(ValueError, match="timeout must not be negative"):
        consumer.receive(timedelta(microseconds=-500))


@pytest.mark.parametrize("without_limit", [2**63 - 1, 10**400, timedelta.max])
def test_a_receive_may_wait_longer_than_a_lock_can(
    connection: Connection, queue: Queue, aside: Aside, without_limit: Any
) -> None:
    """As Java's programs do, which wait for Long.MAX_VALUE milliseconds."""
    consumer = connection.create_session().create_consumer(queue)
    waiting = aside(lambda: consumer.receive(without_limit))
    assert waits(waiting)
    send(connection, queue, "x")
    assert text(waiting.result(20)) == "x"


@pytest.mark.requirement("NEV-161", "NEV-167", "JMS-4.3.4-2", "JMS-4.3.4-6", "JMS-4.3.4-7")
def test_receives_wait_while_the_connection_is_stopped(connection: Connection, queue: Queue, aside: Aside) -> None:
    """Once stop has returned no receive returns a message, waiting ones included; their time goes by all the same."""
    consumer = connection.create_session().create_consumer(queue)
    waiting = aside(consumer.receive)
    connection.stop()
    send(connection, queue, "a", "b")
    assert waits(waiting)
    connection.start()
    assert text(waiting.result(20)) == "a"
    connection.stop()
    began = time.monotonic()
    assert consumer.receive(150) is None
    assert time.monotonic() - began >= 0.15
    assert consumer.receive_no_wait() is None
    connection.start()
    assert text(consumer.receive(WAIT_MS)) == "b"
