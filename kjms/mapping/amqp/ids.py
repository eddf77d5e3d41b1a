"""Message and correlation ids: AMQP's four types of them, and JMS's one string that keeps the type. Pure.

    AMQP                                    JMSMessageID                        JMSCorrelationID
    string "ID:abc"                         ID:abc                              the same
    string "abc"                            ID:AMQP_NO_PREFIX:abc               abc
    uuid, ulong 42, binary 0xABCDEF         ID:AMQP_UUID:…, ID:AMQP_ULONG:42,   the same
                                            ID:AMQP_BINARY:ABCDEF
    string "ID:AMQP_ULONG:42"               ID:AMQP_STRING:ID:AMQP_ULONG:42     the same

Spec: AMQP JMS mapping §3.2.1.1.
"""

from __future__ import annotations

import re
import uuid
from typing import Any, Final

from kjms.errors import MessageFormatException, shown
from kjms.mapping.amqp.types import ULong

__all__ = ["amqp_id", "correlation_id_text", "message_id_text"]

ID: Final = "ID:"
BINARY: Final = "ID:AMQP_BINARY:"
UUID: Final = "ID:AMQP_UUID:"
ULONG: Final = "ID:AMQP_ULONG:"
NO_PREFIX: Final = "ID:AMQP_NO_PREFIX:"
STRING: Final = "ID:AMQP_STRING:"
_ESCAPES: Final = (BINARY, UUID, ULONG, NO_PREFIX, STRING)

_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2})*")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,19}")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def message_id_text(value: Any) -> str | None:
    """Return the JMSMessageID that stands for the message-id *value*.

    Raises:
        MessageFormatException: No id is of that type.

    >>> message_id_text("abc"), message_id_text(ULong(42))
    ('ID:AMQP_NO_PREFIX:abc', 'ID:AMQP_ULONG:42')
    """
    if isinstance(value, str) and not value.startswith(ID):
        return NO_PREFIX + str(value)
    return correlation_id_text(value)


def correlation_id_text(value: Any) -> str | None:
    """Return the JMSCorrelationID that stands for the correlation-id *value*.

    Raises:
        MessageFormatException: No id is of that type.

    >>> correlation_id_text("abc"), correlation_id_text(bytes.fromhex("abcdef"))
    ('abc', 'ID:AMQP_BINARY:ABCDEF')
    """
    kind = value.__class__
    if kind is str:
        text = str(value)
        return STRING + text if text.startswith(_ESCAPES) else text
    if value is None:
        return None
    if kind is bytes:
        return BINARY + str(value.hex()).upper()
    if kind is uuid.UUID:
        return UUID + str(value)
    if kind is ULong:
        return ULONG + str(int(value))
    raise MessageFormatException(f"an id is a string, uuid, ulong or binary, and no {kind.__name__} (mapping §3.2.1.1)")


def amqp_id(text: str | None) -> str | bytes | uuid.UUID | ULong | None:
    r"""Return the id that the JMSMessageID or JMSCorrelationID *text* stands for, in the type that it says.

    Raises:
        MessageFormatException: It says binary, uuid or ulong, and is none.

    >>> amqp_id("ID:AMQP_ULONG:42"), amqp_id("ID:abc"), amqp_id("ID:AMQP_BINARY:abCD")
    (42, 'ID:abc', b'\xab\xcd')
    """
    if text is None or not text.startswith(_ESCAPES):
        return text
    if text.startswith(NO_PREFIX):
        return text[len(NO_PREFIX) :]
    if text.startswith(STRING):
        return text[len(STRING) :]
    prefix = next(each for each in (BINARY, UUID, ULONG) if text.startswith(each))
    rest = text[len(prefix) :]
    if prefix == BINARY and _HEX.fullmatch(rest):
        return bytes.fromhex(rest)
    if prefix == UUID and _UUID.fullmatch(rest):
        return uuid.UUID(rest)
    if prefix == ULONG and _NUMBER.fullmatch(rest) and int(rest) < 1 << 64:
        return ULong(int(rest))
    raise MessageFormatException(
        f"{shown(text)} says that it is an id of AMQP type {prefix[8:-1].lower()}, and is none (mapping §3.2.1.1)"
    )
