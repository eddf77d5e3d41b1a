"""What a selector asks of a message: its header fields and properties, never its body."""

from __future__ import annotations

from typing import Protocol


class SelectableMessage(Protocol):
    """A message that selectors can be asked about (JMS 2.0 §3.8.1)."""

    def selector_value(self, name: str, /) -> bool | int | float | str | None:
        """Return the property or header field *name* as it was set, None if there is none or it is null.

        JMSDeliveryMode is 'PERSISTENT' or 'NON_PERSISTENT'.
        """

    def property_type(self, name: str, /) -> str | None:
        """Return the JMS type of the property *name*: boolean, byte, short, int, long, float, double or string.

        Asked only for numbers in arithmetic, in comparisons of two names, and in comparisons with a literal that not
        every float or double can hold.
        """
