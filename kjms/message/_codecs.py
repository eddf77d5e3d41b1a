"""How the objects of ObjectMessages become bytes: plain values by themselves, others by registered codecs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from kjms.errors import MessageFormatException, shown
from kjms.message._avro import read_plain, write_plain

__all__ = ["register_codec", "unregister_codec"]

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


class Codec(NamedTuple):
    """The carrying of one Python type."""

    name: str
    python_type: type
    to_bytes: Callable[[Any], bytes]
    from_bytes: Callable[[bytes], Any]


PLAIN: Final = ""
"""The name that the codec of plain values does not need."""

_codecs: dict[str, Codec] = {}


def register_codec(
    name: str, python_type: type[T], to_bytes: Callable[[T], bytes], from_bytes: Callable[[bytes], T]
) -> None:
    """Let ObjectMessages carry objects of *python_type* and of its subclasses.

    Args:
        name: The codec's name in the record's header (``object/NAME``): letters, digits and ``._+-``.
        python_type: Whose instances it writes; of several codecs the one for the nearest class does.
        to_bytes: Gives an object's bytes.
        from_bytes: Gives the object that bytes stand for. They come from any client that can write to the topic.

    Raises:
        ValueError: *name* is no such name, or is another type's.

    >>> import uuid
    >>> register_codec("uuid", uuid.UUID, lambda value: value.bytes, lambda data: uuid.UUID(bytes=data))
    >>> unregister_codec("uuid")
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"a codec's name must consist of letters, digits and ._+-, not {shown(name)}")
    held = _codecs.get(name)
    if held is not None and held.python_type is not python_type:
        raise ValueError(f"codec {name!r} is registered for {held.python_type.__qualname__}")
    _codecs[name] = Codec(name, python_type, to_bytes, from_bytes)


def unregister_codec(name: str) -> None:
    """Forget the codec *name*; nothing happens if there is none."""
    _codecs.pop(name, None)


def codec_of(value: object) -> Codec | None:
    """Return the codec that is registered for the nearest class of *value*; None: there is none."""
    for base in type(value).__mro__:
        for codec in _codecs.values():
            if codec.python_type is base:
                return codec
    return None


def to_wire(value: object) -> tuple[str, bytes]:
    """Return the name of the codec that carries *value*, and its bytes.

    Raises:
        MessageFormatException: There is no codec for it, or its codec fails.
    """
    codec = codec_of(value)
    if codec is not None:
        return codec.name, _encoded(codec, value)
    try:
        return PLAIN, write_plain(value)
    except TypeError as error:
        raise MessageFormatException(
            f"an ObjectMessage carries None, bool, int, float, str, bytes, list and dict with str keys; for {error}"
            " register a codec (kjms.message.register_codec), or send it as JSON (TextMessage.set_body)"
        ) from None
    except UnicodeEncodeError as error:
        raise MessageFormatException(
            f"a text holds a lone surrogate (at index {error.start}), which UTF-8 cannot carry"
        ) from None
    except ValueError as error:
        raise MessageFormatException(f"the object cannot be carried: {error}") from None


def _encoded(codec: Codec, value: object) -> bytes:
    try:
        data = codec.to_bytes(value)
    except Exception as error:
        raise MessageFormatException(f"codec {codec.name!r} cannot write the object: {type(error).__name__}") from error
    if not isinstance(data, bytes):
        raise MessageFormatException(f"codec {codec.name!r} gave a {type(data).__name__} for an object, not bytes")
    return data


def from_wire(name: str, data: bytes) -> Any:
    """Return the object that the codec *name* reads in *data*.

    Raises:
        MessageFormatException: There is no such codec, or it cannot read the bytes.
    """
    if name == PLAIN:
        try:
            return read_plain(data)
        except ValueError as error:
            raise MessageFormatException(f"the body is not a plain object: {error} (docs/wire-format.md)") from None
    codec = _codecs.get(name)
    if codec is None:
        raise MessageFormatException(
            f"the body was written by codec {name!r}, which is not registered here (kjms.message.register_codec)"
        )
    try:
        return codec.from_bytes(data)
    except Exception as error:
        raise MessageFormatException(f"codec {name!r} cannot read the body: {type(error).__name__}") from error
