"""Topics, selectors, no-local and browsers for Java programs, beside Python's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from java_remote import Java, JavaError, JavaObject, Typed

from kjms import Connection, ConnectionFactory, Queue, Session, TextMessage, Topic

WAIT = Typed("long", 10_000)
SHORT = Typed("long", 300)
Connect = Callable[..., JavaObject]


def texts(consumer: JavaObject, count: int) -> list[str]:
    return [consumer.receive(WAIT).getText() for _ in range(count)]


def publish(here: Session, name: str, *words: str) -> None:
    producer = here.create_producer(Topic(name))
    for word in words:
        message = TextMessage(word)
        message.properties["word"] = word
        producer.send(message)


def test_topics_reach_java_and_python(there: JavaObject, here: Session, kjms_destination_name: str) -> None:
    """Each subscriber, Java's and Python's, gets what either publishes from then on."""
    publish(here, kjms_destination_name, "before")
    theirs = there.createConsumer(there.createTopic(kjms_destination_name))
    ours = here.create_consumer(Topic(kjms_destination_name))
    publish(here, kjms_destination_name, "a")
    there.createProducer(there.createTopic(kjms_destination_name)).send(there.createTextMessage("b"))
    assert texts(theirs, 2) == ["a", "b"]
    received = [ours.receive(10_000) for _ in range(2)]
    assert [message.text for message in received if isinstance(message, TextMessage)] == ["a", "b"]
    assert received[1] is not None
    assert received[1].jms_destination == Topic(kjms_destination_name)


@pytest.mark.requirement("AMQP-8.3-15", "AMQP-8.3-12")
def test_selectors(there: JavaObject, here: Session, kjms_destination_name: str) -> None:
    """A selector of Java decides on properties that Python set, on queues and topics."""
    topic = there.createConsumer(there.createTopic(kjms_destination_name), "word IN ('b', 'c')")
    publish(here, kjms_destination_name, "a", "b", "c", "d")
    assert texts(topic, 2) == ["b", "c"]
    assert topic.receive(SHORT) is None
    producer = here.create_producer(Queue(kjms_destination_name + "-q"))
    for number in range(6):
        message = TextMessage(str(number))
        message.set_int_property("number", number)
        producer.send(message)
    queue = there.createQueue(kjms_destination_name + "-q")
    even = there.createConsumer(queue, "number = 0 OR number = 2 OR number > 3.5 AND number < 5")
    assert texts(even, 3) == ["0", "2", "4"]
    rest = there.createConsumer(queue)
    assert texts(rest, 3) == ["1", "3", "5"]


@pytest.mark.requirement("AMQP-8.3-4")
def test_no_local(connect: Connect, here: Session, kjms_destination_name: str) -> None:
    """With no-local a subscriber leaves out what its own connection publishes, whatever the session."""
    connection = connect()
    session = connection.createSession(False, 1)
    topic = session.createTopic(kjms_destination_name)
    consumer = session.createConsumer(topic, None, True)
    connection.createSession(False, 1).createProducer(topic).send(session.createTextMessage("own"))
    publish(here, kjms_destination_name, "other")
    other = connect().createSession(False, 1)
    other.createProducer(topic).send(other.createTextMessage("another"))
    assert texts(consumer, 2) == ["other", "another"]


def test_browsers(there: JavaObject, here: Session, kjms_destination_name: str) -> None:
    """A browser shows what is in the queue, in order, by its selector, and takes nothing."""
    producer = here.create_producer(Queue(kjms_destination_name))
    for number in range(5):
        message = TextMessage(str(number))
        message.set_int_property("number", number)
        producer.send(message)
    queue = there.createQueue(kjms_destination_name)
    browser = there.createBrowser(queue)
    assert [message.getText() for message in browser.getEnumeration()] == ["0", "1", "2", "3", "4"]
    browser.close()
    chosen = there.createBrowser(queue, "number > 2")
    assert [message.getText() for message in chosen.getEnumeration()] == ["3", "4"]
    chosen.close()
    assert texts(there.createConsumer(queue), 5) == ["0", "1", "2", "3", "4"]
    empty = there.createBrowser(there.createQueue(kjms_destination_name + "-empty"))
    assert empty.getEnumeration() == []


# -------------------------------------------------------------------------------------------------------- durable


@pytest.mark.requirement("AMQP-7.1-1", "AMQP-7.1-4", "AMQP-7.1-5", "AMQP-7.1-6", "AMQP-7.2-1")
def test_a_durable_subscription_keeps_messages(connect: Connect, here: Session, kjms_destination_name: str) -> None:
    """A durable subscription gets what came while it had no subscriber, also after its connection was closed."""
    connection = connect(client_id=f"client-{kjms_destination_name}")
    session = connection.createSession(False, 1)
    topic = session.createTopic(kjms_destination_name)
    subscriber = session.createDurableConsumer(topic, "news")
    publish(here, kjms_destination_name, "a")
    assert texts(subscriber, 1) == ["a"]
    subscriber.close()
    publish(here, kjms_destination_name, "b")
    assert texts(session.createDurableConsumer(topic, "news"), 1) == ["b"]
    connection.close()
    publish(here, kjms_destination_name, "c")
    again = connect(client_id=f"client-{kjms_destination_name}").createSession(False, 1)
    subscriber = again.createDurableConsumer(topic, "news")
    assert texts(subscriber, 1) == ["c"]
    subscriber.close()
    again.unsubscribe("news")


@pytest.mark.requirement("AMQP-7.3-1", "AMQP-7.3-7", "AMQP-7.3-6", "AMQP-8.3-7", "AMQP-8.3-8")
def test_unsubscribe(connect: Connect, here: Session, kjms_destination_name: str) -> None:
    """A subscription that was ended is as if it never was: it kept nothing, and cannot be ended again."""
    session = connect(client_id=f"client-{kjms_destination_name}").createSession(False, 1)
    topic = session.createTopic(kjms_destination_name)
    session.createDurableConsumer(topic, "news").close()
    publish(here, kjms_destination_name, "lost")
    session.unsubscribe("news")
    with pytest.raises(JavaError) as raised:
        session.unsubscribe("news")
    assert raised.value.name == "InvalidDestinationException"
    subscriber = session.createDurableConsumer(topic, "news")
    publish(here, kjms_destination_name, "new")
    assert texts(subscriber, 1) == ["new"]
    subscriber.close()
    session.unsubscribe("news")


@pytest.mark.requirement("AMQP-8.9-7", "AMQP-8.4-8")
def test_a_changed_selector_makes_a_new_subscription(
    connect: Connect, here: Session, kjms_destination_name: str
) -> None:
    """A durable subscription without subscriber is made anew when its selector changes."""
    session = connect(client_id=f"client-{kjms_destination_name}").createSession(False, 1)
    topic = session.createTopic(kjms_destination_name)
    session.createDurableConsumer(topic, "news").close()
    publish(here, kjms_destination_name, "a", "b")
    subscriber = session.createDurableConsumer(topic, "news", "word = 'c'", False)
    publish(here, kjms_destination_name, "b", "c")
    assert texts(subscriber, 1) == ["c"]
    assert subscriber.receive(SHORT) is None
    subscriber.close()
    session.unsubscribe("news")


def test_java_and_python_share_durable_subscriptions(
    connect: Connect, here: Session, kjms_factory: ConnectionFactory, kjms_destination_name: str
) -> None:
    """A durable subscription that a Java program made continues in Python, under the same client id."""
    client_id = f"client-{kjms_destination_name}"
    connection = connect(client_id=client_id)
    session = connection.createSession(False, 1)
    session.createDurableConsumer(session.createTopic(kjms_destination_name), "news").close()
    connection.close()
    publish(here, kjms_destination_name, "a")
    with kjms_factory.create_connection() as ours:
        ours.client_id = client_id
        ours.start()
        with (
            ours.create_session() as mine,
            mine.create_durable_consumer(Topic(kjms_destination_name), "news") as consumer,
        ):
            received = consumer.receive(10_000)
            assert isinstance(received, TextMessage)
            assert received.text == "a"
            consumer.close()
            mine.unsubscribe("news")


# --------------------------------------------------------------------------------------------------------- shared


@pytest.mark.requirement(
    "AMQP-8.1-2", "AMQP-8.1-6", "AMQP-8.1-10", "AMQP-8.2-4", "AMQP-8.5-2", "AMQP-8.6-4", "AMQP-8.6-5"
)
@pytest.mark.parametrize("client_id", [None, "set"])
@pytest.mark.parametrize("kind", ["createSharedConsumer", "createSharedDurableConsumer"])
def test_shared_subscriptions(
    connect: Connect, here: Session, kjms_destination_name: str, kind: str, client_id: str | None
) -> None:
    """Consumers of a shared subscription, of one connection, share its messages: none gets another's."""
    name = f"work-{kjms_destination_name}"  # without a client id it is every test's
    session = connect(client_id=client_id and f"client-{kjms_destination_name}").createSession(False, 1)
    topic = session.createTopic(kjms_destination_name)
    consumers = [getattr(session, kind)(topic, name) for _ in range(2)]
    words = [f"{number:02}" for number in range(60)]
    publish(here, kjms_destination_name, *words)
    received: list[list[str]] = [[], []]
    while sum(map(len, received)) < len(words):
        for consumer, own in zip(consumers, received, strict=True):
            message = consumer.receive(Typed("long", 50))
            if message is not None:
                own.append(message.getText())
    assert sorted(received[0] + received[1]) == words
    assert [bool(own) for own in received] == [True, True]  # the load is spread
    for consumer in consumers:
        consumer.close()
    if kind == "createSharedDurableConsumer":
        publish(here, kjms_destination_name, "kept")
        consumer = getattr(session, kind)(topic, name)
        assert texts(consumer, 1) == ["kept"]
        consumer.close()
        session.unsubscribe(name)
        with pytest.raises(JavaError):
            session.unsubscribe(name)


@pytest.mark.requirement("AMQP-8.1-4", "AMQP-8.1-5", "AMQP-8.2-5", "AMQP-8.2-7", "AMQP-8.9-2")
def test_global_subscriptions_are_shared_by_connections(
    connect: Connect, here: Session, kjms_destination_name: str
) -> None:
    """Without client id any connection has the subscription, Python's too, beside that of a client id of that name."""
    name = f"work-{kjms_destination_name}"
    sessions = [connect().createSession(False, 1) for _ in range(2)]
    topic = sessions[0].createTopic(kjms_destination_name)
    consumers = [session.createSharedDurableConsumer(topic, name) for session in sessions]
    own = connect(client_id=f"client-{kjms_destination_name}").createSession(False, 1)
    apart = own.createSharedDurableConsumer(topic, name)
    with here.create_shared_durable_consumer(Topic(kjms_destination_name), name) as python:
        publish(here, kjms_destination_name, *"abcdef")
        received: list[Any] = []
        while len(received) < 6:
            message = python.receive(50)
            received += [message.text] if isinstance(message, TextMessage) else []
            for consumer in consumers:
                message = consumer.receive(Typed("long", 50))
                received += [message.getText()] if message is not None else []
        assert sorted(received) == list("abcdef")
        assert texts(apart, 6) == list("abcdef")
    for consumer in (*consumers, apart):
        consumer.close()
    sessions[1].unsubscribe(name)
    own.unsubscribe(name)


@pytest.mark.requirement("AMQP-8.9-1", "AMQP-8.6-9")
def test_shared_and_unshared_names(connect: Connect, here: Session, kjms_destination_name: str) -> None:
    """Beside a durable subscription a shared volatile one may have its name, and ends with its last subscriber."""
    session = connect(client_id=f"client-{kjms_destination_name}").createSession(False, 1)
    topic = session.createTopic(kjms_destination_name)
    durable = session.createDurableConsumer(topic, "work")
    volatile = session.createSharedConsumer(topic, "work")
    publish(here, kjms_destination_name, "a")
    assert texts(durable, 1) == texts(volatile, 1) == ["a"]
    volatile.close()
    durable.close()
    publish(here, kjms_destination_name, "b")
    volatile = session.createSharedConsumer(topic, "work")
    assert volatile.receive(SHORT) is None
    assert texts(session.createDurableConsumer(topic, "work"), 1) == ["b"]


# ------------------------------------------------------------------------------------------ temporary destinations


@pytest.mark.requirement("AMQP-5.3-2", "AMQP-5.3-3", "AMQP-3.2.1-13")
def test_request_and_reply_from_java_to_python(
    there: JavaObject, connection: Connection, kjms_destination_name: str
) -> None:
    """A Java program asks with a temporary queue, and a Python program answers there."""
    session = connection.create_session()

    def answer(message: Any) -> None:
        reply = TextMessage(message.text.upper())
        reply.jms_correlation_id = message.jms_message_id
        session.create_producer(message.jms_reply_to).send(reply)

    session.create_consumer(Queue(kjms_destination_name)).message_listener = answer
    own = there.createTemporaryQueue()
    consumer = there.createConsumer(own)
    producer = there.createProducer(there.createQueue(kjms_destination_name))
    for word in ("hello", "again"):
        request = there.createTextMessage(word)
        request.setJMSReplyTo(own)
        producer.send(request)
        reply = consumer.receive(WAIT)
        assert reply.getText() == word.upper()
        assert reply.getJMSCorrelationID() == request.getJMSMessageID()


@pytest.mark.requirement("AMQP-6.2-3", "AMQP-6.2-2")
def test_request_and_reply_from_python_to_java(
    there: JavaObject, here: Session, java: Java, kjms_destination_name: str
) -> None:
    """A Python program asks with a temporary queue, and a Java program answers there, by the anonymous relay."""
    own = here.create_temporary_queue()
    consumer = here.create_consumer(own)
    request = TextMessage("hello")
    request.jms_reply_to = own
    here.create_producer(Queue(kjms_destination_name)).send(request)
    asked = there.createConsumer(there.createQueue(kjms_destination_name)).receive(WAIT)
    assert asked.getJMSReplyTo().class_name == "JmsTemporaryQueue"
    reply = there.createTextMessage("HELLO")
    reply.setJMSCorrelationID(asked.getJMSMessageID())
    there.createProducer(None).send(asked.getJMSReplyTo(), reply)
    answered = consumer.receive(10_000)
    assert isinstance(answered, TextMessage)
    assert (answered.text, answered.jms_correlation_id) == ("HELLO", request.jms_message_id)


@pytest.mark.requirement("AMQP-5.3-1", "AMQP-5.3-9")
@pytest.mark.parametrize("kind", ["Queue", "Topic"])
def test_temporary_destinations_live_with_their_connection(connect: Connect, kind: str) -> None:
    """Deleted, or its connection closed, a temporary destination takes no more messages: its node is gone."""
    connection = connect()
    session = connection.createSession(False, 1)
    own = getattr(session, f"createTemporary{kind}")()
    consumer = session.createConsumer(own)
    other = connect().createSession(False, 1)
    other.createProducer(own).send(other.createTextMessage("x"))
    assert texts(consumer, 1) == ["x"]
    consumer.close()
    own.delete()
    with pytest.raises(JavaError) as raised:
        other.createProducer(own).send(other.createTextMessage("x"))
    assert raised.value.name == "InvalidDestinationException"
    second = getattr(session, f"createTemporary{kind}")()
    session.close()
    other.createProducer(second).send(other.createTextMessage("x"))
    connection.close()
    with pytest.raises(JavaError) as raised:
        other.createProducer(second).send(other.createTextMessage("x"))
    assert raised.value.name == "InvalidDestinationException"
