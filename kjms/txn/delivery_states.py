"""The life of one message in the process that read it, as a table of states and events: pure, no clock, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, unique
from typing import Final

__all__ = [
    "BLOCK",
    "COMPLETE",
    "COMPLETED",
    "DELAY",
    "DELAYED",
    "DISPATCH",
    "DISPATCHED",
    "EVICT",
    "GROUP_BLOCKED",
    "MATCH",
    "READY",
    "RELOCATE",
    "RELOCATING",
    "RETURN",
    "SETTLE",
    "TRANSITIONS",
    "UNMATCH",
    "UNMATCHED",
    "DeliveryEvent",
    "DeliveryState",
    "TransitionError",
    "transitions",
]


@unique
class DeliveryState(IntEnum):
    """Where a message is between its log and its settlement. An IntEnum, since its hash costs a third of an Enum's."""

    UNMATCHED = 0  # just read, or it matches no selector here
    READY = 1  # in the selector queues that it matches
    GROUP_BLOCKED = 2  # another session has a message of its group
    DELAYED = 3  # it is not due yet
    EVICTED = 4  # dropped from memory; re-read from its log later
    DISPATCHED = 5  # a session has it
    RETURNED = 6  # given back, and kept for the consumer that had it
    COMPLETED = 7  # its session is done with it: a dead letter, or expired, on its way to where it is kept
    RELOCATING = 8  # on its way to a peer; no session here had it since
    SETTLED = 9  # done with


@unique
class DeliveryEvent(IntEnum):
    """What happens to a message."""

    MATCH = 0  # it matches a selector
    UNMATCH = 1  # no selector queue is left that it matches
    BLOCK = 2  # another session has a message of its group
    DELAY = 3  # it is due later
    EVICT = 4
    DISPATCH = 5
    RETURN = 6  # its session gives it back
    COMPLETE = 7  # its session is done with it, and it is copied elsewhere
    RELOCATE = 8  # a peer gets it
    SETTLE = 9


S, E = DeliveryState, DeliveryEvent

TRANSITIONS: Final[Mapping[tuple[DeliveryState, DeliveryEvent], DeliveryState]] = {
    (S.UNMATCHED, E.MATCH): S.READY,
    (S.UNMATCHED, E.UNMATCH): S.UNMATCHED,
    (S.UNMATCHED, E.DELAY): S.DELAYED,
    (S.UNMATCHED, E.EVICT): S.EVICTED,
    (S.UNMATCHED, E.RELOCATE): S.RELOCATING,
    (S.UNMATCHED, E.SETTLE): S.SETTLED,
    (S.READY, E.MATCH): S.READY,  # one more selector
    (S.READY, E.UNMATCH): S.UNMATCHED,
    (S.READY, E.BLOCK): S.GROUP_BLOCKED,
    (S.READY, E.EVICT): S.EVICTED,
    (S.READY, E.DISPATCH): S.DISPATCHED,
    (S.READY, E.RELOCATE): S.RELOCATING,
    (S.GROUP_BLOCKED, E.UNMATCH): S.UNMATCHED,  # it waits no more, and is matched anew
    (S.GROUP_BLOCKED, E.DISPATCH): S.DISPATCHED,  # to the session that has its group
    (S.DELAYED, E.UNMATCH): S.UNMATCHED,  # it is due, and is matched anew
    (S.DISPATCHED, E.RETURN): S.RETURNED,
    (S.DISPATCHED, E.COMPLETE): S.COMPLETED,
    (S.DISPATCHED, E.SETTLE): S.SETTLED,
    (S.RETURNED, E.UNMATCH): S.UNMATCHED,  # any consumer may have it, and it is matched anew
    (S.RETURNED, E.DISPATCH): S.DISPATCHED,
    (S.COMPLETED, E.SETTLE): S.SETTLED,
    (S.RELOCATING, E.UNMATCH): S.UNMATCHED,  # the peer is gone, and it is matched anew
    (S.RELOCATING, E.SETTLE): S.SETTLED,
    (S.SETTLED, E.SETTLE): S.SETTLED,
}
"""State and event -> the state after it; a pair that is not here is an error."""


class TransitionError(RuntimeError):
    """An event came in a state in which it cannot: an error of kjms.

    Args:
        state: The state.
        event: What happened in it.
    """

    def __init__(self, state: DeliveryState, event: DeliveryEvent) -> None:
        super().__init__(f"a message that is {state.name} cannot {event.name}: an error of kjms, please report it")
        self.state = state
        self.event = event


class _Transitions(dict[DeliveryState, DeliveryState]):
    """State -> the state after one event; to look it up costs less than a call."""

    __slots__ = ("event",)

    def __init__(self, event: DeliveryEvent) -> None:
        super().__init__({state: to for (state, each), to in TRANSITIONS.items() if each is event})
        self.event = event

    def __missing__(self, state: DeliveryState) -> DeliveryState:
        raise TransitionError(state, self.event)


def transitions(event: DeliveryEvent) -> Mapping[DeliveryState, DeliveryState]:
    """Return what follows *event*, by the state that it comes in.

    Raises:
        TransitionError: When a state is looked up in which *event* cannot come.

    >>> transitions(DeliveryEvent.DISPATCH)[DeliveryState.READY]
    <DeliveryState.DISPATCHED: 5>
    """
    return _Transitions(event)


# To look a member up in its class costs a call of Python code.
COMPLETED: Final = DeliveryState.COMPLETED
DELAYED: Final = DeliveryState.DELAYED
DISPATCHED: Final = DeliveryState.DISPATCHED
GROUP_BLOCKED: Final = DeliveryState.GROUP_BLOCKED
READY: Final = DeliveryState.READY
RELOCATING: Final = DeliveryState.RELOCATING
UNMATCHED: Final = DeliveryState.UNMATCHED

BLOCK: Final = transitions(DeliveryEvent.BLOCK)
COMPLETE: Final = transitions(DeliveryEvent.COMPLETE)
DELAY: Final = transitions(DeliveryEvent.DELAY)
DISPATCH: Final = transitions(DeliveryEvent.DISPATCH)
EVICT: Final = transitions(DeliveryEvent.EVICT)
MATCH: Final = transitions(DeliveryEvent.MATCH)
RELOCATE: Final = transitions(DeliveryEvent.RELOCATE)
RETURN: Final = transitions(DeliveryEvent.RETURN)
SETTLE: Final = transitions(DeliveryEvent.SETTLE)
UNMATCH: Final = transitions(DeliveryEvent.UNMATCH)
