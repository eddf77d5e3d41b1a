"""Requestors: a request, and its reply on a temporary destination."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from kjms import (
    Connection,
    Destination,
    IllegalStateException,
    InvalidDestinationException,
    Message,
    Queue,
    QueueBrowser,
    QueueConnectionFactory,
    QueueReceiver,
    QueueRequestor,
    QueueSender,
    QueueSession,
    Session,
    TemporaryQueue,
    TemporaryTopic,
    TextMessage,
    Topic,
    TopicConnectionFactory,
    TopicPublisher,
    TopicRequestor,
    TopicSession,
    TopicSubscriber,
)
from tests.helpers import NOTHING_MS, WAIT_MS, text

Requests = list[Message]


class Service:
    """Answers each request with its text in capitals, as often as it says; keeps those that it is to keep."""

    def __init__(self, connection: Connection, destination: Destination) -> None:
        self.session = connection.create_session()
        self.producer = self.session.create_producer()
        self.kept: Requests = []
        self.heard = threading.Event()
        self.session.create_consumer(destination).message_listener = self.serve

    def serve(self, message: Message) -> None:
        assert isinstance(message, TextMessage)
        if message.text == "keep":
            self.kept.append(message)
            self.heard.set()
        else:
            self.reply(message)

    def reply(self, message: Message) -> None:
        assert isinstance(message, TextMessage)
        assert message.text is not None
        self.producer.send(self.session.create_text_message(message.text.upper()), message.jms_reply_to)


@pytest.fixture
def queue_session(kafka: Any) -> Iterator[QueueSession]:
    with QueueConnectionFactory(kafka.bootstrap_servers).create_queue_connection() as connection:
        connection.start()
        yield connection.create_queue_session()


@pytest.fixture
def topic_session(kafka: Any) -> Iterator[TopicSession]:
    with TopicConnectionFactory(kafka.bootstrap_servers).create_topic_connection() as connection:
        connection.start()
        yield connection.create_topic_session()


@pytest.mark.requirement(
    *["JMS-5.10-1", "JMS-5.10-2", "NEV-284", "NEV-285", "NEV-286", "NET-319"],
)
def test_a_queue_requestor(connection: Connection, queue_session: Session, queue: Queue) -> None:
    """It sends each request with a temporary queue in JMSReplyTo and returns what is sent there."""
    Service(connection, queue)
    with QueueRequestor(queue_session, queue) as requestor:
        request = queue_session.create_text_message("one")
        assert text(requestor.request(request)) == "ONE"
        assert isinstance(request.jms_reply_to, TemporaryQueue)
        assert text(requestor.request(queue_session.create_text_message("two"), WAIT_MS)) == "TWO"


@pytest.mark.requirement(
    *["JMS-6.14-1", "JMS-6.14-2", "NEV-310", "NEV-311", "NEV-312"],
)
def test_a_topic_requestor(connection: Connection, topic_session: Session, topic: Topic) -> None:
    """It publishes each request with a temporary topic in JMSReplyTo and returns the first reply."""
    Service(connection, topic)
    with TopicRequestor(topic_session, topic) as requestor:
        request = topic_session.create_text_message("one")
        assert text(requestor.request(request)) == "ONE"
        assert isinstance(request.jms_reply_to, TemporaryTopic)


@pytest.mark.requirement("JMS-5.10-2", "NEV-286")
def test_a_late_reply_is_nobodys(connection: Connection, session: Session, queue: Queue) -> None:
    """A request that is not answered in time gives None; its reply, which cannot be sent any more, is no other's."""
    service = Service(connection, queue)
    with QueueRequestor(session, queue) as requestor:
        assert requestor.request(session.create_text_message("keep"), NOTHING_MS) is None
        assert service.heard.wait(20)
        with pytest.raises(InvalidDestinationException, match="deleted"):
            service.reply(service.kept[0])
        assert text(requestor.request(session.create_text_message("next"))) == "NEXT"


def test_closing(connection: Connection, queue: Queue) -> None:
    """Closing a requestor closes its session and deletes its reply queue; a request that waits returns None."""
    session = connection.create_session()
    service = Service(connection, queue)
    requestor = QueueRequestor(session, queue)
    answers: list[Message | None] = []
    thread = threading.Thread(target=lambda: answers.append(requestor.request(TextMessage("keep"))))
    thread.start()
    assert service.heard.wait(20)
    requestor.close()
    requestor.close()
    thread.join(20)
    assert answers == [None]
    with pytest.raises(InvalidDestinationException, match="deleted"):
        service.reply(service.kept[0])
    with pytest.raises(IllegalStateException):
        session.create_message()
    with pytest.raises(IllegalStateException):
        requestor.request(TextMessage("too late"))


def test_a_request_with_a_wrong_time_is_not_sent(session: Session, queue: Queue) -> None:
    """A negative time is refused before the request goes out; less than a millisecond is one, and not unlimited."""
    with QueueRequestor(session, queue) as requestor:
        with pytest.raises(ValueError, match="timeout must not be negative"):
            requestor.request(TextMessage("refused"), timedelta(microseconds=-1))
        assert requestor.request(TextMessage("sent"), timedelta(microseconds=1)) is None
        consumer = session.create_consumer(queue)
        assert text(consumer.receive(WAIT_MS)) == "sent"


def test_what_is_refused(connection: Connection, session: Session, queue: Queue, topic: Topic) -> None:
    """A transacted session, and the other kind of destination."""
    with pytest.raises(IllegalStateException, match="transacted"):
        QueueRequestor(connection.create_session(Session.SESSION_TRANSACTED), queue)
    with pytest.raises(InvalidDestinationException):
        QueueRequestor(session, topic)  # type: ignore[arg-type]
    with pytest.raises(InvalidDestinationException):
        TopicRequestor(session, None)  # type: ignore[arg-type]


@pytest.mark.requirement("JMS-2.5-2")
def test_what_a_queue_session_makes(queue_session: QueueSession, queue: Queue) -> None:
    """The classes for queues lead from one to the next."""
    assert isinstance(queue_session, QueueSession)
    assert isinstance(queue_session.create_sender(queue), QueueSender)
    assert isinstance(queue_session.create_receiver(queue), QueueReceiver)
    assert isinstance(queue_session.create_browser(queue), QueueBrowser)
    assert isinstance(queue_session.create_temporary_queue(), TemporaryQueue)


@pytest.mark.requirement("JMS-2.5-3")
def test_what_a_topic_session_makes(topic_session: TopicSession, topic: Topic) -> None:
    """The classes for topics lead from one to the next."""
    assert isinstance(topic_session, TopicSession)
    assert isinstance(topic_session.create_publisher(topic), TopicPublisher)
    assert isinstance(topic_session.create_subscriber(topic), TopicSubscriber)
    assert isinstance(topic_session.create_temporary_topic(), TemporaryTopic)
