"""The published Avro forms of map, stream and plain object bodies (kjms/mapping/schemas), written and read.

Avro libraries give the value of a union back without its branch, and with it JMS would lose whether 5 was an int or a
long. So the three schemas are written and read here: zigzag numbers, length-prefixed text, blocks. Any Avro reader
agrees.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from kjms.message._values import RANGES, Value

__all__ = ["TypedValue", "read_map", "read_plain", "read_stream", "write_map", "write_plain", "write_stream"]

TypedValue = tuple[str, Value]

KINDS: Final = ("null", "boolean", "byte", "short", "char", "int", "long", "float", "double", "string", "bytes")
"""The branches of the union in map.avsc and stream.avsc, in their order there."""

PLAIN: Final = ("null", "boolean", "long", "double", "string", "bytes", "integer", "array", "map")
"""The branches of the union in object.avsc, in their order there."""

MAX_DEPTH: Final = 100
"""How deep lists and dicts may stand in each other: within Python's recursion limit at any place that calls this."""

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_INDEX: Final = {kind: bytes([2 * index]) for index, kind in enumerate(KINDS)}
_PLAIN_INDEX: Final = {kind: bytes([2 * index]) for index, kind in enumerate(PLAIN)}


# -------------------------------------------------------------------------------------------------------- write


def _long(value: int) -> bytes:
    """A number of 64 bits in Avro's zigzag form."""
    value = (value << 1) ^ (value >> 63)
    if value < 0x80:
        return bytes((value,))
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _sized(data: bytes) -> bytes:
    return _long(len(data)) + data


def _typed(kind: str, value: Any) -> bytes:
    if value is None:
        return b"\0"
    if kind == "string":
        data = _sized(value.encode())
    elif kind == "boolean":
        data = b"\1" if value else b"\0"
    elif kind == "bytes":
        data = _sized(value)
    elif kind == "double":
        data = _DOUBLE.pack(value)
    elif kind == "float":
        data = _FLOAT.pack(value)
    else:
        data = _long(ord(value) if kind == "char" else value)
    return _INDEX[kind] + data


def write_map(entries: dict[str, TypedValue]) -> bytes:
    """Return the body of a MapMessage under map.avsc.

    Raises:
        UnicodeEncodeError: A text holds a lone surrogate.
    """
    if not entries:
        return b"\0"
    parts = [_long(len(entries))]
    for name, (kind, value) in entries.items():
        parts += (_sized(name.encode()), _typed(kind, value))
    parts.append(b"\0")
    return b"".join(parts)


def write_stream(items: list[TypedValue]) -> bytes:
    """Return the body of a StreamMessage under stream.avsc.

    Raises:
        UnicodeEncodeError: A text holds a lone surrogate.
    """
    if not items:
        return b"\0"
    return b"".join((_long(len(items)), *(_typed(kind, value) for kind, value in items), b"\0"))


def write_plain(value: object, depth: int = 0) -> bytes:
    """Return *value*, made of plain Python values, under object.avsc.

    Raises:
        TypeError: There is something in it that is not plain; the error's argument is its type.
        UnicodeEncodeError: A text holds a lone surrogate.
        ValueError: It is nested too deeply.
    """
    kind = type(value)
    if value is None:
        return _PLAIN_INDEX["null"]
    if kind is str:
        return _PLAIN_INDEX["string"] + _sized(value.encode())  # type: ignore[attr-defined]
    if kind is bool:
        return _PLAIN_INDEX["boolean"] + (b"\1" if value else b"\0")
    if kind is int:
        low, high = RANGES["long"]
        if low <= value <= high:  # type: ignore[operator]
            return _PLAIN_INDEX["long"] + _long(value)  # type: ignore[arg-type]
        return _PLAIN_INDEX["integer"] + _sized(b"%x" % value)  # type: ignore[str-format]
    if kind is float:
        return _PLAIN_INDEX["double"] + _DOUBLE.pack(value)
    if kind is bytes:
        return _PLAIN_INDEX["bytes"] + _sized(value)  # type: ignore[arg-type]
    if depth >= MAX_DEPTH:
        raise ValueError(f"lists and dicts are nested more than {MAX_DEPTH} deep")
    if kind is list:
        parts = [_PLAIN_INDEX["array"]]
        if value:
            parts.append(_long(len(value)))  # type: ignore[arg-type]
            parts += [write_plain(item, depth + 1) for item in value]  # type: ignore[attr-defined]
    elif kind is dict:
        parts = [_PLAIN_INDEX["map"]]
        if value:
            parts.append(_long(len(value)))  # type: ignore[arg-type]
            for name, item in value.items():  # type: ignore[attr-defined]
                if type(name) is not str:
                    raise TypeError(f"a dict with a key of type {type(name).__name__}")
                parts += (_sized(name.encode()), write_plain(item, depth + 1))
    else:
        raise TypeError(kind.__qualname__)
    parts.append(b"\0")
    return b"".join(parts)


# --------------------------------------------------------------------------------------------------------- read


class _Input:
    """Bytes and a position in them; what goes wrong is a ValueError."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        start, self.position = self.position, self.position + size
        if size < 0 or self.position > len(self.data):
            raise ValueError(f"{size} bytes were to follow at byte {start} of {len(self.data)}")
        return self.data[start : self.position]

    def read_long(self) -> int:
        data, position = self.data, self.position
        value = shift = 0
        while True:
            if position >= len(data) or shift > 63:
                raise ValueError(f"there is no number at byte {self.position} of {len(data)}")
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        self.position = position
        return (value >> 1) ^ -(value & 1)

    def read_text(self) -> str:
        return self.take(self.read_long()).decode()

    def read_boolean(self) -> bool:
        byte = self.take(1)
        if byte not in {b"\0", b"\1"}:
            raise ValueError(f"there is no boolean at byte {self.position - 1}")
        return byte == b"\1"

    def read_float(self) -> float:
        return float(_FLOAT.unpack(self.take(4))[0])

    def read_double(self) -> float:
        return float(_DOUBLE.unpack(self.take(8))[0])

    def read_bytes(self) -> bytes:
        return self.take(self.read_long())

    def read_blocks(self, read_item: Callable[[], None]) -> None:
        """Call *read_item* for each item of an Avro array or map."""
        while count := self.read_long():
            if count < 0:  # the block's size in bytes follows, for readers that skip it
                count = -count
                self.read_long()
            for _ in range(count):
                read_item()

    def read_typed(self) -> TypedValue:
        index = self.read_long()
        if not 0 <= index < len(KINDS):
            raise ValueError(f"there is no type {index}")
        kind = KINDS[index]
        if kind == "string":
            return kind, self.read_text()
        if kind == "null":
            return "string", None
        if kind in {"boolean", "float", "double", "bytes"}:
            return kind, getattr(self, f"read_{kind}")()
        value = self.read_long()
        low, high = (0, 0xFFFF) if kind == "char" else RANGES[kind]
        if not low <= value <= high:
            raise ValueError(f"a {kind} is out of its range")
        return kind, chr(value) if kind == "char" else value

    def read_plain(self, depth: int = 0) -> Any:
        index = self.read_long()
        kind = PLAIN[index] if 0 <= index < len(PLAIN) else str(index)
        if kind in {"string", "integer"}:
            return self.read_text() if kind == "string" else int(self.read_text(), 16)
        if kind in {"boolean", "long", "double", "bytes"}:
            return getattr(self, f"read_{kind}")()
        if kind == "null":
            return None
        if depth >= MAX_DEPTH:
            raise ValueError(f"lists and dicts are nested more than {MAX_DEPTH} deep")
        if kind == "array":
            items: list[Any] = []
            self.read_blocks(lambda: items.append(self.read_plain(depth + 1)))
            return items
        if kind == "map":
            entries: dict[str, Any] = {}
            self.read_blocks(lambda: entries.__setitem__(self.read_text(), self.read_plain(depth + 1)))
            return entries
        raise ValueError(f"there is no type {kind}")

    def end(self) -> None:
        if self.position != len(self.data):
            raise ValueError(f"{len(self.data) - self.position} bytes follow the body")


def read_map(data: bytes) -> dict[str, TypedValue]:
    """Return the entries of a MapMessage's body; the inverse of `write_map`.

    Raises:
        ValueError: *data* is no such body.
    """
    source, entries = _Input(data), dict[str, TypedValue]()
    source.read_blocks(lambda: entries.__setitem__(source.read_text(), source.read_typed()))
    source.end()
    return entries


def read_stream(data: bytes) -> list[TypedValue]:
    """Return the items of a StreamMessage's body; the inverse of `write_stream`.

    Raises:
        ValueError: *data* is no such body.
    """
    source, items = _Input(data), list[TypedValue]()
    source.read_blocks(lambda: items.append(source.read_typed()))
    source.end()
    return items


def read_plain(data: bytes) -> Any:
    """Return the plain value that *data* holds; the inverse of `write_plain`.

    Raises:
        ValueError: *data* is no such value.
    """
    source = _Input(data)
    value = source.read_plain()
    source.end()
    return value
