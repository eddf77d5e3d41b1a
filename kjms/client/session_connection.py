"""What a session uses of its connection, as a protocol: sessions do not import connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from kjms.client.ownership import Ownership
    from kjms.engine import ConsumerSlot, Engine
    from kjms.errors import JMSException
    from kjms.options import FactoryOptions

__all__ = ["SessionConnection"]


class SessionConnection(Protocol):
    """A connection, seen from its sessions."""

    _id: str
    _options: FactoryOptions
    _engine: Engine
    _ownership: Ownership
    _client_id: str | None
    _is_closing: bool

    @property
    def _senders(self) -> tuple[bytes | None, bytes | None]:
        """What is noted in messages to topics: in those with an id, which says the connection, and in the others."""

    def _needed_client_id(self, doing: str) -> str:
        """Return the client identifier, or raise IllegalStateException if there is none."""

    def _check_client_id(self) -> None:
        """Claim the client identifier again if others took it meanwhile."""

    def _tell(self, failure: JMSException) -> None:
        """Pass *failure* to the exception listener."""

    def _consumer_added(self, slot: ConsumerSlot) -> None:
        """Start the new consumer of *slot* if the connection is started."""

    def _session_closed(self, session: Any) -> None:
        """Remove *session*, which has closed."""
