"""Which clients may come in: by a file of users, by their certificates, by Kafka's passwords, or anonymously."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kjms.gateway._logins import Logins
from kjms.users import Users

if TYPE_CHECKING:
    from kjms.gateway._options import GatewayOptions
    from kjms.gateway._sasl import Credentials

__all__ = ["Authenticator"]


HASHING_THREADS: Final = 2
KAFKA_THREADS: Final = 8  # they wait for Kafka most of the time


class Authenticator:
    """Checks the credentials of clients; used in the event loop's thread.

    Args:
        options: The gateway's.

    Attributes:
        logins: The clients that have not logged in.
        tls: For the gateway's sockets, when it listens by TLS.

    Raises:
        OSError: The file of users cannot be read.
        ValueError: Something in it is wrong.
    """

    def __init__(self, options: GatewayOptions) -> None:
        self._options = options
        self._users = None if options.users is None else Users(options.users)
        self.logins = Logins(options.max_logins, KAFKA_THREADS if options.pass_credentials else HASHING_THREADS)
        self.tls: ssl.SSLContext | None = None

    def load_certificates(self) -> None:
        """Read the gateway's certificate, and those that vouch for clients'.

        Raises:
            OSError: One cannot be read.
        """
        options = self._options
        if options.tls_certificate is None:
            return
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(options.tls_certificate, options.tls_key)
        if options.tls_clients is not None:
            context.load_verify_locations(options.tls_clients)
            others_may_come = options.anonymous or options.users is not None or options.pass_credentials
            context.verify_mode = ssl.CERT_OPTIONAL if others_may_come else ssl.CERT_REQUIRED
        self.tls = context

    def mechanisms(self, *, has_certificate: bool) -> list[str]:
        """Return the SASL mechanisms that are offered to a client.

        Args:
            has_certificate: Whether it has shown one that counts.
        """
        options = self._options
        allowed = {
            "EXTERNAL": has_certificate,
            "PLAIN": options.users is not None or options.pass_credentials,
            "ANONYMOUS": options.anonymous,
        }
        return [name for name, is_allowed in allowed.items() if is_allowed]

    async def accepts(self, credentials: Credentials, address: str, is_wanted: Callable[[], bool]) -> bool:
        """Return whether a client may come in; where Kafka checks passwords, any user may here.

        Raises:
            ResourceAllocationException: Too many checks of passwords wait, or the client is gone.
        """
        if credentials.mechanism == "ANONYMOUS":
            return self._options.anonymous
        if credentials.mechanism == "EXTERNAL":
            return credentials.user is not None
        if self._users is None:
            return self._options.pass_credentials and credentials.user is not None
        users, user, password = self._users, credentials.user or "", credentials.password or ""
        return await self.logins.check(address, lambda: users.accept(user, password), is_wanted)
