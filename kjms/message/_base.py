"""The root of all messages: header fields, properties, and what a received message has not yet read of itself.

A message that was received keeps its Kafka headers as they came, in the same dictionary that holds its properties: a
value that is ``bytes`` there has not been looked at (no property is of that type). Header fields and body are `UNREAD`
until they are read; then the message has its reader fill them.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from kjms.destinations import Destination
from kjms.errors import MessageFormatException, MessageNotWriteableException, shown
from kjms.message._fields import FIELDS, SELECTED, checked_destination, checked_long, checked_text, correlation_bytes
from kjms.message._property_names import DELIVERY_COUNT, check_name, good_names
from kjms.message._reading import OWN_VALUE, UNREAD, Reader, Receipt
from kjms.message._typed import body_as
from kjms.message._values import Value, checked, read_as, typed
from kjms.options import checked_delivery_mode

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Message", "PropertiesView"]

T = TypeVar("T")


class Message:
    """A message without a body, and the root of those that have one.

    Header fields can be read and set at any time; a send overwrites those that JMS has the provider set. The
    properties of a received message are read-only until `clear_properties`, its body until `clear_body`.

    Spec: JMS 2.0 §3.
    """

    __slots__ = (
        "_body_read_only",
        "_content",
        "_correlation_id",
        "_delivery_count",
        "_delivery_mode",
        "_delivery_time",
        "_destination",
        "_expiration",
        "_message_id",
        "_mixed",
        "_notes",
        "_priority",
        "_properties",
        "_properties_read_only",
        "_reader",
        "_receipt",
        "_redelivered",
        "_reply_to",
        "_timestamp",
        "_type",
        "_types",
        "_value",
    )

    DEFAULT_DELIVERY_MODE: Final = 2
    DEFAULT_PRIORITY: Final = 4
    DEFAULT_TIME_TO_LIVE: Final = 0
    DEFAULT_DELIVERY_DELAY: Final = 0

    _message_id: str | None
    _timestamp: int
    _correlation_id: str | bytes | None
    _reply_to: Destination | None
    _destination: Destination | None
    _delivery_mode: int
    _redelivered: bool | None  # None: the delivery count says it
    _type: str | None
    _expiration: int
    _delivery_time: int
    _priority: int
    _properties: dict[str, Value]  # bytes: not read yet
    _types: dict[str, str]  # of the properties that are not strings; of a received message shared, so never changed
    _mixed: bool  # whether _properties still holds header fields as well
    _value: Any  # the record's value as it came, or OWN_VALUE
    _content: Any  # the body, as each class keeps it
    _reader: Reader[Message] | None
    _notes: tuple[str, ...]  # damage found so far
    _receipt: Receipt | None
    _delivery_count: int

    def __init__(self) -> None:
        self._message_id = None
        self._timestamp = 0
        self._correlation_id = None
        self._reply_to = None
        self._destination = None
        self._delivery_mode = self.DEFAULT_DELIVERY_MODE
        self._redelivered = None
        self._type = None
        self._expiration = 0
        self._delivery_time = 0
        self._priority = self.DEFAULT_PRIORITY
        self._properties = {}
        self._types = {}
        self._properties_read_only = False
        self._mixed = False
        self._content = None
        self._body_read_only = False
        self._value = OWN_VALUE
        self._reader = None
        self._notes = ()
        self._receipt = None
        self._delivery_count = 0

    def _slot_values(self) -> dict[str, Any]:
        names = [name for kind in type(self).__mro__ for name in getattr(kind, "__slots__", ())]
        return {name: getattr(self, name) for name in names if hasattr(self, name)}

    def __getstate__(self) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        """Return what a pickled message, and a deep copy, has: all but what it is acknowledged by."""
        return getattr(self, "__dict__", None), self._slot_values() | {"_receipt": None}

    def __copy__(self) -> Self:
        """Return a message with the same contents, by which the same is acknowledged."""
        made = object.__new__(type(self))
        for name, value in (getattr(self, "__dict__", {}) | self._slot_values()).items():
            setattr(made, name, value)
        made._properties = dict(self._properties)  # each reads its own header fields from it
        return made

    def _read_field(self, field: str) -> Any:
        """Fill the slot of a header field of a received message at its first use."""
        value = self._reader.read_field(self, field)  # type: ignore[union-attr]
        setattr(self, FIELDS[field], value)
        return value

    def __repr__(self) -> str:
        parts = [type(self).__name__, self.jms_message_id or "without id"]
        if self._destination is not None:
            parts.append(f"to {self._destination}")
        if self._reader is not None:
            parts.append(f"received, delivery {self._delivery_count}")
        parts.append(f"{len(self.property_names())} properties")
        return f"<{', '.join(parts)}>"

    # ------------------------------------------------------------------------------------------- header fields

    @property
    def jms_message_id(self) -> str | None:
        """The provider's name for this message, beginning with ``ID:``; None where switched off (§3.4.3)."""
        value = self._message_id
        return value if value is not UNREAD else self._read_field("JMSMessageID")

    @jms_message_id.setter
    def jms_message_id(self, value: str | None) -> None:
        self._message_id = checked_text(value, "jms_message_id")

    @property
    def jms_timestamp(self) -> int:
        """When the message was handed over to be sent, in milliseconds since 1970 UTC, or 0 (§3.4.4)."""
        value = self._timestamp
        return value if value is not UNREAD else self._read_field("JMSTimestamp")

    @jms_timestamp.setter
    def jms_timestamp(self, value: int) -> None:
        self._timestamp = checked_long(value, "jms_timestamp")

    @property
    def jms_correlation_id(self) -> str | None:
        """What links this message with another: its message id, or the application's own string (§3.4.5).

        An id that was set as bytes reads as their UTF-8 text, with U+FFFD where they are none.
        """
        value = self._correlation_id
        if value is UNREAD:
            value = self._read_field("JMSCorrelationID")
        return value.decode(errors="replace") if isinstance(value, bytes) else value

    @jms_correlation_id.setter
    def jms_correlation_id(self, value: str | None) -> None:
        self._correlation_id = checked_text(value, "jms_correlation_id")

    @property
    def jms_correlation_id_as_bytes(self) -> bytes | None:
        """The correlation id as bytes (§3.4.5); one that was set as a string reads as its UTF-8 form.

        A string that stands for the binary id of an AMQP message, as in ``ID:AMQP_BINARY:0AFF``, reads as those bytes
        (AMQP JMS mapping §3.2.1.1).

        Raises:
            MessageFormatException: The string has no UTF-8 form; or, when it is set, the value is not bytes.
        """
        value = self._correlation_id
        if value is UNREAD:
            value = self._read_field("JMSCorrelationID")
        return correlation_bytes(value) if isinstance(value, str) else value

    @jms_correlation_id_as_bytes.setter
    def jms_correlation_id_as_bytes(self, value: bytes | None) -> None:
        if value is not None and not isinstance(value, bytes | bytearray | memoryview):
            raise MessageFormatException(f"jms_correlation_id_as_bytes takes bytes or None, not {shown(value)}")
        self._correlation_id = None if value is None else bytes(value)

    @property
    def jms_reply_to(self) -> Destination | None:
        """Where a reply should go; None where none is expected (§3.4.6)."""
        value = self._reply_to
        return value if value is not UNREAD else self._read_field("JMSReplyTo")

    @jms_reply_to.setter
    def jms_reply_to(self, value: Destination | None) -> None:
        self._reply_to = checked_destination(value, "jms_reply_to")

    @property
    def jms_destination(self) -> Destination | None:
        """Where the message was sent; None before (§3.4.1)."""
        return self._destination

    @jms_destination.setter
    def jms_destination(self, value: Destination | None) -> None:
        self._destination = checked_destination(value, "jms_destination")

    @property
    def jms_delivery_mode(self) -> int:
        """``DeliveryMode.PERSISTENT`` (2) or ``NON_PERSISTENT`` (1) (§3.4.2)."""
        value = self._delivery_mode
        return value if value is not UNREAD else self._read_field("JMSDeliveryMode")

    @jms_delivery_mode.setter
    def jms_delivery_mode(self, value: int) -> None:
        self._delivery_mode = int(checked_delivery_mode(value, "jms_delivery_mode"))

    @property
    def jms_redelivered(self) -> bool:
        """Whether the message was, in all likelihood, delivered before (§3.4.7)."""
        value = self._redelivered
        return self._delivery_count > 1 if value is None else value

    @jms_redelivered.setter
    def jms_redelivered(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise MessageFormatException(f"jms_redelivered is True or False, not {shown(value)}")
        self._redelivered = value

    @property
    def jms_type(self) -> str | None:
        """The application's name for what kind of message this is (§3.4.8)."""
        value = self._type
        return value if value is not UNREAD else self._read_field("JMSType")

    @jms_type.setter
    def jms_type(self, value: str | None) -> None:
        self._type = checked_text(value, "jms_type")

    @property
    def jms_expiration(self) -> int:
        """When the message expires, in milliseconds since 1970 UTC; 0 is never (§3.4.9)."""
        value = self._expiration
        return value if value is not UNREAD else self._read_field("JMSExpiration")

    @jms_expiration.setter
    def jms_expiration(self, value: int) -> None:
        self._expiration = checked_long(value, "jms_expiration")

    @property
    def jms_delivery_time(self) -> int:
        """The earliest time of delivery, in milliseconds since 1970 UTC (§3.4.13)."""
        value = self._delivery_time
        return value if value is not UNREAD else self._read_field("JMSDeliveryTime")

    @jms_delivery_time.setter
    def jms_delivery_time(self, value: int) -> None:
        self._delivery_time = checked_long(value, "jms_delivery_time")

    @property
    def jms_priority(self) -> int:
        """From 0, the lowest, to 9; 4 is the default (§3.4.10)."""
        value = self._priority
        return value if value is not UNREAD else self._read_field("JMSPriority")

    @jms_priority.setter
    def jms_priority(self, value: int) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 9:
            raise ValueError(f"jms_priority is a whole number from 0 to 9, not {shown(value)} (JMS 2.0 §3.4.10)")
        self._priority = int(value)

    def _stamp(
        self,
        message_id: str | None,
        timestamp: int,
        destination: Destination,
        delivery_mode: int,
        priority: int,
        expiration: int,
        delivery_time: int,
    ) -> None:
        """Set at once, and unchecked, the fields that a send sets (§3.4.11)."""
        self._message_id = message_id
        self._timestamp = timestamp
        self._destination = destination
        self._delivery_mode = delivery_mode
        self._priority = priority
        self._expiration = expiration
        self._delivery_time = delivery_time

    # ---------------------------------------------------------------------------------------------- properties

    def set_boolean_property(self, name: str, value: bool) -> None:
        """Set the property *name* to a boolean. Like all its kind it raises as `set_object_property` does."""
        self._set_property(name, "boolean", value if value.__class__ is bool else _property("boolean", value, name))

    def set_byte_property(self, name: str, value: int) -> None:
        """Set the property *name* to a byte: a whole number from -128 to 127."""
        self._set_property(name, "byte", _property("byte", value, name))

    def set_short_property(self, name: str, value: int) -> None:
        """Set the property *name* to a short: a whole number of 16 bits."""
        self._set_property(name, "short", _property("short", value, name))

    def set_int_property(self, name: str, value: int) -> None:
        """Set the property *name* to an int: a whole number of 32 bits."""
        if value.__class__ is not int or not -0x80000000 <= value <= 0x7FFFFFFF:
            value = _property("int", value, name)
        self._set_property(name, "int", value)

    def set_long_property(self, name: str, value: int) -> None:
        """Set the property *name* to a long: a whole number of 64 bits."""
        if value.__class__ is not int or not -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
            value = _property("long", value, name)
        self._set_property(name, "long", value)

    def set_float_property(self, name: str, value: float) -> None:
        """Set the property *name* to a float; the value is rounded to 32 bits."""
        self._set_property(name, "float", _property("float", value, name))

    def set_double_property(self, name: str, value: float) -> None:
        """Set the property *name* to a double."""
        self._set_property(name, "double", value if value.__class__ is float else _property("double", value, name))

    def set_string_property(self, name: str, value: str | None) -> None:
        """Set the property *name* to a string, or to None."""
        if value.__class__ is not str:
            value = _property("string", value, name)
        self._set_property(name, "string", value)

    def set_object_property(self, name: str, value: bool | int | float | str | None) -> None:
        """Set the property *name* to *value*, typed by its Python type: int is int or long, float is double.

        Raises:
            MessageFormatException: The value has no JMS type, or the name is no identifier or reserved.
            MessageNotWriteableException: The properties are read-only.
            ValueError: The name is None or empty.

        Spec: JMS 2.0 §3.5.5, §B.4.5.2.
        """
        kind, kept = typed(value, "property", name)
        if kind == "bytes":
            raise MessageFormatException(f"property {name!r} cannot hold a {type(value).__name__} (JMS 2.0 §3.5.2)")
        self._set_property(name, kind, kept)

    def _set_property(self, name: str, kind: str, value: Any) -> None:
        if self._properties_read_only:
            raise MessageNotWriteableException(
                f"property {name!r} cannot be set: a received message's properties are read-only until"
                " clear_properties() (JMS 2.0 §3.5.3)"
            )
        if name.__class__ is not str or name not in good_names:
            check_name(name, None if value is None else kind)
        self._properties[name] = value
        if kind != "string":
            self._types[name] = kind
        elif name in self._types:
            del self._types[name]

    def _set_provider_property(self, name: str, kind: str, value: Value) -> None:
        """Set a property that is the provider's to set (§3.5.9), on received messages, too."""
        self._settle()
        self._types = {**self._types, name: kind}
        if kind == "string":
            del self._types[name]
        self._properties[name] = value

    def get_boolean_property(self, name: str) -> bool:
        """Return the property *name* as a boolean; False where it has no value. Errors as `get_long_property`."""
        return self._property_as("boolean", name)  # type: ignore[no-any-return]

    def get_byte_property(self, name: str) -> int:
        """Return the property *name* as a byte."""
        return self._property_as("byte", name)  # type: ignore[no-any-return]

    def get_short_property(self, name: str) -> int:
        """Return the property *name* as a short."""
        return self._property_as("short", name)  # type: ignore[no-any-return]

    def get_int_property(self, name: str) -> int:
        """Return the property *name* as an int."""
        return self._property_as("int", name)  # type: ignore[no-any-return]

    def get_long_property(self, name: str) -> int:
        """Return the property *name* as a long.

        Raises:
            MessageFormatException: Its type cannot be read so, its text is no such number, or it has no value.

        Spec: JMS 2.0 §3.5.4 (conversions), §3.5.8 (properties that do not exist).
        """
        return self._property_as("long", name)  # type: ignore[no-any-return]

    def get_float_property(self, name: str) -> float:
        """Return the property *name* as a float."""
        return self._property_as("float", name)  # type: ignore[no-any-return]

    def get_double_property(self, name: str) -> float:
        """Return the property *name* as a double."""
        return self._property_as("double", name)  # type: ignore[no-any-return]

    def get_string_property(self, name: str) -> str | None:
        """Return the property *name* as a string, written as Java writes it; None where it has no value."""
        return self._property_as("string", name)  # type: ignore[no-any-return]

    def get_object_property(self, name: str) -> bool | int | float | str | None:
        """Return the property *name* in its own type; None where it has no value (§3.5.5)."""
        return self._property_value(name)

    def _property_as(self, wanted: str, name: str) -> Any:
        value: Value = self._property_value(name) if name in SELECTED else self._properties.get(name)
        if value.__class__ is bytes:
            value = self._reader.read_property(self, name, value)  # type: ignore[union-attr]
        if value.__class__ is str:
            kind = "string"
        else:
            kind = self._types.get(name) or ("int" if name == DELIVERY_COUNT else "string")
        return value if kind == wanted and value is not None else read_as(wanted, kind, value, "property", name)

    def _property_value(self, name: str) -> bool | int | float | str | None:
        if self._mixed and name in FIELDS:
            return None
        if name == DELIVERY_COUNT and self._properties_read_only:
            return self._delivery_count
        value = self._properties.get(name)
        if value.__class__ is bytes:
            value = self._reader.read_property(self, name, value)  # type: ignore[union-attr]
        return value  # type: ignore[return-value]

    def property_exists(self, name: str) -> bool:
        """Tell whether the property *name* is set, be it to None (§3.5)."""
        if self._mixed and name in FIELDS:
            return False
        return name in self._properties or (name == DELIVERY_COUNT and self._properties_read_only)

    def property_names(self) -> list[str]:
        """Return the names of the properties, in no defined order; header fields are none of them (§3.5.6)."""
        self._settle()
        names = list(self._properties)
        if self._properties_read_only and DELIVERY_COUNT not in self._properties:
            names.append(DELIVERY_COUNT)
        return names

    def clear_properties(self) -> None:
        """Delete all properties; new ones can be set then, on a received message, too (§3.5.7)."""
        self._settle()
        self._properties = {}
        self._types = {}
        self._properties_read_only = False

    @property
    def properties(self) -> PropertiesView:
        """The properties as a mutable mapping from names to plain Python values."""
        return PropertiesView(self)

    def property_type(self, name: str) -> str | None:
        """Return ``boolean byte short int long float double`` or ``string``; None where there is no such property."""
        if not self.property_exists(name):
            return None
        self._property_value(name)  # what cannot be read as the type it has on the wire is a string
        return self._types.get(name) or ("int" if name == DELIVERY_COUNT else "string")

    def selector_value(self, name: str) -> bool | int | float | str | None:
        """Return what a selector sees under *name*: one of the six header fields it may use, or a property's value.

        None stands for null and for what is missing. Nothing else of the message is read.

        Spec: JMS 2.0 §3.8.1.1.
        """
        if name in SELECTED:
            return SELECTED[name](self)  # type: ignore[no-any-return]
        value = self._properties.get(name)
        if value.__class__ is bytes:
            return self._reader.read_property(self, name, value)  # type: ignore
        return value  # type: ignore[return-value]

    def _settle(self) -> None:
        """Read every header field into its slot, so that `_properties` holds properties alone."""
        if self._mixed:
            for field, slot in FIELDS.items():
                if getattr(self, slot) is UNREAD:
                    self._read_field(field)
                self._properties.pop(field, None)
            self._mixed = False

    # ---------------------------------------------------------------------------------------------------- body

    def clear_body(self) -> None:
        """Empty the body, as a newly created message has it, and make it writable; properties stay (§3.11.1)."""
        self._content = self._empty_body()
        self._body_read_only = False
        self._value = OWN_VALUE

    def _empty_body(self) -> Any:
        return None

    @property
    def _body(self) -> Any:
        return self._read_body() if self._content is UNREAD else self._content

    def _read_body(self) -> Any:
        self._content = self._reader.read_body(self)  # type: ignore[union-attr]
        return self._content

    @overload
    def get_body(self, type_: type[T]) -> T | None: ...
    @overload
    def get_body(self, type_: object) -> Any: ...
    def get_body(self, type_: Any) -> Any:
        """Return the body as a *type_*; None where the message has none.

        A TextMessage gives ``str``, a BytesMessage ``bytes``, a MapMessage a ``dict``, an ObjectMessage its object;
        ``object`` fits them all.

        A dataclass, a TypedDict, a NamedTuple, a class of attrs, msgspec or pydantic, and what is made of them, such as
        ``list[Order]`` or a union, is made of the JSON in a TextMessage or a BytesMessage, of the entries of a
        MapMessage, and of a plain object; so are datetime, date, time, timedelta, Decimal, UUID and enums.

        Raises:
            BodyConversionException: The body does not become a *type_*. It is a MessageFormatException.
            MessageFormatException: The body is of another type, or the message is a StreamMessage.
            TypeError: *type_* is no type, or holds one that no body can become.

        Spec: JMS 2.0 §B.5.14.
        """
        body = self._python_body()
        return body if body is None or body.__class__ is type_ else body_as(type_, body, self)

    def is_body_assignable_to(self, type_: object) -> bool:
        """Tell whether `get_body` with this type returns the body; a message without one fits any (§B.5.14)."""
        try:
            self.get_body(type_)
        except MessageFormatException:
            return False
        return True

    def _python_body(self) -> Any:
        return None

    def _check_body_writable(self) -> None:
        if self._body_read_only:
            raise MessageNotWriteableException(
                f"the body of this {type(self).__name__} is read-only until clear_body() (JMS 2.0 §3.11.2)"
            )

    # ------------------------------------------------------------------------------------------------ received

    def acknowledge(self) -> None:
        """Acknowledge the messages of the session that delivered this one; does nothing where it does so itself (§3.6).

        Raises:
            IllegalStateException: The session is closed.
        """
        if self._receipt is not None:
            self._receipt.acknowledge()

    @property
    def damage(self) -> tuple[str, ...]:
        """What of a received message could not be read as it should, one sentence each; reads all of the message.

        What is damaged reads as if it had its default, or, a property, as its text.
        """
        return () if self._reader is None else self._reader.find_damage(self)


class PropertiesView(MutableMapping[str, "bool | int | float | str | None"]):
    """A message's properties in plain Python types; what is set through it is typed as by `set_object_property`."""

    __slots__ = ("_message",)

    def __init__(self, message: Message) -> None:
        self._message = message

    def __getitem__(self, name: str) -> bool | int | float | str | None:
        message = self._message
        value = message._properties.get(name)
        if value.__class__ is bytes and name not in FIELDS:  # the common case of a received message
            return message._reader.read_property(message, name, value)  # type: ignore
        value = message._property_value(name)
        if value is None and not message.property_exists(name):
            raise KeyError(name)
        return value

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._message.property_exists(name)

    def __setitem__(self, name: str, value: bool | int | float | str | None) -> None:
        self._message.set_object_property(name, value)

    def __delitem__(self, name: str) -> None:
        message = self._message
        if message._properties_read_only:
            raise MessageNotWriteableException(f"property {name!r} of a received message is read-only (JMS 2.0 §3.5.3)")
        del message._properties[name]
        message._types.pop(name, None)

    def clear(self) -> None:
        """Delete all properties, as `Message.clear_properties` does."""
        self._message.clear_properties()

    def __iter__(self) -> Iterator[str]:
        return iter(self._message.property_names())

    def __len__(self) -> int:
        return len(self._message.property_names())

    def __repr__(self) -> str:
        return f"<properties {', '.join(self)}>"


def _property(kind: str, value: object, name: str) -> Any:
    return checked(kind, value, "property", name)
