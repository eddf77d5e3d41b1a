"""Commits what transacted sessions did: what comes close together shares one Kafka transaction."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kjms.engine.transactions.transactional_producer import (
    PAUSE_SECONDS,
    AbortedError,
    Copy,
    LostError,
    OutgrownError,
    Part,
    TransactionalProducer,
    UnknownError,
)
from kjms.engine.tuning import DEFAULTS, Tuning
from kjms.errors import JMSException

if TYPE_CHECKING:
    from kjms.engine.admin.bookkeeping import Bookkeeping
    from kjms.engine.consumer.delivery import Delivery
    from kjms.engine.consumer.group_consumer import GroupConsumer
    from kjms.engine.kafka import TopicPartition

__all__ = ["GroupCommitter", "Work"]

_log = logging.getLogger("kjms.transactions")

MOST: Final = 10_000  # records from which on a Kafka transaction takes in no other session's
PATIENCE_SECONDS: Final = 20.0  # for what passes: a producer at its end, a settlement that needs room
ROOM_SECONDS: Final = 0.02  # between looks for that room
GATHERING: Final = 0.5  # of a transaction's time, at the most, the next one waits for as many sessions as there were
CALMING: Final = 0.8  # of the crowd is expected again, if fewer came
LONGEST_GATHERING: Final = 0.05  # seconds


class Work:
    """What a session did in one transaction.

    Args:
        copies: The messages that it sent, in their order.
        deliveries: The messages that it received.
    """

    def __init__(self, copies: Sequence[Copy], deliveries: Sequence[Delivery]) -> None:
        self.copies = copies
        self.deliveries = deliveries
        self.is_singly = False  # whether its messages are written one after the other
        self._failure: JMSException | None = None
        self._is_over = threading.Event()
        self.until = time.monotonic() + PATIENCE_SECONDS

    def parts(self) -> list[Part]:
        """Return it as parts of a Kafka transaction: what is written, and what is settled of each reader."""
        by_reader: dict[GroupConsumer, list[Delivery]] = {}
        for delivery in self.deliveries:
            assert delivery.slot is not None
            by_reader.setdefault(delivery.slot.reader, []).append(delivery)
        return [Part(self.copies), *(Part(reader=reader, deliveries=mine) for reader, mine in by_reader.items())]

    def end(self, failure: JMSException | None = None) -> None:
        """Note that it came through, or did not."""
        self._failure = failure
        self._is_over.set()

    def wait(self) -> JMSException | None:
        """Return when it is over, with the reason if nothing of it came through."""
        self._is_over.wait()
        return self._failure


class GroupCommitter(TransactionalProducer[Work]):
    """The engine's committer, with a thread and a transactional producer of its own from the first commit on.

    Args:
        config: librdkafka's settings of the producer.
        transactional_id: Its name in Kafka, of this engine alone.
        bookkeeping: Where a transaction that settles nothing leaves its mark.
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
        self._gathering = 0.0  # for how many seconds it is worth while to wait for them

    def commit(self, work: Work) -> JMSException | None:
        """Return when all of *work* came through, or nothing did; then with the reason."""
        return work.wait() if self._submit(work) else JMSException("commit: the connection is closed")

    def close(self, seconds: float) -> None:
        super().close(seconds)
        with self._news:
            left = list(self._units)
            self._units.clear()
        for work in left:
            work.end(JMSException("commit: the connection was closed"))
        if self._has_marked:
            self._bookkeeping.wipe_mark(self._id)

    def _take(self) -> list[Work]:
        if self._alone:
            self._alone -= 1
            return [self._units.popleft()]
        # Those whose last transaction has just ended will be here in a moment, and would wait for all of this one.
        self._news.wait_for(lambda: len(self._units) >= self._crowd or self._closing, self._gathering)
        self._crowd = max(float(len(self._units)), self._crowd * CALMING)
        batch = [self._units.popleft()]
        count = len(batch[0].copies)
        while self._units and count < MOST:
            batch.append(self._units.popleft())
            count += len(batch[-1].copies)
        return batch

    def _carry_out(self, batch: list[Work]) -> None:
        parts = [part for work in batch for part in work.parts()]
        if not any(part.reader is not None and part.reader.is_kept for part in parts):
            self._has_marked = True
            parts.insert(0, Part([self._bookkeeping.mark(self._id)]))  # what is written first shows what became of it
        begin = time.monotonic()
        self._transact(parts, is_singly=batch[0].is_singly)
        self._gathering = min(GATHERING * (time.monotonic() - begin), LONGEST_GATHERING)
        for work in batch:
            work.end()

    def _is_visible(self, first: TopicPartition | None) -> bool:
        if first is None:
            raise UnknownError("whether it was committed is not known: what it received went to others meanwhile")
        return self._bookkeeping.is_visible(first)

    def _failed(self, batch: list[Work], error: Exception) -> None:
        """End those whose fault it was, or all if it was nobody's; the others go on, in a transaction of their own."""
        failure = error.cause if isinstance(error, AbortedError) else error
        reason = failure if isinstance(failure, JMSException) else JMSException(f"commit: {failure}", None, failure)
        if isinstance(reason, OutgrownError) or (isinstance(error, AbortedError) and error.is_passing):
            culprits = [work for work in batch if self._closing or time.monotonic() > work.until]
            time.sleep(ROOM_SECONDS if isinstance(reason, OutgrownError) else PAUSE_SECONDS)
        else:
            culprits = self._culprits(batch, error)
        with self._news:
            self._units.extend(work for work in batch if work not in culprits)
            self._alone = max(self._alone, len(self._units))  # so that nobody fails, or waits, for another's sake
        for work in culprits:
            work.end(reason)

    def _culprits(self, batch: list[Work], error: Exception) -> list[Work]:
        """Return whose fault it was; nobody's, if that is to be found out."""
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
