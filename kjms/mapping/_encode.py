"""Where a JMS message becomes a Kafka record: pure, no clock, no I/O. The layout is docs/wire-format.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kjms.errors import MessageFormatException
from kjms.mapping._record import KafkaRecord
from kjms.message import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from kjms.message._avro import write_map, write_stream
from kjms.message._reading import OWN_VALUE
from kjms.message._values import text_of

__all__ = ["encode"]

LAYOUT_VERSION: Final = 1

_BODIES: Final[dict[type[Message], tuple[str, Callable[[Any], bytes | None]]]] = {
    Message: ("message", lambda message: None),
    TextMessage: ("text", lambda message: None if message._body is None else message._body.encode()),
    BytesMessage: ("bytes", lambda message: bytes(message._body)),
    MapMessage: ("map", lambda message: write_map(message._body)),
    StreamMessage: ("stream", lambda message: write_stream(message._body)),
    ObjectMessage: ("object", lambda message: message._body[1]),
}
"""How the body of each kind of message is named on the wire, and what gives the record's value."""

# By the body type, or by it and the names and types of the properties that are not strings: most messages repeat them.
_layout_headers: dict[str | tuple[str, ...], bytes] = {}
_LAYOUT_HEADERS_KEPT: Final = 1024
_DIGITS: Final = tuple(b"%d" % digit for digit in range(10))
_new: Final = tuple.__new__  # what KafkaRecord(...) does, one call less


def encode(message: Message) -> KafkaRecord:
    """Return the Kafka record that carries *message*, which is left as it was.

    Raises:
        MessageFormatException: A text holds a lone surrogate, which UTF-8 cannot carry.

    >>> message = TextMessage("hi")
    >>> message.set_int_property("amount", 100)
    >>> encode(message)
    KafkaRecord(key=None, value=b'hi', headers=[('kjms', b'1;text;amount=int'), ('amount', b'100')], timestamp=0)
    """
    # The hot path of every send: straight on, with as few calls as it can do with.
    if message._mixed:
        message._settle()
    properties, types = message._properties, message._types
    correlation_id, timestamp = message._correlation_id, message._timestamp
    try:
        if message._value is not OWN_VALUE:  # received, and its body not changed
            value, body_type = message._value, message._reader.body_type  # type: ignore[union-attr]
        elif message.__class__ is TextMessage:
            value, body_type = message._content, "text"
            if value is not None:
                value = value.encode()
        else:
            value, body_type = _body(message)
        if correlation_id is not None:
            if isinstance(correlation_id, str):
                correlation_id = correlation_id.encode()
            else:
                types = {"JMSCorrelationID": "bytes", **types}
        layout = (body_type, *types, *types.values()) if types else body_type
        headers: list[tuple[str, bytes | None]] = [("kjms", _layout_headers.get(layout) or _layout_header(layout))]
        if (text := message._message_id) is not None:
            headers.append(("JMSMessageID", text.encode()))
        if timestamp:
            headers.append(("JMSTimestamp", b"%d" % timestamp))
        if correlation_id is not None:
            headers.append(("JMSCorrelationID", correlation_id))
        if (reply_to := message._reply_to) is not None:
            headers.append(("JMSReplyTo", f"{reply_to.scheme}://{reply_to._name}".encode()))
        if (text := message._type) is not None:
            headers.append(("JMSType", text.encode()))
        if message._delivery_mode != 2:
            headers.append(("JMSDeliveryMode", b"1"))
        if (number := message._priority) != 4:
            headers.append(("JMSPriority", _DIGITS[number]))
        if number := message._expiration:
            headers.append(("JMSExpiration", b"%d" % number))
        if (number := message._delivery_time) != timestamp and number:
            headers.append(("JMSDeliveryTime", b"%d" % number))
        key = None
        if properties:
            item: Any
            for name, item in properties.items():
                kind = item.__class__
                if kind is str:
                    headers.append((name, item.encode()))
                elif kind is int:
                    headers.append((name, b"%d" % item))
                elif kind is bool:
                    headers.append((name, b"true" if item else b"false"))
                elif kind is float:
                    plain = 1e-3 <= item < 1e7 and types[name] == "double"  # where Python writes as Java does
                    headers.append((name, (repr(item) if plain else text_of(types[name], item)).encode()))
                else:  # None; or bytes as they came, not read yet
                    headers.append((name, item))
            if "JMSXGroupID" in properties:
                key = next(data for name, data in headers if name == "JMSXGroupID")
    except UnicodeEncodeError as error:
        raise MessageFormatException(
            f"a text in this {type(message).__name__} holds a lone surrogate (at index {error.start}),"
            " which UTF-8 cannot carry"
        ) from None
    return _new(KafkaRecord, (key, value, headers, timestamp))


def _body(message: Message) -> tuple[bytes | None, str]:
    kind = next(base for base in type(message).__mro__ if base in _BODIES)
    body_type, value_of = _BODIES[kind]
    if kind is ObjectMessage and message._body[0]:
        body_type = f"object/{message._body[0]}"
    return value_of(message), body_type


def _layout_header(layout: str | tuple[str, ...]) -> bytes:
    body_type, *rest = (layout,) if isinstance(layout, str) else layout
    half = len(rest) // 2
    types = ",".join(map("=".join, zip(rest[:half], rest[half:], strict=True)))
    header = f"{LAYOUT_VERSION};{body_type}{';' if types else ''}{types}".encode()
    if len(_layout_headers) >= _LAYOUT_HEADERS_KEPT:
        _layout_headers.clear()
    _layout_headers[layout] = header
    return header
