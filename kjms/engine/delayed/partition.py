"""A partition with delayed messages while this process serves it, and its transactional producer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kjms.engine.delayed.periodic import PeriodicMessages
from kjms.engine.delayed.scan import Requests, Scan
from kjms.engine.kafka import KafkaMessage, TopicPartition
from kjms.engine.transactions.errors import AbortedError, UnknownError
from kjms.engine.transactions.plan import Copy, TransactionPart
from kjms.engine.transactions.transactional_producer import TransactionalProducer
from kjms.errors import JMSException
from kjms.txn.waiting import Waiting

__all__ = ["PAUSE_SECONDS", "DelayedPartition", "PartitionProducer"]

PAUSE_SECONDS: Final = 0.1  # after a failure; twice as long each time
FEW: Final = 2_000  # records that are read again after a rest


class PartitionProducer(TransactionalProducer[None]):
    """The transactional producer of one partition, used by one thread; opening it fences all others of its name.

    Args:
        config: librdkafka's settings of the producer.
        transactional_id: Its name in Kafka.
    """

    _was_left = False

    @property
    def is_open(self) -> bool:
        """Whether it can be used; after some errors it has to be opened again."""
        return self._producer is not None

    def open(self) -> None:
        """Fence all others of its name; the broker aborts what they left open.

        Raises:
            KafkaException: The broker does not answer.
        """
        self._producer = None
        self._begin_anew()
        self._was_left = False

    def write(self, copies: Sequence[Copy]) -> None:
        """Write *copies*, all or none of them.

        Raises:
            AbortedError: None was written.
            UnknownError: The outcome is unknown; the log decides.
        """
        if self._was_left:  # another process may own the partition now, and must not be fenced
            raise AbortedError(JMSException("write: the producer has to be opened again"), is_passing=True)
        self._transact([TransactionPart(copies)])

    def drop(self) -> None:
        """Use it no more."""
        self._producer = None

    def _leave(self) -> None:
        super()._leave()
        self._was_left = True

    def _was_committed(self, commits: object, first: TopicPartition | None) -> bool:
        self._producer = None
        raise UnknownError("transaction outcome unknown; the log decides")


class DelayedPartition:
    """A partition while this process serves it."""

    def __init__(self, number: int, start: int, producer: PartitionProducer, limit: int) -> None:
        self.number = number
        self.producer = producer
        self.waiting: Waiting[KafkaMessage] = Waiting(limit)
        self.periodic: PeriodicMessages[KafkaMessage] = PeriodicMessages()
        self.position = start
        self.log_end = -1  # when the producer was opened; before all until there is read, nothing is moved
        self.requests = Requests()
        self.scan: Scan | None = None
        self.scan_settled: list[int] = []  # since it began
        self.singly = 0  # so many are moved one by one, after they were too large together
        self.lean: set[int] = set()  # whose copies leave out where they waited, to be smaller
        self.paused_until = 0.0
        self.pause = PAUSE_SECONDS
        self.committed = start
        self.deleted = -1

    @property
    def is_served(self) -> bool:
        """Whether what is due can be moved."""
        return self.producer.is_open and self.position >= self.log_end

    @property
    def has_content(self) -> bool:
        """Whether there is anything that the owner has to see to, be it later."""
        return bool(len(self.waiting) or self.waiting.forgotten or self.requests or len(self.periodic))

    @property
    def next_due(self) -> int:
        """When there is something to do, in milliseconds since the epoch; 0: now; NEVER: there is nothing."""
        return 0 if self.requests else min(self.waiting.next_due, self.periodic.next_due)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is to be done but to wait, and little has to be read to begin again."""
        is_idle = (
            not self.requests
            and self.scan is None
            and not self.waiting.forgotten
            and self.periodic.is_settled
            and self.paused_until == 0.0
        )
        return is_idle and self.position >= self.log_end and self.position - self.committed_offset <= FEW

    @property
    def committed_offset(self) -> int:
        """Where another process would have to begin to read."""
        return min(self.waiting.committed_offset(self.position), self.periodic.first_offset)

    def settle(self, offsets: Iterable[int]) -> None:
        """Record that the messages at *offsets* wait no more."""
        for offset in offsets:
            self.waiting.settle(offset)
            self.requests.early.discard(offset)
            self.periodic.settle(offset)
            if self.scan is not None:
                self.scan_settled.append(offset)

    def drop(self) -> None:
        """Serve it no more."""
        self.producer.drop()
        if self.scan is not None:
            self.scan.close()
            self.scan = None
