"""A message whose last delivery failed is a dead letter from then on, and tells how it failed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from typing import Any, ClassVar

import pytest

from kjms import (
    Connection,
    ConnectionFactory,
    DestinationOptions,
    InvalidDestinationException,
    JMSException,
    Message,
    Queue,
    RedeliveryPolicy,
    Session,
    TextMessage,
    Topic,
    aio,
)
from kjms.engine.kafka import AdminPort, NewTopic
from tests.helpers import (
    SOON_MS,
    WAIT_MS,
    Eventually,
    Intercepted,
    apart,
    dead_letter_queue,
    intercepted,
    send,
    topics,
    wait_for,
)

ONCE = RedeliveryPolicy(max_deliveries=1)


def factory(broker: Any, **options: Any) -> ConnectionFactory:
    return ConnectionFactory(broker.bootstrap_servers, **{"redelivery": ONCE, **options})


def letters(connection: Connection, dead: Queue) -> list[Message]:
    """Return the dead letters, as a browser sees them."""
    with connection.create_session() as session, session.create_browser(dead) as browser:
        return list(browser)


def told(message: Message, name: str) -> str | None:
    return message.get_string_property(f"JMS_kjms_{name}")


def test_a_message_dies_when_its_last_transaction_is_rolled_back(
    kafka: Any, queue: Queue, dead: Queue, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """After the last failed delivery no consumer has to ask again before the message is a dead letter."""
    with factory(kafka, redelivery=RedeliveryPolicy(max_deliveries=2)).create_connection() as connection:
        connection.start()
        send(connection, queue, "bad")
        session = connection.create_session(Session.SESSION_TRANSACTED)
        consumer = session.create_consumer(queue)
        for _ in range(2):
            assert consumer.receive(WAIT_MS) is not None
            assert letters(connection, dead) == []
            session.rollback()
        eventually(lambda: letters(connection, dead))
        (letter,) = letters(connection, dead)
        assert told(letter, "Cause") == "delivered 2 times; its transaction was rolled back"
        assert told(letter, "Deliveries") == "2"
        assert told(letter, "Exception") is None
        assert told(letter, "Host") == socket.gethostname()
        assert told(letter, "Process") == str(os.getpid())
        first, last = int(told(letter, "FirstFailure") or 0), int(told(letter, "LastFailure") or 0)
        assert letter.jms_timestamp <= first <= last <= time.time() * 1000
        (line,) = [record for record in caplog.records if "dead letter" in record.getMessage()]
        assert line.levelno == logging.WARNING
        assert line.getMessage() == (
            f"message {letter.jms_message_id} of {queue} becomes a dead letter in {dead} after 2 deliveries:"
            " its transaction was rolled back"
        )


def test_dead_letters_are_selected_by_their_numbers(kafka: Any, queue: Queue, dead: Queue) -> None:
    """What counts deliveries, and times, is a number to selectors of consumers and of browsers."""
    before = time.time_ns() // 1_000_000
    letters_of_a_listener(kafka, queue, fails, "bad", redelivery=RedeliveryPolicy(max_deliveries=3))
    with factory(kafka).create_connection() as connection, connection.create_session() as session:
        connection.start()
        for selector, matches in (
            ("JMS_kjms_Deliveries >= 3", True),
            ("JMS_kjms_Deliveries > 3", False),
            (f"JMS_kjms_LastFailure >= {before} AND JMS_kjms_OriginalOffset = 0", True),
        ):
            with session.create_browser(dead, selector) as browser:
                assert len(list(browser)) == matches
        assert session.create_consumer(dead, "JMS_kjms_Deliveries BETWEEN 2 AND 4").receive(WAIT_MS) is not None


@pytest.mark.parametrize("mode", [Session.CLIENT_ACKNOWLEDGE, Session.INDIVIDUAL_ACKNOWLEDGE])
def test_a_message_dies_when_its_session_recovers(
    kafka: Any, queue: Queue, dead: Queue, eventually: Eventually, mode: int
) -> None:
    """recover() after the last delivery makes a dead letter; a message with deliveries left comes again."""
    with factory(kafka).create_connection() as connection:
        connection.start()
        send(connection, queue, "bad", "worse")
        session = connection.create_session(mode)
        consumer = session.create_consumer(queue)
        assert consumer.receive(WAIT_MS) is not None
        session.recover()
        eventually(lambda: len(letters(connection, dead)) == 1)
        worse = consumer.receive(WAIT_MS)
        assert worse is not None
        assert worse.get_body(str) == "worse"
        assert not worse.jms_redelivered
        worse.acknowledge()
        assert consumer.receive(300) is None


def test_a_message_dies_when_its_session_closes(kafka: Any, queue: Queue, dead: Queue, eventually: Eventually) -> None:
    """A session that closes with a message of the last delivery leaves a dead letter behind, also as the last one."""
    with factory(kafka).create_connection() as connection:
        connection.start()
        send(connection, queue, "bad")
        session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        assert session.create_consumer(queue).receive(WAIT_MS) is not None
    with factory(kafka).create_connection() as connection:
        eventually(lambda: letters(connection, dead))
        (letter,) = letters(connection, dead)
        assert told(letter, "Cause") == "delivered 1 time; its session closed"


@pytest.mark.parametrize("is_durable", [False, True])
def test_a_subscription_that_closes_after_a_rollback_leaves_its_dead_letter(
    kafka: Any, topic: Topic, is_durable: bool, eventually: Eventually
) -> None:
    """A subscription's message that is rolled back for the last time is a dead letter although the consumer closes."""
    dead = Queue(f"{topic.topic_name}.dlq")
    chosen = factory(kafka, client_id=f"of {topic.topic_name}")
    with chosen.create_connection() as connection:
        connection.start()
        session = connection.create_session(Session.SESSION_TRANSACTED)
        consumer = session.create_durable_consumer(topic, "it") if is_durable else session.create_consumer(topic)
        send(connection, topic, "bad")
        assert consumer.receive(WAIT_MS) is not None
        session.rollback()
        session.close()
        eventually(lambda: len(letters(connection, dead)) == 1)
        if is_durable:
            again = connection.create_session()
            assert again.create_durable_consumer(topic, "it").receive(300) is None
            again.close()
        assert len(letters(connection, dead)) == 1


class OrderError(Exception):
    """An application's own."""


def fails(message: Message) -> None:
    raise OrderError("card 4711")


def letters_of_a_listener(kafka: Any, queue: Queue, listener: Any, *bodies: str, **options: Any) -> list[Message]:
    """Return the dead letters of messages with *bodies*, for each of which *listener* raised."""
    with factory(kafka, **options).create_connection() as connection:
        connection.start()
        connection.create_session().create_consumer(queue).message_listener = listener
        send(connection, queue, *bodies)
        dead = dead_letter_queue(queue)
        wait_for(lambda: len(letters(connection, dead)) == len(bodies))
        return letters(connection, dead)


@pytest.mark.parametrize("details", [None, "message", "traceback"])
def test_a_dead_letter_tells_what_was_raised(
    kafka: Any, queue: Queue, caplog: pytest.LogCaptureFixture, details: str | None
) -> None:
    """The exception's type is on every dead letter; its text and traceback only where the factory asks for them."""
    (letter,) = letters_of_a_listener(kafka, queue, fails, "bad", dead_letter_details=details)
    assert told(letter, "Cause") == "delivered 1 time; the listener raised OrderError"
    assert told(letter, "Exception") == f"{__name__}.OrderError"
    assert told(letter, "ExceptionMessage") == (None if details is None else "card 4711")
    traceback = told(letter, "Traceback")
    assert (traceback is not None) == (details == "traceback")
    assert traceback is None or 'raise OrderError("card 4711")' in traceback
    (raised,) = [record for record in caplog.records if "a message listener raised" in record.getMessage()]
    assert "again" not in raised.getMessage()
    assert any("dead letter" in record.getMessage() for record in caplog.records)


def test_a_destination_has_its_own_details(kafka: Any, queue: Queue) -> None:
    """dead_letter_details of a destination holds for it alone, and no unknown value is accepted."""
    with pytest.raises(ValueError, match="dead_letter_details is 'message', 'traceback' or None, not 'all'"):
        DestinationOptions(dead_letter_details="all")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="dead_letter_details"):
        ConnectionFactory(kafka.bootstrap_servers, dead_letter_details=True)  # type: ignore[arg-type]
    own = {queue.queue_name: DestinationOptions(dead_letter_details="message")}
    (letter,) = letters_of_a_listener(kafka, queue, fails, "bad", destinations=own)
    assert told(letter, "ExceptionMessage") == "card 4711"


def test_an_exception_that_is_handled_is_the_cause(
    kafka: Any, queue: Queue, dead: Queue, eventually: Eventually
) -> None:
    """A program that rolls back while it handles an exception, or whose with block one leaves, need not name it."""
    with factory(kafka, dead_letter_details="message").create_connection() as connection:
        connection.start()
        send(connection, queue, "first", "second")
        session = connection.create_session(Session.SESSION_TRANSACTED)
        consumer = session.create_consumer(queue)
        assert consumer.receive(WAIT_MS) is not None
        try:
            raise OrderError("one")
        except OrderError:
            session.rollback()
        session.close()
        with contextlib.suppress(OrderError), connection.create_session(Session.CLIENT_ACKNOWLEDGE) as other:
            assert other.create_consumer(queue).receive(WAIT_MS) is not None
            raise OrderError("two")
        eventually(lambda: len(letters(connection, dead)) == 2)
        found = {told(letter, "ExceptionMessage"): told(letter, "Cause") for letter in letters(connection, dead)}
    assert found == {
        "one": "delivered 1 time; its transaction was rolled back after OrderError",
        "two": "delivered 1 time; its session closed after OrderError",
    }


async def rolled_back(servers: str, queue: Queue) -> None:
    async with aio.ConnectionFactory(servers, redelivery=ONCE).create_context(Session.SESSION_TRANSACTED) as context:
        consumer = context.create_consumer(queue)
        assert await consumer.receive(WAIT_MS) is not None
        try:
            raise OrderError("in a task")
        except OrderError:
            await context.rollback()


def test_an_exception_that_a_task_handles_is_the_cause(
    kafka: Any, queue: Queue, dead: Queue, eventually: Eventually
) -> None:
    """With asyncio, where threads make the calls, the exception is the one that the task handles."""
    with factory(kafka).create_connection() as connection:
        send(connection, queue, "bad")
        asyncio.run(rolled_back(kafka.bootstrap_servers, queue))
        eventually(lambda: letters(connection, dead))
        (letter,) = letters(connection, dead)
    assert told(letter, "Exception") == f"{__name__}.OrderError"


class UnprintableError(Exception):
    """An exception that cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("not even that")


def test_an_exception_without_a_text_does_not_hold_up_its_message(kafka: Any, queue: Queue) -> None:
    """Details that are large, or that cannot be had, never keep a message from its dead-letter queue."""
    raised = iter([UnprintableError(), OrderError("x" * 3_000_000)])

    def listener(message: Message) -> None:
        raise next(raised)

    first, second = letters_of_a_listener(kafka, queue, listener, "bad", "worse", dead_letter_details="traceback")
    assert isinstance(second, TextMessage)
    assert second.text == "worse"
    assert told(first, "ExceptionMessage") == "<no text: RuntimeError>"
    assert len(told(second, "ExceptionMessage") or "") == 4096


def test_the_first_failure_outlives_its_process(kafka: Any, queue: Queue, dead: Queue, eventually: Eventually) -> None:
    """A dead letter tells when a delivery failed first, though that was in another process, some time ago."""
    twice = {"redelivery": RedeliveryPolicy(max_deliveries=2)}
    with factory(kafka, **twice, kafka={"client.id": "first"}).create_connection() as connection:
        connection.start()
        send(connection, queue, "bad")
        session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        assert session.create_consumer(queue).receive(WAIT_MS) is not None
        session.recover()
    between = time.time_ns() // 1_000_000
    with factory(kafka, **twice, kafka={"client.id": "second"}).create_connection() as connection:
        connection.start()
        session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        assert session.create_consumer(queue).receive(WAIT_MS) is not None
        session.recover()
        eventually(lambda: letters(connection, dead))
        (letter,) = letters(connection, dead)
    assert int(told(letter, "FirstFailure") or 0) <= between < int(told(letter, "LastFailure") or 0)


class Beginner(Intercepted):
    """A producer that notes which topics there are when a transaction begins."""

    there: ClassVar[list[set[str]]] = []

    def begin_transaction(self) -> None:
        self.there.append(topics(self.config["bootstrap.servers"]))
        self.inner.begin_transaction()


def test_a_dead_letter_is_planned_before_its_transaction_begins(
    kafka: Any, queue: Queue, dead: Queue, eventually: Eventually
) -> None:
    """The dead-letter queue is made before, too: an open transaction holds up all consumers that read behind it."""
    Beginner.there.clear()
    servers = kafka.bootstrap_servers
    with intercepted(servers, producer=Beginner), apart(servers, redelivery=ONCE) as connection:
        send(connection, queue, "bad")
        with connection.create_session(Session.SESSION_TRANSACTED) as session:
            assert session.create_consumer(queue).receive(WAIT_MS) is not None
            session.rollback()
            eventually(lambda: Beginner.there)
    assert dead.queue_name in Beginner.there[0]


def test_a_name_that_no_dead_letter_queue_can_have_is_told_when_the_consumer_opens(
    kafka: Any, queue: Queue, eventually: Eventually
) -> None:
    """The consumer works all the same, as do its transactions: most messages never fail for the last time."""
    long = Queue(queue.queue_name.ljust(249, "x"))
    heard: list[JMSException] = []
    with apart(kafka.bootstrap_servers) as connection:
        connection.exception_listener = heard.append
        consumers = [connection.create_session().create_consumer(long) for _ in range(2)]
        eventually(lambda: heard)
        send(connection, long, "good")
        assert any(consumer.receive(SOON_MS) is not None for consumer in consumers)
    (told,) = heard
    assert isinstance(told, InvalidDestinationException)
    assert "needs a Kafka topic name of 253 characters, and Kafka allows 249" in str(told)
    assert "RedeliveryPolicy(dead_letter=...)" in str(told)


def test_a_dead_letter_queue_of_smaller_messages_is_told_when_the_consumer_opens(
    kafka: Any, admin: AdminPort, queue: Queue, dead: Queue, eventually: Eventually
) -> None:
    """The operator learns of it before the first message is too large; of one that takes as much, nothing is said."""
    for name, limit in ((queue.queue_name, "3000000"), (dead.queue_name, "2000000")):
        new = NewTopic(name, 1, 1, config={"max.message.bytes": limit})
        admin.create_topics([new], operation_timeout=10, request_timeout=10)[name].result()
    heard: list[JMSException] = []
    with apart(kafka.bootstrap_servers) as connection:
        connection.exception_listener = heard.append
        session = connection.create_session()
        session.create_consumer(dead)
        session.create_consumer(queue)
        eventually(lambda: heard)
    (told,) = heard
    assert f"max.message.bytes of the Kafka topic '{dead.queue_name}' is 2000000" in str(told)
