"""An AMQP 1.0 message as its sections, and as the bytes of a transfer, both ways: pure.

Spec: AMQP 1.0, part 3: Messaging, §3.2 (message format).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from kjms.mapping.amqp.types import (
    AmqpDecodeError,
    Budget,
    Described,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    decode_value,
    encode_value,
    write_list,
)

__all__ = ["DATA", "SEQUENCE", "VALUE", "AmqpMessage", "Body", "Header", "Properties"]

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78

_NAMES: Final = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}


@dataclass
class Header:
    """What may change on the way (§3.2.1). None: the field is not there."""

    durable: bool | None = None
    priority: int | None = None
    ttl: int | None = None
    """Milliseconds."""
    first_acquirer: bool | None = None
    delivery_count: int | None = None


@dataclass
class Properties:
    """What does not change on the way (§3.2.4). None: the field is not there."""

    message_id: Any = None
    user_id: bytes | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: Any = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_time: int | None = None
    creation_time: int | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None


@dataclass
class Body:
    """The sections that carry the body: they are all of one kind (§3.2.6 to §3.2.8).

    Args:
        kind: `DATA`, `SEQUENCE` or `VALUE`; None: the message has no body, which AMQP forbids and senders do.
        values: What each of the sections holds.
        raw: The sections' bytes as they came.
    """

    kind: int | None = None
    values: list[Any] = field(default_factory=list)
    raw: bytes = b""

    @property
    def data(self) -> bytes:
        """The bytes of all data sections."""
        return self.values[0] if len(self.values) == 1 else b"".join(self.values)

    @property
    def items(self) -> list[Any]:
        """The values of all sequence sections."""
        return [item for sequence in self.values for item in sequence]


@dataclass
class AmqpMessage:
    """A message of AMQP 1.0; delivery annotations are left out, since they end where they are received (§3.2.2)."""

    header: Header = field(default_factory=Header)
    message_annotations: dict[Any, Any] = field(default_factory=dict)
    properties: Properties = field(default_factory=Properties)
    application_properties: dict[Any, Any] = field(default_factory=dict)
    body: Body = field(default_factory=Body)
    footer: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def decode(cls, data: bytes) -> AmqpMessage:
        """Return the message that the bytes of a transfer hold.

        Raises:
            AmqpDecodeError: They hold none.
        """
        header = properties = None
        message_annotations = application_properties = footer = None
        body = Body()
        position, end, last = 0, len(data), 0
        body_start = body_end = 0
        budget = Budget(end)
        while position < end:
            start = position
            budget.take(1)
            code, value_at = _section(data, position, end, budget)
            value, position = decode_value(data, value_at, end, budget)
            if code < last or (code == last and code not in {DATA, SEQUENCE}):
                raise AmqpDecodeError(f"section {code:#04x} at byte {start} follows section {last:#04x} (§3.2)")
            last = code
            _check(code, value, start)
            if DATA <= code <= VALUE:
                if body.kind not in {None, code}:
                    raise AmqpDecodeError(f"the body has sections of two kinds, the second at byte {start} (§3.2)")
                if body.kind is None:
                    body_start = start
                body.kind = code
                body.values.append(value)
                body_end = position  # sections of the body stand together, or they are out of order
            elif code == HEADER:
                header = Header(*_fields(value, _HEADER_TYPES, start))
            elif code == PROPERTIES:
                properties = Properties(*_fields(value, _PROPERTY_TYPES, start))
            elif code == MESSAGE_ANNOTATIONS:
                message_annotations = value
            elif code == APPLICATION_PROPERTIES:
                application_properties = value
            elif code == FOOTER:
                footer = value
        body.raw = bytes(data[body_start:body_end])  # of proton come bytearrays
        return cls(
            header or Header(),
            message_annotations or {},
            properties or Properties(),
            application_properties or {},
            body,
            footer or {},
        )

    def encode(self) -> bytes:
        """Return the bytes of a transfer.

        Raises:
            MessageFormatException: A value has no form in AMQP.
        """
        parts: list[bytes] = []
        header = self.header
        fields: list[Any] = [
            header.durable,
            None if header.priority is None else UByte(header.priority),
            None if header.ttl is None else UInt(header.ttl),
            header.first_acquirer,
            None if header.delivery_count is None else UInt(header.delivery_count),
        ]
        if fields != _NO_HEADER:
            parts += (section_start(HEADER), _list(fields))
        if self.message_annotations:
            parts += (section_start(MESSAGE_ANNOTATIONS), encode_value(self.message_annotations))
        its = self.properties
        fields = [
            its.message_id,
            its.user_id,
            its.to,
            its.subject,
            its.reply_to,
            its.correlation_id,
            None if its.content_type is None else Symbol(its.content_type),
            None if its.content_encoding is None else Symbol(its.content_encoding),
            None if its.absolute_expiry_time is None else Timestamp(its.absolute_expiry_time),
            None if its.creation_time is None else Timestamp(its.creation_time),
            its.group_id,
            None if its.group_sequence is None else UInt(its.group_sequence),
            its.reply_to_group_id,
        ]
        if fields != _NO_PROPERTIES:
            parts += (section_start(PROPERTIES), _list(fields))
        if self.application_properties:
            parts += (section_start(APPLICATION_PROPERTIES), encode_value(self.application_properties))
        if self.body.raw:
            parts.append(self.body.raw)
        elif self.body.kind is not None:
            for value in self.body.values:
                parts += (section_start(self.body.kind), encode_value(value))
        if self.footer:
            parts += (section_start(FOOTER), encode_value(self.footer))
        return b"".join(parts)


_NO_HEADER: Final = [None] * 5
_NO_PROPERTIES: Final = [None] * 13


def section_start(code: int) -> bytes:
    """Return the bytes by which the section *code* begins."""
    return bytes((0, 0x53, code))


def _list(fields: list[Any]) -> bytes:
    while fields and fields[-1] is None:
        fields.pop()
    return write_list([b"\x40" if value is None else encode_value(value) for value in fields])


def _section(data: bytes, position: int, end: int, budget: Budget) -> tuple[int, int]:
    """Return which section begins at *position*, and where its value does."""
    if data[position] == 0:
        if end - position > 2 and data[position + 1] == 0x53 and HEADER <= data[position + 2] <= FOOTER:
            return data[position + 2], position + 3
        descriptor, value_at = decode_value(data, position + 1, end, budget)
        code = _NAMES.get(descriptor) if isinstance(descriptor, str) else descriptor
        if isinstance(code, int) and HEADER <= code <= FOOTER:
            return int(code), value_at
    raise AmqpDecodeError(f"no section of a message begins at byte {position} (§3.2)")


_SHAPES: Final[dict[int, type | tuple[type, ...]]] = {
    HEADER: list,
    DELIVERY_ANNOTATIONS: (dict, type(None)),
    MESSAGE_ANNOTATIONS: (dict, type(None)),
    PROPERTIES: list,
    APPLICATION_PROPERTIES: (dict, type(None)),
    DATA: bytes,
    SEQUENCE: list,
    VALUE: object,
    FOOTER: (dict, type(None)),
}


def _check(code: int, value: Any, start: int) -> None:
    if not isinstance(value, _SHAPES[code]) or (isinstance(value, Described) and code != VALUE):
        raise AmqpDecodeError(f"section {code:#04x} at byte {start} holds a {type(value).__name__} (§3.2)")


def _or_null(*types: type) -> tuple[tuple[type, ...], ...]:
    return tuple((each, type(None)) for each in types)


_HEADER_TYPES: Final = _or_null(bool, UByte, UInt, bool, UInt)
# Timestamps and UInts are integers: some senders write another type of integer.
_PROPERTY_TYPES: Final = _or_null(object, bytes, str, str, str, object, str, str, int, int, str, int, str)


def _fields(values: list[Any], types: tuple[tuple[type, ...], ...], start: int) -> list[Any]:
    if len(values) > len(types):
        raise AmqpDecodeError(f"the section at byte {start} has {len(values)} fields, more than {len(types)} (§3.2)")
    if not all(map(isinstance, values, types)):
        number = list(map(isinstance, values, types)).index(False)
        kind = type(values[number]).__name__
        raise AmqpDecodeError(f"field {number} of the section at byte {start} is a {kind} (§3.2)")
    return values
