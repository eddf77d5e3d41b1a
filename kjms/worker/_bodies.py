"""Convert a message to what a listener's annotation asks for."""

from __future__ import annotations

import contextlib
import typing
from collections.abc import Callable
from typing import Any

from kjms.client.jms_consumer import body_of
from kjms.errors import BodyConversionException
from kjms.message import Message
from kjms.message._typed import body_as, reader

__all__ = ["Convert", "check_annotation", "converter"]

Convert = Callable[[Message], Any]


def converter(annotation: Any, name: str) -> Convert:
    """Return what makes a message the value that *annotation* asks for.

    Args:
        annotation: The type; `typing.Any` stands for the message as it is.
        name: The listener and its argument, for error texts.

    Raises:
        TypeError: No body can become such a type.
        NameError: The type names another one that is not defined yet.
        ModuleNotFoundError: The type needs pydantic, which is not installed.
    """
    if annotation is Any:
        return lambda message: message
    if isinstance(annotation, type):  # in Python 3.10, `list[int]` is one, and cannot be asked for its bases
        if annotation in (str, bytes, object):
            return lambda message: body_of(message, annotation)
        if Message in getattr(annotation, "__mro__", ()):
            return lambda message: _message_of(message, annotation)
    try:
        read = reader(annotation)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{name}: {error}", name=error.name) from error
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from error
    return lambda message: body_as(annotation, body_of(message, object), message, read)


def check_annotation(function: Callable[..., Any], argument: str, name: str) -> None:
    """Raise what is wrong with the annotation of *argument*, which is what *function*, a listener, is called with.

    What names a type that is not defined yet is left to the start, when all modules are there.

    Raises:
        TypeError: No body can become such a type.
        ModuleNotFoundError: The type needs pydantic, which is not installed.
    """
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError):
        return
    with contextlib.suppress(NameError):
        converter(hints.get(argument, Any), f"{name}: argument {argument!r}")


def _message_of(message: Message, kind: type[Message]) -> Message:
    if not isinstance(message, kind):
        raise BodyConversionException(
            f"message {message.jms_message_id} is a {type(message).__name__}, and the listener takes a {kind.__name__}",
            rule=f"Expected a {kind.__name__}",
        )
    return message
