"""Records, partitions and sources for tests of parts that need no Kafka."""

from __future__ import annotations

import threading
import time
from typing import Any

from kjms.destinations import Queue
from kjms.engine.consumer.consumer_slot import ConsumerSlot
from kjms.engine.consumer.delivery import AssignedPartition, Delivery
from kjms.engine.consumer.dispatcher import Dispatcher
from kjms.selector import parse_selector
from kjms.txn.metadata import State

EMPTY = State(0, 0, (), 0)


def partition_from(start: int) -> AssignedPartition:
    """Return a partition whose settlement is not kept: no dispatch limit holds its messages back."""
    return AssignedPartition("t", 0, State(start, start, (), start), is_kept=False)


class Record:
    """A Kafka record of a text message with the property ``n``."""

    def __init__(self, n: int, group: bytes | None = None, priority: int = 4) -> None:
        self._n = n
        self._group = group
        self._priority = priority

    def value(self) -> bytes:
        return b"x"

    def key(self) -> bytes | None:
        return self._group

    def headers(self) -> list[tuple[str, bytes | None]]:
        own: list[tuple[str, bytes | None]] = [("kjms", b"1;text;n=int"), ("n", b"%d" % self._n)]
        return own if self._priority == 4 else [*own, ("JMSPriority", b"%d" % self._priority)]

    def timestamp(self) -> tuple[int, int]:
        return 1, 0

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._n


def arrive(dispatcher: Dispatcher, partition: AssignedPartition, count: int, start: int = 0, grouped: int = -1) -> None:
    """Let *count* messages arrive in *dispatcher*, that at offset *grouped* of a message group."""
    for number in range(start, start + count):
        delivery = Delivery(Record(number, b"group" if number == grouped else None), partition, number, number)
        partition.settlement.read(number, delivery)
        partition.settlement.dispatch_limit = partition.extend_at = 1_000
        dispatcher.arrive(delivery)


class Source:
    """What a slot uses of its source, around a dispatcher with messages of one partition."""

    def __init__(self, messages: int, batch: int = 10) -> None:
        self.lock: Any = threading.Lock()
        self.dispatcher = Dispatcher(Queue("q"), keeps_unmatched=True, limit=messages, batch=batch)
        self.partition = partition_from(0)
        arrive(self.dispatcher, self.partition, messages)
        self.partition.settlement.dispatch_limit = self.partition.extend_at = 10 * messages

    def slot(self, selector: str | None = None) -> ConsumerSlot:
        reader: Any = self
        parsed = None if selector is None else parse_selector(selector)
        slot = ConsumerSlot(reader, parsed, threading.Event())
        self.dispatcher.join(slot)
        return slot

    def take(self, slot: ConsumerSlot) -> Delivery | None:
        with self.lock:
            slot.batch_until = time.monotonic() + 3600
            return self.dispatcher.take(slot)
