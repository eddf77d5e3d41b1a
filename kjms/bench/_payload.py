"""The message that every workload sends: 256 bytes of text and four properties."""

from __future__ import annotations

from typing import Final

from kjms import TextMessage

__all__ = ["AMOUNT", "PRICE", "REGION", "TEXT", "URGENT", "text_message"]

TEXT: Final = "The quick brown fox jumps over the lazy dog 0123456789 ".ljust(64, ".") * 4
REGION: Final = "EU"
AMOUNT: Final = 100
PRICE: Final = 12.5
URGENT: Final = True


def text_message() -> TextMessage:
    """Return a new message with the text and the properties, made as an application makes it."""
    message = TextMessage(TEXT)
    message.set_string_property("region", REGION)
    message.set_int_property("amount", AMOUNT)
    message.set_double_property("price", PRICE)
    message.set_boolean_property("urgent", URGENT)
    return message
