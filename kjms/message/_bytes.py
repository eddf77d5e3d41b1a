"""The message whose body is bytes, written and read as Java's data streams write and read them."""

from __future__ import annotations

import struct
from typing import Any, Final

from kjms.errors import MessageEOFException, MessageFormatException, MessageNotReadableException
from kjms.message._base import Message
from kjms.message._values import checked, typed

__all__ = ["BytesMessage"]

_FORMS: Final = {
    kind: struct.Struct(form)
    for kind, form in {
        "boolean": ">?", "byte": ">b", "short": ">h", "char": ">H", "int": ">i", "long": ">q", "float": ">f",
        "double": ">d", "unsigned byte": ">B", "unsigned short": ">H",
    }.items()
}  # fmt: skip
_UTF_LIMIT: Final = 65_535  # its length stands before the text, in 16 bits


class BytesMessage(Message):
    """A message that carries uninterpreted bytes.

    A new one is write-only until `reset`, from then on read-only until `clear_body`; a received one is read-only.
    Numbers are big-endian, as ``java.io.DataOutputStream`` writes them.

    Args:
        data: What to write first.

    Raises:
        MessageFormatException: *data* is not bytes.

    Spec: JMS 2.0 §3.11.
    """

    __slots__ = ("_position",)

    _position: int

    def __init__(self, data: bytes | bytearray | memoryview = b"") -> None:
        super().__init__()
        self._content = bytearray()  # bytes when read-only
        self._position = 0
        if data.__class__ is bytes:
            self._content += data
        else:
            self.write_bytes(data)

    def _read_body(self) -> Any:
        self._position = 0
        return super()._read_body()

    def _empty_body(self) -> bytearray:
        self._position = 0
        return bytearray()

    def _python_body(self) -> bytes:
        return bytes(self._body)

    def reset(self) -> None:
        """Make the body read-only, and go to its first byte."""
        if not self._body_read_only:
            self._content = bytes(self._content)
            self._body_read_only = True
        self._position = 0

    @property
    def body_length(self) -> int:
        """The number of bytes in the body.

        Raises:
            MessageNotReadableException: The message is write-only.
        """
        return len(self._readable())

    # ----------------------------------------------------------------------------------------------------- read

    def _readable(self) -> bytes:
        if not self._body_read_only:
            raise MessageNotReadableException("this BytesMessage is write-only until reset() (JMS 2.0 §3.11)")
        return self._body  # type: ignore[no-any-return]

    def _read(self, kind: str) -> Any:
        body, form = self._readable(), _FORMS[kind]
        if self._position + form.size > len(body):
            raise MessageEOFException(
                f"{kind} needs {form.size} bytes at position {self._position} of {len(body)} (JMS 2.0 §7.3)"
            )
        (value,) = form.unpack_from(body, self._position)
        self._position += form.size
        return value

    def read_boolean(self) -> bool:
        """Read one byte; anything but 0 is True. Errors as for `read_int`."""
        return bool(self._read("byte"))

    def read_byte(self) -> int:
        """Read a signed 8-bit number."""
        return int(self._read("byte"))

    def read_unsigned_byte(self) -> int:
        """Read an unsigned 8-bit number."""
        return int(self._read("unsigned byte"))

    def read_short(self) -> int:
        """Read a signed 16-bit number."""
        return int(self._read("short"))

    def read_unsigned_short(self) -> int:
        """Read an unsigned 16-bit number."""
        return int(self._read("unsigned short"))

    def read_char(self) -> str:
        """Read one UTF-16 unit."""
        return chr(self._read("char"))

    def read_int(self) -> int:
        """Read a signed 32-bit number.

        Raises:
            MessageEOFException: Fewer bytes are left; none is consumed.
            MessageNotReadableException: The message is write-only.
        """
        return int(self._read("int"))

    def read_long(self) -> int:
        """Read a signed 64-bit number."""
        return int(self._read("long"))

    def read_float(self) -> float:
        """Read a 32-bit number."""
        return float(self._read("float"))

    def read_double(self) -> float:
        """Read a 64-bit number."""
        return float(self._read("double"))

    def read_utf(self) -> str:
        """Read a string that `write_utf` or Java's ``writeUTF`` wrote.

        Raises:
            MessageFormatException: The bytes are not such a string; the position stays where it was.
            MessageEOFException: The message ends before the string does; the position stays, too.
            MessageNotReadableException: The message is write-only.
        """
        body = self._readable()
        start = self._position
        try:
            size = self.read_unsigned_short()
            data = body[self._position : self._position + size]
            if len(data) < size:
                raise MessageEOFException(f"a string of {size} bytes begins at {start}, and {len(data)} are left")
            text = _from_modified_utf8(data)
        except (MessageEOFException, MessageFormatException):
            self._position = start
            raise
        self._position += size
        return text

    def read_bytes(self, length: int | None = None) -> bytes | None:
        """Read at most *length* bytes, or all that are left; None when none is left.

        Raises:
            ValueError: *length* is negative.
            MessageNotReadableException: The message is write-only.
        """
        body = self._readable()
        if length is not None and length < 0:
            raise ValueError(f"length must not be negative, and is {length}")
        if self._position >= len(body):
            return None
        end = len(body) if length is None else min(self._position + length, len(body))
        data = body[self._position : end]
        self._position = end
        return data

    # ---------------------------------------------------------------------------------------------------- write

    def _write(self, kind: str, value: Any) -> None:
        self._check_body_writable()
        if value is None:
            raise MessageFormatException("a BytesMessage cannot hold None (JMS 2.0 §3.12)")
        value = checked(kind, value, "body", kind)
        self._content += _FORMS[kind].pack(ord(value) if kind == "char" else value)

    def write_boolean(self, value: bool) -> None:
        """Write one byte, 1 or 0. Errors as for `write_int`."""
        self._write("boolean", value)

    def write_byte(self, value: int) -> None:
        """Write a whole number from -128 to 127 in one byte."""
        self._write("byte", value)

    def write_short(self, value: int) -> None:
        """Write a whole number in 16 bits."""
        self._write("short", value)

    def write_char(self, value: str) -> None:
        """Write one UTF-16 unit in 16 bits."""
        self._write("char", value)

    def write_int(self, value: int) -> None:
        """Write a whole number in 32 bits.

        Raises:
            MessageFormatException: The value is of another type, or out of range.
            MessageNotWriteableException: The body is read-only.
        """
        self._write("int", value)

    def write_long(self, value: int) -> None:
        """Write a whole number in 64 bits."""
        self._write("long", value)

    def write_float(self, value: float) -> None:
        """Write a number, rounded, in 32 bits."""
        self._write("float", value)

    def write_double(self, value: float) -> None:
        """Write a number in 64 bits."""
        self._write("double", value)

    def write_utf(self, value: str) -> None:
        """Write a string as Java's ``writeUTF`` does: its length in 16 bits, then modified UTF-8.

        Raises:
            MessageFormatException: It is no string, or needs more than 65,535 bytes.
            MessageNotWriteableException: The body is read-only.
        """
        self._check_body_writable()
        if not isinstance(value, str):
            raise MessageFormatException(f"write_utf takes a str, no {type(value).__name__} (JMS 2.0 §3.12)")
        data = _to_modified_utf8(value)
        if len(data) > _UTF_LIMIT:
            raise MessageFormatException(f"write_utf takes strings up to {_UTF_LIMIT} bytes, and this has {len(data)}")
        self._content += len(data).to_bytes(2, "big") + data

    def write_bytes(self, value: bytes | bytearray | memoryview, offset: int = 0, length: int | None = None) -> None:
        """Write bytes, or *length* of them from *offset* on.

        Raises:
            MessageFormatException: *value* is not bytes.
            MessageNotWriteableException: The body is read-only.
            ValueError: *offset* and *length* go beyond the value.
        """
        self._check_body_writable()
        if not isinstance(value, bytes | bytearray | memoryview):
            raise MessageFormatException(f"write_bytes takes bytes, no {type(value).__name__} (JMS 2.0 §3.12)")
        data = bytes(value)
        end = len(data) if length is None else offset + length
        if not 0 <= offset <= end <= len(data):
            raise ValueError(f"offset {offset} and length {length} go beyond a value of {len(data)} bytes")
        self._content += data[offset:end]

    def write_object(self, value: bool | int | float | str | bytes) -> None:
        """Write a value by its Python type: int as int or long, float as double, str as `write_utf`, bytes as they are.

        Raises:
            MessageFormatException: It is None, or of a type that JMS does not know.
            MessageNotWriteableException: The body is read-only.
        """
        self._check_body_writable()
        kind, kept = typed(value, "body", "object")
        if kind == "bytes":
            self._content += kept
        elif kind == "string" and value is not None:
            self.write_utf(value)  # type: ignore[arg-type]
        else:
            self._write(kind, kept)


def _to_modified_utf8(text: str) -> bytes:
    """Java's own UTF-8: NUL takes two bytes, and what is beyond 16 bits goes as its two surrogates."""
    if text.isascii() and "\0" not in text:
        return text.encode()
    units = text.encode("utf-16-be", "surrogatepass")
    wide = "".join(map(chr, struct.unpack(f">{len(units) // 2}H", units)))
    return wide.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")


def _from_modified_utf8(data: bytes) -> str:
    """Read it as Java's ``DataInputStream.readUTF`` does."""
    if data.isascii():
        return data.decode()
    units: list[int] = []
    position, end = 0, len(data)
    while position < end:
        first = data[position]
        size = 1 if first < 0x80 else 2 if 0xC0 <= first < 0xE0 else 3 if 0xE0 <= first < 0xF0 else 0
        rest = data[position + 1 : position + size]
        if size == 0 or len(rest) != size - 1 or any(byte & 0xC0 != 0x80 for byte in rest):
            raise MessageFormatException(f"no modified UTF-8 at byte {position} of the string")
        unit = first if size == 1 else first & (0x1F if size == 2 else 0x0F)
        for byte in rest:
            unit = unit << 6 | byte & 0x3F
        units.append(unit)
        position += size
    return struct.pack(f">{len(units)}H", *units).decode("utf-16-be", "surrogatepass")
