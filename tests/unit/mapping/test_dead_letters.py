"""What a dead letter carries of its message, and what a retried message carries of its dead letter."""

from __future__ import annotations

import pytest

from kjms import Queue
from kjms.mapping import KafkaRecord, decode, encode
from kjms.mapping.dead_letters import CUT, NUMBERS, Cause, dead_letter, origin_partition, retried_record
from kjms.selector import parse_selector
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


FAILURE = [("JMS_kjms_Process", b"17"), ("JMS_kjms_FirstFailure", b"1795282324098"), ("JMS_kjms_LastFailure", b"-1")]
LETTER = Cause("delivered 3 times", "queue://orders", 3, FAILURE)


@pytest.mark.parametrize("headers", [[("kjms", b"1;text;amount=int"), ("amount", b"5"), ("JMSExpiration", b"9")], []])
def test_the_numbers_of_a_dead_letter_are_numbers(headers: list[tuple[str, bytes | None]]) -> None:
    """Their names say so: also where another program wrote the message, or an earlier version the dead letter."""
    written = dead_letter(stored(KafkaRecord(None, b"body", headers, 0)), LETTER)
    message = decode(Record(written, "orders.dlq", 0, 1), Queue("orders.dlq"))
    numbers = {name: message.properties[name] for name in NUMBERS if message.property_exists(name)}
    assert numbers == {
        "JMS_kjms_Deliveries": 3,
        "JMS_kjms_OriginalPartition": 2,
        "JMS_kjms_OriginalOffset": 7,
        **({"JMS_kjms_OriginalExpiration": 9} if headers else {}),
        "JMS_kjms_Process": 17,
        "JMS_kjms_FirstFailure": 1795282324098,
        "JMS_kjms_LastFailure": -1,
    }
    assert {name: message.property_type(name) for name in numbers} == {name: NUMBERS[name] for name in numbers}
    assert message.get_string_property("JMS_kjms_Deliveries") == "3"
    for selector, matches in (("JMS_kjms_Deliveries >= 3", True), ("JMS_kjms_OriginalOffset < 7", False)):
        parsed = parse_selector(selector)
        assert parsed is not None
        assert parsed.matches(message) is matches
    assert not message.damage


def test_what_is_no_number_reads_as_a_string_and_only_dead_letters_have_them() -> None:
    """A dead letter that was damaged is read nevertheless, and other messages' properties have their own types."""
    damaged: list[tuple[str, bytes | None]] = [("JMS_kjms_Cause", b"x"), ("JMS_kjms_Deliveries", b"many")]
    message = decode(stored(KafkaRecord(None, b"body", damaged, 0)), Queue("orders.dlq"))
    assert message.properties["JMS_kjms_Deliveries"] == "many"
    assert len(message.damage) == 1
    other = decode(stored(KafkaRecord(None, b"body", [("JMS_kjms_Deliveries", b"3")], 0)), Queue("orders.dlq"))
    assert other.properties["JMS_kjms_Deliveries"] == "3"


def test_a_dead_letter_that_is_sent_on_declares_its_numbers_and_no_others() -> None:
    """Programs that read the types of the record alone see the numbers, too."""
    own: list[tuple[str, bytes | None]] = [("kjms", b"1;text;amount=int"), ("amount", b"5")]
    written = dead_letter(stored(KafkaRecord(None, b"body", own, 0)), Cause("x", "queue://orders", 3))
    sent = encode(decode(Record(written, "orders.dlq", 0, 1), Queue("orders.dlq")))
    assert headers_of(sent)["kjms"] == (
        b"1;text;amount=int,JMS_kjms_Deliveries=int,JMS_kjms_OriginalPartition=int,JMS_kjms_OriginalOffset=long"
    )
