"""The JMS types that AMQP's values become, and which of them are the same (AMQP JMS mapping §3.2.3, §3.3.3)."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from kjms.mapping.amqp.properties import jms_value
from kjms.mapping.amqp.types import (
    Byte,
    Char,
    Decimal,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

A_UUID = uuid.UUID(int=1)


@pytest.mark.parametrize(
    ("value", "kind", "expected", "is_same"),
    [
        (True, "boolean", True, True),
        (Byte(-1), "byte", -1, True),
        (Short(-300), "short", -300, True),
        (Int(7), "int", 7, True),
        (7, "long", 7, True),
        (Float(0.1), "float", 0.10000000149011612, True),
        (0.1, "double", 0.1, True),
        ("x", "string", "x", True),
        (None, "string", None, True),
        (UByte(200), "short", 200, False),
        (UShort(60_000), "int", 60_000, False),
        (UInt(2**32 - 1), "long", 2**32 - 1, False),
        (Timestamp(7), "long", 7, False),
        (ULong(2**63 - 1), "long", 2**63 - 1, False),
        (ULong(2**63), "string", "9223372036854775808", False),
        (Symbol("s"), "string", "s", False),
        (Char("é"), "string", "é", False),
        (A_UUID, "string", str(A_UUID), False),
    ],
)
def test_a_property(value: object, kind: str, expected: object, is_same: bool) -> None:
    """Numbers and texts are Python's own, not AMQP's subclasses of them."""
    found = jms_value(value)
    assert found == (kind, expected, is_same)
    assert type(found[1]) is type(expected)


@pytest.mark.parametrize("value", [b"x", [], {}, Decimal(b"12345678")])
def test_what_jms_properties_cannot_be(value: object) -> None:
    assert jms_value(value) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"x", ("bytes", b"x", True)),
        (Char("é"), ("char", "é", True)),
        (Char("\uffff"), ("char", "\uffff", True)),
        (Char("\U00010000"), ("string", "\U00010000", False)),  # Java's char has 16 bits
        ([], None),
    ],
)
def test_a_value_in_a_body(value: Any, expected: object) -> None:
    """Maps and streams have bytes and characters, too."""
    found = jms_value(value, is_body=True)
    assert found == expected
    assert found is None or type(found[1]) in {bytes, str}
