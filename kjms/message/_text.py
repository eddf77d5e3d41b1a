"""The message whose body is one string."""

from __future__ import annotations

from typing import Any, Final

from kjms.errors import MessageFormatException
from kjms.message._base import Message
from kjms.message._property_names import CONTENT_TYPE
from kjms.message._reading import UNREAD
from kjms.message._typed import to_json

__all__ = ["TextMessage"]

JSON: Final = "application/json"


class TextMessage(Message):
    """A message that carries a string, such as XML or JSON text.

    Args:
        text: The body; None is a message without one.

    Raises:
        MessageFormatException: *text* is no string.

    Spec: JMS 2.0 §3.11.
    """

    __slots__ = ()

    def __init__(self, text: str | None = None) -> None:
        super().__init__()
        if text is not None:
            self._content = text if text.__class__ is str else _checked(text)

    @property
    def text(self) -> str | None:
        """The body.

        Raises:
            MessageNotWriteableException: It was set on a received message before `clear_body`.
            MessageFormatException: It was set to something that is no string.
        """
        value = self._content
        if value is UNREAD:
            value = self._content = self._reader.read_body(self)  # type: ignore[union-attr]
        return value  # type: ignore[no-any-return]

    @text.setter
    def text(self, text: str | None) -> None:
        self._check_body_writable()
        self._content = None if text is None else _checked(text)

    def set_body(self, value: Any) -> None:
        """Set the body to *value*, which `get_body` with its type returns.

        Args:
            value: A str is the text itself, and None is no text. Anything else becomes JSON, which the property
                ``JMS_kjms_ContentType`` says: a dataclass, a NamedTuple, an object of attrs, msgspec or pydantic, a
                dict or list of them. A datetime, date, time, timedelta, Decimal or UUID in it is a string, bytes are
                one in base64, and an enum is its value.

        Raises:
            MessageFormatException: JSON cannot carry *value*.
            MessageNotWriteableException: The message was received, and is read-only until `clear_body`.
        """
        self._check_body_writable()
        if value is None or isinstance(value, str):
            self.text = value
            self._properties.pop(CONTENT_TYPE, None)
            return
        self._content = to_json(value)
        self._properties[CONTENT_TYPE] = JSON

    def _python_body(self) -> str | None:
        return self.text


def _checked(text: object) -> str:
    if not isinstance(text, str):
        raise MessageFormatException(f"a TextMessage carries a str or None, no {type(text).__name__}")
    return str.__str__(text)
