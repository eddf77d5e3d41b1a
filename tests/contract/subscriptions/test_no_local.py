"""Leaving out one's own messages."""

from __future__ import annotations

from typing import Any

import pytest

from kjms import Queue, Session


@pytest.mark.requirement(
    *["JAK-createConsumer-9", "JAK-createConsumer-10", "JAK-createConsumer-11", "JMS-6.11.1-6", "NEV-297"]
)
@pytest.mark.parametrize("client", [False, True])
@pytest.mark.parametrize("with_ids", [False, True])
def test_a_consumer_leaves_out_its_connections_messages(client: bool, with_ids: bool, desk: Any) -> None:
    """With no_local a consumer of a topic gets what other connections send, whatever a message carries."""
    connection = desk.connect(desk.client if client else None)
    session = connection.create_session()
    deaf = session.create_consumer(desk.topic, "n > 0", no_local=True)
    hears = session.create_consumer(desk.topic)
    sender = connection.create_session()
    producer = sender.create_producer(desk.topic)
    producer.disable_message_id = not with_ids
    for text in ("own", "too"):
        message = sender.create_text_message(text)
        message.set_int_property("n", 1)
        producer.send(message)
    desk.send("other", "")
    assert desk.receive(deaf) == ["other"]
    assert desk.receive(hears, 3) == ["own", "too", "other"]
    assert deaf.message_selector == "n > 0"


@pytest.mark.requirement("JAK-createConsumer-9", "JAK-createConsumer-12")
def test_it_means_nothing_for_a_queue(desk: Any, queue: Queue) -> None:
    """On a queue no_local changes nothing."""
    session = desk.session()
    consumer = session.create_consumer(queue, None, True)
    session.create_producer(queue).send(session.create_text_message("own"))
    assert desk.receive(consumer) == ["own"]


@pytest.mark.requirement(
    *[f"JAK-createDurable{kind}-{n}" for kind in ("Consumer", "Subscriber") for n in (27, 28)],
    *["JMS-6.11.5-13", "JMS-6.11.6-12", "JMS-6.11.4-10"],
)
@pytest.mark.parametrize(
    "kind",
    [
        *["create_durable_consumer", "create_durable_subscriber"],
        *["create_shared_durable_consumer", "create_shared_consumer"],
    ],
)
def test_a_subscription_leaves_out_its_clients_messages(kind: str, desk: Any) -> None:
    """What connections with the subscription's client identifier send is not in it, whenever they lived."""
    with desk.connect(desk.client) as connection:
        session = connection.create_session()
        consumer = getattr(session, kind)(desk.topic, "daily", None, True)
        desk.send("own", session=session)
        desk.send("1")
        assert desk.receive(consumer) == ["1"]
    if kind == "create_shared_consumer":
        return
    with desk.connect(desk.client) as connection:
        desk.send("own, of a later connection", session=connection.create_session())
    desk.send("2", session=desk.session(desk.client + "-2"))
    assert desk.receive(getattr(desk.session(desk.client), kind)(desk.topic, "daily", None, True)) == ["2"]


def test_the_senders_mark_is_no_property(desk: Any) -> None:
    """The properties of a message do not show its sender, and forwarding it does not keep the sender's mark."""
    session = desk.session(desk.client)
    consumer = desk.session().create_consumer(desk.topic)
    desk.send("x", session=session)
    message = consumer.receive(20_000)
    assert sorted(message.property_names()) == ["JMSXDeliveryCount", "n"]
    assert message.damage == ()
    deaf = session.create_consumer(desk.topic, no_local=True)
    other: Session = desk.session()
    other.create_producer(desk.topic).send(message)
    assert desk.receive(deaf) == ["x"]
