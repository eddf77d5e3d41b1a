"""What the consumer thread does now and then: commit, prove that partitions are held, and keep copies of settlement."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from kjms.engine.consumer.offset_committer import TICK_SECONDS
from kjms.engine.kafka import jms_error

if TYPE_CHECKING:
    from kjms.engine.consumer.assignment import Assignment
    from kjms.engine.consumer.client import ConsumerClient
    from kjms.engine.consumer.delivery import AssignedPartition
    from kjms.engine.consumer.dispatcher import Dispatcher
    from kjms.engine.consumer.offset_committer import OffsetCommitter
    from kjms.engine.consumer.overflow import Overflow
    from kjms.engine.consumer.stall import StallDetector

__all__ = ["Upkeep"]

_log = logging.getLogger("kjms.consumer")

COPY_SECONDS: Final = 60.0  # between the copies of a settlement that changes
REFRESH_SECONDS: Final = 3600.0  # between commits of a settlement that does not


class Upkeep:
    """Looks after the settlement of a group consumer; used by its thread, without the lock.

    Args:
        assignment: The partitions that are held.
        committer: Commits.
        client: Its `turn` is held during a commit.
        dispatcher: Is notified that messages may be dispatched again.
        stall: Says whether the partitions are certain.
        overflow: Keeps copies, and the log of redeliveries.
        lock: The group consumer's lock.
    """

    def __init__(
        self,
        assignment: Assignment,
        committer: OffsetCommitter,
        client: ConsumerClient,
        dispatcher: Dispatcher,
        stall: StallDetector,
        overflow: Overflow,
        lock: threading.RLock,
    ) -> None:
        self._assignment = assignment
        self._committer = committer
        self._client = client
        self._dispatcher = dispatcher
        self._stall = stall
        self._overflow = overflow
        self._lock = lock
        self._committed_at = self._copy_at = self._refresh_at = 0.0

    def begin(self) -> None:
        """Begin with a new client."""
        self._committed_at = now = time.monotonic()
        self._copy_at, self._refresh_at = now + COPY_SECONDS, now + REFRESH_SECONDS

    def prove(self) -> None:
        """After a long sleep of the process, dispatch nothing until a commit proves that the partitions are held."""
        with self._lock:
            if self._stall.tick(time.monotonic()):
                return
        with self._client.turn:
            error, _ = self._committer.commit(is_proof=True)  # if they are not, the next poll takes them away
        if error is None:
            self.proved()

    def proved(self) -> None:
        """Note that what is held now is surely this process's; wake consumers, also those that were given some back."""
        with self._lock:
            self._stall.is_certain = True
            self._dispatcher.selector_queues.wake_all()

    def tick(self, now: float) -> bool:
        """Commit if that is wanted, or has not been done for a while by *now*; return whether it was."""
        if not self._committer.is_wanted and now - self._committed_at < TICK_SECONDS:
            return False
        self.commit(is_proof=now >= self._refresh_at)  # the broker forgets what is not committed for days
        self._committed_at = now
        self.write_log()
        if now >= self._copy_at:
            self.keep_copies(list(self._assignment))
            self._copy_at = now + COPY_SECONDS
        if now >= self._refresh_at:
            self._refresh_at = now + REFRESH_SECONDS
        return True

    def commit(self, *, is_proof: bool = False) -> None:
        """Commit once; a thread that needs to know flushes, too, and gets the error."""
        if not self._assignment.is_kept:
            return
        with self._client.turn:
            error, _ = self._committer.commit(is_proof=is_proof)
        if error is not None:
            _log.debug("%s", jms_error(error, f"acknowledge messages of {self._assignment.name}"))

    def write_log(self) -> None:
        """Write down what is not yet in the log of redeliveries."""
        self._overflow.redelivery_log.write()

    def keep_copies(self, partitions: Collection[AssignedPartition]) -> None:
        """Write down, for the day when the broker forgets it, what is committed of *partitions*."""
        with self._lock:
            offsets = [partition.kept for partition in partitions if partition.kept is not None]
            for partition in partitions:
                partition.kept = None
        if offsets:
            self._overflow.keep(offsets)
