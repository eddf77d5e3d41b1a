"""Refuse requests that browsers should not send, bound their size, and let browsers run the console's scripts alone."""

from __future__ import annotations

import ipaddress
import json
import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final
from urllib.parse import urlsplit

__all__ = ["Guard", "TooLarge"]

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = (
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), microphone=(), geolocation=()"),
)
NO_STORE: Final = ("cache-control", "no-store")
HSTS: Final = ("strict-transport-security", "max-age=31536000")


class Guard:
    """Passes requests to *app* that are for this console, of its own pages, and not too large.

    Another site may let its name point to this machine (DNS rebinding), so the host's name has to be known. An address
    cannot be such a name.

    Args:
        app: The application.
        hosts: The names of this console.
        most: The bytes of a request's body.
    """

    def __init__(self, app: App, hosts: Iterable[str], most: int) -> None:
        self._app = app
        own = socket.gethostname()
        self._hosts = {each.lower() for each in ("localhost", own, own.partition(".")[0], *hosts)}
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        is_static = scope["path"].startswith("/static/")
        more = [*HEADERS, ("cache-control", "max-age=3600") if is_static else NO_STORE]
        if scope.get("scheme") == "https":
            more.append(HSTS)

        async def sending(event: Event) -> None:
            if event["type"] == "http.response.start":
                event["headers"] = [*event.get("headers", ()), *((k.encode(), v.encode()) for k, v in more)]
            await send(event)

        refusal = self._refusal(scope["method"], headers)
        if refusal is not None:
            await _refuse(sending, *refusal, is_json=scope["path"].startswith("/api/"))
            return
        taken = 0

        async def receiving() -> Event:
            nonlocal taken
            event = await receive()
            taken += len(event.get("body", b""))
            if taken > self._most:  # it came in pieces, without a length
                raise TooLarge(f"the request has more than {self._most} bytes")
            return event

        await self._app(scope, receiving, sending)

    def _refusal(self, method: str, headers: dict[str, str]) -> tuple[int, str] | None:
        if not self._is_own(headers.get("host", "")):
            return 421, "this console is not reached under that name; `kjms console --host NAME` allows it"
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > len(str(self._most)) or int(length) > self._most:
            return 413, f"the request has more than {self._most} bytes"
        if method not in SAFE:
            site, origin = headers.get("sec-fetch-site"), headers.get("origin")
            if site not in {None, "same-origin", "none"}:
                return 403, "the request comes from another site"
            if origin is not None and origin.lower().partition("://")[2] != headers.get("host", "").lower():
                return 403, "the request comes from another site"
        return None

    def _is_own(self, host: str) -> bool:
        try:
            known = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:  # of brackets that do not match
            return False
        if known in self._hosts:
            return True
        try:
            ipaddress.ip_address(known)
        except ValueError:
            return False
        return True


class TooLarge(Exception):
    """The body of a request is too large."""


async def _refuse(send: Send, status: int, text: str, *, is_json: bool) -> None:
    body = (json.dumps({"error": text, "type": "Refused"}) if is_json else text).encode() + b"\n"
    kind = b"application/json" if is_json else b"text/plain; charset=utf-8"
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
