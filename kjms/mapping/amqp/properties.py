"""Application properties: values of AMQP's types as those of JMS, and back. Pure.

Spec: AMQP JMS mapping §3.2.3, §3.3.3, which leave open what becomes of the types that JMS does not have.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Final

from kjms.mapping.amqp.types import Byte, Char, Float, Int, Short, Symbol, Timestamp, UByte, UInt, ULong, UShort
from kjms.message._values import RANGES, Value, float32

__all__ = ["AMQP_KINDS", "jms_value"]

LARGEST_LONG: Final = RANGES["long"][1]

AMQP_KINDS: Final[dict[str, Callable[[Any], Any]]] = {
    "boolean": bool, "byte": Byte, "short": Short, "int": Int, "long": int, "float": Float, "double": float,
    "char": Char, "string": str, "bytes": bytes,
}  # fmt: skip
"""What stands in AMQP for a value of each JMS type that is not None."""

_SAME: Final[dict[type, str]] = {
    bool: "boolean", Byte: "byte", Short: "short", Int: "int", int: "long", Float: "float", float: "double",
    str: "string", type(None): "string",
}  # fmt: skip
_WIDER: Final[dict[type, str]] = {
    UByte: "short", UShort: "int", UInt: "long", Timestamp: "long", Char: "string", Symbol: "string",
}  # fmt: skip
_PLAIN: Final[dict[str, Callable[[Any], Value]]] = {"string": str, "float": float32}


def jms_value(value: Any, *, is_body: bool = False) -> tuple[str, Value, bool] | None:
    """Return the JMS type that an AMQP value has, the value, and whether JMS has that very type.

    A number without a sign becomes the next larger type with one; a ulong beyond that, and a uuid, becomes a string.

    Args:
        value: The value.
        is_body: Whether it stands in a map or stream, where char and byte[] exist.

    Returns:
        None where JMS has nothing like it: lists, maps, decimals; among properties binaries.

    >>> jms_value(Int(5)), jms_value(UInt(5)), jms_value([])
    (('int', 5, True), ('long', 5, False), None)
    """
    kind = value.__class__
    name = _SAME.get(kind)
    if name is not None:
        return name, (value if value is None else _plain(name, value)), True
    if is_body:
        if kind is bytes:
            return "bytes", value, True
        if kind is Char and value <= "\uffff":
            return "char", str(value), True
    name = _WIDER.get(kind)
    if name is not None:
        return name, _plain(name, value), False
    if kind is ULong:
        return ("long", int(value), False) if value <= LARGEST_LONG else ("string", str(int(value)), False)
    if kind is uuid.UUID:
        return "string", str(value), False
    return None


def _plain(name: str, value: Any) -> Value:
    if name in RANGES:
        return int(value)
    convert = _PLAIN.get(name)
    return value if convert is None else convert(value)
