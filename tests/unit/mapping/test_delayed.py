"""What stands in a topic for delayed messages, and what a copy says of where it stood."""

from __future__ import annotations

from typing import Any

import pytest

from kjms import Queue
from kjms.mapping import KafkaRecord, decode
from kjms.mapping.delayed import (
    CANCEL,
    CANCELLED,
    MOVED_ON,
    REWRITTEN,
    Note,
    copied,
    due_at,
    early,
    noted,
    place_of,
    read,
)
from kjms.mapping.internal import LONGEST, MalformedError
from kjms.mapping.names import delayed, delayed_group, delayed_transactional_id, is_internal


class Source:
    """A record as it is read."""

    def __init__(self, record: KafkaRecord, partition: int = 3, offset: int = 7) -> None:
        self._record = record
        self._place = partition, offset

    def key(self) -> bytes | None:
        return self._record.key

    def value(self) -> bytes | None:
        return self._record.value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self._record.headers or None

    def timestamp(self) -> tuple[int, int]:
        return 1, self._record.timestamp

    def topic(self) -> str:
        return "orders.kjms.delayed"

    def partition(self) -> int:
        return self._place[0]

    def offset(self) -> int:
        return self._place[1]


def message(*headers: tuple[str, bytes | None]) -> KafkaRecord:
    return KafkaRecord(b"key", b"value", list(headers), 5)


@pytest.mark.parametrize("kind", [CANCEL, CANCELLED, MOVED_ON, REWRITTEN])
def test_a_note_reads_as_it_was_written(kind: str) -> None:
    """A note records what became of which messages."""
    assert read(Source(noted(kind, [4, 6]))) == Note(kind, (4, 6))
    assert read(Source(noted(kind, []))) == Note(kind, ())


@pytest.mark.parametrize(
    "value",
    [
        *(None, b"", b"{}", b"[1", b"\xff", b"[" * 2_000, b"[true]", b"[-1]", b"[" + b"1" * 5_000 + b"]"),
        *(b"[4, 7]", b"[8]", b"[[7, 1, 1]]", b"[[1, -1, 1]]", b"[[1, 9223372036854775808, 1]]", b"[NaN]"),
    ],
)
def test_a_damaged_note_is_refused(value: bytes | None) -> None:
    """A note that cannot be read, or is about a record that comes after it, is no note of kjms."""
    with pytest.raises(MalformedError):
        read(Source(KafkaRecord(None, value, [("kjms-delayed", b"1;moved")], 0)))


def test_a_request_is_about_what_is_there() -> None:
    """What comes after the request does not wait when it is made."""
    assert read(Source(noted(CANCEL, [4, 8]))) == Note(CANCEL, (4,))


def test_what_a_note_may_say_later_is_passed_over() -> None:
    """Items that are neither offsets nor progress say nothing to this version."""
    record = KafkaRecord(None, b'["x", null, 2]', [("kjms-delayed", b"1;moved")], 0)
    assert read(Source(record)) == Note(MOVED_ON, (2,))


@pytest.mark.parametrize(
    ("headers", "due"),
    [
        ([("JMSDeliveryTime", b"1750000000000")], 1_750_000_000_000),
        ([("other", b"1"), ("JMSDeliveryTime", b"9")], 9),
        ([], 0),
        ([("JMSDeliveryTime", b"soon")], 0),
        ([("JMSDeliveryTime", None)], 0),
        ([("JMSDeliveryTime", b"9" * 19)], (1 << 63) - 1),
        ([("JMSDeliveryTime", b"9" * 9_999)], (1 << 63) - 1),
        ([("JMSDeliveryTime", b"-5")], 0),
        ([("JMSDeliveryTime", b"7"), ("kjms-delayed", b"1;unknown")], 7),
    ],
)
def test_a_message_says_when_it_is_due(headers: Any, due: int) -> None:
    """The header JMSDeliveryTime says when a message is due; without one that can be read it is due at once."""
    assert read(Source(message(*headers))) == due


def test_a_copy_is_the_record_and_where_it_stood_first() -> None:
    """Of a copy, and of the copy of a copy, the first place is known; all else is as it was."""
    source = Source(message(("kjms", b"1;text"), ("kjms-delayed", b"nonsense"), ("a", b"1")))
    first = copied(source)
    assert first == KafkaRecord(b"key", b"value", [("kjms", b"1;text"), ("a", b"1"), ("kjms-delayed", b"1;3;7")], 5)
    second = copied(Source(first, 3, 90))
    assert second == first
    assert place_of(Source(second, 0, 0)) == (3, 7)


def test_a_copy_of_the_first_record_of_a_log() -> None:
    """Partition 0 and offset 0 are a place like any other; a record without a time is copied with 0."""
    record = KafkaRecord(None, b"value", [("kjms", b"1;text")], -1)
    copy = copied(Source(record, 0, 0))
    assert copy == KafkaRecord(None, b"value", [("kjms", b"1;text"), ("kjms-delayed", b"1;0;0")], 0)


@pytest.mark.parametrize("data", [None, b"", b"1", b"1;2", b"1;x;3", b"2;1;3", b"1;-1;3", b"1;moved"])
def test_what_says_no_place_is_no_copy(data: bytes | None) -> None:
    """A record without a place that can be read counts as one that never waited."""
    assert place_of(Source(message(("kjms-delayed", data)))) is None
    assert place_of(Source(message())) is None


def test_a_message_does_not_show_where_it_waited() -> None:
    """The place is no property of the message, whatever wrote it."""
    for layout in ([("kjms", b"1;text")], []):
        got = decode(Source(message(*layout, ("a", b"1"), ("kjms-delayed", b"1;3;7"))), Queue("orders"))
        assert [name for name in got.property_names() if name != "JMSXGroupID"] == ["a", "JMSXDeliveryCount"]
        assert got.damage == ()


def test_names() -> None:
    """What belongs to the delayed messages of a topic is found by its name."""
    assert delayed("orders") == "orders.kjms.delayed"
    assert is_internal(delayed("orders"))
    assert len(delayed("x" * 249)) == 249
    assert delayed_group("orders") == "kjms.delayed.orders"
    assert delayed_transactional_id("orders", 3) == "kjms-delayed.orders.3"


@pytest.mark.parametrize(
    ("headers", "due"),
    [
        ([("a", b"5"), ("JMSDeliveryTime", b"9000")], 9000),
        ([("JMSDeliveryTime", b"9223372036854775807")], LONGEST),
        ([("JMSDeliveryTime", b"99999999999999999999")], LONGEST),  # no later time can be said
        ([("JMSDeliveryTime", b"soon")], 0),
        ([("JMSDeliveryTime", None)], 0),
        ([("a", b"5")], 0),
        ([], 0),
    ],
)
def test_when_a_message_is_due(headers: list[tuple[str, bytes | None]], due: int) -> None:
    """At its delivery time; at once, where it has none that can be read."""
    assert due_at(Source(KafkaRecord(None, b"x", headers, 0))) == due  # type: ignore[arg-type]


def test_a_message_that_is_delivered_early_is_due_now() -> None:
    """All else of it stays."""
    record = KafkaRecord(b"k", b"x", [("kjms", b"1;text"), ("JMSDeliveryTime", b"9000"), ("p", b"q")], 5)
    expected = [("kjms", b"1;text"), ("JMSDeliveryTime", b"2000"), ("p", b"q")]
    assert early(record, 2_000) == KafkaRecord(b"k", b"x", expected, 5)
