"""The life of a group consumer: each pair of a state and an event."""

from __future__ import annotations

from itertools import product

import pytest

from kjms.engine.consumer.lifecycle import LEADS_TO, Event, Lifecycle, State

CLOSED = {State.CLOSING, State.EXITING, State.CLOSED}


@pytest.mark.parametrize(("state", "event"), list(product(State, Event)))
def test_an_event_leads_to_a_state_or_is_refused(state: State, event: Event) -> None:
    """Each pair is in the table, or raises an error that names both; closing is never undone."""
    life = Lifecycle(state)
    if (state, event) not in LEADS_TO:
        with pytest.raises(RuntimeError, match=f"{event.name} cannot happen .* {state.name}"):
            life.apply(event)
        assert life.state is state
        return
    life.apply(event)
    assert life.state is LEADS_TO[state, event]
    assert (life.state in CLOSED) == (state in CLOSED or event is Event.CLOSE)
    assert life.is_closed == (life.state in CLOSED)


def test_every_state_can_be_closed_and_is_reached() -> None:
    """Closing may be asked for at any moment, and no state is only in the list."""
    assert all((state, Event.CLOSE) in LEADS_TO for state in State)
    assert {State.IDLE, *LEADS_TO.values()} == set(State)
