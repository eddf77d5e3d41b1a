"""What Java programs say of their messages, and what becomes of them: acknowledge modes and transactions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from java_remote import Java, JavaError, JavaObject, Typed

from kjms import Queue, Session, TextMessage

AUTO, CLIENT, DUPS_OK, INDIVIDUAL = 1, 2, 3, 101
WAIT = Typed("long", 10_000)
SHORT = Typed("long", 300)


def fill(here: Session, name: str, count: int) -> list[str]:
    producer = here.create_producer(Queue(name))
    texts = [str(number) for number in range(count)]
    for text in texts:
        producer.send(TextMessage(text))
    return texts


def take(consumer: JavaObject, count: int, wait: Any = WAIT) -> list[JavaObject]:
    return [consumer.receive(wait) for _ in range(count)]


def texts(messages: list[JavaObject]) -> list[str]:
    return [message.getText() for message in messages]


def left(here: Session, name: str) -> list[str]:
    """What the queue still holds."""
    with here.create_browser(Queue(name)) as browser:
        return [message.text for message in browser if isinstance(message, TextMessage)]


@pytest.mark.parametrize("mode", [AUTO, DUPS_OK])
def test_automatic_modes_take_messages_from_the_queue(
    connect: Callable[..., JavaObject],
    here: Session,
    kjms_destination_name: str,
    eventually: Callable[..., None],
    mode: int,
) -> None:
    """What was received is gone, what was not is still there when the session closes."""
    sent = fill(here, kjms_destination_name, 10)
    session = connect().createSession(False, mode)
    consumer = session.createConsumer(session.createQueue(kjms_destination_name))
    assert texts(take(consumer, 6)) == sent[:6]
    session.close()
    eventually(lambda: left(here, kjms_destination_name) == sent[6:])


def test_client_acknowledge(
    connect: Callable[..., JavaObject], here: Session, kjms_destination_name: str, eventually: Callable[..., None]
) -> None:
    """Acknowledging a message acknowledges those before it; the others come again, marked."""
    sent = fill(here, kjms_destination_name, 6)
    connection = connect()
    session = connection.createSession(False, CLIENT)
    consumer = session.createConsumer(session.createQueue(kjms_destination_name))
    messages = take(consumer, 3)
    messages[-1].acknowledge()
    take(consumer, 2)
    session.close()
    eventually(lambda: left(here, kjms_destination_name) == sent[3:])
    again = connection.createSession(False, CLIENT)
    messages = take(again.createConsumer(again.createQueue(kjms_destination_name)), 3)
    assert texts(messages) == sent[3:]
    assert [message.getJMSRedelivered() for message in messages[:2]] == [True, True]
    assert [message.getIntProperty("JMSXDeliveryCount") for message in messages[:2]] == [2, 2]


def test_recover(connect: Callable[..., JavaObject], here: Session, kjms_destination_name: str) -> None:
    """A session that recovers gets what it did not acknowledge again, in order and marked."""
    sent = fill(here, kjms_destination_name, 3)
    session = connect().createSession(False, CLIENT)
    consumer = session.createConsumer(session.createQueue(kjms_destination_name))
    take(consumer, 2)
    session.recover()
    messages = take(consumer, 3)
    assert texts(messages) == sent
    assert [message.getJMSRedelivered() for message in messages] == [True, True, False]


def test_individual_acknowledge(
    connect: Callable[..., JavaObject], here: Session, kjms_destination_name: str, eventually: Callable[..., None]
) -> None:
    """The client's own mode acknowledges one message alone, in whatever order."""
    sent = fill(here, kjms_destination_name, 4)
    session = connect().createSession(False, INDIVIDUAL)
    consumer = session.createConsumer(session.createQueue(kjms_destination_name))
    messages = take(consumer, 4)
    messages[2].acknowledge()
    messages[0].acknowledge()
    session.close()
    eventually(lambda: left(here, kjms_destination_name) == [sent[1], sent[3]])


def dead_letter(here: Session, name: str) -> tuple[str | None, str | None]:
    """The next dead letter of a queue: its text, and its cause."""
    dead = here.create_consumer(Queue(f"{name}.dlq")).receive(10_000)
    assert isinstance(dead, TextMessage)
    return dead.text, dead.get_string_property("JMS_kjms_Cause")


@pytest.mark.parametrize(("said", "cause"), [(2, "rejected by the client"), (5, "the client found it undeliverable")])
def test_refused_messages_become_dead_letters(
    connect: Callable[..., JavaObject], here: Session, kjms_destination_name: str, said: int, cause: str
) -> None:
    """A message that the client rejects, or says undeliverable, is a dead letter at once, with what was said of it."""
    fill(here, kjms_destination_name, 2)
    session = connect().createSession(False, CLIENT)
    consumer = session.createConsumer(session.createQueue(kjms_destination_name))
    first = consumer.receive(WAIT)
    first.getAcknowledgeCallback().setAckType(said)
    first.acknowledge()
    assert dead_letter(here, kjms_destination_name) == ("0", f"delivered 1 time; {cause}")
    assert consumer.receive(WAIT).getText() == "1"


def test_a_message_that_came_too_often_becomes_a_dead_letter(
    connect: Callable[..., JavaObject], here: Session, kjms_destination_name: str
) -> None:
    """What a Java program rolls back ten times is a dead letter with that cause; the next message comes then."""
    fill(here, kjms_destination_name, 2)
    session = connect(options="?jms.prefetchPolicy.all=1").createSession(True, 0)
    consumer = session.createConsumer(session.createQueue(kjms_destination_name))
    for count in range(1, 11):
        message = consumer.receive(WAIT)
        assert (message.getText(), message.getIntProperty("JMSXDeliveryCount")) == ("0", count)
        session.rollback()
    assert consumer.receive(WAIT).getText() == "1"
    session.commit()
    expected = ("0", "delivered 10 times; its transaction was rolled back")
    assert dead_letter(here, kjms_destination_name) == expected


def test_a_message_that_the_client_gives_up_becomes_a_dead_letter(
    connect: Callable[..., JavaObject], here: Session, kjms_destination_name: str
) -> None:
    """Qpid JMS's own limit of redeliveries ends in the dead-letter queue, too."""
    fill(here, kjms_destination_name, 2)
    policy = "?jms.redeliveryPolicy.maxRedeliveries=1&jms.redeliveryPolicy.outcome=REJECTED"
    session = connect(options=policy).createSession(False, CLIENT)
    consumer = session.createConsumer(session.createQueue(kjms_destination_name))
    for _ in range(2):
        assert consumer.receive(WAIT).getText() == "0"
        session.recover()
    assert consumer.receive(WAIT).getText() == "1"
    assert dead_letter(here, kjms_destination_name) == ("0", "delivered 1 time; rejected by the client")


def test_what_expires_in_a_prefetch_is_no_dead_letter(
    connect: Callable[..., JavaObject], here: Session, kjms_destination_name: str, eventually: Callable[..., None]
) -> None:
    """A message that expires while it waits in Qpid JMS vanishes, as one that expires in the queue does."""
    producer = here.create_producer(Queue(kjms_destination_name))
    expiring = TextMessage("expires")
    producer.send(expiring, time_to_live=2_000)
    producer.send(TextMessage("stays"))
    session = connect().createSession(False, AUTO)
    consumer = session.createConsumer(session.createQueue(kjms_destination_name))
    eventually(lambda: time.time() * 1000 > expiring.jms_expiration)
    assert consumer.receive(WAIT).getText() == "stays"
    eventually(lambda: left(here, kjms_destination_name) == [])
    assert left(here, f"{kjms_destination_name}.dlq") == []


def test_a_listener_that_always_fails_ends_in_the_dead_letter_queue(
    connect: Callable[..., JavaObject], java: Java, here: Session, kjms_destination_name: str
) -> None:
    """Under AUTO_ACKNOWLEDGE Qpid JMS releases a message whose listener throws; ten times, as with Artemis's client."""
    fill(here, kjms_destination_name, 1)
    session = connect().createSession(False, AUTO)
    failing = java.new("kjms.Failing")
    session.createConsumer(session.createQueue(kjms_destination_name)).setMessageListener(failing)
    assert dead_letter(here, kjms_destination_name) == ("0", "delivered 10 times; the client released it")
    assert failing.calls() == 10


@pytest.mark.requirement("AMQP-3.3.1-9")
def test_released_messages_are_not_counted_and_failed_ones_are(
    connect: Callable[..., JavaObject], here: Session, kjms_destination_name: str
) -> None:
    """Released messages come again as if for the first time, modified ones that failed come counted."""
    fill(here, kjms_destination_name, 1)
    session = connect(options="?jms.prefetchPolicy.all=1").createSession(False, CLIENT)
    consumer = session.createConsumer(session.createQueue(kjms_destination_name))
    for acknowledgement, expected in ((3, 1), (4, 1), (4, 2), (3, 3), (1, 3)):  # RELEASED, MODIFIED_FAILED, ACCEPTED
        message = consumer.receive(WAIT)
        assert message.getIntProperty("JMSXDeliveryCount") == expected
        message.getAcknowledgeCallback().setAckType(acknowledgement)
        message.acknowledge()
    assert consumer.receive(SHORT) is None


# --------------------------------------------------------------------------------------------------- transactions


def test_a_commit_sends_and_acknowledges(
    connect: Callable[..., JavaObject], here: Session, kjms_destination_name: str, eventually: Callable[..., None]
) -> None:
    """What a transacted session sends is seen at its commit and not before; what it received is gone then."""
    name, other = kjms_destination_name, f"{kjms_destination_name}-out"
    sent = fill(here, name, 5)
    session = connect().createSession(True, 0)
    consumer = session.createConsumer(session.createQueue(name))
    producer = session.createProducer(session.createQueue(other))
    for message in take(consumer, 3):
        producer.send(session.createTextMessage(message.getText() + "!"))
    assert left(here, other) == []
    assert left(here, name) == sent
    session.commit()
    assert left(here, other) == ["0!", "1!", "2!"]
    session.close()
    eventually(lambda: left(here, name) == sent[3:])


def test_a_rollback_destroys_and_redelivers(
    connect: Callable[..., JavaObject], here: Session, kjms_destination_name: str
) -> None:
    """What was sent is destroyed, and what was received comes again, in order and marked, before the rest."""
    name, other = kjms_destination_name, f"{kjms_destination_name}-out"
    sent = fill(here, name, 5)
    session = connect().createSession(True, 0)
    consumer = session.createConsumer(session.createQueue(name))
    producer = session.createProducer(session.createQueue(other))
    for message in take(consumer, 3):
        producer.send(message)
    session.rollback()
    messages = take(consumer, 5)
    assert texts(messages) == sent
    assert [message.getIntProperty("JMSXDeliveryCount") for message in messages] == [2, 2, 2, 1, 1]
    session.commit()
    assert left(here, other) == []
    assert left(here, name) == []


def test_a_transaction_that_is_left_open_is_rolled_back(
    connect: Callable[..., JavaObject], here: Session, kjms_destination_name: str
) -> None:
    """Closing the session rolls back; its messages are there for others at once."""
    name, other = kjms_destination_name, f"{kjms_destination_name}-out"
    sent = fill(here, name, 2)
    connection = connect()
    session = connection.createSession(True, 0)
    session.createProducer(session.createQueue(other)).send(session.createTextMessage("never"))
    take(session.createConsumer(session.createQueue(name)), 2)
    session.close()
    again = connection.createSession(False, AUTO)
    assert texts(take(again.createConsumer(again.createQueue(name)), 2)) == sent
    assert left(here, other) == []


@pytest.mark.parametrize("ends_well", [True, False])
def test_a_transaction_outlives_its_consumer(
    connect: Callable[..., JavaObject], here: Session, kjms_destination_name: str, ends_well: bool
) -> None:
    """What was received before the consumer closed is acknowledged by the commit, and comes again after a rollback."""
    sent = fill(here, kjms_destination_name, 3)
    session = connect().createSession(True, 0)
    queue = session.createQueue(kjms_destination_name)
    consumer = session.createConsumer(queue)
    assert texts(take(consumer, 2)) == sent[:2]
    consumer.close()
    if ends_well:
        session.commit()
    else:
        session.rollback()
    expected = sent[2:] if ends_well else sent
    assert texts(take(session.createConsumer(queue), len(expected))) == expected
    session.commit()
    assert left(here, kjms_destination_name) == []


def test_listeners(
    connect: Callable[..., JavaObject],
    java: Java,
    here: Session,
    kjms_destination_name: str,
    eventually: Callable[..., None],
) -> None:
    """A listener of Java gets every message, in order, and what it got is settled."""
    sent = fill(here, kjms_destination_name, 100)
    session = connect().createSession(False, AUTO)
    heard = java.new("kjms.Heard")
    session.createConsumer(session.createQueue(kjms_destination_name)).setMessageListener(heard)
    assert [heard.next(WAIT).getText() for _ in range(100)] == sent
    eventually(lambda: left(here, kjms_destination_name) == [])


def test_transactions_follow_each_other(
    connect: Callable[..., JavaObject], here: Session, kjms_destination_name: str
) -> None:
    """One commit after the other, with sends to several destinations, keeps what each of them did."""
    session = connect().createSession(True, 0)
    producer = session.createProducer(None)
    for number in range(10):
        for name in ("a", "b"):
            producer.send(
                session.createQueue(f"{kjms_destination_name}-{name}"), session.createTextMessage(str(number))
            )
        if number % 3 == 2:
            session.rollback()
        else:
            session.commit()
    expected = [str(number) for number in range(10) if number % 3 != 2]
    assert left(here, f"{kjms_destination_name}-a") == expected
    assert left(here, f"{kjms_destination_name}-b") == expected


# ------------------------------------------------------------------------------------------------ what goes wrong


@pytest.mark.requirement("AMQP-6.2-4")
def test_a_message_that_cannot_be_relayed_is_refused(there: JavaObject) -> None:
    """A message to a destination that cannot be is rejected, and the client's send raises."""
    producer = there.createProducer(None)
    with pytest.raises(JavaError) as raised:
        producer.send(there.createQueue("kjms.registry"), there.createTextMessage("x"))
    assert raised.value.name == "InvalidDestinationException"


def test_a_destination_that_cannot_be_is_refused(there: JavaObject) -> None:
    """A producer or consumer on what is no destination of users raises InvalidDestinationException."""
    for create in (there.createProducer, there.createConsumer):
        with pytest.raises(JavaError) as raised:
            create(there.createQueue("kjms.registry"))
        assert raised.value.name == "InvalidDestinationException"


@pytest.mark.parametrize("why", ["too large for the gateway", "too large for Kafka", "no destination"])
def test_a_transaction_that_lacks_a_message_cannot_commit(
    start_gateway: Callable[..., Any], connect: Callable[..., JavaObject], here: Session, kjms_destination_name: str,
    why: str,
) -> None:  # fmt: skip
    """A Java program that does not wait for what it sends learns at the commit that a message was not taken."""
    name = kjms_destination_name
    fill(here, f"{name}-in", 1)
    small = start_gateway(max_message_size=100_000 if why == "too large for the gateway" else 16 << 20)
    session = connect(url=small.url).createSession(True, 0)
    consumer = session.createConsumer(session.createQueue(f"{name}-in"))
    assert consumer.receive(WAIT).getText() == "0"
    producer = session.createProducer(None)
    producer.send(session.createQueue(name), session.createTextMessage("before"))
    target = "kjms.registry" if why == "no destination" else name
    producer.send(
        session.createQueue(target), session.createTextMessage("x" * (5 if why == "no destination" else 2_000_000))
    )
    with pytest.raises(JavaError) as raised:
        session.commit()
    assert raised.value.name == "TransactionRolledBackException"
    assert consumer.receive(WAIT).getText() == "0"
    session.createProducer(session.createQueue(name)).send(session.createTextMessage("after"))
    session.commit()
    assert left(here, name) == ["after"]
    assert left(here, f"{name}-in") == []


def test_a_transaction_has_a_limit(
    start_gateway: Callable[..., Any], connect: Callable[..., JavaObject], here: Session, kjms_destination_name: str
) -> None:
    """A transaction that sends more than is allowed cannot commit, and leaves nothing; the next one can."""
    small = start_gateway(max_transaction_size=10_000)
    session = connect(url=small.url).createSession(True, 0)
    producer = session.createProducer(session.createQueue(kjms_destination_name))
    for _ in range(3):  # nobody waits for them before the commit
        producer.send(session.createTextMessage("x" * 4_000))
    with pytest.raises(JavaError, match="10000 bytes") as raised:
        session.commit()
    assert raised.value.name == "TransactionRolledBackException"
    producer.send(session.createTextMessage("small"))
    session.commit()
    assert left(here, kjms_destination_name) == ["small"]
