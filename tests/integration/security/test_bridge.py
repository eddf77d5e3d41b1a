"""A bridge on a Kafka with ACLs has enough with those of its role; the broker at its other end is a gateway here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from secured_roles import acls

from kjms import ConnectionFactory, JMSSecurityException, Queue

pytestmark = pytest.mark.xdist_group("secured")

WORDS = [str(number) for number in range(20)]


@pytest.fixture(scope="module")
def far(secured: Any, amqp: Callable[[str], Any]) -> Iterator[Any]:
    """The broker at the other end, where the bridge may do everything."""
    gateway = amqp("gateway_thread").RunningGateway(ConnectionFactory(secured.addresses["PLAINTEXT"]))
    yield gateway
    gateway.close()


@pytest.fixture
def all_rights(secured: Any) -> Iterator[Any]:
    """A context that may do everything."""
    with ConnectionFactory(secured.addresses["PLAINTEXT"]).create_context() as context:
        yield context


def moved(secured: Any, far: Any, user: str, source: str, target: str, *, inward: bool) -> Any:
    from kjms.bridge import BridgeIn, BridgeOptions, BridgeOut, PeerOptions

    made = (BridgeIn if inward else BridgeOut)(
        secured.factory(user), PeerOptions(far.url), Queue(source), Queue(target), BridgeOptions(count=len(WORDS))
    )
    return made.run()


@pytest.mark.parametrize("inward", [True, False])
def test_a_bridge(secured: Any, far: Any, all_rights: Any, kjms_destination_name: str, inward: bool) -> None:
    """Either way every message is moved, and nothing refused, with exactly the role's ACLs."""
    here, there = kjms_destination_name, f"{kjms_destination_name}-there"
    secured.make(here)
    user = secured.user(*(acls("bridges into a queue", here) if inward else acls("bridges out of a queue", here)))
    source, target = (there, here) if inward else (here, there)
    for word in WORDS:
        all_rights.create_producer().send(Queue(source), word)
    assert moved(secured, far, user, source, target, inward=inward).moved == len(WORDS)
    consumer = all_rights.create_consumer(Queue(target))
    assert [consumer.receive_body(str, 20_000) for _ in WORDS] == WORDS
    assert not secured.refused(user)


@pytest.mark.parametrize("inward", [True, False])
def test_a_bridge_without_its_rights(
    secured: Any, far: Any, all_rights: Any, kjms_destination_name: str, inward: bool
) -> None:
    """Without them a bridge ends at once with the ACL that is missing, and the messages stay where they are."""
    here, there = kjms_destination_name, f"{kjms_destination_name}-there"
    secured.make(here)
    user = secured.user(*acls("own", here), f"Describe topic {here}")
    source, target = (there, here) if inward else (here, there)
    all_rights.create_producer().send(Queue(source), "x")
    with pytest.raises(JMSSecurityException, match=r"the ACL \w+ on the (topic|group) '[^']+' is missing"):
        moved(secured, far, user, source, target, inward=inward)
    assert all_rights.create_consumer(Queue(source)).receive_body(str, 20_000) == "x"
