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

__all__ = ["LinkStolen", "condition_of"]


class LinkStolen(JMSException):
    """Another link of the same name has taken this one's place."""


_CONDITIONS: Final[tuple[tuple[type[JMSException], str], ...]] = (
    (LinkStolen, "amqp:link:stolen"),
    (InvalidDestinationException, "amqp:not-found"),
    (InvalidClientIDException, "amqp:not-allowed"),
    (InvalidSelectorException, "amqp:invalid-field"),
    (JMSSecurityException, "amqp:unauthorized-access"),
    (ResourceAllocationException, "amqp:resource-limit-exceeded"),
    (MessageFormatException, "amqp:decode-error"),
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
