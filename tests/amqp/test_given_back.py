"""What becomes of messages that a client was sent and has not answered for, by how the client leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from amqp_peer import Peer

from kjms import Queue, Session, TextMessage
from tests.helpers import WAIT_MS, Eventually, send, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway_thread import RunningGateway


def arrived(peer: Peer, link: Any, count: int) -> list[tuple[str, int]]:
    """Return the body and the delivery count of each message that waits in *link*, when these are *count*."""
    from proton import Message

    found: list[tuple[str, int]] = []

    def is_there() -> bool:
        while (delivery := link.current) is not None and delivery.readable and not delivery.partial:
            message = Message()
            message.decode(link.recv(delivery.pending))
            found.append((message.body, message.delivery_count))
            link.advance()
        return len(found) >= count

    peer.wait(is_there)
    return found


def received(here: Session, name: str, count: int) -> list[tuple[str | None, int]]:
    with here.create_consumer(Queue(name)) as consumer:
        messages = [consumer.receive(WAIT_MS) for _ in range(count)]
    assert all(isinstance(each, TextMessage) for each in messages)
    return [(text(each), each.get_int_property("JMSXDeliveryCount")) for each in messages if each is not None]


@pytest.fixture
def filled(here: Session, kjms_destination_name: str) -> str:
    """The name of a queue with two messages."""
    send(here, Queue(kjms_destination_name), "one", "two")
    return kjms_destination_name


@pytest.mark.requirement("AMQP-3.3.1-9")
@pytest.mark.parametrize("leaves", ["detaches", "ends its session", "closes its connection"])
def test_a_client_that_leaves_in_order_has_no_delivery_counted(
    gateway: RunningGateway, here: Session, filled: str, leaves: str
) -> None:
    """A prefetch that no program has seen comes again as it was, more often than a message may fail."""
    peer = Peer(gateway.port, filled)
    for number in range(11):
        if leaves == "closes its connection" and number:
            peer = Peer(gateway.port, filled)
        session = peer.connection.session()
        session.open()
        link = session.receiver(f"receiver-{number}")
        link.source.address = filled
        link.open()
        link.flow(10)
        assert arrived(peer, link, 2) == [("one", 0), ("two", 0)]
        if leaves == "detaches":
            peer.detach(link)
        elif leaves == "ends its session":
            session.close()
            peer.wait(lambda its=session: its.state & its.REMOTE_CLOSED)
        else:
            peer.connection.close()
            peer.wait(lambda its=peer.connection: its.state & its.REMOTE_CLOSED)
            peer.socket.close()
    peer.socket.close()
    assert received(here, filled, 2) == [("one", 1), ("two", 1)]


def test_a_lost_client_has_seen_what_it_was_sent(
    gateway: RunningGateway, here: Session, filled: str, eventually: Eventually
) -> None:
    """What a client that is gone was sent comes marked; what was still to be sent to it comes as it was."""
    many = 20
    send(here, Queue(filled), *("x" * 900_000 for _ in range(many)))  # more than TCP and the engine take
    with Peer(gateway.port, filled) as peer:
        link = peer.receiver(filled, many)
        arrived(peer, link, 1)
        (served,) = [
            each
            for connection in gateway.gateway.clients.connections
            for each in connection._sessions._links.values()
            if each.link_name == "receiver" and each._wanted.destination == Queue(filled)
        ]
        eventually(lambda: served in served.host.flow.congested and served.worker._sources.is_held_up)
    counts = sorted(count for _, count in received(here, filled, many + 2))
    assert set(counts) == {1, 2}
    assert counts.count(2) < served.source.dispatched


def test_a_gateway_that_ends_marks_what_it_has_sent(
    start_gateway: Callable[..., RunningGateway], here: Session, filled: str
) -> None:
    """Programs may have processed messages and been unable to notify their gateway: such a message comes marked."""
    running = start_gateway()
    with Peer(running.port, filled) as peer:
        assert arrived(peer, peer.receiver(filled, 1), 1) == [("one", 0)]
        running.run(running.gateway.stop())
    assert received(here, filled, 2) == [("one", 2), ("two", 1)]
