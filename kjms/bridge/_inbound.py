"""Messages from the other broker, between the event loop that receives them and the bridge's thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from proton import Delivery

from kjms.bridge._peer_connection import InboundDelivery, PeerConnection

__all__ = ["InboundQueue"]


class InboundQueue:
    """Messages that came, and the credit for more.

    Args:
        limit: How many messages may be here that are not settled.
        wake: Called in the loop's thread when there is a message again.
    """

    def __init__(self, limit: int, wake: Callable[[], None]) -> None:
        self.limit = limit
        self._wake = wake
        self._arrived: deque[InboundDelivery] = deque()  # that were not taken yet
        self._unsettled: set[InboundDelivery] = set()  # of the connection that there is

    def take(self, most: int, most_bytes: int) -> list[InboundDelivery]:
        """Return messages that came; for the bridge's thread."""
        taken: list[InboundDelivery] = []
        while most > len(taken) and most_bytes > 0:
            try:
                taken.append(self._arrived.popleft())
            except IndexError:  # there are no more, or the connection was lost just now
                break
            most_bytes -= len(taken[-1].data)
        return taken

    def arrived(self, delivery: InboundDelivery, connection: PeerConnection | None) -> None:
        """Keep a message that came, and let the broker send more."""
        self._unsettled.add(delivery)
        self._arrived.append(delivery)
        if len(self._arrived) == 1:
            self._wake()
        self.grant(connection)

    def settle(self, deliveries: Sequence[InboundDelivery], state: int, connection: PeerConnection) -> None:
        """Settle messages; those of a connection that was lost are passed over."""
        for delivery in deliveries:
            if delivery in self._unsettled:
                self._unsettled.discard(delivery)
                connection.settle(delivery, state)

    def grant(self, connection: PeerConnection | None) -> bool:
        """Let the broker send more, when half of what it may is used up; return whether that is to be sent."""
        if connection is None or not connection.is_attached:
            return False
        there = connection.credit + len(self._unsettled)
        if there <= self.limit // 2 or (there < self.limit and connection.credit == 0):
            connection.grant(self.limit - there)
            return True
        return False

    def release(self, connection: PeerConnection) -> None:
        """Give back what is not settled: the connection is about to close."""
        for delivery in self._unsettled:
            connection.settle(delivery, Delivery.RELEASED)

    def lost(self) -> None:
        """Forget the messages of a connection that was lost: the broker delivers them again."""
        self._arrived.clear()
        self._unsettled.clear()
