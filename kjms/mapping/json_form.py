"""Convert messages to the JSON of ``receive --json`` and ``send --json``, and back: pure.

    {"body": "ten pens",
     "properties": {"region": "EU", "amount": 10, "weight": {"float": 1.5}},
     "headers": {"JMSMessageID": "ID:...", "JMSType": "order", "JMSReplyTo": "queue://confirmations", ...}}

JSON values that determine a JMS type are written directly: ``true`` is a boolean, a whole number an int (a long beyond
32 bits), one with a fraction or exponent a double, text a string. Any other value is an object with its type's name:
``{"short": 10}``, ``{"double": "NaN"}``, ``{"bytes": "AAE="}`` (base64). Bodies follow the same rule: text directly,
``null`` for a message without body, else ``{"bytes": ...}``, ``{"map": {...}}``, ``{"stream": [...]}``,
``{"object": ...}`` or, for an object of an application's own codec, ``{"codec": NAME, "bytes": ...}``. ``damage`` of a
damaged message describes the unreadable parts; an unreadable body is ``{"damaged": TYPE, "bytes": ...}``.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kjms.destinations import Queue, parse_destination
from kjms.errors import READABLE_BITS, MessageFormatException, shown, shown_integer
from kjms.mapping import decode
from kjms.mapping._encode import LAYOUT_VERSION
from kjms.message import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from kjms.message._property_names import is_providers
from kjms.message._values import RANGES, parsed, text_of
from kjms.options import DeliveryMode

__all__ = ["Draft", "from_json", "plain_body", "to_json"]

IGNORED_HEADERS: Final = frozenset(
    {"JMSMessageID", "JMSTimestamp", "JMSDestination", "JMSRedelivered", "JMSDeliveryTime"}
)
"""Header fields that a send sets itself (JMS 2.0 §3.4.11)."""

PROPERTY_KINDS: Final = frozenset({"boolean", "byte", "short", "int", "long", "float", "double", "string"})
ENTRY_KINDS: Final = PROPERTY_KINDS | {"char", "bytes"}
PLAIN_TAGS: Final = frozenset({"bytes", "double", "integer", "map"})
UNREADABLE: Final = (MessageFormatException, ValueError, TypeError, RecursionError)
"""Exceptions of reading the body of a damaged record."""


@dataclass
class Draft:
    """A message to send, and the arguments of its send."""

    message: Message
    how: dict[str, Any] = field(default_factory=dict)
    """Arguments for ``MessageProducer.send``."""


# ------------------------------------------------------------------------------------------------------- to JSON


def to_json(message: Message) -> dict[str, Any]:
    """Return *message* as a value for ``json.dumps``.

    >>> message = TextMessage("hi")
    >>> message.set_short_property("amount", 5)
    >>> to_json(message)["properties"]
    {'amount': {'short': 5}}
    """
    names = sorted(message.property_names())
    form = {
        "body": _readable_body(message),
        "properties": {
            name: _tagged(message.property_type(name) or "string", message.get_object_property(name)) for name in names
        },
        "headers": {name: value for name, value in _headers(message).items() if value is not None},
    }
    return {**form, "damage": list(message.damage)} if message.damage else form


def _headers(message: Message) -> dict[str, Any]:
    return {
        "JMSMessageID": message.jms_message_id,
        "JMSTimestamp": message.jms_timestamp or None,
        "JMSDestination": _text(message.jms_destination),
        "JMSDeliveryMode": DeliveryMode(message.jms_delivery_mode).name,
        "JMSPriority": message.jms_priority,
        "JMSRedelivered": message.jms_redelivered,
        "JMSType": message.jms_type,
        "JMSCorrelationID": _correlation_id(message),
        "JMSReplyTo": _text(message.jms_reply_to),
        "JMSExpiration": message.jms_expiration or None,
    }


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _correlation_id(message: Message) -> object:
    data, text = message.jms_correlation_id_as_bytes, message.jms_correlation_id
    if data is None or text is None or text.encode(errors="replace") == data:
        return text
    return {"bytes": _base64(data)}


def _readable_body(message: Message) -> object:
    try:
        return _body(message)
    except UNREADABLE:
        return {"damaged": _body_type(message), "bytes": _base64(message._value or b"")}


def _body_type(message: Message) -> str:
    """Return the body type of *message*, whose body cannot be read, as a record's layout names it."""
    return getattr(message._reader, "body_type", "bytes")


def _body(message: Message) -> object:
    if isinstance(message, TextMessage):
        return message.text if message.text is not None else {"text": None}
    if isinstance(message, BytesMessage):
        return {"bytes": _base64(message.get_body(bytes) or b"")}
    # JMS has no getter for the type of an entry; without the type, an int and a long would look alike.
    if isinstance(message, MapMessage):
        return {"map": {name: _tagged(kind, value) for name, (kind, value) in message._body.items()}}
    if isinstance(message, StreamMessage):
        return {"stream": [_tagged(kind, value) for kind, value in message._body]}
    if isinstance(message, ObjectMessage):
        codec, data = message.serialized or ("", b"")
        return {"codec": codec, "bytes": _base64(data)} if codec else {"object": _plain(message.object)}
    return None


def _plain(value: Any) -> object:
    """Return a part of an object: unchanged if JSON can write it and it does not look like a tag, else tagged."""
    if isinstance(value, bytes):
        return {"bytes": _base64(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"double": text_of("double", value)}
    if isinstance(value, int) and value.bit_length() > READABLE_BITS:
        return {"integer": hex(value)}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        inner = {name: _plain(item) for name, item in value.items()}
        return {"map": inner} if len(value) == 1 and not PLAIN_TAGS.isdisjoint(value) else inner
    return value


def plain_body(message: Message) -> str:
    """Return the body in readable form: text unchanged, bytes in base64, other bodies as JSON without type names.

    For an unreadable body, return its damage and the bytes of the record in base64.
    """
    try:
        return _plain_body(message)
    except UNREADABLE:
        return f"! {'; '.join(message.damage)}: {_base64(message._value or b'')}"


def _plain_body(message: Message) -> str:
    if isinstance(message, TextMessage):
        return message.text or ""
    if isinstance(message, BytesMessage):
        return _base64(message.get_body(bytes) or b"")
    if isinstance(message, MapMessage):
        return json.dumps({name: message[name] for name in message}, ensure_ascii=False, default=_base64)
    if isinstance(message, StreamMessage):
        return json.dumps([value for _, value in message._body], ensure_ascii=False, default=_base64)
    if isinstance(message, ObjectMessage):
        codec, data = message.serialized or ("", b"")
        return _base64(data) if codec else json.dumps(_shown(message.object), ensure_ascii=False, default=_base64)
    return ""


def _shown(value: Any) -> object:
    """Return a part of an object for people: whole numbers that are too long for JSON are shortened."""
    if isinstance(value, int) and value.bit_length() > READABLE_BITS:
        return shown_integer(value)
    if isinstance(value, list):
        return [_shown(item) for item in value]
    if isinstance(value, dict):
        return {name: _shown(item) for name, item in value.items()}
    return value


def _tagged(kind: str, value: Any) -> object:
    """Return a JMS value of the type *kind* as JSON: directly if its JSON type determines *kind*, else tagged."""
    if value is None or kind in {"boolean", "string"}:
        return value
    if kind == "bytes":
        return {"bytes": _base64(value)}
    if kind == "int" or (kind == "long" and not _is_int(value)):
        return value
    if kind in {"float", "double"}:
        if not math.isfinite(value):
            return {kind: text_of(kind, value)}
        return value if kind == "double" else {kind: value}
    return {kind: value}


def _is_int(value: int) -> bool:
    low, high = RANGES["int"]
    return low <= value <= high


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


# ----------------------------------------------------------------------------------------------------- from JSON


def from_json(line: str, now_ms: int) -> Draft:
    """Return the message that *line*, a JSON object, describes.

    Args:
        line: The object; ``body``, ``properties`` and ``headers`` may each be missing.
        now_ms: The time, in milliseconds since 1970 UTC: a JMSExpiration becomes the time to live that is left.

    Raises:
        ValueError: It is not such an object; the text names the error.

    >>> from_json('{"body": "hi", "headers": {"JMSPriority": 7}}', 0).how
    {'priority': 7}
    """
    try:
        return _draft(line, now_ms)
    except RecursionError:
        raise ValueError("not a message: its JSON is nested too deeply") from None


def _draft(line: str, now_ms: int) -> Draft:
    try:
        form = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
    except ValueError:  # Python's limit of digits
        raise ValueError("not a message: a number has too many digits") from None
    if not isinstance(form, dict) or not form.keys() <= {"body", "properties", "headers", "damage"}:
        raise ValueError("a message is a JSON object with only body, properties and headers")
    draft = Draft(_message(form.get("body")))
    for name, value in _object(form.get("properties"), "properties").items():
        if not is_providers(name):
            kind, kept = _untagged(value, PROPERTY_KINDS, f"property {name!r}")
            getattr(draft.message, f"set_{kind}_property")(name, kept)
    for name, value in _object(form.get("headers"), "headers").items():
        if name not in IGNORED_HEADERS and value is not None:
            _set_header(draft, name, value, now_ms)
    return draft


def _object(value: object, place: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{place}: must be a JSON object, not {shown(value)}")
    return value


def _set_header(draft: Draft, name: str, value: Any, now_ms: int) -> None:
    message = draft.message
    if name == "JMSType":
        message.jms_type = value
    elif name == "JMSCorrelationID" and isinstance(value, dict):
        message.jms_correlation_id_as_bytes = _bytes(value.get("bytes"), name)
    elif name == "JMSCorrelationID":
        message.jms_correlation_id = value
    elif name == "JMSReplyTo":
        message.jms_reply_to = parse_destination(str(value))
    elif name == "JMSPriority":
        message.jms_priority = value  # checks it; the send decides
        draft.how["priority"] = value
    elif name == "JMSDeliveryMode":
        if not isinstance(value, str) or value not in DeliveryMode.__members__:
            raise ValueError(f"{name} must be PERSISTENT or NON_PERSISTENT, not {shown(value)}")
        draft.how["delivery_mode"] = DeliveryMode[value]
    elif name == "JMSExpiration":
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{name} must be a number of milliseconds since 1970, not {shown(value)}")
        draft.how["time_to_live"] = max(1, value - now_ms) if value > 0 else 0  # 0 is never, also as what is left
    else:
        raise ValueError(f"header {name!r} does not exist or cannot be sent")


def _message(body: object) -> Message:
    if body is None:
        return Message()
    if isinstance(body, str):
        return TextMessage(body)
    if isinstance(body, dict):
        if body.keys() == {"codec", "bytes"}:
            message = ObjectMessage()
            message.serialized = (str(body["codec"]), _bytes(body["bytes"], "body"))
            return message
        if body.keys() == {"damaged", "bytes"}:
            return _damaged_message(body["damaged"], body["bytes"])
        if len(body) == 1:
            kind, value = next(iter(body.items()))
            if kind in _BODIES:
                return _BODIES[kind](value)
    raise ValueError(
        "a body must be text, null, or an object with the name bytes, map, stream or object (docs/commands.md)"
    )


class _Damaged:
    """A record as from a Kafka consumer, whose value is not a body of the type that its layout names."""

    def __init__(self, body_type: str, data: bytes) -> None:
        self._body_type = body_type
        self._data = data

    def value(self) -> bytes | None:
        return self._data

    def key(self) -> bytes | None:
        return None

    def headers(self) -> list[tuple[str, bytes | None]]:
        return [("kjms", f"{LAYOUT_VERSION};{self._body_type}".encode())]

    def timestamp(self) -> tuple[int, int]:
        return 0, 0

    def topic(self) -> str | None:
        return None

    def partition(self) -> int | None:
        return None

    def offset(self) -> int | None:
        return None


def _damaged_message(body_type: object, value: object) -> Message:
    """Return a message that is sent with the same value and body type as the damaged one."""
    message = decode(_Damaged(str(body_type), _bytes(value, "body")), Queue("damaged"))
    message.clear_properties()
    return message


def _text_message(value: Any) -> Message:
    return TextMessage(value)


def _bytes_message(value: Any) -> Message:
    message = BytesMessage()
    message.write_bytes(_bytes(value, "body"))
    return message


def _map_message(value: Any) -> Message:
    message = MapMessage()
    for name, item in _object(value, "body").items():
        kind, kept = _untagged(item, ENTRY_KINDS, f"map entry {name!r}")
        getattr(message, f"set_{kind}")(name, kept)
    return message


def _stream_message(value: Any) -> Message:
    message = StreamMessage()
    if not isinstance(value, list):
        raise ValueError(f"body: a stream must be a JSON array, not a {type(value).__name__}")
    for number, item in enumerate(value, 1):
        kind, kept = _untagged(item, ENTRY_KINDS, f"stream value {number}")
        getattr(message, f"write_{kind}")(kept)
    return message


def _object_message(value: Any) -> Message:
    return ObjectMessage(_from_plain(value))


_BODIES: Final[Mapping[str, Callable[[Any], Message]]] = {
    "text": _text_message,
    "bytes": _bytes_message,
    "map": _map_message,
    "stream": _stream_message,
    "object": _object_message,
}


def _from_plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_plain(item) for item in value]
    if isinstance(value, dict):
        if len(value) == 1:
            kind, inner = next(iter(value.items()))
            if kind == "bytes":
                return _bytes(inner, "body")
            if kind == "double":
                return parsed("double", str(inner))
            if kind == "integer" and isinstance(inner, str):
                return int(inner, 16)
            if kind == "map":
                value = _object(inner, "body")
        return {name: _from_plain(item) for name, item in value.items()}
    return value


def _untagged(value: Any, kinds: frozenset[str], place: str) -> tuple[str, Any]:
    """Return the JMS type and the value of what `_tagged` wrote.

    Raises:
        ValueError: It does not have that form.
    """
    if isinstance(value, dict) and len(value) == 1:
        kind, inner = next(iter(value.items()))
        if kind in kinds:
            if kind == "bytes":
                return kind, _bytes(inner, place)
            if kind in {"float", "double"} and isinstance(inner, str):
                return kind, _number(inner, kind, place)
            return kind, inner
    if value is None or isinstance(value, str):
        return "string", value
    if isinstance(value, bool):
        return "boolean", value
    if isinstance(value, int):
        return ("int" if _is_int(value) else "long"), value
    if isinstance(value, float):
        return "double", value
    raise ValueError(f'{place}: must be a JSON value of one JMS type or an object like {{"short": 5}}')


def _number(text: str, kind: str, place: str) -> float:
    try:
        return parsed(kind, text)
    except ValueError:
        raise ValueError(f"{place}: {shown(text)} is not a valid {kind}") from None


def _bytes(value: object, place: str) -> bytes:
    try:
        return base64.b64decode(str(value), validate=True)
    except binascii.Error:
        raise ValueError(f"{place}: bytes must be base64") from None
