"""The settings of a gateway: where it listens, which clients may come in, and how much one client may take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kjms.checking import checked
from kjms.users import is_loopback

__all__ = ["GatewayOptions"]


@checked
@dataclass(frozen=True)
class GatewayOptions:
    """The settings of a gateway."""

    host: str = "localhost"
    port: int = 5672
    """0 takes any free one."""
    anonymous: bool = False
    """Whether clients may come without a name."""
    users: Path | None = None
    """A file with names and hashed passwords (`kjms.gateway.hashed`)."""
    pass_credentials: bool = False
    """Whether names and passwords are passed to Kafka, so that its ACLs decide."""
    allow_cleartext_passwords: bool = False
    """Whether passwords may come over a network without TLS."""
    tls_certificate: Path | None = None
    """A file with the gateway's certificate, and those between it and its root; with it, clients have to use TLS."""
    tls_key: Path | None = None
    """The file with its key, where that is not in the same one."""
    tls_clients: Path | None = None
    """A file with the certificates that vouch for clients' own: a client with one comes in under its common name."""
    metrics_port: int | None = None
    """Where Prometheus may ask, at the same host; 0 takes any free one."""
    max_connections: int = 2000
    """Of clients that have logged in."""
    max_logins: int = 500
    """Clients that have connected and not logged in yet."""
    max_links: int = 1000
    """Of a connection, those included that were refused and that the client has not detached."""
    max_sessions: int = 255
    """Of a connection."""
    max_message_size: int = 16 << 20
    """In bytes."""
    max_transaction_size: int = 64 << 20
    """In bytes, of the messages that a client has sent in one transaction and not committed."""
    limits_releases: bool = True
    """Whether a message that a link releases as often as it may be delivered becomes a dead letter."""
    max_frame_size: int = 128 << 10
    """In bytes."""
    max_unsettled: int = 2000
    """Messages of a link that the client has not answered for."""
    credit: int = 500
    """Messages of a link that a client may send ahead."""
    idle_timeout: int = 60_000
    """Milliseconds without a frame after which a client counts as gone; 0: never."""
    handshake_timeout: int = 10_000
    """Milliseconds that a client has for TLS, to log in, and to open its connection. What the gateway needs to
    answer is not counted, such as waiting for the client id of a program that was killed."""
    drain_timeout: int = 10_000
    """Milliseconds that ending may take until clients are cut off."""

    def __post_init__(self) -> None:
        if not (self.anonymous or self.users or self.pass_credentials or self.tls_clients):
            raise ValueError(
                "every client would be refused: admit anonymous clients, give a file of users or of certificates, or"
                " pass credentials on to Kafka"
            )
        if self.tls_certificate is None and (self.tls_key or self.tls_clients):
            raise ValueError("TLS needs the gateway's own certificate")
        if self.users and self.pass_credentials:
            raise ValueError("check names and passwords against a file of users or against Kafka, not both")
        is_clear = self.tls_certificate is None and not self.allow_cleartext_passwords
        if is_clear and (self.users or self.pass_credentials) and not is_loopback(self.host):
            raise ValueError(
                f"clients would send passwords to {self.host!r} in clear text, which is not a loopback address: give a"
                " certificate (--tls-certificate), listen at localhost, or allow that (--allow-cleartext-passwords)"
            )
