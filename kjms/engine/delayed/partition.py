"""A partition with delayed messages while this process serves it, and its transactional producer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kjms.engine.delayed.periodic import PeriodicMessages
from kjms.engine.delayed.scan import Requests, Scan, fold
from kjms.engine.kafka import KafkaMessage, TopicPartition
from kjms.engine.skipped import SkippedRecords
from kjms.engine.transactions.errors import AbortedError, UnknownError
from kjms.engine.transactions.plan import Copy, TransactionPart
from kjms.engine.transactions.transactional_producer import TransactionalProducer
from kjms.errors import JMSException
from kjms.mapping.delayed import REQUESTS, Note, read
from kjms.mapping.internal import MalformedError
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
        self.disputed: list[Note] = []  # that this process has not written while it served the partition
        self._own_notes: Counter[bytes | None] = Counter()  # that were written, and not read yet
        self._disbelieved: set[int] = set()

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
        return 0 if self.requests or self.disputed else min(self.waiting.next_due, self.periodic.next_due)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is to be done but to wait, and little has to be read to begin again."""
        is_idle = (
            not self.requests
            and not self.disputed
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

    def read(self, record: KafkaMessage, skipped: SkippedRecords) -> None:
        """Take in a record of the log, or the end of it; what cannot be read, or is not to be believed, is skipped."""
        error, offset = record.error(), record.offset() or 0
        if error is not None:  # the end
            self.position = max(self.position, offset)
            return
        self.position = max(self.position, offset + 1)
        try:
            found = read(record)
            if isinstance(found, Note) and found.kind not in REQUESTS:
                self._check(offset, found, record.value())
            fold(self.waiting, record, found, self.requests, self.periodic)
        except MalformedError as failure:
            skipped.add(record.topic(), record.partition(), offset, failure)

    def _check(self, offset: int, note: Note, value: bytes | None) -> None:
        """Raise MalformedError if the note at *offset* is of a program other than the partition's owners.

        While this process has the partition's producer, no other owner can write. What was written before it was
        opened is believed: it is of former owners.
        """
        if not self.producer.is_open or offset < self.log_end:
            return
        if self._own_notes[value]:
            self._own_notes[value] -= 1
            return
        self._disbelieved.add(offset)
        self.disputed.append(note)
        raise MalformedError("it settles messages, and the process that serves the partition has not written it")

    def write(self, notes: Sequence[Copy], copies: Sequence[Copy] = ()) -> None:
        """Write *copies* and *notes*, all or none of them.

        Raises:
            AbortedError: None was written.
            UnknownError: The outcome is unknown; the log decides.
        """
        self.producer.write([*copies, *notes])
        self._own_notes.update(note.record.value for note in notes)

    def open(self) -> None:
        """Fence the producers of other owners; until then they may have written, and are believed.

        Raises:
            KafkaException: The broker does not answer.
        """
        self.producer.open()
        for note in self.disputed:
            self.settle(note.offsets)
            self.periodic.advance(note.progress)
        self.disputed.clear()
        self._disbelieved.clear()
        self._own_notes.clear()

    def scan_again(self, config: Mapping[str, Any], topic: str) -> None:
        """Begin to read the log again, for what did not fit into memory."""
        self.scan = Scan(config, topic, self.number, self.waiting, self._disbelieved)
        self.scan_settled.clear()

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
