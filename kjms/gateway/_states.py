"""The lives of a link and of a client's connection: their states, and what each event makes of them. Pure.

Spec: AMQP 1.0, part 2, §2.4.6 (connection states), §2.6.3 to §2.6.6 (links).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, TypeVar

__all__ = ["CONNECTION", "LINK", "ConnectionEvent", "ConnectionState", "LinkEvent", "LinkState", "after"]

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class LinkState(Enum):
    """The state of a link, from the client's attach to the last answer.

    Attributes:
        is_open: Whether messages and their outcomes pass.
        is_leaving: Whether it ends without a further request of the client, or has ended.
    """

    ATTACHING = "the client's attach is not answered"
    OPEN = "messages pass"
    FAILED = "the gateway ended it with an error, and the client has not detached it yet"
    DETACHING = "it ends; what came before is still answered"
    STOPPED = "it ends; no message passes any more"
    GONE = "nothing of it is answered any more"

    is_open: bool
    is_leaving: bool


for _state in LinkState:
    _state.is_open = _state in {LinkState.OPEN, LinkState.DETACHING}
    _state.is_leaving = _state in {LinkState.DETACHING, LinkState.STOPPED, LinkState.GONE}


class LinkEvent(Enum):
    """What happens to a link."""

    OPENED = "its attach is answered"
    FAILED = "it is ended with an error"
    LEAVING = "the client detaches it, or another link takes its name"
    STOPPED = "its messages end before it does"
    ENDED = "its last answer is given, or its client is gone"


LINK: Final[Mapping[tuple[LinkState, LinkEvent], LinkState]] = {
    (LinkState.ATTACHING, LinkEvent.OPENED): LinkState.OPEN,
    (LinkState.ATTACHING, LinkEvent.LEAVING): LinkState.STOPPED,
    (LinkState.ATTACHING, LinkEvent.ENDED): LinkState.GONE,
    (LinkState.OPEN, LinkEvent.FAILED): LinkState.FAILED,
    (LinkState.OPEN, LinkEvent.LEAVING): LinkState.DETACHING,
    (LinkState.OPEN, LinkEvent.ENDED): LinkState.GONE,
    (LinkState.FAILED, LinkEvent.FAILED): LinkState.FAILED,
    (LinkState.FAILED, LinkEvent.LEAVING): LinkState.STOPPED,
    (LinkState.FAILED, LinkEvent.ENDED): LinkState.GONE,
    (LinkState.DETACHING, LinkEvent.FAILED): LinkState.STOPPED,
    (LinkState.DETACHING, LinkEvent.LEAVING): LinkState.DETACHING,
    (LinkState.DETACHING, LinkEvent.STOPPED): LinkState.STOPPED,
    (LinkState.DETACHING, LinkEvent.ENDED): LinkState.GONE,
    (LinkState.STOPPED, LinkEvent.OPENED): LinkState.DETACHING,  # a detach overtook it: attach and detach are answered
    (LinkState.STOPPED, LinkEvent.FAILED): LinkState.STOPPED,
    (LinkState.STOPPED, LinkEvent.LEAVING): LinkState.STOPPED,
    (LinkState.STOPPED, LinkEvent.STOPPED): LinkState.STOPPED,
    (LinkState.STOPPED, LinkEvent.ENDED): LinkState.GONE,
    (LinkState.GONE, LinkEvent.ENDED): LinkState.GONE,
}


class ConnectionState(Enum):
    """The state of a client's connection.

    Attributes:
        is_ended: Whether its client is gone, or is to go.
    """

    HANDSHAKE = "TLS and SASL"
    NEGOTIATED = "the client's open is to come"
    OPENING = "the client's open is not answered"
    OPEN = "the client's open is answered"
    REFUSED = "the client's open is answered by a close"
    ABANDONED = "it ended while it was being opened, which is not over"
    ENDED = "its sessions end"
    CLOSED = "nothing of it is left in kjms"

    is_ended: bool


for _each in ConnectionState:
    _each.is_ended = _each in {ConnectionState.ABANDONED, ConnectionState.ENDED, ConnectionState.CLOSED}


class ConnectionEvent(Enum):
    """What happens to a connection."""

    NEGOTIATED = "TLS and SASL are over"
    OPEN_RECEIVED = "the client opens it"
    OPENED = "it is opened"
    REFUSED = "it is refused"
    OPENING_OVER = "the attempt to open it is over, with or without success"
    ENDED = "either side ends it, or it is lost"
    CLOSED = "its kjms connection is closed"


CONNECTION: Final[Mapping[tuple[ConnectionState, ConnectionEvent], ConnectionState]] = {
    (ConnectionState.HANDSHAKE, ConnectionEvent.NEGOTIATED): ConnectionState.NEGOTIATED,
    (ConnectionState.HANDSHAKE, ConnectionEvent.ENDED): ConnectionState.ENDED,
    (ConnectionState.NEGOTIATED, ConnectionEvent.OPEN_RECEIVED): ConnectionState.OPENING,
    (ConnectionState.NEGOTIATED, ConnectionEvent.ENDED): ConnectionState.ENDED,
    (ConnectionState.OPENING, ConnectionEvent.OPENED): ConnectionState.OPEN,
    (ConnectionState.OPENING, ConnectionEvent.REFUSED): ConnectionState.REFUSED,
    (ConnectionState.OPENING, ConnectionEvent.OPENING_OVER): ConnectionState.NEGOTIATED,  # it was cancelled
    (ConnectionState.OPENING, ConnectionEvent.ENDED): ConnectionState.ABANDONED,
    (ConnectionState.OPEN, ConnectionEvent.OPENING_OVER): ConnectionState.OPEN,
    (ConnectionState.OPEN, ConnectionEvent.ENDED): ConnectionState.ENDED,
    (ConnectionState.REFUSED, ConnectionEvent.OPENING_OVER): ConnectionState.REFUSED,
    (ConnectionState.REFUSED, ConnectionEvent.ENDED): ConnectionState.ENDED,
    (ConnectionState.ABANDONED, ConnectionEvent.OPENING_OVER): ConnectionState.ENDED,
    (ConnectionState.ABANDONED, ConnectionEvent.ENDED): ConnectionState.ABANDONED,
    (ConnectionState.ENDED, ConnectionEvent.OPENING_OVER): ConnectionState.ENDED,
    (ConnectionState.ENDED, ConnectionEvent.ENDED): ConnectionState.ENDED,
    (ConnectionState.ENDED, ConnectionEvent.CLOSED): ConnectionState.CLOSED,
    (ConnectionState.CLOSED, ConnectionEvent.ENDED): ConnectionState.CLOSED,
}


def after(table: Mapping[tuple[S, E], S], state: S, event: E) -> S:
    """Return the state that follows on *event* in *state*.

    Raises:
        RuntimeError: The table has no such pair: the gateway has an error.

    >>> after(LINK, LinkState.ATTACHING, LinkEvent.OPENED).name
    'OPEN'
    """
    try:
        return table[state, event]
    except KeyError:
        raise RuntimeError(f"{type(state).__name__} {state.name}: unexpected {event.name}") from None
