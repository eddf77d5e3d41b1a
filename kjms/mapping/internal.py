"""Read records of kjms's own topics, where any program with the right to write may have written anything: pure.

Each such record is read by a list of its members and what each may hold. A record is read as a whole or not at all:
`MalformedError` says why not, and the reader continues with the next one. No content of a record is in the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, NoReturn

__all__ = [
    "FLAG",
    "LONG",
    "TEXT",
    "TOPIC",
    "Kind",
    "LaterVersionError",
    "MalformedError",
    "array",
    "integer",
    "one_of",
    "optional",
    "read_array",
    "read_number",
    "read_object",
    "read_text",
]

LARGEST: Final = 1 << 20
"""Bytes: what Kafka takes for a record where a topic or a producer has no limit of its own."""
DEEPEST: Final = 4
"""Arrays and objects in each other; kjms writes two."""
LONGEST: Final = (1 << 63) - 1
"""What a JMS long, and an offset, can say."""
DIGITS: Final = len(str(LONGEST))

_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKET: Final = re.compile(r"[\[\]{}]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


class MalformedError(ValueError):
    """The record is not one that kjms writes."""


class LaterVersionError(MalformedError):
    """A later version of kjms wrote the record."""


class Kind(NamedTuple):
    """What a member may hold.

    Attributes:
        name: What an error calls it.
        accepts: Whether a value is of the kind.
    """

    name: str
    accepts: Callable[[object], bool]


def _is_text(value: object) -> bool:
    """Return whether *value* is a text that UTF-8 can carry; JSON can hold a lone surrogate."""
    return isinstance(value, str) and (value.isascii() or not _SURROGATE.search(value))


def integer(least: int = 0, most: int = LONGEST) -> Kind:
    """Return the kind of the whole numbers from *least* to *most*.

    >>> integer(1, 9).accepts(9), integer(1, 9).accepts(10), integer(1, 9).accepts(True), integer(1, 9).accepts(2.0)
    (True, False, False, False)
    """
    return Kind(f"a number from {least} to {most}", lambda value: type(value) is int and least <= value <= most)


def optional(kind: Kind) -> Kind:
    """Return the kind of what is of *kind*, or null."""
    return Kind(f"{kind.name} or null", lambda value: value is None or kind.accepts(value))


def one_of(*kinds: Kind) -> Kind:
    """Return the kind of what is of one of *kinds*."""
    return Kind(" or ".join(kind.name for kind in kinds), lambda value: any(kind.accepts(value) for kind in kinds))


def array(kind: Kind) -> Kind:
    """Return the kind of the arrays of *kind*."""
    return Kind(f"an array of {kind.name}", lambda value: isinstance(value, list) and all(map(kind.accepts, value)))


TEXT: Final = Kind("a text", _is_text)
FLAG: Final = Kind("true or false", lambda value: isinstance(value, bool))
LONG: Final = integer(0, LONGEST)
TOPIC: Final = Kind(
    "the name of a Kafka topic", lambda value: isinstance(value, str) and _TOPIC.fullmatch(value) is not None
)


def read_text(data: bytes | None) -> str:
    """Return the text of *data*, which is UTF-8.

    Raises:
        MalformedError: It is not, or too large.
    """
    if data is None:
        raise MalformedError("it has no content")
    if len(data) > LARGEST:
        raise MalformedError(f"it has {len(data):,} bytes; {LARGEST:,} are allowed")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise MalformedError("it is not UTF-8") from None


def read_number(text: str) -> int:
    """Return the whole number, not negative, that *text* says in decimal digits.

    Raises:
        MalformedError: It says none, or one that is no long.

    >>> read_number("17")
    17
    """
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS and int(text) <= LONGEST):
        raise MalformedError(f"it has something other than a number from 0 to {LONGEST}")
    return int(text)


def read_array(data: bytes | None) -> list[Any]:
    """Return the array that *data* says in JSON; the caller checks its items.

    Raises:
        MalformedError: It says none.
    """
    found = _read_json(data)
    if not isinstance(found, list):
        raise MalformedError("it is no JSON array")
    return found


def read_object(
    data: bytes | None, version: int | None, required: Mapping[str, Kind], others: Mapping[str, Kind] | None = None
) -> dict[str, Any]:
    """Return the members of the object that *data* says in JSON, as far as they are known.

    Args:
        data: The record's value.
        version: What its member ``version`` says; None: such records have none.
        required: The members that it must have.
        others: The members that it may have. Any other one is passed over.

    Raises:
        LaterVersionError: A later version of kjms wrote it.
        MalformedError: It is no such object.

    >>> read_object(b'{"version":1,"lease":7,"later":[[]]}', 1, {"lease": LONG})
    {'lease': 7}
    >>> read_object(b'{"version":1,"lease":-1}', 1, {"lease": integer(0, 9)})
    Traceback (most recent call last):
    kjms.mapping.internal.MalformedError: its member 'lease' is not a number from 0 to 9
    """
    found = _read_json(data)
    if not isinstance(found, dict):
        raise MalformedError("it is no JSON object")
    if version is not None:
        said = found.get("version")
        if not integer(1).accepts(said):
            raise MalformedError("it has no version")
        if said != version:
            raise LaterVersionError(f"it has version {said}; this kjms reads version {version}")
    missing = next((name for name in required if name not in found), None)
    if missing is not None:
        raise MalformedError(f"it has no member {missing!r}")
    members: dict[str, Any] = {}
    for kinds in (required, others or {}):
        for name, kind in kinds.items():
            if name in found:
                if not kind.accepts(found[name]):
                    raise MalformedError(f"its member {name!r} is not {kind.name}")
                members[name] = found[name]
    return members


def _read_json(data: bytes | None) -> Any:
    text = read_text(data)
    if text.count("[") + text.count("{") > DEEPEST and _is_deep(text):
        raise MalformedError(f"its JSON is nested more than {DEEPEST} deep")
    try:
        return json.loads(text, parse_constant=_refuse, parse_int=_read_int)
    except MalformedError:
        raise
    except (ValueError, RecursionError):
        raise MalformedError("it is no JSON") from None


def _is_deep(text: str) -> bool:
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > DEEPEST:
            return True
    return False


def _refuse(constant: str) -> NoReturn:
    raise MalformedError(f"its JSON has {constant}, which is no JSON")


def _read_int(digits: str) -> int:
    if len(digits) > DIGITS + 1:
        raise MalformedError(f"its JSON has a number of {len(digits):,} digits")
    return int(digits)
