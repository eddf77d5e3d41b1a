"""The settings of a console: where it listens, which people may use it, and what they may do."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal, TypeAlias

from kjms.checking import checked
from kjms.options import milliseconds
from kjms.users import is_loopback

__all__ = ["ConsoleOptions", "Role"]

Role: TypeAlias = Literal["view", "operate", "administer"]

LEAST_REQUEST: Final = 64 << 10


@checked
@dataclass(frozen=True)
class ConsoleOptions:
    """The settings of a console.

    Without *users*, *pass_credentials* and *anonymous*, a person logs in by a link with a secret, which `Console.link`
    returns and ``kjms console`` prints.

    Raises:
        ValueError: Two ways to log in exclude each other, TLS lacks its certificate, or passwords would cross a network
            in clear text.
    """

    host: str = "127.0.0.1"
    port: int = 8161
    """0 takes any free one."""
    users: Path | None = None
    """A file with names, hashed passwords and roles (`kjms.users`)."""
    pass_credentials: bool = False
    """Whether names and passwords are passed to Kafka, so that its ACLs decide."""
    anonymous: bool = False
    """Whether everyone is admitted without a login."""
    role: Role | None = None
    """What users may do to whom the users file gives no role. None: ``view``; with *pass_credentials*, and by the link,
    ``administer``."""
    hosts: tuple[str, ...] = ()
    """Names under which browsers reach the console, besides ``localhost``, the machine's own name, and addresses."""
    proxies: tuple[str, ...] = ()
    """The addresses or networks of proxies, whose ``X-Forwarded-For`` and ``X-Forwarded-Proto`` say where a request
    comes from, and whether by TLS. Others may say so in vain."""
    allow_cleartext_passwords: bool = False
    """Whether passwords may come over a network without TLS, as from a proxy that ends TLS."""
    tls_certificate: Path | None = None
    """A file with the console's certificate, and those between it and its root; with it, browsers have to use TLS."""
    tls_key: Path | None = None
    """The file with its key, where that is not in the same one."""
    audit: Path | None = None
    """A file to which each change is appended, as a line of JSON."""
    grafana: str | None = None
    """The URL of the Grafana dashboard of kjms; queues link to it with ``var-queue``."""
    interval: int | timedelta = 5_000
    """Milliseconds from one count of the cluster's messages to the next."""
    estimate: bool = False
    """Whether to read no messages for the figures: there are upper bounds then, and no depth or age."""
    max_request_size: int = 4 << 20
    """In bytes: the largest message that can be sent, and its form."""
    session_timeout: int | timedelta = 8 * 3_600_000
    """Milliseconds without a request after which a person has to log in again."""

    def __post_init__(self) -> None:
        if (self.users is not None) + self.pass_credentials + self.anonymous > 1:
            raise ValueError(
                "people log in by a file of users, with Kafka's passwords, or not at all: choose one of users,"
                " pass_credentials and anonymous"
            )
        if self.tls_certificate is None and self.tls_key is not None:
            raise ValueError("TLS needs the console's certificate, too")
        is_clear = self.tls_certificate is None and not self.allow_cleartext_passwords
        if is_clear and not self.anonymous and not is_loopback(self.host):
            raise ValueError(
                f"people would send passwords to {self.host!r} in clear text, which is not a loopback address: give a"
                " certificate (--tls-certificate), listen at 127.0.0.1, or allow that (--allow-cleartext-passwords)"
            )
        for each in self.proxies:
            try:
                ipaddress.ip_network(each)
            except ValueError as error:
                raise ValueError(f"a proxy is an IP address or network, not {each!r}: {error}") from None
        if self.max_request_size < LEAST_REQUEST:
            raise ValueError(f"max_request_size is at least {LEAST_REQUEST} bytes, not {self.max_request_size}")
        if self.grafana is not None and not self.grafana.startswith(("http://", "https://")):
            raise ValueError(f"grafana is a URL that begins with http:// or https://, not {self.grafana!r}")
        if min(milliseconds(self.interval, "interval"), milliseconds(self.session_timeout, "session_timeout")) <= 0:
            raise ValueError("interval and session_timeout must be positive")

    @property
    def default_role(self) -> str:
        """What users may do that have no role of their own."""
        if self.role is not None:
            return self.role
        return "view" if self.users is not None or self.anonymous else "administer"
