"""Tell of selectors that match nothing because messages have a number as a string."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from kjms.destinations import Destination
from kjms.message import Message
from kjms.selector import Selector

__all__ = ["SelectorHints"]

_log = logging.getLogger("kjms.consumer")

LOOKS: Final = 100  # enough to meet each kind of message that a program sends, and no cost for those that follow


class SelectorHints:
    """Looks at the first messages that match no selector of a destination's consumers.

    Args:
        destination: The destination.

    Attributes:
        left: At how many messages it is still to look.
    """

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self._told: set[Selector] = set()
        self.left = 0

    def renew(self, selector: object) -> None:
        """Look at the next messages, because a consumer with *selector* has come."""
        if isinstance(selector, Selector) and selector.numeric and selector not in self._told:
            self.left = LOOKS

    def look(self, message: Message, selectors: Iterable[object]) -> None:
        """Log, once for each of *selectors*, that *message* has as a string what the selector takes for a number."""
        self.left -= 1
        for selector in selectors:
            if isinstance(selector, Selector) and selector not in self._told:
                name = selector.number_as_text(message)
                if name is not None:
                    self._told.add(selector)
                    _log.warning(
                        "the selector %s on %s takes %s for a number, and messages have it as a string that holds one:"
                        " they do not match (JMS 2.0 §3.8.1.1); set the property as a number, or compare it with '...'",
                        selector,
                        self._destination,
                        name,
                    )
