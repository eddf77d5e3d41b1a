"""How much the consumer thread reads, how long a poll may take, and what the thread waits for between polls."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from kjms.engine.consumer.offset_committer import TICK_SECONDS
from kjms.engine.consumer.peer_sharing import BUSY_SECONDS

if TYPE_CHECKING:
    from kjms.engine.consumer.client import ConsumerClient
    from kjms.engine.consumer.dispatcher import Dispatcher
    from kjms.engine.consumer.in_flight import InFlight
    from kjms.engine.consumer.intake import RecordIntake
    from kjms.engine.consumer.lifecycle import Lifecycle
    from kjms.engine.consumer.offset_committer import OffsetCommitter
    from kjms.engine.handover.handover import Handover
    from kjms.engine.tuning import Tuning

__all__ = ["BATCH", "FlowControl"]

BATCH: Final = 500  # records taken from librdkafka at once; more gains nothing
SHORT_POLL_SECONDS: Final = 0.005  # a poll holds up commits, so it is short while messages are in flight
HELD_SHARE: Final = 0.02  # of the time since messages were dispatched: so long a poll may be while they are in flight
IDLE_POLL_SECONDS: Final = 0.5  # closing waits for a poll to end, and a stall is noticed after four times that
IDLE_SHARE: Final = 0.05  # of the time since something happened: so long a poll may be then
PAUSE_SECONDS: Final = 1.0  # a pause discards what was fetched, so only a long stall is worth one


class FlowControl:
    """Decides for the consumer thread; takes the group consumer's lock, and waits for its condition.

    The thread blocks in a poll only while a consumer waits for messages; else it waits here, and a thread that has
    something to commit finds the client free.

    Args:
        dispatcher: Holds messages ready.
        intake: Says how many that should be.
        in_flight: Counts what sessions have.
        committer: Says whether a commit is wanted.
        client: Says whether other threads wait for its `turn`.
        lifecycle: Says whether the thread is to end.
        handover: Knows what other processes have asked for; None: nothing.
        tuning: Times and limits.
        lock: The group consumer's lock.
        changed: Its condition.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        intake: RecordIntake,
        in_flight: InFlight,
        committer: OffsetCommitter,
        client: ConsumerClient,
        lifecycle: Lifecycle,
        handover: Handover | None,
        tuning: Tuning,
        lock: threading.RLock,
        changed: threading.Condition,
    ) -> None:
        self._dispatcher = dispatcher
        self._intake = intake
        self._in_flight = in_flight
        self._committer = committer
        self._client = client
        self._lifecycle = lifecycle
        self._handover = handover
        self._tuning = tuning
        self._lock = lock
        self._changed = changed
        self._capacity = intake.limit  # as many are held ready, with those that other processes have asked for
        self._is_to_share = False  # whether it is to be looked soon whether consumers here are busy
        self._active_at = time.monotonic()  # when a message was here, a peer, or a thread that waited for the client
        self._dispatched_at = self._active_at  # when messages were dispatched, or a thread waited for the client
        self._full_since = 0.0  # when the dispatcher was first seen to be full

    def is_full(self) -> bool:
        """Return whether no more is to be read."""
        with self._lock:
            return self._dispatcher.is_full(self._capacity)

    def has_space(self) -> bool:
        """Return whether what was full is to be read on."""
        with self._lock:
            return self._lifecycle.is_closed or self._dispatcher.has_room(self._capacity)

    def room(self) -> int:
        """Return how many records to take at once: there is space."""
        self._full_since = 0.0
        room = self._capacity - self._dispatcher.held
        return min(BATCH, room if room > 0 else self._capacity)  # a consumer waits for what comes behind

    def share(self) -> None:
        """Let other processes have what consumers here have no time for."""
        if self._handover is not None and self._handover.is_sharing:
            with self._lock:
                self._is_to_share = self._handover.share(time.monotonic())
                self._capacity = self._intake.limit + self._dispatcher.sharing.room
        else:
            self._is_to_share, self._capacity = False, self._intake.limit

    def release(self) -> None:
        """Make ready what is due."""
        if self._dispatcher.delayed.next_due:
            with self._lock:
                self._dispatcher.release(self._tuning.now_ms())

    def rank(self) -> None:
        """Rank messages that wait for slow consumers."""
        if self._dispatcher.ranking.has_unranked:
            with self._lock:
                self._dispatcher.ranking.look()

    def end_stuck_rotations(self) -> None:
        """Let other consumers have what is ready, or left of a batch, where the one that has it is busy."""
        dispatcher = self._dispatcher
        with self._lock:
            if dispatcher.selector_queues.end_stuck_rotations(len(dispatcher.batches)):
                dispatcher.batches.recall()
                dispatcher.selector_queues.wake_others()

    def wake_others(self) -> None:
        """Let others have what consumers do not come for, woken or given it back: called now and then."""
        with self._lock:
            self._dispatcher.release_returned(time.monotonic())
            self._dispatcher.selector_queues.wake_others()

    def poll_seconds(self) -> float:
        """Return how long a poll may last: no thread can commit meanwhile.

        It lasts longer the longer nothing has happened. A message ends it at once; closing waits for its end. While
        sessions have messages, a commit waits for it by a small share of the time that they have had them, no more.
        """
        dispatcher, now = self._dispatcher, time.monotonic()
        with self._lock:
            is_active, self._in_flight.is_active = self._in_flight.is_active, False
            is_empty = not (is_active or dispatcher.in_flight or dispatcher.held or dispatcher.kept_back)
            if not is_empty or dispatcher.sharing.peers:
                self._active_at = now
            if is_active:
                self._dispatched_at = now
            if not dispatcher.is_awaited:
                return 0
            if is_active or dispatcher.in_flight or dispatcher.held:
                return max(min((now - self._dispatched_at) * HELD_SHARE, self._until_due()), SHORT_POLL_SECONDS)
            return max(self._until_due(), min((now - self._active_at) * IDLE_SHARE, IDLE_POLL_SECONDS))

    def wait_for_demand(self) -> None:
        """Wait until a consumer waits, half of what was ready is taken, or it is time to look after the group."""
        client, committer = self._client, self._committer
        with self._lock:
            if client.waiting:  # let them, before the next poll holds the client
                self._active_at = self._dispatched_at = time.monotonic()
                client.is_awaited = True
                self._changed.wait_for(lambda: not client.waiting, SHORT_POLL_SECONDS)
            deadline = time.monotonic() + self._until_due()
            while not committer.is_wanted and not self._wants_more():
                urgent = committer.urgent
                has_changed = self._changed.wait(self._until_due())
                if not has_changed or urgent == committer.urgent or time.monotonic() > deadline:
                    return  # but not where a session has settled a message and committed it itself

    def wait_for_space(self) -> bool:
        """Wait a while until consumers have taken half of what is ready; return whether a pause is worthwhile."""
        with self._lock:
            self.wait_for_change()
            self._full_since = self._full_since or time.monotonic()
            is_long = time.monotonic() - self._full_since >= PAUSE_SECONDS
            return is_long and not (self.has_space() or self._committer.is_wanted)

    def wait_for_change(self) -> None:
        """Wait until there is space, a commit is wanted, or a message is due."""
        with self._lock:
            self._changed.wait_for(lambda: self.has_space() or self._committer.is_wanted, self._until_due())

    def wait_after_failure(self, seconds: float) -> None:
        """Report a failure to consumers, and wait for *seconds*, or until closing is asked for."""
        with self._lock:
            self._dispatcher.selector_queues.wake_all()
            self._changed.wait_for(lambda: self._lifecycle.is_closed, seconds)

    def _wants_more(self) -> bool:
        """Return whether a consumer waits, here or elsewhere; what is ready is not for one that waits here."""
        dispatcher = self._dispatcher
        if dispatcher.selector_queues.is_waiting:
            return True
        return dispatcher.is_awaited and dispatcher.held <= self._capacity >> 1

    def _until_due(self) -> float:
        """Return for how many seconds to wait at the most."""
        due = self._dispatcher.delayed.next_due
        most = BUSY_SECONDS if self._is_to_share else TICK_SECONDS
        if self._dispatcher.selector_queues.is_rotating:
            most = SHORT_POLL_SECONDS  # the consumer that has the batch may get stuck
        return min(most, max(due / 1000 - self._tuning.wall_clock(), 0)) if due else most
