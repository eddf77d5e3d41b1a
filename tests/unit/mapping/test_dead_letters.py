"""What a dead letter carries of its message, and what a retried message carries of its dead letter."""

from __future__ import annotations

import pytest

from kjms.mapping import KafkaRecord
from kjms.mapping.dead_letters import CUT, Cause, dead_letter, origin_partition, retried_record
from tests.unit.mapping.test_relocated import Record

CAUSE = Cause("delivered 3 times", "queue://orders", 3, [("JMS_kjms_Host", b"h")], [("JMS_kjms_Traceback", b"long")])


def stored(record: KafkaRecord) -> Record:
    return Record(record, "orders", 2, 7)


def headers_of(record: KafkaRecord) -> dict[str, bytes | None]:
    return dict(record.headers)


@pytest.mark.parametrize("has_details", [True, False])
def test_a_dead_letter_has_all_of_its_message(has_details: bool) -> None:
    """Body, key and headers; only the details of the failure may be left out, and it says so."""
    own: list[tuple[str, bytes | None]] = [("kjms", b"1"), ("colour", b"red"), ("JMSExpiration", b"99")]
    letter = dead_letter(stored(KafkaRecord(b"k", b"body", own, 0)), CAUSE, has_details=has_details)
    assert (letter.key, letter.value) == (b"k", b"body")
    headers = headers_of(letter)
    assert (headers["kjms"], headers["colour"]) == (b"1", b"red")
    assert headers["JMS_kjms_OriginalExpiration"] == b"99"
    assert "JMSExpiration" not in headers
    assert headers["JMS_kjms_Deliveries"] == b"3"
    assert headers.get("JMS_kjms_Traceback") == (b"long" if has_details else None)
    assert headers.get(CUT) == (None if has_details else b"details")


def test_a_retried_message_is_as_it_was() -> None:
    """It has no trace of its deliveries, and expires when it would have."""
    sent = KafkaRecord(None, b"body", [("colour", b"red"), ("JMSExpiration", b"99")], 5)
    written = Record(dead_letter(stored(sent), CAUSE), "orders.dlq", 0, 1)
    assert retried_record(written, 98)[:2] == sent[:2]
    assert dict(retried_record(written, 98).headers) == {"colour": b"red", "JMSExpiration": b"99"}
    assert dict(retried_record(written, 99).headers) == {"colour": b"red"}
    assert origin_partition(written) == 2
