"""The message whose body is a set of named values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from kjms.errors import MessageFormatException, shown
from kjms.message._avro import TypedValue
from kjms.message._base import Message
from kjms.message._values import Value, checked, read_as, typed

__all__ = ["MapMessage"]


class MapMessage(Message):
    """A message that carries named values, each of one JMS type.

    Names are strings that are not empty. Each value can be read as its own type and as those that JMS converts it to;
    one that was never set reads like None. ``map_["n"]``, ``in``, ``len`` and iteration see plain Python values.

    Args:
        entries: What to set first, typed as by `set_object`.

    Raises:
        MessageFormatException: A value is of a type that JMS does not know.
        ValueError: A name is None, empty or no string.

    Spec: JMS 2.0 §3.11, §3.11.3.
    """

    __slots__ = ()

    def __init__(self, entries: Mapping[str, Value] | None = None) -> None:
        super().__init__()
        self._content = {}
        if entries is not None:
            if not isinstance(entries, Mapping):
                raise MessageFormatException(f"a MapMessage carries a mapping, no {type(entries).__name__}")
            for name, value in entries.items():
                self.set_object(name, value)

    def _empty_body(self) -> dict[str, TypedValue]:
        return {}

    def _python_body(self) -> dict[str, Value]:
        return {name: value for name, (_, value) in self._body.items()}

    def names(self) -> list[str]:
        """Return the names of the entries."""
        return list(self._body)

    def item_exists(self, name: str) -> bool:
        """Tell whether there is an entry *name*, be it None."""
        return name in self._body

    def __contains__(self, name: object) -> bool:
        return name in self._body

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._body))

    def __len__(self) -> int:
        return len(self._body)

    def __bool__(self) -> bool:
        """Return True: a message is one, be it empty."""
        return True

    def __getitem__(self, name: str) -> Value:
        return cast("Value", self._body[name][1])

    def __setitem__(self, name: str, value: Value) -> None:
        self.set_object(name, value)

    # ------------------------------------------------------------------------------------------------------ set

    def _set(self, kind: str, name: str, value: object) -> None:
        self._store(kind, name, checked(kind, value, "map entry", name))

    def _store(self, kind: str, name: str, value: Value) -> None:
        self._check_body_writable()
        if not isinstance(name, str) or not name:
            raise ValueError(
                f"the name of a map entry must be a string that is not empty, not {shown(name)} (JMS 2.0 §B.4.5.2)"
            )
        self._body[str.__str__(name)] = (kind if value is not None else "string", value)

    def set_boolean(self, name: str, value: bool) -> None:
        """Set an entry to a boolean. Errors as for `set_object`."""
        self._set("boolean", name, value)

    def set_byte(self, name: str, value: int) -> None:
        """Set an entry to a whole number from -128 to 127."""
        self._set("byte", name, value)

    def set_short(self, name: str, value: int) -> None:
        """Set an entry to a whole number of 16 bits."""
        self._set("short", name, value)

    def set_char(self, name: str, value: str) -> None:
        """Set an entry to one UTF-16 unit."""
        self._set("char", name, value)

    def set_int(self, name: str, value: int) -> None:
        """Set an entry to a whole number of 32 bits."""
        self._set("int", name, value)

    def set_long(self, name: str, value: int) -> None:
        """Set an entry to a whole number of 64 bits."""
        self._set("long", name, value)

    def set_float(self, name: str, value: float) -> None:
        """Set an entry to a number, rounded to 32 bits."""
        self._set("float", name, value)

    def set_double(self, name: str, value: float) -> None:
        """Set an entry to a number of 64 bits."""
        self._set("double", name, value)

    def set_string(self, name: str, value: str | None) -> None:
        """Set an entry to a string, or None."""
        self._set("string", name, value)

    def set_bytes(
        self, name: str, value: bytes | bytearray | memoryview | None, offset: int = 0, length: int | None = None
    ) -> None:
        """Set an entry to bytes, or to *length* of them from *offset* on; None is possible.

        Raises:
            ValueError: *offset* and *length* go beyond the value.
        """
        data = cast("bytes | None", checked("bytes", value, "map entry", name))
        self._store("bytes", name, part(data, offset, length))

    def set_object(self, name: str, value: Value) -> None:
        """Set an entry by its Python type: int as int or long, float as double, str, bytes, bool and None as they are.

        Raises:
            MessageFormatException: The value is of a type that JMS does not know, or out of range.
            MessageNotWriteableException: The body is read-only.
            ValueError: The name is None, empty or no string.
        """
        kind, kept = typed(value, "map entry", name)
        self._store(kind, name, kept)

    # ------------------------------------------------------------------------------------------------------ get

    def _get(self, wanted: str, name: str) -> Any:
        kind, value = self._body.get(name) or ("string", None)
        return read_as(wanted, kind, value, "map entry", name)

    def get_boolean(self, name: str) -> bool:
        """Return an entry as boolean; False where it has no value. Errors as for `get_int`."""
        return cast(bool, self._get("boolean", name))

    def get_byte(self, name: str) -> int:
        """Return an entry as byte."""
        return cast(int, self._get("byte", name))

    def get_short(self, name: str) -> int:
        """Return an entry as short."""
        return cast(int, self._get("short", name))

    def get_char(self, name: str) -> str:
        """Return an entry as char."""
        return cast(str, self._get("char", name))

    def get_int(self, name: str) -> int:
        """Return an entry as int.

        Raises:
            MessageFormatException: Its type cannot be read so, its text is no such number, or it has no value.
        """
        return cast(int, self._get("int", name))

    def get_long(self, name: str) -> int:
        """Return an entry as long."""
        return cast(int, self._get("long", name))

    def get_float(self, name: str) -> float:
        """Return an entry as float."""
        return cast(float, self._get("float", name))

    def get_double(self, name: str) -> float:
        """Return an entry as double."""
        return cast(float, self._get("double", name))

    def get_string(self, name: str) -> str | None:
        """Return an entry as string, written as Java writes it; None where it has no value."""
        return cast("str | None", self._get("string", name))

    def get_bytes(self, name: str) -> bytes | None:
        """Return an entry as bytes; None where it has no value."""
        return cast("bytes | None", self._get("bytes", name))

    def get_object(self, name: str) -> Value:
        """Return an entry in its own type; None where it has no value."""
        return (self._body.get(name) or ("string", None))[1]


def part(data: bytes | None, offset: int, length: int | None) -> bytes | None:
    """Return *length* bytes of *data* from *offset* on, or all that follow it.

    Raises:
        ValueError: They go beyond the data.
    """
    size = len(data or b"")
    end = size if length is None else offset + length
    if not 0 <= offset <= end <= size:
        raise ValueError(f"offset {offset} and length {length} go beyond a value of {size} bytes")
    return data if data is None else data[offset:end]
