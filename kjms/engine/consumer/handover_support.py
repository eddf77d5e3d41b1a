"""What the handover between processes does in a group consumer, and uses of it (`kjms.engine.handover.ports`)."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from kjms.engine.handover.handover import Handover

if TYPE_CHECKING:
    from kjms.engine.consumer.assignment import Assignment
    from kjms.engine.consumer.client import ConsumerClient
    from kjms.engine.consumer.dispatcher import Dispatcher
    from kjms.engine.consumer.fetch_positions import FetchPositions
    from kjms.engine.consumer.overflow import Overflow
    from kjms.engine.consumer.relocations import Relocations
    from kjms.engine.consumer.slots import StartedSlots
    from kjms.engine.consumer.stall import StallDetector
    from kjms.engine.consumer.transfer_reading import TransferReading
    from kjms.engine.handover.service import HandoverService
    from kjms.engine.statistics import HandoverStatistics

__all__ = ["HandoverSupport"]

CHUNK: Final = 500  # messages that one transaction moves, at the least
STUCK_SECONDS: Final = 30.0  # a consumer thread that has not run for so long keeps no messages from other processes


class HandoverSupport:
    """Connects a group consumer with its handover, if it has one; the methods are called with the lock.

    Args:
        assignment: The partitions that are held.
        dispatcher: Where messages wait, for peers, too.
        client: Holds the Kafka consumer.
        overflow: The topics of the queue.
        slots: Say whether messages can go anywhere here.
        stall: Knows when the consumer thread ran last.
        fetch: Opens partitions of the overflow topic.
        transfers: Opens transfer partitions.
        relocations: Move messages to peers.
        lock: The group consumer's lock.
        keeps_unmatched: Whether a message that no selector here wants stays.
        prefetch: How many messages are held ready.
        session_timeout: Seconds after which Kafka removes a silent member from the group.

    Attributes:
        handover: The handover; None: there is none.
    """

    def __init__(
        self,
        assignment: Assignment,
        dispatcher: Dispatcher,
        client: ConsumerClient,
        overflow: Overflow,
        slots: StartedSlots,
        stall: StallDetector,
        fetch: FetchPositions,
        transfers: TransferReading,
        relocations: Relocations,
        lock: threading.RLock,
        *,
        keeps_unmatched: bool,
        prefetch: int,
        session_timeout: float,
    ) -> None:
        self.handover: Handover | None = None
        self.assignment = assignment
        self.dispatcher = dispatcher
        self.sharing = dispatcher.sharing
        self.client = client
        self.overflow = overflow
        self.fetch = fetch
        self.transfers = transfers
        self.relocations = relocations
        self.lock = lock
        self.keeps_unmatched = keeps_unmatched
        self.prefetch = prefetch
        self.session_timeout = session_timeout
        self._slots = slots
        self._stall = stall

    def begin(self, service: HandoverService | None) -> None:
        """Take part through *service*, if there is one."""
        if service is not None:
            self.handover = Handover(self, service)

    # What the handover uses.

    @property
    def is_wanting(self) -> bool:
        """Whether a slot is started."""
        return self._slots.count > 0

    @property
    def is_stuck(self) -> bool:
        """Whether the consumer thread has not run for long, and not because it waits for sessions in a rebalance."""
        return time.monotonic() - self._stall.seen > STUCK_SECONDS + self.relocations.waits_seconds

    def numbers(self) -> list[int]:
        """Return the partitions of the topic that are held."""
        with self.lock:
            return self.assignment.numbers()

    def send_over(self) -> None:
        """Send messages to the other processes that they were given to."""
        leaving = self.sharing.leaving
        if leaving and self.handover is not None:
            self.sharing.leaving = []
            for at in range(0, len(leaving), CHUNK):  # so that each transaction takes as many as are good for it
                self.relocations.submit(self.handover.moves(leaving[at : at + CHUNK]))

    # What it does.

    def changed(self) -> None:
        """Note that a slot was started."""
        if self.handover is not None:
            self.handover.changed()

    def arrived(self, *, has_transfers: bool) -> None:
        """Note that records arrived."""
        if self.handover is not None:
            if has_transfers:
                self.handover.arrived()
            self.send_over()

    def give_up_expired(self) -> None:
        """Give up transfer partitions that may be another process's by now."""
        if self.handover is not None:
            self.handover.give_up_expired(time.monotonic())

    def statistics(self) -> HandoverStatistics | None:
        """Return what the handover does."""
        return None if self.handover is None else self.handover.statistics()
