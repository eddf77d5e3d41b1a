"""A listener with a selector in Python that does what JMS asks of it, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Final

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import Message as KafkaMessage

from benchmarks._least_transact import commit_transaction
from kjms import Message, Queue
from kjms.bench._reading import BATCH
from kjms.mapping import decode
from kjms.mapping.relocated import relocated_record
from kjms.selector import parse_selector
from kjms.txn.states import NEVER, PartitionSettlement

__all__ = ["LeastSelecting"]

MOVED: Final = 2_000  # messages in a transaction, as kjms relocates them

Batch = list[tuple[int, Message]]
"""Messages with their offsets."""


class LeastSelecting:
    """Gives the messages of one partition that match a selector to a listener, in a thread of its own.

    The others stay in the queue: transactions move them to a topic of their own, where each is known by its offset.
    Of the partition itself, each message is settled, and the settlement is committed.

    Args:
        consumer: It has read the first record.
        topic: The topic that it reads; it has one partition.
        producer: It is transactional.
        target: The topic for what does not match; it has one partition.
        selector: The selector.
        listener: Is called with each message.
    """

    def __init__(
        self,
        consumer: Consumer,
        topic: str,
        producer: Producer,
        target: str,
        selector: str,
        listener: Callable[[Message], None],
    ) -> None:
        self.waiting: dict[int, KafkaMessage] = {}  # what was moved, by the offset of its copy
        parsed = parse_selector(selector)
        if parsed is None:
            raise ValueError("a selector is needed")
        self._matches = parsed.matches
        self._consumer = consumer
        self._topic = topic
        self._producer = producer
        self._target = target
        self._listener = listener
        self._settlement: PartitionSettlement[KafkaMessage] = PartitionSettlement()
        self._unmatched: list[KafkaMessage] = []
        self._ready: SimpleQueue[Batch | None] = SimpleQueue()
        self._done: SimpleQueue[list[int]] = SimpleQueue()  # what the listener has had

    def run(self, count: int) -> None:
        """Read *count* messages, and return when the listener has had those that match, and the others are moved."""
        thread = Thread(target=self._listen, daemon=True)
        thread.start()
        while count:
            count -= self._read(min(BATCH, count))
            if len(self._unmatched) >= MOVED:
                self._move()
        self._ready.put(None)
        thread.join()
        self._move()

    def _listen(self) -> None:
        while (batch := self._ready.get()) is not None:
            for _, message in batch:
                self._listener(message)
            self._done.put([offset for offset, _ in batch])

    def _read(self, most: int) -> int:
        records = self._consumer.consume(most, 1.0)
        ready: Batch = []
        destination = Queue(self._topic)
        for record in records:
            if record.error():
                raise RuntimeError(record.error())
            offset = record.offset()
            self._settlement.read(offset, record)
            message = decode(record, destination)
            if self._matches(message):
                self._settlement.dispatch(offset)
                ready.append((offset, message))
            else:
                self._unmatched.append(record)
        if ready:
            self._ready.put(ready)
        return len(records)

    def _move(self) -> None:
        """Move what does not match, and commit, in a transaction, what is settled with it."""
        producer, settlement, records = self._producer, self._settlement, self._unmatched
        offsets: list[int] = []

        def report(error: KafkaError | None, copy: KafkaMessage) -> None:
            if error is not None:
                raise RuntimeError(error)
            offsets.append(copy.offset())

        while not self._done.empty():
            settlement.settle_each(self._done.get())
        producer.begin_transaction()
        for record in records:
            key, value, headers, timestamp = relocated_record(record, NEVER)
            producer.produce(self._target, value, key, 0, headers=headers, timestamp=timestamp, on_delivery=report)
        producer.flush()
        moved = [record.offset() for record in records]
        commit_transaction(producer, self._consumer, self._topic, settlement, moved)
        self.waiting.update(zip(sorted(offsets), records, strict=True))
        self._unmatched = []
