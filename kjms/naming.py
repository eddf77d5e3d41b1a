"""Finding connection factories and destinations by name, the way of WebLogic's .NET client (``docs/naming.md``).

A naming context reads its names from a file when it is made; looking one up sends no request. It is the one network
connection, with one credential, that everything has in common which is made by way of it.
"""

from __future__ import annotations

import enum
import inspect
import os
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from kjms.client.closing import AutoCloseable
from kjms.client.config import configuration
from kjms.client.connection import Connection
from kjms.client.connection_factory import ConnectionFactory
from kjms.destinations import Destination, DestinationType
from kjms.errors import IllegalStateException, JMSException, hint, shown

if TYPE_CHECKING:
    from kjms.options import FactoryOptions

__all__ = ["Context", "ContextFactory", "ContextKey", "DestinationType", "NameNotFoundException"]

T = TypeVar("T", ConnectionFactory, Destination)

DEFAULT_CONFIG: Final = Path("kjms.toml")
SEPARATOR: Final = "/"  # between the parts of a name


class ContextKey(str, enum.Enum):
    """The keys that `ContextFactory.create_context` knows.

    A member is the text itself: ``{ContextKey.USER: "ann"}`` is ``{"user": "ann"}``.
    """

    CONFIG = "config"
    """The path of the file; else ``KJMS_CONFIG``, else ``kjms.toml`` in the working directory, where there is one."""
    BOOTSTRAP_SERVERS = "bootstrap_servers"
    """Kafka's addresses; else ``KJMS_BOOTSTRAP``, else what the file says."""
    USER = "user"
    """The name for SASL; else ``KJMS_USER``, else the one in the file's table ``kafka``, if any."""
    PASSWORD = "password"  # noqa: S105 - the key's name
    """The password for it; else ``KJMS_PASSWORD``."""


_VARIABLES: Final = {  # KJMS_BOOTSTRAP is among those that win over the file's settings
    ContextKey.CONFIG: "KJMS_CONFIG",
    ContextKey.USER: "KJMS_USER",
    ContextKey.PASSWORD: "KJMS_PASSWORD",
}


class NameNotFoundException(JMSException, LookupError):
    """A naming context does not have the name, or it names something of another kind."""


class ContextFactory:
    """Makes naming contexts; can be used by any number of threads."""

    def create_context(self, environment: Mapping[str, str] | None = None) -> Context:
        """Return a new naming context, after a broker has answered.

        Args:
            environment: Parameters by the keys of `ContextKey`; what is left out comes from the process's environment
                or the file, as it says there.

        Raises:
            JMSSecurityException: The broker refused the credentials.
            JMSException: No broker answered within the send timeout.
            OSError: The file cannot be read.
            ValueError: There is no such key, or something in the file is wrong; the text says where.
        """
        parameters = _parameters(environment or {})
        path = parameters.get(ContextKey.CONFIG)
        if path is None and DEFAULT_CONFIG.exists():
            path = str(DEFAULT_CONFIG)
        found = configuration(Path(path) if path is not None else None, inspect.signature(ConnectionFactory).parameters)
        servers = parameters.get(ContextKey.BOOTSTRAP_SERVERS)
        chosen = {} if servers is None else {"bootstrap_servers": servers}
        home = _Home(
            ConnectionFactory(**{**found.settings, **chosen})._options,
            parameters.get(ContextKey.USER),
            parameters.get(ContextKey.PASSWORD),
        )
        entries: dict[str, ConnectionFactory | Destination] = dict(found.destinations)
        for name, settings in found.factories.items():
            _check_name(name, path)
            if name in entries:
                raise ValueError(f"{path}: {name!r} names a connection factory and a destination")
            try:
                entries[name] = NamedConnectionFactory(home, **{**settings, **chosen})
            except ValueError as error:
                raise ValueError(f"{path}: connection factory {name!r}: {error}") from error
        for name in found.destinations:
            _check_name(name, path)
        home.connect()
        return Context(home, entries)


def _parameters(environment: Mapping[str, str]) -> dict[ContextKey, str]:
    known = {key.value for key in ContextKey}
    for key, value in environment.items():
        if key not in known:
            raise ValueError(f"create_context: there is no key {key!r}{hint(key, sorted(known))}")
        if not isinstance(value, str | os.PathLike):
            raise ValueError(f"create_context: {ContextKey(key).value} is text, not a {type(value).__name__}")
    chosen = {ContextKey(key): os.fspath(value) for key, value in environment.items()}
    for key, variable in _VARIABLES.items():
        if variable in os.environ:
            chosen.setdefault(key, os.environ[variable])
    return chosen


def _check_name(name: str, path: str | None) -> None:
    if not all(name.split(SEPARATOR)):
        raise ValueError(f"{path}: {name!r} is not a name: its parts, separated by {SEPARATOR!r}, must not be empty")


@dataclass(eq=False)
class _Home:
    """The network connection of a naming context, and its user."""

    options: FactoryOptions
    user: str | None
    password: str | None = field(repr=False)
    connection: Connection | None = None
    made: weakref.WeakSet[Connection] = field(default_factory=weakref.WeakSet)
    is_closed: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def connect(self) -> None:
        # It has no client identifier: those belong to what is made by its factories.
        self.connection = Connection(replace(self.options, client_id=None), self.user, self.password)

    def connect_for(self, options: FactoryOptions, user: str | None, password: str | None) -> Connection:
        """Return a new connection on the same network connection, unless it is for another user."""
        self.check_open("create_connection")
        if user is None:
            user, password = self.user, self.password
        connection = Connection(options, user, password)
        with self.lock:
            self.made.add(connection)
            is_closed = self.is_closed
        if is_closed:  # meanwhile
            connection.close()
            self.check_open("create_connection")
        return connection

    def check_open(self, doing: str) -> None:
        if self.is_closed:
            raise IllegalStateException(f"{doing}: the naming context is closed")

    def close(self, error: BaseException | None = None) -> None:
        with self.lock:
            if self.is_closed:
                return
            made = list(self.made)
            for connection in made:
                connection._check_not_in_callback("close")
            self.is_closed = True
        failures = []
        for connection in made:
            try:
                connection.__exit__(None, error, None)
            except JMSException as failure:  # the others want to be closed all the same
                failures.append(failure)
        if self.connection is not None:
            self.connection.close()
        if failures:
            raise failures[0]


class NamedConnectionFactory(ConnectionFactory):
    """A connection factory whose connections belong to a naming context."""

    def __init__(self, home: _Home, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]  # checked where they were read
        self._home = home

    def create_connection(self, user: str | None = None, password: str | None = None) -> Connection:
        return self._home.connect_for(self._options, user, password)


class Context(AutoCloseable):
    """Names of connection factories and destinations, and the connection that what they make has in common.

    Made by `ContextFactory.create_context`. Can be used by any number of threads. A name may have parts, separated by
    ``/``; those that begin alike are in one context: ``names.lookup("jms")`` has what begins with ``jms/``.

    Closing it closes every connection that was made by its factories. A context that was looked up in it is a view, and
    closing that closes nothing.
    """

    def __init__(
        self, home: _Home, entries: Mapping[str, ConnectionFactory | Destination], within: str | None = None
    ) -> None:
        self._home = home
        self._entries = entries
        self._within = within

    def __repr__(self) -> str:
        state = "closed" if self._home.is_closed else f"{len(self._entries)} names"
        within = f" {self._within!r}" if self._within else ""
        user = f" as {self._home.user!r}" if self._home.user is not None else ""
        return f"<Context{within} of {self._home.options.bootstrap_servers}{user}: {state}>"

    def names(self) -> list[str]:
        """Return all names, in alphabetical order, those with several parts whole."""
        self._home.check_open("names")
        return sorted(self._entries)

    def lookup(self, name: str) -> ConnectionFactory | Destination | Context:
        """Return what *name*, relative to this context, names; it sends no request.

        Args:
            name: The name of a connection factory or destination; what names begin with that have several parts, for
                the context of these; ``""`` for the context itself.

        Raises:
            NameNotFoundException: There is no such name.
            IllegalStateException: The context is closed.
            ValueError: *name* is None, or no text.
        """
        self._home.check_open("lookup")
        if not isinstance(name, str):
            raise ValueError(f"lookup: a name is text, not {shown(name)}")
        if name == "":
            return self
        entry = self._entries.get(name)
        if entry is not None:
            return entry
        beginning = name + SEPARATOR
        inner = {each[len(beginning) :]: entry for each, entry in self._entries.items() if each.startswith(beginning)}
        if not inner:
            there_are = hint(name, self.names() or ["none"])
            raise NameNotFoundException(f"lookup: there is no name {name!r} in {self!r}{there_are}")
        return Context(self._home, inner, name if self._within is None else f"{self._within}{SEPARATOR}{name}")

    def lookup_connection_factory(self, name: str) -> ConnectionFactory:
        """Return the connection factory *name*. Its connections have the context's network connection and credential.

        Only a connection that is created with a user of its own is on a network connection of its own.

        Raises:
            NameNotFoundException: There is no connection factory of that name.
            IllegalStateException: The context is closed.
            ValueError: *name* is None, or no text.
        """
        return self._lookup(name, ConnectionFactory, "connection factory")

    def lookup_destination(self, name: str) -> Destination:
        """Return the queue or topic *name*.

        Raises:
            NameNotFoundException: There is no destination of that name.
            IllegalStateException: The context is closed.
            ValueError: *name* is None, or no text.
        """
        return self._lookup(name, Destination, "destination")

    def _lookup(self, name: str, kind: type[T], words: str) -> T:
        found = self.lookup(name)
        if not isinstance(found, kind):
            raise NameNotFoundException(f"lookup: {name!r} names {found!r}, which is no {words}")
        return found

    def close(self) -> None:
        """Close the context, with every connection that was made by its factories. Again, it does nothing.

        Raises:
            IllegalStateException: A message listener or a completion listener of one of them called it.
            JMSException: Kafka did not take an acknowledgement; everything is closed nevertheless.
        """
        if self._within is None:
            self._home.close()

    def _close_after(self, error: BaseException) -> None:
        if self._within is None:
            self._home.close(error)
