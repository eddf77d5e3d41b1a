"""The bytes of a transfer that carries a JMS message: read and written in one step, for most messages.

`decode` and `encode` handle every message, by way of an `AmqpMessage` with all of its sections. Most messages are
texts, or bytes, with an id, a time and properties: what all other fields stand for is the same in each of them, and is
read or written once, here.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, Final

from kjms.destinations import Destination
from kjms.errors import MessageFormatException
from kjms.mapping._decode import Layout
from kjms.mapping.amqp._decode import BYTES, TEXT, decode, set_header, set_properties
from kjms.mapping.amqp._encode import encode, id_of, property_value
from kjms.mapping.amqp._names import DEST, KINDS, MSG_TYPE, OCTETS, parse_address
from kjms.mapping.amqp.ids import message_id_text
from kjms.mapping.amqp.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    VALUE,
    AmqpMessage,
    Header,
    section_start,
)
from kjms.mapping.amqp.types import (
    Budget,
    Byte,
    Symbol,
    Timestamp,
    decode_value,
    encode_value,
    write_list,
    write_map,
)
from kjms.message import BytesMessage, Message, TextMessage
from kjms.message._reading import UNREAD

__all__ = ["decode_transfer", "encode_transfer"]

FIELDS: Final = frozenset({"JMSMessageID", "JMSTimestamp", "JMSDeliveryMode"})
"""The header fields that may be in the record. All others begin with ``JMS``, too, and so do properties like them."""

NULL: Final = encode_value(None)
DURABLE: Final = section_start(HEADER) + write_list([encode_value(True)])
ANNOTATIONS: Final = {
    (kind, number): section_start(MESSAGE_ANNOTATIONS) + encode_value({DEST: Byte(place), MSG_TYPE: Byte(number)})
    for place, kind in enumerate(KINDS)
    for number in (TEXT, BYTES)
}
TEXT_TYPE: Final = [NULL] * 6  # from the subject to the expiry, with the content's type and encoding
BYTES_TYPE: Final = [*[NULL] * 3, encode_value(Symbol(OCTETS)), NULL, NULL]
START_OF_PROPERTIES: Final = section_start(PROPERTIES)
START_OF_APPLICATION_PROPERTIES: Final = section_start(APPLICATION_PROPERTIES)
START_OF_VALUE: Final = section_start(VALUE)
START_OF_DATA: Final = section_start(DATA)


def encode_transfer(message: Message, *, now_ms: int = 0) -> bytes:
    """Return the bytes of the AMQP message that carries *message*: those of ``encode(message).encode()``.

    Args:
        message: A message to send, with its header fields set; or one that was received, to pass on.
        now_ms: Milliseconds since 1970 UTC: from it on the ttl counts of a message that expires.

    Raises:
        MessageFormatException: The body cannot be read, or a text holds a lone surrogate.

    Spec: AMQP JMS mapping §3.2.
    """
    names = _names_if_plain(message)
    timestamp = 0 if names is None else message.jms_timestamp
    destination = message._destination
    if names is None or not timestamp or destination is None:
        return encode(message, now_ms=now_ms).encode()
    is_text = message.__class__ is TextMessage
    message_id = id_of(message.jms_message_id)
    fields = [
        NULL if message_id is None else encode_value(message_id),
        NULL,
        encode_value(destination._name),
        *(TEXT_TYPE if is_text else BYTES_TYPE),
        encode_value(Timestamp(timestamp)),
    ]
    parts = [
        DURABLE if message.jms_delivery_mode == Message.DEFAULT_DELIVERY_MODE else b"",
        ANNOTATIONS[destination.__class__, TEXT if is_text else BYTES],
        START_OF_PROPERTIES,
        write_list(fields),
    ]
    if names:
        values = [item for name in names for item in (encode_value(name), encode_value(property_value(message, name)))]
        parts += (START_OF_APPLICATION_PROPERTIES, write_map(values))
    if is_text:
        parts += (START_OF_VALUE, encode_value(message._body))
    else:
        parts += (START_OF_DATA, encode_value(bytes(message._body)))
    return b"".join(parts)


def _names_if_plain(message: Message) -> list[str] | None:
    """Return the names of the properties of a message that can be encoded in one step; None: it is no such message."""
    if (
        (message.__class__ is not TextMessage and message.__class__ is not BytesMessage)
        or message._reader.__class__ is not Layout
        or not message._mixed
        or message._delivery_count != 1
        or message._correlation_id is not UNREAD
        or message._reply_to is not UNREAD
        or message._type is not UNREAD
        or message._priority is not UNREAD
        or message._expiration is not UNREAD
        or message._delivery_time is not UNREAD
    ):
        return None
    names = []
    for name in message._properties:
        if name not in FIELDS:
            if name[:3] == "JMS":
                return None
            names.append(name)
    return names


# ----------------------------------------------------------------------------------------------------------- decoding

LARGEST: Final = 1 << 16  # bytes of a message that is read in one step; reading takes most of the time of larger ones
LARGEST_SECTION: Final = 256  # bytes of a section that is remembered
MOST_FIELDS: Final = 13  # of the properties
LISTS: Final = 0xC0, 0xD0  # with a size of one byte, and of four
MAPS: Final = 0xC1, 0xD1
OCTETS_SYMBOL: Final = encode_value(Symbol(OCTETS))
_TIMESTAMP: Final = struct.Struct(">q")
_SIZE: Final = struct.Struct(">I")
_SIZES: Final = struct.Struct(">II")


class Unusual(Exception):
    """A message is not read in one step."""


def decode_transfer(data: bytes, destination: Destination | None = None, *, now_ms: int = 0) -> Message:
    """Return the JMS message in the bytes of a transfer: that which `decode` returns.

    Args:
        data: The bytes.
        destination: Of the link that it came on; see `decode`.
        now_ms: Milliseconds since 1970 UTC; with a ttl the message expires after that.

    Raises:
        MessageFormatException: The bytes are no message, or the body is none of the type that the message says.
        InvalidDestinationException: An address cannot be that of a destination.

    Spec: AMQP JMS mapping §3.3.
    """
    if len(data) <= LARGEST:
        try:
            return _decode(data, destination, now_ms)
        except (Unusual, IndexError, UnicodeDecodeError, struct.error, MessageFormatException):
            pass  # `decode` reads it, or says what is wrong with it
    return decode(data, destination, now_ms=now_ms)


def _decode(data: bytes, destination: Destination | None, now_ms: int) -> Message:
    header, position = None, 0
    if data[2] == HEADER:
        position, _, _ = _compound(data, 0, LISTS)
        header = _header(_short(data, 0, position))
    start = position
    position, _, _ = _compound(data, start, MAPS)
    kind, number = _annotated(_short(data, start, position))
    message_id, to, has_type, timestamp, position = _fields(data, position)
    sent_to = parse_address(to, number, destination) or destination
    where = destination or sent_to
    if has_type is (kind == TEXT) or (where is not None and to != where._name):
        raise Unusual  # `decode` keeps what these say
    properties = None
    if data[position + 2] == APPLICATION_PROPERTIES:
        properties, position = decode_value(data, _value_at(data, position), len(data), Budget(len(data)))
        if properties.__class__ is not dict:
            raise Unusual
    message: Message
    body = _body(data, position, VALUE if kind == TEXT else DATA)
    if kind == TEXT:
        message = TextMessage(None if body is None else body.decode())
    else:
        message = BytesMessage()
        message._content = body
    message._body_read_only = message._properties_read_only = True
    message._message_id = message_id_text(message_id)
    message._timestamp = message._delivery_time = timestamp
    message._destination = sent_to
    set_header(message, header or Header(), now_ms)
    if properties:
        set_properties(message, AmqpMessage(application_properties=properties))
    return message


def _value_at(data: bytes, position: int) -> int:
    """Return where the value of the section at *position* begins."""
    if data[position] != 0 or data[position + 1] != 0x53:
        raise Unusual
    return position + 3


def _compound(data: bytes, position: int, constructors: tuple[int, int]) -> tuple[int, int, int]:
    """Return where a section of a list or map ends, how many values are in it, and where the first one begins."""
    at = _value_at(data, position) + 1
    short, long = constructors
    if data[at - 1] == short:
        end, count, first = at + 1 + data[at], data[at + 1], at + 2
    elif data[at - 1] == long:
        size, count = _SIZES.unpack_from(data, at)
        end, first = at + 4 + size, at + 8
    else:
        raise Unusual
    if end > len(data):
        raise Unusual
    return end, count, first


def _short(data: bytes, start: int, end: int) -> bytes:
    """Return the bytes of a section, which are remembered, and so may not be many."""
    if end - start > LARGEST_SECTION:
        raise Unusual
    return bytes(data[start:end])


@lru_cache(maxsize=256)
def _header(section: bytes) -> Header:
    header = AmqpMessage.decode(section).header
    if header.first_acquirer is not None or header.ttl is not None:
        raise Unusual
    return header


@lru_cache(maxsize=256)
def _annotated(section: bytes) -> tuple[int, Any]:
    """Return what most message annotations say, and no more: the type of the body, and the kind of the destination."""
    annotations = AmqpMessage.decode(section).message_annotations
    kind, number = annotations.get(MSG_TYPE), annotations.get(DEST)
    if annotations.keys() - {MSG_TYPE, DEST} or kind.__class__ is not Byte or kind not in {TEXT, BYTES}:
        raise Unusual
    return kind, number


def _fields(data: bytes, position: int) -> tuple[str | None, str | None, bool, int, int]:
    """Return what the properties at *position* say, and where they end.

    Returns:
        The id, the address, whether there is a content type, which is that of bytes, the time, and the end.
    """
    if data[position + 2] != PROPERTIES:
        raise Unusual
    end, count, position = _compound(data, position, LISTS)
    if count > MOST_FIELDS:
        raise Unusual
    message_id = to = None
    has_type = False
    timestamp = 0
    for number in range(count):
        code = data[position]
        position += 1
        if code == 0x40:
            continue
        if code == 0xA1 and number in {0, 2}:
            value_at = position + 1
            position = value_at + data[position]
            text = bytes(data[value_at:position]).decode()
            if number == 0:
                message_id = text
            else:
                to = text
        elif code == 0x83 and number == 9:
            (timestamp,) = _TIMESTAMP.unpack_from(data, position)
            position += 8
        elif number == 6 and data[position - 1 : position - 1 + len(OCTETS_SYMBOL)] == OCTETS_SYMBOL:
            position += len(OCTETS_SYMBOL) - 1
            has_type = True
        else:
            raise Unusual
    if position != end:
        raise Unusual
    return message_id, to, has_type, timestamp, end


def _body(data: bytes, position: int, section: int) -> bytes | None:
    """Return the text or bytes of the only section of the body, which is the last of the message; None: null."""
    value_at = _value_at(data, position)
    code = data[value_at]
    short, long = (0xA1, 0xB1) if section == VALUE else (0xA0, 0xB0)
    if data[position + 2] != section:
        raise Unusual
    if code == 0x40 and section == VALUE and value_at + 1 == len(data):
        return None
    if code == short:
        start, size = value_at + 2, data[value_at + 1]
    elif code == long:
        start, (size,) = value_at + 5, _SIZE.unpack_from(data, value_at + 1)
    else:
        raise Unusual
    if start + size != len(data):
        raise Unusual
    return bytes(data[start:])
