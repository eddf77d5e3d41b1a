"""Shared subscriptions, durable and not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kjms import IllegalStateException, JMSException, MessageConsumer, Topic
from tests.helpers import wait_past

DURABLE, NON_DURABLE = "create_shared_durable_consumer", "create_shared_consumer"


def each(durable: list[str], non_durable: list[str]) -> Any:
    """Run a test with both methods, each of which proves rows of its own."""
    return pytest.mark.parametrize(
        "method",
        [
            pytest.param(DURABLE, marks=pytest.mark.requirement(*durable) if durable else ()),
            pytest.param(NON_DURABLE, marks=pytest.mark.requirement(*non_durable) if non_durable else ()),
        ],
    )


def durably(*numbers: int) -> list[str]:
    return [f"JAK-createSharedDurableConsumer-{n}" for n in numbers]


def passing(*numbers: int) -> list[str]:
    return [f"JAK-createSharedConsumer-{n}" for n in numbers]


@each(
    [*durably(1, 2, 7), "JMS-6.11.6-1", "JMS-6.11.6-2", "JMS-6.11.6-3"],
    [*passing(1, 2, 4, 5), "JMS-6.11.4-1", "JMS-6.11.4-2", "JMS-6.11.4-3"],
)
def test_consumers_share_the_messages(method: str, desk: Any) -> None:
    """Consumers of any sessions and connections without client id share one subscription: each message goes to one."""
    desk.send("before")
    consumers = [getattr(desk.session(), method)(desk.topic, desk.client) for _ in range(3)]
    assert all(isinstance(consumer, MessageConsumer) for consumer in consumers)
    desk.send(*map(str, range(9)))
    got = [desk.receive(consumer) for consumer in consumers for _ in range(3)]
    assert sorted(text for texts in got for text in texts) == [str(n) for n in range(9)]
    desk.send("last")
    assert desk.receive(consumers[1]) == ["last"]
    assert [consumer.receive_no_wait() for consumer in consumers] == [None] * 3


@each([*durably(11)], [*passing(3)])
@pytest.mark.parametrize("has_client_id", [True, False])
def test_the_same_call_gives_a_further_consumer(method: str, desk: Any, has_client_id: bool) -> None:
    """Topic, name, client id and selector lead to the subscription, whose messages both consumers then share."""
    connection = desk.connect(desk.client if has_client_id else None)
    consumers = [getattr(connection.create_session(), method)(desk.topic, desk.client, "n = 2") for _ in range(2)]
    desk.send("x", "11", "y", "22")
    assert sorted(desk.receive(consumers[0]) + desk.receive(consumers[1])) == ["11", "22"]
    assert [consumer.receive_no_wait() for consumer in consumers] == [None, None]


@each(
    [*durably(9, 10), "JMS-6.11.6-4", "JMS-6.11.6-5"],
    [*passing(10, 11), "JMS-6.11.4-4", "JMS-6.11.4-5"],
)
def test_the_client_id_is_part_of_the_identity(method: str, desk: Any) -> None:
    """One name is another subscription under each client identifier, and under none."""
    consumers = [
        getattr(desk.session(client), method)(desk.topic, desk.client)
        for client in (None, desk.client, desk.client + "2")
    ]
    desk.send("1")
    assert [desk.receive(consumer) for consumer in consumers] == [["1"]] * 3


@each(
    [*durably(14, 15), "JMS-6.11.6-8", "JMS-6.11.6-9"],
    [*passing(12, 13), "JMS-6.11.4-7", "JMS-6.11.4-8"],
)
@pytest.mark.parametrize("what", ["topic", "selector", "no_local"])
def test_it_cannot_change_while_somebody_consumes(method: str, what: str, desk: Any) -> None:
    """While a consumer is open, another topic, selector or no_local is refused, and the consumer continues."""
    connection = desk.connect(desk.client)
    session, second = connection.create_session(), connection.create_session()
    consumer = getattr(session, method)(desk.topic, "daily", "n < 9", False)
    wanted = {
        "topic": (Topic(desk.topic.topic_name + "-other"), "daily", "n < 9", False),
        "selector": (desk.topic, "daily", "n < 8", False),
        "no_local": (desk.topic, "daily", "n < 9", True),
    }[what]
    with pytest.raises(JMSException, match=f"{what} cannot change"):
        getattr(second, method)(*wanted)
    desk.send("1")
    assert desk.receive(consumer) == ["1"]


@pytest.mark.requirement(*durably(12, 13), "JMS-6.11.6-6", "JMS-6.11.6-7")
@pytest.mark.parametrize("what", ["topic", "selector", "no_local"])
def test_a_durable_one_is_made_anew_where_nobody_consumes(what: str, desk: Any) -> None:
    """With another topic, selector or no_local, the old subscription is gone with its messages."""
    session = desk.session(desk.client)
    session.create_shared_durable_consumer(desk.topic, "daily", "n < 9").close()
    desk.send("old")
    wanted = {
        "topic": (Topic(desk.topic.topic_name + "-other"), "daily", "n < 9", False),
        "selector": (desk.topic, "daily", "n < 8", False),
        "no_local": (desk.topic, "daily", "n < 9", True),
    }[what]
    consumer = session.create_shared_durable_consumer(*wanted)
    desk.send("new", topic=wanted[0])
    assert desk.receive(consumer) == ["new"]


@pytest.mark.requirement(*durably(3, 4, 6), "JMS-6.11.5-6")
def test_a_durable_one_keeps_what_comes(desk: Any) -> None:
    """It takes in messages while it has no consumer, and the next consumer gets them."""
    desk.send("before")
    desk.session().create_shared_durable_consumer(desk.topic, desk.client).close()
    desk.send("1", "2")
    with desk.connect() as connection:
        consumer = connection.create_session().create_shared_durable_consumer(desk.topic, desk.client)
        assert desk.receive(consumer) == ["1"]
    consumer = desk.session().create_shared_durable_consumer(desk.topic, desk.client)
    assert desk.receive(consumer) == ["2"]
    consumer.close()
    desk.session().unsubscribe(desk.client)
    desk.send("3")
    consumer = desk.session().create_shared_durable_consumer(desk.topic, desk.client)
    desk.send("4")
    assert desk.receive(consumer) == ["4"]


@pytest.mark.requirement(*durably(5), "JMS-6.11.5-6")
def test_a_durable_one_keeps_a_message_until_it_expires(desk: Any) -> None:
    """What expires while there is no consumer is not delivered to the next one."""
    session = desk.session()
    session.create_shared_durable_consumer(desk.topic, desk.client).close()
    producer = session.create_producer(desk.topic)
    message = session.create_text_message("expires")
    producer.send(message, time_to_live=1)
    producer.send(session.create_text_message("lives long"), time_to_live=3_600_000)
    wait_past(message.jms_expiration)
    consumer = session.create_shared_durable_consumer(desk.topic, desk.client)
    assert desk.receive(consumer) == ["lives long"]
    assert consumer.receive_no_wait() is None


@pytest.mark.requirement(*passing(6, 7, 8), "JMS-6.11.4-6")
def test_a_non_durable_one_ends_with_its_last_consumer(desk: Any) -> None:
    """Until the last consumer closes, messages are kept for the others; then nothing is left of it."""
    first, second = (desk.session().create_shared_consumer(desk.topic, desk.client) for _ in range(2))
    desk.send("1", "2", "3")
    assert desk.receive(first) == ["1"]
    first.close()
    assert desk.receive(second) == ["2"]
    second.close()
    desk.send("4")
    third = desk.session().create_shared_consumer(desk.topic, desk.client, "n = 1")
    desk.send("5")
    assert desk.receive(third) == ["5"]
    third.close()
    desk.send("6")
    assert desk.session().create_shared_consumer(desk.topic, desk.client).receive_no_wait() is None


@each(["JMS-6.11.6-13"], ["JMS-6.11.4-11"])
def test_no_local_needs_a_client_id(method: str, desk: Any) -> None:
    """Without a client identifier no message counts as a shared subscription's own."""
    with pytest.raises(IllegalStateException, match="client id"):
        getattr(desk.session(), method)(desk.topic, desk.client, None, True)


def test_what_was_not_acknowledged_when_its_consumer_closed_can_be(
    desk: Any, eventually: Callable[[Callable[[], object]], None]
) -> None:
    """Closing a consumer leaves the session what it received: it acknowledges it, and it does not come again."""
    session = desk.session(desk.client, 2)
    consumer = session.create_durable_consumer(desk.topic, "daily")
    other = session.create_shared_consumer(desk.topic, "daily")
    desk.send("1", "2")
    assert desk.receive(other) == ["1"]
    message = consumer.receive(20_000)
    other.close()
    consumer.close()
    message.acknowledge()
    assert desk.receive(session.create_durable_consumer(desk.topic, "daily")) == ["2"]
