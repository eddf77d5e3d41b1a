"""How a subscription comes to be, step by step, and what may come in between: on a real Kafka."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions

from kjms import Connection, ConnectionFactory, IllegalStateException, JMSException, Topic
from kjms.broker import LocalBroker
from kjms.engine.admin.claims import DEFINITION
from kjms.engine.subscriptions.definitions import Identity, Terms
from kjms.testing.engine import engine_of
from tests.helpers import WAIT_SECONDS, TopicDesk, wait_for


@pytest.fixture
def desk(kjms_factory: ConnectionFactory, topic: Topic) -> Iterator[TopicDesk]:
    """Connections that end with the test, and its topic."""
    with contextlib.ExitStack() as stack:
        yield TopicDesk(kjms_factory, topic, stack)


def test_a_maker_that_was_killed_half_way_leaves_a_whole_subscription(desk: Any) -> None:
    """The definition has the start: the next process commits what its creator did not."""
    desk.send("before", "1")
    connection: Connection = desk.connect(desk.client)
    identity = Identity("durable", desk.client, "daily")
    terms = Terms(desk.topic, desk.topic.topic_name, None, False, False)
    registry = engine_of(connection).registry
    with registry.locked(identity.resource):
        registry.put(DEFINITION, {"resource": identity.resource, **terms.written(), "starts": [1]})
    consumer = connection.create_session().create_durable_consumer(desk.topic, "daily")
    assert desk.receive(consumer) == ["1"]


def test_offsets_that_kafka_forgot_repeat_messages_and_lose_none(desk: Any) -> None:
    """A subscription whose group Kafka has forgotten begins again where it was created."""
    session = desk.session(desk.client)
    desk.send("before")
    consumer = session.create_durable_consumer(desk.topic, "daily")
    desk.send("1")
    assert desk.receive(consumer) == ["1"]
    consumer.close()
    engine = engine_of(session)
    (group,) = (found.group for found in engine.subscriptions.find() if found.identity.client_id == desk.client)
    engine.topics.admin.delete_consumer_groups([group])[group].result()
    desk.send("2")
    assert desk.receive(session.create_durable_consumer(desk.topic, "daily"), 2) == ["1", "2"]


def test_who_consumes_what_another_has_ended_is_told(
    desk: Any, kjms_broker: Any, eventually: Callable[[Callable[[], object]], None]
) -> None:
    """A consumer whose subscription's definition is gone is closed, and its exception listener gets that."""
    connection = desk.connect(desk.client)
    told: list[JMSException] = []
    connection.exception_listener = told.append
    consumer = connection.create_session().create_durable_consumer(desk.topic, "daily")
    other = ConnectionFactory(kjms_broker.bootstrap_servers, send_timeout=20_000)
    with other.create_connection() as ender:
        registry = engine_of(ender).registry
        of = Identity("durable", desk.client, "daily").resource
        with registry.locked(of) as claims:
            registry.take_away([claim.key for claim in claims.all(DEFINITION, of)])
    eventually(lambda: told)
    assert "durable subscription 'daily'" in str(told[0])
    with pytest.raises(IllegalStateException, match="closed"):
        consumer.receive()
    again = connection.create_session().create_durable_consumer(desk.topic, "daily")
    desk.send("1")
    assert desk.receive(again) == ["1"]


def test_an_open_transaction_is_not_missed(desk: Any, kjms_broker: Any) -> None:
    """What a transaction has written when the subscription is made, and commits afterwards, is in it."""
    desk.send("before")
    producer = Producer(
        {"bootstrap.servers": kjms_broker.bootstrap_servers, "transactional.id": desk.client, "linger.ms": 0}
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(desk.topic.topic_name, b"open")
    producer.flush()
    consumer = desk.session(desk.client).create_durable_consumer(desk.topic, "daily")
    producer.commit_transaction()
    desk.send("after")
    assert desk.receive(consumer, 2) == ["open", "after"]


def test_partitions_that_the_topic_is_given_later_are_read_from_their_start(desk: Any, kjms_broker: Any) -> None:
    """Nothing that is sent to a new partition before a consumer knows of it is missed."""
    session = desk.session(desk.client)
    session.create_durable_consumer(desk.topic, "daily").close()
    admin = engine_of(session).topics.admin
    name = desk.topic.topic_name
    admin.create_partitions([NewPartitions(name, 2)])[name].result()
    producer = Producer({"bootstrap.servers": kjms_broker.bootstrap_servers})
    wait_for(lambda: len(producer.list_topics(name, WAIT_SECONDS).topics[name].partitions) == 2)
    failed: list[Any] = []
    producer.produce(name, b"new", None, 1, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(WAIT_SECONDS) == 0
    assert failed == [None]
    assert desk.receive(session.create_durable_consumer(desk.topic, "daily")) == ["new"]


@pytest.mark.requirement("JMS-6.11.1-3", "JMS-6.11.1-4", "NEV-289", "NEV-296", "JAK-createSharedConsumer-6")
def test_what_is_not_durable_leaves_no_record(desk: Any) -> None:
    """Each plain consumer of a topic is a subscription of its own, and when it closes nothing is left of it."""
    session = desk.session()
    first, second = session.create_consumer(desk.topic), session.create_consumer(desk.topic)
    shared = session.create_shared_consumer(desk.topic, desk.client)
    desk.send("1")
    assert [desk.receive(consumer) for consumer in (first, second, shared)] == [["1"]] * 3
    for consumer in (first, second, shared):
        consumer.close()
    desk.send("2")
    third = session.create_consumer(desk.topic)
    desk.send("3")
    assert desk.receive(third) == ["3"]
    engine = engine_of(session)
    assert desk.topic not in [found.terms.destination for found in engine.subscriptions.find()]
    groups = [entry.group_id for entry in engine.topics.admin.list_consumer_groups().result().valid]
    assert [group for group in groups if desk.topic.topic_name in group] == []


@pytest.mark.slow
@pytest.mark.requirement(
    *["JAK-createSharedConsumer-17", "JAK-createSharedDurableConsumer-20"],
    *["JAK-createDurableConsumer-22", "JAK-createDurableSubscriber-22", "JAK-unsubscribe-9"],
)
def test_without_kafka_there_is_a_jms_exception(breakable_broker: LocalBroker) -> None:
    """When Kafka is gone, creating a consumer on a subscription and unsubscribing say so, and closing ends."""
    topic = Topic("gone")
    factory = ConnectionFactory(breakable_broker.bootstrap_servers, client_id="client", send_timeout=700)
    with factory.create_connection() as connection:
        session = connection.create_session()
        session.create_producer(topic)
        breakable_broker.kill()
        for create in (
            session.create_durable_consumer,
            session.create_durable_subscriber,
            session.create_shared_consumer,
            session.create_shared_durable_consumer,
        ):
            with pytest.raises(JMSException):
                create(topic, "daily")
        with pytest.raises(JMSException):
            session.unsubscribe("daily")
