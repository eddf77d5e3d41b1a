"""What is settled, and what comes again, in each acknowledge mode."""

from __future__ import annotations

from typing import Any

import pytest

from kjms import (
    Connection,
    ConnectionFactory,
    IllegalStateException,
    Message,
    Queue,
    RedeliveryPolicy,
    Session,
)
from tests.helpers import WAIT_MS, Eventually, send, text, texts_of


@pytest.mark.requirement("JAK-AUTO_ACKNOWLEDGE-2", "JMS-4.4.11-3", "NEV-238")
def test_auto_acknowledge_is_durable_before_the_next_message(
    connection: Connection, queue: Queue, settled: Any
) -> None:
    """When message n+1 is delivered, the settlement of message n is committed."""
    send(connection, queue, "a", "b", "c")
    consumer = connection.create_session(Session.AUTO_ACKNOWLEDGE).create_consumer(queue)
    assert text(consumer.receive(WAIT_MS)) == "a"
    assert text(consumer.receive(WAIT_MS)) == "b"
    assert settled(queue) >= 1
    assert text(consumer.receive(WAIT_MS)) == "c"
    assert settled(queue) >= 2


def test_dups_ok_acknowledges_in_the_background(
    connection: Connection, queue: Queue, settled: Any, eventually: Eventually
) -> None:
    """DUPS_OK commits some time later, without being asked, what receive has returned."""
    send(connection, queue, "a", "b")
    consumer = connection.create_session(Session.DUPS_OK_ACKNOWLEDGE).create_consumer(queue)
    assert [text(consumer.receive(WAIT_MS)) for _ in "ab"] == ["a", "b"]
    eventually(lambda: settled(queue) == 2)


@pytest.mark.requirement("JMS-4.4.11-5", "JAK-CLIENT_ACKNOWLEDGE-2", "NEV-240")
def test_client_acknowledge_settles_all_that_the_session_consumed(
    connection: Connection, queue: Queue, settled: Any
) -> None:
    """Acknowledging any message acknowledges all that its session has consumed."""
    send(connection, queue, "a", "b", "c", "d")
    session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    consumer = session.create_consumer(queue)
    first = consumer.receive(WAIT_MS)
    assert [text(consumer.receive(WAIT_MS)) for _ in "bc"] == ["b", "c"]
    assert settled(queue) < 1
    assert first is not None
    first.acknowledge()
    assert settled(queue) == 3
    session.close()
    with pytest.raises(IllegalStateException):
        first.acknowledge()


@pytest.mark.requirement("JAK-recover-3", "JMS-4.4.11-10", "NEV-244", "JMS-3.5.11-1", "JMS-3.5.11-2")
def test_recover_delivers_again_in_order_and_marked(connection: Connection, queue: Queue) -> None:
    """recover() restarts the session with its first unacknowledged message; what comes again is marked and counted."""
    send(connection, queue, "a", "b", "c", "d")
    session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    consumer = session.create_consumer(queue)
    consumer.receive(WAIT_MS).acknowledge()  # type: ignore[union-attr]
    assert [text(consumer.receive(WAIT_MS)) for _ in "bc"] == ["b", "c"]
    session.recover()
    again = [consumer.receive(WAIT_MS) for _ in "bcd"]
    assert [
        (text(message), message.jms_redelivered, message.get_int_property("JMSXDeliveryCount"))
        for message in again
        if message is not None
    ] == [("b", True, 2), ("c", True, 2), ("d", False, 1)]


@pytest.mark.requirement("JMS-4.4.1-7")
def test_a_closed_sessions_messages_go_to_others_at_once(connection: Connection, queue: Queue) -> None:
    """Unacknowledged messages of a closed session are delivered to another consumer, in order and marked."""
    send(connection, queue, "a", "b", "c")
    leaving = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    consumer = leaving.create_consumer(queue)
    assert [text(consumer.receive(WAIT_MS)) for _ in "ab"] == ["a", "b"]
    staying = connection.create_session().create_consumer(queue)
    leaving.close()
    got = [staying.receive(WAIT_MS) for _ in "abc"]
    assert [(text(message), message.jms_redelivered) for message in got if message is not None] == [
        ("a", True),
        ("b", True),
        ("c", False),
    ]


@pytest.mark.requirement("JMS-4.3.5-8")
def test_unacknowledged_messages_outlive_their_connection(kjms_factory: ConnectionFactory, queue: Queue) -> None:
    """What was not acknowledged is there for the next connection."""
    with kjms_factory.create_connection() as first:
        first.start()
        send(first, queue, "a", "b")
        session = first.create_session(Session.CLIENT_ACKNOWLEDGE)
        consumer = session.create_consumer(queue)
        consumer.receive(WAIT_MS).acknowledge()  # type: ignore[union-attr]
        assert text(consumer.receive(WAIT_MS)) == "b"
    with kjms_factory.create_connection() as second:
        second.start()
        consumer = second.create_session().create_consumer(queue)
        assert text(consumer.receive(WAIT_MS)) == "b"
        assert consumer.receive(100) is None


def test_individual_acknowledge_settles_one(connection: Connection, queue: Queue, settled: Any) -> None:
    """INDIVIDUAL_ACKNOWLEDGE settles the one message; recover() brings back the others."""
    send(connection, queue, "a", "b", "c")
    session = connection.create_session(Session.INDIVIDUAL_ACKNOWLEDGE)
    consumer = session.create_consumer(queue)
    messages = [consumer.receive(WAIT_MS) for _ in "abc"]
    messages[1].acknowledge()  # type: ignore[union-attr]
    session.recover()
    again = [consumer.receive(WAIT_MS) for _ in "ac"]
    assert texts_of(again) == ["a", "c"]
    for message in again:
        assert message is not None
        message.acknowledge()
    assert settled(queue) == 3


@pytest.mark.requirement("JMS-4.5.2-1")
def test_a_listener_that_raises_gets_the_message_again(
    connection: Connection, queue: Queue, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """In AUTO_ACKNOWLEDGE a message whose listener raised is delivered again at once, marked."""
    seen: list[tuple[str | None, bool]] = []

    def fails_once(message: Message) -> None:
        seen.append((text(message), message.jms_redelivered))
        if len(seen) == 1:
            raise RuntimeError("not yet")

    connection.create_session().create_consumer(queue).message_listener = fails_once
    send(connection, queue, "a", "b")
    eventually(lambda: len(seen) == 3)
    assert seen == [("a", False), ("a", True), ("b", False)]
    assert "a message listener raised: delivery 1 of message" in caplog.text


@pytest.mark.requirement("JMS-3.5.11-1", "JMS-4.5.2-3", "NEV-250", "NEV-256")
def test_a_poison_message_becomes_a_dead_letter(kafka: Any, queue: Queue, eventually: Eventually) -> None:
    """After the most deliveries that the policy allows, a message goes to the dead-letter queue, with its cause."""
    factory = ConnectionFactory(
        kafka.bootstrap_servers,  # type: ignore[attr-defined]
        redelivery=RedeliveryPolicy(max_deliveries=3),
    )
    counts: list[int] = []

    def always_fails(message: Message) -> None:
        counts.append(message.get_int_property("JMSXDeliveryCount"))
        raise RuntimeError("poison")

    with factory.create_connection() as connection:
        connection.start()
        connection.create_session().create_consumer(queue).message_listener = always_fails
        send(connection, queue, "bad")
        dead = connection.create_session().create_consumer(Queue(f"{queue.queue_name}.dlq")).receive(WAIT_MS)
        assert text(dead) == "bad"
        assert dead is not None
        assert counts == [1, 2, 3]
        assert dead.get_string_property("JMS_kjms_Cause") == "delivered 3 times; the listener raised RuntimeError"
        assert dead.get_string_property("JMS_kjms_OriginalDestination") == str(queue)
