"""Commit the work of transacted sessions; commits close together share one Kafka transaction."""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from kjms.engine.interrupts import Event
from kjms.engine.transactions.errors import AbortedError, LostError, OutgrownError, UnknownError
from kjms.engine.transactions.plan import Copy, Settler, TransactionPart
from kjms.engine.transactions.transactional_producer import PAUSE_SECONDS, TransactionalProducer
from kjms.engine.tuning import DEFAULTS, Tuning
from kjms.errors import JMSException

if TYPE_CHECKING:
    from kjms.engine.admin.bookkeeping import Bookkeeping
    from kjms.engine.consumer.delivery import Delivery
    from kjms.engine.kafka import TopicPartition

__all__ = ["GroupCommitter", "SessionTransaction"]

_log = logging.getLogger("kjms.transactions")

MOST: Final = 10_000  # records from which on a Kafka transaction takes in no other session's
TIMEOUT_SECONDS: Final = 20.0  # of attempts after the first failed producer, or while messages overflow
OVERFLOW_SECONDS: Final = 0.02  # between attempts while messages overflow
GATHERING: Final = 0.5  # of a transaction's time, at the most, the next one waits for as many sessions as there were
CALMING: Final = 0.8  # of the crowd is expected again, if fewer came
LONGEST_GATHERING: Final = 0.05  # seconds


class SessionTransaction:
    """The work of a session in one transaction.

    Args:
        copies: The messages that it sent, in their order.
        deliveries: The messages that it received.

    Attributes:
        is_handed_over: Whether it is the committer's to end.
        is_begun: Whether the committer's thread has begun with it.
    """

    def __init__(self, copies: Sequence[Copy], deliveries: Sequence[Delivery]) -> None:
        self.copies = copies
        self.deliveries = deliveries
        self.is_handed_over = self.is_begun = False
        self.is_singly = False  # whether to write its messages one by one
        self._failure: JMSException | None = None
        self._is_abandoned = False
        self._has_ended = Event()
        self.until = math.inf  # no attempt begins later; it counts from the first failure

    def parts(self) -> list[TransactionPart]:
        """Return the parts of the Kafka transaction: what is written, and what is settled of each group consumer."""
        by_settler: dict[Settler[Delivery], list[Delivery]] = {}
        for delivery in self.deliveries:
            assert delivery.slot is not None
            by_settler.setdefault(delivery.slot.reader.relocations, []).append(delivery)
        return [
            TransactionPart(self.copies),
            *(TransactionPart(settler=settler, deliveries=mine) for settler, mine in by_settler.items()),
        ]

    def end(self, failure: JMSException | None = None) -> None:
        """Record that it was committed, or why not."""
        self._failure = failure
        self._has_ended.set()
        if self._is_abandoned:
            self._give_back()

    def wait(self) -> JMSException | None:
        """Return when it has ended, with the reason if nothing of it was committed."""
        self._has_ended.wait()
        return self._failure

    def abandon(self) -> None:
        """Have what was received delivered again if nothing is committed: the session was interrupted."""
        self._is_abandoned = True
        if self._has_ended.is_set():
            self._give_back()

    def _give_back(self) -> None:
        """Have what was received delivered again, unless it was committed."""
        received, self.deliveries = self.deliveries, ()
        if self._failure is not None:
            for slot, mine in itertools.groupby(received, attrgetter("slot")):
                slot.reader.give_back(list(mine))


class GroupCommitter(TransactionalProducer[SessionTransaction]):
    """Commits the work of an engine's transacted sessions.

    A session that commits alone does so in its own thread. Several commit together, in the committer's.

    Args:
        config: librdkafka's settings of the producer.
        transactional_id: Its name in Kafka, of this engine alone.
        bookkeeping: Keeps a mark of each transaction that settles nothing.
        tuning: Its times and limits.
    """

    def __init__(
        self, config: Mapping[str, Any], transactional_id: str, bookkeeping: Bookkeeping, tuning: Tuning = DEFAULTS
    ) -> None:
        super().__init__(config, transactional_id, tuning)
        self._bookkeeping = bookkeeping
        self._has_marked = False
        self._alone = 0  # so many go one by one, after they failed together
        self._crowd = 1.0  # how many sessions commit at about the same time
        self._gathering = 0.0  # for how many seconds to wait for them

    def commit(self, work: SessionTransaction) -> JMSException | None:
        """Commit *work*: return None when all of it was committed, or the reason why nothing was."""
        try:
            work.is_handed_over = True
            is_accepted = (self._crowd <= 1 and self._carry_out_here(work)) or self._submit(work)
            return work.wait() if is_accepted else _was_closed()
        except BaseException:  # Ctrl-C
            work.abandon()
            if self._withdraw(work):
                work.end(JMSException("commit: interrupted"))
            raise

    def _withdraw(self, work: SessionTransaction) -> bool:
        """Take back *work*, which is not begun, if it was ever accepted; return whether nothing of it happens."""
        with self._changed:
            if work.is_begun:
                return False
            if work in self._units:
                self._units.remove(work)
            return True

    def close(self, seconds: float) -> None:
        super().close(seconds)
        with self._changed:
            left = list(self._units)
            self._units.clear()
        for work in left:
            work.end(_was_closed())
        if self._has_marked:
            self._bookkeeping.wipe_mark(self._id)

    def _take(self) -> list[SessionTransaction]:
        if self._alone:
            self._alone -= 1
            work = self._units.popleft()
            work.is_begun = True
            return [work]
        # Sessions whose last transaction has just ended commit again soon, and would wait for all of this one.
        self._changed.wait_for(lambda: len(self._units) >= self._crowd or self._closing, self._gathering)
        self._crowd = max(float(len(self._units)), self._crowd * CALMING)
        batch = [self._units.popleft()]
        count = len(batch[0].copies)
        while self._units and count < MOST:
            batch.append(self._units.popleft())
            count += len(batch[-1].copies)
        for work in batch:
            work.is_begun = True
        return batch

    def _carry_out(self, batch: list[SessionTransaction]) -> None:
        parts = [part for work in batch for part in work.parts()]
        if not any(part.settler is not None and part.settler.is_kept for part in parts):
            self._has_marked = True
            parts.insert(0, TransactionPart([self._bookkeeping.mark(self._id)]))  # the first record shows the outcome
        begin = time.monotonic()
        self._transact(parts, is_singly=batch[0].is_singly)
        self._gathering = min(GATHERING * (time.monotonic() - begin), LONGEST_GATHERING)
        for work in batch:
            work.end()

    def _is_visible(self, first: TopicPartition | None) -> bool:
        if first is None:
            raise UnknownError("transaction outcome unknown: another process has the messages that it received")
        return self._bookkeeping.is_visible(first)

    def _failed(self, batch: list[SessionTransaction], error: Exception) -> None:
        """End the work that caused *error*, or all if none did; the rest is committed in transactions of its own."""
        failure = error.cause if isinstance(error, AbortedError) else error
        reason = failure if isinstance(failure, JMSException) else JMSException(f"commit: {failure}", None, failure)
        if isinstance(reason, OutgrownError) or (isinstance(error, AbortedError) and error.is_passing):
            now = time.monotonic()
            culprits = [work for work in batch if self._closing or now > work.until]
            for work in batch:
                work.until = min(work.until, now + TIMEOUT_SECONDS)
            time.sleep(OVERFLOW_SECONDS if isinstance(reason, OutgrownError) else PAUSE_SECONDS)
        else:
            culprits = self._culprits(batch, error)
        for work in batch:
            if work in culprits:
                work.end(reason)
            elif not self._submit(work):
                work.end(_was_closed())
        with self._changed:
            self._alone = max(self._alone, len(self._units))  # so that none fails, or waits, because of another

    def _culprits(self, batch: list[SessionTransaction], error: Exception) -> list[SessionTransaction]:
        """Return the work that caused *error*; none, if that is to be found out."""
        if isinstance(error, AbortedError) and isinstance(error.cause, LostError):
            lost = set(error.cause.deliveries)
            return [work for work in batch if not lost.isdisjoint(work.deliveries)]
        if len(batch) > 1 and not self._closing:
            return []
        work = batch[0]
        if isinstance(error, AbortedError) and error.is_too_large and len(work.copies) > 1 and not work.is_singly:
            work.is_singly = True
            return []
        return batch


def _was_closed() -> JMSException:
    return JMSException("commit: the connection was closed")
