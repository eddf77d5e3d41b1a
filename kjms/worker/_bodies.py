"""Convert a message to what a listener's annotation asks for; pydantic checks all but the simplest types."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from kjms.client.jms_consumer import body_of
from kjms.errors import MessageFormatException
from kjms.message import Message

__all__ = ["Convert", "converter"]

Convert = Callable[[Message], Any]

MOST_ERRORS: Final = 3  # of a body that does not fit, in one text


def converter(annotation: Any, name: str) -> Convert:
    """Return what makes a message the value that *annotation* asks for.

    Args:
        annotation: The type; `inspect.Parameter.empty` and `typing.Any` stand for the message as it is.
        name: The listener's, for error texts.

    Raises:
        TypeError: pydantic knows no such type.
        ModuleNotFoundError: The type needs pydantic, which is not installed.
    """
    if annotation is Any:
        return lambda message: message
    if isinstance(annotation, type) and issubclass(annotation, Message):
        return lambda message: _message_of(message, annotation)
    if annotation in (str, bytes, object):
        return lambda message: body_of(message, annotation)
    if annotation is dict:
        return _dict_of
    return _checked_by_pydantic(annotation, name)


def _message_of(message: Message, kind: type[Message]) -> Message:
    if not isinstance(message, kind):
        raise MessageFormatException(
            f"message {message.jms_message_id} is a {type(message).__name__}, and the listener takes a {kind.__name__}"
        )
    return message


def _dict_of(message: Message) -> dict[Any, Any]:
    """Return the body of a MapMessage, the dict of an ObjectMessage, or the JSON object of a text or of bytes."""
    body = body_of(message, object)
    if isinstance(body, str | bytes):
        try:
            body = json.loads(body)
        except ValueError as error:  # its text has the place, not the body; the exception itself has the body
            text = f"message {message.jms_message_id}: the body is no JSON: {error}"
            raise MessageFormatException(text) from None
    if not isinstance(body, dict):
        raise MessageFormatException(
            f"message {message.jms_message_id}: the body is a {type(body).__name__}, and the listener takes a dict"
        )
    return body


def _checked_by_pydantic(annotation: Any, name: str) -> Convert:
    try:
        import pydantic
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{name}: pydantic converts message bodies to {_shown(annotation)}, and is not installed:"
            " pip install 'kjms[worker]'",
            name="pydantic",
        ) from error
    try:
        adapter = pydantic.TypeAdapter(annotation)
    except pydantic.errors.PydanticUserError as error:
        lines = str(error).splitlines()
        raise TypeError(f"{name}: no message body can become {_shown(annotation)}: {lines[0]}") from error

    def convert(message: Message) -> Any:
        body = body_of(message, object)
        try:
            if isinstance(body, str | bytes):
                return adapter.validate_json(body)
            return adapter.validate_python(body)
        except pydantic.ValidationError as error:  # its own text shows the body
            found = error.errors(include_url=False, include_context=False, include_input=False)
            reasons = [": ".join(filter(None, (".".join(map(str, each["loc"])), each["msg"]))) for each in found]
            more = f"; and {len(reasons) - MOST_ERRORS} more" if len(reasons) > MOST_ERRORS else ""
            raise MessageFormatException(
                f"message {message.jms_message_id}: the body is no {_shown(annotation)}:"
                f" {'; '.join(reasons[:MOST_ERRORS])}{more}"
            ) from None

    return convert


def _shown(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)
