"""Temporary topics."""

from __future__ import annotations

import gc

import pytest

from kjms import (
    Connection,
    ConnectionFactory,
    InvalidDestinationException,
    JMSException,
    Session,
    TemporaryTopic,
)
from tests.helpers import NOTHING_MS, Eventually, is_gone, send, texts


@pytest.mark.requirement("JMS-4.4.3-1", "JMS-4.4.3-2", "JAK-createTemporaryTopic-2")
def test_it_belongs_to_the_connection(connection: Connection) -> None:
    """It outlives its session; each consumer of its connection gets what is sent after the consumer was made."""
    maker = connection.create_session()
    topic, other = maker.create_temporary_topic(), maker.create_temporary_topic()
    assert isinstance(topic, TemporaryTopic)
    assert topic != other
    maker.close()
    sender = connection.create_session()
    send(sender, topic, "for nobody")
    first = connection.create_session().create_consumer(topic)
    send(sender, topic, "one")
    second = connection.create_session().create_consumer(topic)
    send(sender, other, "elsewhere")
    send(sender, topic, "two")
    assert texts(first, 2) == ["one", "two"]
    assert texts(second, 1) == ["two"]
    assert second.receive(NOTHING_MS) is None


@pytest.mark.requirement("JMS-4.4.3-3", "NEV-206", "NEV-293")
def test_only_its_own_connection_receives_from_it(kjms_factory: ConnectionFactory, session: Session) -> None:
    """Another connection cannot consume, but publish."""
    topic = session.create_temporary_topic()
    consumer = session.create_consumer(topic)
    with kjms_factory.create_connection() as other:
        foreign = other.create_session()
        with pytest.raises(InvalidDestinationException, match=r"another connection.*4\.4\.3"):
            foreign.create_consumer(topic)
        send(foreign, topic, "hello")
    assert texts(consumer, 1) == ["hello"]


@pytest.mark.requirement("JMS-4.4.3-8", "NEV-208")
def test_it_ends_with_its_object(session: Session, eventually: Eventually) -> None:
    """What the program has lost is deleted, but not while a consumer of it is open."""
    topic = session.create_temporary_topic()
    name = TemporaryTopic(topic.topic_name)
    consumer = session.create_consumer(name)
    del topic
    gc.collect()
    send(session, name, "still there")
    assert texts(consumer, 1) == ["still there"]
    consumer.close()
    eventually(lambda: is_gone(session, name))


@pytest.mark.requirement(
    *["JMS-6.6-1", "NEV-294", "JAK-createDurableConsumer-20", "JAK-createDurableSubscriber-20"],
    *["JAK-createSharedDurableConsumer-18"],
)
def test_no_durable_subscription(kjms_factory: ConnectionFactory, kjms_destination_name: str) -> None:
    """Whatever lasts is refused on a temporary topic."""
    with kjms_factory.create_connection() as connection:
        connection.client_id = kjms_destination_name
        session = connection.create_session()
        topic = session.create_temporary_topic()
        for subscribe in (
            session.create_durable_consumer,
            session.create_durable_subscriber,
            session.create_shared_durable_consumer,
        ):
            with pytest.raises(InvalidDestinationException, match="temporary"):
                subscribe(topic, "daily")


@pytest.mark.requirement("JAK-createSharedConsumer-5", "JAK-createSharedConsumer-7", "JAK-createSharedConsumer-12")
def test_a_shared_subscription(connection: Connection) -> None:
    """Its consumers share the messages; while one is open, its topic and selector stay; it ends with the last one."""
    session = connection.create_session()
    topic, other = session.create_temporary_topic(), session.create_temporary_topic()
    first = session.create_shared_consumer(topic, "team")
    second = session.create_shared_consumer(topic, "team")
    alone = session.create_consumer(topic)
    for wrong in ((other, "team"), (topic, "team", "n = 1")):
        with pytest.raises(JMSException, match="cannot change"):
            session.create_shared_consumer(*wrong)
    send(session, topic, "one", "two")
    assert texts(alone, 2) == ["one", "two"]
    assert [*texts(first, 1), *texts(second, 1)] == ["one", "two"]
    first.close()
    second.close()
    send(session, topic, "for nobody")
    assert session.create_shared_consumer(topic, "team", "n = 1").receive(NOTHING_MS) is None


def test_no_local(kjms_factory: ConnectionFactory, connection: Connection) -> None:
    """A consumer with no_local gets what other connections send alone."""
    session = connection.create_session()
    topic = session.create_temporary_topic()
    consumer = session.create_consumer(topic, None, True)
    send(session, topic, "own")
    with kjms_factory.create_connection() as other:
        send(other.create_session(), topic, "theirs")
    assert texts(consumer, 1) == ["theirs"]


def test_a_stopped_consumer_misses_nothing(kjms_factory: ConnectionFactory) -> None:
    """What is sent while the connection is stopped waits for its start."""
    with kjms_factory.create_connection() as connection:
        session = connection.create_session()
        topic = session.create_temporary_topic()
        consumer = session.create_consumer(topic, "JMSPriority = 5")
        with session.create_producer(topic) as producer:
            for priority in (4, 5):
                producer.send(session.create_text_message(f"{priority}"), priority=priority)
        connection.start()
        assert texts(consumer, 1) == ["5"]


def test_rollback(connection: Connection) -> None:
    """What was received in a transaction that is rolled back comes again."""
    session = connection.create_session(Session.SESSION_TRANSACTED)
    topic = session.create_temporary_topic()
    consumer = session.create_consumer(topic)
    send(connection.create_session(), topic, "1", "2")
    assert texts(consumer, 2) == ["1", "2"]
    session.rollback()
    assert texts(consumer, 2) == ["1", "2"]
    session.commit()
