"""The definitions of periodic messages as records, and the messages that are sent by them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kjms import Queue
from kjms.mapping import KafkaRecord, decode
from kjms.mapping.delayed import MOVED_ON, Note, Progress, copied, noted, place_of, read
from kjms.mapping.periodic import Definition, defined, definition_of, template, ticked
from kjms.message import MapMessage, TextMessage
from tests.unit.mapping.test_delayed import Source

KITCHEN = Queue("kitchen")
TEA = Definition("tea", "0 16 * * *", "Europe/London", "queue://kitchen", "ID:1", time_to_live=60_000)
GOLDEN = (
    b'{"version": 1, "name": "tea", "cron": "0 16 * * *", "timezone": "Europe/London", "destination": "queue://kitchen",'
    b' "message_id": "ID:1", "replaces": null, "time_to_live": 60000, "is_paused": false, "next": null, "last": 0}'
)


def test_the_golden_definition() -> None:
    """The header is what it was, byte for byte; programs that do not know it see a message of the far future."""
    record = defined(KafkaRecord(b"key", b"hello", [("kjms", b"1;text")], 5), TEA)
    headers = [("kjms", b"1;text"), ("JMSDeliveryTime", b"9223372036854775807"), ("kjms-schedule", GOLDEN)]
    assert record == KafkaRecord(b"key", b"hello", headers, 5)
    assert read(Source(record)) == TEA
    assert definition_of(GOLDEN) == TEA


def test_members_of_later_versions_are_ignored() -> None:
    """A member that is not known changes nothing; another version is no definition."""
    later = {**json.loads(GOLDEN), "colour": "green"}
    assert definition_of(json.dumps(later).encode()) == TEA


@pytest.mark.parametrize(
    "changes",
    [
        *({"version": 2}, {"name": 7}, {"next": "soon"}, {"is_paused": None}, {"cron": None}, {"last": None}),
        *({"next": 10**400}, {"last": -1}, {"name": "\ud800"}, {"replaces": [[]]}),
    ],
)
def test_damaged_definitions_are_messages_of_the_far_future(changes: dict[str, Any]) -> None:
    """What cannot be read, or is of a later version, stays where it is."""
    headers = defined(KafkaRecord(None, b"", [], 0), TEA).headers
    data = json.dumps({**json.loads(GOLDEN), **changes}).encode()
    assert read(Source(KafkaRecord(None, b"", [headers[0], ("kjms-schedule", data)], 0))) == (1 << 63) - 1


@pytest.mark.parametrize("data", [None, b"", b"[]", b"{}", b"\xff", b"[" * 100_000])
def test_damaged_headers_are_no_definitions(data: bytes | None) -> None:
    """No header stops the reader."""
    assert definition_of(data) is None


def test_a_message_is_what_was_defined() -> None:
    """It has the body and the properties, a new id, the time of its sending, and the time that it was scheduled for."""
    message = TextMessage("hello")
    message.set_int_property("amount", 3)
    message.jms_type = "drink"
    message.jms_message_id = "ID:of-the-application"
    record = defined(template(message, "tea", KITCHEN, 1, 7), TEA)
    assert (message.jms_message_id, message.property_exists("JMS_kjms_Schedule")) == ("ID:of-the-application", False)
    sent = ticked(Source(copied(Source(record))), TEA, 16_000, 16_005)
    got = decode(Source(sent), KITCHEN)
    assert isinstance(got, TextMessage)
    assert (got.text, got.jms_type, got.jms_priority, got.jms_delivery_mode) == ("hello", "drink", 7, 1)
    assert (got.jms_message_id, got.jms_timestamp, got.jms_expiration) == ("ID:1-16000", 16_005, 76_005)
    assert got.jms_delivery_time == 16_005
    assert got.get_long_property("JMS_kjms_ScheduledTime") == 16_000
    assert got.property_type("JMS_kjms_ScheduledTime") == "long"
    assert got.get_string_property("JMS_kjms_Schedule") == "tea"
    assert got.get_int_property("amount") == 3
    assert got.damage is None or got.damage == ()
    assert [name for name, _ in sent.headers if name.startswith("kjms-")] == []
    assert sent.timestamp == 16_005


def test_the_golden_template() -> None:
    """A template has no id and no times of its own, and keeps the group, whose key each message has."""
    message = TextMessage("hello")
    message.set_string_property("JMSXGroupID", "cups")
    record = template(message, "tea", KITCHEN, 1, 7)
    headers = [
        ("kjms", b"1;text;JMS_kjms_ScheduledTime=long"),
        ("JMSDeliveryMode", b"1"),
        ("JMSPriority", b"7"),
        ("JMSXGroupID", b"cups"),
        ("JMS_kjms_Schedule", b"tea"),
        ("JMS_kjms_ScheduledTime", b"0"),
    ]
    assert record == KafkaRecord(b"cups", b"hello", headers, 0)
    assert ticked(Source(defined(record, TEA)), TEA, 16_000, 16_005).key == b"cups"


def test_every_kind_of_message_can_be_a_template() -> None:
    """The template is a copy: the message can be changed, and defined again."""
    message = MapMessage({"cups": 2})
    first = template(message, "tea", KITCHEN, 2, 4)
    message["cups"] = 3
    assert first.value != template(message, "tea", KITCHEN, 2, 4).value


def test_a_rewritten_definition_says_where_it_stood() -> None:
    """A copy at the end of the log has its first place, as those of messages do."""
    record = defined(copied(Source(defined(KafkaRecord(None, b"", [], 0), TEA))), TEA)
    assert place_of(Source(record)) == (3, 7)
    assert read(Source(record)) == TEA


def test_progress_stands_in_notes() -> None:
    """A note `moved` has offsets of messages, and arrays about definitions, which former readers pass over."""
    record = noted(MOVED_ON, [4, Progress(5, 2_000, 1_000)])
    assert record.value == b"[4, [5, 2000, 1000]]"
    assert read(Source(record)) == Note(MOVED_ON, (4,), (Progress(5, 2_000, 1_000),))


@pytest.mark.parametrize("damaged", ["[5]", '[5, "x", 1]', "[1, 2, 3, 4]", "{}", "null"])
def test_damaged_progress_says_nothing(damaged: str) -> None:
    """An array that is none of progress is passed over."""
    note = KafkaRecord(None, f"[4, {damaged}]".encode(), [("kjms-delayed", b"1;moved")], 0)
    assert read(Source(note)) == Note(MOVED_ON, (4,))


def test_a_message_that_outlives_a_long_never_expires() -> None:
    """JMSExpiration could not say the sum: the message has none, and is no damaged one."""
    record = defined(template(TextMessage("tea"), "tea", Queue("kitchen"), 2, 4), TEA)
    sent = ticked(Source(record), replace(TEA, time_to_live=2**63 - 1), 16_000, 16_005)
    assert "JMSExpiration" not in dict(sent.headers)
