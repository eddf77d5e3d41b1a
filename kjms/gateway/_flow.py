"""How much of one client the gateway holds in memory, and the links that wait until the client reads."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import asyncio

__all__ = ["ConnectionFlow"]

UNFINISHED: Final = 8  # so many messages of the largest size may be there in parts


class Waiting(Protocol):
    """A link with messages that the engine has no room for."""

    def push(self) -> None:
        """Give the engine what it has room for."""


class ConnectionFlow:
    """The flow of one connection; used in the event loop's thread.

    The sessions' windows stay as large as AMQP allows: when a window fills up, Qpid JMS (2.10) does not send its last
    buffer until its next heartbeat. TCP bounds memory instead: nothing is read while too much is held.

    Args:
        max_message_size: In bytes.
        transport: Returns the client's socket, if it is there.
        is_congested: Returns whether the client reads too slowly.

    Attributes:
        held: Bytes of messages that have come and that Kafka does not have yet.
        unfinished: Bytes of messages of which a part has come.
        is_held_back: Whether the gateway reads nothing of the client.
        congested: The links that have messages for the client, which reads too slowly.
    """

    def __init__(
        self,
        max_message_size: int,
        transport: Callable[[], asyncio.Transport | None],
        is_congested: Callable[[], bool],
    ) -> None:
        self._most = max_message_size
        self._transport = transport
        self.is_congested = is_congested
        self._held_for: dict[Hashable, int] = {}
        self.held = 0
        self.unfinished = 0
        self.is_held_back = False
        self.congested: set[Waiting] = set()

    def hold(self, session: Hashable, size: int) -> None:
        """Count *size* bytes of messages that *session* has, and read no more while there are too many.

        The sessions continue by themselves, so reading does, too.
        """
        before = self._held_for.get(session, 0)
        size = max(size, -before)  # its end has let all of them go
        if before + size:
            self._held_for[session] = before + size
        else:
            self._held_for.pop(session, None)
        self.held += size
        is_too_much = self.held > (self._most // 2 if self.is_held_back else self._most)
        if self.is_held_back != is_too_much and (transport := self._transport()) is not None:
            self.is_held_back = is_too_much
            (transport.pause_reading if is_too_much else transport.resume_reading)()

    def let_go(self, session: Hashable) -> None:
        """Count the messages no more that *session*, which has ended, had."""
        self.hold(session, -self._held_for.get(session, 0))

    def hold_part(self, size: int) -> bool:
        """Count *size* bytes of a message that is not all there; return whether there may be more of them."""
        self.unfinished += size
        return self.unfinished <= UNFINISHED * self._most

    def push(self) -> None:
        """Resume the links that waited until the client reads."""
        links, self.congested = self.congested, set()
        for link in links:
            link.push()
