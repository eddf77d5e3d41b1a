"""The bytes of a transfer that carries a JMS message: in one step for most of the messages that are passed on.

`encode` reads each header field, and an `AmqpMessage` writes each section. Most records in Kafka have at most three of
these fields: what all others stand for is the same in each message, and is written once, here.
"""

from __future__ import annotations

from typing import Final

from kjms.mapping._decode import Layout
from kjms.mapping.amqp._decode import BYTES, TEXT
from kjms.mapping.amqp._encode import encode, id_of, property_value
from kjms.mapping.amqp._names import DEST, KINDS, MSG_TYPE, OCTETS
from kjms.mapping.amqp.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    VALUE,
    section_start,
)
from kjms.mapping.amqp.types import Byte, Symbol, Timestamp, encode_value, write_list, write_map
from kjms.message import BytesMessage, Message, TextMessage
from kjms.message._reading import UNREAD

__all__ = ["encode_transfer"]

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
