"""The gateway: it listens, lets clients in, and ends without losing what is under way."""

from __future__ import annotations

import asyncio
import logging
import ssl
import uuid
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kjms.errors import ResourceAllocationException
from kjms.gateway._connection import AmqpConnection
from kjms.gateway._logins import Logins
from kjms.gateway._metrics import Metrics, serve_metrics
from kjms.gateway._names import ClientIds, LinkNames
from kjms.gateway._options import GatewayOptions
from kjms.gateway._sasl import Credentials
from kjms.gateway._users import Users

if TYPE_CHECKING:
    from kjms import ConnectionFactory

__all__ = ["Gateway"]

T = TypeVar("T")

LINGER_SECONDS: Final = 5.0  # that a client has to take what was sent to it at the end
HASHING_THREADS: Final = 2
KAFKA_THREADS: Final = 8  # they wait for Kafka most of the time

_log = logging.getLogger("kjms.gateway")


class Gateway:
    """An AMQP 1.0 server whose queues and topics are those of kjms; used in one event loop.

    Several may serve the same Kafka side by side.

    Args:
        factory: Makes the connections to Kafka, one for each client.
        options: Where it listens, who may come in, and how much a client may take.
        user: The gateway's own name for Kafka, where clients are not to use theirs.
        password: The password for it.

    Raises:
        OSError: The file of users cannot be read.
        ValueError: Something in it is wrong.
    """

    def __init__(
        self, factory: ConnectionFactory, options: GatewayOptions, user: str | None = None, password: str | None = None
    ) -> None:
        self.factory = factory
        self.credentials = user, password
        self.options = options
        self.name = f"kjms-gateway-{uuid.uuid4().hex[:8]}"
        self._users = None if options.users is None else Users(options.users)
        self.metrics = Metrics()
        self.link_names = LinkNames()
        self.client_ids = ClientIds()
        self.logins = Logins(options.max_logins, KAFKA_THREADS if options.pass_credentials else HASHING_THREADS)
        self.tls: ssl.SSLContext | None = None
        self._server: asyncio.Server | None = None
        self._metrics_server: asyncio.Server | None = None
        self._connections: set[AmqpConnection] = set()
        self._logged_in: set[AmqpConnection] = set()
        self._unreleased: set[AmqpConnection] = set()  # whose engines are there; they may have ended
        self._ending: dict[str, AmqpConnection] = {}  # by container: whose name is about to be free
        self._parting: set[asyncio.Transport] = set()  # of connections that have ended, until they are closed
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Gateway {self.name}: {len(self._connections)} connections>"

    def mechanisms(self, *, has_certificate: bool) -> list[str]:
        """Return the SASL mechanisms that are offered to a client.

        Args:
            has_certificate: Whether it has shown one that counts.
        """
        options = self.options
        allowed = {
            "EXTERNAL": has_certificate,
            "PLAIN": options.users is not None or options.pass_credentials,
            "ANONYMOUS": options.anonymous,
        }
        return [name for name, is_allowed in allowed.items() if is_allowed]

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def metrics_port(self) -> int:
        """Where Prometheus may ask."""
        assert self._metrics_server is not None
        return int(self._metrics_server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Begin to listen.

        Raises:
            OSError: The port is in use, or may not be used; or a certificate cannot be read.
        """
        loop, options = asyncio.get_running_loop(), self.options
        self.tls = _tls(options)
        self._server = await loop.create_server(lambda: AmqpConnection(self), options.host, options.port)
        if options.metrics_port is not None:
            self._metrics_server = await serve_metrics(self.metrics, options.host, options.metrics_port)

    def enter(self, connection: AmqpConnection) -> bool:
        """Count a client that has connected; return whether there is room for it."""
        if not self.logins.enter(connection):
            return False
        self._connections.add(connection)
        self._unreleased.add(connection)
        self.metrics.connections = len(self._connections)
        connection.closed.add_done_callback(lambda _: self._forget(connection))
        return True

    def logged_in(self, connection: AmqpConnection) -> None:
        """Note that a client has logged in and opens its connection.

        Raises:
            ResourceAllocationException: As many as may be connected have done so before.
        """
        if len(self._logged_in) >= self.options.max_connections:
            raise ResourceAllocationException(
                f"{self.options.max_connections} connections are open, and no more are allowed (--max-connections)"
            )
        self.logins.leave(connection)
        self._logged_in.add(connection)

    def _forget(self, connection: AmqpConnection) -> None:
        self.logins.leave(connection)
        self._logged_in.discard(connection)
        self._connections.discard(connection)
        self.metrics.connections = len(self._connections)
        if self._ending.get(connection.container) is connection:
            del self._ending[connection.container]

    def released(self, connection: AmqpConnection) -> None:
        """Note that the engine of *connection* is free."""
        self._unreleased.discard(connection)

    def part(self, transport: asyncio.Transport) -> None:
        """Close the *transport* of a connection that has ended, and cut it off if its client does not read the end."""
        self._parting.add(transport)
        transport.close()
        asyncio.get_running_loop().call_later(LINGER_SECONDS, self._cut_off, transport)

    def _cut_off(self, transport: asyncio.Transport) -> None:
        self._parting.discard(transport)
        transport.abort()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Have *work* done beside everything else."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("serving a client failed", exc_info=task.exception())

    async def accepts(self, credentials: Credentials, connection: AmqpConnection) -> bool:
        """Return whether a client may come in; where Kafka checks passwords, any user may here.

        Raises:
            ResourceAllocationException: Too many checks of passwords wait, or the client is gone.
        """
        if credentials.mechanism == "ANONYMOUS":
            return self.options.anonymous
        if credentials.mechanism == "EXTERNAL":
            return credentials.user is not None
        if self._users is None:
            return self.options.pass_credentials and credentials.user is not None
        users, user, password = self._users, credentials.user or "", credentials.password or ""
        return await self.check(connection, lambda: users.accept(user, password))

    async def check(self, connection: AmqpConnection, check: Callable[[], T]) -> T:
        """Return what *check* of a client's password returns, when it is the turn of its address.

        Raises:
            ResourceAllocationException: Too many checks of passwords wait, or the client is gone.
        """
        return await self.logins.check(connection.address, check, lambda: not connection.is_ended)

    def ending(self, connection: AmqpConnection, container: str) -> None:
        """Note that *connection* ends; it has its container's name until it has ended."""
        if container:
            self._ending[container] = connection

    async def wait_for(self, newcomer: AmqpConnection, container: str) -> None:
        """Wait until a connection of that container has ended that is about to: its client may come again at once."""
        ending = self._ending.get(container)
        if ending is not None and ending is not newcomer:
            await asyncio.wait([ending.closed], timeout=self.options.handshake_timeout / 1000)

    async def stop(self) -> None:
        """Listen no more, let what is under way come to its end, and close every connection."""
        for server in (self._server, self._metrics_server):
            if server is not None:
                server.close()
        connections = list(self._connections)
        if connections:
            drains = [asyncio.ensure_future(connection.drain()) for connection in connections]
            _, late = await asyncio.wait(drains, timeout=self.options.drain_timeout / 1000)
            for connection in connections:
                connection.abort()
            for drain in late:
                drain.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self.options.drain_timeout / 1000)
        for transport in list(self._parting):
            self._cut_off(transport)
        self.logins.close()
        await asyncio.sleep(0)  # what was cut off hears of it
        for connection in list(self._unreleased):  # the loop may end now, and only its thread may free them
            connection.release()


def _tls(options: GatewayOptions) -> ssl.SSLContext | None:
    if options.tls_certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(options.tls_certificate, options.tls_key)
    if options.tls_clients is not None:
        context.load_verify_locations(options.tls_clients)
        others_may_come = options.anonymous or options.users is not None or options.pass_credentials
        context.verify_mode = ssl.CERT_OPTIONAL if others_may_come else ssl.CERT_REQUIRED
    return context
