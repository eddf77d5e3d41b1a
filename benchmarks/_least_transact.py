"""A transacted session in Python that does what JMS asks of it, and nothing else."""

from __future__ import annotations

from collections.abc import Collection
from threading import RLock

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka import Message as KafkaMessage

from benchmarks._least_receive import LeastRecords
from benchmarks._least_send import LeastMapping, LeastMessage
from kjms import Message, Queue
from kjms.bench._stage import Stage
from kjms.bench.transactions import QUICK, WAIT
from kjms.mapping import decode
from kjms.txn.metadata import write_state
from kjms.txn.states import PartitionSettlement

__all__ = ["LeastTransacted", "commit_transaction", "transactional_producer"]

WINDOW = 16_384  # offsets from what was dispatched to the dispatch limit, as kjms has it for quick commits


class LeastTransacted:
    """Receives the messages of one partition and sends others, for one thread at a time, as little as JMS asks for.

    What it sends is kept until the commit, so that a session that takes long holds up no consumer of the target. It
    is confirmed before the settlement goes with it: the source is not touched where the target takes nothing.

    Args:
        consumer: It reads one partition.
        topic: The topic of that.
        producer: It is transactional.
        target: The topic that is sent to.
    """

    def __init__(self, consumer: Consumer, topic: str, producer: Producer, target: str) -> None:
        self._consumer = consumer
        self._topic = topic
        self._producer = producer
        self._target = target
        self._destination = Queue(topic)
        self._guard = RLock()
        self._mapping = LeastMapping()
        self._settlement: PartitionSettlement[KafkaMessage] = PartitionSettlement()
        self._records = LeastRecords(consumer)
        self._received: list[int] = []
        self._sent: list[LeastMessage] = []
        self._headers: list[list[tuple[str, bytes]]] = []
        self._confirmed = 0

    def receive(self) -> Message:
        """Return the next message."""
        if not self._guard.acquire(False):
            raise RuntimeError("another thread uses the session")
        try:
            record = self._records.next()
            offset = record.offset()
            self._settlement.read(offset, record)
            self._settlement.dispatch(offset)
            self._received.append(offset)
            return decode(record, self._destination)
        finally:
            self._guard.release()

    def send(self, message: LeastMessage) -> None:
        """Send *message* with the next commit."""
        if not self._guard.acquire(False):
            raise RuntimeError("another thread uses the session")
        try:
            self._headers.append(self._mapping.headers(message, self._target))
            self._sent.append(message)
        finally:
            self._guard.release()

    def commit(self) -> None:
        """Commit what was sent, and settle what was received."""
        producer = self._producer
        self._confirmed = 0
        producer.begin_transaction()
        for message, headers in zip(self._sent, self._headers, strict=True):
            producer.produce(self._target, message.text.encode(), headers=headers, on_delivery=self._report)
        producer.flush()
        if self._confirmed != len(self._sent):
            raise RuntimeError(f"{len(self._sent) - self._confirmed} records were not confirmed")
        commit_transaction(producer, self._consumer, self._topic, self._settlement, self._received)
        self._received, self._sent, self._headers = [], [], []

    def _report(self, error: KafkaError | None, _record: object) -> None:
        if error is not None:
            raise RuntimeError(error)
        self._confirmed += 1


def commit_transaction(
    producer: Producer,
    consumer: Consumer,
    topic: str,
    settlement: PartitionSettlement[KafkaMessage],
    settled: Collection[int],
) -> None:
    """Commit the transaction of *producer*, which settles the offsets *settled* of the one partition of *topic*."""
    snapshot = settlement.snapshot(WINDOW, frozenset(settled))
    position = TopicPartition(topic, 0, snapshot.state.committed_offset, write_state(snapshot.state))
    producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), WAIT)
    producer.commit_transaction(WAIT)
    settlement.settle_each(settled)
    settlement.committed(snapshot)


def transactional_producer(stage: Stage, name: str) -> Producer:
    """Return a transactional producer with the settings of kjms, whose transactional id is *name*."""
    producer = Producer(
        {**stage.plain_settings(Producer), "transactional.id": name, "partitioner": "murmur2_random", **QUICK}
    )
    producer.init_transactions(WAIT)
    return producer
