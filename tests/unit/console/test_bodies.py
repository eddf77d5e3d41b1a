"""What the console shows of bodies that are too long or too deep to be shown whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kjms import Queue
from kjms.admin import MessageFigures
from kjms.console._message import detail, summary
from kjms.mapping import KafkaRecord, decode, encode
from kjms.message import Message, ObjectMessage, TextMessage
from tests.unit.mapping.test_delayed import Source

ORDERS = Queue("orders")


def figures(message: Message) -> MessageFigures:
    """Return what an admin tells of *message*."""
    place: dict[str, Any] = {"topic": "orders", "partition": 0, "offset": 7}
    return MessageFigures(
        message=message,
        message_id="ID:1",
        destination=ORDERS,
        subscription=None,
        place="queue",
        state="waiting",
        deliveries=0,
        due=None,
        size=1,
        dead_letter=None,
        **place,
    )


def received(record: KafkaRecord) -> Message:
    return decode(Source(record), ORDERS)


DEEP_OBJECT = KafkaRecord(None, b"\x0e\x02" * 500 + b"\x04\x02" + b"\0" * 500, [("kjms", b"1;object")], 0)
BODIES = {
    "number": (encode(ObjectMessage({"n": 10**5_000})), "0x31e2080103… (16,610 bits)"),
    "deep object": (DEEP_OBJECT, "nested more than 100 deep"),
    "deep text": (encode(TextMessage("[" * 500 + "]" * 500)), "[" * 100),
    "deeper text": (encode(TextMessage("[" * 50_000 + "]" * 50_000)), "[" * 100),
}


@pytest.mark.parametrize(("record", "shown"), BODIES.values(), ids=BODIES)
def test_a_body_is_shown_as_far_as_it_can_be(record: KafkaRecord, shown: str) -> None:
    """The list and the page of a message, and the JSON of both, have it shortened."""
    found = figures(received(record))
    assert shown[:50] in summary(found)["preview"]
    views = detail(found)
    assert shown in json.dumps(views, ensure_ascii=False, allow_nan=False)
    assert views["body"]["size"] == len(record.value or b"")
