"""Where a JMS message becomes an AMQP 1.0 message and back: pure, no clock, no I/O, no AMQP library.

The bytes of a transfer are read and written here (docs/decisions/011), so that an AMQP engine has to know nothing of
messages. ObjectMessages whose object is in AMQP's own types (codec ``amqp``) can be read once this is imported.
"""

from __future__ import annotations

from typing import Any

from kjms.mapping.amqp._decode import decode
from kjms.mapping.amqp._encode import encode
from kjms.mapping.amqp._names import TYPED, kind_number, parse_address
from kjms.mapping.amqp._transfer import decode_transfer, encode_transfer
from kjms.mapping.amqp.ids import amqp_id, correlation_id_text, message_id_text
from kjms.mapping.amqp.sections import SEQUENCE, VALUE, AmqpMessage, Body
from kjms.message import register_codec

__all__ = [
    "AmqpMessage",
    "AmqpObject",
    "amqp_id",
    "correlation_id_text",
    "decode",
    "decode_transfer",
    "encode",
    "encode_transfer",
    "kind_number",
    "message_id_text",
    "parse_address",
]


class AmqpObject:
    """An object in AMQP's types, for an ObjectMessage: ``session.create_object_message(AmqpObject(UInt(7)))``.

    Args:
        value: A value of the types in `kjms.mapping.amqp.types`.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AmqpObject) and (type(self.value), self.value) == (type(other.value), other.value)

    def __hash__(self) -> int:
        return hash(repr(self.value))

    def __repr__(self) -> str:
        return f"<AmqpObject of type {type(self.value).__name__}>"


def _write(wanted: AmqpObject) -> bytes:
    return AmqpMessage(body=Body(VALUE, [wanted.value])).encode()


def _read(data: bytes) -> AmqpObject:
    body = AmqpMessage.decode(data).body
    return AmqpObject(body.items if body.kind == SEQUENCE else body.data if body.kind != VALUE else body.values[0])


register_codec(TYPED, AmqpObject, _write, _read)
