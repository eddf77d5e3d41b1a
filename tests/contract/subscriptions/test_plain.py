"""Topics and subscriptions without a name."""

from __future__ import annotations

from typing import Any

import pytest

from kjms import DeliveryMode, Session, Topic
from tests.helpers import Eventually


@pytest.mark.requirement("JAK-createTopic-1", "JAK-createTopic-2", "JMS-6.5-1", "NET-411", "NET-412")
def test_a_topic_is_a_name_and_makes_nothing(desk: Any, admin: Any) -> None:
    """create_topic wraps the name, makes no Kafka topic, and gives what consumers and producers take."""
    session = desk.session()
    topic = session.create_topic(desk.topic.topic_name)
    assert topic == desk.topic
    assert topic.topic_name == desk.topic.topic_name
    assert topic.topic_name not in admin.list_topics(timeout=20).topics
    consumer = session.create_consumer(topic)
    session.create_producer(topic).send(session.create_text_message("1"))
    assert desk.receive(consumer) == ["1"]


@pytest.mark.requirement("JMS-6.11.1-5", "JMS-B.2.1-1", "JMS-6.1-1")
def test_overlapping_subscriptions_of_one_session_each_get_a_copy(desk: Any) -> None:
    """What two subscribers of a session both select both get; what a selector leaves out is not in its subscription."""
    session = desk.session()
    odd, small = session.create_consumer(desk.topic, "n <> 2"), session.create_consumer(desk.topic, "n < 3")
    desk.send("1", "22", "333", "4")
    assert desk.receive(odd, 3) == ["1", "333", "4"]
    assert desk.receive(small, 3) == ["1", "22", "4"]
    odd.close()  # subscribers go, and publishers: the others do not notice
    with desk.connect() as connection:
        desk.send("5", session=connection.create_session())
    assert desk.receive(small) == ["5"]


@pytest.mark.requirement("JMS-4.4.9-1", "NEV-223")
def test_one_that_falls_behind_holds_nobody_up(desk: Any) -> None:
    """A subscriber takes a thousand messages while another has taken one and a third none."""
    slow, stuck = (desk.session().create_consumer(desk.topic) for _ in range(2))
    durable = desk.session(desk.client).create_durable_consumer(desk.topic, "daily")
    fast = desk.session().create_consumer(desk.topic)
    texts = [str(number) for number in range(1500)]
    sender = desk.session()
    with sender.create_producer(desk.topic) as producer:
        producer.delivery_mode = DeliveryMode.NON_PERSISTENT
        for text in texts:
            producer.send(sender.create_text_message(text))
    assert desk.receive(slow) == ["0"]
    assert desk.receive(fast, 1500) == texts
    assert desk.receive(durable, 1500) == texts
    assert desk.receive(stuck) == ["0"]


@pytest.mark.requirement("JMS-6.15-1", "JMS-6.15-2")
@pytest.mark.parametrize("mode", list(DeliveryMode))
def test_each_message_comes_once(mode: DeliveryMode, desk: Any) -> None:
    """In either delivery mode a durable and a non-durable subscriber get a message once, the latter while it lives."""
    session = desk.session(desk.client)
    producer = session.create_producer(desk.topic)
    producer.delivery_mode = mode
    durable, plain = session.create_durable_consumer(desk.topic, "daily"), session.create_consumer(desk.topic)
    producer.send(session.create_text_message("1"))
    assert desk.receive(durable) == desk.receive(plain) == ["1"]
    durable.close()
    plain.close()
    producer.send(session.create_text_message("2"))
    producer.close()  # after it was sent
    durable, plain = session.create_durable_consumer(desk.topic, "daily"), session.create_consumer(desk.topic)
    desk.send("3")
    assert desk.receive(durable, 2) == ["2", "3"]
    assert desk.receive(plain) == ["3"]


@pytest.mark.requirement("JMS-6.12-1")
def test_what_a_plain_subscriber_did_not_acknowledge_comes_again(desk: Any) -> None:
    """recover() brings back the messages of a non-durable subscription, marked."""
    session = desk.session(mode=Session.CLIENT_ACKNOWLEDGE)
    plain, shared = (Topic(f"{desk.topic.topic_name}-{number}") for number in range(2))
    for topic, consumer in (
        (plain, session.create_consumer(plain)),
        (shared, session.create_shared_consumer(shared, desk.client)),
    ):
        desk.send("1", "2", topic=topic)
        assert desk.receive(consumer, 2) == ["1", "2"]
        session.recover()
        again = [consumer.receive(20_000) for _ in range(2)]
        assert [(message.text, message.jms_redelivered) for message in again] == [("1", True), ("2", True)]


def test_a_stopped_subscriber_misses_nothing(desk: Any) -> None:
    """What comes while the connection is stopped, or was ready when it stopped, is delivered when it starts again."""
    connection = desk.connect()
    consumer = connection.create_session().create_consumer(desk.topic)
    desk.send("1", "2")
    assert desk.receive(consumer) == ["1"]
    connection.stop()
    desk.send("3")
    connection.start()
    assert desk.receive(consumer, 2) == ["2", "3"]


def test_a_listener_hears_a_durable_subscription(desk: Any, eventually: Eventually) -> None:
    """Listeners get messages of named subscriptions as of others, and what they have had does not come again."""
    heard: list[str] = []
    connection = desk.connect(desk.client)
    session = connection.create_session()
    session.create_durable_consumer(desk.topic, "daily").message_listener = lambda m: heard.append(m.text)
    session.create_shared_consumer(desk.topic, "daily").message_listener = lambda m: heard.append(m.text)
    desk.send("1", "2")
    eventually(lambda: len(heard) == 4)
    assert sorted(heard) == ["1", "1", "2", "2"]
    session.close()
    desk.send("3")
    assert desk.receive(connection.create_session().create_durable_consumer(desk.topic, "daily")) == ["3"]
