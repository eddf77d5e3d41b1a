"""One client's access to Kafka: its kjms connection, from its login or open to its close."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kjms.errors import JMSException, JMSSecurityException

if TYPE_CHECKING:
    from kjms import Connection, ConnectionFactory
    from kjms.client.brokered_session import BrokeredSession
    from kjms.gateway._authentication import Authenticator
    from kjms.gateway._client import ClientInfo
    from kjms.gateway._names import ClientIds
    from kjms.gateway._sasl import Credentials

__all__ = ["KafkaAccess", "KafkaLogin"]

_log = logging.getLogger("kjms.gateway")


class KafkaLogin:
    """How the gateway reaches Kafka, for all clients.

    Args:
        factory: Makes the connections.
        user: The gateway's own name, where clients are not to use theirs.
        password: The password for it.
        authenticator: Decides which clients may come in.
        client_ids: Those that connections share.
        passes_credentials: Whether Kafka checks the clients' passwords.
    """

    def __init__(
        self,
        factory: ConnectionFactory,
        user: str | None,
        password: str | None,
        authenticator: Authenticator,
        client_ids: ClientIds,
        *,
        passes_credentials: bool,
    ) -> None:
        self.connect = factory.create_connection
        self.user = user
        self.password = password
        self.authenticator = authenticator
        self.client_ids = client_ids
        self.passes_credentials = passes_credentials


class KafkaAccess:
    """The kjms connection of one client; used in the event loop's thread, which it never blocks.

    Args:
        client: The client.
        login: How Kafka is reached.
        is_wanted: Returns whether the client is still there.

    Attributes:
        connection: The kjms connection, while there is one.
    """

    def __init__(self, client: ClientInfo, login: KafkaLogin, is_wanted: Callable[[], bool]) -> None:
        self._client = client
        self._login = login
        self._is_wanted = is_wanted
        self.connection: Connection | None = None

    async def accepts(self, credentials: Credentials) -> bool:
        """Return whether a client may come in.

        Raises:
            JMSException: The check cannot be made now.
        """
        self._client.user = credentials.user
        login = self._login
        try:
            is_accepted = await login.authenticator.accepts(credentials, self._client.address, self._is_wanted)
            if is_accepted and login.passes_credentials and credentials.mechanism == "PLAIN":
                await self._connect(credentials)
        except JMSSecurityException:
            return False
        return is_accepted

    async def open(self, *, is_sole: bool) -> bool:
        """Have a started connection; return whether the client is still there to use it.

        Args:
            is_sole: Whether the connection is to be the only one of its container, which is its client id then.

        Raises:
            JMSException: The broker refuses it, or the client id is in use.
        """
        if self.connection is None:
            await self._connect(None)
        connection, container = self.connection, self._client.container
        if connection is None or not self._is_wanted():
            return False
        loop = asyncio.get_running_loop()
        if is_sole and container:
            await loop.run_in_executor(None, lambda: setattr(connection, "client_id", container))
        await loop.run_in_executor(None, connection.start)
        return True

    async def _connect(self, credentials: Credentials | None) -> None:
        """Connect to Kafka: by the gateway's name, or with the client's credentials."""
        login, loop = self._login, asyncio.get_running_loop()
        if credentials is None:
            connection = await loop.run_in_executor(None, lambda: login.connect(login.user, login.password))
        else:  # this is the check of a password
            user, password = credentials.user, credentials.password
            connection = await login.authenticator.logins.check(
                self._client.address, lambda: login.connect(user, password), self._is_wanted
            )
        if self._is_wanted():
            connection._owner = self._client.user or ""
            self.connection = connection
        else:
            await loop.run_in_executor(None, connection.close)

    def need_client_id(self, session: BrokeredSession) -> None:
        """Give a session's connection its container's id as client id; for the session's thread.

        Raises:
            InvalidClientIDException: Another connection has it, and wants to be the only one; or it belongs to
                another user.
        """
        self._login.client_ids.need(session._connection, self._client.container)

    async def close(self) -> None:
        """Close the connection, and leave its client id to those that share it."""
        connection, self.connection = self.connection, None
        if connection is not None:
            try:
                await asyncio.get_running_loop().run_in_executor(None, self._leave, connection)
            except JMSException as failure:
                _log.warning("connection %d: %s", self._client.number, failure)

    def _leave(self, connection: Connection) -> None:
        self._login.client_ids.leave(connection)
        connection.close()
