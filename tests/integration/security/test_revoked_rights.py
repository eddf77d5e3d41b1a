"""Rights that are revoked while a program consumes, and given back: what it has received is not lost."""

from __future__ import annotations

from typing import Any

import pytest
from secured_roles import acls

from kjms import ConnectionFactory, JMSSecurityException, Message, MessageConsumer, Queue, Session
from tests.helpers import WAIT_MS, committed, seen, send, text, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("secured")]

ROLE = "receives from a queue, in any mode"


@pytest.fixture
def name(secured: Any, kjms_destination_name: str) -> str:
    """The name of a Kafka topic, which is there, with two messages."""
    secured.make(kjms_destination_name)
    with ConnectionFactory(secured.addresses["PLAINTEXT"]).create_connection() as connection:
        send(connection, Queue(kjms_destination_name), "a", "b")
    return kjms_destination_name


def acknowledge(message: Message) -> None:
    """Acknowledge *message*, once the broker lets the user do so again: it learns of rights a moment later."""

    def is_allowed() -> bool:
        try:
            message.acknowledge()
        except JMSSecurityException:
            return False
        return True

    wait_for(is_allowed, 60)


def received(consumer: MessageConsumer) -> Message:
    """Return the next message; until the client has asked Kafka again, a receive tells of the missing right."""
    found: list[Message] = []

    def is_there() -> bool:
        try:
            message = consumer.receive(WAIT_MS)
        except JMSSecurityException:
            return False
        if message is not None:
            found.append(message)
        return message is not None

    wait_for(is_there, 60)
    return found[0]


@pytest.mark.parametrize("mode", [Session.CLIENT_ACKNOWLEDGE, Session.INDIVIDUAL_ACKNOWLEDGE])
def test_an_acknowledgement_can_be_made_again(secured: Any, name: str, mode: int) -> None:
    """`acknowledge` names the missing right; called again once the right is there, it settles the message."""
    right = f"Read group kjms.queue.{name}"
    user = secured.user(*acls(ROLE, name))
    with secured.factory(user).create_connection() as connection:
        connection.start()
        session = connection.create_session(mode)
        consumer = session.create_consumer(Queue(name))
        message = received(consumer)
        secured.revoke(user, right)
        with pytest.raises(JMSSecurityException, match=f"the ACL Read on the group 'kjms.queue.{name}' is missing"):
            message.acknowledge()
        secured.allow(user, right)
        acknowledge(message)
        assert committed(secured.addresses["PLAINTEXT"], Queue(name)) == 1
        session.recover()
        other = received(consumer)
        assert seen(other) == ("b", False, 1)
        other.acknowledge()
        assert consumer.receive(500) is None


def test_what_was_not_acknowledged_comes_to_the_next_program(secured: Any, name: str) -> None:
    """A program that ends without the right leaves the message to the next one, marked."""
    right = f"Read group kjms.queue.{name}"
    user = secured.user(*acls(ROLE, name))
    with secured.factory(user).create_connection() as connection:
        connection.start()
        message = received(connection.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(Queue(name)))
        secured.revoke(user, right)
        with pytest.raises(JMSSecurityException):
            message.acknowledge()
    with ConnectionFactory(secured.addresses["PLAINTEXT"]).create_connection() as other:
        other.start()
        consumer = other.create_session().create_consumer(Queue(name))
        assert seen(received(consumer)) == ("a", True, 2)
        assert text(received(consumer)) == "b"


def test_a_topic_that_may_be_read_again_continues(secured: Any, name: str) -> None:
    """An acknowledgement, too, needs the right to read the topic; with the right, everything comes that is left."""
    right = f"Read topic {name}"
    user = secured.user(*acls(ROLE, name), f"Describe topic {name}")
    with secured.factory(user, prefetch=1).create_connection() as connection:
        connection.start()
        session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        consumer = session.create_consumer(Queue(name))
        message = received(consumer)
        secured.revoke(user, right)
        with pytest.raises(JMSSecurityException, match=f"the ACL Read on the topic '{name}' is missing"):
            message.acknowledge()
        with ConnectionFactory(secured.addresses["PLAINTEXT"]).create_connection() as other:
            send(other, Queue(name), "c")
        secured.allow(user, right)
        acknowledge(message)
        for expected in ("b", "c"):
            following = received(consumer)
            assert seen(following) == (expected, False, 1)
            following.acknowledge()


def test_a_transaction_without_its_rights_is_rolled_back(secured: Any, name: str) -> None:
    """`commit` raises for a transactional id that may be used no more; once it may, the message comes again."""
    right = "Write transactional-id kjms-*"
    user = secured.user(*acls(ROLE, name))
    with secured.factory(user).create_connection() as connection:
        connection.start()
        session = connection.create_session(Session.SESSION_TRANSACTED)
        consumer = session.create_consumer(Queue(name))
        assert seen(received(consumer)) == ("a", False, 1)
        session.commit()
        assert seen(received(consumer)) == ("b", False, 1)
        secured.revoke(user, right)
        with pytest.raises(JMSSecurityException, match="the transactional id"):
            session.commit()
        secured.allow(user, right)
        assert seen(received(consumer)) == ("b", True, 2)
        session.commit()
        assert consumer.receive(500) is None
