"""Topics of an in-memory Kafka, and the logs of their partitions: offsets, transaction markers, log starts."""

from __future__ import annotations

import enum
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from kjms.engine.kafka import KafkaMessage, Uuid

__all__ = ["BATCH_BYTES", "CREATE_TIME", "DEFAULTS", "LOG_APPEND_TIME", "Log", "Record", "Topic", "size_of"]

CREATE_TIME: Final = 1
LOG_APPEND_TIME: Final = 2
BATCH_BYTES: Final = 61
"""What a batch of records takes beside them; here each record is a batch of its own."""

DEFAULTS: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": "86400000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
"""A topic's settings where the program that makes it gives none."""

Headers = Sequence[tuple[str, bytes | None]]


class Kind(enum.Enum):
    """What an offset of a log holds."""

    RECORD = enum.auto()
    OPEN = enum.auto()
    """A record of a transaction that is neither committed nor aborted."""
    ABORTED = enum.auto()
    MARKER = enum.auto()
    """The end of a transaction, which no consumer is given."""


class Record:
    """What stands at one offset of a log."""

    __slots__ = ("headers", "key", "kind", "offset", "time_type", "timestamp", "value")

    def __init__(
        self,
        offset: int,
        kind: Kind,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
        timestamp: int,
        time_type: int,
    ) -> None:
        self.offset = offset
        self.kind = kind
        self.key = key
        self.value = value
        self.headers = headers
        self.timestamp = timestamp
        self.time_type = time_type


def size_of(key: bytes | None, value: bytes | None, headers: Headers | None) -> int:
    """Return the bytes of a batch with one record, as the broker compares them with ``max.message.bytes``.

    >>> size_of(None, b"x" * 100, [])
    170
    """
    size = _counted(len(key or b"")) + _counted(len(value or b"")) + _varint(len(headers or ()))
    size += sum(_counted(len(name.encode())) + _counted(len(content or b"")) for name, content in headers or ())
    size += 3  # attributes, and no difference to the batch's time and offset
    return BATCH_BYTES + _varint(size) + size


def _counted(length: int) -> int:
    return length + _varint(length)


def _varint(number: int) -> int:
    size = 1
    number <<= 1  # the sign takes one bit
    while number > 0x7F:
        number >>= 7
        size += 1
    return size


class Log:
    """One partition; the cluster's lock is held by all that use it.

    Args:
        changed: Called when there is more to read.

    Attributes:
        start: The first offset that is kept.
        records: What stands at the offsets from `start` on, all of them.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self.start = 0
        self.records: list[Record] = []
        self._changed = changed
        self._open: dict[int, list[Record]] = {}  # by producer id

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return self.start + len(self.records)

    @property
    def stable_end(self) -> int:
        """The offset before which no transaction is open; a consumer of committed records reads up to there."""
        if not self._open:
            return self.end
        return min(records[0].offset for records in self._open.values())

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
        timestamp: int,
        time_type: int,
        transaction: int | None = None,
    ) -> Record:
        """Write a record, of the open *transaction* of that producer id or of none, and return it."""
        kind = Kind.RECORD if transaction is None else Kind.OPEN
        record = Record(self.end, kind, key, value, headers, timestamp, time_type)
        self.records.append(record)
        if transaction is not None:
            self._open.setdefault(transaction, []).append(record)
        self._changed()
        return record

    def finish(self, transaction: int, timestamp: int, *, commit: bool) -> None:
        """End the open *transaction* of that producer id, and write its marker."""
        for record in self._open.pop(transaction, ()):
            record.kind = Kind.RECORD if commit else Kind.ABORTED
        self.records.append(Record(self.end, Kind.MARKER, None, None, None, timestamp, CREATE_TIME))
        self._changed()

    def delete_before(self, offset: int) -> None:
        """Delete what stands before *offset*."""
        del self.records[: offset - self.start]
        self.start = max(self.start, offset)
        for transaction, records in list(self._open.items()):
            kept = [record for record in records if record.offset >= self.start]
            if kept:
                self._open[transaction] = kept
            else:  # Kafka, too, forgets a transaction whose records are deleted
                del self._open[transaction]
        self._changed()

    def visible(self, offset: int, *, is_committed: bool) -> Iterator[Record]:
        """Give the records from *offset* on that a consumer is shown: all, or those that are committed."""
        end = self.stable_end if is_committed else self.end
        for at in range(max(offset, self.start) - self.start, end - self.start):
            record = self.records[at]
            if record.kind is Kind.RECORD or (not is_committed and record.kind is not Kind.MARKER):
                yield record

    def offset_of(self, timestamp: int, *, is_committed: bool) -> Record | None:
        """Return the first record that is no older than *timestamp*, in milliseconds since the epoch."""
        found = (r for r in self.visible(self.start, is_committed=is_committed) if r.timestamp >= timestamp)
        return next(found, None)


class Topic:
    """A topic: its id, which no later topic of that name has, its settings and partitions."""

    def __init__(
        self,
        name: str,
        partitions: int,
        replicas: int,
        settings: Mapping[str, str],
        changed: Callable[[tuple[str, int]], None],
    ) -> None:
        self.name = name
        self.replicas = replicas
        self.id = Uuid(secrets.randbits(63), secrets.randbits(63))
        self.settings = dict(settings)
        self._changed = changed
        self.logs: list[Log] = []
        self.grow(partitions)

    def setting(self, name: str) -> str:
        """Return the value of a setting, its own or Kafka's default."""
        return self.settings.get(name, DEFAULTS.get(name, ""))

    @property
    def limit(self) -> int:
        """How many bytes a batch may have."""
        return int(self.setting("max.message.bytes"))

    @property
    def time_type(self) -> int:
        """Whose clock gives records their time."""
        return LOG_APPEND_TIME if self.setting("message.timestamp.type") == "LogAppendTime" else CREATE_TIME

    def grow(self, partitions: int) -> None:
        """Have so many partitions, or more."""
        for number in range(len(self.logs), partitions):
            self.logs.append(Log(lambda number=number: self._changed((self.name, number))))  # type: ignore[misc]

    def message(self, number: int, record: Record) -> KafkaMessage:
        """Return *record*, of partition *number*, as a consumer gets it."""
        return KafkaMessage(
            topic=self.name,
            partition=number,
            offset=record.offset,
            key=record.key,
            value=record.value,
            headers=list(record.headers) if record.headers else None,
            timestamp=(record.time_type, record.timestamp),
        )
