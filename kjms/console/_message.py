"""Turn messages into plain values that can be sent through a pipe and shown: text, JSON, Avro, hexadecimal. Pure."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Mapping
from typing import Any, Final

from kjms.admin import MessageFigures
from kjms.mapping.json_form import UNREADABLE, plain_body, to_json
from kjms.message import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from kjms.options import DeliveryMode

__all__ = ["detail", "raw_body", "summary"]

PREVIEW: Final = 160  # characters of a body in a list
TEXT: Final = 200_000  # characters of a body in a page; more is offered as a file
VALUE: Final = 4_000  # characters of a property or entry
ENTRIES: Final = 500  # of a map or stream
HEX_BYTES: Final = 4_096
HEX_LINE: Final = 16
AVRO_FILE: Final = b"Obj\x01"
AVRO_RECORDS: Final = 20
CONFLUENT_HEADER: Final = 5  # a zero byte, and the number of the schema


def summary(found: MessageFigures) -> dict[str, Any]:
    """Return what a list shows of a message."""
    message = found.message
    return {
        "message_id": found.message_id,
        "type": type(message).__name__,
        "destination": str(found.destination),
        "subscription": None if found.subscription is None else found.subscription.name,
        "client_id": None if found.subscription is None else found.subscription.client_id,
        "place": found.place,
        "topic": found.topic,
        "partition": found.partition,
        "offset": found.offset,
        "state": found.state,
        "deliveries": found.deliveries,
        "due": None if found.due is None else round(found.due.timestamp() * 1000),
        "size": found.size,
        "timestamp": message.jms_timestamp or None,
        "priority": message.jms_priority,
        "jms_type": message.jms_type,
        "correlation_id": message.jms_correlation_id,
        "cause": None if found.dead_letter is None else found.dead_letter.cause,
        "preview": _preview(message),
    }


def detail(found: MessageFigures) -> dict[str, Any]:
    """Return all of a message: what a list shows, the JSON that the commands print, and views of its body."""
    message = found.message
    form = to_json(message)
    names = sorted(message.property_names())
    return summary(found) | {
        "message": form,
        "headers": {
            **form["headers"],
            "JMSDeliveryMode": DeliveryMode(message.jms_delivery_mode).name,
            "JMSCorrelationID": message.jms_correlation_id,
        },
        "properties": [
            (name, message.property_type(name) or "string", _text(message.get_object_property(name))) for name in names
        ],
        "dead_letter": None if found.dead_letter is None else vars(found.dead_letter) | {},
        "body": _body(message),
        "damage": list(message.damage),
    }


def raw_body(message: Message) -> bytes:
    """Return the body as bytes: of a text its UTF-8, of a BytesMessage its bytes, of others what the record holds."""
    if isinstance(message, TextMessage):
        return (message.text or "").encode("utf-8", "surrogatepass")
    if isinstance(message, BytesMessage):
        return message.get_body(bytes) or b""
    value = message._value
    return value if isinstance(value, bytes) else plain_body(message).encode("utf-8", "surrogatepass")


def _preview(message: Message) -> str:
    try:
        text = message.text or "" if isinstance(message, TextMessage) else None
        if text is None and isinstance(message, BytesMessage):
            data = message.get_body(bytes) or b""
            text = _as_text(data[: PREVIEW * 4]) or data[: PREVIEW // 2].hex(" ")
    except UNREADABLE:
        text = None
    if text is None:
        text = plain_body(message)
    return text[:PREVIEW] + ("…" if len(text) > PREVIEW else "")


def _body(message: Message) -> dict[str, Any]:
    """Return the views of a body: each is None if it has none of that kind."""
    views: dict[str, Any] = dict.fromkeys(("text", "json", "avro", "hex", "entries", "note"))
    try:
        data = raw_body(message)
        views |= {"size": len(data), "hex": _hex(data), "is_hex_cut": len(data) > HEX_BYTES}
        if isinstance(message, TextMessage):
            views |= _of_text(message.text)
        elif isinstance(message, BytesMessage):
            views |= _of_bytes(data)
        elif isinstance(message, MapMessage):
            views["entries"] = [
                (name, kind, _text(value)) for name, (kind, value) in itertools.islice(message._body.items(), ENTRIES)
            ]
        elif isinstance(message, StreamMessage):
            views["entries"] = [
                (str(number), kind, _text(value)) for number, (kind, value) in enumerate(message._body[:ENTRIES], 1)
            ]
        elif isinstance(message, ObjectMessage):
            codec, _ = message.serialized or ("", b"")
            if codec:
                views["note"] = f"an object of the codec {codec}"
            else:
                views["json"] = _pretty(plain_body(message))
        else:
            views |= {"note": "no body", "hex": None}
    except UNREADABLE:
        value = message._value if isinstance(message._value, bytes) else b""
        views |= {"note": "the body is damaged", "size": len(value), "hex": _hex(value)}
    return views


def _of_text(text: str | None) -> dict[str, Any]:
    if text is None:
        return {"note": "no body", "hex": None}
    cut = text[:TEXT]
    return {"text": cut, "is_cut": len(text) > TEXT, "json": _pretty(text) if len(text) <= TEXT else None}


def _of_bytes(data: bytes) -> dict[str, Any]:
    views: dict[str, Any] = {}
    text = _as_text(data)
    if text is not None:
        views |= _of_text(text)
    if data.startswith(AVRO_FILE):
        views["avro"], views["note"] = _avro_file(data)
    elif data[:1] == b"\0" and len(data) > CONFLUENT_HEADER:
        number = int.from_bytes(data[1:CONFLUENT_HEADER], "big")
        views["note"] = f"perhaps Avro with the schema number {number} of a schema registry"
    return views


def _as_text(data: bytes) -> str | None:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.reason != "unexpected end of data":
            return None
        text = data[: error.start].decode("utf-8")  # a preview ends within a character
    return text if all(each.isprintable() or each in "\r\n\t" for each in text) else None


def _pretty(text: str) -> str | None:
    """Return JSON with line ends and indentation; None: *text* is no JSON object or array."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)[: 2 * TEXT]
    except (ValueError, RecursionError):
        return None


def _text(value: object) -> str:
    """Return a property or entry as text that is not too long."""
    text = value[: VALUE // 3].hex(" ") if isinstance(value, bytes) else "null" if value is None else _plain(value)
    return text if len(text) <= VALUE else f"{text[:VALUE]}… ({len(text):,} characters)"


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _hex(data: bytes) -> str:
    lines = []
    for start in range(0, min(len(data), HEX_BYTES), HEX_LINE):
        part = data[start : start + HEX_LINE]
        shown = "".join(chr(each) if 0x20 <= each < 0x7F else "." for each in part)
        lines.append(f"{start:08x}  {part[:8].hex(' '):<23}  {part[8:].hex(' '):<23}  {shown}")
    return "\n".join(lines)


# Avro container files. A hostile schema makes a reader build endless lists of values that take no bytes, and compressed
# blocks may be a thousand times as large as the file; neither is read.


def _avro_file(data: bytes) -> tuple[str | None, str]:
    import fastavro

    try:
        reader = fastavro.reader(io.BytesIO(data))
        codec = reader.metadata.get("avro.codec", "null")
        if codec != "null":
            return None, f"an Avro file with {codec} compression, which the console does not unpack"
        schema = reader.writer_schema
        if _takes_no_bytes(schema, _named(schema)) or _has_free_items(schema, _named(schema)):
            return None, "an Avro file whose schema allows values without bytes; it is not read"
        records = list(itertools.islice(reader, AVRO_RECORDS))
        text = json.dumps(records, indent=2, ensure_ascii=False, default=str)[: 2 * TEXT]
    except Exception as error:  # whatever stands in a body must not end the page
        return None, f"an Avro file that cannot be read ({type(error).__name__})"
    return text, f"an Avro file, at most its first {AVRO_RECORDS} records"


def _named(schema: Any) -> dict[str, Any]:
    """Return the record and fixed types of *schema* by name."""
    found: dict[str, Any] = {}
    for each in _types(schema):
        if isinstance(each, Mapping) and "name" in each:
            found[each["name"]] = each
    return found


def _types(schema: Any) -> list[Any]:
    if isinstance(schema, list):
        return [each for part in schema for each in _types(part)]
    if not isinstance(schema, Mapping):
        return [schema]
    inner = [schema.get(part) for part in ("items", "values")] + [each["type"] for each in schema.get("fields", ())]
    if not isinstance(schema.get("type"), str):
        inner.append(schema.get("type"))
    return [schema, *(each for part in inner if part is not None for each in _types(part))]


def _takes_no_bytes(schema: Any, named: Mapping[str, Any], depth: int = 0) -> bool:
    if isinstance(schema, str):
        known = named.get(schema)
        return schema == "null" if known is None or depth > 50 else _takes_no_bytes(known, named, depth + 1)
    if not isinstance(schema, Mapping):
        return False
    kind = schema.get("type")
    if kind == "record":
        return all(_takes_no_bytes(each["type"], named, depth + 1) for each in schema.get("fields", ()))
    if kind == "fixed":
        return schema.get("size") == 0
    return kind == "null"


def _has_free_items(schema: Any, named: Mapping[str, Any]) -> bool:
    return any(
        isinstance(each, Mapping) and each.get("type") == "array" and _takes_no_bytes(each["items"], named)
        for each in _types(schema)
    )
