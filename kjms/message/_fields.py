"""The header fields of JMS (JMS 2.0 §3.4): their slots, what selectors see of them, and checks of their values."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from kjms.destinations import Destination
from kjms.errors import InvalidDestinationException, MessageFormatException, shown
from kjms.message._property_names import DELIVERY_COUNT
from kjms.message._values import RANGES

__all__ = ["FIELDS", "SELECTED", "checked_destination", "checked_long", "checked_text", "correlation_bytes"]

_AMQP_BINARY: Final = "ID:AMQP_BINARY:"

FIELDS: Final = {
    "JMSMessageID": "_message_id",
    "JMSTimestamp": "_timestamp",
    "JMSCorrelationID": "_correlation_id",
    "JMSReplyTo": "_reply_to",
    "JMSDestination": "_destination",
    "JMSDeliveryMode": "_delivery_mode",
    "JMSType": "_type",
    "JMSExpiration": "_expiration",
    "JMSDeliveryTime": "_delivery_time",
    "JMSPriority": "_priority",
    "JMSRedelivered": "_redelivered",
}
"""The header fields of JMS 2.0 §3.4 and the slots that hold them."""

SELECTED: Final[dict[str, Any]] = {
    **dict.fromkeys(FIELDS, lambda message: None),
    "JMSDeliveryMode": lambda message: "NON_PERSISTENT" if message.jms_delivery_mode == 1 else "PERSISTENT",
    "JMSPriority": lambda message: message.jms_priority,
    "JMSMessageID": lambda message: message.jms_message_id,
    "JMSTimestamp": lambda message: message.jms_timestamp,
    "JMSCorrelationID": lambda message: message.jms_correlation_id,
    "JMSType": lambda message: message.jms_type,
    DELIVERY_COUNT: lambda message: message._property_value(DELIVERY_COUNT),
}
"""What a selector sees under the names of header fields, and of JMSXDeliveryCount (JMS 2.0 §3.8.1.1)."""


def checked_text(value: str | None, field: str) -> str | None:
    """Return *value*, or raise that the header field *field* takes no such thing."""
    if value is not None and not isinstance(value, str):
        raise MessageFormatException(f"{field} takes a str or None, not {shown(value)}")
    return value


def checked_long(value: int, field: str) -> int:
    """Return *value*, or raise that the header field *field* takes no such thing."""
    low, high = RANGES["long"]
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise MessageFormatException(f"{field} takes a whole number of 64 bits, not {shown(value)}")
    return int(value)


def checked_destination(value: Destination | None, field: str) -> Destination | None:
    """Return *value*, or raise that the header field *field* takes no such thing."""
    if value is not None and not isinstance(value, Destination):
        raise InvalidDestinationException(f"{field} takes a Queue, a Topic or None, not {shown(value)}")
    return value


def correlation_bytes(value: str) -> bytes:
    """Return the bytes that the correlation id *value* stands for (AMQP JMS mapping §3.2.1.1), or its UTF-8 form.

    Raises:
        MessageFormatException: It has no UTF-8 form.
    """
    if value.startswith(_AMQP_BINARY):
        with contextlib.suppress(ValueError):
            return bytes.fromhex(value[len(_AMQP_BINARY) :])
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise MessageFormatException(
            f"jms_correlation_id holds a lone surrogate (at index {error.start}), which UTF-8 cannot carry"
        ) from None
