"""The message whose body is one object, kept as the name of its codec and the bytes that the codec wrote."""

from __future__ import annotations

from typing import Any

from kjms.errors import MessageFormatException
from kjms.message._base import Message
from kjms.message._codecs import from_wire, to_wire

__all__ = ["ObjectMessage"]


class ObjectMessage(Message):
    """A message that carries an object: bool, int, float, str, bytes, None, and lists and dicts (keys: str) of them.

    Objects of other types need a codec, registered with `register_codec` on both sides. The object is written when it
    is set and read when it is asked for, so what is in the message is a copy.

    Args:
        value: The object.

    Raises:
        MessageFormatException: No codec can carry *value*.

    Spec: JMS 2.0 §3.11, §9.4.10.
    """

    __slots__ = ()

    def __init__(self, value: Any = None) -> None:
        super().__init__()
        self._content = self._empty_body() if value is None else to_wire(value)

    def _empty_body(self) -> tuple[str, None]:
        return "", None

    @property
    def object(self) -> Any:
        """A copy of the object.

        Raises:
            MessageFormatException: Its codec is not registered here or cannot read it; or, when it is set, no codec can
                carry it.
            MessageNotWriteableException: It was set on a received message before `clear_body`.
        """
        codec, data = self._body
        return None if data is None else from_wire(codec, data)

    @object.setter
    def object(self, value: Any) -> None:
        self._check_body_writable()
        self._content = self._empty_body() if value is None else to_wire(value)

    @property
    def serialized(self) -> tuple[str, bytes] | None:
        """The codec's name (empty: plain values) and the object's bytes, for those who pass them on; None without one.

        Raises:
            ValueError: It was set with no name.
            MessageNotWriteableException: It was set on a received message before `clear_body`.
        """
        codec, data = self._body
        return None if data is None else (codec, data)

    @serialized.setter
    def serialized(self, value: tuple[str, bytes]) -> None:
        self._check_body_writable()
        codec, data = value
        if not codec or not isinstance(data, bytes):
            raise MessageFormatException("serialized takes a codec's name and bytes")
        self._content = (codec, data)

    def _python_body(self) -> Any:
        return self.object
