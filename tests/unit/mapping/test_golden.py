"""The golden records: what layout 1 is, byte for byte, for readers and writers in any language.

Each file of ``golden/`` holds a record (bytes as hexadecimal digits) and the message that it means. Values stand
there as ``[type, text]``, the text as Java writes it, of a char its number, of bytes their hexadecimal digits. Where
``written`` is false, kjms reads the record but would not write it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kjms import Destination
from kjms.destinations import parse_destination
from kjms.mapping import KafkaRecord, decode, encode
from kjms.message import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from kjms.message._values import parsed, text_of

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.json"))
KINDS: dict[str, type[Message]] = {
    "message": Message, "text": TextMessage, "bytes": BytesMessage, "map": MapMessage, "stream": StreamMessage,
    "object": ObjectMessage,
}  # fmt: skip
DESTINATIONS = {"reply_to", "destination"}


def value_of(kind: str, text: str | None) -> Any:
    if text is None or kind == "string":
        return text
    if kind == "boolean":
        return text == "true"
    if kind == "bytes":
        return bytes.fromhex(text)
    return chr(int(text)) if kind == "char" else parsed(kind, text)


def told(kind: str, value: Any) -> list[str | None]:
    if value is None:
        return [kind, None]
    if kind == "bytes":
        return [kind, value.hex()]
    return [kind, str(ord(value)) if kind == "char" else text_of(kind, value)]


def from_hex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def record_of(golden: dict[str, Any]) -> KafkaRecord:
    record = golden["record"]
    headers = [(name, from_hex(data)) for name, data in record["headers"]]
    return KafkaRecord(from_hex(record["key"]), from_hex(record["value"]), headers, record["timestamp"])


def message_of(golden: dict[str, Any]) -> Message:
    meant = golden["message"]
    message = KINDS[meant["kind"]]()
    body = meant["body"]
    if isinstance(message, TextMessage):
        message.text = body
    elif isinstance(message, BytesMessage):
        message.write_bytes(bytes.fromhex(body))
    elif isinstance(message, MapMessage):
        for name, (kind, text) in body.items():
            getattr(message, f"set_{kind}")(name, value_of(kind, text))
    elif isinstance(message, StreamMessage):
        for kind, text in body:
            getattr(message, f"write_{kind}")(value_of(kind, text))
    elif isinstance(message, ObjectMessage) and body is not None:
        if "codec" in body:
            message.serialized = (body["codec"], bytes.fromhex(body["bytes"]))
        else:
            message.object = body["plain"]
    for name, (kind, text) in meant["properties"].items():
        getattr(message, f"set_{kind}_property")(name, value_of(kind, text))
    for name, value in meant["fields"].items():
        if name in DESTINATIONS:
            setattr(message, f"jms_{name}", parse_destination(value))
        else:
            setattr(message, f"jms_{name}", bytes.fromhex(value) if name == "correlation_id_as_bytes" else value)
    return message


def body_of(message: Message) -> Any:
    body = message._body
    if isinstance(message, BytesMessage):
        return body.hex()
    if isinstance(message, MapMessage):
        return {name: told(kind, value) for name, (kind, value) in body.items()}
    if isinstance(message, StreamMessage):
        return [told(kind, value) for kind, value in body]
    if isinstance(message, ObjectMessage):
        if body[1] is None:
            return None
        return {"codec": body[0], "bytes": body[1].hex()} if body[0] else {"plain": message.object}
    return body


def plainly(value: Any) -> Any:
    if isinstance(value, Destination):
        return str(value)
    return value.hex() if isinstance(value, bytes) else value


@pytest.mark.requirement("JMS-3.11.4-2", "NET-153", "NEV-19")
@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_the_record_means_the_message(path: Path, source) -> None:
    """Each golden record decodes to what it is said to mean, property types and all."""
    golden = json.loads(path.read_text("utf-8"))
    meant = golden["message"]
    message = decode(source(record_of(golden)), parse_destination("queue://orders"))
    assert type(message) is KINDS[meant["kind"]]
    assert body_of(message) == meant["body"]
    names = [name for name in message.property_names() if name != "JMSXDeliveryCount"]
    assert {name: told(str(message.property_type(name)), message.properties[name]) for name in names} == meant[
        "properties"
    ]
    defaults = {
        "message_id": None, "timestamp": 0, "correlation_id": None, "reply_to": None, "destination": "queue://orders",
        "delivery_mode": 2, "type": None, "expiration": 0, "delivery_time": message.jms_timestamp, "priority": 4,
    }  # fmt: skip
    fields = defaults | meant["fields"]
    if "correlation_id_as_bytes" in fields:
        del fields["correlation_id"]
    assert {name: plainly(getattr(message, f"jms_{name}")) for name in fields} == fields
    assert len(message.damage) == golden.get("damage", 0)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_the_message_is_written_as_the_record(path: Path) -> None:
    """Each message is encoded to the golden record, byte for byte and in this order."""
    golden = json.loads(path.read_text("utf-8"))
    if golden["written"]:
        assert encode(message_of(golden)) == record_of(golden)
    else:
        assert encode(message_of(golden)) != record_of(golden)


def test_there_is_a_golden_record_for_each_body_and_property_type() -> None:
    """None is forgotten."""
    records = [json.loads(path.read_text("utf-8"))["message"] for path in GOLDEN]
    assert {record["kind"] for record in records} == set(KINDS)
    kinds = {kind for record in records for kind, _ in record["properties"].values()}
    assert kinds == {"boolean", "byte", "short", "int", "long", "float", "double", "string"}
    for body in ("map", "stream"):
        entries = [record["body"] for record in records if record["kind"] == body]
        values = [kind for entry in entries for kind, _ in (entry.values() if body == "map" else entry)]
        assert set(values) == kinds | {"char", "bytes"}
