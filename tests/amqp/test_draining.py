"""When a drained link learns that there is nothing: as soon as that is known, also directly after its attach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from amqp_peer import Peer

from kjms import Connection, Queue, Session, TextMessage
from kjms.gateway import _sources
from tests.helpers import WAIT_MS, send

if TYPE_CHECKING:
    from gateway_thread import RunningGateway


@pytest.fixture(autouse=True)
def _young_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new link of which nothing is known is not told that there is nothing before the test's time is over."""
    monkeypatch.setattr(_sources, "YOUNG_SECONDS", 3600.0)


def drained(peer: Peer, number: int, address: str, *kinds: str) -> list[str]:
    """Return the bodies of the messages that a new link gets which asks for ten, or for what there is."""
    from proton import Message, symbol

    link: Any = peer.session.receiver(f"receiver-{number}")
    link.source.address = address
    link.source.capabilities.put_object([symbol(each) for each in kinds])
    link.open()
    link.drain(10)
    found: list[str] = []

    def is_drained() -> bool:
        while (delivery := link.current) is not None and delivery.readable and not delivery.partial:
            message = Message()
            message.decode(link.recv(delivery.pending))
            found.append(message.body)
            delivery.update(delivery.ACCEPTED)
            delivery.settle()
        return bool(link.credit == 0)

    peer.wait(is_drained)
    peer.detach(link)
    return found


def test_a_new_link_finds_what_was_there_and_no_more(
    gateway: RunningGateway, here: Session, kjms_destination_name: str
) -> None:
    """A drain that follows a send directly finds its message, whether the queue is read already or not."""
    with Peer(gateway.port, kjms_destination_name) as peer:
        for number in range(0, 30, 3):
            assert drained(peer, number, kjms_destination_name) == []
            send(here, Queue(kjms_destination_name), str(number))
            assert drained(peer, number + 1, kjms_destination_name) == [str(number)]
            assert drained(peer, number + 2, kjms_destination_name) == []


def test_what_a_transaction_wrote_at_the_end_hides_nothing(
    gateway: RunningGateway, connection: Connection, kjms_destination_name: str
) -> None:
    """A queue whose log ends with the mark of a commit is known to be empty when all before it is settled."""
    queue = Queue(kjms_destination_name)
    with connection.create_session(Session.SESSION_TRANSACTED) as session:
        session.create_producer(queue).send(TextMessage("one"))
        session.commit()
        assert session.create_consumer(queue).receive(WAIT_MS) is not None
        session.commit()
    with Peer(gateway.port, kjms_destination_name) as peer:
        assert drained(peer, 1, kjms_destination_name) == []


def test_topics_and_temporary_queues_are_known_to_be_empty(gateway: RunningGateway, kjms_destination_name: str) -> None:
    """What is read without a group, or by the inbox, is known to be empty as well."""
    with Peer(gateway.port, kjms_destination_name) as peer:
        assert drained(peer, 1, kjms_destination_name, "topic") == []
        link = peer.session.receiver("temporary")
        link.source.dynamic = True
        link.open()
        link.drain(1)
        peer.wait(lambda: link.credit == 0)
