"""Where the record struct of Confluent's JMS connectors, ``io.confluent.connect.jms.Value``, is read and written.

In it a message is the record's value: header fields, properties and body are fields of one struct. Connect's Avro
converter writes it as a zero byte, the schema's number in the registry (4 bytes) and Avro; its JSON converter as
JSON, with the schema beside it or not. The struct knows text, bytes and map messages and those without a body; it has
no char, no JMSDeliveryTime and no correlation id of bytes.
"""

from __future__ import annotations

import base64
import functools
import io
import json
from collections.abc import Callable
from importlib.resources import files
from typing import Any, Final, cast

from kjms.destinations import Destination, Queue, Topic
from kjms.errors import MessageFormatException
from kjms.mapping import _decode
from kjms.mapping._record import KafkaRecord, SourceRecord
from kjms.message import BytesMessage, MapMessage, Message, TextMessage
from kjms.message._property_names import DELIVERY_COUNT
from kjms.message._values import checked

__all__ = ["decode", "encode", "value_schema"]

_TYPES: Final[dict[str, type[Message]]] = {
    "text": TextMessage,
    "bytes": BytesMessage,
    "map": MapMessage,
    "message": Message,
}
_KINDS: Final = {"integer": "int", **{kind: kind for kind in ("boolean", "byte", "short", "long", "float", "double")}}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}
_NULL: Final = "null-value"


def value_schema() -> str:
    """Return the Avro schema of the struct, as Connect's Avro converter registers it, as JSON."""
    return (files("kjms.mapping") / "schemas" / "confluent-jms-value.avsc").read_text("utf-8")


# --------------------------------------------------------------------------------------------------------- read


def decode(
    record: SourceRecord,
    destination: Destination,
    delivery_count: int = 1,
    *,
    schema_of: Callable[[int], str] | None = None,
) -> Message:
    """Return the message that *record* carries; a record without the struct is read by `kjms.mapping.decode`.

    Never raises: `Message.damage` says where a struct could not be read.

    Args:
        record: A record as the Kafka client gives it.
        destination: Where it was read from; becomes JMSDestination.
        delivery_count: How often the message has been delivered, this time included.
        schema_of: Gives the schema that the registry has under a number; called once for each. Without it the
            connector's present schema is taken to be that of every record.
    """
    value = record.value()
    if value is None or not value.startswith((b"\0", b"{")):
        return _decode.decode(record, destination, delivery_count)
    try:
        message = _message(_struct(value, schema_of))
    except Exception as error:  # whatever stands in a record must not stop a consumer
        message = _decode.decode(record, destination, delivery_count)
        message._notes += (f"the value is no io.confluent.connect.jms.Value ({type(error).__name__})",)
        return message
    message.jms_destination = destination
    message._delivery_count = delivery_count
    message._properties_read_only = True
    message._body_read_only = True
    return message


def _struct(value: bytes, schema_of: Callable[[int], str] | None) -> dict[str, Any]:
    if value.startswith(b"\0"):
        import fastavro

        schema = _parsed_schema(int.from_bytes(value[1:5], "big") if schema_of else None, schema_of)
        return cast("dict[str, Any]", fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None))
    struct = json.loads(value)
    return cast("dict[str, Any]", struct.get("payload", struct))


@functools.lru_cache(maxsize=64)
def _parsed_schema(number: int | None, schema_of: Callable[[int], str] | None) -> Any:
    import fastavro

    return fastavro.parse_schema(json.loads(value_schema() if number is None or not schema_of else schema_of(number)))


def _message(struct: dict[str, Any]) -> Message:
    message = _TYPES[struct["messageType"]]()
    message.jms_message_id = struct["messageID"] or None
    message.jms_timestamp = message.jms_delivery_time = struct["timestamp"]
    message.jms_delivery_mode = struct["deliveryMode"]
    message.jms_correlation_id = struct.get("correlationID")
    message.jms_reply_to = _destination(struct.get("replyTo"))
    message.jms_type = struct.get("type")
    message.jms_expiration = struct["expiration"]
    message.jms_priority = struct["priority"]
    for name, held in struct["properties"].items():
        kind, value = _typed(held)
        if kind != "bytes" and name != DELIVERY_COUNT:  # bytes are no type that a property has
            message._set_provider_property(name, kind, checked(kind, value, "property", name))
    if isinstance(message, TextMessage):
        message.text = struct.get("text")
    elif isinstance(message, BytesMessage):
        message.write_bytes(_bytes(struct.get("bytes") or b""))
        message.reset()
    elif isinstance(message, MapMessage):
        for name, held in (struct.get("map") or {}).items():
            kind, value = _typed(held)
            getattr(message, f"set_{kind}")(name, value)
    return message


def _typed(held: dict[str, Any]) -> tuple[str, Any]:
    name = held["propertyType"]
    if name == _NULL:
        return "string", None
    value = held[name]
    return _KINDS.get(name, name), _bytes(value) if name == "bytes" else value


def _bytes(value: Any) -> Any:
    return base64.b64decode(value) if isinstance(value, str) else value  # JSON has no bytes


def _destination(held: dict[str, str] | None) -> Destination | None:
    if held is None:
        return None
    return (Topic if "topic" in held["destinationType"] else Queue)(held["name"])


# -------------------------------------------------------------------------------------------------------- write


def encode(message: Message, schema_id: int | None = None) -> KafkaRecord:
    """Return the record that carries *message* as the connector's struct; *message* is left as it was.

    Args:
        message: A text, bytes or map message, or one without a body.
        schema_id: The number under which the registry has `value_schema`; the value is Avro then. None: JSON, as
            Connect's converter reads it with ``schemas.enable=false``.

    Raises:
        MessageFormatException: The struct cannot carry the message.
    """
    struct = _written(message)
    group = message.get_string_property("JMSXGroupID")
    try:
        key = None if group is None else group.encode()
        if schema_id is None:
            value = json.dumps(struct, default=_base64, ensure_ascii=False).encode()
        else:
            import fastavro

            out = io.BytesIO(b"\0" + schema_id.to_bytes(4, "big"))
            out.seek(5)
            fastavro.schemaless_writer(out, _parsed_schema(None, None), struct)
            value = out.getvalue()
    except UnicodeEncodeError:
        raise MessageFormatException("a text in the message holds a lone surrogate, which UTF-8 cannot carry") from None
    return KafkaRecord(key, value, [], message.jms_timestamp)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _written(message: Message) -> dict[str, Any]:
    kind = next((name for name, type_ in _TYPES.items() if isinstance(message, type_)), "message")
    if kind == "message" and type(message) is not Message:
        raise MessageFormatException(f"io.confluent.connect.jms.Value cannot carry a {type(message).__name__}")
    body = message.get_body(object)
    if isinstance(message, MapMessage):
        body = {name: _held(type_, value) for name, (type_, value) in message._body.items()}
    return {
        "messageID": message.jms_message_id or "",
        "messageType": kind,
        "timestamp": message.jms_timestamp,
        "deliveryMode": message.jms_delivery_mode,
        "correlationID": message.jms_correlation_id,
        "replyTo": _named(message.jms_reply_to),
        "destination": _named(message.jms_destination),
        "redelivered": message.jms_redelivered,
        "type": message.jms_type,
        "expiration": message.jms_expiration,
        "priority": message.jms_priority,
        "properties": {
            name: _held(message.property_type(name) or "string", message.get_object_property(name))
            for name in message.property_names()
            if name != DELIVERY_COUNT
        },
        "bytes": body if kind == "bytes" else None,
        "map": body if kind == "map" else None,
        "text": body if kind == "text" else None,
    }


def _held(kind: str, value: Any) -> dict[str, Any]:
    held = dict.fromkeys(("boolean", "byte", "short", "integer", "long", "float", "double", "string", "bytes"))
    name = "string" if kind == "char" else _NAMES.get(kind, kind)
    return {"propertyType": _NULL if value is None else name, **held, name: value}


def _named(destination: Destination | None) -> dict[str, str] | None:
    if destination is None:
        return None
    return {"destinationType": "topic" if isinstance(destination, Topic) else "queue", "name": destination._name}
