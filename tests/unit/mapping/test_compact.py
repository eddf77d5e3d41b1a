"""What the garbage collector finds in records that wait: nothing."""

from __future__ import annotations

import gc

import pytest
from confluent_kafka import Message as KafkaMessage

from kjms.mapping import SourceRecord, compact
from tests.unit.engine.records import Record

HEADERS = [("kjms", b"1;text;n=int"), ("n", b"4"), ("n", None)]


def test_the_collector_does_not_look_into_the_headers_of_a_record_that_waits() -> None:
    record = KafkaMessage(topic="t", partition=0, offset=3, value=b"x", key=b"k", headers=[*HEADERS])
    compact(record)
    headers = record.headers()
    for _ in range(2):  # what holds another tuple is looked at once more
        gc.collect()
    assert not gc.is_tracked(headers)
    assert [*headers] == HEADERS
    assert (record.key(), record.value(), record.offset()) == (b"k", b"x", 3)
    compact(record)  # twice is once
    assert record.headers() is headers


def test_a_record_without_headers_has_none_afterwards() -> None:
    record = KafkaMessage(topic="t", partition=0, offset=3, value=b"x")
    compact(record)
    assert record.headers() is None


class Unreadable(Record):
    """A record with a header whose name is no UTF-8."""

    def headers(self) -> list[tuple[str, bytes | None]]:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    def set_headers(self, headers: object) -> None:
        raise AssertionError(headers)


@pytest.mark.parametrize("record", [Record(4), Unreadable(4)], ids=["of another kind", "unreadable"])
def test_what_cannot_be_compacted_is_left_as_it_is(record: SourceRecord) -> None:
    compact(record)
    assert (record.value(), record.offset()) == (b"x", 4)
