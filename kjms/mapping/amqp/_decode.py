"""Where an AMQP message becomes a JMS message: pure, no clock, no I/O.

Spec: AMQP JMS mapping §3.3.
"""

from __future__ import annotations

import base64
import codecs
import encodings
import re
from encodings.aliases import aliases
from typing import Any, Final

from kjms.destinations import Destination
from kjms.errors import MessageFormatException, shown
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
    TYPED,
    parse_address,
)
from kjms.mapping.amqp.ids import correlation_id_text, message_id_text
from kjms.mapping.amqp.properties import jms_value
from kjms.mapping.amqp.sections import DATA, SEQUENCE, VALUE, AmqpMessage, Body, Header, Properties
from kjms.message import JMSX, BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from kjms.message._avro import TypedValue, write_plain
from kjms.message._fields import FIELDS
from kjms.options import LARGEST_LONG

__all__ = ["content_type_property", "decode", "set_header", "set_properties"]

DEFAULT_PRIORITY: Final = 4
GREATEST_PRIORITY: Final = 9
OURS: Final = frozenset({MSG_TYPE, DEST, REPLY_TO, DELIVERY_TIME, OBJECT_CODEC, SENT_TO})
EMPTY: Final[dict[int, Any]] = {DATA: b"", SEQUENCE: [], VALUE: None}
PROVIDERS: Final = OWN | {JMSX.DELIVERY_COUNT, FIRST_ACQUIRER, "kjms", *FIELDS}
"""Properties that come in other sections, or that no client may send."""

MESSAGE, OBJECT, MAP, BYTES, STREAM, TEXT = range(6)  # x-opt-jms-msg-type (mapping §3.2.4.1)

_TEXTUAL: Final = re.compile(
    r"text/[^;]+|application/(?:xml|xml-dtd|json|javascript|ecmascript|[^;/]+\+(?:xml|json))", re.IGNORECASE
)
_CHARSETS: Final = frozenset((*aliases.values(), "koi8_u", "utf_8_sig")) - {
    "base64_codec", "bz2_codec", "hex_codec", "mbcs", "quopri_codec", "rot_13", "tactis", "uu_codec", "zlib_codec",
}  # fmt: skip
"""Python's names of what turns bytes into text in linear time; of its other codecs some fail on any text."""
_CHARSET: Final = re.compile(r""";\s*charset\s*=\s*"?([^";\s]+)""", re.IGNORECASE)


def decode(data: bytes | AmqpMessage, destination: Destination | None = None, *, now_ms: int = 0) -> Message:
    """Return the JMS message that an AMQP message is; what was received, its properties and body are read-only.

    Args:
        data: The message, or the bytes of its transfer.
        destination: Of the link that it came on: what JMSDestination is where the message does not say it, and of
            which kind other addresses are that do not say theirs.
        now_ms: Milliseconds since 1970 UTC; with a ttl and no absolute-expiry-time the message expires after that.

    Raises:
        MessageFormatException: The bytes are no message, or the body is none of the type that the message says.
        InvalidDestinationException: An address cannot be that of a destination.

    Spec: AMQP JMS mapping §3.3.
    """
    source = data if isinstance(data, AmqpMessage) else AmqpMessage.decode(data)
    annotations, its = source.message_annotations, source.properties
    message = _with_body(source)
    message._body_read_only = message._properties_read_only = True
    message._message_id = message_id_text(its.message_id)
    message._correlation_id = correlation_id_text(its.correlation_id)
    message._timestamp = int(its.creation_time or 0)
    message._destination = parse_address(its.to, annotations.get(DEST), destination) or destination
    message._reply_to = parse_address(its.reply_to, annotations.get(REPLY_TO), destination)
    message._type = its.subject
    set_header(message, source.header, now_ms)
    if its.absolute_expiry_time is not None:
        message._expiration = int(its.absolute_expiry_time)
    delivery_time = annotations.get(DELIVERY_TIME)
    is_delayed = isinstance(delivery_time, int) and not isinstance(delivery_time, bool)
    message._delivery_time = int(delivery_time or 0) if is_delayed else message._timestamp
    if message._delivery_time > LARGEST_LONG:
        raise MessageFormatException(
            f"{DELIVERY_TIME} is {message._delivery_time}, and JMSDeliveryTime a long, of {LARGEST_LONG} at most"
            " (JMS 2.0 §3.4.13)"
        )
    set_properties(message, source, _kept(message, source, destination or message._destination))
    return message


def _kept(message: Message, source: AmqpMessage, destination: Destination | None) -> AmqpMessage:
    """Return what `encode` would not make of *message* again, sent to *destination*, for the property REST.

    In the properties section, an empty text, or 0, says that the field was not there. A section of the body says of
    which kind those of the body were.
    """
    its, kept = source.properties, AmqpMessage()
    if its.user_id is not None and its.user_id.decode(errors="replace").encode() != its.user_id:
        kept.properties.user_id = its.user_id
    if destination is not None and its.to != destination._name:
        kept.properties.to = its.to or ""
        kept.message_annotations[SENT_TO] = destination._name
    if message._reply_to is not None and its.reply_to != message._reply_to._name:
        kept.properties.reply_to = its.reply_to
    if its.absolute_expiry_time is None and source.header.ttl is not None:
        kept.properties.absolute_expiry_time = 0
    content_type, kind = _made_of(message, source)
    if its.content_type != content_type:
        kept.properties.content_type = its.content_type or ""
    if source.body.kind not in {None, kind}:
        kept.body = Body(source.body.kind, [EMPTY[source.body.kind]])
    return kept


def _made_of(message: Message, source: AmqpMessage) -> tuple[str | None, int | None]:
    """Return the content type and the kind of the body's sections that `encode` makes of *message*."""
    content_type = content_type_property(source.properties.content_type)
    if isinstance(message, TextMessage):
        is_data = content_type is not None and message._content is not None and _charset(content_type) is not None
        return (content_type, DATA) if is_data else (None, VALUE)
    if isinstance(message, BytesMessage):
        return content_type or OCTETS, DATA
    codec = message._content[0] if isinstance(message, ObjectMessage) else ""
    if codec:
        if codec == TYPED:
            return content_type, source.body.kind
        return SERIALIZED if codec == JAVA else content_type or OCTETS, DATA
    return content_type, SEQUENCE if isinstance(message, StreamMessage) else VALUE


def content_type_property(content_type: str | None) -> str | None:
    """Return what the property CONTENT_TYPE says of a content type: nothing of those that types of messages stand for.

    >>> content_type_property("text/plain"), content_type_property("application/octet-stream")
    ('text/plain', None)
    """
    return None if content_type in {None, "", OCTETS, SERIALIZED} else str(content_type)


def set_header(message: Message, header: Header, now_ms: int) -> None:
    """Set what a header section says; with a ttl the message expires so long after *now_ms*."""
    message._delivery_mode = 2 if header.durable else 1
    message._priority = DEFAULT_PRIORITY if header.priority is None else min(int(header.priority), GREATEST_PRIORITY)
    if header.ttl is not None:
        message._expiration = now_ms + header.ttl
    message._delivery_count = (header.delivery_count or 0) + 1


# --------------------------------------------------------------------------------------------------- properties


def set_properties(message: Message, source: AmqpMessage, besides: AmqpMessage | None = None) -> None:
    """Set the properties: the application's, those that other sections have, and what is kept *besides*."""
    its = source.properties
    unlike: dict[Any, Any] = {}  # what no property of JMS can be, or not without a loss
    for name, value in source.application_properties.items():
        found = jms_value(value)
        if found is None or not _is_name(name):
            unlike[name] = value
            continue
        kind, kept, is_exact = found
        if kind != "string" and ("," in name or ";" in name):  # the record's layout cannot say its type
            kind, is_exact = "string", False
            kept = str(kept)
        if not is_exact:
            unlike[name] = value
        _set(message, str(name), kind, kept)
    if its.user_id is not None:
        _set(message, JMSX.USER_ID, "string", its.user_id.decode(errors="replace"))
    if its.group_id is not None:
        _set(message, JMSX.GROUP_ID, "string", its.group_id)
    if its.group_sequence is not None:
        number = int(its.group_sequence)
        _set(message, JMSX.GROUP_SEQ, "int", number - (1 << 32) if number >= 1 << 31 else number)
    if its.reply_to_group_id is not None:
        _set(message, REPLY_TO_GROUP, "string", its.reply_to_group_id)
    if source.header.first_acquirer is not None:
        _set(message, FIRST_ACQUIRER, "boolean", source.header.first_acquirer)
    content_type = content_type_property(its.content_type)
    if content_type is not None:
        _set(message, CONTENT_TYPE, "string", content_type)
    if its.content_encoding is not None:
        _set(message, CONTENT_ENCODING, "string", str(its.content_encoding))
    annotations = {key: value for key, value in source.message_annotations.items() if key not in OURS}
    unlike = {name: value for name, value in unlike.items() if name not in PROVIDERS}
    rest = AmqpMessage() if besides is None else besides
    rest.message_annotations.update(annotations)
    rest.application_properties, rest.footer = unlike, source.footer
    data = rest.encode()
    if data:
        _set(message, REST, "string", base64.b64encode(data).decode())


def _is_name(name: Any) -> bool:
    """Tell whether a Kafka header may be called so that holds a property."""
    return (
        isinstance(name, str)
        and bool(name)
        and name.isprintable()
        and name not in PROVIDERS
        and not name.startswith("kjms-")  # those are kjms's own
    )


def _set(message: Message, name: str, kind: str, value: Any) -> None:
    message._properties[name] = value
    if kind != "string":
        message._types[name] = kind


# --------------------------------------------------------------------------------------------------------- body


def _with_body(source: AmqpMessage) -> Message:
    said = source.message_annotations.get(MSG_TYPE)
    if said is None or isinstance(said, bool):
        kind = _kind_of(source.body, source.properties)
    elif isinstance(said, int) and MESSAGE <= said <= TEXT:
        kind = int(said)
    else:
        raise MessageFormatException(f"x-opt-jms-msg-type is 0 to 5, and not {shown(said)} (mapping §3.2.4)")
    return _READERS[kind](source)


def _kind_of(body: Body, properties: Properties) -> int:
    """Return the type of a message that does not say it (mapping §3.3.4.3 to §3.3.4.5)."""
    if body.kind == DATA:
        content_type = properties.content_type
        if content_type == SERIALIZED:
            return OBJECT
        return TEXT if content_type is not None and _charset(content_type) is not None else BYTES
    if body.kind == SEQUENCE:
        return OBJECT
    value = body.values[0] if body.values else None
    if value is None or value.__class__ is str:
        return TEXT
    return BYTES if value.__class__ is bytes else OBJECT


def _charset(content_type: str) -> str | None:
    """Return the charset of a textual content type; None if it is not textual, or the charset is not known here."""
    if not _TEXTUAL.match(content_type):
        return None
    said = _CHARSET.search(content_type)
    if said is None:
        return "utf-8"
    name = encodings.normalize_encoding(said[1]).lower()
    name = aliases.get(name, name)
    return codecs.lookup(name).name if name in _CHARSETS else None


def _message(source: AmqpMessage) -> Message:
    return Message()


def _text(source: AmqpMessage) -> Message:
    body = source.body
    if body.kind == DATA:
        charset = _charset(source.properties.content_type or "text/plain") or "utf-8"
        try:
            return TextMessage(body.data.decode(charset))
        except UnicodeError:
            raise _unlike("text", f"bytes that are not {charset}") from None
    value = body.values[0] if body.values else None
    if body.kind == SEQUENCE or not (value is None or isinstance(value, str)):
        raise _unlike("text", _seen(body))
    return TextMessage(value if value is None else str(value))


def _bytes(source: AmqpMessage) -> Message:
    body = source.body
    value: Any = b""
    if body.kind == DATA:
        value = body.data
    elif body.kind == VALUE:
        value = b"" if body.values[0] is None else body.values[0]
    if body.kind == SEQUENCE or value.__class__ is not bytes:
        raise _unlike("bytes", _seen(body))
    message = BytesMessage()
    message._content = value
    return message


def _map(source: AmqpMessage) -> Message:
    value = source.body.values[0] if source.body.values else None
    if source.body.kind not in {VALUE, None} or not (value is None or value.__class__ is dict):
        raise _unlike("map", _seen(source.body))
    message = MapMessage()
    for name, item in (value or {}).items():
        if not isinstance(name, str) or not name:
            raise _unlike("map", f"an entry whose name is a {type(name).__name__}")
        message._content[str(name)] = _typed("map", item)
    return message


def _stream(source: AmqpMessage) -> Message:
    body = source.body
    items = body.items if body.kind == SEQUENCE else body.values[0] if body.values else None
    if body.kind == DATA or not (items is None or items.__class__ is list):
        raise _unlike("stream", _seen(body))
    message = StreamMessage()
    message._content = [_typed("stream", item) for item in items or ()]
    return message


def _typed(noun: str, item: Any) -> TypedValue:
    found = jms_value(item, is_body=True)
    if found is None:
        raise _unlike(noun, f"a {type(item).__name__} among its values")
    return found[0], found[1]


def _object(source: AmqpMessage) -> Message:
    body = source.body
    message = ObjectMessage()
    if body.kind == DATA:
        codec = source.message_annotations.get(OBJECT_CODEC)
        if source.properties.content_type == SERIALIZED:
            message.serialized = JAVA, body.data
        elif isinstance(codec, str) and codec:
            message.serialized = str(codec), body.data
        else:
            message.serialized = TYPED, body.raw
    elif body.kind == VALUE and is_plain(body.values[0]):
        value = body.values[0]
        message._content = ("", None if value is None else write_plain(value))
    elif body.kind is not None:
        message.serialized = TYPED, body.raw
    return message


def is_plain(value: Any) -> bool:
    """Tell whether an AMQP value is made of those alone that an ObjectMessage carries without a codec."""
    kind = value.__class__
    if kind is list:
        return all(is_plain(item) for item in value)
    if kind is dict:
        return all(key.__class__ is str and is_plain(item) for key, item in value.items())
    return value is None or kind in {bool, int, float, str, bytes}


_READERS: Final = (_message, _object, _map, _bytes, _stream, _text)


def _seen(body: Body) -> str:
    if body.kind == VALUE:
        return f"an amqp-value of type {type(body.values[0]).__name__}"
    return "data sections" if body.kind == DATA else "amqp-sequence sections"


def _unlike(noun: str, seen: str) -> MessageFormatException:
    return MessageFormatException(f"the body of a {noun} message cannot be {seen} (mapping §3.2.4)")
