"""A bridge's connection to the other broker: its states, and the messages on either side of it."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from kjms.bridge._inbound import InboundQueue
from kjms.bridge._outbound import OutboundQueue, PeerOutcome
from kjms.bridge._peer_connection import PEER_CONNECTION, InboundDelivery, PeerConnectionEvent, PeerConnectionState


class Connection:
    """A connection that notes what is asked of it, with room for so many messages."""

    is_attached = True

    def __init__(self, room: int = 0) -> None:
        self.room = room
        self.credit = 0
        self.sent: list[object] = []
        self.settled: list[tuple[object, int]] = []

    def has_room(self) -> bool:
        return len(self.sent) < self.room

    def send(self, token: object, data: bytes) -> None:
        self.sent.append(token)

    def settle(self, delivery: object, state: int) -> None:
        self.settled.append((delivery, state))

    def grant(self, credit: int) -> None:
        self.credit += credit

    def flush(self) -> None:
        pass


@pytest.mark.parametrize(("state", "event"), list(product(PeerConnectionState, PeerConnectionEvent)))
def test_every_event_of_a_connection_has_its_state(state: PeerConnectionState, event: PeerConnectionEvent) -> None:
    """A connection that closes never carries messages again, and one that has ended stays so."""
    now = PEER_CONNECTION[state, event]
    assert now.is_closing == (state.is_closing or event is not PeerConnectionEvent.ATTACHED)
    assert (now is PeerConnectionState.ENDED) == (
        state is PeerConnectionState.ENDED or event is PeerConnectionEvent.ENDED
    )
    assert (now is PeerConnectionState.ATTACHED) == (event is PeerConnectionEvent.ATTACHED and not state.is_closing)


def test_a_new_connection_sends_again_what_has_no_outcome() -> None:
    """Messages go out in order; those without an outcome go out once more after the connection was lost."""
    woken: list[None] = []
    queue = OutboundQueue(lambda: woken.append(None))
    first: Any = Connection(room=2)
    queue.send([(number, b"") for number in range(4)], first)
    assert first.sent == [0, 1]
    queue.settled(PeerOutcome(0, 36, None, None))
    queue.settled(PeerOutcome(0, 36, None, None))  # a second one for the same message is none
    second: Any = Connection(room=9)
    queue.begin_again()
    queue.push(second)
    assert second.sent == [1, 2, 3]
    assert [outcome.token for outcome in queue.outcomes()] == [0]
    assert len(woken) == 1


def test_messages_of_a_lost_connection_are_neither_taken_nor_settled() -> None:
    """The broker delivers them again, so that settling them means nothing to a new connection."""
    queue = InboundQueue(10, lambda: None)
    connection: Any = Connection()
    old, new = InboundDelivery(b"old"), InboundDelivery(b"new")
    queue.arrived(old, connection)
    (taken,) = queue.take(10, 1000)
    queue.lost()
    queue.arrived(new, connection)
    queue.settle([taken, new], 36, connection)
    assert connection.settled == [(new, 36)]


def test_credit_is_granted_when_half_of_it_is_used() -> None:
    """Messages that are not settled count against the limit."""
    queue = InboundQueue(10, lambda: None)
    connection: Any = Connection()
    assert queue.grant(connection)
    assert connection.credit == 10
    for _ in range(6):
        connection.credit -= 1
        queue.arrived(InboundDelivery(b""), connection)
    assert connection.credit == 4  # six wait to be settled
    queue.settle(queue.take(6, 1000), 36, connection)
    assert queue.grant(connection)
    assert connection.credit == 10
    assert not queue.grant(None)


def test_a_batch_is_bounded_by_bytes() -> None:
    """The message that passes the limit is the last one taken."""
    queue = InboundQueue(10, lambda: None)
    for _ in range(3):
        queue.arrived(InboundDelivery(b"12345"), None)
    assert len(queue.take(10, 6)) == 2
    assert len(queue.take(0, 6)) == 0
