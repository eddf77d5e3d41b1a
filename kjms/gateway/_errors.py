"""What a JMS exception is called in AMQP.

Spec: AMQP 1.0, part 2, §2.8.15 to §2.8.18; part 4, §4.5.8.
"""

from __future__ import annotations

from typing import Final

from kjms.engine.kafka import IN_USE
from kjms.errors import (
    IllegalStateException,
    InvalidClientIDException,
    InvalidDestinationException,
    InvalidSelectorException,
    JMSException,
    JMSSecurityException,
    MessageFormatException,
    ResourceAllocationException,
    TransactionRolledBackException,
)

__all__ = ["DECODE_ERROR", "INVALID_FIELD", "LIMIT_EXCEEDED", "ConnectionFault", "LinkStolen", "condition_of"]

INVALID_FIELD: Final = "amqp:invalid-field"
DECODE_ERROR: Final = "amqp:decode-error"
LIMIT_EXCEEDED: Final = "amqp:resource-limit-exceeded"


class ConnectionFault(Exception):
    """What the client did ends its connection.

    Attributes:
        name: AMQP's name of the error.
    """

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


class LinkStolen(JMSException):
    """Another link of the same name has taken this one's place."""


_CONDITIONS: Final[tuple[tuple[type[JMSException], str], ...]] = (
    (LinkStolen, "amqp:link:stolen"),
    (InvalidDestinationException, "amqp:not-found"),
    (InvalidClientIDException, "amqp:not-allowed"),
    (InvalidSelectorException, INVALID_FIELD),
    (JMSSecurityException, "amqp:unauthorized-access"),
    (ResourceAllocationException, LIMIT_EXCEEDED),
    (MessageFormatException, DECODE_ERROR),
    (TransactionRolledBackException, "amqp:transaction:rollback"),
    (IllegalStateException, "amqp:resource-locked"),
)


def condition_of(failure: Exception) -> tuple[str, str]:
    """Return AMQP's name for *failure*, and its text."""
    for kind, name in _CONDITIONS:
        if isinstance(failure, kind):
            return name, str(failure)
    if isinstance(failure, JMSException):
        return ("amqp:resource-locked" if failure.error_code == IN_USE else "amqp:internal-error"), str(failure)
    return "amqp:internal-error", f"{type(failure).__name__}: {failure}"
