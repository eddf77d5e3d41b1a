"""JMS 1.1's names: what works with queues alone, what works with topics alone, and what they refuse."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kjms import (
    Connection,
    ConnectionFactory,
    Destination,
    IllegalStateException,
    InvalidClientIDException,
    InvalidDestinationException,
    JMSContext,
    MessageConsumer,
    MessageProducer,
    Queue,
    QueueConnection,
    QueueConnectionFactory,
    QueueReceiver,
    QueueSender,
    QueueSession,
    Session,
    Topic,
    TopicConnection,
    TopicConnectionFactory,
    TopicPublisher,
    TopicSession,
    TopicSubscriber,
)
from tests.helpers import NOTHING_MS, WAIT_MS, text, texts_of


@pytest.fixture
def queue_connection(kafka: Any) -> Iterator[QueueConnection]:
    """A started queue connection."""
    with QueueConnectionFactory(kafka.bootstrap_servers).create_queue_connection() as connection:
        connection.start()
        yield connection


@pytest.fixture
def topic_connection(kafka: Any) -> Iterator[TopicConnection]:
    """A started topic connection with a client id."""
    with TopicConnectionFactory(kafka.bootstrap_servers).create_topic_connection() as connection:
        connection.client_id = f"client-{uuid.uuid4().hex[:12]}"
        connection.start()
        yield connection


@pytest.mark.requirement("JMS-2.5-1", "JAK-Session-35")
def test_each_is_of_the_common_type() -> None:
    """What is made for one domain is what is made for both, and more."""
    for specific, common in {
        QueueConnectionFactory: ConnectionFactory,
        TopicConnectionFactory: ConnectionFactory,
        QueueConnection: Connection,
        TopicConnection: Connection,
        QueueSession: Session,
        TopicSession: Session,
        QueueSender: MessageProducer,
        TopicPublisher: MessageProducer,
        QueueReceiver: MessageConsumer,
        TopicSubscriber: MessageConsumer,
        Queue: Destination,
        Topic: Destination,
    }.items():
        assert issubclass(specific, common)


@pytest.mark.requirement("JMS-5.1-1", "NEV-276")
def test_queues_as_with_the_common_names(
    queue_connection: QueueConnection, kjms_factory: ConnectionFactory, queue: Queue
) -> None:
    """A sender and a receiver, a producer and a consumer, share a queue: its order, its browsing, its redelivery."""
    with kjms_factory.create_connection() as common:
        common.start()
        session = queue_connection.create_queue_session(False, Session.CLIENT_ACKNOWLEDGE)
        assert isinstance(session, QueueSession)
        other = common.create_session(Session.CLIENT_ACKNOWLEDGE)
        sender, producer = session.create_sender(queue), other.create_producer(queue)
        assert isinstance(sender, QueueSender)
        for number in range(3):
            sender.send(session.create_text_message(f"sender {number}"))
            producer.send(other.create_text_message(f"producer {number}"))
        expected = [f"{who} {number}" for number in range(3) for who in ("sender", "producer")]
        for one in (session, other):
            assert texts_of(one.create_browser(queue)) == expected
        with session.create_receiver(queue) as receiver, other.create_consumer(queue) as consumer:
            assert isinstance(receiver, QueueReceiver)
            assert [text(receiver.receive(WAIT_MS)) for _ in range(6)] == expected
            assert consumer.receive(NOTHING_MS) is None
            session.recover()
            message = receiver.receive(WAIT_MS)
            assert message is not None
            assert (text(message), message.get_int_property("JMSXDeliveryCount")) == ("sender 0", 2)
            message.acknowledge()
            session.close()
            again = consumer.receive(WAIT_MS)
            assert again is not None
            assert (text(again), again.get_int_property("JMSXDeliveryCount")) == ("producer 0", 2)


@pytest.mark.requirement("JMS-5.8-2")
def test_a_receiver_leaves_what_its_selector_does_not_want(queue_connection: QueueConnection, queue: Queue) -> None:
    """Messages that a receiver's selector does not match stay on the queue for others."""
    session = queue_connection.create_queue_session()
    with session.create_sender() as sender:
        for number in range(4):
            message = session.create_text_message(str(number))
            message.set_int_property("n", number)
            sender.send(message, queue)
    with session.create_receiver(queue, "n > 1") as receiver:
        assert (receiver.queue, receiver.message_selector) == (queue, "n > 1")
        assert [text(receiver.receive(WAIT_MS)) for _ in range(2)] == ["2", "3"]
        assert receiver.receive(NOTHING_MS) is None
    with session.create_receiver(queue) as receiver:
        assert [text(receiver.receive(WAIT_MS)) for _ in range(2)] == ["0", "1"]
    with pytest.raises(IllegalStateException, match="closed"):
        receiver.queue  # noqa: B018


def test_a_queue_session_can_be_transacted(queue_connection: QueueConnection, queue: Queue) -> None:
    """A queue session's first argument may say that it is transacted, as in JMS 1.1."""
    session = queue_connection.create_queue_session(True, Session.AUTO_ACKNOWLEDGE)
    assert session.transacted
    session.create_sender(queue).send(session.create_text_message("dropped"))
    session.rollback()
    session.create_sender(queue).send(session.create_text_message("kept"))
    session.commit()
    receiver = queue_connection.create_queue_session().create_receiver(queue)
    assert text(receiver.receive(WAIT_MS)) == "kept"


def test_a_sender_and_a_publisher_name_their_destination(
    queue_connection: QueueConnection, topic_connection: TopicConnection, queue: Queue, topic: Topic
) -> None:
    """A sender has a queue, a publisher a topic; or none, and each send names it."""
    queues, topics = queue_connection.create_queue_session(), topic_connection.create_topic_session()
    assert queues.create_sender(queue).queue == queue
    assert topics.create_publisher(topic).topic == topic
    assert queues.create_sender(None).queue is None
    assert topics.create_publisher(None).topic is None
    with pytest.raises(InvalidDestinationException):
        queues.create_sender().send(queues.create_message())
    with pytest.raises(InvalidDestinationException):
        topics.create_publisher().publish(topics.create_message())


@pytest.mark.requirement("JMS-6.1-2", "NEV-287", "JMS-6.11.1-1", "JMS-6.11.1-2")
def test_topics_as_with_the_common_names(
    topic_connection: TopicConnection, kjms_factory: ConnectionFactory, topic: Topic
) -> None:
    """A publisher and a producer reach subscribers and consumers alike, each of which has a subscription of its own."""
    with kjms_factory.create_connection() as common:
        common.start()
        session, other = topic_connection.create_topic_session(), common.create_session()
        assert isinstance(session, TopicSession)
        subscriber, second, consumer, from_session = (
            session.create_subscriber(topic),
            session.create_subscriber(topic, "n = 1", True),
            other.create_consumer(topic),
            session.create_consumer(topic),
        )
        assert type(subscriber) is TopicSubscriber
        assert (subscriber.topic, subscriber.message_selector, subscriber.no_local) == (topic, None, False)
        assert (second.topic, second.message_selector, second.no_local) == (topic, "n = 1", True)
        publisher = session.create_publisher(topic)
        assert isinstance(publisher, TopicPublisher)
        for number in (1, 2):
            for sender, send in ((session, publisher.publish), (other, other.create_producer(topic).send)):
                message = sender.create_text_message(f"{type(sender).__name__} {number}")
                message.set_int_property("n", number)
                send(message)
        expected = [f"{who} {number}" for number in (1, 2) for who in ("TopicSession", "Session")]
        for each in (subscriber, consumer, from_session):
            assert [text(each.receive(WAIT_MS)) for _ in range(4)] == expected
        assert text(second.receive(WAIT_MS)) == "Session 1"
        assert second.receive(NOTHING_MS) is None


def test_a_publisher_says_how(topic_connection: TopicConnection, topic: Topic) -> None:
    """Publish takes a topic, mode, priority and time to live, as send does."""
    session = topic_connection.create_topic_session()
    subscriber = session.create_subscriber(topic)
    session.create_publisher().publish(session.create_message(), topic, 1, 7, 60_000)
    message = subscriber.receive(WAIT_MS)
    assert message is not None
    assert (message.jms_delivery_mode, message.jms_priority) == (1, 7)
    assert message.jms_expiration - message.jms_timestamp == 60_000


@pytest.mark.requirement(
    *["JMS-6.11.4-2", "JMS-6.11.4-3", "JMS-6.11.5-2", "JMS-6.11.5-3", "JMS-6.11.5-4", "JMS-6.11.6-2", "JMS-6.11.6-3"]
)
def test_durable_and_shared_subscriptions_of_a_topic_session(topic_connection: TopicConnection, topic: Topic) -> None:
    """A topic session makes, and ends, the subscriptions that a session does."""
    session = topic_connection.create_topic_session()
    durable = session.create_durable_subscriber(topic, "durable", "n = 1", True)
    assert type(durable) is TopicSubscriber
    consumers = [
        session.create_durable_consumer(topic, "unshared"),
        session.create_shared_consumer(topic, "shared"),
        session.create_shared_durable_consumer(topic, "shared durable"),
    ]
    assert [isinstance(consumer, MessageConsumer) for consumer in consumers] == [True] * 3
    further = [session.create_shared_consumer(topic, "shared"),
               session.create_shared_durable_consumer(topic, "shared durable")]  # fmt: skip
    publisher = session.create_publisher(topic)
    for word in "ab":
        publisher.publish(session.create_text_message(word))
    assert [text(consumers[0].receive(WAIT_MS)) for _ in "ab"] == ["a", "b"]
    for pair in zip(consumers[1:], further, strict=True):
        assert sorted(text(consumer.receive(WAIT_MS)) for consumer in pair) == ["a", "b"]
    for each in (durable, *consumers, *further):
        each.close()
    for name in ("durable", "unshared", "shared durable"):
        session.unsubscribe(name)


@pytest.mark.requirement("JMS-6.9-2")
def test_what_a_topic_session_had_not_acknowledged_comes_again(topic_connection: TopicConnection, topic: Topic) -> None:
    """A durable subscription keeps it past the end of its session, and redelivers it."""
    session = topic_connection.create_topic_session(Session.CLIENT_ACKNOWLEDGE)
    subscriber = session.create_durable_subscriber(topic, "durable")
    session.create_publisher(topic).publish(session.create_text_message("a"))
    assert text(subscriber.receive(WAIT_MS)) == "a"
    session.close()
    session = topic_connection.create_topic_session()
    again = session.create_durable_subscriber(topic, "durable").receive(WAIT_MS)
    assert text(again) == "a"
    assert again is not None
    assert again.jms_redelivered


OF_TOPICS: dict[str, tuple[Callable[[QueueSession, Topic], object], list[str]]] = {
    "create_durable_subscriber": (
        lambda session, topic: session.create_durable_subscriber(topic, "name", None, no_local=True),
        ["JMS-4.11-1", "NEV-268"],
    ),
    "create_durable_consumer": (lambda session, topic: session.create_durable_consumer(topic, "name"), ["JMS-4.11-1"]),
    "create_shared_consumer": (
        lambda session, topic: session.create_shared_consumer(topic, "name", selector="n = 1"),
        ["JMS-4.11-2"],
    ),
    "create_shared_durable_consumer": (
        lambda session, topic: session.create_shared_durable_consumer(topic, "name"),
        ["JMS-4.11-2"],
    ),
    "create_temporary_topic": (
        lambda session, topic: session.create_temporary_topic(),
        ["JMS-4.11-3", "NEV-269"],
    ),
    "create_topic": (lambda session, topic: session.create_topic(topic.topic_name), ["JMS-4.11-3", "NEV-270"]),
    "unsubscribe": (lambda session, topic: session.unsubscribe("name"), ["JMS-4.11-4", "NEV-271"]),
}


@pytest.mark.requirement("NEV-315", "NET-21")
@pytest.mark.parametrize(
    ("name", "call"),
    [pytest.param(name, call, marks=pytest.mark.requirement(*ids)) for name, (call, ids) in OF_TOPICS.items()],
)
def test_a_queue_session_refuses_what_is_of_topics(
    queue_connection: QueueConnection, topic: Topic, name: str, call: Callable[[QueueSession, Topic], object]
) -> None:
    """A method for topics raises IllegalStateException on a queue session, by its name."""
    session = queue_connection.create_queue_session()
    with pytest.raises(IllegalStateException, match=f"^{name}: not in a QueueSession"):
        call(session, topic)
    assert "QueueSession" in (getattr(QueueSession, name).__doc__ or "")


@pytest.mark.requirement("JMS-4.11-5", "JMS-4.11-6", "NEV-272", "NEV-273", "NEV-274", "NEV-315", "NET-21")
def test_a_topic_session_refuses_what_is_of_queues(topic_connection: TopicConnection, queue: Queue) -> None:
    """Methods for queues raise IllegalStateException on a topic session, by their name."""
    session = topic_connection.create_topic_session()
    refused: dict[str, Callable[[], object]] = {
        "create_browser": lambda: session.create_browser(queue, selector="n = 1"),
        "create_queue": lambda: session.create_queue(queue.queue_name),
        "create_temporary_queue": session.create_temporary_queue,
    }
    for name, call in refused.items():
        with pytest.raises(IllegalStateException, match=f"^{name}: not in a TopicSession"):
            call()


def test_a_destination_of_the_other_domain_is_refused(
    queue_connection: QueueConnection, topic_connection: TopicConnection, queue: Queue, topic: Topic
) -> None:
    """A topic in a queue session, or a queue in a topic session, raises InvalidDestinationException."""
    queues, topics = queue_connection.create_queue_session(), topic_connection.create_topic_session()
    message = queues.create_text_message("a")
    for use in (
        queues.create_receiver,
        queues.create_sender,
        queues.create_consumer,
        queues.create_producer,
        queues.create_browser,
        lambda where: queues.create_sender(queue).send(message, where),
    ):
        with pytest.raises(InvalidDestinationException, match=topic.topic_name):
            use(topic)  # type: ignore[operator]
    for use in (
        topics.create_subscriber,
        topics.create_publisher,
        topics.create_consumer,
        topics.create_producer,
        lambda where: topics.create_durable_subscriber(where, "name"),
        lambda where: topics.create_publisher(topic).publish(message, where),
    ):
        with pytest.raises(InvalidDestinationException, match=queue.queue_name):
            use(queue)  # type: ignore[operator]


def test_the_connections_are_connections(kafka: Any, queue: Queue) -> None:
    """A factory for one domain makes common connections and contexts, too, and its connections common sessions."""
    for factory_class in (QueueConnectionFactory, TopicConnectionFactory):
        factory = factory_class(kafka.bootstrap_servers)
        with factory.create_connection() as connection:
            assert type(connection) is Connection
        with factory.create_context() as context:
            assert type(context) is JMSContext
    with QueueConnectionFactory(kafka.bootstrap_servers).create_queue_connection() as connection:
        assert type(connection.create_session()) is Session
        assert repr(connection).startswith("<Connection ")
        session = connection.create_queue_session()
        assert repr(session).startswith("<QueueSession ")
        with pytest.raises(IllegalStateException, match="before anything else"):
            connection.client_id = "late"
        with pytest.raises(ValueError, match="acknowledge mode"):
            connection.create_queue_session(7)
    for use in (connection.create_queue_session, lambda: session.create_receiver(queue), session.create_sender):
        with pytest.raises(IllegalStateException, match="closed"):
            use()


def test_a_client_id_is_one_connections(kafka: Any) -> None:
    """A factory's client id is that of its queue and topic connections, one at a time."""
    client_id = f"client-{uuid.uuid4().hex[:12]}"
    queues = QueueConnectionFactory(kafka.bootstrap_servers, client_id=client_id)
    topics = TopicConnectionFactory(kafka.bootstrap_servers, client_id=client_id)
    with queues.create_queue_connection() as connection:
        assert connection.client_id == client_id
        with pytest.raises(InvalidClientIDException):
            topics.create_topic_connection()
    topics.create_topic_connection().close()
