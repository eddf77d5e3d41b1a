"""Reads the log of a partition with delayed messages: into memory, and once more for what did not fit."""

from __future__ import annotations

import time
from collections.abc import Container, Mapping
from typing import Any, Final

from kjms.engine.delayed.periodic import PeriodicMessages
from kjms.engine.kafka import KafkaError, KafkaMessage, TopicPartition, open_consumer
from kjms.mapping import compact
from kjms.mapping.delayed import CANCEL, REQUESTS, Note, read
from kjms.mapping.internal import MalformedError
from kjms.mapping.periodic import Definition
from kjms.txn.waiting import Waiting

__all__ = ["BATCH", "Requests", "Scan", "fold"]

BATCH: Final = 500  # records taken at once, and moved in one transaction
SCAN_SECONDS: Final = 0.03  # of reading the log again, between looks at what is due


class Requests:
    """What programs ask of the owner of a partition.

    Attributes:
        cancellations: Offsets of messages to be cancelled.
        deliveries: Offsets of messages to be delivered before their time.
        early: Those of them that are due now.
    """

    __slots__ = ("cancellations", "deliveries", "early")

    def __init__(self) -> None:
        self.cancellations: list[int] = []
        self.deliveries: list[int] = []
        self.early: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self.cancellations or self.deliveries)


class Scan:
    """A second reading of a partition's log, for what did not fit into memory at the first.

    Args:
        config: librdkafka's settings of a consumer in no group.
        topic: The Kafka topic.
        number: The partition.
        known: What the first reading found.
        disbelieved: The offsets of notes that the first reading skipped.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        number: int,
        known: Waiting[KafkaMessage],
        disbelieved: Container[int],
    ) -> None:
        self.position = known.committed_offset(0)
        self.found: Waiting[KafkaMessage] = Waiting(known.limit // 2)
        self.is_busy = True  # whether it has just got something
        self._known = known
        self._disbelieved = disbelieved
        self._floor = known.horizon
        self._consumer = open_consumer(dict(config))
        self._consumer.assign([TopicPartition(topic, number, self.position)])

    def add(self, offset: int, due: int, message: KafkaMessage) -> None:
        """Note a message; of those due before the horizon all is known."""
        if (due, offset) >= self._floor and not self._known.is_gone(offset):
            self.found.add(offset, due, message)

    def settle(self, offset: int) -> None:
        """Note that the message at *offset* waits no more."""
        self.found.settle(offset)

    def step(self) -> None:
        """Read what has come; not for long, since others may be due."""
        until = time.monotonic() + SCAN_SECONDS
        self.is_busy = False
        while records := self._consumer.consume(BATCH, 0):
            self.is_busy = True
            for record in records:
                self._read(record)
            if time.monotonic() > until:
                return

    def _read(self, record: KafkaMessage) -> None:
        error, offset = record.error(), record.offset() or 0
        if error is None and offset not in self._disbelieved:
            try:
                fold(self, record, read(record))
            except MalformedError:
                pass  # the first reading counted it
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            self.position = max(self.position, offset + (error is None))

    def close(self) -> None:
        """End it."""
        self._consumer.close()


def fold(
    waiting: Waiting[KafkaMessage] | Scan,
    record: KafkaMessage,
    found: int | Note | Definition,
    requests: Requests | None = None,
    periodic: PeriodicMessages[KafkaMessage] | None = None,
) -> None:
    """Record what was *found* in *record* in *waiting* or *periodic*, or what it asks for."""
    offset = record.offset() or 0
    if isinstance(found, Definition):
        if periodic is not None:
            periodic.add(offset, found, record)
    elif not isinstance(found, Note):
        compact(record)
        waiting.add(offset, found, record)
    elif found.kind not in REQUESTS:
        for settled in found.offsets:
            waiting.settle(settled)
        if periodic is not None:
            periodic.advance(found.progress)
            for settled in found.offsets:
                periodic.settle(settled)
    elif requests is not None:
        asked = requests.cancellations if found.kind == CANCEL else requests.deliveries
        asked.extend(found.offsets)
