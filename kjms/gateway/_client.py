"""The client on the other side of a connection: its address, its names, and the log lines about it."""

from __future__ import annotations

import itertools
import logging

__all__ = ["ClientInfo"]

_log = logging.getLogger("kjms.gateway")
_numbers = itertools.count(1)


class ClientInfo:
    """A client, as far as the gateway knows it.

    Attributes:
        number: The connection's, in this process.
        address: The client's IP address.
        peer: Its address and port.
        user: The name that it logged in by.
        container: The name of its AMQP container.
        is_qpid_jms: Whether it is Apache Qpid JMS.
    """

    def __init__(self) -> None:
        self.number = next(_numbers)
        self.address = self.peer = "?"
        self.user: str | None = None
        self.container = ""
        self.is_qpid_jms = False

    def log(self, text: str, *values: object) -> None:
        """Log a line about this client."""
        _log.info("connection %d: " + text, self.number, *values)

    @property
    def subscriber(self) -> tuple[str | None, str | int]:
        """The owner of its subscriptions: the same for all connections of a container, if that has a name."""
        return self.user, self.container or self.number
