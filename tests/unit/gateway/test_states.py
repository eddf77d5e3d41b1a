"""The tables of a link's and a connection's states: what each event makes of each state."""

from __future__ import annotations

from itertools import product

import pytest

from kjms.gateway._states import (
    CONNECTION,
    LINK,
    ConnectionEvent,
    ConnectionState,
    LinkEvent,
    LinkState,
    after,
)


@pytest.mark.parametrize(("state", "event"), list(product(LinkState, LinkEvent)))
def test_every_pair_of_a_link_is_in_the_table_or_is_an_error(state: LinkState, event: LinkEvent) -> None:
    """An event leads to a state that fits it, or names the state in which it cannot come."""
    if (state, event) not in LINK:
        with pytest.raises(RuntimeError, match=state.name):
            after(LINK, state, event)
        return
    now = after(LINK, state, event)
    if event is LinkEvent.ENDED:
        assert now is LinkState.GONE
    elif event is LinkEvent.OPENED:
        assert now.is_open
        assert now.is_leaving == state.is_leaving
    elif event is LinkEvent.LEAVING:
        assert now.is_leaving
        assert now.is_open == state.is_open
    else:
        assert not now.is_open
        assert now.is_leaving == state.is_leaving


def test_a_link_can_always_end_and_ends_once() -> None:
    """Every state of a link allows its end, after which nothing but the end may be noted again."""
    assert all((state, LinkEvent.ENDED) in LINK for state in LinkState)
    assert [event for state, event in LINK if state is LinkState.GONE] == [LinkEvent.ENDED]


@pytest.mark.parametrize(("state", "event"), list(product(ConnectionState, ConnectionEvent)))
def test_every_pair_of_a_connection_is_in_the_table_or_is_an_error(
    state: ConnectionState, event: ConnectionEvent
) -> None:
    """An event leads to a state that fits it, or names the state in which it cannot come."""
    if (state, event) not in CONNECTION:
        with pytest.raises(RuntimeError, match=state.name):
            after(CONNECTION, state, event)
        return
    now = after(CONNECTION, state, event)
    assert now.is_ended == (state.is_ended or event is ConnectionEvent.ENDED)  # an ended one stays so
    if event is ConnectionEvent.OPENING_OVER:
        assert now not in {ConnectionState.OPENING, ConnectionState.ABANDONED}


def test_a_connection_can_always_end_and_closes_only_then() -> None:
    """Every state of a connection allows its end; it is closed when its opening is over, too."""
    assert all((state, ConnectionEvent.ENDED) in CONNECTION for state in ConnectionState)
    assert [state for state, event in CONNECTION if event is ConnectionEvent.CLOSED] == [ConnectionState.ENDED]


@pytest.mark.parametrize(("table", "start"), [(LINK, LinkState.ATTACHING), (CONNECTION, ConnectionState.HANDSHAKE)])
def test_every_state_is_reached(table: dict[tuple[object, object], object], start: object) -> None:
    """There is no state that no sequence of events leads to."""
    reached, found = set(), {start}
    while found:
        reached |= found
        found = {after for (before, _), after in table.items() if before in reached} - reached
    assert reached == set(type(start))  # type: ignore[call-overload]
