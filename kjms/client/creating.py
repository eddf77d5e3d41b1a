"""What sessions and contexts share: the session modes, making messages and naming destinations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final

from kjms.destinations import Queue, Topic
from kjms.message import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from kjms.message._codecs import codec_of
from kjms.message._typed import has_fields
from kjms.options import SessionMode

__all__ = ["Creating", "message_of"]


class Creating(ABC):
    """A session, or a context, which has one (JMS 2.0 §4.4.4, §4.4.5, §11.2.3)."""

    SESSION_TRANSACTED: Final = SessionMode.SESSION_TRANSACTED
    AUTO_ACKNOWLEDGE: Final = SessionMode.AUTO_ACKNOWLEDGE
    CLIENT_ACKNOWLEDGE: Final = SessionMode.CLIENT_ACKNOWLEDGE
    DUPS_OK_ACKNOWLEDGE: Final = SessionMode.DUPS_OK_ACKNOWLEDGE
    INDIVIDUAL_ACKNOWLEDGE: Final = SessionMode.INDIVIDUAL_ACKNOWLEDGE

    @abstractmethod
    def _using(self, doing: str) -> object:
        """Raise IllegalStateException if the object is closed."""

    def create_message(self) -> Message:
        """Return a message without a body."""
        self._using("create_message")
        return Message()

    def create_text_message(self, text: str | None = None) -> TextMessage:
        """Return a message whose body is *text*."""
        self._using("create_text_message")
        return TextMessage(text)

    def create_bytes_message(self) -> BytesMessage:
        """Return a message whose body is bytes, to be written."""
        self._using("create_bytes_message")
        return BytesMessage()

    def create_map_message(self) -> MapMessage:
        """Return a message whose body is names with typed values."""
        self._using("create_map_message")
        return MapMessage()

    def create_stream_message(self) -> StreamMessage:
        """Return a message whose body is a sequence of typed values."""
        self._using("create_stream_message")
        return StreamMessage()

    def create_object_message(self, value: Any = None) -> ObjectMessage:
        """Return a message whose body is *value*.

        Raises:
            MessageFormatException: No codec carries it.
        """
        self._using("create_object_message")
        return ObjectMessage(value)

    def create_queue(self, queue_name: str) -> Queue:
        """Return the queue of that name, which this does not create."""
        self._using("create_queue")
        return Queue(queue_name)

    def create_topic(self, topic_name: str) -> Topic:
        """Return the topic of that name, which this does not create."""
        self._using("create_topic")
        return Topic(topic_name)


def message_of(value: Any) -> Message:
    """Return *value* if it is a message, be it of another implementation (JMS 2.0 §3.12); else one with that body.

    A str is the body of a TextMessage, bytes of a BytesMessage, a dict of a MapMessage, and None of a message without a
    body. A dataclass, a NamedTuple, and an object of attrs, msgspec or pydantic is JSON in a TextMessage, unless a
    codec is registered for it. Anything else, also a dict that holds dicts or lists, is the body of an ObjectMessage.

    Raises:
        MessageFormatException: No message can carry *value*.
        ValueError: A name in the dict is no name of a map entry.
    """
    if isinstance(value, Message) or (hasattr(value, "property_names") and hasattr(value, "get_object_property")):
        found: Message = value
        return found
    if value is None:
        return Message()
    if isinstance(value, str):
        return TextMessage(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return BytesMessage(value)
    if isinstance(value, Mapping):
        if any(isinstance(each, dict | list) for each in value.values()):  # a MapMessage holds no such values
            return ObjectMessage(dict(value))
        return MapMessage(value)
    if has_fields(type(value)) and codec_of(value) is None:
        text = TextMessage()
        text.set_body(value)
        return text
    return ObjectMessage(value)
