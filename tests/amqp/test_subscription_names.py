"""Whose a subscription's name is, and what an attach and an open say of it: AMQP frames of a client without JMS."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from amqp_peer import Lookup, Names, Peer, Received, plain

from kjms import Queue, Session, TemporaryQueue, TemporaryTopic, TextMessage, Topic

pytestmark = pytest.mark.usefixtures("proton")
SOLE = "sole-connection-for-container"


def publish(here: Session, name: str, text: str) -> None:
    here.create_producer(Topic(name)).send(TextMessage(text))


@pytest.mark.requirement("AMQP-2.1-9", "AMQP-2.1-10", "AMQP-8.2-2")
def test_a_refused_container_learns_which_field_is_wrong(gateway: Any, kjms_destination_name: str) -> None:
    """The open that answers a second sole connection says that a close follows, which names the field."""
    with Peer(gateway.port, kjms_destination_name, SOLE) as first:
        first.wait(lambda: first.connection.state & first.connection.REMOTE_ACTIVE)
        with Peer(gateway.port, kjms_destination_name, SOLE) as second:
            second.wait(lambda: second.connection.state & second.connection.REMOTE_CLOSED)
            assert second.connection.remote_properties["amqp:connection-establishment-failed"] is True
            condition = second.connection.remote_condition
            assert condition.name == "amqp:invalid-field"
            assert condition.info == {"invalid-field": "container-id"}
        assert first.connection.state & first.connection.REMOTE_ACTIVE


@pytest.mark.requirement("AMQP-8.4-1", "AMQP-8.1-7")
@pytest.mark.parametrize("kinds", [{"topic"}, {"topic", "shared"}, {"topic", "shared", "global"}])
def test_sharing_is_offered_asked_for_and_answered(gateway: Any, kjms_destination_name: str, kinds: set[str]) -> None:
    """The open offers shared subscriptions, an attach asks for one by capability, and the answer says what it is."""
    with Peer(gateway.port, kjms_destination_name) as peer:
        link = Names(peer).receiver(kjms_destination_name, kjms_destination_name, *kinds)
        assert "SHARED-SUBS" in {str(each) for each in peer.connection.remote_offered_capabilities}
        assert {str(each) for each in plain(link.remote_source.capabilities)} == kinds


@pytest.mark.requirement("AMQP-8.2-6")
def test_a_shared_volatile_name_is_of_its_container(gateway: Any, here: Session, kjms_destination_name: str) -> None:
    """Links of one name in two containers share nothing: each gets every message."""
    name = kjms_destination_name
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(gateway.port, f"{name}-{each}", SOLE)) for each in "ab"]
        links = [Names(peer).receiver(name, name, "topic", "shared") for peer in peers]
        for text in ("first", "second"):
            publish(here, name, text)
            for peer, link in zip(peers, links, strict=True):
                link.flow(1)
                received = Received(peer, [link])
                received.wait(1)
                assert received.bodies == [[text]]


@pytest.mark.requirement("AMQP-7.1-2", "AMQP-8.1-3", "AMQP-8.2-1", "AMQP-8.2-6", "AMQP-8.3-5")
@pytest.mark.parametrize("kinds", [[], ["shared"]])
def test_a_durable_name_is_of_its_container(
    gateway: Any, here: Session, kjms_destination_name: str, kinds: list[str]
) -> None:
    """Two containers have a subscription of one name each: both get every message, and one's end leaves the other."""
    name = kjms_destination_name
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(gateway.port, f"{name}-{each}", SOLE)) for each in "ab"]
        links = [Names(peer).durable(name, name, "topic", *kinds) for peer in peers]
        for number, text in enumerate(["first", "second"], 1):
            publish(here, name, text)
            for peer, link in zip(peers, links, strict=True):
                link.flow(1)
                received = Received(peer, [link])
                received.wait(1)
                assert received.bodies == [[text]], number
        links[0].close()
        peers[0].wait(lambda: links[0].state & links[0].REMOTE_CLOSED)
        assert links[0].remote_condition is None
        assert Lookup(peers[0]).ask(name).remote_condition.name == "amqp:not-found"
        publish(here, name, "third")
        links[1].flow(1)
        received = Received(peers[1], [links[1]])
        received.wait(1)
        assert received.bodies == [["third"]]
        links[1].close()
        peers[1].wait(lambda: links[1].state & links[1].REMOTE_CLOSED)
        assert Lookup(peers[1]).ask(name).remote_condition.name == "amqp:not-found"


@pytest.mark.requirement("AMQP-8.2-9", "AMQP-8.9-1", "AMQP-8.9-2")
def test_five_subscriptions_have_one_name(gateway: Any, here: Session, kjms_destination_name: str) -> None:
    """Durable and volatile, of the container and global: each is another one, and so is each without a name."""
    name = kjms_destination_name
    with Peer(gateway.port, name) as peer:
        names = Names(peer)
        links = [
            names.durable(name, name, "topic"),
            names.receiver(f"{name}|volatile", name, "topic", "shared"),
            names.durable(f"{name}|global", name, "topic", "shared", "global"),
            names.receiver(f"{name}|global-volatile", name, "topic", "shared", "global"),
            names.receiver(f"{name}|plain", name, "topic"),
        ]
        assert [link.remote_condition for link in links] == [None] * 5
        publish(here, name, "to all")
        for link in links:
            link.flow(10)
        received = Received(peer, links)
        received.wait(5)
        assert received.bodies == [["to all"]] * 5
        for link in links:
            link.close()
        peer.wait(lambda: all(link.state & link.REMOTE_CLOSED for link in links))


@pytest.mark.requirement("AMQP-7.1-7", "AMQP-8.3-2", "AMQP-8.3-13")
def test_durability_of_the_source() -> None:
    """A terminus that keeps its configuration (1) or its unsettled state (2) is durable; one that keeps nothing not."""
    from proton import Connection, Terminus, symbol

    from kjms.gateway._terminus import wanted

    connection = Connection()  # kept until the end: the engine's parts do not keep each other
    source = connection.session().receiver("sub").source
    source.address = "news"
    source.capabilities.put_object([symbol("topic")])
    durable = {}
    for durability in (Terminus.NONDURABLE, Terminus.CONFIGURATION, Terminus.DELIVERIES):
        source.durability = durability
        found = wanted("sub", source)
        durable[int(durability)] = (found.is_durable, found.subscription)
    assert durable == {0: (False, None), 1: (True, "sub"), 2: (True, "sub")}


@pytest.mark.parametrize(
    ("capability", "kind"),
    [
        pytest.param("queue", Queue, marks=pytest.mark.requirement("AMQP-5.2-5")),
        pytest.param("topic", Topic, marks=pytest.mark.requirement("AMQP-5.2-6")),
        pytest.param("temporary-queue", TemporaryQueue, marks=pytest.mark.requirement("AMQP-5.2-7")),
        pytest.param("temporary-topic", TemporaryTopic, marks=pytest.mark.requirement("AMQP-5.2-8")),
    ],
)
@pytest.mark.requirement("AMQP-5.2-4")
@pytest.mark.parametrize("end", ["source", "target"])
def test_capabilities_say_the_kind_of_destination(capability: str, kind: type, end: str) -> None:
    """The capability of a terminus decides, also against what its address says."""
    from proton import Connection, symbol

    from kjms.gateway._terminus import destination_at

    connection = Connection()  # kept until the end: the engine's parts do not keep each other
    terminus = getattr(connection.session().receiver("link"), end)
    other = "topic" if kind is Queue else "queue"
    for address in ("a", f"{other}://a") if capability in {"queue", "topic"} else ("a",):
        terminus.address = address
        terminus.capabilities.clear()
        terminus.capabilities.put_object([symbol(capability)])
        found = destination_at(terminus)
        assert (type(found), found) == (kind, kind(address))
