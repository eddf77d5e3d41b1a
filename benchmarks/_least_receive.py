"""A receive in Python that does what AUTO_ACKNOWLEDGE asks of it, and nothing else."""

from __future__ import annotations

from threading import RLock

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Message as KafkaMessage

from kjms import Message, Queue
from kjms.bench._reading import BATCH
from kjms.mapping import decode
from kjms.txn.metadata import write_state
from kjms.txn.states import PartitionSettlement

__all__ = ["LeastReceiver", "LeastRecords"]

WINDOW = 64  # offsets from what was dispatched to the dispatch limit, as kjms has it for slow commits


class LeastRecords:
    """The records that a consumer reads, one by one."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._records: list[KafkaMessage] = []  # the next one last

    def next(self) -> KafkaMessage:
        """Wait for the next record, and return it."""
        while not self._records:
            self._records = self._consumer.consume(BATCH, 1.0)[::-1]
        record = self._records.pop()
        if record.error():
            raise RuntimeError(record.error())
        return record


class LeastReceiver:
    """Receives the messages of one partition, for one thread at a time, as little as JMS asks for.

    Args:
        consumer: It has read the first record.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._guard = RLock()
        self._settlement: PartitionSettlement[KafkaMessage] = PartitionSettlement()
        self._records = LeastRecords(consumer)
        self._last: KafkaMessage | None = None  # it is settled, and not committed

    def receive(self) -> Message:
        """Return the next message, when the one before is committed."""
        if not self._guard.acquire(False):
            raise RuntimeError("another thread receives")
        try:
            settlement = self._settlement
            if self._last is not None:
                self._commit(self._last)
                self._last = None
            record = self._records.next()
            offset = record.offset()
            settlement.read(offset, record)
            settlement.dispatch(offset)
            message = decode(record, Queue(record.topic()))
            settlement.settle(offset)
            self._last = record
            return message
        finally:
            self._guard.release()

    def _commit(self, record: KafkaMessage) -> None:
        snapshot = self._settlement.snapshot(WINDOW)
        metadata = write_state(snapshot.state)
        offset = TopicPartition(record.topic(), record.partition(), snapshot.state.committed_offset, metadata)
        for answer in self._consumer.commit(offsets=[offset], asynchronous=False):
            if answer.error is not None:
                raise RuntimeError(answer.error)
        self._settlement.committed(snapshot)
