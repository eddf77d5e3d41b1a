"""The consumers that one source serves in this process: which are started, and how long none has been."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kjms.engine.consumer.consumer_slot import ConsumerSlot
from kjms.engine.consumer.dispatcher import Dispatcher

if TYPE_CHECKING:
    from kjms.engine.consumer.assignment import Assignment
    from kjms.engine.consumer.in_flight import InFlight

__all__ = ["StartedSlots"]


class StartedSlots:
    """Starts and stops consumer slots; its caller holds the lock of the source.

    Args:
        dispatcher: Shares out the messages.
        assignment: The partitions that are held.
        in_flight: Counts what sessions have.
        grace_seconds: For how long the consumer thread continues to read when no slot is started.

    Attributes:
        count: How many are started.
    """

    def __init__(
        self, dispatcher: Dispatcher, assignment: Assignment, in_flight: InFlight, grace_seconds: float
    ) -> None:
        self._dispatcher = dispatcher
        self._assignment = assignment
        self._in_flight = in_flight
        self._grace_seconds = grace_seconds
        self._idle_since = 0.0
        self.count = 0

    def start(self, slot: ConsumerSlot) -> None:
        """Let messages come to *slot*."""
        slot.is_started = True
        slot.taken_at, slot.idle_since = 0.0, time.monotonic()
        self.count += 1
        ConsumerSlot.starts += 1
        self._idle_since = 0.0
        if self.count == 2:
            # The consumer that was alone may wait though its session is busy.
            self._dispatcher.selector_queues.wake_all()
        self._dispatcher.join(slot)

    def stop(self, slot: ConsumerSlot) -> None:
        """Hold messages back from *slot*."""
        slot.is_started = False
        self.count -= 1
        if not self.count:
            self._idle_since = time.monotonic()
        self._dispatcher.leave(slot)

    @property
    def has_messages_in_flight(self) -> bool:
        """Whether a session has messages that it may still settle or give back."""
        self._in_flight.collect()
        return self._dispatcher.in_flight > 0 and any(
            delivery.is_in_flight for partition in self._assignment for _, delivery in partition.settlement.messages()
        )

    @property
    def may_rest(self) -> bool:
        """Whether no slot has been started for a while, and no session has messages."""
        idle_since = self._idle_since
        return (
            idle_since > 0 and time.monotonic() - idle_since > self._grace_seconds and not self.has_messages_in_flight
        )
