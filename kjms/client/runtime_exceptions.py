"""The simplified API's names for the exceptions: the same classes, since Python has no checked exceptions.

Spec: JMS 2.0 §11.2.9.
"""

from __future__ import annotations

from kjms.errors import (
    IllegalStateException,
    InvalidClientIDException,
    InvalidDestinationException,
    InvalidSelectorException,
    JMSSecurityException,
    MessageFormatException,
    MessageNotWriteableException,
    ResourceAllocationException,
    TransactionInProgressException,
    TransactionRolledBackException,
)

__all__ = [
    "IllegalStateRuntimeException",
    "InvalidClientIDRuntimeException",
    "InvalidDestinationRuntimeException",
    "InvalidSelectorRuntimeException",
    "JMSSecurityRuntimeException",
    "MessageFormatRuntimeException",
    "MessageNotWriteableRuntimeException",
    "ResourceAllocationRuntimeException",
    "TransactionInProgressRuntimeException",
    "TransactionRolledBackRuntimeException",
]

IllegalStateRuntimeException = IllegalStateException
InvalidClientIDRuntimeException = InvalidClientIDException
InvalidDestinationRuntimeException = InvalidDestinationException
InvalidSelectorRuntimeException = InvalidSelectorException
JMSSecurityRuntimeException = JMSSecurityException
MessageFormatRuntimeException = MessageFormatException
MessageNotWriteableRuntimeException = MessageNotWriteableException
ResourceAllocationRuntimeException = ResourceAllocationException
TransactionInProgressRuntimeException = TransactionInProgressException
TransactionRolledBackRuntimeException = TransactionRolledBackException
