"""The message whose body is a row of values, written and read in order."""

from __future__ import annotations

from typing import Any, Final, cast

from kjms.errors import MessageEOFException, MessageFormatException, MessageNotReadableException
from kjms.message._avro import TypedValue
from kjms.message._base import Message
from kjms.message._map import part
from kjms.message._values import Value, checked, read_as, typed

__all__ = ["StreamMessage"]

_THROUGH: Final = -1


class StreamMessage(Message):
    """A message that carries a row of values, each of one JMS type.

    A new one is write-only until `reset`, from then on read-only until `clear_body`; a received one is read-only. A
    read that fails does not move on, so the value can be read again as another type.

    Spec: JMS 2.0 §3.11, §3.11.3.
    """

    __slots__ = ("_position", "_taken")

    _position: int
    _taken: (
        int | None
    )  # bytes read of the byte field at the position, None before the first; or _THROUGH, the one before

    def __init__(self) -> None:
        super().__init__()
        self._content = []
        self._position = 0
        self._taken = None

    def _read_body(self) -> Any:
        self._position = 0
        self._taken = None
        return super()._read_body()

    def _empty_body(self) -> list[TypedValue]:
        self._position = 0
        self._taken = None
        return []

    def get_body(self, type_: Any) -> Any:
        """Raise MessageFormatException: a stream has no one body (JMS 2.0 §9.4.8)."""
        raise MessageFormatException("get_body cannot be used on a StreamMessage (JMS 2.0 §9.4.8)")

    def reset(self) -> None:
        """Make the body read-only, and go to its first value."""
        self._body_read_only = True
        self._position = 0
        self._taken = None

    # ----------------------------------------------------------------------------------------------------- read

    def _readable(self) -> list[TypedValue]:
        if not self._body_read_only:
            raise MessageNotReadableException("this StreamMessage is write-only until reset() (JMS 2.0 §3.11)")
        return self._body  # type: ignore[no-any-return]

    def _next(self) -> TypedValue:
        items = self._readable()
        if self._position >= len(items):
            raise MessageEOFException(f"all {len(items)} values of the stream have been read (JMS 2.0 §7.3)")
        return items[self._position]

    def _read(self, wanted: str) -> Any:
        kind, value = self._next()
        if self._taken is not None and self._taken != _THROUGH:
            raise MessageFormatException(
                f"value {self._position} of the stream is bytes that are being read; read_bytes() must first give None"
            )
        value = read_as(wanted, kind, value, "stream value", self._position)
        self._position += 1
        self._taken = None
        return value

    def read_boolean(self) -> bool:
        """Read a value as boolean; None reads as False. Errors as for `read_int`."""
        return cast(bool, self._read("boolean"))

    def read_byte(self) -> int:
        """Read a value as byte."""
        return cast(int, self._read("byte"))

    def read_short(self) -> int:
        """Read a value as short."""
        return cast(int, self._read("short"))

    def read_char(self) -> str:
        """Read a value as char."""
        return cast(str, self._read("char"))

    def read_int(self) -> int:
        """Read a value as int.

        Raises:
            MessageEOFException: All values have been read.
            MessageFormatException: Its type cannot be read so, its text is no such number, or it is None.
            MessageNotReadableException: The message is write-only.
        """
        return cast(int, self._read("int"))

    def read_long(self) -> int:
        """Read a value as long."""
        return cast(int, self._read("long"))

    def read_float(self) -> float:
        """Read a value as float."""
        return cast(float, self._read("float"))

    def read_double(self) -> float:
        """Read a value as double."""
        return cast(float, self._read("double"))

    def read_string(self) -> str | None:
        """Read a value as string, written as Java writes it, or None."""
        return cast("str | None", self._read("string"))

    def read_bytes(self, length: int | None = None) -> bytes | None:
        """Read at most *length* bytes of a byte field, or all that are left of it; None when none is left.

        A field is read through when fewer bytes came than *length*, or when None came; the next value cannot be read
        before. After that None comes once more where no other byte field follows. A field that is None reads as None.

        Raises:
            MessageEOFException: All values have been read.
            MessageFormatException: The value is not bytes.
            MessageNotReadableException: The message is write-only.
            ValueError: *length* is negative.
        """
        if length is not None and length < 0:
            raise ValueError(f"length must not be negative, and is {length}")
        items = self._readable()
        if self._taken == _THROUGH:
            self._taken = None
            follows = items[self._position : self._position + 1]
            if not follows or not (follows[0][0] == "bytes" or follows[0][1] is None):
                return None
        kind, value = self._next()
        field = cast("bytes | None", read_as("bytes", kind, value, "stream value", self._position))
        if field is None or (self._taken is not None and self._taken == len(field)):
            self._position += 1
            self._taken = None
            return None
        start = self._taken or 0
        piece = field[start:] if length is None else field[start : start + length]
        if length is None or len(piece) < length:
            self._position += 1
            self._taken = _THROUGH
        else:
            self._taken = start + len(piece)
        return piece

    def read_object(self) -> Value:
        """Read a value in its own type; bytes come as a whole."""
        kind, _ = self._next()
        return cast(Value, self._read(kind))

    # ---------------------------------------------------------------------------------------------------- write

    def _write(self, kind: str, value: object) -> None:
        self._check_body_writable()
        kept = checked(kind, value, "stream value", len(self._body))
        self._body.append((kind if kept is not None else "string", kept))

    def write_boolean(self, value: bool) -> None:
        """Write a boolean. Errors as for `write_object`."""
        self._write("boolean", value)

    def write_byte(self, value: int) -> None:
        """Write a whole number from -128 to 127."""
        self._write("byte", value)

    def write_short(self, value: int) -> None:
        """Write a whole number of 16 bits."""
        self._write("short", value)

    def write_char(self, value: str) -> None:
        """Write one UTF-16 unit."""
        self._write("char", value)

    def write_int(self, value: int) -> None:
        """Write a whole number of 32 bits."""
        self._write("int", value)

    def write_long(self, value: int) -> None:
        """Write a whole number of 64 bits."""
        self._write("long", value)

    def write_float(self, value: float) -> None:
        """Write a number, rounded to 32 bits."""
        self._write("float", value)

    def write_double(self, value: float) -> None:
        """Write a number of 64 bits."""
        self._write("double", value)

    def write_string(self, value: str | None) -> None:
        """Write a string, or None."""
        self._write("string", value)

    def write_bytes(
        self, value: bytes | bytearray | memoryview | None, offset: int = 0, length: int | None = None
    ) -> None:
        """Write a byte field: bytes, or *length* of them from *offset* on; None is possible.

        Raises:
            ValueError: *offset* and *length* go beyond the value.
        """
        self._check_body_writable()
        data = cast("bytes | None", checked("bytes", value, "stream value", len(self._body)))
        self._write("bytes", part(data, offset, length))

    def write_object(self, value: Value) -> None:
        """Write a value by its Python type: int as int or long, float as double, str, bytes, bool and None as they are.

        Raises:
            MessageFormatException: It is of a type that JMS does not know, or out of range.
            MessageNotWriteableException: The body is read-only.
        """
        self._check_body_writable()
        kind, _ = typed(value, "stream value", len(self._body))
        self._write(kind, value)
