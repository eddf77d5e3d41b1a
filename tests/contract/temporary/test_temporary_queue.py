"""Temporary queues: what creates them, what receives from them, and how long they live."""

from __future__ import annotations

import copy
import gc
import pickle
import time
from typing import Any

import pytest

from kjms import (
    Connection,
    ConnectionFactory,
    InvalidDestinationException,
    JMSException,
    Message,
    Queue,
    RedeliveryPolicy,
    Session,
    TemporaryQueue,
    TextMessage,
)
from kjms.cli import main
from tests.helpers import NOTHING_MS, WAIT_MS, Eventually, give_back, is_gone, send, texts, wait_past


@pytest.mark.requirement("JMS-4.4.3-1", "JMS-4.4.3-2", "JAK-createTemporaryQueue-2")
def test_it_belongs_to_the_connection(connection: Connection) -> None:
    """A temporary queue outlives its session; every session of its connection may receive from it."""
    maker = connection.create_session()
    first, second = maker.create_temporary_queue(), maker.create_temporary_queue()
    assert isinstance(first, TemporaryQueue)
    assert first != second
    maker.close()
    session = connection.create_session()
    consumer = session.create_consumer(first)
    send(session, first, "one", "two")
    send(session, second, "other")
    assert texts(consumer, 2) == ["one", "two"]
    consumer.close()
    assert texts(connection.create_session().create_consumer(second), 1) == ["other"]


@pytest.mark.requirement("JMS-4.4.3-3", "NEV-206", "NEV-279")
def test_only_its_own_connection_receives_from_it(kjms_factory: ConnectionFactory, connection: Connection) -> None:
    """Another connection can neither consume nor browse it, but send to it."""
    session = connection.create_session()
    queue = session.create_temporary_queue()
    with kjms_factory.create_connection() as other:
        foreign = other.create_session()
        with pytest.raises(InvalidDestinationException, match=r"another connection.*4\.4\.3"):
            foreign.create_consumer(queue)
        with pytest.raises(InvalidDestinationException, match="another connection"):
            foreign.create_browser(queue)
        send(foreign, queue, "hello")
    assert texts(session.create_consumer(queue), 1) == ["hello"]


@pytest.mark.requirement("JMS-4.4.3-5", "NEV-207", "JMS-3.4.6-1", "JMS-11.4.11-1", "NET-319")
def test_reply_goes_where_jms_reply_to_says(kjms_factory: ConnectionFactory, queue: Queue) -> None:
    """A receiver gets the temporary queue's name, which is equal to it, and can send there by it; it is no copy."""
    with kjms_factory.create_context() as client, kjms_factory.create_context() as service:
        replies = client.create_temporary_queue()
        consumer = client.create_consumer(replies)
        requests = service.create_consumer(queue)
        request = client.create_text_message("ping")
        client.create_producer().set_jms_reply_to(replies).send(queue, request)
        received = requests.receive(WAIT_MS)
        assert received is not None
        reply_to = received.jms_reply_to
        assert isinstance(reply_to, TemporaryQueue)
        assert (reply_to, hash(reply_to), str(reply_to)) == (replies, hash(replies), str(replies))
        assert reply_to is not replies
        assert pickle.loads(pickle.dumps(reply_to)) == copy.copy(reply_to) == replies
        service.create_producer().send(reply_to, "pong")
        reply = consumer.receive(WAIT_MS)
        assert isinstance(reply, TextMessage)
        assert (reply.text, reply.jms_destination) == ("pong", replies)
        assert not reply.property_exists("kjms-to")
        for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot be copied"):
                attempt(replies)
        with pytest.raises(JMSException, match="only a name"):
            reply_to.delete()


@pytest.mark.requirement("JMS-4.4.3-8", "NEV-208")
def test_it_ends_with_its_object(session: Session, eventually: Eventually) -> None:
    """What the program has lost is deleted, but not while a consumer of it is open."""
    queue = session.create_temporary_queue()
    name = TemporaryQueue(queue.queue_name)
    consumer = session.create_consumer(name)
    del queue
    gc.collect()
    send(session, name, "still there")
    assert texts(consumer, 1) == ["still there"]
    time.sleep(0.15)  # the inbox's thread has heard of it by now
    send(session, name, "still there")
    consumer.close()
    eventually(lambda: is_gone(session, name))


def test_only_sessions_make_them(session: Session) -> None:
    """A temporary destination that a program names by itself is none."""
    for name in ("mine", "kjms.inbox.anonymous.x/y", "kjms.inbox.anonymous.nobody/1"):
        with pytest.raises(InvalidDestinationException):
            session.create_producer(TemporaryQueue(name))
        with pytest.raises(InvalidDestinationException):
            session.create_consumer(TemporaryQueue(name))


NONE_BACK = [("3", False)]
ALL_BACK = [("1", True), ("2", True), ("3", False)]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (Session.AUTO_ACKNOWLEDGE, NONE_BACK),
        (Session.DUPS_OK_ACKNOWLEDGE, NONE_BACK),
        (Session.CLIENT_ACKNOWLEDGE, ALL_BACK),
        (Session.INDIVIDUAL_ACKNOWLEDGE, ALL_BACK),
        (Session.SESSION_TRANSACTED, ALL_BACK),
    ],
)
def test_each_mode_redelivers(connection: Connection, mode: int, expected: list[tuple[str, bool]]) -> None:
    """What was not acknowledged comes again, marked and in order; what was acknowledged does not."""
    session, sender = connection.create_session(mode), connection.create_session()
    queue = session.create_temporary_queue()
    send(sender, queue, "1", "2", "3")
    consumer = session.create_consumer(queue)
    assert texts(consumer, 2) == ["1", "2"]
    give_back(session)
    again = [consumer.receive(WAIT_MS) for _ in expected]
    assert [(message.text, message.jms_redelivered) for message in again] == expected  # type: ignore[union-attr]
    if session.transacted:
        session.commit()
    for message in again:
        message.acknowledge()  # type: ignore[union-attr]
    session.close()
    send(sender, queue, "last")
    assert texts(connection.create_session().create_consumer(queue), 1) == ["last"]


def test_a_transaction_sends_receives_and_replies(connection: Connection, eventually: Eventually) -> None:
    """Sends to a temporary queue arrive with the commit, and not after a rollback."""
    session = connection.create_session(Session.SESSION_TRANSACTED)
    queue, other = session.create_temporary_queue(), session.create_temporary_queue()
    plain = connection.create_session().create_consumer(queue)
    forward = session.create_producer(None)
    source = session.create_consumer(other)
    send(session, queue, "rolled back")
    session.rollback()
    send(session, other, "to be forwarded")
    session.commit()
    message = source.receive(WAIT_MS)
    assert message is not None
    forward.send(message, queue)
    assert plain.receive(NOTHING_MS) is None
    session.commit()
    browser = connection.create_session().create_browser(queue)
    eventually(lambda: [each.get_body(str) for each in browser] == ["to be forwarded"])
    assert texts(plain, 1) == ["to be forwarded"]
    session.rollback()
    assert source.receive(NOTHING_MS) is None


def test_deleting_before_the_commit(connection: Connection) -> None:
    """What was received in a transaction is committed though its temporary queue is deleted by then."""
    session = connection.create_session(Session.SESSION_TRANSACTED)
    queue = session.create_temporary_queue()
    send(connection.create_session(), queue, "1")
    consumer = session.create_consumer(queue)
    assert texts(consumer, 1) == ["1"]
    consumer.close()
    queue.delete()
    session.commit()


def test_selectors_priorities_and_expiry(connection: Connection) -> None:
    """Consumers get what they select, higher priorities first, and nothing that has expired."""
    session = connection.create_session()
    queue = session.create_temporary_queue()
    producer = session.create_producer(queue)
    producer.send(expired := session.create_text_message("expired"), time_to_live=1)
    for priority in (3, 7):
        producer.send(session.create_text_message(f"priority {priority}"), priority=priority)
    send(session, queue, "green", properties={"colour": "green"})
    wait_past(expired.jms_expiration)
    with session.create_consumer(queue, "colour = 'green'") as green:
        assert texts(green, 1) == ["green"]
    look = [message.text for message in session.create_browser(queue)]  # type: ignore[attr-defined]
    assert look == ["priority 3", "priority 7"]
    with session.create_consumer(queue) as consumer:
        assert texts(consumer, 2) == ["priority 7", "priority 3"]
        assert consumer.receive(NOTHING_MS) is None


def test_groups_stay_together(connection: Connection) -> None:
    """Messages of a group arrive, in order, though their key would spread them over partitions."""
    session = connection.create_session()
    queue = session.create_temporary_queue()
    for group in "abcdefgh":
        send(session, queue, f"{group}1", f"{group}2", properties={"JMSXGroupID": group})
    received = texts(session.create_consumer(queue), 16)
    assert received == [f"{group}{n}" for group in "abcdefgh" for n in (1, 2)]


def test_a_listener_gets_them(connection: Connection, eventually: Eventually) -> None:
    """A message listener is called for what is there and for what comes."""
    session, sender = connection.create_session(), connection.create_session()
    queue = session.create_temporary_queue()
    got: list[Message] = []
    send(sender, queue, "before")
    session.create_consumer(queue).message_listener = got.append
    send(sender, queue, "after")
    eventually(lambda: len(got) == 2)
    assert [message.text for message in got] == ["before", "after"]  # type: ignore[attr-defined]


def test_what_fails_too_often_is_a_dead_letter(kafka: Any, eventually: Eventually) -> None:
    """Redelivery waits as the policy says; then the message goes to the dead letters of all temporary destinations."""
    name = "kjms.temporary.anonymous.letters"
    policy = RedeliveryPolicy(max_deliveries=2, delay=30, dead_letter="{queue}.letters")
    with ConnectionFactory(kafka.bootstrap_servers, redelivery=policy).create_connection() as connection:
        connection.start()
        session = connection.create_session()
        queue = session.create_temporary_queue()
        seen: list[int] = []

        def fail(message: Message) -> None:
            seen.append(message.get_int_property("JMSXDeliveryCount"))
            raise ValueError("as always")

        session.create_consumer(queue).message_listener = fail
        send(connection.create_session(), queue, "bad")
        letters = connection.create_session().create_consumer(Queue(name))
        letter = letters.receive(WAIT_MS)
        assert isinstance(letter, TextMessage)
        assert (letter.text, seen) == ("bad", [1, 2])
        assert letter.get_string_property("JMS_kjms_OriginalDestination") == str(queue)


def test_dead_letters_of_temporary_destinations_stay(
    kafka: Any, eventually: Eventually, capsys: pytest.CaptureFixture[str], kjms_destination_name: str
) -> None:
    """They cannot be retried: what was in a temporary destination was for one program alone."""
    policy = RedeliveryPolicy(max_deliveries=1, dead_letter=kjms_destination_name)
    with ConnectionFactory(kafka.bootstrap_servers, redelivery=policy).create_connection() as connection:
        connection.start()
        session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        queue = session.create_temporary_queue()
        consumer = session.create_consumer(queue)
        send(session, queue, "bad")
        assert texts(consumer, 1) == ["bad"]
        session.recover()
        assert consumer.receive(NOTHING_MS) is None
        browser = session.create_browser(Queue(kjms_destination_name))
        eventually(lambda: list(browser))
        for more in ([], ["--topics"]):
            arguments = ["retry", kjms_destination_name, *more, "--bootstrap", kafka.bootstrap_servers]
            assert main(["dlq", *arguments]) == 1
            assert "from a temporary destination" in capsys.readouterr().err


def test_browsing_changes_nothing(connection: Connection) -> None:
    """A browser shows what is not acknowledged, also what a consumer has received."""
    session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    queue = session.create_temporary_queue()
    browser = session.create_browser(queue)
    send(session, queue, "1", "2")
    assert [message.text for message in browser] == ["1", "2"]  # type: ignore[attr-defined]
    consumer = session.create_consumer(queue)
    message = consumer.receive(WAIT_MS)
    assert [message.text for message in browser] == ["1", "2"]  # type: ignore[attr-defined]
    assert message is not None
    message.acknowledge()
    assert [message.text for message in browser] == ["2"]  # type: ignore[attr-defined]
    assert texts(consumer, 1) == ["2"]
