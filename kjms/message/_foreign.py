"""Where a message object of another implementation becomes one of ours."""

from __future__ import annotations

from typing import Any, Final

from kjms.destinations import Destination, Queue, Topic
from kjms.errors import JMSException, MessageFormatException
from kjms.message._base import Message
from kjms.message._bytes import BytesMessage
from kjms.message._map import MapMessage
from kjms.message._object import ObjectMessage
from kjms.message._property_names import is_providers
from kjms.message._stream import StreamMessage
from kjms.message._text import TextMessage

__all__ = ["from_foreign"]

_FIELDS: Final = (
    "jms_message_id", "jms_timestamp", "jms_destination", "jms_delivery_mode", "jms_redelivered", "jms_type",
    "jms_expiration", "jms_delivery_time", "jms_priority", "jms_reply_to",
)  # fmt: skip


def from_foreign(message: Any) -> Message:
    """Return a message of ours with the fields, properties and body of *message*; one of ours is returned itself.

    What counts is the interface, by its names: an object with ``property_names`` is a message, with ``text`` a text
    message, with ``read_unsigned_byte`` a bytes message, with ``read_object`` a stream, with ``item_exists`` a map,
    with ``object`` an object message. Bytes and stream messages are reset by it, as a send resets them. Destinations
    of another implementation are understood where they have a ``queue_name`` or ``topic_name``, else dropped, and so
    are properties that only their provider may set, and what cannot be in the header fields that a send sets.

    Raises:
        MessageFormatException: It is no message, or holds what JMS does not know.

    Spec: JMS 2.0 §3.12.
    """
    if isinstance(message, Message):
        return message
    if not hasattr(message, "property_names") or not hasattr(message, "get_object_property"):
        raise MessageFormatException(
            f"a {type(message).__name__} is not a message (JMS 2.0 §3.12);"
            " create one with a session's create_text_message or the like"
        )
    ours = _with_body(message)
    for field in _FIELDS:
        value = getattr(message, field, None)
        if field in {"jms_destination", "jms_reply_to"}:
            value = _destination(value)
        if value is None:
            continue
        try:
            setattr(ours, field, value)
        except ValueError:
            if field == "jms_type":
                raise
            # What is in the others a send overwrites or leaves alone (JMS 2.0 §3.4.11).
    _copy_correlation_id(message, ours)
    for name in message.property_names():
        if not is_providers(name):
            _copy_property(message, ours, name)
    return ours


def _with_body(message: Any) -> Message:
    if hasattr(message, "text"):
        return TextMessage(message.text)
    if hasattr(message, "read_unsigned_byte"):
        message.reset()
        return BytesMessage(message.read_bytes() or b"")
    if hasattr(message, "read_object"):
        return _stream(message)
    if hasattr(message, "item_exists"):
        names = message.names() if hasattr(message, "names") else message.map_names()
        return MapMessage({name: message.get_object(name) for name in names})
    return ObjectMessage(message.object) if hasattr(message, "object") else Message()


def _stream(message: Any) -> StreamMessage:
    ours = StreamMessage()
    message.reset()
    while True:
        try:
            value = message.read_object()
        except EOFError:  # MessageEOFException is one
            return ours
        ours.write_object(value)


def _destination(value: Any) -> Destination | None:
    if isinstance(value, Destination):
        return value
    for attribute, kind in (("queue_name", Queue), ("topic_name", Topic)):
        name = getattr(value, attribute, None)
        if isinstance(name, str) and name:
            return kind(name)
    return None


def _copy_correlation_id(message: Any, ours: Message) -> None:
    try:
        ours.jms_correlation_id = getattr(message, "jms_correlation_id", None)
    except JMSException:  # theirs is one of bytes
        ours.jms_correlation_id_as_bytes = message.jms_correlation_id_as_bytes


def _copy_property(message: Any, ours: Message, name: str) -> None:
    value = message.get_object_property(name)
    kind = message.property_type(name) if hasattr(message, "property_type") and value is not None else None
    if kind is None:
        ours.set_object_property(name, value)
    else:
        getattr(ours, f"set_{kind}_property")(name, value)
