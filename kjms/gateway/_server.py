"""The gateway: it listens, lets clients in, and ends without losing what is under way."""

from __future__ import annotations

import asyncio
import uuid
from functools import partial

from kjms.checking import checked
from kjms.client.connection_factory import ConnectionFactory
from kjms.gateway._access import KafkaLogin
from kjms.gateway._authentication import Authenticator
from kjms.gateway._clients import Clients
from kjms.gateway._connection import AmqpConnection
from kjms.gateway._metrics import Metrics, serve_metrics
from kjms.gateway._names import ClientIds, LinkNames
from kjms.gateway._options import GatewayOptions
from kjms.gateway._pool import WorkerPool
from kjms.health import Unhealthy

__all__ = ["Gateway"]


class Gateway:
    """An AMQP 1.0 server whose queues and topics are those of kjms; used in one event loop.

    Several may serve the same Kafka side by side.

    Args:
        factory: Makes the connections to Kafka, one for each client.
        options: Where it listens, which clients may come in, and how much a client may take.
        user: The gateway's own name for Kafka, where clients are not to use theirs.
        password: The password for it.

    Raises:
        OSError: The file of users cannot be read.
        ValueError: Something in it is wrong.
    """

    @checked
    def __init__(
        self, factory: ConnectionFactory, options: GatewayOptions, user: str | None = None, password: str | None = None
    ) -> None:
        self.options = options
        self.name = f"kjms-gateway-{uuid.uuid4().hex[:8]}"
        self.metrics = Metrics()
        self._authenticator = Authenticator(options)
        self.clients = Clients(options, self.metrics, self._authenticator.logins)
        self._login = KafkaLogin(
            factory, user, password, self._authenticator, ClientIds(), passes_credentials=options.pass_credentials
        )
        self._server: asyncio.Server | None = None
        self._metrics_server: asyncio.Server | None = None

    def __repr__(self) -> str:
        return f"<Gateway {self.name}: {len(self.clients.connections)} connections>"

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
        self._authenticator.load_certificates()
        serve = partial(
            AmqpConnection,
            self.name,
            options,
            self.metrics,
            self._authenticator,
            self._login,
            self.clients,
            LinkNames(),
            WorkerPool(),
        )
        self._server = await loop.create_server(serve, options.host, options.port)
        if options.metrics_port is not None:
            self._metrics_server = await serve_metrics(self.metrics, options.host, options.metrics_port)

    def check_listening(self) -> str:
        """Return where clients can connect; a check of readiness (`kjms.health.Check`), for any thread.

        Raises:
            Unhealthy: The gateway has not begun to listen, or ends.
        """
        server = self._server
        if server is None or not server.is_serving():
            raise Unhealthy("the gateway accepts no clients: it starts or ends")
        return f"listening at {self.options.host}:{self.port}, {len(self.clients.connections)} clients"

    async def stop(self) -> None:
        """Listen no more, let what is under way come to its end, and close every connection."""
        for server in (self._server, self._metrics_server):
            if server is not None:
                server.close()
        await self.clients.stop()
