"""The engine of a connection, for the packages of kjms that offer more of Kafka than JMS does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kjms.client.connection import Connection
    from kjms.engine import Engine

__all__ = ["engine_of"]


def engine_of(connection: Connection) -> Engine:
    """Return the engine that *connection* is a view of."""
    return connection._engine
