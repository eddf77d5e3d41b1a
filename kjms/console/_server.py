"""Serve the console over HTTP, with one process that asks the cluster."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from kjms._require import required
from kjms.checking import checked
from kjms.child_process import Calls, ChildProcess, ThisProcess
from kjms.client.connection_factory import ConnectionFactory
from kjms.console._access import Access
from kjms.console._jobs import Audit
from kjms.console._operations import Operations
from kjms.console._options import ConsoleOptions
from kjms.console._security import Guard
from kjms.users import is_loopback

with required("kjms.console", "console"):
    import uvicorn
    from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

    from kjms.console._app import application

__all__ = ["Console"]

_log = logging.getLogger("kjms.console")

END_SECONDS: Final = 3  # for requests that run
MOST_REQUESTS: Final = 200  # at a time


class Console:
    """The web console of a cluster: an ASGI application, and a server for it.

    Args:
        factory: As the programs use it; see `kjms.admin.Admin`.
        options: Where it listens, which people may use it, and what they may do.
        in_child: Whether a child process asks the cluster: counting takes no time from this process then, and a child
            that ends is started again. *factory* must be one that can be pickled.
        user: The console's own name for SASL; None: the one in the factory's settings, if any.
        password: The password for it.

    Raises:
        ModuleNotFoundError: A package is missing: ``pip install 'kjms[console]'``.
        OSError: The file of users cannot be read, or the audit log cannot be written.
        ValueError: The file of users has an error.
    """

    @checked
    def __init__(
        self,
        factory: ConnectionFactory,
        options: ConsoleOptions | None = None,
        *,
        in_child: bool = True,
        user: str | None = None,
        password: str | None = None,
    ) -> None:
        self.options = options or ConsoleOptions()

        def calls(name: str | None, secret: str | None) -> Calls:
            made = partial(Operations, factory, name, secret)
            return ChildProcess(made, "kjms-console") if in_child else ThisProcess(made)

        self._access = Access(self.options, calls, (user, password))
        self._application = application(self.options, self._access, Audit(self.options.audit))
        hosts = {self.options.host, *self.options.hosts}
        guarded: Any = Guard(self._application, hosts, self.options.max_request_size)
        proxies = list(self.options.proxies)
        self.app: Any = ProxyHeadersMiddleware(guarded, trusted_hosts=proxies) if proxies else guarded
        """The ASGI application, for a server of your own; it needs the lifespan protocol."""
        self._server: uvicorn.Server | None = None
        self._port = 0

    def __repr__(self) -> str:
        return f"<Console at {self.url}>"

    @property
    def url(self) -> str:
        """Where it is reached."""
        host = f"[{self.options.host}]" if ":" in self.options.host else self.options.host
        return (
            f"{'http' if self.options.tls_certificate is None else 'https'}://{host}:{self._port or self.options.port}"
        )

    @property
    def link(self) -> str:
        """The address to open: with a secret, where it is the way to log in."""
        secret = self._access.link_secret
        return f"{self.url}/login?secret={secret}" if secret else self.url

    def check(self) -> str:
        """Return when messages were counted last; a check of readiness for `kjms.health`.

        Raises:
            Unhealthy: The cluster does not answer.
        """
        shared = self._access.shared
        return "each user asks the cluster" if shared is None else shared.check()

    def listen(self) -> socket.socket:
        """Return a socket at the address of the options.

        Raises:
            OSError: The port is in use, or the address is not one of this machine.
        """
        try:
            made = socket.create_server(
                (self.options.host, self.options.port),
                family=socket.AF_INET6 if ":" in self.options.host else socket.AF_INET,
                backlog=128,
            )
        except OSError as error:
            place = f"{self.options.host}:{self.options.port}"
            reason = os.strerror(error.errno) if error.errno else error  # Python's text names the place, too
            raise OSError(error.errno, f"the console cannot listen at {place}: {reason}") from error
        self._port = int(made.getsockname()[1])
        return made

    async def serve(self, listening: socket.socket | None = None) -> None:
        """Serve until `stop` is called.

        Args:
            listening: What `listen` has returned; None: it is called.

        Raises:
            OSError: The port is in use, or a file for TLS cannot be read.
        """
        options = self.options
        made = listening or self.listen()
        if options.anonymous and options.default_role != "view" and not is_loopback(options.host):
            _log.warning("everyone who reaches %s has the role %r, without a login", self.url, options.default_role)
        config = uvicorn.Config(
            self.app,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="on",
            limit_concurrency=MOST_REQUESTS,
            timeout_graceful_shutdown=END_SECONDS,
            ssl_certfile=None if options.tls_certificate is None else str(options.tls_certificate),
            ssl_keyfile=None if options.tls_key is None else str(options.tls_key),
        )
        self._server = _Server(config)
        await self._server.serve(sockets=[made])

    def stop(self) -> None:
        """End `serve`; from the thread of its event loop."""
        if self._server is not None:
            self._server.should_exit = True

    def run(self) -> None:
        """Serve in an event loop of its own, until it is cancelled."""
        asyncio.run(self.serve())


class _Server(uvicorn.Server):
    """Leaves signals to the program."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing with signals."""
        yield
