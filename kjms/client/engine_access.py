"""A connection's engine and a factory's options, for the packages of kjms that offer more of Kafka than JMS does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kjms.errors import shown

if TYPE_CHECKING:
    from kjms.client.connection import Connection
    from kjms.client.connection_factory import FactorySettings
    from kjms.engine import Engine
    from kjms.options import FactoryOptions

__all__ = ["engine_of", "options_of"]


def engine_of(connection: Connection) -> Engine:
    """Return the engine that *connection* is a view of."""
    return connection._engine


def options_of(factory: FactorySettings) -> FactoryOptions:
    """Return the options that *factory* gives its connections.

    Raises:
        TypeError: *factory* is no ConnectionFactory.
    """
    from kjms.client.connection_factory import FactorySettings

    if not isinstance(factory, FactorySettings):
        raise TypeError(f"factory is a ConnectionFactory, not {shown(factory)}")
    return factory._options
