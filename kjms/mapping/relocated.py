"""What a message that was moved to another Kafka topic carries, so that nothing of it is lost: pure, no I/O.

One header more, ``kjms-relocated``: ``1;<deliveries>;<excused>;<due>;<partition>;<offset>;<topic>;<failed>``, decimal:
what happened to the message so far (`kjms.txn.metadata.History`), and where the record stood first. The last part,
since when deliveries failed, is left out where none did. It is taken off again when the message is read, or moved on.
"""

from __future__ import annotations

from typing import Final

from kjms.mapping._record import KafkaRecord, SourceRecord
from kjms.mapping.internal import read_number, read_text
from kjms.txn.metadata import History

__all__ = ["RELOCATED", "RelocatedRecord", "original", "relocated_record"]

RELOCATED: Final = "kjms-relocated"

Headers = list[tuple[str, "bytes | None"]]


class RelocatedRecord:
    """A record that was moved, as it was where it stood first."""

    __slots__ = ("_headers", "_key", "_offset", "_partition", "_timestamp", "_topic", "_value")

    def __init__(self, record: SourceRecord, headers: Headers, topic: str, partition: int, offset: int) -> None:
        # Not the record, nor a list: it may wait for long, and the garbage collector looks at each of them.
        self._key = record.key()
        self._value = record.value()
        self._timestamp = record.timestamp()
        self._headers = tuple(headers)
        self._topic = topic
        self._partition = partition
        self._offset = offset

    def key(self) -> bytes | None:
        """Return the record's key."""
        return self._key

    def value(self) -> bytes | None:
        """Return the record's value."""
        return self._value

    def headers(self) -> Headers | None:
        """Return the headers that it had."""
        return list(self._headers)

    def timestamp(self) -> tuple[int, int]:
        """Return the kind of its time and the time, in milliseconds since the epoch."""
        return self._timestamp

    def topic(self) -> str:
        """Return the topic where it stood first."""
        return self._topic

    def partition(self) -> int:
        """Return the partition where it stood first."""
        return self._partition

    def offset(self) -> int:
        """Return the offset where it stood first."""
        return self._offset


def relocated_record(record: SourceRecord, history: History) -> KafkaRecord:
    """Return the copy of *record* that is to stand elsewhere, and what happened to the message so far."""
    place = f"{record.partition()};{record.offset()};{record.topic()}"
    failed = f";{history.failed}" if history.failed else ""
    header = f"1;{history.deliveries};{history.uncounted};{history.due};{place}{failed}".encode()
    headers = [*_without(record), (RELOCATED, header)]
    return KafkaRecord(record.key(), record.value(), headers, max(record.timestamp()[1], 0))


def original(record: SourceRecord) -> tuple[SourceRecord, History]:
    """Return the record as it was before it was moved, and what had happened to the message by then.

    A record without the header, or with one that cannot be read, is taken as it is.
    """
    for name, value in record.headers() or ():
        if name == RELOCATED:
            try:
                version, *numbers, topic = read_text(value).split(";", 6)
                if version == "1":
                    topic, _, failed = topic.partition(";")  # no topic has one in its name
                    deliveries, uncounted, due, partition, offset = map(read_number, numbers)
                    history = History(deliveries, uncounted, due, read_number(failed or "0"))
                    return RelocatedRecord(record, _without(record), topic, partition, offset), history
            except ValueError:  # MalformedError is one, as is another number of parts
                pass
            place = record.topic() or "", record.partition() or 0, record.offset() or 0
            return RelocatedRecord(record, _without(record), *place), History(0)
    return record, History(0)


def _without(record: SourceRecord) -> Headers:
    return [header for header in record.headers() or () if header[0] != RELOCATED]
