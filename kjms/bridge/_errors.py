"""The errors of the broker on the other side."""

from __future__ import annotations

from typing import Final

from kjms.errors import (
    InvalidDestinationException,
    JMSException,
    JMSSecurityException,
    ResourceAllocationException,
)

__all__ = ["LostError", "is_passing", "refusal"]

_KINDS: Final = {
    "amqp:not-found": InvalidDestinationException,
    "amqp:resource-deleted": InvalidDestinationException,
    "amqp:unauthorized-access": JMSSecurityException,
    "amqp:not-allowed": JMSSecurityException,
    "amqp:link:message-size-exceeded": ResourceAllocationException,
}
_PASSING: Final = frozenset(
    {
        "amqp:connection:forced",
        "amqp:internal-error",
        "amqp:resource-limit-exceeded",
        "amqp:resource-locked",
        "amqp:link:detach-forced",
        "amqp:session:unattached-handle",
        "proton:io",
    }
)


class LostError(Exception):
    """The connection to the broker ended; another one may do better."""


def is_passing(condition: str | None) -> bool:
    """Return whether the error that AMQP calls *condition* may be over at the next attempt."""
    return condition is None or condition in _PASSING


def refusal(doing: str, condition: str | None, description: str | None) -> JMSException:
    """Return the JMS exception for what a broker refused.

    >>> refusal("receive from 'orders'", "amqp:not-found", None)
    InvalidDestinationException("receive from 'orders': amqp:not-found")
    """
    kind = _KINDS.get(condition or "", JMSException)
    cause = f"{condition or 'it gives no reason'}{f': {description}' if description else ''}"
    return kind(f"{doing}: {cause}", condition)
