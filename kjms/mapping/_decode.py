"""Where a Kafka record becomes a JMS message: pure and lazy, and never stopped by what stands in the record.

`decode` looks at one header, ``kjms``. What it says is the same for most messages of a program, so its reading is
kept, as a `Layout` that they share. The message asks its layout for a header field, property or body when it is
read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from kjms.destinations import Destination, parse_destination
from kjms.errors import MessageFormatException, shown
from kjms.mapping._encode import LAYOUT_VERSION
from kjms.mapping._record import SourceRecord
from kjms.mapping.dead_letters import CAUSE, NUMBERS
from kjms.mapping.delayed import DELAYED
from kjms.mapping.temporary import TO
from kjms.message import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from kjms.message._avro import read_map, read_plain, read_stream
from kjms.message._property_names import DELIVERY_COUNT
from kjms.message._reading import UNREAD
from kjms.message._values import RANGES, Value, parsed

__all__ = ["decode"]

Headers = Sequence[tuple[str, bytes | None]]


def decode(record: SourceRecord, destination: Destination, delivery_count: int = 1) -> Message:
    """Return the message that *record* carries. Never raises: `Message.damage` says what could not be read.

    Args:
        record: A record as the Kafka client gives it.
        destination: Where it was read from; becomes JMSDestination unless the record names another.
        delivery_count: How often the message has been delivered, this time included; becomes JMSXDeliveryCount.
    """
    notes: tuple[str, ...] = ()
    try:
        headers: Headers = record.headers() or ()
        properties: dict[str, Any] = dict(headers)
    except Exception as error:  # the client raises on header names that are no UTF-8
        headers, properties = (), {}
        notes = (f"the record's headers cannot be read ({type(error).__name__})",)
    if len(properties) == len(headers):
        data = properties.pop("kjms", None)
    else:
        data, notes = _settle_duplicates(headers, properties)
    properties.pop(TO, None)
    if DELAYED in properties:  # what a delayed message carries for subscriptions
        del properties[DELAYED]
    if DELIVERY_COUNT in properties:  # the delivery says it, and no record
        del properties[DELIVERY_COUNT]
    layout = _layouts.get(data)
    if layout is None:
        layout = _layout(data) or ForeignLayout(record, data, properties)
    message = _new(layout.message_class)
    message._reader = layout
    message._types = layout.types
    if CAUSE in properties:
        numbers = {name: NUMBERS[name] for name, data in properties.items() if name in NUMBERS and data is not None}
        message._types = {**layout.types, **numbers}
    message._properties = properties
    message._mixed = True
    message._properties_read_only = True
    message._body_read_only = True
    message._value = record.value()
    message._notes = notes
    message._delivery_count = delivery_count
    message._redelivered = None
    message._receipt = None
    message._content = UNREAD
    message._message_id = UNREAD
    message._timestamp = UNREAD
    message._correlation_id = UNREAD
    message._reply_to = UNREAD
    message._type = UNREAD
    message._delivery_mode = UNREAD
    message._priority = UNREAD
    message._expiration = UNREAD
    message._delivery_time = UNREAD
    message._destination = destination
    if "JMSDestination" in properties:
        message._destination = layout.read_field(message, "JMSDestination") or destination
    return message


def _settle_duplicates(headers: Headers, properties: dict[str, Any]) -> tuple[bytes | None, tuple[str, ...]]:
    """Return the layout header and the damage. Of headers of one name the last counts, as in Kafka's ``lastHeader``.

    Of ``kjms`` the first is the layout: the next is a property that an application has called so.
    """
    counts = Counter(name for name, _ in headers)
    layouts = [data for name, data in headers if name == "kjms"]
    if len(layouts) < 2:
        properties.pop("kjms", None)
    repeated = [name for name, count in counts.items() if count > (2 if name == "kjms" else 1)]
    notes = tuple(
        f"header {name!r} stands in the record more than once; the last one counts" for name in repeated[:_NOTES_KEPT]
    )
    return layouts[0] if layouts else None, notes


class Layout:
    """What a ``kjms`` header says, and the reading of the messages that carry it."""

    __slots__ = ("binary_correlation_id", "body_type", "damage", "message_class", "read_value", "sender", "types")

    def __init__(
        self, body_type: str, types: dict[str, str], damage: tuple[str, ...], sender: str | None = None
    ) -> None:
        self.sender = sender
        self.binary_correlation_id = types.pop("JMSCorrelationID", "") == "bytes"
        self.types = types
        self.damage = damage
        kind = body_type.partition("/")[0]
        if kind not in _BODIES:
            self.damage += (f"body type {body_type!r} is not known; the value reads as bytes",)
            kind = body_type = "bytes"
        self.body_type = body_type
        self.message_class, self.read_value = _BODIES[kind]

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        """Return what is pickled, and deeply copied, with a message: all but functions."""
        names = [name for kind in type(self).__mro__ for name in getattr(kind, "__slots__", ())]
        return None, {name: getattr(self, name) for name in names if name != "read_value"}

    def __setstate__(self, state: tuple[None, dict[str, Any]]) -> None:
        for name, value in state[1].items():
            setattr(self, name, value)
        self.read_value = _BODIES[self.body_type.partition("/")[0]][1]

    def read_field(self, message: Message, field: str) -> Any:
        """Return the value of a header field; where it is missing or damaged, its default."""
        data: bytes | None = message._properties.get(field)  # type: ignore[assignment]
        if data is None:
            return self.default(message, field)
        try:
            if field == "JMSCorrelationID" and self.binary_correlation_id:
                return data
            read = _FIELD_READERS.get(field)
            return data.decode() if read is None else read(data)
        except (AttributeError, TypeError, ValueError):
            _note(message, f"header {field} cannot be read: {shown(data)}")
        return data.decode(errors="replace") if read is None else self.default(message, field)

    def default(self, message: Message, field: str) -> Any:
        """Return what a header field means that is not there."""
        return message.jms_timestamp if field == "JMSDeliveryTime" else _DEFAULTS.get(field)

    def read_property(self, message: Message, name: str, data: bytes) -> Value:
        """Return the value of the property *name*; one that is not of its type is the string that stands there."""
        kind = message._types.get(name)
        value: Value
        try:
            if kind is None:
                value = data.decode()
            elif kind in _DIGITS:
                value = int(data)
                if len(data) > _DIGITS[kind] or not data.isdigit():
                    low, high = RANGES[kind]
                    if not low <= value <= high or b"%d" % value != data:
                        value = parsed(kind, data.decode())
            elif kind == "double":
                value = float(data) if not data.translate(None, b"0123456789.-E") else parsed(kind, data.decode())
            else:
                value = parsed(kind, data.decode()) if kind == "float" else _BOOLEANS[data]
        except (KeyError, ValueError):
            value = data.decode(errors="replace")
            if message._types is self.types:
                message._types = dict(self.types)
            message._types.pop(name, None)
            _note(message, f"property {name!r} reads as a string: {shown(data)} is no {kind or 'UTF-8 text'}")
        message._properties[name] = value
        return value

    def read_body(self, message: Message) -> Any:
        """Return the body as the message's class keeps it."""
        value = message._value
        if message.__class__ is TextMessage:
            try:
                return None if value is None else value.decode()
            except ValueError:
                _note(message, "the text is not UTF-8 throughout; U+FFFD stands for what is not")
                return value.decode(errors="replace")
        try:
            body = self.read_value(value)
        except ValueError as error:
            raise MessageFormatException(
                f"the record's value is not a body of type {self.body_type!r}: {error} (docs/wire-format.md)"
            ) from None
        return body if message.__class__ is not ObjectMessage else (self.body_type.partition("/")[2], body)

    def find_damage(self, message: Message) -> tuple[str, ...]:
        """Read all of the message, and return what was found."""
        message._settle()
        for name, value in list(message._properties.items()):
            if isinstance(value, bytes):
                self.read_property(message, name, value)
        found: tuple[str, ...] = ()
        try:
            body = message._body
            if self.body_type == "object" and body[1] is not None:
                read_plain(body[1])
        except (MessageFormatException, ValueError) as error:
            found = (str(error),)
        return self.damage + message._notes + found


class ForeignLayout(Layout):
    """The reading of a record that no JMS program wrote: what its headers do not say its coordinates do.

    Its value is text where it is UTF-8 without control characters, else bytes; a record without a value is a text
    message without text. Its key, where it is UTF-8, is the message group.
    """

    __slots__ = ("message_id", "timestamp")

    def __init__(self, record: SourceRecord, layout_header: bytes | None, properties: dict[str, Any]) -> None:
        value, key = record.value(), record.key()
        damage = () if layout_header is None else (f"header 'kjms' cannot be read: {shown(layout_header)}",)
        types = {"JMSXGroupSeq": "int"} if "JMSXGroupSeq" in properties else {}
        super().__init__("text" if value is None or _is_text(value) else "bytes", types, damage)
        self.message_id = f"ID:kafka-{record.topic()}-{record.partition()}-{record.offset()}"
        self.timestamp = max(record.timestamp()[1], 0)
        if key is not None and "JMSXGroupID" not in properties:
            try:
                properties["JMSXGroupID"] = key.decode()
            except UnicodeDecodeError:
                pass  # no string, and so no property

    def default(self, message: Message, field: str) -> Any:
        """Return what a header field means that is not there."""
        if field == "JMSMessageID":
            return self.message_id
        return self.timestamp if field == "JMSTimestamp" else super().default(message, field)


def _layout(data: bytes | None) -> Layout | None:
    """Return the layout that the header *data* describes, or None if it describes none."""
    if data is None:
        return None
    try:
        version, body_type, *more = data.decode().split(";")
        number = int(version)
    except ValueError:
        return None
    damage = []
    if number != LAYOUT_VERSION:
        damage.append(f"layout version {number} is not {LAYOUT_VERSION}; what is known of it was read")
    types = {}
    for entry in more[0].split(",") if more and more[0] else ():
        name, _, kind = entry.rpartition("=")
        if not name or kind not in _KINDS or (kind == "bytes" and name != "JMSCorrelationID"):
            damage.append(f"type {entry!r} is not known; the property reads as a string")
        elif name != DELIVERY_COUNT:
            types[name] = kind
    sender = next((part for part in more[1:] if part.startswith(_SENDERS)), None)
    layout = Layout(body_type, types, tuple(damage[:_NOTES_KEPT]), sender)
    if len(data) <= _LAYOUT_SIZE_KEPT:
        if len(_layouts) >= _LAYOUTS_KEPT:
            _layouts.clear()
        _layouts[data] = layout
    return layout


_new: Final = object.__new__  # a message that was received is not initialised: each slot is set here
_layouts: dict[bytes | None, Layout] = {}
_LAYOUTS_KEPT: Final = 1024  # a program has as many as kinds of messages; one that makes up names must not fill memory
_LAYOUT_SIZE_KEPT: Final = 4096
_NOTES_KEPT: Final = 100  # of each kind of damage: enough to see what it is

_DEFAULTS: Final = {"JMSDeliveryMode": 2, "JMSPriority": 4, "JMSTimestamp": 0, "JMSExpiration": 0}
_KINDS: Final = frozenset({"boolean", "byte", "short", "int", "long", "float", "double", "bytes"})
_SENDERS: Final = ("client=", "connection=")
_DIGITS: Final = {kind: len(str(high)) - 1 for kind, (_, high) in RANGES.items()}  # with so many, a number is in range
_BOOLEANS: Final = {b"true": True, b"false": False}
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return _CONTROL.search(value) is None


def _note(message: Message, note: str) -> None:
    if len(message._notes) < _NOTES_KEPT:
        message._notes += (note,)


def _long(data: bytes) -> int:
    if data.isdigit() and len(data) < 19:
        return int(data)
    return int(parsed("long", data.decode()))


def _within(low: int, high: int) -> Callable[[bytes], int]:
    def read(data: bytes) -> int:
        value = _long(data)
        if not low <= value <= high:
            raise ValueError(value)
        return value

    return read


_FIELD_READERS: Final[dict[str, Callable[[bytes], Any]]] = {
    "JMSTimestamp": _long,
    "JMSExpiration": _long,
    "JMSDeliveryTime": _long,
    "JMSDeliveryMode": _within(1, 2),
    "JMSPriority": _within(0, 9),
    "JMSReplyTo": lambda data: parse_destination(data.decode()),
    "JMSDestination": lambda data: parse_destination(data.decode()),
}

_BODIES: Final[dict[str, tuple[type[Message], Callable[[bytes | None], Any]]]] = {
    "message": (Message, lambda value: None),
    "text": (TextMessage, lambda value: None if value is None else value.decode()),
    "bytes": (BytesMessage, lambda value: value or b""),
    "map": (MapMessage, lambda value: read_map(value) if value else {}),
    "stream": (StreamMessage, lambda value: read_stream(value) if value else []),
    "object": (ObjectMessage, lambda value: value),
}
"""The class of each body type, and what reads the record's value."""
