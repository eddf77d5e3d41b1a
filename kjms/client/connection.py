"""Connections: they start and stop delivery, and close what they made."""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from kjms.client.closing import AutoCloseable
from kjms.client.connection_meta_data import ConnectionMetaData
from kjms.client.exception_listener import ExceptionListener, ExceptionReporter
from kjms.client.ownership import Ownership
from kjms.client.session import Session
from kjms.engine import Engine
from kjms.errors import (
    IllegalStateException,
    InvalidClientIDException,
    JMSException,
    shown,
)
from kjms.mapping import client_sender, connection_sender
from kjms.options import (
    FactoryOptions,
)

if TYPE_CHECKING:
    from kjms.engine import ConsumerSlot
    from kjms.observe import Observer

__all__ = ["Connection"]

S = TypeVar("S", bound=Session)

_log = logging.getLogger("kjms.connection")
_numbers = itertools.count(1)
_open_connections: weakref.WeakSet[Connection] = weakref.WeakSet()

EXIT_SECONDS: Final = 0.5  # how long the end of a program that closes nothing waits for running listeners


class Connection(AutoCloseable):
    """A client's view on the cluster: it starts and stops delivery, and closes what it made.

    Can be used by any number of threads. Connections with the same settings share one engine, so they are cheap.

    Spec: JMS 2.0 §4.3.
    """

    def __init__(self, options: FactoryOptions, user: str | None, password: str | None) -> None:
        self.number = next(_numbers)
        self._options = options
        self._id = uuid.uuid4().hex
        self._client_id = options.client_id
        self._owner: str | None = None  # the gateway's user; see Subscriptions.claim_client
        self._client_claim: str | None = None  # what other processes know of the client identifier
        self._reporter = ExceptionReporter(self.number)
        self._sessions: list[Session] = []
        self._lock = threading.RLock()
        self._is_started = False
        self._is_closing = False
        self._closing = 0  # the thread that closes it; where Ctrl-C ended that, the next call of the thread continues
        self._is_closed = False
        self._is_used = False
        self._ownership = Ownership()
        self._engine = self._acquire_engine(user, password)
        if options.client_id is not None:
            try:
                self._claim_client_id(options.client_id)
            except BaseException:
                self._engine.release(self)
                raise
        _open_connections.add(self)

    def _acquire_engine(self, user: str | None, password: str | None) -> Engine:
        return Engine.acquire(self._options, user, password, self)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "started" if self._is_started else "stopped"
        return (
            f"<Connection {self.number} to {self._options.bootstrap_servers}: {state}, {len(self._sessions)} sessions>"
        )

    @property
    def client_id(self) -> str | None:
        """The client identifier, to be set before anything else is done with the connection (JMS 2.0 §4.3.2).

        Raises:
            IllegalStateException: When setting: the factory gave one, or the connection is in use already.
            InvalidClientIDException: When setting: it is no text, empty, or in use by another connection, in whatever
                process. The id of a program that was killed is free again after some seconds, which this waits for.
        """
        self._check_open("client_id")
        return self._client_id

    @client_id.setter
    def client_id(self, client_id: str) -> None:
        self._check_open("client_id")
        if self._client_id is not None:
            raise IllegalStateException(f"client_id: it is set to {self._client_id!r} already (JMS 2.0 §4.3.2)")
        if self._is_used:
            raise IllegalStateException("client_id: must be set before anything else is done (JMS 2.0 §4.3.2)")
        if not isinstance(client_id, str) or not client_id:
            raise InvalidClientIDException(f"client_id: text is needed, not {shown(client_id)} (JMS 2.0 §4.3.2)")
        self._claim_client_id(client_id)
        self._client_id = client_id

    def _claim_client_id(self, client_id: str) -> None:
        def lost(failure: JMSException) -> None:
            self._client_claim = None
            self._tell(InvalidClientIDException(f"client id {client_id!r}: {failure}"))

        self._client_claim = self._engine.subscriptions.claim_client(client_id, lost, self._owner)

    @property
    def _senders(self) -> tuple[bytes | None, bytes | None]:
        """What is noted in messages to topics: in those with an id, which says the connection, and in those without."""
        if self._client_id is None:
            return None, connection_sender(self._id).encode()
        sender = client_sender(self._client_id).encode()
        return sender, sender

    def _needed_client_id(self, doing: str) -> str:
        """Return the client identifier, which no other connection has."""
        if self._client_id is None:
            raise IllegalStateException(f"{doing}: the connection has no client id, and needs one (JMS 2.0 §6.11.5)")
        self._check_client_id()
        return self._client_id

    def _check_client_id(self) -> None:
        """Claim the client identifier again if others took it while this process slept."""
        if self._client_id is not None and self._client_claim is None:
            self._claim_client_id(self._client_id)

    @property
    def exception_listener(self) -> ExceptionListener | None:
        """What is called with failures that no call can raise, such as a lost cluster (JMS 2.0 §4.3.8).

        A function, or an object with ``on_exception``. If it has a method ``on_recovery``, too, that is called when a
        lost cluster answers again, with the exception that reported the loss.
        """
        self._check_open("exception_listener")
        return self._reporter.listener

    @exception_listener.setter
    def exception_listener(self, listener: ExceptionListener | None) -> None:
        self._check_open("exception_listener")
        self._reporter.set(listener)
        self._is_used = True

    @property
    def meta_data(self) -> ConnectionMetaData:
        """What is said of this provider (JMS 2.0 §4.3.7)."""
        self._check_open("meta_data")
        return ConnectionMetaData()

    def create_session(self, session_mode: int | bool = Session.AUTO_ACKNOWLEDGE, acknowledge_mode: int = 1) -> Session:
        """Return a new session (JMS 2.0 §4.4).

        Args:
            session_mode: One of the constants of `Session`; or, as in JMS 1.1, whether it is transacted.
            acknowledge_mode: With a bool before it: the mode of a session that is not transacted.

        Raises:
            ValueError: There is no such mode.
        """
        return self._create_session(Session, session_mode, acknowledge_mode)

    def _create_session(
        self, session_class: Callable[[Connection, int], S], session_mode: int | bool, acknowledge_mode: int
    ) -> S:
        """Return a new session; from now on the client identifier cannot be set."""
        session = self._open_session(session_class, session_mode, acknowledge_mode)
        self._is_used = True
        return session

    def _open_session(
        self, session_class: Callable[[Connection, int], S], session_mode: int | bool, acknowledge_mode: int = 1
    ) -> S:
        if isinstance(session_mode, bool):
            session_mode = Session.SESSION_TRANSACTED if session_mode else acknowledge_mode
        self._check_open("create_session")
        with self._lock:
            self._check_open("create_session")  # no thread closes it meanwhile
            session = session_class(self, session_mode)
            self._sessions.append(session)
        return session

    def start(self) -> None:
        """Let messages be delivered; on a started connection it changes nothing (JMS 2.0 §4.3.3)."""
        self._check_open("start")
        with self._lock:
            self._is_used = True
            if self._is_closing:  # a listener that the close waits for may call this, too
                return
            self._is_started = True
            for session in list(self._sessions):
                session._start()

    def stop(self) -> None:
        """Hold delivery, and return when running listeners are through (JMS 2.0 §4.3.4).

        Raises:
            IllegalStateException: A message listener of this connection called it.
        """
        self._check_open("stop")
        with self._lock:
            sessions = list(self._sessions)
            self._check_not_in_callback("stop")
            self._is_used = True
            self._is_started = False
        for session in sessions:  # all of them, before the first wait: no other session starts on a new message
            session._hold_delivery()
        for session in sessions:
            session._stop()
        with self._lock:
            if self._is_started:  # by another thread, while this one waited for listeners
                for session in sessions:
                    session._start()

    def _consumer_added(self, slot: ConsumerSlot) -> None:
        with self._lock:
            if self._is_started:
                slot.start()

    def _session_closed(self, session: Session) -> None:
        with self._lock:
            if session in self._sessions:
                self._sessions.remove(session)

    @property
    def _observers(self) -> tuple[Observer, ...]:
        return self._options.observers

    def _tell(self, failure: JMSException) -> None:
        """Pass *failure* to the exception listener."""
        if not self._is_closed:
            self._reporter.report(failure)

    def _tell_recovery(self, failure: JMSException) -> None:
        """Pass on that the outage is over that *failure* reported."""
        if not self._is_closed:
            self._reporter.report_recovery(failure)

    def close(self) -> None:
        """Close the connection with all that it made; what was not acknowledged goes to others (JMS 2.0 §4.3.5).

        Waits for running listeners, which can use everything until they return, and for sends under way.

        Raises:
            IllegalStateException: A message listener or a completion listener of this connection called it.
            JMSException: Kafka did not take an acknowledgement; everything is closed nevertheless.
        """
        if self._ownership.is_inherited:
            return
        thread = threading.get_ident()
        with self._lock:
            sessions = list(self._sessions)
            self._check_not_in_callback("close")
            if self._is_closing and self._closing != thread:
                return
            self._is_closing, self._closing = True, thread
            self._is_started = False
        try:
            self._close(sessions)
        except Exception:
            self._closing = 0
            raise
        self._closing = 0

    def _close(self, sessions: Sequence[Session]) -> None:
        for session in sessions:  # all of them, before the first wait: no other session starts on a new message
            session._hold_delivery()
        for session in sessions:
            session._end_delivery()
        with self._lock:
            self._is_closed = True
            sessions = list(self._sessions)
        failures = []
        try:
            for session in sessions:
                try:
                    session.close()
                except JMSException as failure:  # the others want to be closed all the same
                    failures.append(failure)
            self._engine.temporaries.end_of(self._id)
        finally:
            if self._client_claim is not None:
                self._engine.subscriptions.release_client(self._client_claim)
            self._engine.release(self)
            _open_connections.discard(self)
        if failures:
            raise failures[0]

    def _close_after(self, error: BaseException) -> None:
        for session in list(self._sessions):
            session._loop_failed(error, judges=False)
        self.close()

    def _check_not_in_callback(self, doing: str) -> None:
        for session in list(self._sessions):
            session._check_not_in_callback(doing)

    def _check_open(self, doing: str) -> None:
        if self._is_closed:
            self._ownership.check(doing)
            raise IllegalStateException(f"{doing}: connection {self.number} is closed (JMS 2.0 §4.3.5)")

    def _disown(self) -> None:
        """Refuse every further use, in a forked child; no lock is taken, since a thread of the parent may have it."""
        self._ownership.disown()
        self._is_closing = self._is_closed = True
        for session in self._sessions:
            session._disown()


def _end_deliveries() -> None:
    """Call no listener any more, and let those that run acknowledge their message: the program ends without `close`."""
    deadline = time.monotonic() + EXIT_SECONDS
    sessions = [session for connection in list(_open_connections) for session in list(connection._sessions)]
    for session in sessions:
        session._hold_delivery()
    for session in sessions:
        delivering = session._core.delivering
        if delivering.acquire(timeout=max(deadline - time.monotonic(), 0)):
            delivering.release()


def _disown_all() -> None:
    """Close, in a forked child, what its parent connected, without touching the cluster or the parent's connections."""
    for connection in list(_open_connections):
        connection._disown()
    _open_connections.clear()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_disown_all)
atexit.register(_end_deliveries)  # runs before the engines end, which were imported, and registered, first
