"""Where a JMS message becomes an AMQP message: pure, no clock, no I/O.

Spec: AMQP JMS mapping §3.2.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from kjms.destinations import Destination
from kjms.errors import MessageFormatException
from kjms.mapping.amqp._decode import BYTES, MAP, MESSAGE, OBJECT, STREAM, TEXT, _charset, content_type_property
from kjms.mapping.amqp._names import (
    CONTENT_ENCODING,
    CONTENT_TYPE,
    DELIVERY_TIME,
    DEST,
    FIRST_ACQUIRER,
    JAVA,
    MSG_TYPE,
    OBJECT_CODEC,
    OCTETS,
    OWN,
    REPLY_TO,
    REPLY_TO_GROUP,
    REST,
    SENT_TO,
    SERIALIZED,
    TTL,
    TYPED,
    kind_number,
)
from kjms.mapping.amqp.ids import amqp_id
from kjms.mapping.amqp.properties import AMQP_KINDS
from kjms.mapping.amqp.sections import DATA, SEQUENCE, VALUE, AmqpMessage, Body, Header, Properties
from kjms.mapping.amqp.types import Byte, Symbol
from kjms.message import JMSX, BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from kjms.message._avro import TypedValue
from kjms.message._codecs import PLAIN, from_wire

__all__ = ["encode", "id_of", "property_value"]

LONGEST_TTL: Final = (1 << 32) - 1
DEFAULT_PRIORITY: Final = 4
ELSEWHERE: Final = OWN | {
    JMSX.DELIVERY_COUNT,
    JMSX.USER_ID,
    JMSX.GROUP_ID,
    JMSX.GROUP_SEQ,
    TTL,
    FIRST_ACQUIRER,
    REPLY_TO_GROUP,
}
"""Properties that have their place in other sections than the application-properties."""


def encode(message: Message, *, now_ms: int = 0) -> AmqpMessage:
    """Return the AMQP message that carries *message*, which is left as it was; its ``encode()`` gives the bytes.

    Args:
        message: A message to send, with its header fields set; or one that was received, to pass on.
        now_ms: Milliseconds since 1970 UTC: from it on the ttl counts of a message that expires.

    Raises:
        MessageFormatException: The body cannot be read, or a text holds a lone surrogate.

    Spec: AMQP JMS mapping §3.2.
    """
    message._settle()
    result = AmqpMessage()
    rest = _rest(message)
    get = message._property_value
    result.header = _header(message, now_ms)
    annotations = result.message_annotations
    sent_to = None
    if rest is not None:
        annotations.update(rest.message_annotations)
        sent_to = annotations.pop(SENT_TO, None)
        result.footer = rest.footer
    group_sequence = get(JMSX.GROUP_SEQ)
    expiration = message.jms_expiration
    its = result.properties = Properties(
        message_id=id_of(message.jms_message_id),
        user_id=_user_id(get(JMSX.USER_ID)),
        subject=message.jms_type,
        correlation_id=_correlation_id(message),
        absolute_expiry_time=expiration or None,
        creation_time=message.jms_timestamp or None,
        group_id=_text(get(JMSX.GROUP_ID)),
        group_sequence=group_sequence & 0xFFFFFFFF if isinstance(group_sequence, int) else None,
        reply_to_group_id=_text(get(REPLY_TO_GROUP)),
        content_type=_ascii(get(CONTENT_TYPE)),
        content_encoding=_ascii(get(CONTENT_ENCODING)),
    )
    its.to, annotation = _address(message.jms_destination)
    if annotation is not None:
        annotations[DEST] = annotation
    its.reply_to, annotation = _address(message.jms_reply_to)
    if annotation is not None:
        annotations[REPLY_TO] = annotation
    if message.jms_delivery_time > message.jms_timestamp:
        annotations[DELIVERY_TIME] = message.jms_delivery_time
    kind, result.body = _body(message, its, annotations)
    annotations[MSG_TYPE] = Byte(kind)
    for name in message.property_names():
        if name not in ELSEWHERE:
            result.application_properties[name] = property_value(message, name)
    if rest is not None:
        result.application_properties.update(rest.application_properties)
        _restore(message, result, rest, sent_to)
    return result


def _restore(message: Message, result: AmqpMessage, rest: AmqpMessage, sent_to: Any) -> None:
    """Give *result* the fields, and the kind of body, that *message* came with, as far as they still are of it."""
    its, kept = result.properties, rest.properties
    if kept.user_id is not None and message._property_value(JMSX.USER_ID) == kept.user_id.decode(errors="replace"):
        its.user_id = kept.user_id
    if kept.to is not None and sent_to == its.to:
        its.to = kept.to or None
    if kept.reply_to is not None and kept.reply_to == str(message.jms_reply_to):
        its.reply_to = kept.reply_to
    if kept.absolute_expiry_time == 0:
        its.absolute_expiry_time = None
    if kept.content_type is not None and content_type_property(kept.content_type) == _text(
        message._property_value(CONTENT_TYPE)
    ):
        its.content_type = kept.content_type or None
    body = result.body
    if rest.body.kind in {None, body.kind} or body.raw:
        return
    value = body.values[0]
    if rest.body.kind == DATA and value.__class__ is str:
        result.body = Body(DATA, [value.encode()])
    elif rest.body.kind == VALUE and value is not None:
        text = message.text if isinstance(message, TextMessage) else None
        result.body = Body(VALUE, [value if text is None else text])


def property_value(message: Message, name: str) -> Any:
    """Return a property in the AMQP type that its JMS type stands for."""
    value = message._property_value(name)  # before its type: what cannot be read in that is a string
    return _value(message._types.get(name, "string"), value)


def _header(message: Message, now_ms: int) -> Header:
    header = Header()
    if message.jms_delivery_mode == 2:
        header.durable = True
    if message.jms_priority != DEFAULT_PRIORITY:
        header.priority = message.jms_priority
    chosen = message._property_value(TTL)
    if isinstance(chosen, int) and 0 <= chosen <= LONGEST_TTL:
        header.ttl = int(chosen) or None
    elif message.jms_expiration and now_ms:
        left = max(message.jms_expiration - now_ms, 1)
        header.ttl = left if left <= LONGEST_TTL else None
    if message._delivery_count > 1:
        header.delivery_count = message._delivery_count - 1
    return header


def _rest(message: Message) -> AmqpMessage | None:
    """Return what a message brought along that JMS has no place for."""
    text = message._property_value(REST)
    if not isinstance(text, str):
        return None
    try:
        return AmqpMessage.decode(base64.b64decode(text, validate=True))
    except (MessageFormatException, binascii.Error, ValueError):  # others may have written into the topic
        return None


def id_of(text: str | None) -> Any:
    """Return the id that a JMSMessageID or JMSCorrelationID stands for, in the type that it says; else its text."""
    try:
        return amqp_id(text)
    except MessageFormatException:  # what any JMS program may have set must not stop a consumer
        return text


def _correlation_id(message: Message) -> Any:
    message.jms_correlation_id  # noqa: B018 - reads it
    kept = message._correlation_id
    return kept if isinstance(kept, bytes) else id_of(kept)


def _user_id(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _ascii(value: Any) -> str | None:
    """Return a text that can be a symbol; another program may have written any into the property."""
    return value if isinstance(value, str) and value.isascii() else None


def _address(destination: Destination | None) -> tuple[str | None, Byte | None]:
    return (None, None) if destination is None else (destination._name, Byte(kind_number(destination)))


def _value(kind: str, value: Any) -> Any:
    return value if value is None else AMQP_KINDS[kind](value)


# --------------------------------------------------------------------------------------------------------- body


def _body(message: Message, its: Properties, annotations: dict[Any, Any]) -> tuple[int, Body]:
    if isinstance(message, TextMessage):
        text = message.text
        charset = None if its.content_type is None or text is None else _charset(its.content_type)
        if charset is None:
            its.content_type = None
            return TEXT, Body(VALUE, [text])
        return TEXT, Body(DATA, [text.encode(charset, errors="replace")])  # type: ignore[union-attr]
    if isinstance(message, BytesMessage):
        its.content_type = its.content_type or OCTETS
        return BYTES, Body(DATA, [bytes(message._body)])
    if isinstance(message, MapMessage):
        return MAP, Body(VALUE, [{name: _entry(entry) for name, entry in message._body.items()}])
    if isinstance(message, StreamMessage):
        return STREAM, Body(SEQUENCE, [[_entry(entry) for entry in message._body]])
    if isinstance(message, ObjectMessage):
        return OBJECT, _object(message, its, annotations)
    return MESSAGE, Body(VALUE, [None])


def _entry(entry: TypedValue) -> Any:
    return _value(*entry)


def _object(message: ObjectMessage, its: Properties, annotations: dict[Any, Any]) -> Body:
    codec, data = message._body
    if codec == JAVA and data is not None:
        its.content_type = SERIALIZED
        return Body(DATA, [data])
    if codec == TYPED and data is not None:
        body = AmqpMessage.decode(data).body
        if body.kind is None:
            raise MessageFormatException("the object has no section of a body (AMQP 1.0 part 3, §3.2)")
        return body
    if codec and data is not None:
        annotations[OBJECT_CODEC] = Symbol(codec)
        its.content_type = its.content_type or OCTETS
        return Body(DATA, [data])
    return Body(VALUE, [None if data is None else _plain(from_wire(PLAIN, data))])


def _plain(value: Any) -> Any:
    """Return a plain value as AMQP has it: whole numbers beyond 64 bits, which it has not, are text."""
    if value.__class__ is int and not -(1 << 63) <= value < 1 << 63:
        try:
            return str(value)
        except ValueError as error:  # the text of so large a number takes time quadratic in its length
            raise MessageFormatException(f"a whole number of {value.bit_length()} bits has no form in AMQP") from error
    if value.__class__ is list:
        return [_plain(item) for item in value]
    if value.__class__ is dict:
        return {name: _plain(item) for name, item in value.items()}
    return value
