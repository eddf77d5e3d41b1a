"""The clients of a gateway: how many there are, those that are about to end, and the end of all of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol

from kjms.errors import ResourceAllocationException

if TYPE_CHECKING:
    from kjms.gateway._client import ClientInfo
    from kjms.gateway._logins import Logins
    from kjms.gateway._metrics import Metrics
    from kjms.gateway._options import GatewayOptions

__all__ = ["Clients"]

LINGER_SECONDS: Final = 5.0  # that a client has to take what was sent to it at the end

_log = logging.getLogger("kjms.gateway")


class ServedConnection(Protocol):
    """A client's connection."""

    client: ClientInfo
    closed: asyncio.Future[None]

    async def drain(self) -> None:
        """Let what is under way come to its end, and close the connection."""

    def abort(self) -> None:
        """Cut the client off."""

    def release(self) -> None:
        """Free the engine with all that it has."""


class Clients:
    """The connections of a gateway; used in the event loop's thread.

    Args:
        options: The gateway's.
        metrics: Its metrics.
        logins: Those that have not logged in.

    Attributes:
        connections: Those that are connected.
    """

    def __init__(self, options: GatewayOptions, metrics: Metrics, logins: Logins) -> None:
        self._options = options
        self._metrics = metrics
        self._logins = logins
        self.connections: set[ServedConnection] = set()
        self._logged_in: set[ServedConnection] = set()
        self._unreleased: set[ServedConnection] = set()  # whose engines are there; they may have ended
        self._ending: dict[str, ServedConnection] = {}  # by container: whose name is about to be free
        self._parting: set[asyncio.Transport] = set()  # of connections that have ended, until they are closed
        self._tasks: set[asyncio.Task[None]] = set()

    def enter(self, connection: ServedConnection) -> bool:
        """Count a client that has connected; return whether there is room for it."""
        if not self._logins.enter(connection):
            return False
        self.connections.add(connection)
        self._unreleased.add(connection)
        self._metrics.connections = len(self.connections)
        connection.closed.add_done_callback(lambda _: self._forget(connection))
        return True

    def logged_in(self, connection: ServedConnection) -> None:
        """Note that a client has logged in and opens its connection.

        Raises:
            ResourceAllocationException: As many as may be connected have done so before.
        """
        if len(self._logged_in) >= self._options.max_connections:
            raise ResourceAllocationException(
                f"{self._options.max_connections} connections are open, and no more are allowed (--max-connections)"
            )
        self._logins.leave(connection)
        self._logged_in.add(connection)

    def _forget(self, connection: ServedConnection) -> None:
        self._logins.leave(connection)
        self._logged_in.discard(connection)
        self.connections.discard(connection)
        self._metrics.connections = len(self.connections)
        if self._ending.get(connection.client.container) is connection:
            del self._ending[connection.client.container]

    def released(self, connection: ServedConnection) -> None:
        """Note that the engine of *connection* is free."""
        self._unreleased.discard(connection)

    def ending(self, connection: ServedConnection) -> None:
        """Note that *connection* ends; it has its container's name until it has ended."""
        if connection.client.container:
            self._ending[connection.client.container] = connection

    async def wait_for_ending(self, newcomer: ServedConnection) -> None:
        """Wait until a connection of that container has ended that is about to: its client may come again at once."""
        ending = self._ending.get(newcomer.client.container)
        if ending is not None and ending is not newcomer:
            await asyncio.wait([ending.closed], timeout=self._options.handshake_timeout / 1000)

    def part(self, transport: asyncio.Transport) -> None:
        """Close the *transport* of a connection that has ended, and cut it off if its client does not read the end."""
        self._parting.add(transport)
        transport.close()
        asyncio.get_running_loop().call_later(LINGER_SECONDS, self._cut_off, transport)

    def _cut_off(self, transport: asyncio.Transport) -> None:
        self._parting.discard(transport)
        transport.abort()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Have *work* for a client done beside everything else."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("serving a client failed", exc_info=task.exception())

    async def stop(self) -> None:
        """Let what is under way come to its end, and close every connection."""
        connections = list(self.connections)
        if connections:
            drains = [asyncio.ensure_future(connection.drain()) for connection in connections]
            _, late = await asyncio.wait(drains, timeout=self._options.drain_timeout / 1000)
            for connection in connections:
                connection.abort()
            for drain in late:
                drain.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._options.drain_timeout / 1000)
        for transport in list(self._parting):
            self._cut_off(transport)
        self._logins.close()
        await asyncio.sleep(0)  # `connection_lost` comes for those that were cut off
        for connection in list(self._unreleased):  # the loop may end now, and only its thread may free them
            connection.release()
