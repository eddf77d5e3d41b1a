"""The sessions and links of one client's connection."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from proton import Endpoint, Event, Session

from kjms.errors import JMSException
from kjms.gateway._attach import link_of
from kjms.gateway._errors import INVALID_FIELD, LIMIT_EXCEEDED, ConnectionFault
from kjms.gateway._link import ClientLink, refuse
from kjms.gateway._outgoing import OutgoingLink
from kjms.gateway._proton import Delivery, address_of, address_of_link_of, event_of

if TYPE_CHECKING:
    from kjms.gateway._access import KafkaAccess
    from kjms.gateway._client import ClientInfo
    from kjms.gateway._flow import ConnectionFlow
    from kjms.gateway._metrics import Metrics
    from kjms.gateway._names import LinkNames
    from kjms.gateway._options import GatewayOptions
    from kjms.gateway._outcomes import OutcomeQueue
    from kjms.gateway._source import Outcome
    from kjms.gateway._worker import Worker

__all__ = ["ClientSessions", "OpenWorker"]


class OpenWorker(Protocol):
    """Opens a kjms session."""

    def __call__(self, on_end: Callable[[], None]) -> Worker:
        """Return a new session's worker; *on_end* is called in the loop's thread when it is closed."""


class ServedSession:
    """A session of the client, with the engine's while that is there."""

    __slots__ = ("engine_session", "worker")

    def __init__(self, worker: Worker, engine_session: Session) -> None:
        self.worker = worker
        self.engine_session: Session | None = engine_session


class ClientSessions:
    """The sessions of a connection and their links; used in the event loop's thread.

    proton's sessions and links are referred to by their addresses wherever a worker might keep them alive.

    Args:
        client: The client.
        options: The gateway's.
        metrics: Its metrics.
        access: The client's access to Kafka.
        link_names: The names of all links of the gateway.
        flow: The connection's.
        outcomes: Those on their way to the sessions.
        open_worker: Opens a kjms session.

    Attributes:
        is_open: Whether the connection's open is answered.
    """

    def __init__(
        self,
        client: ClientInfo,
        options: GatewayOptions,
        metrics: Metrics,
        access: KafkaAccess,
        link_names: LinkNames,
        flow: ConnectionFlow,
        outcomes: OutcomeQueue,
        open_worker: OpenWorker,
    ) -> None:
        self.client = client
        self.options = options
        self.metrics = metrics
        self.access = access
        self.link_names = link_names
        self.flow = flow
        self.outcomes = outcomes
        self._open_worker = open_worker
        self.is_open = False
        self._on_end: Callable[[], None] | None = None  # once the connection has ended
        self._sessions: dict[int, ServedSession] = {}  # by address
        self._links: dict[int, ClientLink] = {}  # by address
        self._attached: dict[int, Session] = {}  # the sessions of all links that the client has not detached
        self._early: list[Any] = []  # sessions and links that came before the connection's open was answered
        self._transactions = itertools.count(1)

    # For the connection.

    def delivery(self, found: Any) -> None:
        """Pass on what changed about a delivery."""
        served = self._links.get(address_of_link_of(found))
        if not isinstance(served, OutgoingLink):
            self.outcomes.flush()
        if served is not None and not served.is_gone:
            served.delivery(Delivery(found))

    def handle(self, kind: int, found: Any) -> bool:
        """Handle an event of a session or a link; return whether it was one.

        Raises:
            ConnectionFault: The client has attached too many links.
        """
        handle = _HANDLERS.get(kind)
        if handle is None:
            return False
        self.outcomes.flush()
        handle(self, event_of(found))
        return True

    def open(self) -> None:
        """Open what the client opened before; the engine does not send what is opened before the connection is."""
        early, self._early = self._early, []
        for each in early:
            if isinstance(each, Session):
                each.open()
                if each.state & Endpoint.REMOTE_CLOSED:
                    each.close()
                    each.free()
            elif each.session.state & Endpoint.LOCAL_ACTIVE:
                self._attach(each)

    def pause(self) -> None:
        """Send no more messages to the client, and let it send no more than it may already."""
        for session in self._sessions.values():
            session.worker.pause()

    @property
    def is_busy(self) -> bool:
        """Whether the client has sent what is not answered yet."""
        return any(served.is_busy for served in self._links.values())

    def end(self, on_end: Callable[[], None], outcome: Outcome | None, cause: str) -> None:
        """End all of them; *on_end* is called when the last worker has ended.

        Args:
            on_end: The function.
            outcome: Of the messages that the client has not answered for; None: it has closed its connection, so that
                it has processed none of them.
            cause: Why the connection ends, for people.
        """
        self._on_end = on_end
        for served in list(self._links.values()):
            if outcome is not None and isinstance(served, OutgoingLink):
                served.interrupted(outcome, cause)
            served.lost()
            self._drop(served)
        for session in list(self._sessions.values()):
            session.worker.end()
        if not self._sessions:
            on_end()

    def release(self) -> None:
        """Let go of the engine's objects."""
        self._attached.clear()
        self._early.clear()
        for session in self._sessions.values():
            session.engine_session = None

    # For links.

    def new_transaction(self) -> bytes:
        """Return the id of a new transaction."""
        return b"%d" % next(self._transactions)

    def forget(self, link: ClientLink) -> None:
        """Serve a link no more, which has been answered; if the client has detached it, the engine forgets it, too."""
        engine_link = link.link
        self._drop(link)
        if address_of(engine_link) not in self._attached and self._on_end is None:
            engine_link.free()

    # Events.

    def _on_session_open(self, event: Event) -> None:
        session = event.session
        if self.is_open:
            session.open()
        else:
            self._early.append(session)

    def _on_session_close(self, event: Event) -> None:
        session = event.session
        self._attached = {address: its for address, its in self._attached.items() if its != session}
        for served in [each for each in self._links.values() if each.link.session == session]:
            served.lost()
            self._drop(served)
        found = self._sessions.get(address_of(session))
        if found is not None:
            found.worker.end()
        elif self.is_open:
            session.close()
            session.free()

    def _on_link_open(self, event: Event) -> None:
        self._attached[address_of(event.link)] = event.link.session
        if len(self._attached) > 2 * self.options.max_links:  # the client continues although they are refused
            raise ConnectionFault(LIMIT_EXCEEDED, f"the client has attached {len(self._attached)} links")
        if self.is_open:
            self._attach(event.link)
        else:
            self._early.append(event.link)

    def _on_link_close(self, event: Event) -> None:
        self._detach(event.link, is_closed=True)

    def _on_link_detach(self, event: Event) -> None:
        self._detach(event.link, is_closed=False)

    def _on_link_flow(self, event: Event) -> None:
        served = self._links.get(address_of(event.link))
        if served is not None:
            served.flow()

    def _attach(self, link: Any) -> None:
        if self._on_end is not None or self.access.connection is None:
            return
        if address_of(link) not in self._attached:  # it has been detached before this connection was open
            link.open()
            link.close()
            link.free()
            return
        if link.name is None:
            refuse(link, INVALID_FIELD, "a link has a name")
            return
        if len(self._attached) > self.options.max_links:
            refuse(link, LIMIT_EXCEEDED, f"a connection may have {self.options.max_links} links")
            return
        served = self._links[address_of(link)] = link_of(self, self._worker_of(link.session), link)
        try:
            served.attach()
        except JMSException as failure:
            served.refuse(failure)

    def _detach(self, link: Any, *, is_closed: bool) -> None:
        self._attached.pop(address_of(link), None)
        served = self._links.get(address_of(link))
        if served is not None:
            served.detach(is_closed=is_closed)
        elif self.is_open:
            if link.state & Endpoint.LOCAL_ACTIVE:
                link.close()
            link.free()

    def _drop(self, served: ClientLink) -> None:
        self._links.pop(address_of(served.link), None)
        if isinstance(served, OutgoingLink):
            self.flow.congested.discard(served)
        served.let_go()

    def _worker_of(self, session: Any) -> Worker:
        address = address_of(session)
        found = self._sessions.get(address)
        if found is None:
            worker = self._open_worker(partial(self._worker_ended, address))
            found = self._sessions[address] = ServedSession(worker, session)
        return found.worker

    def _worker_ended(self, address: int) -> None:
        ended = self._sessions.pop(address)
        self.flow.let_go(ended.worker)
        self.link_names.leave_all(ended.worker)
        session = ended.engine_session
        if session is not None:
            if session.state & Endpoint.LOCAL_ACTIVE:
                session.close()
            if session.state & Endpoint.REMOTE_CLOSED and self._on_end is None:
                session.free()
        if self._on_end is not None and not self._sessions:
            self._on_end()


_HANDLERS: Final = {
    Event.SESSION_REMOTE_OPEN.number: ClientSessions._on_session_open,
    Event.SESSION_REMOTE_CLOSE.number: ClientSessions._on_session_close,
    Event.LINK_REMOTE_OPEN.number: ClientSessions._on_link_open,
    Event.LINK_REMOTE_CLOSE.number: ClientSessions._on_link_close,
    Event.LINK_REMOTE_DETACH.number: ClientSessions._on_link_detach,
    Event.LINK_FLOW.number: ClientSessions._on_link_flow,
}
