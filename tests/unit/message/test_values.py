"""Java's numbers and texts, exactly: what is read, what is refused, what is written."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kjms import MessageFormatException
from kjms.message import Message
from kjms.message._values import checked, float32, parsed, text_of

ACCEPTED = [
    ("byte", "-128", -128), ("byte", "+127", 127), ("short", "-32768", -32768), ("int", "-0", 0),
    ("int", "010", 10), ("int", "٣٤", 34), ("int", "５", 5), ("int", "0" * 5000 + "1", 1),
    ("long", "-9223372036854775808", -(2**63)),
    ("double", "1e3", 1000.0), ("double", "1.", 1.0), ("double", ".5", 0.5), ("double", "1.e3", 1000.0),
    ("double", " \t1.5\n", 1.5), ("double", "1.5f", 1.5), ("double", "1D", 1.0), ("double", "1E+3", 1000.0),
    ("double", "Infinity", math.inf), ("double", "-Infinity", -math.inf), ("double", "1e400", math.inf),
    ("double", "1e-400", 0.0), ("double", "0x1.8p1", 3.0), ("double", "0X.8P0d", 0.5),
    ("double", "-0x1p-1074", -5e-324),
    ("double", "0x1p99999999999", math.inf), ("double", "0x1p-99999999999", 0.0),
    ("float", "0.1", 0.10000000149011612), ("float", "3.4028235677973367e38", math.inf),
    # Ties of two floats: rounded once from the text, not from the nearest double.
    ("float", "1.000000059604644775390625", 1.0),
    ("float", "1.00000005960464477539062500001", 1.00000011920928955078125),
    ("float", "1.00000017881393432617187499", 1.00000011920928955078125),
    ("float", "0x1.00000100000000000000001p0", 1.00000011920928955078125),
]  # fmt: skip
REFUSED = [
    ("int", text) for text in ("", "+", "-", "--5", " 5", "5 ", "1_000", "0x10", "1e3", "1.0", "5L", "²", "𝟓", "9" * 20)
] + [
    ("double", text)
    for text in ("", ".", "e3", "nan", "inf", "infinity", "NaNf", "1_0.0", "٣.0", "1,5", "0x1", "0x.p0", "1ff", "\xa01")
]  # fmt: skip


@pytest.mark.requirement("JMS-3.5.4-9", "JMS-3.11.3-13", "NEV-129")
@pytest.mark.parametrize(("kind", "text", "value"), ACCEPTED)
def test_text_that_java_accepts_is_that_number(kind: str, text: str, value: float) -> None:
    """Java takes a sign, any script's digits for integers, and Java's floating-point forms."""
    result = parsed(kind, text)
    assert (result, math.copysign(1, result)) == (value, math.copysign(1, value)) or kind == "int"
    assert result == value


@pytest.mark.parametrize("sign", ["", "+", "-"])
def test_nan_has_a_sign_that_says_nothing(sign: str) -> None:
    """Java reads NaN with either sign."""
    assert math.isnan(parsed("double", f"{sign}NaN"))


@pytest.mark.requirement("JMS-3.5.4-9", "JMS-3.11.3-13", "NEV-129")
@pytest.mark.parametrize(("kind", "text"), REFUSED)
def test_text_that_java_refuses_is_no_number(kind: str, text: str) -> None:
    """Python's own spellings and half-written numbers are refused, without repeating the text."""
    with pytest.raises(ValueError, match=r"^no "):
        parsed(kind, text)


TEXTS = [
    ("double", 100.0, "100.0"), ("double", 1e7, "1.0E7"), ("double", 9999999.0, "9999999.0"),
    ("double", 1e-3, "0.001"),
    ("double", 9.5e-4, "9.5E-4"), ("double", -0.0, "-0.0"), ("double", 5e-324, "4.9E-324"),
    ("double", 1e23, "1.0E23"),
    ("double", 1.7976931348623157e308, "1.7976931348623157E308"), ("double", math.nan, "NaN"),
    ("double", -math.inf, "-Infinity"), ("double", -12345678.9, "-1.23456789E7"),
    ("float", float32(0.1), "0.1"), ("float", float32(1e10), "1.0E10"), ("float", 2.0**-149, "1.4E-45"),
    ("float", float32(3.4028235e38), "3.4028235E38"), ("float", float32(1234567.9), "1234567.9"),
    ("float", -0.0, "-0.0"),
    ("float", float32(0.00123), "0.00123"), ("float", math.inf, "Infinity"), ("float", 100.0, "100.0"),
    ("boolean", True, "true"), ("boolean", False, "false"), ("long", -(2**63), "-9223372036854775808"),
    ("char", "x", "x"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "text"), TEXTS)
def test_numbers_are_written_as_java_writes_them(kind: str, value: float, text: str) -> None:
    """String.valueOf: a decimal point always, E notation below 1E-3 and from 1E7 on, the shortest digits."""
    assert text_of(kind, value) == text


@given(st.floats(allow_nan=False))
def test_a_double_reads_back_from_its_text(value: float) -> None:
    """No double changes by being written and read."""
    assert struct.pack(">d", parsed("double", text_of("double", value))) == struct.pack(">d", value)


@given(st.floats(allow_nan=False, width=32))
def test_a_float_reads_back_from_its_text(value: float) -> None:
    """No float changes by being written and read, and nine digits are enough."""
    text = text_of("float", value)
    assert struct.pack(">f", parsed("float", text)) == struct.pack(">f", value)
    assert sum(map(str.isdigit, text.partition("E")[0])) <= 9 or value == 0 or 1e-3 <= abs(value) < 1e7


@pytest.mark.requirement("JMS-3.5.2-1", "NET-174")
@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("boolean", [True, False], [0, 1, "true", None]),
        ("byte", [-128, 127], [-129, 128, True, 1.0, "1", None]),
        ("short", [-(2**15), 2**15 - 1], [-(2**15) - 1, 2**15, True, None]),
        ("int", [-(2**31), 2**31 - 1], [-(2**31) - 1, 2**31, False, 5.0, None]),
        ("long", [-(2**63), 2**63 - 1], [-(2**63) - 1, 2**63, True, None]),
        ("float", [0.5, 1, math.inf, -math.inf], [1e39, 10**400, True, "1", None]),
        ("double", [0.1, 5, math.inf], [10**400, False, "1", None]),
        ("string", ["", "x", None], [1, True, b"x"]),
    ],
)
def test_each_property_type_has_its_range(kind: str, good: list, bad: list) -> None:
    """A setter takes its own type within its range, and raises MessageFormatException else; bool is no number."""
    message = Message()
    for value in good:
        getattr(message, f"set_{kind}_property")("p", value)
        assert message.get_object_property("p") == value
        assert type(message.get_object_property("p")) is not bool or kind == "boolean"
    for value in bad:
        with pytest.raises(MessageFormatException):
            getattr(message, f"set_{kind}_property")("p", value)


@pytest.mark.parametrize("value", ["", "ab", "𝄞", 120, b"x", None])
def test_a_char_is_one_utf_16_unit(value: object) -> None:
    """No text of another length, and no character beyond 16 bits, is a char."""
    assert checked("char", "\ud800", "map entry", "e") == "\ud800"
    with pytest.raises(MessageFormatException):
        checked("char", value, "map entry", "e")


def test_floats_are_rounded_to_32_bits() -> None:
    """A float property holds what 32 bits hold, and not a number that 32 bits round to."""
    message = Message()
    message.set_float_property("p", 0.1)
    assert message.get_float_property("p") == struct.unpack(">f", struct.pack(">f", 0.1))[0] != 0.1
