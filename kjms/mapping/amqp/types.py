"""AMQP 1.0's type system as Python values and as bytes, both ways: pure, and independent of any AMQP library.

A value is of the Python type that stands for its AMQP type alone, so that nothing is lost between reading and writing:
``int`` is a long, ``float`` a double, ``str`` a string, ``bytes`` a binary, ``uuid.UUID`` a uuid, ``list`` a list and
``dict`` a map. The other types are subclasses of these, such as `UInt`.

Spec: AMQP 1.0, part 1: Types.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kjms.errors import MessageFormatException

__all__ = [
    "AmqpDecodeError",
    "Array",
    "Budget",
    "Byte",
    "Char",
    "Decimal",
    "Described",
    "Float",
    "Int",
    "Short",
    "Symbol",
    "Timestamp",
    "UByte",
    "UInt",
    "ULong",
    "UShort",
    "decode_value",
    "encode_value",
    "write_list",
    "write_map",
]

MAX_DEPTH: Final = 64
"""How deep lists, maps, arrays and descriptions may stand in each other."""

MAX_ITEMS: Final = 1 << 20
"""How many values may stand in the lists, maps and arrays of one message: they take more memory than bytes."""

_FEWEST_ITEMS: Final = 256
"""So many may stand in a short value, although an array can say a great number of values that take no byte."""

_FEW_KEYS: Final = 100
"""How many keys of a map may be neither texts, nor binaries, nor integers."""


class AmqpDecodeError(MessageFormatException):
    """Bytes that are no AMQP 1.0 value or message; the text says where."""


class Budget:
    """What the values in a message may still cost the reader: how many they are, and how deep they stand.

    Args:
        size: How many bytes the message has: all its values cannot be more, but for arrays of values without bytes.
    """

    __slots__ = ("items", "levels")

    def __init__(self, size: int) -> None:
        self.items = min(max(size, _FEWEST_ITEMS), MAX_ITEMS)
        self.levels = MAX_DEPTH

    def take(self, count: int) -> None:
        """Take *count* values.

        Raises:
            AmqpDecodeError: They are too many.
        """
        self.items -= count
        if self.items < 0:
            raise AmqpDecodeError(
                f"there are more values than bytes, or more than {MAX_ITEMS:,} (kjms's limit for a message)"
            )

    def enter(self, count: int) -> None:
        """Take what stands one level deeper: *count* values.

        Raises:
            AmqpDecodeError: They are too many, or stand too deep.
        """
        self.take(count)
        self.levels -= 1
        if self.levels < 0:
            raise AmqpDecodeError(f"values are nested more than {MAX_DEPTH} deep")


class UByte(int):
    """A whole number of 8 bits without a sign."""

    __slots__ = ()


class UShort(int):
    """A whole number of 16 bits without a sign."""

    __slots__ = ()


class UInt(int):
    """A whole number of 32 bits without a sign."""

    __slots__ = ()


class ULong(int):
    """A whole number of 64 bits without a sign."""

    __slots__ = ()


class Byte(int):
    """A whole number of 8 bits."""

    __slots__ = ()


class Short(int):
    """A whole number of 16 bits."""

    __slots__ = ()


class Int(int):
    """A whole number of 32 bits."""

    __slots__ = ()


class Timestamp(int):
    """A point in time, in milliseconds since 1970 UTC."""

    __slots__ = ()


class Float(float):
    """A number of 32 bits in binary floating point."""

    __slots__ = ()


class Char(str):
    """One Unicode character."""

    __slots__ = ()


class Symbol(str):
    """A name made of ASCII characters."""

    __slots__ = ()


class Decimal(bytes):
    """A decimal number of 4, 8 or 16 bytes (IEEE 754-2008), as it came: nothing here calculates with it."""

    __slots__ = ()


class Described(NamedTuple):
    """A value with what says its meaning: a number or symbol."""

    descriptor: Any
    value: Any


class Array(list):  # type: ignore[type-arg]
    """A list whose values are all of one type, with the constructor that is written before them."""

    __slots__ = ("constructor",)

    def __init__(self, constructor: int, items: list[Any]) -> None:
        super().__init__(items)
        self.constructor = constructor


# --------------------------------------------------------------------------------------------------------- read

Reader = Callable[[bytes, int, int, Budget], tuple[Any, int]]  # data, position, end, budget -> value, the place after


def _fixed(form: str, kind: Callable[[Any], Any] | None = None) -> Reader:
    shape = struct.Struct(form)
    unpack, size = shape.unpack_from, shape.size

    def read(data: bytes, position: int, end: int, budget: Budget) -> tuple[Any, int]:
        after = position + size
        if after > end:
            raise AmqpDecodeError(f"{size} bytes were to follow at byte {position} of {end}")
        (value,) = unpack(data, position)
        return (value if kind is None else kind(value)), after

    return read


def _constant(value: Any) -> Reader:
    return lambda data, position, end, budget: (value, position)


def _boolean(value: int) -> bool:
    if value > 1:
        raise AmqpDecodeError(f"a boolean is 0 or 1, and not {value}")
    return value == 1


def _char(value: int) -> Char:
    if value > 0x10FFFF or 0xD800 <= value <= 0xDFFF:
        raise AmqpDecodeError(f"{value:#x} is not a Unicode character")
    return Char(chr(value))


def _sized(width: int, kind: Callable[[bytes], Any]) -> Reader:
    def read(data: bytes, position: int, end: int, budget: Budget) -> tuple[Any, int]:
        start = position + width
        if start > end:
            raise AmqpDecodeError(f"a length of {width} bytes was to follow at byte {position} of {end}")
        after = start + (data[position] if width == 1 else int.from_bytes(data[position:start], "big"))
        if after > end:
            raise AmqpDecodeError(f"{after - start} bytes were to follow at byte {start} of {end}")
        try:
            return kind(data[start:after]), after
        except UnicodeDecodeError:
            raise AmqpDecodeError(f"the text at byte {start} is not encoded as it should be") from None

    return read


def _symbol(data: bytes) -> Symbol:
    return Symbol(data, "ascii")


def _text(data: bytes) -> str:
    return str(data, "utf-8")


def _head(data: bytes, position: int, end: int, width: int) -> tuple[int, int, int]:
    """Return how many values a compound has, where they begin, and where it ends."""
    start = position + 2 * width
    if start > end:
        raise AmqpDecodeError(f"a size and a count were to follow at byte {position} of {end}")
    if width == 1:
        size, count = data[position], data[position + 1]
    else:
        size, count = _TWO.unpack_from(data, position)
    after = position + width + size
    if after > end or after < start:
        raise AmqpDecodeError(f"{size} bytes were to follow at byte {position + width} of {end}")
    return count, start, after


def _items(data: bytes, position: int, end: int, count: int, budget: Budget) -> list[Any]:
    if count > end - position:  # each takes a byte at least
        raise AmqpDecodeError(f"{count} values were to follow at byte {position} of {end}")
    budget.enter(count)
    items = []
    for _ in range(count):  # what decode_value does, with fewer calls
        code = data[position] if position < end else -1
        if code in _CONSTANTS:  # most fields of a message are null
            items.append(_CONSTANTS[code])
            position += 1
            continue
        reader = _READERS.get(code)
        if reader is None:
            reader = decode_value  # which says what is wrong
            position -= 1
        item, position = reader(data, position + 1, end, budget)
        items.append(item)
    if position != end:
        raise AmqpDecodeError(f"{end - position} bytes are left over at byte {position}")
    budget.levels += 1
    return items


def _list(width: int) -> Reader:
    def read(data: bytes, position: int, end: int, budget: Budget) -> tuple[list[Any], int]:
        count, start, after = _head(data, position, end, width)
        return _items(data, start, after, count, budget), after

    return read


def _map(width: int) -> Reader:
    def read(data: bytes, position: int, end: int, budget: Budget) -> tuple[dict[Any, Any], int]:
        count, start, after = _head(data, position, end, width)
        if count % 2:
            raise AmqpDecodeError(f"the map at byte {position} has {count} keys and values, not an even number")
        items = _items(data, start, after, count, budget)
        if count > 2 * _FEW_KEYS:
            _check_keys(items[::2], position)
        try:
            return dict(zip(items[::2], items[1::2], strict=True)), after
        except TypeError:
            raise AmqpDecodeError(f"a key of the map at byte {position} is a list or map") from None

    return read


def _check_keys(keys: list[Any], position: int) -> None:
    """Refuse many keys whose hashes a sender can make equal: a dict of them takes time quadratic in their number."""
    if sum(not isinstance(key, str | bytes | int) for key in keys) > _FEW_KEYS:
        raise AmqpDecodeError(
            f"the map at byte {position} has more than {_FEW_KEYS} keys other than texts and integers"
        )


def _array(width: int) -> Reader:
    def read(data: bytes, position: int, end: int, budget: Budget) -> tuple[Array, int]:
        count, start, after = _head(data, position, end, width)
        budget.enter(count)
        descriptor, constructor, start = _constructor(data, start, after, budget)
        read_one = _READERS.get(constructor)
        if read_one is None:
            raise AmqpDecodeError(f"there is no type {constructor:#04x} (at byte {start - 1})")
        items = []
        for _ in range(count):
            item, start = read_one(data, start, after, budget)
            items.append(item if descriptor is _NONE else Described(descriptor, item))
        if start != after:
            raise AmqpDecodeError(f"{after - start} bytes are left over at byte {start}")
        budget.levels += 1
        return Array(constructor, items), after

    return read


def _constructor(data: bytes, position: int, end: int, budget: Budget) -> tuple[Any, int, int]:
    """Return the descriptor of an array's values, if they have one, their type, and the position after."""
    if position >= end:
        raise AmqpDecodeError(f"a type was to follow at byte {position} of {end}")
    descriptor: Any = _NONE
    if data[position] == 0:
        descriptor, position = decode_value(data, position + 1, end, budget)
        if position >= end:
            raise AmqpDecodeError(f"a type was to follow at byte {position} of {end}")
    return descriptor, data[position], position + 1


def _described(data: bytes, position: int, end: int, budget: Budget) -> tuple[Described, int]:
    budget.enter(2)
    descriptor, position = decode_value(data, position, end, budget)
    value, position = decode_value(data, position, end, budget)
    budget.levels += 1
    return Described(descriptor, value), position


_NONE: Final = object()
_TWO: Final = struct.Struct(">II")

_CONSTANTS: Final[dict[int, Any]] = {0x40: None, 0x41: True, 0x42: False, 0x43: UInt(0), 0x44: ULong(0)}

_READERS: Final[dict[int, Reader]] = {
    0x00: _described,
    **{code: _constant(value) for code, value in _CONSTANTS.items()},
    0x45: lambda data, position, end, budget: ([], position),
    0x50: _fixed(">B", UByte),
    0x51: _fixed(">b", Byte),
    0x52: _fixed(">B", UInt),
    0x53: _fixed(">B", ULong),
    0x54: _fixed(">b", Int),
    0x55: _fixed(">b"),
    0x56: _fixed(">B", _boolean),
    0x60: _fixed(">H", UShort),
    0x61: _fixed(">h", Short),
    0x70: _fixed(">I", UInt),
    0x71: _fixed(">i", Int),
    0x72: _fixed(">f", Float),
    0x73: _fixed(">I", _char),
    0x74: _fixed("4s", Decimal),
    0x80: _fixed(">Q", ULong),
    0x81: _fixed(">q"),
    0x82: _fixed(">d"),
    0x83: _fixed(">q", Timestamp),
    0x84: _fixed("8s", Decimal),
    0x94: _fixed("16s", Decimal),
    0x98: _fixed("16s", lambda data: uuid.UUID(bytes=data)),
    0xA0: _sized(1, bytes),
    0xA1: _sized(1, _text),
    0xA3: _sized(1, _symbol),
    0xB0: _sized(4, bytes),
    0xB1: _sized(4, _text),
    0xB3: _sized(4, _symbol),
    0xC0: _list(1),
    0xC1: _map(1),
    0xD0: _list(4),
    0xD1: _map(4),
    0xE0: _array(1),
    0xF0: _array(4),
}


def decode_value(
    data: bytes, position: int = 0, end: int | None = None, budget: Budget | None = None
) -> tuple[Any, int]:
    """Return the value at *position* of *data*, and the position after it.

    Args:
        data: Bytes that hold it.
        position: Where it begins.
        end: Where the bytes end that may belong to it; None: where *data* does.
        budget: Of the message that it stands in; None: it stands alone.

    Raises:
        AmqpDecodeError: There is not an AMQP value.

    >>> decode_value(bytes.fromhex("c10803a10161542a40"))
    Traceback (most recent call last):
    kjms.mapping.amqp.types.AmqpDecodeError: the map at byte 1 has 3 keys and values, which is not an even number
    >>> decode_value(bytes.fromhex("c10602a10161542a"))
    ({'a': 42}, 8)
    """
    if end is None:
        end = len(data)
    if position >= end:
        raise AmqpDecodeError(f"a value was to follow at byte {position} of {end}")
    reader = _READERS.get(data[position])
    if reader is None:
        raise AmqpDecodeError(f"there is no type {data[position]:#04x} (at byte {position})")
    return reader(data, position + 1, end, Budget(end - position) if budget is None else budget)


# -------------------------------------------------------------------------------------------------------- write


def _write_long(value: int) -> bytes:
    return b"\x55" + value.to_bytes(1, "big", signed=True) if -128 <= value <= 127 else _LONG.pack(0x81, value)


def _write_int(value: int) -> bytes:
    return b"\x54" + value.to_bytes(1, "big", signed=True) if -128 <= value <= 127 else _INT.pack(0x71, value)


def _write_uint(value: int) -> bytes:
    if value == 0:
        return b"\x43"
    return bytes((0x52, value)) if value < 256 else _UINT.pack(0x70, value)


def _write_ulong(value: int) -> bytes:
    if value == 0:
        return b"\x44"
    return bytes((0x53, value)) if value < 256 else _ULONG.pack(0x80, value)


def _with_size(short: int, long: int, data: bytes) -> bytes:
    size = len(data)
    return bytes((short, size)) + data if size < 256 else _UINT.pack(long, size) + data


def _write_list(value: list[Any]) -> bytes:
    return write_list([encode_value(item) for item in value])


def write_list(items: list[bytes]) -> bytes:
    """Return the list of values that are bytes already."""
    if not items:
        return b"\x45"
    return _compound(0xC0, 0xD0, len(items), b"".join(items))


def _write_map(value: dict[Any, Any]) -> bytes:
    parts = []
    for key, item in value.items():
        parts.append(encode_value(key))
        parts.append(b"\x40" if item is None else encode_value(item))
    return write_map(parts)


def write_map(items: list[bytes]) -> bytes:
    """Return the map of keys, each with its value behind it, that are bytes already."""
    return _compound(0xC1, 0xD1, len(items), b"".join(items))


def _compound(short: int, long: int, count: int, data: bytes) -> bytes:
    size = len(data)
    if size < 255 and count < 256:
        return bytes((short, size + 1, count)) + data
    return _COMPOUND.pack(long, size + 4, count) + data


def _write_array(value: Array) -> bytes:
    descriptor = b""
    items = list(value)
    if items and items[0].__class__ is Described:
        descriptor = b"\0" + encode_value(items[0].descriptor)
        items = [item.value for item in items]
    constructor, write = _ARRAY_WRITERS.get(value.constructor, (value.constructor, None))
    if write is None:
        raise MessageFormatException(f"arrays of type {value.constructor:#04x} are not written here")
    data = descriptor + bytes((constructor,)) + b"".join(map(write, items))
    return _compound(0xE0, 0xF0, len(items), data)


def _packed(form: str) -> Callable[[Any], bytes]:
    return struct.Struct(form).pack


def _sized_always(encoded: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    def write(value: Any) -> bytes:
        data = encoded(value)
        return len(data).to_bytes(4, "big") + data

    return write


_LONG: Final = struct.Struct(">Bq")
_INT: Final = struct.Struct(">Bi")
_UINT: Final = struct.Struct(">BI")
_ULONG: Final = struct.Struct(">BQ")
_SHORT: Final = struct.Struct(">Bh")
_USHORT: Final = struct.Struct(">BH")
_FLOAT: Final = struct.Struct(">Bf")
_DOUBLE: Final = struct.Struct(">Bd")
_COMPOUND: Final = struct.Struct(">BII")

_DECIMALS: Final = {4: b"\x74", 8: b"\x84", 16: b"\x94"}

# Of each type that an array can be of, the constructor with room for any value, and what writes one without it.
_ARRAY_WRITERS: Final[dict[int, tuple[int, Callable[[Any], bytes]]]] = {
    **dict.fromkeys((0x41, 0x42, 0x56), (0x56, _packed(">?"))),
    0x50: (0x50, _packed(">B")),
    0x51: (0x51, _packed(">b")),
    0x60: (0x60, _packed(">H")),
    0x61: (0x61, _packed(">h")),
    **dict.fromkeys((0x43, 0x52, 0x70), (0x70, _packed(">I"))),
    **dict.fromkeys((0x44, 0x53, 0x80), (0x80, _packed(">Q"))),
    **dict.fromkeys((0x54, 0x71), (0x71, _packed(">i"))),
    **dict.fromkeys((0x55, 0x81), (0x81, _packed(">q"))),
    0x72: (0x72, _packed(">f")),
    0x73: (0x73, lambda value: ord(value).to_bytes(4, "big")),
    0x82: (0x82, _packed(">d")),
    0x83: (0x83, _packed(">q")),
    0x98: (0x98, lambda value: value.bytes),
    **dict.fromkeys((0xA0, 0xB0), (0xB0, _sized_always(bytes))),
    **dict.fromkeys((0xA1, 0xB1), (0xB1, _sized_always(str.encode))),
    **dict.fromkeys((0xA3, 0xB3), (0xB3, _sized_always(str.encode))),
}

_WRITERS: Final[dict[type, Callable[[Any], bytes]]] = {
    type(None): lambda value: b"\x40",
    bool: lambda value: b"\x41" if value else b"\x42",
    UByte: lambda value: bytes((0x50, value)),
    UShort: lambda value: _USHORT.pack(0x60, value),
    UInt: _write_uint,
    ULong: _write_ulong,
    Byte: lambda value: b"\x51" + value.to_bytes(1, "big", signed=True),
    Short: lambda value: _SHORT.pack(0x61, value),
    Int: _write_int,
    int: _write_long,
    Float: lambda value: _FLOAT.pack(0x72, value),
    float: lambda value: _DOUBLE.pack(0x82, value),
    Char: lambda value: b"\x73" + ord(value).to_bytes(4, "big"),
    Timestamp: lambda value: _LONG.pack(0x83, value),
    Decimal: lambda value: _DECIMALS[len(value)] + value,
    uuid.UUID: lambda value: b"\x98" + value.bytes,
    bytes: lambda value: _with_size(0xA0, 0xB0, value),
    str: lambda value: _with_size(0xA1, 0xB1, value.encode()),
    Symbol: lambda value: _with_size(0xA3, 0xB3, value.encode("ascii")),
    list: _write_list,
    dict: _write_map,
    Array: _write_array,
    Described: lambda value: b"\0" + encode_value(value.descriptor) + encode_value(value.value),
}


def encode_value(value: Any) -> bytes:
    """Return *value* in AMQP's shortest form.

    Raises:
        MessageFormatException: It is of no type that stands for one of AMQP's, out of range, or no UTF-8.

    >>> encode_value({"a": Int(42)}).hex(), encode_value(UInt(0)).hex()
    ('c10602a10161542a', '43')
    """
    writer = _WRITERS.get(value.__class__)
    if writer is None:
        raise MessageFormatException(f"a {type(value).__name__} is not an AMQP value (AMQP 1.0 part 1)")
    try:
        return writer(value)
    except (struct.error, OverflowError, ValueError) as error:
        if isinstance(error, MessageFormatException):
            raise
        raise MessageFormatException(
            f"a {type(value).__name__} is out of its range, or no text that can be encoded (AMQP 1.0 part 1)"
        ) from None
