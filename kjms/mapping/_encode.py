"""Where a JMS message becomes a Kafka record: pure, no clock, no I/O. The layout is docs/wire-format.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kjms.errors import MessageFormatException
from kjms.mapping._record import KafkaRecord
from kjms.message import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from kjms.message._avro import write_map, write_stream
from kjms.message._base import OWN_VALUE
from kjms.message._values import text_of

__all__ = ["encode"]

LAYOUT_VERSION: Final = 1


def _text_value(message: Message) -> bytes | None:
    text = message._body
    return None if text is None else text.encode()


_BODIES: Final[dict[type[Message], tuple[str, Callable[[Any], bytes | None]]]] = {
    Message: ("message", lambda message: None),
    TextMessage: ("text", _text_value),
    BytesMessage: ("bytes", lambda message: bytes(message._body)),
    MapMessage: ("map", lambda message: write_map(message._body)),
    StreamMessage: ("stream", lambda message: write_stream(message._body)),
    ObjectMessage: ("object", lambda message: message._body[1]),
}
"""How the body of each kind of message is named on the wire, and what gives the record's value."""


def encode(message: Message) -> KafkaRecord:
    """Return the Kafka record that carries *message*, which is left as it was.

    Raises:
        MessageFormatException: A text holds a lone surrogate, which UTF-8 cannot carry.

    >>> message = TextMessage("hi")
    >>> message.set_int_property("amount", 100)
    >>> encode(message)
    KafkaRecord(key=None, value=b'hi', headers=[('kjms', b'1;text;amount=int'), ('amount', b'100')], timestamp=0)
    """
    message._settle()
    if message.__class__ in _BODIES:
        body_type, value_of = _BODIES[message.__class__]
    else:
        body_type, value_of = next(_BODIES[kind] for kind in type(message).__mro__ if kind in _BODIES)
    types = message._types
    timestamp = message._timestamp
    try:
        if message._value is OWN_VALUE:
            value = value_of(message)
            if body_type == "object" and message._body[0]:
                body_type = f"object/{message._body[0]}"
        else:
            value, body_type = message._value, message._reader.body_type  # type: ignore[union-attr]
        correlation_id = message._correlation_id
        if correlation_id.__class__ is bytes:
            types = {"JMSCorrelationID": "bytes", **types}
        if types:
            headers: list[tuple[str, bytes | None]] = [
                ("kjms", f"1;{body_type};{','.join(map('='.join, types.items()))}".encode())
            ]
        else:
            headers = [("kjms", b"1;" + body_type.encode())]
        if message._message_id is not None:
            headers.append(("JMSMessageID", message._message_id.encode()))
        if timestamp:
            headers.append(("JMSTimestamp", b"%d" % timestamp))
        if correlation_id is not None:
            headers.append(
                ("JMSCorrelationID", correlation_id if isinstance(correlation_id, bytes) else correlation_id.encode())
            )
        if message._reply_to is not None:
            headers.append(("JMSReplyTo", str(message._reply_to).encode()))
        if message._type is not None:
            headers.append(("JMSType", message._type.encode()))
        if message._delivery_mode != 2:
            headers.append(("JMSDeliveryMode", b"1"))
        if message._priority != 4:
            headers.append(("JMSPriority", b"%d" % message._priority))
        if message._expiration:
            headers.append(("JMSExpiration", b"%d" % message._expiration))
        if message._delivery_time and message._delivery_time != timestamp:
            headers.append(("JMSDeliveryTime", b"%d" % message._delivery_time))
        key = None
        if message._properties:
            for name, item in message._properties.items():
                kind = item.__class__
                if kind is str:
                    headers.append((name, item.encode()))  # type: ignore[union-attr]
                elif kind is int:
                    headers.append((name, b"%d" % item))  # type: ignore[str-format]
                elif item is None or kind is bytes:  # bytes: as it came, not read yet
                    headers.append((name, item))  # type: ignore[arg-type]
                else:
                    headers.append((name, text_of(types[name], item).encode()))
            group = message._properties.get("JMSXGroupID")
            if group is not None:
                key = group if isinstance(group, bytes) else str(group).encode()
    except UnicodeEncodeError as error:
        raise MessageFormatException(
            f"a text in this {type(message).__name__} holds a lone surrogate (at index {error.start}),"
            " which UTF-8 cannot carry"
        ) from None
    return KafkaRecord(key, value, headers, timestamp)
