"""The simplified API's producer, whose calls can be chained."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from kjms.client.creating import message_of
from kjms.client.producer import MessageProducer
from kjms.errors import shown
from kjms.message import Message

if TYPE_CHECKING:
    from typing_extensions import Self

    from kjms.client.completion_listener import CompletionListener
    from kjms.client.session_sender import SessionSender
    from kjms.destinations import Destination
    from kjms.options import DeliveryMode

__all__ = ["JMSProducer", "ProducerSettings"]


class ProducerSettings:
    """What goes with every message that a producer sends, and overrides what the message has."""

    def __init__(self, sender: SessionSender) -> None:
        self._producer = MessageProducer(sender, None)  # unknown to the session, which need not close it
        self._header = Message()  # holds what is set on each message

    def __repr__(self) -> str:
        names = ", ".join(self.property_names()) or "none"
        return f"<{type(self).__name__}: {self.delivery_mode.name}, priority {self.priority}, properties {names}>"

    def _message(self, value: Any) -> Message:
        """Return *value*, or a message with that body, with what is set here."""
        message: Message = message_of(value)
        header = self._header
        if header._properties:
            for name in header.property_names():
                getattr(message, f"set_{header.property_type(name)}_property")(name, header.get_object_property(name))
        if isinstance(header._correlation_id, bytes):
            message.jms_correlation_id_as_bytes = header._correlation_id
        elif header._correlation_id is not None:
            message.jms_correlation_id = header._correlation_id
        if header._type is not None:
            message.jms_type = header._type
        if header._reply_to is not None:
            message.jms_reply_to = header._reply_to
        return message

    # Send options.

    def set_delivery_mode(self, mode: DeliveryMode | int) -> Self:
        """Send PERSISTENT or NON_PERSISTENT messages; ValueError if it is neither (JMS 2.0 §3.4.2)."""
        self._producer.delivery_mode = mode
        return self

    def set_priority(self, priority: int) -> Self:
        """Send messages of this priority; ValueError outside of 0 to 9 (JMS 2.0 §3.4.10)."""
        self._producer.priority = priority
        return self

    def set_time_to_live(self, duration: int | timedelta) -> Self:
        """Have messages expire after so many milliseconds, 0: never; ValueError if negative (JMS 2.0 §3.4.9)."""
        self._producer.time_to_live = duration
        return self

    def set_delivery_delay(self, duration: int | timedelta) -> Self:
        """Have messages delivered so many milliseconds later. Errors as for ``MessageProducer.delivery_delay``."""
        self._producer.delivery_delay = duration
        return self

    def set_disable_message_id(self, value: bool) -> Self:
        """Send messages without an id, or with one (JMS 2.0 §3.4.3)."""
        self._producer.disable_message_id = value
        return self

    def set_disable_message_timestamp(self, value: bool) -> Self:
        """Send messages without a JMSTimestamp, or with one (JMS 2.0 §3.4.4)."""
        self._producer.disable_message_timestamp = value
        return self

    @property
    def delivery_mode(self) -> DeliveryMode:
        """What `set_delivery_mode` set; PERSISTENT unless it did."""
        return self._producer.delivery_mode

    @property
    def priority(self) -> int:
        """What `set_priority` set; 4 unless it did."""
        return self._producer.priority

    @property
    def time_to_live(self) -> int:
        """What `set_time_to_live` set, in milliseconds; 0 unless it did."""
        return self._producer.time_to_live

    @property
    def delivery_delay(self) -> int:
        """What `set_delivery_delay` set, in milliseconds; 0 unless it did."""
        return self._producer.delivery_delay

    @property
    def disable_message_id(self) -> bool:
        """What `set_disable_message_id` set; False unless it did."""
        return self._producer.disable_message_id

    @property
    def disable_message_timestamp(self) -> bool:
        """What `set_disable_message_timestamp` set; False unless it did."""
        return self._producer.disable_message_timestamp

    # Header fields; None is to leave those of the message as they are.

    def set_jms_correlation_id(self, value: str | None) -> Self:
        """Send messages with this JMSCorrelationID (JMS 2.0 §3.4.5); MessageFormatException if it is no str."""
        self._header.jms_correlation_id = value
        return self

    def set_jms_correlation_id_as_bytes(self, value: bytes | None) -> Self:
        """Send messages with this JMSCorrelationID (JMS 2.0 §3.4.5); MessageFormatException if it is not bytes."""
        self._header.jms_correlation_id_as_bytes = value
        return self

    def set_jms_type(self, value: str | None) -> Self:
        """Send messages with this JMSType (JMS 2.0 §3.4.8); MessageFormatException if it is no str."""
        self._header.jms_type = value
        return self

    def set_jms_reply_to(self, value: Destination | None) -> Self:
        """Send messages with this JMSReplyTo (JMS 2.0 §3.4.6); InvalidDestinationException if it is no destination."""
        self._header.jms_reply_to = value
        return self

    @property
    def jms_correlation_id(self) -> str | None:
        """The JMSCorrelationID that was set here; None: none was."""
        return self._header.jms_correlation_id

    @property
    def jms_correlation_id_as_bytes(self) -> bytes | None:
        """The JMSCorrelationID that was set here, as bytes; None: none was."""
        return self._header.jms_correlation_id_as_bytes

    @property
    def jms_type(self) -> str | None:
        """The JMSType that was set here; None: none was."""
        return self._header.jms_type

    @property
    def jms_reply_to(self) -> Destination | None:
        """The JMSReplyTo that was set here; None: none was."""
        return self._header.jms_reply_to

    # Properties. They are named, typed, converted and refused as those of messages are.

    def set_property(self, name: str, value: bool | int | float | str | None) -> Self:
        """Set the property *name* of each message that is sent, typed by its Python type.

        The other setters give it the type that they are named after. All raise what those of `kjms.Message` raise.

        Raises:
            MessageFormatException: The value has no JMS type, or the name is no identifier or reserved.
            ValueError: The name is None or empty.
        """
        return self.set_object_property(name, value)

    def set_object_property(self, name: str, value: bool | int | float | str | None) -> Self:
        """Do what `set_property` does."""
        self._header.set_object_property(name, value)
        return self

    def set_boolean_property(self, name: str, value: bool) -> Self:
        """Set a property to a boolean."""
        self._header.set_boolean_property(name, value)
        return self

    def set_byte_property(self, name: str, value: int) -> Self:
        """Set a property to a byte."""
        self._header.set_byte_property(name, value)
        return self

    def set_short_property(self, name: str, value: int) -> Self:
        """Set a property to a short."""
        self._header.set_short_property(name, value)
        return self

    def set_int_property(self, name: str, value: int) -> Self:
        """Set a property to an int."""
        self._header.set_int_property(name, value)
        return self

    def set_long_property(self, name: str, value: int) -> Self:
        """Set a property to a long."""
        self._header.set_long_property(name, value)
        return self

    def set_float_property(self, name: str, value: float) -> Self:
        """Set a property to a float."""
        self._header.set_float_property(name, value)
        return self

    def set_double_property(self, name: str, value: float) -> Self:
        """Set a property to a double."""
        self._header.set_double_property(name, value)
        return self

    def set_string_property(self, name: str, value: str | None) -> Self:
        """Set a property to a string."""
        self._header.set_string_property(name, value)
        return self

    def get_object_property(self, name: str) -> bool | int | float | str | None:
        """Return a property that was set here, in its own type; None where it has no value."""
        return self._header.get_object_property(name)

    def get_boolean_property(self, name: str) -> bool:
        """Return a property that was set here as a boolean. Errors as for `get_int_property`."""
        return self._header.get_boolean_property(name)

    def get_byte_property(self, name: str) -> int:
        """Return a property that was set here as a byte."""
        return self._header.get_byte_property(name)

    def get_short_property(self, name: str) -> int:
        """Return a property that was set here as a short."""
        return self._header.get_short_property(name)

    def get_int_property(self, name: str) -> int:
        """Return a property that was set here as an int.

        Raises:
            MessageFormatException: Its type cannot be read so, its text is no such number, or it has no value.
        """
        return self._header.get_int_property(name)

    def get_long_property(self, name: str) -> int:
        """Return a property that was set here as a long."""
        return self._header.get_long_property(name)

    def get_float_property(self, name: str) -> float:
        """Return a property that was set here as a float."""
        return self._header.get_float_property(name)

    def get_double_property(self, name: str) -> float:
        """Return a property that was set here as a double."""
        return self._header.get_double_property(name)

    def get_string_property(self, name: str) -> str | None:
        """Return a property that was set here as a string."""
        return self._header.get_string_property(name)

    def property_exists(self, name: str) -> bool:
        """Tell whether the property *name* was set here, be it to None."""
        return self._header.property_exists(name)

    def property_names(self) -> list[str]:
        """Return the names of the properties that were set here."""
        return self._header.property_names()

    def clear_properties(self) -> Self:
        """Forget the properties that were set here."""
        self._header.clear_properties()
        return self


class JMSProducer(ProducerSettings):
    """Sends messages, or bodies, to the destination that each send names; made by `kjms.JMSContext.create_producer`.

    What is set on it goes with every message that it sends, and overrides what the message has. Each setter returns the
    producer, so that calls can be chained. It costs next to nothing, and is not closed.

    Spec: JMS 2.0 §11.2.4.
    """

    def __init__(self, sender: SessionSender) -> None:
        super().__init__(sender)
        self._async: CompletionListener | None = None

    def send(self, destination: Destination, value: Any) -> Self:
        """Send *value* to *destination*, and return when a producer's send would; with `set_async`, at once.

        Args:
            destination: Where to.
            value: A message; or the body of one: a str is sent in a TextMessage, bytes in a BytesMessage, a dict in a
                MapMessage, None in a message without a body; a dataclass, a NamedTuple, and an object of attrs, msgspec
                or pydantic as JSON in a TextMessage (`kjms.TextMessage.set_body`), unless a codec is registered for it;
                anything else in an ObjectMessage; a dict that holds dicts or lists, too.

        Raises:
            InvalidDestinationException: *destination* is none, or Kafka has no such topic.
            MessageFormatException: No message can carry *value*.
            MessageNotWriteableException: Properties are set here, and those of the message are read-only.
            IllegalStateException: The context is closed, or another thread is using it.
            ResourceAllocationException: The message is too large, or the buffer stayed full.
            JMSException: Kafka did not confirm it within the send timeout.
            ValueError: A name in the dict is no name of a map entry.
        """
        message = self._message(value)
        self._producer.send(message, destination, completion_listener=self._async)
        return self

    def set_async(self, listener: CompletionListener | None) -> Self:
        """Send asynchronously and have *listener* called for each send; None: synchronously (JMS 2.0 §4.6.2).

        Raises:
            ValueError: *listener* has no ``on_completion``.
        """
        if listener is not None and not callable(getattr(listener, "on_completion", None)):
            raise ValueError(f"a completion listener has on_completion, and is not {shown(listener)}")
        self._async = listener
        return self

    @property
    def async_(self) -> CompletionListener | None:
        """What `set_async` set; None unless it did: the sends are synchronous."""
        return self._async
