"""What a copy of a moved message tells of it."""

from __future__ import annotations

import pytest

from kjms.mapping import KafkaRecord
from kjms.mapping.relocated import RELOCATED, original, relocated_record
from kjms.txn.metadata import History


class Record:
    """A record where it stands in Kafka."""

    def __init__(self, record: KafkaRecord, topic: str, partition: int, offset: int) -> None:
        self._record, self._place = record, (topic, partition, offset)

    def key(self) -> bytes | None:
        return self._record.key

    def value(self) -> bytes | None:
        return self._record.value

    def headers(self) -> list[tuple[str, bytes | None]]:
        return list(self._record.headers)

    def timestamp(self) -> tuple[int, int]:
        return 1, self._record.timestamp

    def topic(self) -> str:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def offset(self) -> int:
        return self._place[2]


SENT = Record(KafkaRecord(b"group", b"hello", [("JMSPriority", b"7")], 1_000), "orders", 3, 41)


@pytest.mark.parametrize(
    ("history", "header"),
    [
        (History(0), b"1;0;0;0;3;41;orders"),
        (History(3, 1, 1_700_000_000_000), b"1;3;1;1700000000000;3;41;orders"),
        (History(2, failed=1_600_000_000_000), b"1;2;0;0;3;41;orders;1600000000000"),
    ],
)
def test_a_copy_tells_what_happened_and_where_it_was(history: History, header: bytes) -> None:
    """The header has this layout, and is read back as it was written, also after a second move."""
    copy = relocated_record(SENT, history)
    assert dict(copy.headers)[RELOCATED] == header
    assert (copy.key, copy.value, copy.timestamp) == (b"group", b"hello", 1_000)
    once, told = original(Record(copy, "orders.kjms.overflow", 3, 0))
    assert told == history
    assert (once.topic(), once.partition(), once.offset()) == ("orders", 3, 41)
    assert once.headers() == SENT.headers()
    assert dict(relocated_record(once, history).headers)[RELOCATED] == header


@pytest.mark.parametrize("value", [b"", b"1;2", b"2;0;0;0;3;41;orders", b"1;x;0;0;3;41;orders", b"1;0;0;0;3;41;o;late"])
def test_a_header_that_cannot_be_read_says_nothing(value: bytes) -> None:
    """A damaged header, or one of a later version, does not stop a consumer: the record is taken as it is."""
    record = Record(KafkaRecord(b"group", b"hello", [(RELOCATED, value)], 1_000), "orders.kjms.overflow", 2, 5)
    taken, told = original(record)
    assert (told, taken.headers()) == (History(0), [])
    assert (taken.topic(), taken.partition(), taken.offset()) == ("orders.kjms.overflow", 2, 5)
    assert (taken.key(), taken.value(), taken.timestamp()) == (b"group", b"hello", (1, 1_000))


def test_a_header_that_cannot_be_read_at_the_start_of_a_log() -> None:
    """Partition 0 and offset 0 are a place like any other."""
    first = Record(KafkaRecord(None, None, [(RELOCATED, None)], 0), "orders.kjms.overflow", 0, 0)
    taken, _ = original(first)
    assert (taken.topic(), taken.partition(), taken.offset()) == ("orders.kjms.overflow", 0, 0)


def test_a_record_without_the_header_is_taken_as_it_is() -> None:
    """It was not moved, and nothing had happened to its message."""
    assert original(SENT) == (SENT, History(0))


def test_a_record_without_a_time_keeps_none() -> None:
    """The broker gives -1 where a record has no time; a copy is written with 0 then."""
    timeless = Record(KafkaRecord(None, b"hello", [], -1), "orders", 0, 0)
    assert relocated_record(timeless, History(0)).timestamp == 0
