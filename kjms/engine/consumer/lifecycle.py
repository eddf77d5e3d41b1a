"""The life of a group consumer as a table of states and events."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

__all__ = ["LEADS_TO", "Event", "Lifecycle", "State"]


class State(Enum):
    """What the thread of a group consumer does."""

    IDLE = auto()
    """There is no thread: no consumer is started."""
    READING = auto()
    """The thread reads."""
    OUTDATED = auto()
    """The thread is about to leave, and another one will read with a new client: a topic was made again."""
    LEAVING = auto()
    """The thread leaves its group."""
    CLOSING = auto()
    """The thread is about to leave, and no other one will read."""
    EXITING = auto()
    """The thread leaves its group, and no other one will read."""
    CLOSED = auto()
    """There is no thread, and there will be none."""


class Event(Enum):
    """What changes the state."""

    START = auto()
    OUTDATE = auto()
    LEAVE = auto()
    LEFT = auto()
    CLOSE = auto()


LEADS_TO: Final[Mapping[tuple[State, Event], State]] = {
    (State.IDLE, Event.START): State.READING,
    (State.IDLE, Event.CLOSE): State.CLOSED,
    (State.READING, Event.OUTDATE): State.OUTDATED,
    (State.READING, Event.LEAVE): State.LEAVING,
    (State.READING, Event.CLOSE): State.CLOSING,
    (State.OUTDATED, Event.OUTDATE): State.OUTDATED,
    (State.OUTDATED, Event.LEAVE): State.LEAVING,
    (State.OUTDATED, Event.CLOSE): State.CLOSING,
    (State.LEAVING, Event.LEFT): State.IDLE,
    (State.LEAVING, Event.CLOSE): State.EXITING,
    (State.CLOSING, Event.OUTDATE): State.CLOSING,
    (State.CLOSING, Event.LEAVE): State.EXITING,
    (State.CLOSING, Event.CLOSE): State.CLOSING,
    (State.EXITING, Event.LEFT): State.CLOSED,
    (State.EXITING, Event.CLOSE): State.EXITING,
    (State.CLOSED, Event.CLOSE): State.CLOSED,
}
"""What cannot happen is not in the table."""

_CLOSED: Final = frozenset({State.CLOSING, State.EXITING, State.CLOSED})
_LEAVING: Final = frozenset({State.LEAVING, State.EXITING})


class Lifecycle:
    """The state of one group consumer; changed with its lock, read without it.

    Attributes:
        state: What the thread does.
        is_outdated: Whether the thread is to begin anew, with another client.
        is_leaving: Whether the thread leaves its group.
        is_closed: Whether closing was asked for.

    >>> life = Lifecycle()
    >>> life.apply(Event.START); life.state
    <State.READING: 2>
    """

    def __init__(self, state: State = State.IDLE) -> None:
        self._enter(state)

    def __repr__(self) -> str:
        return f"<Lifecycle {self.state.name}>"

    def apply(self, event: Event) -> None:
        """Enter the state that *event* leads to.

        Raises:
            RuntimeError: The event cannot happen in this state.
        """
        state = LEADS_TO.get((self.state, event))
        if state is None:
            raise RuntimeError(f"{event.name} cannot happen while a group consumer is {self.state.name}")
        self._enter(state)

    def _enter(self, state: State) -> None:
        self.state = state
        self.is_outdated = state is State.OUTDATED
        self.is_leaving = state in _LEAVING
        self.is_closed = state in _CLOSED
