"""Transactional ids of an in-memory Kafka: producer ids, epochs that fence, and what a transaction has touched."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field

from kjms.testing._clock import Clock
from kjms.testing._groups import Group
from kjms.testing._logs import Log

__all__ = ["Transaction", "Transactions"]


@dataclass(eq=False)
class Transaction:
    """What the coordinator knows of a transactional id.

    Attributes:
        id: The transactional id.
        producer: The producer id, one for all producers of that transactional id.
        epoch: Grows with each of them; only the last may write.
        timeout: Seconds after which an open transaction is aborted.
        begun: When the open transaction wrote first, by the cluster's monotonic clock; None: none is open.
        logs: The partitions that it wrote to.
        groups: The groups that it commits offsets of.
    """

    id: str
    producer: int
    epoch: int = -1
    timeout: float = 60.0
    begun: float | None = None
    logs: dict[Log, None] = field(default_factory=dict)
    groups: dict[Group, None] = field(default_factory=dict)

    @property
    def deadline(self) -> float:
        """When it is aborted; infinite where none is open."""
        return float("inf") if self.begun is None else self.begun + self.timeout

    def touch(self, now: float) -> None:
        """Note that the open transaction does something: with the first of it, it begins."""
        if self.begun is None:
            self.begun = now

    def end(self, timestamp: int, *, commit: bool) -> None:
        """End the open transaction, if there is one."""
        for log in self.logs:
            log.finish(self.producer, timestamp, commit=commit)
        for group in self.groups:
            group.finish(self.producer, commit=commit)
        self.logs.clear()
        self.groups.clear()
        self.begun = None


class Transactions:
    """The transactional ids of a cluster, whose lock the caller holds.

    Args:
        clock: The cluster's clock.
        changed: Notified when a transaction ends.
    """

    def __init__(self, clock: Clock, changed: threading.Condition) -> None:
        self._clock = clock
        self._changed = changed
        self._by_id: dict[str, Transaction] = {}
        self._open: dict[Transaction, None] = {}
        self._producers = itertools.count(1_000)

    def due(self) -> float:
        """Return when the next open transaction times out; infinite where none is open."""
        return min((transaction.deadline for transaction in self._open), default=float("inf"))

    def begin(self, name: str, timeout: float) -> Transaction:
        """Return the transactional id *name* for a new producer, which shuts out those before and aborts for them."""
        transaction = self._by_id.get(name)
        if transaction is None:
            transaction = self._by_id[name] = Transaction(name, next(self._producers))
        if transaction.begun is not None:
            self.end(transaction, commit=False)
        transaction.epoch += 1
        transaction.timeout = timeout
        return transaction

    def opened(self, transaction: Transaction) -> None:
        """Note that something is done in *transaction*."""
        transaction.touch(self._clock.monotonic())
        self._open[transaction] = None

    def end(self, transaction: Transaction, *, commit: bool) -> None:
        """End what *transaction* has open."""
        self._open.pop(transaction, None)
        transaction.end(self._clock.milliseconds(), commit=commit)
        self._changed.notify_all()

    def expire(self, now: float) -> None:
        """Abort transactions that have timed out."""
        for transaction in list(self._open):
            if transaction.deadline <= now:
                transaction.epoch += 1  # so that the producer notices
                self.end(transaction, commit=False)

    def forget(self, log: Log) -> None:
        """Take *log*, whose topic was deleted, out of open transactions."""
        for transaction in self._open:
            transaction.logs.pop(log, None)
