"""Which messages are a consumer's own: what its connection, or one with its client identifier, sends to topics."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, cast

from kjms.mapping import client_sender, connection_sender
from kjms.selector import Selector
from kjms.selector.tree import BooleanLiteral

if TYPE_CHECKING:
    from kjms.message import Message
    from kjms.selector import SelectableMessage
    from kjms.selector._compile import Question

__all__ = ["NotLocal"]


class NotLocal(Selector):
    """A selector that wants no message of the consumer's own (JMS 2.0 §6.11.1).

    Args:
        selector: What it wants of the others; None is all.
        client_id: Its connection's client identifier: the messages of all connections that ever had it are its own.
        connection_id: The connection itself, which counts where there is no client identifier.
    """

    def __init__(self, selector: Selector | None, client_id: str | None, connection_id: str) -> None:
        if selector is None:
            super().__init__("", BooleanLiteral(True))
        else:
            super().__init__(selector.text, selector.tree)
        self._others = selector
        if client_id is not None:
            self._sender = client_sender(client_id)
            self._id_begins = ""
        else:
            self._sender = connection_sender(connection_id)
            self._id_begins = f"ID:{connection_id}-"

    @cached_property
    def matches(self) -> Question:
        """``matches(message)``: whether the selector is true for *message*, and another connection sent it."""
        if self._others is None:
            return lambda message: not self._is_own(message)
        others = self._others.matches
        return lambda message: others(message) and not self._is_own(message)

    def _is_own(self, selectable: SelectableMessage) -> bool:
        message = cast("Message", selectable)
        if self._id_begins and (message.jms_message_id or "").startswith(self._id_begins):
            return True
        reader = message._reader
        return reader is not None and reader.sender == self._sender

    __eq__ = object.__eq__
    __hash__ = object.__hash__
