"""AMQP's type system: every value is read as it was written, in its shortest form, and damaged bytes are refused."""

from __future__ import annotations

import math
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kjms.errors import MessageFormatException
from kjms.mapping.amqp.types import (
    MAX_DEPTH,
    MAX_ITEMS,
    AmqpDecodeError,
    Array,
    Budget,
    Byte,
    Char,
    Decimal,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    decode_value,
    encode_value,
)
from kjms.message._values import float32


def whole(low: int, high: int, kind: type[int]) -> st.SearchStrategy[int]:
    return st.integers(low, high).map(kind)


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    whole(0, 2**8 - 1, UByte),
    whole(0, 2**16 - 1, UShort),
    whole(0, 2**32 - 1, UInt),
    whole(0, 2**64 - 1, ULong),
    whole(-(2**7), 2**7 - 1, Byte),
    whole(-(2**15), 2**15 - 1, Short),
    whole(-(2**31), 2**31 - 1, Int),
    whole(-(2**63), 2**63 - 1, int),
    whole(-(2**63), 2**63 - 1, Timestamp),
    st.floats(allow_nan=False),
    st.floats(width=32, allow_nan=False).map(Float),
    st.characters(codec="utf-8").map(Char),
    st.uuids(),
    st.binary(max_size=300),
    st.text(st.characters(codec="utf-8"), max_size=300),
    st.text(st.characters(codec="ascii"), max_size=20).map(Symbol),
    st.binary(min_size=8, max_size=8).map(Decimal),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=300),
        st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=9), inner, max_size=5),
        st.builds(Described, st.integers(0, 2**64 - 1).map(ULong), inner),
    ),
    max_leaves=20,
)


def same(one: object, other: object) -> bool:
    """Equal, and of the same types throughout."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))  # type: ignore[arg-type]
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(same, one.values(), other.values()))  # type: ignore
    return one == other


@given(VALUES)
def test_a_value_is_read_as_it_was_written(value: object) -> None:
    """What is written reads as the same value of the same type, and nothing is left over."""
    data = encode_value(value)
    read, position = decode_value(data)
    assert same(read, value)
    assert position == len(data)


SHORTEST = [
    (None, "40"), (True, "41"), (False, "42"), (UInt(0), "43"), (ULong(0), "44"), ([], "45"),
    (UByte(7), "5007"), (Byte(-1), "51ff"), (UInt(255), "52ff"), (UInt(256), "7000000100"), (ULong(1), "5301"),
    (ULong(256), "800000000000000100"), (Int(-1), "54ff"), (Int(128), "7100000080"), (-1, "55ff"),
    (128, "810000000000000080"), (UShort(1), "600001"), (Short(-2), "61fffe"), (Float(1.5), "723fc00000"),
    (Char("é"), "73000000e9"), (1.5, "823ff8000000000000"), (Timestamp(1), "830000000000000001"),
    (b"\1", "a00101"), ("é", "a102c3a9"), (Symbol("q"), "a30171"), ([True], "c0020141"), ({}, "c10100"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "expected"), SHORTEST, ids=[text for _, text in SHORTEST])
def test_a_value_is_written_in_its_shortest_form(value: object, expected: str) -> None:
    """The bytes are those of AMQP 1.0 part 1, §1.6, in the narrowest encoding."""
    assert encode_value(value).hex() == expected


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("5601", True), ("5600", False), ("7000000005", UInt(5)), ("800000000000000005", ULong(5)),
        ("b0000000020102", b"\1\2"), ("b10000000178", "x"), ("b30000000178", Symbol("x")),
        ("d000000006000000024142", [True, False]), ("d10000000800000002a1016140", {"a": None}),
        ("e00803a3016101620163", [Symbol("a"), Symbol("b"), Symbol("c")]),
        ("f00000000d000000027100000001ffffffff", [Int(1), Int(-1)]), ("e0020341", [True, True, True]),
    ],
)  # fmt: skip
def test_every_encoding_of_a_value_is_read(data: str, value: object) -> None:
    """The wide encodings, and arrays, read as the narrow ones do."""
    read, position = decode_value(bytes.fromhex(data))
    assert read == value
    assert position == len(data) // 2


def test_an_array_is_written_again() -> None:
    """An array that was read is written as an array of the same values."""
    array, _ = decode_value(bytes.fromhex("e00803a3016101620163"))
    assert isinstance(array, Array)
    assert decode_value(encode_value(array))[0] == array


def test_nan_and_floats_keep_their_bits() -> None:
    """NaN stays NaN, and a float of 32 bits is the nearest to what it was set to."""
    assert math.isnan(decode_value(encode_value(math.nan))[0])
    assert decode_value(encode_value(Float(0.1)))[0] == float32(0.1)


@pytest.mark.parametrize(
    "data",
    [
        "", "01", "a1", "a105", "a1ff61", "b1ffffffff61", "7300110000", "730000d800", "5602", "c00503",
        "c10803a10161542a40", "c0ff", "d0ffffffff00000001", "e0050141", "00", "0053", "005370", "c1040245c041",
        "a101ff", "a301ff", "f000000009000000ffff41", "81", "98ff", "c0020240", "e0020401", "c103024540",
    ],
)  # fmt: skip
def test_damaged_bytes_are_refused(data: str) -> None:
    """Bytes that are no value raise AmqpDecodeError and nothing else."""
    with pytest.raises(AmqpDecodeError):
        decode_value(bytes.fromhex(data))


def test_deep_nesting_is_refused() -> None:
    """Lists in lists beyond a limit are refused before they exhaust the stack."""
    data = b"\x40"
    for _ in range(70):
        data = encode_value([0])[:1] + bytes((len(data) + 1, 1)) + data
    with pytest.raises(AmqpDecodeError, match="nested"):
        decode_value(data)
    with pytest.raises(AmqpDecodeError, match="nested"):
        decode_value(b"\0" * 5000)


def wide(code: int, count: int, rest: bytes) -> bytes:
    """A list (0xd0), map (0xd1) or array (0xf0) that says so many values, and holds *rest*."""
    return bytes((code,)) + (4 + len(rest)).to_bytes(4, "big") + count.to_bytes(4, "big") + rest


EMPTY = wide(0xF0, 250, b"\x40")  # 250 nulls in 10 bytes


@pytest.mark.parametrize(
    "data",
    [
        wide(0xF0, 300, b"\x40"),
        wide(0xF0, (1 << 32) - 1, b"\x45"),
        wide(0xF0, 60_000, b"\x00\x53\x70\x41"),
        wide(0xD0, 40, EMPTY * 40),
        wide(0xD1, 40, (b"\xa1\x01a" + EMPTY) * 20),
        wide(0xF0, 40, b"\xf0" + EMPTY[1:] * 40),
        b"\x00" + EMPTY + EMPTY,
        wide(0xD0, MAX_ITEMS + 1, b"\x40" * (MAX_ITEMS + 1)),
        wide(0xD0, 2, wide(0xD0, MAX_ITEMS // 2, b"\x45" * (MAX_ITEMS // 2)) * 2),
    ],
    ids=["array", "most", "described", "in list", "in map", "in array", "descriptor", "list", "lists"],
)
def test_values_are_bounded_by_one_budget(data: bytes) -> None:
    """All values of a value together are no more than its bytes, and than a limit, wherever they stand."""
    with pytest.raises(AmqpDecodeError, match="more values"):
        decode_value(data)
    assert len(decode_value(EMPTY)[0]) == 250


def test_keys_that_collide_are_few() -> None:
    """A map has few keys of types whose hashes its sender can make equal; of texts and integers it has many."""
    same_hash = [uuid.UUID(int=number * ((1 << 61) - 1)) for number in range(1000)]
    with pytest.raises(AmqpDecodeError, match="keys"):
        decode_value(encode_value(dict.fromkeys(same_hash)))
    for keys in (same_hash[:100], range(1000), map(str, range(1000)), map(Symbol, map(str, range(1000)))):
        entries = dict.fromkeys(keys)
        assert decode_value(encode_value(entries))[0] == entries


@given(st.binary(max_size=60))
def test_no_bytes_do_harm(data: bytes) -> None:
    """Whatever the bytes are, they read as a value or raise AmqpDecodeError."""
    try:
        value, position = decode_value(data)
    except AmqpDecodeError:
        return
    assert 0 < position <= len(data)
    encode_value(value) if not isinstance(value, Array) else None


@pytest.mark.parametrize("value", [object(), UByte(256), Int(2**31), 2**63, "\ud800", Symbol("é"), {1: object()}, (1,)])
def test_what_amqp_does_not_have_is_refused(value: object) -> None:
    """A value without a form in AMQP raises MessageFormatException."""
    with pytest.raises(MessageFormatException):
        encode_value(value)


def test_uuid_is_written_as_its_bytes() -> None:
    """A uuid is 16 bytes behind its constructor."""
    value = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
    assert encode_value(value) == b"\x98" + value.bytes


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("", "a value was to follow at byte 0 of 0"),
        ("01", "there is no type 0x01 (at byte 0)"),
        ("5602", "a boolean is 0 or 1, and not 2"),
        ("7000000a", "4 bytes were to follow at byte 1 of 4"),
        ("7300110000", "0x110000 is not a Unicode character"),
        ("730000d800", "0xd800 is not a Unicode character"),
        ("730000dfff", "0xdfff is not a Unicode character"),
        ("a1", "a length of 1 bytes was to follow at byte 1 of 1"),
        ("b1000000", "a length of 4 bytes was to follow at byte 1 of 4"),
        ("a1026f", "2 bytes were to follow at byte 2 of 3"),
        ("b1000000026f", "2 bytes were to follow at byte 5 of 6"),
        ("a101ff", "the text at byte 2 is not encoded as it should be"),
        ("a301ff", "the text at byte 2 is not encoded as it should be"),
        ("c001", "a size and a count were to follow at byte 1 of 2"),
        ("c00501", "5 bytes were to follow at byte 2 of 3"),
        ("c00102", "2 values were to follow at byte 3 of 3"),
        ("c003014040", "1 bytes are left over at byte 4"),
        ("c1020140", "the map at byte 1 has 1 keys and values, not an even number"),
        ("c10302" + "45" + "40", "a key of the map at byte 1 is a list or map"),
        ("e0020101", "there is no type 0x01 (at byte 3)"),
        ("e00101", "a type was to follow at byte 3 of 3"),
        ("e004015001" + "02", "1 bytes are left over at byte 5"),
    ],
)
def test_what_is_wrong_with_a_value_is_said_with_its_place(data: str, reason: str) -> None:
    with pytest.raises(AmqpDecodeError) as raised:
        decode_value(bytes.fromhex(data), 0)
    assert str(raised.value) == reason


@pytest.mark.parametrize("value", [0, 0xD7FF, 0xE000, 0xFFFF, 0x10FFFF])
def test_the_characters_beside_those_that_are_none(value: int) -> None:
    assert decode_value(b"\x73" + value.to_bytes(4, "big"), 0) == (chr(value), 5)


def test_as_many_levels_as_are_allowed_are_read() -> None:
    """One more is refused."""
    levels: list[object] = [1]
    for _ in range(MAX_DEPTH - 1):
        levels = [levels]
    assert decode_value(encode_value(levels), 0)[0] == levels
    with pytest.raises(AmqpDecodeError, match=f"^values are nested more than {MAX_DEPTH} deep$"):
        decode_value(encode_value([levels]), 0)


def test_as_many_values_as_are_allowed_are_read() -> None:
    budget = Budget(MAX_ITEMS * 2)
    budget.take(MAX_ITEMS)
    with pytest.raises(AmqpDecodeError, match=r"^there are more values than bytes, or more than 1,048,576 \(kjms's"):
        budget.take(1)
