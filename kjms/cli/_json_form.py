"""The JSON form of a message, which ``receive --json`` writes and ``send --json`` reads: pure.

    {"body": "ten pens",
     "properties": {"region": "EU", "amount": 10, "weight": {"float": 1.5}},
     "headers": {"JMSMessageID": "ID:...", "JMSType": "order", "JMSReplyTo": "queue://confirmations", ...}}

A value whose JMS type JSON tells stands there as it is: ``true`` is a boolean, a whole number an int (a long beyond 32
bits), one with a fraction or exponent a double, text a string. Any other stands in an object under its type's name:
``{"short": 10}``, ``{"double": "NaN"}``, ``{"bytes": "AAE="}`` (base64). Bodies follow the same rule: text as it is,
``null`` for a message without body, else ``{"bytes": ...}``, ``{"map": {...}}``, ``{"stream": [...]}``, ``{"object": ...}``.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kjms.destinations import parse_destination
from kjms.errors import JMSException, shown
from kjms.message import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from kjms.message._values import RANGES, parsed, text_of
from kjms.options import DeliveryMode

__all__ = ["Draft", "from_json", "plain_body", "to_json"]

IGNORED_HEADERS: Final = frozenset(
    {"JMSMessageID", "JMSTimestamp", "JMSDestination", "JMSRedelivered", "JMSDeliveryTime"}
)
"""What a send sets itself (JMS 2.0 §3.4.11)."""

PROPERTY_KINDS: Final = frozenset({"boolean", "byte", "short", "int", "long", "float", "double", "string"})
ENTRY_KINDS: Final = PROPERTY_KINDS | {"char", "bytes"}


@dataclass
class Draft:
    """A message that is to be sent, with what its send must be told beside it."""

    message: Message
    how: dict[str, Any] = field(default_factory=dict)
    """Arguments for ``MessageProducer.send``."""


# ------------------------------------------------------------------------------------------------------- to JSON


def to_json(message: Message) -> dict[str, Any]:
    """Return *message* as what ``json.dumps`` takes.

    >>> message = TextMessage("hi")
    >>> message.set_short_property("amount", 5)
    >>> to_json(message)["properties"]
    {'amount': {'short': 5}}
    """
    names = sorted(message.property_names())
    return {
        "body": _body(message),
        "properties": {
            name: _tagged(message.property_type(name) or "string", message.get_object_property(name)) for name in names
        },
        "headers": {name: value for name, value in _headers(message).items() if value is not None},
    }


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


def _body(message: Message) -> object:
    if isinstance(message, TextMessage):
        return message.text if message.text is not None else {"text": None}
    if isinstance(message, BytesMessage):
        return {"bytes": _base64(message.get_body(bytes) or b"")}
    # JMS has no getter for the type of an entry, and without it an int and a long would look alike.
    if isinstance(message, MapMessage):
        return {"map": {name: _tagged(kind, value) for name, (kind, value) in message._body.items()}}
    if isinstance(message, StreamMessage):
        return {"stream": [_tagged(kind, value) for kind, value in message._body]}
    if isinstance(message, ObjectMessage):
        codec, data = message.serialized or ("", None)
        return {"object": _plain(message.object)} if not codec else {"object": {codec: _base64(data or b"")}}
    return None


def _tagged(kind: str, value: Any) -> object:
    """Return a JMS value of the type *kind* as JSON has it: as it is where its JSON type tells *kind*."""
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
