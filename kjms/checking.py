"""Refuse an option of a wrong name or type where it is given: one decorator reads the types from the annotations.

A mapping stands for the settings that a dataclass holds, as in files: ``redelivery={"max_deliveries": 2}``.
"""

from __future__ import annotations

import functools
import inspect
import os
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from kjms.errors import hint, shown

__all__ = ["checked", "checked_arguments", "made"]

T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., Any])

_WORDS: Final[Mapping[object, str]] = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "text",
    bytes: "bytes",
    type(None): "None",
    timedelta: "a timedelta",
    datetime: "a datetime",
    Path: "a Path",
    Mapping: "a mapping",
    Callable: "a function",
    tuple: "a list",
    os.PathLike: "a path",
    Sequence: "a list",
    Collection: "a list",
    Iterable: "a list",
}
"""What the types of options are called; other classes are called by their names."""
_LISTS: Final = (tuple, Sequence, Collection, Iterable)


@dataclass(frozen=True)
class _Kind:
    """What one option may be: any of *kinds*, which *words* name."""

    kinds: tuple[Any, ...]
    words: str

    def taken(self, value: Any, name: str) -> Any:
        """Return *value*, or what a mapping that stands for settings makes.

        Raises:
            TypeError: The value is of another type.
            ValueError: It is of the type, and none of the values that there are.
        """
        if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            for kind in self.kinds:
                if isinstance(kind, type) and is_dataclass(kind):
                    return made(kind, value, name)
        if any(_is_a(kind, value) for kind in self.kinds):
            return value
        choices = [choice for kind in self.kinds if typing.get_origin(kind) is Literal for choice in kind.__args__]
        error = ValueError if choices and isinstance(value, str) else TypeError
        raise error(f"{name} is {self.words}, not {shown(value)}")


def checked(target: C) -> C:
    """Return the function or dataclass *target* such that it refuses arguments of wrong names and types.

    Numbers are not True or False, and text is no list. An annotation that names what is imported for type checkers
    only is not looked at.

    >>> @checked
    ... def count(queue: str, *, limit: int | None = None) -> None: ...
    >>> count("orders", limit="10")
    Traceback (most recent call last):
    TypeError: limit is a whole number or None, not '10' (str)
    >>> count("orders", limt=10)
    Traceback (most recent call last):
    TypeError: count has no setting 'limt'; did you mean 'limit'?
    """
    if isinstance(target, type):
        cls: Any = target
        cls.__init__ = checked(cls.__init__)
        return target
    parameters = [*inspect.signature(target).parameters.values()]
    positional = [each.name for each in parameters if each.kind in {each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD}]
    known = {each.name for each in parameters if each.kind in {each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY}}
    is_open = any(each.kind is each.VAR_KEYWORD for each in parameters)
    is_method = positional[:1] == ["self"]

    @functools.wraps(target)
    def call(*arguments: Any, **settings: Any) -> Any:
        for name in settings:
            if name not in known and not is_open:
                label = type(arguments[0]).__name__ if is_method and arguments else target.__name__
                names = [each.name for each in parameters if each.name in known and each.name != "self"]
                raise TypeError(f"{label} has no setting {name!r}{hint(name, names)}")
        given = checked_arguments(target, dict(zip(positional, arguments, strict=False)))
        return target(*given.values(), *arguments[len(given) :], **checked_arguments(target, settings))

    return typing.cast(C, call)


def checked_arguments(target: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return *values*, arguments of *target* by their names, with mappings made into the settings for which they stand.

    Raises:
        TypeError: A value is of another type than its annotation says.
        ValueError: It is none of the values that the annotation lists.
    """
    kinds = _kinds(target)
    return {name: kinds[name].taken(value, name) if name in kinds else value for name, value in values.items()}


def made(kind: type[T], value: object, name: str) -> T:
    """Return *value*, the setting called *name*, as a *kind*; a mapping is read as in configuration files.

    Raises:
        TypeError: It is neither, or the mapping has a setting that there is not, or a value of another type.
        ValueError: A value is out of its range.
    """
    if isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} is a {kind.__name__}, or a mapping of its settings, not {shown(value)}")
    known = [each.name for each in fields(kind) if each.init]  # type: ignore[arg-type]
    for each in value:
        if each not in known:
            raise TypeError(f"{name}: there is no setting {each!r}{hint(each, known)}")
    try:
        return kind(**value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from error


@functools.cache
def _kinds(target: Callable[..., Any]) -> Mapping[str, _Kind]:
    """Return what each parameter of *target* may be, without those whose annotations do not say it here."""
    if isinstance(target, type):
        target = target.__init__  # type: ignore[misc]
    function: Any = inspect.unwrap(target)
    found = {}
    for name, annotation in function.__annotations__.items():
        with suppress(NameError):  # of what is imported for type checkers
            holder = types.SimpleNamespace(__annotations__={name: annotation})
            kinds = tuple(_alternatives(typing.get_type_hints(holder, function.__globals__)[name]))
            if all(map(_is_known, kinds)):
                *words, last = dict.fromkeys(words for kind in kinds for words in _words(kind))
                found[name] = _Kind(kinds, " or ".join([", ".join(words), last] if words else [last]))
    return found


def _alternatives(annotation: Any) -> Iterable[Any]:
    """Return what *annotation* lists, each of them alone."""
    if typing.get_origin(annotation) in {typing.Union, types.UnionType}:
        for each in typing.get_args(annotation):
            yield from _alternatives(each)
    else:
        yield annotation


def _is_known(kind: Any) -> bool:
    """Return whether values can be asked whether they are of *kind*."""
    plain = typing.get_origin(kind) or kind
    is_class = isinstance(plain, type) and plain is not Any and not getattr(plain, "_is_protocol", False)
    return is_class or plain is Literal


def _words(kind: Any) -> Iterable[str]:
    plain = typing.get_origin(kind) or kind
    if plain is Literal:
        return map(repr, kind.__args__)
    inner = typing.get_args(kind)[:1] if plain in _LISTS else ()
    if inner and isinstance(inner[0], type) and inner[0] not in _WORDS:
        public = [part for part in inner[0].__module__.split(".") if not part.startswith("_")]
        return [f"a list of {'.'.join(public)}.{inner[0].__qualname__}"]
    return [_WORDS.get(plain) or f"{'an' if plain.__name__[0] in 'AEIOU' else 'a'} {plain.__name__}"]


def _is_a(kind: Any, value: object) -> bool:
    alternatives = [*_alternatives(kind)]
    if len(alternatives) > 1:
        return any(_is_a(each, value) for each in alternatives)
    plain = typing.get_origin(kind) or kind
    if plain is Literal:
        return isinstance(value, str) and value in kind.__args__
    if isinstance(value, bool):
        return plain is bool
    if plain is float:
        return isinstance(value, int | float)
    if plain not in _LISTS:
        return isinstance(value, plain)
    if isinstance(value, str | bytes) or not isinstance(value, list | tuple if plain is tuple else plain):
        return False
    inner = typing.get_args(kind)[:1]
    if not inner or not isinstance(value, Collection) or not _is_known(inner[0]):
        return True
    return all(_is_a(inner[0], each) for each in value)
