"""Shared subscriptions, durable and not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kjms import IllegalStateException, JMSException, MessageConsumer, Topic

DURABLE, NON_DURABLE = "create_shared_durable_consumer", "create_shared_consumer"


def both(durable: list[int], non_durable: list[int]) -> list[str]:
    return [f"JAK-createSharedDurableConsumer-{n}" for n in durable] + [
        f"JAK-createSharedConsumer-{n}" for n in non_durable
    ]


@pytest.fixture(params=[DURABLE, NON_DURABLE])
def method(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.requirement(
    *both([1, 2, 7, 9, 11], [1, 2, 3, 4, 5, 10]),
    *["JMS-6.11.4-1", "JMS-6.11.4-2", "JMS-6.11.4-3", "JMS-6.11.4-4"],
    *["JMS-6.11.6-1", "JMS-6.11.6-2", "JMS-6.11.6-3", "JMS-6.11.6-4"],
)
def test_consumers_share_the_messages(method: str, desk: Any) -> None:
    """Consumers of any sessions and connections without client id share one subscription: each message goes to one."""
    consumers = [getattr(desk.session(), method)(desk.topic, desk.client) for _ in range(3)]
    assert all(isinstance(consumer, MessageConsumer) for consumer in consumers)
    desk.send(*map(str, range(9)))
    got = [desk.receive(consumer) for consumer in consumers for _ in range(3)]
    assert sorted(text for texts in got for text in texts) == [str(n) for n in range(9)]
    desk.send("last")
    assert desk.receive(consumers[1]) == ["last"]
    assert [consumer.receive_no_wait() for consumer in consumers] == [None] * 3


@pytest.mark.requirement(*both([10], [11]), "JMS-6.11.4-5", "JMS-6.11.6-5")
def test_the_client_id_is_part_of_the_identity(method: str, desk: Any) -> None:
    """One name is another subscription under each client identifier, and under none."""
    consumers = [
        getattr(desk.session(client), method)(desk.topic, desk.client)
        for client in (None, desk.client, desk.client + "2")
    ]
    desk.send("1")
    assert [desk.receive(consumer) for consumer in consumers] == [["1"]] * 3


@pytest.mark.requirement(
    *both([14, 15], [12, 13]),
    *["JMS-6.11.4-7", "JMS-6.11.4-8", "JMS-6.11.6-8", "JMS-6.11.6-9"],
)
@pytest.mark.parametrize("what", ["topic", "selector", "no_local"])
def test_it_cannot_change_while_somebody_consumes(method: str, what: str, desk: Any) -> None:
    """While a consumer is open, another topic, selector or no_local is refused, and the consumer goes on."""
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


@pytest.mark.requirement(*both([12, 13], []), "JMS-6.11.6-6", "JMS-6.11.6-7")
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


@pytest.mark.requirement(*both([3, 4, 5, 6, 11], []), "JMS-6.11.5-6")
def test_a_durable_one_keeps_what_comes(desk: Any) -> None:
    """It takes in messages while nobody consumes, and whoever comes gets them."""
    desk.send("before")
    desk.session().create_shared_durable_consumer(desk.topic, desk.client).close()
    desk.send("1", "2")
    with desk.connect() as connection:
        consumer = connection.create_session().create_shared_durable_consumer(desk.topic, desk.client)
        assert desk.receive(consumer) == ["1"]
    assert desk.receive(desk.session().create_shared_durable_consumer(desk.topic, desk.client)) == ["2"]
    desk.session().create_shared_durable_consumer(desk.topic, desk.client).close()


@pytest.mark.requirement(*both([], [6, 7, 8]), "JMS-6.11.4-6")
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


@pytest.mark.requirement("JMS-6.11.4-11", "JMS-6.11.6-13")
def test_no_local_needs_a_client_id(method: str, desk: Any) -> None:
    """Without a client identifier nobody's messages are a shared subscription's own."""
    with pytest.raises(IllegalStateException, match="client id"):
        getattr(desk.session(), method)(desk.topic, desk.client, None, True)


def test_what_was_not_acknowledged_when_its_consumer_closed_can_be(
    desk: Any, eventually: Callable[[Callable[[], object]], None]
) -> None:
    """Closing a consumer leaves the session what it received: it acknowledges it, and it does not come again."""
    session = desk.session(desk.client, 2)
    consumer = session.create_durable_consumer(desk.topic, "daily")
    passing = session.create_shared_consumer(desk.topic, "daily")
    desk.send("1", "2")
    assert desk.receive(passing) == ["1"]
    message = consumer.receive(20_000)
    passing.close()
    consumer.close()
    message.acknowledge()
    assert desk.receive(session.create_durable_consumer(desk.topic, "daily")) == ["2"]
