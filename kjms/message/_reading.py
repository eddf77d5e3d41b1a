"""What a received message has not read of itself yet, and what reads it when asked."""

from __future__ import annotations

import enum
from typing import Any, Final, Protocol, TypeVar

from kjms.message._values import Value

__all__ = ["OWN_VALUE", "UNREAD", "Reader", "Receipt"]

M_contra = TypeVar("M_contra", contravariant=True)
"""A class of messages."""


class _Mark(enum.Enum):  # members stay themselves when a message is copied
    UNREAD = 1
    OWN_VALUE = 2


UNREAD: Final[Any] = _Mark.UNREAD
"""Stands in the slot of a header field, or of the body, that was not read yet."""

OWN_VALUE: Final = _Mark.OWN_VALUE
"""Stands for the value of a message whose body is not one that was received."""


class Receipt(Protocol):
    """What a session leaves on a message that it delivers."""

    def acknowledge(self) -> None:
        """Acknowledge what JMS says that ``Message.acknowledge`` acknowledges."""


class Reader(Protocol[M_contra]):
    """What reads, when asked, the parts of a received message that were not read yet."""

    @property
    def types(self) -> dict[str, str]:
        """The JMS types of those properties that are not strings."""

    @property
    def body_type(self) -> str:
        """The body's type on the wire, such as ``text``."""

    @property
    def sender(self) -> str | None:
        """The sender, where it is noted (`kjms.mapping.sign`)."""

    def read_field(self, message: M_contra, field: str) -> Any:
        """Return the value of the header field named *field*; never raises."""

    def read_property(self, message: M_contra, name: str, data: bytes) -> Value:
        """Return the value of a property, and keep it in the message; never raises."""

    def read_body(self, message: M_contra) -> Any:
        """Return the body, in the form in which the message's class keeps it.

        Raises:
            MessageFormatException: The record's value is not what the header says it is.
        """

    def find_damage(self, message: M_contra) -> tuple[str, ...]:
        """Return what of the message could not be read as it should, one sentence each."""
