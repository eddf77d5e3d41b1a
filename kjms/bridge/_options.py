"""The settings of a bridge: the broker on the other side, which messages it moves, and how fast."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from kjms.checking import checked
from kjms.errors import shown
from kjms.selector import parse_selector

__all__ = ["BridgeOptions", "PeerOptions"]

_PORTS: Final = {"amqp": 5672, "amqps": 5671}
WINDOW: Final = 2_000


@checked
@dataclass(frozen=True)
class PeerOptions:
    """The broker on the other side.

    Raises:
        ValueError: The URL is none, or options contradict each other.
    """

    url: str
    """``amqp://HOST[:PORT]``, or ``amqps://`` for TLS; with ``NAME@`` before the host, or ``NAME:PASSWORD@``."""
    user: str | None = None
    """The bridge's name there (SASL PLAIN); None: the one in the URL, else none (SASL ANONYMOUS)."""
    password: str | None = field(default=None, repr=False)
    tls_ca: Path | None = None
    """A file with the certificates that vouch for the broker's; None: those of the system."""
    tls_certificate: Path | None = None
    """A file with the bridge's own certificate; without a user it is the bridge's login (SASL EXTERNAL)."""
    tls_key: Path | None = None
    """The file with its key, where that is not in the same one."""
    queue_prefix: str = ""
    """What the names of queues begin with there, and not in kjms."""
    topic_prefix: str = ""
    """What those of topics begin with."""
    connect_timeout: int = 10_000
    """Milliseconds that the first connection may take."""
    idle_timeout: int = 60_000
    """Milliseconds without a frame after which the broker counts as gone; 0: never."""
    max_frame_size: int = 128 << 10
    """In bytes."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in _PORTS or not parts.hostname or port == -1 or parts.path.strip("/") or parts.query:
            raise ValueError(
                f"{shown(self._place)} is not a URL of the form amqp://HOST:PORT, or amqps://HOST:PORT with TLS"
            )
        if not self.is_secure and (self.tls_ca or self.tls_certificate):
            raise ValueError(f"certificates are for amqps://, and not for {self._place}")
        if self.tls_key and not self.tls_certificate:
            raise ValueError("a key needs its certificate")

    def __repr__(self) -> str:
        return f"<PeerOptions {self._place}>"

    @property
    def _place(self) -> str:
        """The URL without the password."""
        before, at, after = self.url.rpartition("@")
        scheme, slashes, _ = before.partition("://")
        return f"{scheme}{slashes}{after}" if at else self.url

    @property
    def is_secure(self) -> bool:
        """Whether it is TLS that is spoken."""
        return urlsplit(self.url).scheme == "amqps"

    @property
    def host(self) -> str:
        """The broker's host."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """The broker's port."""
        parts = urlsplit(self.url)
        return parts.port or _PORTS[parts.scheme]

    @property
    def login(self) -> tuple[str, str] | None:
        """The name and password to log in with; None: none."""
        parts = urlsplit(self.url)
        user = self.user if self.user is not None else unquote(parts.username) if parts.username else None
        if user is None:
            return None
        return user, self.password if self.password is not None else unquote(parts.password or "")


@checked
@dataclass(frozen=True)
class BridgeOptions:
    """Which messages a bridge moves, how fast, and when it ends.

    Raises:
        ValueError: A value is out of its range.
        InvalidSelectorException: The selector's syntax is wrong.
    """

    name: str | None = None
    """What the bridge is called: its memory of what it moved, its subscription, and its mark in messages, which keeps
    them from coming back, belong to that name. None: ``HOST:PORT/NAME``, of the broker and of the destination here."""
    selector: str | None = None
    """Which messages it moves; None or "" is all. Of a queue, the others stay where they are."""
    rate: float | None = None
    """Messages in a second, at the most."""
    count: int | None = None
    """So many messages are moved, and no more."""
    idle: int | None = None
    """The bridge ends when no message has come for so many milliseconds; None: it does not end."""
    window: int = WINDOW
    """So many messages are on their way at a time."""
    keep_repeats: bool = False
    """Do not drop a message from the broker whose id was there already: for brokers where ids mean nothing."""

    def __post_init__(self) -> None:
        parse_selector(self.selector)
        for name, value in (("rate", self.rate), ("count", self.count), ("idle", self.idle), ("window", self.window)):
            if value is not None and not value > 0:
                raise ValueError(f"{name} is greater than 0, and not {shown(value)}")
        if self.name is not None and (not self.name or ";" in self.name or not self.name.isprintable()):
            raise ValueError(f"a bridge's name is text without ';', and not {shown(self.name)}")
