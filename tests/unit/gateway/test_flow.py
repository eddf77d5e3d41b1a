"""How much of a client is held in memory: reading stops and resumes, and an ended session is counted no more."""

from __future__ import annotations

from typing import Any

from kjms.gateway._flow import UNFINISHED, ConnectionFlow


class Socket:
    """A socket that knows whether it is read."""

    is_read = True

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


def test_reading_stops_above_the_limit_and_goes_on_below_half_of_it() -> None:
    """The socket is not read while more than a largest message is held, until half of it is gone."""
    socket: Any = Socket()
    flow = ConnectionFlow(100, lambda: socket, lambda: False)
    reads = []
    for size in (60, 40, 1, -50, -2, 60):
        flow.hold("a session", size)
        reads.append(socket.is_read)
    assert reads == [True, True, False, False, True, False]


def test_a_session_that_ended_holds_nothing() -> None:
    """What an ended session held is counted no more, and later reports of it change nothing."""
    socket: Any = Socket()
    flow = ConnectionFlow(100, lambda: socket, lambda: False)
    flow.hold("first", 80)
    flow.hold("second", 30)
    assert not socket.is_read
    flow.let_go("first")
    flow.hold("first", -80)
    assert flow.held == 30
    assert socket.is_read


def test_a_lost_socket_is_left_alone() -> None:
    """Without a socket the bytes are counted, and reading is neither stopped nor resumed."""
    flow = ConnectionFlow(100, lambda: None, lambda: False)
    flow.hold("a session", 500)
    assert (flow.held, flow.is_held_back) == (500, False)


def test_parts_of_messages_are_bounded() -> None:
    """So many messages of the largest size may be there in parts, and no more."""
    flow = ConnectionFlow(100, lambda: None, lambda: False)
    assert flow.hold_part(UNFINISHED * 100)
    assert not flow.hold_part(1)
    assert flow.hold_part(-1)
