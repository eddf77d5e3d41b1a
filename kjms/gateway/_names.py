"""Names that several have: links that share one, of which the later has it, and client ids that connections share.

Spec: AMQP 1.0, part 2, §2.6.1 (naming a link); AMQP JMS mapping §8.1, §8.9.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

from kjms.client.engine_access import engine_of
from kjms.errors import IllegalStateException

if TYPE_CHECKING:
    from kjms import Connection

__all__ = ["ClientIds", "LinkNames"]

MOST_GLOBAL: Final = (
    10_000  # names that are remembered: some megabytes, also where each connection has its own container
)


class NamedLink(Protocol):
    """A link of a client, by whose name another connection may come again."""

    link_name: str
    name: Hashable
    """By which the gateway knows it, while it does."""

    @property
    def session(self) -> Hashable:
        """The session that it belongs to."""

    @property
    def is_leaving(self) -> bool:
        """Whether it is about to end."""

    def replaces(self, other: Any) -> bool:
        """Return whether this link, which comes again, may take the place of *other*, of the same name."""

    def named(self) -> None:
        """Continue with the attach: no other link has the name."""

    def steal(self, *, is_attached: bool) -> None:
        """End the link: another has its name."""


class LinkNames:
    """The links of a gateway by name; used in the event loop's thread.

    Of each name the first in line has it. A link that comes later waits until the one before is gone, and makes it go.
    """

    def __init__(self) -> None:
        self._lines: dict[Hashable, list[NamedLink]] = {}
        self._of_sessions: dict[Hashable, set[NamedLink]] = {}
        self._global: dict[Hashable, None] = {}  # the latest at the end

    def __repr__(self) -> str:
        return f"<LinkNames: {len(self._lines)} in use>"

    def enter(self, link: NamedLink, name: Hashable) -> None:
        """Give *link* its name: `NamedLink.named` is called when no other link has it any more.

        Raises:
            IllegalStateException: A link has it that wants something else, and is not about to end (mapping §8.9).
        """
        line = self._lines.setdefault(name, [])
        last = line[-1] if line else None
        if last is not None and not last.is_leaving and not link.replaces(last):
            raise IllegalStateException(f"link {link.link_name!r} exists already, with another source or target")
        line.append(link)
        link.name = name
        self._of_sessions.setdefault(link.session, set()).add(link)
        if last is None:
            link.named()
        elif not last.is_leaving:
            last.steal(is_attached=last is line[0])

    def attached_to_global(self, container: Hashable, subscription: str) -> None:
        """Note that a link of *container* was one of a durable global subscription (mapping §8.8)."""
        self._global.pop((container, subscription), None)
        self._global[container, subscription] = None
        if len(self._global) > MOST_GLOBAL:
            del self._global[next(iter(self._global))]

    def knows_global(self, container: Hashable, subscription: str) -> bool:
        """Return whether *container* had a link of the durable global subscription of that name."""
        return (container, subscription) in self._global

    def leave(self, link: NamedLink) -> None:
        """Give the name of *link* to the next in line; once is enough."""
        name, link.name = link.name, None
        if name is None:
            return
        named = self._of_sessions[link.session]
        named.discard(link)
        if not named:
            del self._of_sessions[link.session]
        line = self._lines[name]
        was_first = line[0] is link
        line.remove(link)
        if not line:
            del self._lines[name]
        elif was_first and not line[0].is_leaving:
            line[0].named()

    def leave_all(self, session: Hashable) -> None:
        """Give up the names of the links of a session, which has ended."""
        for link in list(self._of_sessions.get(session, ())):
            self.leave(link)


class ClientIds:
    """Client ids that several connections of one container have, none of which asks to be the only one; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sharing: dict[tuple[Any, str, str | None], _Sharing] = {}

    def need(self, connection: Connection, client_id: str) -> None:
        """Give *connection* a client id, if it has none.

        Raises:
            InvalidClientIDException: A connection has it that does not share it.
        """
        with self._of(connection, client_id) as sharing:
            if connection._client_id is not None:
                return
            other = next(iter(sharing.connections), None)
            if other is None:
                connection._claim_client_id(client_id)
            else:
                connection._client_claim = other._client_claim
            connection._client_id = client_id
            sharing.connections.add(connection)

    def leave(self, connection: Connection) -> None:
        """Leave the client id of *connection*, which is about to close, to those that share it."""
        if connection._client_id is not None:
            with self._of(connection, connection._client_id) as sharing:
                if connection in sharing.connections:
                    sharing.connections.remove(connection)
                    if sharing.connections:
                        connection._client_claim = None  # else its close would give up what others have

    @contextlib.contextmanager
    def _of(self, connection: Connection, client_id: str) -> Iterator[_Sharing]:
        name = (engine_of(connection), client_id, connection._owner)
        with self._lock:
            sharing = self._sharing.setdefault(name, _Sharing())
            sharing.visitors += 1
        try:
            with sharing.lock:  # a claim takes its time: others' names are not to wait for it
                yield sharing
        finally:
            with self._lock:
                sharing.visitors -= 1
                if not sharing.visitors and not sharing.connections:
                    del self._sharing[name]


class _Sharing:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.visitors = 0  # threads that look at it
        self.connections: set[Connection] = set()
