"""What Apache Qpid JMS attaches for each thing that JMS has, and what the gateway makes of it (capture.py)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kjms import InvalidDestinationException, MessageFormatException, Queue, TemporaryQueue, TemporaryTopic, Topic

ATTACHES: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "attaches.json").read_text("utf-8"))
IDS = ["billing", None]
NEVER, LINK_DETACH = 3, 0  # of the engine: what happens to a terminus whose link is gone
kept: list[Any] = []  # the engine's parts do not keep each other


def source(name: str) -> dict[str, Any]:
    return ATTACHES[name]["source"]  # type: ignore[no-any-return]


def target(name: str) -> Any:
    """The target of the attach, as the gateway has it."""
    from proton import Connection, symbol

    its = ATTACHES[name]["target"]
    connection = Connection()
    terminus = connection.session().sender("link").target
    terminus.address = its["address"]
    terminus.dynamic = its["dynamic"]
    terminus.capabilities.put_object([symbol(each) for each in its["capabilities"]])
    kept.append(connection)
    return terminus


def asked(name: str) -> Any:
    """What the gateway reads in the attach."""
    from proton import Connection, Described, symbol, ulong

    from kjms.gateway._terminus import wanted

    entry = ATTACHES[name]
    its = entry["source"]
    connection = Connection()  # kept until the end: the engine's parts do not keep each other
    session = connection.session()
    link = session.receiver(entry["name"])
    terminus = link.source
    terminus.address = its["address"]
    terminus.durability = its["durability"]
    terminus.expiry_policy = its["expiry"]
    terminus.distribution_mode = terminus.DIST_MODE_COPY if its["copies"] else terminus.DIST_MODE_UNSPECIFIED
    terminus.capabilities.put_object([symbol(each) for each in its["capabilities"]])
    terminus.filter.put_object(
        {symbol(key): Described(ulong(of), value) for key, (of, value) in its["filters"].items()}
    )
    return wanted(entry["name"], terminus)


@pytest.mark.requirement("AMQP-5.2-1", "AMQP-5.2-4")
def test_producers(proton: None) -> None:
    """A producer's target has the address and says the kind; that of the anonymous relay has no address."""
    from kjms.gateway._terminus import destination_at

    for client_id in IDS:
        for name, destination in (("producer", Queue("orders")), ("topic producer", Topic("news"))):
            assert destination_at(target(f"{name} {client_id}")) == destination
        relay = target(f"relay {client_id}")
        assert (relay.address, relay.dynamic) == (None, False)
        with pytest.raises(InvalidDestinationException, match="no address"):
            destination_at(relay)


@pytest.mark.requirement("AMQP-5.2-1")
def test_consumers_and_browsers(proton: None) -> None:
    """A consumer's source has address, kind and selector; that of a browser copies."""
    from kjms.gateway._terminus import Wanted

    for client_id in IDS:
        assert asked(f"consumer {client_id}") == Wanted(Queue("orders"), "a = 1")
        assert asked(f"browser {client_id}") == Wanted(Queue("orders"), is_browser=True)


@pytest.mark.requirement("AMQP-8.3-12", "AMQP-8.3-13", "AMQP-8.3-15")
def test_volatile_subscriptions(proton: None) -> None:
    """A plain subscriber's link has a name made up, and its terminus neither lasts nor outlives the link."""
    from kjms.gateway._terminus import Wanted

    for client_id in IDS:
        name = f"volatile {client_id}"
        assert ATTACHES[name]["name"].startswith("qpid-jms:receiver:")
        assert (source(name)["durability"], source(name)["expiry"]) == (0, LINK_DETACH)
        assert asked(name) == Wanted(Topic("news"), no_local=True)


@pytest.mark.requirement("AMQP-8.3-1", "AMQP-8.3-4", "AMQP-7.1-6", "AMQP-8.4-2", "AMQP-8.4-3", "AMQP-8.4-4")
def test_durable_subscriptions(proton: None) -> None:
    """An unshared durable subscription is the link's name and a terminus that lasts; closing detaches it."""
    from kjms.gateway._terminus import Wanted

    assert ATTACHES["durable billing"]["name"] == "sub"
    assert (source("durable billing")["durability"], source("durable billing")["expiry"]) == (2, NEVER)
    assert ATTACHES["close of durable billing"] == {"name": "sub", "closed": False}
    assert asked("durable billing") == Wanted(Topic("news"), subscription="sub", is_durable=True)
    assert asked("durable, not local billing") == Wanted(
        Topic("news"), "a = 1", no_local=True, subscription="other", is_durable=True
    )


@pytest.mark.requirement(
    "AMQP-8.6-1", "AMQP-8.6-2", "AMQP-8.6-3", "AMQP-8.6-6", "AMQP-8.6-10", "AMQP-8.6-11", "AMQP-8.4-5"
)
def test_shared_volatile_subscriptions(proton: None) -> None:
    """Shared subscribers say so, and whether their name is global; a suffix tells their links apart."""
    from kjms.gateway._terminus import Wanted

    for client_id, suffix in (("billing", "volatile"), (None, "global-volatile")):
        for name, number in (("shared", 1), ("shared again", 2)):
            attach = f"{name} {client_id}"
            assert ATTACHES[attach]["name"] == f"share|{suffix}{number}"
            assert source(attach)["expiry"] == LINK_DETACH
            assert asked(attach) == Wanted(
                Topic("news"), "a = 1", subscription="share", is_shared=True, is_global=client_id is None
            )


@pytest.mark.requirement(
    "AMQP-8.7-1", "AMQP-8.7-2", "AMQP-8.7-3", "AMQP-8.7-4", "AMQP-8.7-5", "AMQP-8.7-7", "AMQP-8.7-12", "AMQP-8.7-13"
)
def test_shared_durable_subscriptions(proton: None) -> None:
    """The first link of a shared durable subscription is named as an unshared one's would be, but for being global."""
    from kjms.gateway._terminus import Wanted

    names = {"billing": ["kept", "kept|2"], None: ["kept|global", "kept|global2"]}
    for client_id in IDS:
        attaches = [f"{name} {client_id}" for name in ("shared durable", "shared durable again")]
        assert [ATTACHES[attach]["name"] for attach in attaches] == names[client_id]
        for attach in attaches:
            assert (source(attach)["durability"], source(attach)["expiry"]) == (2, NEVER)
            assert asked(attach) == Wanted(
                Topic("news"), subscription="kept", is_durable=True, is_shared=True, is_global=client_id is None
            )


@pytest.mark.parametrize(("client_id", "name"), [("billing", "sub"), (None, "sub|global")])
def test_unsubscribing(proton: None, client_id: str | None, name: str) -> None:
    """A link of the subscription's name without a source, closed at once."""
    from kjms.gateway._terminus import subscription_name

    assert source(f"unsubscribe {client_id}")["type"] == 0
    assert ATTACHES[f"close of unsubscribe {client_id}"] == {"name": name, "closed": True}
    assert subscription_name(ATTACHES[f"unsubscribe {client_id}"]["name"]) == "sub"


@pytest.mark.parametrize("client_id", IDS)
@pytest.mark.parametrize(("kind", "its"), [("queue", TemporaryQueue), ("topic", TemporaryTopic)])
def test_temporary_destinations(proton: None, client_id: str | None, kind: str, its: type) -> None:
    """A dynamic target says its kind."""
    from kjms.gateway._terminus import temporary_kind

    asked_for = target(f"temporary {kind} {client_id}")
    assert asked_for.dynamic
    assert temporary_kind(asked_for) is its


def wanted_with(fill: Callable[[Any], object]) -> Any:
    """What the gateway reads in the attach of a receiver with the filter that *fill* puts."""
    from proton import Connection

    from kjms.gateway._terminus import wanted

    connection = Connection()  # kept until the end: the engine's parts do not keep each other
    terminus = connection.session().receiver("r").source
    terminus.address = "queue://orders"
    fill(terminus.filter)
    return wanted("r", terminus)


@pytest.mark.parametrize("code", [0xFFFFFFFF, 0x80000000, 0x110000])
def test_a_filter_with_a_character_that_there_is_not(proton: None, code: int) -> None:
    """A character beyond all that Unicode has is a filter that cannot be read, whatever the engine raises."""
    with pytest.raises(MessageFormatException, match="cannot be read"):
        wanted_with(lambda filters: filters.decode(b"\x73" + code.to_bytes(4, "big")))


def test_a_filter_that_is_described_by_a_list(proton: None) -> None:
    """A descriptor of an unused type is unknown: the filter is left out."""
    from proton import Described, symbol

    odd = {symbol("odd"): Described([1, 2], "a = 1")}
    assert wanted_with(lambda filters: filters.put_object(odd)).selector is None
