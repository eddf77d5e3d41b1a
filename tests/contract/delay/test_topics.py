"""Delayed messages to topics: which subscriptions get them (JMS 2.0 §4.12, A.3.1)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from kjms import Message, MessageConsumer, Session, TextMessage, Topic
from tests.helpers import NOTHING_MS, WAIT_MS

DELAY = 700


def texts(consumer: MessageConsumer) -> list[str | None]:
    """Return the texts of what comes up to the message "end"."""
    found: list[str | None] = []
    while not found or found[-1] != "end":
        message: Message | None = consumer.receive(WAIT_MS)
        assert isinstance(message, TextMessage)
        found.append(message.text)
    return found[:-1]


@pytest.fixture
def session(desk: Any) -> Iterator[Session]:
    """A session that can have durable subscriptions."""
    connection = desk.connect(client_id=f"client-{uuid.uuid4().hex[:12]}")
    with connection.create_session() as session:
        yield session


def consumer_of(session: Session, topic: Topic, kind: str, name: str) -> MessageConsumer:
    if kind == "plain":
        return session.create_consumer(topic)
    return getattr(session, f"create_{kind}_consumer")(topic, name)  # type: ignore[no-any-return]


@pytest.mark.requirement("JMS-4.12-2", "JMS-A.3.1-1")
@pytest.mark.parametrize("kind", ["plain", "durable", "shared", "shared_durable"])
def test_a_subscription_gets_what_was_sent_while_it_was_there(
    desk: Any, session: Session, topic: Topic, kind: str
) -> None:
    """A delayed message reaches the subscriptions that were there when it was sent, and no later one."""
    early = consumer_of(session, topic, kind, "early")
    desk.send(topic, "both or one", delivery_delay=DELAY)
    late = consumer_of(session, topic, kind, "late")
    desk.send(topic, "at once")
    desk.send(topic, "both", delivery_delay=DELAY)
    desk.send(topic, "end", delivery_delay=DELAY + 200)
    # A busy machine may take longer than the delay to send the next one.
    assert sorted(texts(late)) == ["at once", "both"]
    assert sorted(texts(early)) == ["at once", "both", "both or one"]


@pytest.mark.requirement("JMS-4.12-2", "JMS-A.3.1-1")
def test_a_subscription_that_was_made_anew_is_another_one(desk: Any, session: Session, topic: Topic) -> None:
    """What was sent while the subscription was there before it ended, and is due after, never reaches the next one."""
    session.create_durable_consumer(topic, "news").close()
    desk.send(topic, "old", delivery_delay=DELAY)
    session.unsubscribe("news")
    consumer = session.create_durable_consumer(topic, "news")
    desk.send(topic, "new", delivery_delay=DELAY)
    desk.send(topic, "end", delivery_delay=DELAY + 200)
    assert texts(consumer) == ["new"]


@pytest.mark.requirement("JMS-4.12-2", "JMS-3.4.13-5")
def test_a_durable_subscription_without_consumer_keeps_what_becomes_due(
    desk: Any, session: Session, topic: Topic
) -> None:
    """A message that becomes due while a durable subscription has no consumer waits for the next one."""
    session.create_durable_consumer(topic, "news").close()
    desk.send(topic, "kept", delivery_delay=50)
    desk.send(topic, "end", delivery_delay=150)
    assert texts(session.create_durable_consumer(topic, "news")) == ["kept"]


@pytest.mark.requirement("JMS-4.12-2")
def test_a_selector_and_no_local_hold_for_delayed_messages(desk: Any, session: Session, topic: Topic) -> None:
    """A subscription's selector, and its wish not to have its own client's messages, hold when they are due."""
    choosy = session.create_consumer(topic, "n > 1")
    others = session.create_consumer(topic, None, True)
    desk.send(topic, "own", by=session, properties={"n": 2}, delivery_delay=50)
    desk.send(topic, "one", properties={"n": 1}, delivery_delay=50)
    desk.send(topic, "two", properties={"n": 2}, delivery_delay=100)
    desk.send(topic, "end", properties={"n": 2}, delivery_delay=200)
    assert texts(choosy) == ["own", "two"]
    assert texts(others) == ["one", "two"]


@pytest.mark.requirement("JMS-4.12-2")
def test_partitions_are_told_apart(desk: Any, topic: Topic) -> None:
    """With several partitions, too, exactly what was sent since the subscription was made reaches it."""
    options = {"partitions": 3, "ordering": "none", "is_apart": True}
    connection = desk.connect(**options)
    sender, session = connection.create_session(), connection.create_session()
    early = session.create_consumer(topic)
    before = [f"before {number}" for number in range(20)]
    after = [f"after {number}" for number in range(20)]
    desk.send(topic, *before, by=sender, delivery_delay=DELAY)
    late = session.create_consumer(topic)
    desk.send(topic, *after, by=sender, delivery_delay=DELAY)
    got = {late.receive(WAIT_MS).text for _ in after}
    assert got == set(after)
    assert {early.receive(WAIT_MS).text for _ in (*before, *after)} == {*before, *after}
    assert late.receive(NOTHING_MS) is None
