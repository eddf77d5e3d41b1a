"""Ending durable subscriptions."""

from __future__ import annotations

from typing import Any

import pytest

from kjms import IllegalStateException, InvalidDestinationException, Session

KINDS = ["create_durable_consumer", "create_shared_durable_consumer"]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.requirement(*["JAK-unsubscribe-1", "JAK-unsubscribe-2", "JMS-6.3-2", "JMS-6.9-1", "NEV-291", "NEV-295"])
def test_nothing_is_left_of_it(kind: str, desk: Any, admin: Any) -> None:
    """Definition, messages and the group's offsets go; one of the same name begins anew."""
    session = desk.session(desk.client)

    def groups() -> set[str]:
        known = admin.list_consumer_groups(request_timeout=20).result().valid
        return {entry.group_id for entry in known if desk.topic.topic_name in entry.group_id}  # others make some, too

    before = groups()
    getattr(session, kind)(desk.topic, "daily").close()
    desk.send("old")
    made = groups() - before
    assert made
    session.unsubscribe("daily")
    assert not made & groups()
    consumer = getattr(session, kind)(desk.topic, "daily")
    desk.send("new")
    assert desk.receive(consumer) == ["new"]


@pytest.mark.requirement("JAK-unsubscribe-5", "NEV-306", "JMS-6.11.5-7")
def test_not_while_it_has_a_consumer(kind: str, desk: Any) -> None:
    """A subscription with an open consumer stays as it is."""
    connection = desk.connect(desk.client)
    session, other = connection.create_session(), connection.create_session()
    consumer = getattr(session, kind)(desk.topic, "daily")
    desk.send("1")
    for asking in (session, other):
        with pytest.raises(IllegalStateException, match="open consumer"):
            asking.unsubscribe("daily")
    assert desk.receive(consumer) == ["1"]


@pytest.mark.requirement("JAK-unsubscribe-7")
def test_not_while_messages_are_not_acknowledged(kind: str, desk: Any) -> None:
    """What a session has received and not acknowledged keeps the subscription, though its consumer is closed."""
    connection = desk.connect(desk.client)
    session, other = connection.create_session(Session.CLIENT_ACKNOWLEDGE), connection.create_session()
    consumer = getattr(session, kind)(desk.topic, "daily")
    desk.send("1", "2")
    message = consumer.receive(20_000)
    consumer.close()
    with pytest.raises(IllegalStateException, match="not acknowledged"):
        other.unsubscribe("daily")
    message.acknowledge()
    other.unsubscribe("daily")
    with pytest.raises(InvalidDestinationException):
        other.unsubscribe("daily")


@pytest.mark.requirement("JAK-unsubscribe-3", "JAK-unsubscribe-4", "JAK-unsubscribe-8")
def test_it_is_found_by_name_and_client_id(kind: str, desk: Any) -> None:
    """A name that there is not, or that belongs to another client identifier, is none."""
    name = f"daily-{desk.client}"  # another test may have one without client identifier
    session, other, nobody = desk.session(desk.client), desk.session(desk.client + "-2"), desk.session()
    getattr(session, kind)(desk.topic, name).close()
    session.create_shared_consumer(desk.topic, "passing")
    for asking, asked in [(session, "weekly"), (session, "passing"), (other, name), (nobody, name)]:
        with pytest.raises(InvalidDestinationException, match="there is no durable subscription"):
            asking.unsubscribe(asked)
    for wrong in (None, "", 7):
        with pytest.raises(InvalidDestinationException, match="name"):
            session.unsubscribe(wrong)
    session.unsubscribe(name)


@pytest.mark.requirement("JAK-unsubscribe-3")
def test_a_shared_one_without_client_id_is_found_without(desk: Any) -> None:
    """A session without a client identifier ends a subscription without one."""
    desk.session().create_shared_durable_consumer(desk.topic, desk.client).close()
    with pytest.raises(InvalidDestinationException):
        desk.session(desk.client).unsubscribe(desk.client)
    desk.session().unsubscribe(desk.client)
