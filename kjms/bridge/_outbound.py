"""Messages to the other broker, between the bridge's thread and the event loop that sends them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from kjms.bridge._peer_connection import PeerConnection

__all__ = ["OutboundQueue", "PeerOutcome"]


class PeerOutcome(NamedTuple):
    """What the broker made of a message: one of proton's outcomes, and AMQP's error if it has one."""

    token: Any
    state: int
    condition: str | None
    description: str | None


class OutboundQueue:
    """Messages that are to be sent, or wait for their outcome; a new connection sends all of them again.

    Args:
        wake: Called in the loop's thread when there is an outcome again.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._open: dict[Any, bytes] = {}  # sent or to be sent, and without an outcome
        self._unsent: deque[Any] = deque()
        self._outcomes: deque[PeerOutcome] = deque()
        self._is_pushing = False

    def outcomes(self) -> list[PeerOutcome]:
        """Return the outcomes that the broker has given; for the bridge's thread."""
        return [self._outcomes.popleft() for _ in range(len(self._outcomes))]

    def send(self, messages: list[tuple[Any, bytes]], connection: PeerConnection | None) -> None:
        """Send messages, in their order, now or later."""
        for token, data in messages:
            self._open[token] = data
            self._unsent.append(token)
        self.push(connection)

    def begin_again(self) -> None:
        """Have everything sent once more that has no outcome: there is a new connection."""
        self._unsent = deque(self._open)

    def push(self, connection: PeerConnection | None) -> None:
        """Send what the broker takes."""
        if connection is None or self._is_pushing:
            return
        self._is_pushing = True
        while self._unsent:
            while self._unsent and connection.has_room():
                token = self._unsent.popleft()
                connection.send(token, self._open[token])
            before = len(self._unsent)
            connection.flush()
            if not connection.has_room() or before == 0:
                break
        self._is_pushing = False

    def settled(self, outcome: PeerOutcome) -> None:
        """Keep an outcome for the bridge's thread."""
        if self._open.pop(outcome.token, None) is not None:
            self._outcomes.append(outcome)
            if len(self._outcomes) == 1:
                self._wake()
