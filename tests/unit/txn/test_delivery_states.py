"""The states of a delivery: the product of states and events is in the table, or an error that names the state."""

from __future__ import annotations

from itertools import product

import pytest

from kjms.txn.delivery_states import TRANSITIONS, DeliveryEvent, DeliveryState, TransitionError, transitions


@pytest.mark.parametrize(("state", "event"), list(product(DeliveryState, DeliveryEvent)))
def test_each_pair_is_in_the_table_or_an_error(state: DeliveryState, event: DeliveryEvent) -> None:
    if (state, event) in TRANSITIONS:
        assert transitions(event)[state] is TRANSITIONS[state, event]
        return
    with pytest.raises(TransitionError, match=f"{state.name} cannot {event.name}") as raised:
        transitions(event)[state]
    assert (raised.value.state, raised.value.event) == (state, event)


def test_each_state_is_reached_and_settles() -> None:
    """A new message reaches each state; each state leads to SETTLED, but for EVICTED: the message is read again."""
    for start in DeliveryState:
        reached = {start}
        while True:
            further = {to for (state, _), to in TRANSITIONS.items() if state in reached} - reached
            if not further:
                break
            reached |= further
        if start is DeliveryState.UNMATCHED:
            assert reached == set(DeliveryState)
        assert DeliveryState.SETTLED in reached or start is DeliveryState.EVICTED


def test_a_message_is_dispatched_once() -> None:
    """A session alone ends or returns what it has: no event dispatches or evicts it meanwhile."""
    ends = {event for state, event in TRANSITIONS if state is DeliveryState.DISPATCHED}
    assert ends == {DeliveryEvent.RETURN, DeliveryEvent.COMPLETE, DeliveryEvent.SETTLE}
