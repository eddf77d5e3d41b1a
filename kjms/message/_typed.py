"""Convert values of a program's own types to JSON, and bodies to such types; msgspec does it, or pydantic for its own.

Neither is imported before the first value, so programs that send text and bytes do not wait for them.
"""

from __future__ import annotations

import contextlib
import math
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from kjms.errors import BodyConversionException, MessageFormatException

if TYPE_CHECKING:
    import pydantic
    from pydantic_core import ErrorDetails


__all__ = ["Reader", "body_as", "check", "has_fields", "reader", "to_json"]

Reader = Callable[[object], Any]
"""Makes a value of one type of a body: of the JSON in a str or bytes, or of plain values."""

MOST_TYPES: Final = 1_024  # whose readers and writers are kept; a program that makes up types must not make this grow
MOST_ERRORS: Final = 3  # of a body that does not fit, in one text

_MARKS: Final = ("__dataclass_fields__", "__attrs_attrs__", "__struct_fields__", "__pydantic_validator__")
_PYDANTICS: Final = ("__get_pydantic_core_schema__", "__pydantic_validator__")
_PYDANTIC_MODULES: Final = frozenset({"annotated_types", "pydantic", "pydantic_core"})

_SHOWN_BY_MSGSPEC: Final = re.compile(r"(Invalid enum value|Invalid value|Object contains unknown field) .*", re.DOTALL)
_SAFE: Final = {
    "actual_length", "class_name", "decimal_places", "discriminator", "expected", "expected_tags", "field_type",
    "function_name", "ge", "gt", "le", "lt", "max_digits", "max_length", "min_length", "multiple_of", "pattern",
    "whole_digits",
}  # fmt: skip
"""What errors of pydantic say that is none of the body's values."""


_UNBOUNDED: Final = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
"""In MessagePack, a number that is not finite; or other bytes, by chance."""


class _Misfit(Exception):
    """The body is no value of the type; *places* are paths, each with the rule there, and show no value."""

    def __init__(self, *places: tuple[str, str]) -> None:
        super().__init__()
        self.places = places


def type_name(type_: object) -> str:
    """Return how error texts name a type.

    >>> type_name(int), type_name(list[int])
    ('int', 'list[int]')
    """
    return type_.__qualname__ if _is_class(type_) else str(type_)  # type: ignore[attr-defined]


def has_fields(kind: type) -> bool:
    """Return whether *kind* is a dataclass, a NamedTuple, or a class of attrs, msgspec or pydantic."""
    return any(hasattr(kind, mark) for mark in _MARKS) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


def _is_class(type_: object) -> bool:
    """Return whether values can be asked for being instances of *type_*.

    In Python 3.10, ``list[int]`` is an instance of type, too; since 3.11, Any is.
    """
    return isinstance(type_, type) and not (typing.get_origin(type_) or type_ is Any or _is_typed_dict(type_))


def _is_typed_dict(kind: type) -> bool:
    return issubclass(kind, dict) and hasattr(kind, "__total__")  # of typing, or of typing_extensions


# ------------------------------------------------------------------------------------------------------------ write


def to_json(value: object) -> str:
    """Return *value* as JSON.

    Raises:
        MessageFormatException: It has no JSON form: it holds what msgspec and pydantic do not know, a number that is
            not finite, half a surrogate pair, or itself.
    """
    kind: Any = type(value)
    try:
        return _writer(kind)(value).decode()
    except MessageFormatException:
        raise
    except RecursionError:
        reason = "it contains itself, or is nested too deep"
    except UnicodeEncodeError as error:
        reason = f"a text holds a lone surrogate (at index {error.start}), which UTF-8 cannot carry"
    except TypeError as error:  # its text names classes alone
        reason = str(error)
    except Exception as error:
        raise MessageFormatException(f"JSON cannot carry this {type_name(kind)}: {_raised(error)}") from error
    raise MessageFormatException(f"JSON cannot carry this {type_name(kind)}: {reason}")


@lru_cache(MOST_TYPES)
def _writer(kind: type) -> Callable[[object], bytes]:
    if _is_pydantics(kind):
        import pydantic

        adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(kind)
        return lambda value: adapter.dump_json(value, by_alias=True)

    import msgspec

    encoder = msgspec.json.Encoder(enc_hook=_plain_form)
    packer = msgspec.msgpack.Encoder(enc_hook=_plain_form)

    def may_be_unbounded(value: object) -> bool:
        """Return False where no number is without bounds: a tenth of the work of looking at each of them in Python."""
        try:
            return _UNBOUNDED.search(packer.encode(value)) is not None
        except (OverflowError, ValueError):  # MessagePack has no whole numbers beyond 64 bits
            return True

    def write(value: object) -> bytes:
        data = encoder.encode(value)
        if b"null" in data and may_be_unbounded(value):  # JSON has no NaN and no infinity, and msgspec writes null
            path = _unbounded(msgspec.to_builtins(value, enc_hook=_plain_form, str_keys=True))
            if path is not None:
                raise MessageFormatException(f"JSON cannot carry this {type_name(kind)}: {path} is not finite")
        return data

    return write


def _plain_form(value: object) -> object:
    """Return what stands in JSON for *value*, which is in a field whose type does not say so."""
    kind = type(value)
    if not hasattr(kind, "__pydantic_serializer__"):
        raise TypeError(f"{type_name(kind)} has no JSON form")
    return kind.__pydantic_serializer__.to_python(value, mode="json", by_alias=True)


def _unbounded(value: object, path: str = "$") -> str | None:
    """Return where in *value* the first number is that is not finite; None: there is none."""
    if isinstance(value, float):
        return None if math.isfinite(value) else path
    if isinstance(value, dict):
        parts = ((f"{path}.{name}", each) for name, each in value.items())
    elif isinstance(value, list | tuple):
        parts = ((f"{path}[{number}]", each) for number, each in enumerate(value))
    else:
        return None
    return next(filter(None, (_unbounded(each, place) for place, each in parts)), None)


# ------------------------------------------------------------------------------------------------------------- read


class Identified(Protocol):
    """A message, as far as an error names it."""

    @property
    def jms_message_id(self) -> str | None:
        """Return its JMSMessageID."""


def body_as(type_: Any, body: object, message: Identified, read: Reader | None = None) -> Any:
    """Return *body*, which is that of *message* and not None, as a *type_*.

    An instance of a class is returned as it is. Without *read*, nothing else becomes one of Python's own classes, as
    JMS has it.

    Args:
        type_: The type.
        body: The body.
        message: Its message, for error texts.
        read: The reader of *type_*, where it was made before.

    Raises:
        BodyConversionException: It does not become a *type_*.
        MessageFormatException: It is no instance of the class *type_*, to which nothing is converted.
        TypeError: *type_* is no type, or holds one that no body can become.
    """
    if _is_class(type_):
        if isinstance(body, type_) and not (type_ is int and isinstance(body, bool)):
            return body
        if read is None and (type_.__module__ == "builtins" or not _is_convertible(type_)):
            raise MessageFormatException(
                f"the body of a {type(message).__name__} is a {type(body).__name__}, no {type_name(type_)}"
                " (JMS 2.0 §B.5.14)"
            )
    if read is None:
        read = reader(type_)
    try:
        return read(body)
    except _Misfit as misfit:
        places = misfit.places
    # Outside of the handler: the exceptions of msgspec and pydantic, which show the body, are not linked.
    reasons = [f"{path}: {rule}" for path, rule in places[:MOST_ERRORS]]
    if len(places) > MOST_ERRORS:
        reasons.append(f"and {len(places) - MOST_ERRORS} more")
    path, rule = places[0]
    raise BodyConversionException(
        f"message {message.jms_message_id}: the body is no {type_name(type_)}: {'; '.join(reasons)}",
        path=path,
        rule=rule,
    )


def reader(type_: Any) -> Reader:
    """Return what makes a *type_* of a body.

    Raises:
        TypeError: *type_* is no type, or holds one that no body can become.
        NameError: It names a type that is not defined yet.
        ModuleNotFoundError: It needs pydantic, which is not installed.
    """
    try:
        hash(type_)
    except TypeError:  # metadata in an Annotated
        return _made(type_)
    return _reader(type_)


@lru_cache(MOST_TYPES)
def _reader(type_: Any) -> Reader:
    return _made(type_)


def _made(type_: Any) -> Reader:
    try:
        if type_ is None:
            raise TypeError("it is no type")
        return _by_pydantic(type_) if _is_pydantics(type_) else _by_msgspec(type_)
    except TypeError as error:
        raise TypeError(f"no message body can become {type_name(type_)}: {error}") from error


def check(type_: Any) -> None:
    """Raise what `body_as` would raise about *type_* itself, whatever the body is.

    Raises:
        TypeError: *type_* is no type, or holds one that no body can become.
    """
    if not _is_class(type_) or (type_.__module__ != "builtins" and _is_convertible(type_)):
        reader(type_)


@lru_cache(MOST_TYPES)
def _is_convertible(kind: type) -> bool:
    """Return whether values of the class *kind* are made of bodies, and not only found in them."""
    if has_fields(kind) or _is_pydantics(kind):
        return True
    import msgspec.inspect

    try:
        return not isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType)
    except TypeError:  # such as an enum without members
        return False


# ---------------------------------------------------------------------------------------------------------- msgspec


def _by_msgspec(type_: Any) -> Reader:
    import msgspec

    tagged = _tagged(type_)
    if tagged is not None:
        return _by_tag(*tagged)
    decode = msgspec.json.Decoder(type_).decode
    unknown = next(_unknown_classes(type_), None)
    if unknown is not None:
        raise TypeError(f"{type_name(unknown)} has no JSON form")
    convert = msgspec.convert

    def read(body: Any) -> Any:
        try:
            return decode(body) if isinstance(body, str | bytes) else convert(body, type_, str_keys=True)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            place = _place(error)
        raise _Misfit(place)

    return read


def _place(error: Exception) -> tuple[str, str]:
    """Return where in the body msgspec found something else than it expected, and what that is."""
    if isinstance(error, RecursionError):
        return "$", "It is nested too deep"
    if isinstance(error, UnicodeEncodeError):
        return "$", "The text holds a lone surrogate"
    rule, is_placed, path = str(error).rpartition(" - at ")
    if not is_placed:
        rule, path = path, "$"
    if error.__cause__ is not None:  # the type's own check failed: its text is the program's
        rule = _raised(error.__cause__)
    return path.replace("`", ""), _SHOWN_BY_MSGSPEC.sub(r"\1", rule)


def _raised(error: BaseException) -> str:
    return f"{type(error).__name__} raised by the type's own code"


def _unknown_classes(type_: Any) -> Iterator[type]:
    """Return the classes in *type_* that msgspec does not know."""
    import msgspec.inspect

    seen = set()
    waiting: list[Any] = [msgspec.inspect.type_info(type_)]
    while waiting:
        info = waiting.pop()
        if isinstance(info, tuple):
            waiting += info
        elif isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field) and id(info) not in seen:
            seen.add(id(info))
            if isinstance(info, msgspec.inspect.CustomType) and info.cls is not object:
                yield info.cls
            waiting += [
                getattr(info, name) for name in info.__struct_fields__ if name not in {"default", "default_factory"}
            ]


def _tagged(type_: Any) -> tuple[str, dict[object, Any]] | None:
    """Return the field that tells the classes of a union, and the class that each of its values stands for.

    msgspec tells its own Structs by their tags, and makes no union of other classes.

    Raises:
        TypeError: No field tells them.
    """
    from msgspec import inspect

    if typing.get_origin(type_) not in {typing.Union, types.UnionType}:
        return None
    classes = typing.get_args(type_)
    infos = {each: inspect.type_info(each) for each in classes}
    objects = (inspect.DataclassType, inspect.TypedDictType, inspect.StructType)
    if not all(isinstance(each, objects) for each in infos.values()):
        return None
    if all(isinstance(each, inspect.StructType) for each in infos.values()):
        return None
    tags: dict[str, dict[object, Any]] = {}
    for kind, info in infos.items():
        for field in info.fields:  # type: ignore[attr-defined]
            if isinstance(field.type, inspect.LiteralType):
                for value in field.type.values:
                    tags.setdefault(field.encode_name, {}).setdefault(value, []).append(kind)
    for name, kinds in tags.items():
        if all(len(each) == 1 for each in kinds.values()) and {each for (each,) in kinds.values()} == set(classes):
            return name, {value: kind for value, (kind,) in kinds.items()}
    names = " from ".join(type_name(each) for each in classes)
    raise TypeError(f'no field tells {names}; give each one such as kind: Literal["a"], with different values')


def _by_tag(name: str, kinds: Mapping[object, Any]) -> Reader:
    import msgspec

    tag = reader(msgspec.defstruct("Tag", [("value", typing.Any)], rename={"value": name}))
    readers = {value: reader(kind) for value, kind in kinds.items()}
    expected = ", ".join(map(repr, readers))

    def read(body: object) -> Any:
        value = tag(body).value
        chosen = readers.get(value) if isinstance(value, str | int) else None
        if chosen is None:
            raise _Misfit((f"$.{name}", f"Expected one of {expected}"))
        return chosen(body)

    return read


# --------------------------------------------------------------------------------------------------------- pydantic


def _is_pydantics(type_: Any) -> bool:
    """Return whether *type_* has anything of pydantic in it, or a rule of annotated_types, which pydantic checks."""
    return bool(_PYDANTIC_MODULES & sys.modules.keys()) and _has_pydantics(type_, set())


def _has_pydantics(type_: Any, seen: set[int]) -> bool:
    if id(type_) in seen:
        return False
    seen.add(id(type_))
    kind = typing.get_origin(type_) or type_
    parts = [*typing.get_args(type_), getattr(type_, "__value__", None), getattr(type_, "__supertype__", None)]
    if isinstance(kind, type):
        if _is_of_pydantic(kind):
            return True
        if has_fields(kind) or _is_typed_dict(kind):
            with contextlib.suppress(NameError, TypeError):  # msgspec says which name is not defined
                parts += typing.get_type_hints(kind, include_extras=True).values()
    if any(_is_of_pydantic(type(each)) for each in getattr(type_, "__metadata__", ())):
        return True
    return any(_has_pydantics(each, seen) for each in parts)


def _is_of_pydantic(kind: type) -> bool:
    module = getattr(kind, "__module__", "").partition(".")[0]
    return module in _PYDANTIC_MODULES or any(hasattr(kind, mark) for mark in _PYDANTICS)


def _by_pydantic(type_: Any) -> Reader:
    try:
        import pydantic
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"pydantic makes {type_name(type_)} of message bodies, and is not installed: pip install pydantic",
            name="pydantic",
        ) from error
    try:
        adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(type_)
    except pydantic.errors.PydanticUserError as error:
        if error.code in {"class-not-fully-defined", "undefined-annotation"}:
            raise NameError(str(error)) from error
        raise TypeError(str(error).splitlines()[0]) from error
    names = _texts_of(adapter.core_schema)

    def read(body: Any) -> Any:
        try:
            return adapter.validate_json(body) if isinstance(body, str | bytes) else adapter.validate_python(body)
        except pydantic.ValidationError as error:
            found = error.errors(include_url=False, include_input=False)
            places = [(_path(each["loc"], names), _rule(each)) for each in found]
        raise _Misfit(*places)

    return read


def _path(loc: tuple[int | str, ...], names: frozenset[str]) -> str:
    """Return a place as msgspec writes it; of dicts and unknown fields the names are the body's, and not shown."""
    return "$" + "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" if part in names else "[...]" for part in loc
    )


def _rule(error: ErrorDetails) -> str:
    """Return an error's text where it shows no value; else the name of its kind.

    Texts with other values, and those of kinds that pydantic does not have, may show one.
    """
    kind = error["type"]
    is_safe = kind == "json_invalid" or (error.get("ctx", {}).keys() <= _SAFE and kind in _kinds())
    return error["msg"] if is_safe else kind


@cache
def _kinds() -> frozenset[str]:
    from pydantic_core import core_schema

    return frozenset(typing.get_args(core_schema.ErrorType))


def _texts_of(schema: object) -> frozenset[str]:
    """Return each text in the schema of a type, such as the names of its fields."""
    found: set[str] = set()
    seen: set[int] = set()
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            found.add(part)
        elif isinstance(part, dict | list | tuple) and id(part) not in seen:
            seen.add(id(part))
            waiting += [*part, *part.values()] if isinstance(part, dict) else part
    return frozenset(found)
