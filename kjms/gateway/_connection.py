"""One client: its bytes, the engine that understands them, and its sessions, in the event loop's thread.

Whatever blocks runs elsewhere: connecting and closing in the loop's executor, the rest in the session's `Worker`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from proton import (
    Collector,
    Condition,
    DataException,
    Delivery,
    Endpoint,
    Event,
    Session,
    Transport,
    TransportException,
    symbol,
)
from proton import Connection as Engine

from kjms._version import __version__
from kjms.amqp.transport import EngineProtocol
from kjms.errors import InvalidClientIDException, JMSException, JMSSecurityException
from kjms.gateway._attach import link_of
from kjms.gateway._errors import condition_of
from kjms.gateway._links import ClientLink, Sending, refuse
from kjms.gateway._proton import address_of, address_of_link_of, event_of, next_event, pop
from kjms.gateway._sasl import AMQP_HEADER, SASL_HEADER, Credentials, SaslError, SaslServer
from kjms.gateway._worker import Worker

if TYPE_CHECKING:
    from kjms import Connection
    from kjms.client.brokered_session import BrokeredSession
    from kjms.engine import Delivery as Handed
    from kjms.gateway._server import Gateway
    from kjms.gateway._source import Outcome

__all__ = ["AmqpConnection"]

_log = logging.getLogger("kjms.gateway")
_numbers = itertools.count(1)

SOLE: Final = "sole-connection-for-container"
OFFERED: Final = (SOLE, "DELAYED_DELIVERY", "ANONYMOUS-RELAY", "SHARED-SUBS")
FAILED: Final = "amqp:connection-establishment-failed"
INVALID_FIELD: Final = "amqp:invalid-field"
DECODE_ERROR: Final = "amqp:decode-error"
LIMIT_EXCEEDED: Final = "amqp:resource-limit-exceeded"
FORCED: Final = "amqp:connection:forced"
UNFINISHED: Final = 8  # so many messages of the largest size may be there in parts
FIRST_FRAME_BYTES: Final = 4096  # the largest frame that is read before the connection is open; AMQP asks for 512
DRAIN_LOOK_SECONDS: Final = 0.01
DELIVERY: Final = Event.DELIVERY.number
MISREAD: Final = (UnicodeDecodeError, OverflowError, RecursionError, DataException)  # of proton, about what was sent


class AmqpConnection(EngineProtocol):
    """A client of the gateway.

    Args:
        gateway: Whose client it is.
    """

    def __init__(self, gateway: Gateway) -> None:
        super().__init__()
        self.number = next(_numbers)
        self.options = gateway.options
        self.metrics = gateway.metrics
        self.link_names = gateway.link_names
        self.container = ""
        self.is_qpid_jms = False
        self.congested: set[Sending] = set()
        self._gateway = gateway
        self._loop = asyncio.get_running_loop()
        self._peer = self.address = "?"
        self._received = b""  # before it is known which protocol it is
        self._is_securing = False
        self._sasl: SaslServer | None = None
        self._is_authenticating = False
        self._user: str | None = None
        self._engine = Engine()
        self._collector = Collector()
        self._engine.collect(self._collector)
        self._kjms: Connection | None = None
        self._workers: dict[int, Worker] = {}  # by the addresses of the engine's sessions
        self._sessions: dict[int, Session] = {}  # those that have workers
        self._links: dict[int, ClientLink] = {}  # by the addresses of the engine's
        self._attached: dict[int, Any] = {}  # the sessions of all that the client has attached and not detached
        self._transactions = itertools.count(1)
        self._tells: list[tuple[tuple[Any, ...], list[Handed]]] = []
        self._patience: asyncio.TimerHandle | None = None
        self._mail: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._is_mail_announced = False
        self._mail_lock = threading.Lock()
        self._early: list[Any] = []  # sessions and links that came before we had answered the client's open
        self._is_settled = asyncio.Event()  # cleared while it is being opened
        self._is_settled.set()
        self._is_open = False
        self._is_ended = False
        self._held = 0  # bytes of messages that have come and that Kafka does not have yet
        self._unfinished = 0  # bytes of messages of which a part has come
        self._is_held_back = False
        self._began = time.monotonic()
        self.closed = self._loop.create_future()  # when nothing is left of it

    def __repr__(self) -> str:
        return f"<AmqpConnection {self.number} of {self._peer}, container {self.container!r}>"

    def log(self, text: str, *values: object) -> None:
        """Log a line about this client."""
        _log.info("connection %d: " + text, self.number, *values)

    # Bytes.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hear that there is a client."""
        assert isinstance(transport, asyncio.Transport)
        self._tcp = transport
        peer = transport.get_extra_info("peername")
        if peer:
            self.address, self._peer = str(peer[0]), f"{peer[0]}:{peer[1]}"
        if not self._gateway.enter(self):
            self.metrics.refused_total += 1
            self.log("refused, of %s: too many clients have not logged in yet", self._peer)
            self._is_ended = True
            self.closed.set_result(None)
            transport.abort()
            return
        self._patience = self._loop.call_later(self.options.handshake_timeout / 1000, self._took_too_long)
        if self._gateway.tls is not None:
            self._is_securing = True
            transport.pause_reading()
            self._gateway.run(self._secure(transport, self._gateway.tls))

    async def _secure(self, tcp: asyncio.Transport, tls: ssl.SSLContext) -> None:
        """Go on by TLS: here, and not in asyncio's server, so that a client counts before its handshake."""
        patience = self.options.handshake_timeout / 1000
        try:
            secured = await self._loop.start_tls(tcp, self, tls, server_side=True, ssl_handshake_timeout=patience)
        except (OSError, asyncio.TimeoutError) as error:
            self._abort(f"refused: TLS failed: {error}")
            return
        if self._is_ended or secured is None:
            tcp.abort()
            self._abort("the client is gone")
        else:
            self._tcp, self._is_securing = secured, False
            data, self._received = self._received, b""
            if data:
                self.data_received(data)

    def _took_too_long(self) -> None:
        if not self._is_open:
            self._abort("it did not open its connection in time")

    def data_received(self, data: bytes) -> None:
        """Take bytes from the client."""
        if self._is_securing:  # it came with the last of the handshake
            self._received += data
            return
        if self._is_released:
            return
        self.metrics.bytes_received_total += len(data)
        try:
            if self._transport is not None:
                self._push(data)
            elif self._sasl is not None:
                self._authenticate(data)
            else:
                self._begin(self._received + data)
        except SaslError as error:
            self._abort(f"refused: {error}")

    def eof_received(self) -> bool:
        """Hear that the client sends no more."""
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """Hear that the client is gone."""
        self._tcp = None
        if not self._is_ended:
            self._end("the client is gone" if error is None else f"the client is gone: {error}")
        elif self.closed.done():
            self.release()

    # The protocol's beginning.

    def _begin(self, data: bytes) -> None:
        if len(data) < len(AMQP_HEADER):
            self._received = data
            if not SASL_HEADER.startswith(data[:5]) and not AMQP_HEADER.startswith(data[:5]):
                raise SaslError("the client does not speak AMQP 1.0")
        elif data.startswith(SASL_HEADER):
            self._sasl = SaslServer(self._gateway.mechanisms(has_certificate=self._certificate_name() is not None))
            self._authenticate(data)
        elif data.startswith(AMQP_HEADER) and self.options.anonymous:
            self._speak(data)
        else:  # AMQP says what to answer: the header of the protocol that is spoken here (part 2, §2.2)
            assert self._tcp is not None
            self._tcp.write(SASL_HEADER)
            raise SaslError("the client does not speak AMQP 1.0 with SASL")

    def _authenticate(self, data: bytes) -> None:
        assert self._sasl is not None
        assert self._tcp is not None
        answer = self._sasl.receive(data)
        if answer:
            self._tcp.write(answer)
        credentials = self._sasl.credentials
        if credentials is not None and not self._is_authenticating:
            self._is_authenticating = True
            self._tcp.pause_reading()  # what comes now waits in its socket
            self._gateway.run(self._check(credentials))

    def _certificate_name(self) -> str | None:
        """Return the common name in the certificate that the client has shown, and that somebody vouches for."""
        certificate = None if self._tcp is None else self._tcp.get_extra_info("peercert")
        parts = (certificate or {}).get("subject", ())
        return next((str(value) for part in parts for key, value in part if key == "commonName"), None)

    async def _check(self, credentials: Credentials) -> None:
        if credentials.mechanism == "EXTERNAL":
            credentials = credentials._replace(user=self._certificate_name())
        self._user = credentials.user
        try:
            is_accepted = await self._gateway.accepts(credentials, self)
            if is_accepted and self.options.pass_credentials and credentials.mechanism == "PLAIN":
                await self._connect(credentials)
        except JMSSecurityException:
            is_accepted = False
        except JMSException as failure:
            self.metrics.refused_total += 1
            if self._tcp is not None and self._sasl is not None:
                self._tcp.write(self._sasl.unavailable())
            self._abort(f"refused: {failure}")
            return
        if self._tcp is None or self._is_ended:
            return
        assert self._sasl is not None
        self._tcp.write(self._sasl.outcome(is_accepted=is_accepted))
        if is_accepted:
            self._tcp.resume_reading()
            self._speak(self._sasl.rest)
        else:
            self.metrics.refused_total += 1
            self._abort(f"refused: user {self._user!r} with {credentials.mechanism}")

    def _speak(self, data: bytes) -> None:
        """Let the engine have all that comes from now on."""
        self._transport = transport = Transport(Transport.SERVER)
        transport.max_frame_size = min(self.options.max_frame_size, FIRST_FRAME_BYTES)
        transport.channel_max = self.options.max_sessions - 1
        transport.idle_timeout = self.options.idle_timeout / 1000
        self._engine.container = self._gateway.name
        transport.bind(self._engine)
        self._push(data)

    def _push(self, data: bytes) -> None:
        try:
            super()._push(data)
        except TransportException as error:
            self._abort(f"the client broke the protocol: {error}")
        else:
            self.flush()

    def _fill(self) -> None:
        if self.congested and not self.is_congested:
            links, self.congested = self.congested, set()
            for link in links:
                link.push()

    def _wrote(self, size: int) -> None:
        self.metrics.bytes_sent_total += size

    @property
    def is_ended(self) -> bool:
        """Whether its client is gone, or is to go."""
        return self._is_ended

    @property
    def _is_over(self) -> bool:
        return self._is_ended

    # What workers post.

    def post(self, call: Callable[..., None], *values: Any) -> None:
        """Have *call* called in the loop's thread; for any thread."""
        self._mail.append((call, values))
        if self._is_mail_announced:
            return
        with self._mail_lock:
            if self._is_mail_announced:
                return
            self._is_mail_announced = True
        try:
            self._loop.call_soon_threadsafe(self._open_mail)
        except RuntimeError:  # the loop is closed, and nobody listens any more
            return

    def _open_mail(self) -> None:
        with self._mail_lock:
            self._is_mail_announced = False
        for _ in range(len(self._mail)):
            call, values = self._mail.popleft()
            try:
                call(*values)
            except MISREAD as error:
                self._misread(error)
            except Exception:
                _log.exception("connection %d: an answer failed", self.number)
        if self._mail:
            self.post(lambda: None)
        self.flush()

    def new_transaction(self) -> bytes:
        """Return the id of a new transaction."""
        return b"%d" % next(self._transactions)

    def tell(
        self,
        link: Sending,
        outcome: Outcome,
        transaction: bytes | None,
        cause: str,
        handed: Handed,
        then: Callable[[Exception | None], None] | None,
    ) -> None:
        """Gather what the client says of messages; `_tell_workers` passes it on."""
        key = (link, outcome, transaction, cause, then)
        if self._tells and then is None and self._tells[-1][0] == key:
            self._tells[-1][1].append(handed)
        else:
            self._tells.append((key, [handed]))

    def _tell_workers(self) -> None:
        tells, self._tells = self._tells, []
        for (link, outcome, transaction, cause, then), handed in tells:
            link.worker.settle(link.source, outcome, handed, transaction, cause, then)

    def hold(self, worker: Worker, size: int) -> None:
        """Count *size* bytes of messages that *worker* has, and read no more while there are too many.

        The workers go on by themselves, so reading does, too.
        """
        size = max(size, -worker.held)  # its end has let all of them go
        worker.held += size
        self._held += size
        most = self.options.max_message_size
        if self._is_held_back != (self._held > (most // 2 if self._is_held_back else most)) and self._tcp is not None:
            self._is_held_back = not self._is_held_back
            (self._tcp.pause_reading if self._is_held_back else self._tcp.resume_reading)()

    def hold_part(self, size: int) -> bool:
        """Count *size* bytes of a message that is not all there; return whether there may be more of them."""
        self._unfinished += size
        return self._unfinished <= UNFINISHED * self.options.max_message_size

    # What the engine says.

    def _dispatch(self) -> None:
        collector = self._collector
        while (found := next_event(collector)) is not None:
            try:
                self._handle(*found)
            except MISREAD as error:
                self._misread(error)
            pop(collector)
        self._tell_workers()

    def _misread(self, error: Exception) -> None:
        """End a connection whose client sent a value that is not of its type: the engine passes them on unread."""
        _log.debug("connection %d: what the client sent", self.number, exc_info=error)
        if isinstance(error, UnicodeDecodeError):
            said = f"a text is not encoded as it should be ({error.reason})"
        elif isinstance(error, RecursionError):
            said = "values are nested too deep"
        else:
            said = f"a value is not of its type ({error})"
        self._close_with(DECODE_ERROR, f"the client broke the protocol: {said}")

    def _close_with(self, name: str, why: str) -> None:
        """End the connection with an error; what calls this flushes afterwards."""
        if self._is_ended:
            return
        engine, tcp = self._engine, self._tcp
        if engine.state & Endpoint.LOCAL_UNINIT:
            engine.open()
        engine.condition = Condition(name, why)
        engine.close()
        self._end(why)
        if tcp is not None:
            self._loop.call_soon(tcp.close)

    def _handle(self, kind: int, found: Any) -> None:
        if kind == DELIVERY:
            served = self._links.get(address_of_link_of(found))
            if not isinstance(served, Sending):
                self._tell_workers()
            if served is not None and not served.is_gone:
                served.delivery(Delivery(found))
        else:
            handle = _HANDLERS.get(kind)
            if handle is not None:
                self._tell_workers()
                handle(self, event_of(found))

    def _on_open(self, event: Event) -> None:
        assert self._patience is not None
        self._patience.cancel()  # what follows is not the client's to hurry
        self.container = self._engine.remote_container or ""
        try:
            is_sole = SOLE in (self._engine.remote_desired_capabilities or ())
            said = self._engine.remote_properties
        except TypeError as error:
            raise DataException(f"the capabilities or properties are no symbols: {error}") from error
        self.is_qpid_jms = isinstance(said, dict) and said.get("product") == "QpidJMS"
        self._is_settled.clear()
        self._gateway.run(self._opened(is_sole))

    async def _opened(self, is_sole: bool) -> None:
        self._engine.offered_capabilities = [symbol(name) for name in OFFERED]
        self._engine.properties = {symbol("product"): "kjms", symbol("version"): __version__}
        try:
            self._gateway.logged_in(self)
            await self._gateway.wait_for(self, self.container)
            if self._kjms is None:
                await self._connect(None)
            kjms = self._kjms
            if kjms is None or self._is_ended:
                return
            if is_sole and self.container:
                await self._loop.run_in_executor(None, lambda: setattr(kjms, "client_id", self.container))
            await self._loop.run_in_executor(None, kjms.start)
        except JMSException as failure:
            self._refuse(failure)
        else:
            if not self._is_ended:
                self._open()
                self.metrics.opened_total += 1
                who = "without a name" if self._user is None else f"user {self._user!r}"
                self.log("opened by %s, container %r, %s", self._peer, self.container, who)
                self._open_early()
        finally:
            self._is_settled.set()
        self.flush()

    def _open_early(self) -> None:
        """Open what the client opened before; a function, as none of it may outlive its session's end by the flush."""
        early, self._early = self._early, []
        try:  # the engine would not tell the client of what is opened before the connection is
            for each in early:
                if isinstance(each, Session):
                    each.open()
                    if each.state & Endpoint.REMOTE_CLOSED:
                        each.close()
                        each.free()
                elif each.session.state & Endpoint.LOCAL_ACTIVE:
                    self._attach(each)
        except MISREAD as error:
            self._misread(error)

    async def _connect(self, credentials: Credentials | None) -> None:
        """Connect to Kafka: as ourselves, or with the client's credentials."""
        user, password = self._gateway.credentials if credentials is None else credentials[1:]
        connect = self._gateway.factory.create_connection
        if credentials is None:
            kjms = await self._loop.run_in_executor(None, lambda: connect(user, password))
        else:  # this is the check of a password
            kjms = await self._gateway.check(self, lambda: connect(user, password))
        if self._is_ended:
            await self._loop.run_in_executor(None, kjms.close)
        else:
            kjms._owner = self._user or ""
            self._kjms = kjms

    def _open(self) -> None:
        """Answer the client's open."""
        assert self._transport is not None
        self._transport.max_frame_size = self.options.max_frame_size
        self._is_open = True
        self._engine.open()

    def _refuse(self, failure: JMSException) -> None:
        """Open the connection as one that is closed at once (mapping §2.1)."""
        if self._is_ended:
            return
        engine = self._engine
        engine.properties = {**(engine.properties or {}), symbol(FAILED): True}
        engine.offered_capabilities = None
        if isinstance(failure, InvalidClientIDException):
            info = {symbol("invalid-field"): symbol("container-id")}
            engine.condition = Condition(INVALID_FIELD, str(failure), info)
        else:
            engine.condition = Condition(*condition_of(failure))
        self._open()
        engine.close()
        self._loop.call_later(self.options.handshake_timeout / 1000, self._abort, "it was refused, and did not go")
        self.metrics.refused_total += 1
        self.log("refused, of %s, container %r: %s", self._peer, self.container, failure)

    def _on_close(self, event: Event) -> None:
        self._end("the client closed it")  # which answers when all that the client had is free

    def _on_session_open(self, event: Event) -> None:
        # The session's window stays as large as AMQP allows: when a window fills up, Qpid JMS (2.10) does not send its
        # last buffer until its next heartbeat. `hold` bounds memory instead, by TCP.
        session = event.session
        if self._is_open:
            session.open()
        else:
            self._early.append(session)

    def _on_session_close(self, event: Event) -> None:
        session = event.session
        self._attached = {address: its for address, its in self._attached.items() if its != session}
        for served in [each for each in self._links.values() if each.link.session == session]:
            served.lost()
            self._drop(served)
        worker = self._workers.get(address_of(session))
        if worker is not None:
            worker.end()
        elif self._is_open:
            session.close()
            session.free()

    def _worker_of(self, session: Any) -> Worker:
        address = address_of(session)
        worker = self._workers.get(address)
        if worker is None:
            assert self._kjms is not None
            name = f"kjms-gateway-{self.number}-{len(self._workers) + 1}"
            worker = self._workers[address] = Worker(
                self._kjms, name, self.post, partial(self._worker_ended, address), self.options.max_transaction_size
            )
            self._sessions[address] = session
        return worker

    def _worker_ended(self, address: int) -> None:
        worker = self._workers.pop(address)
        self.hold(worker, -worker.held)
        for served in list(worker.named):
            self.link_names.leave(served)
        session = self._sessions.pop(address, None)
        if session is not None:
            if session.state & Endpoint.LOCAL_ACTIVE:
                session.close()
            if session.state & Endpoint.REMOTE_CLOSED and not self._is_ended:
                session.free()
        if self._is_ended and not self._workers:
            self._gateway.run(self._close())

    def _on_link_open(self, event: Event) -> None:
        self._attached[address_of(event.link)] = event.link.session
        if len(self._attached) > 2 * self.options.max_links:  # it goes on although they are refused
            self._close_with(LIMIT_EXCEEDED, f"the client has attached {len(self._attached)} links")
        elif self._is_open:
            self._attach(event.link)
        else:
            self._early.append(event.link)

    def _attach(self, link: Any) -> None:
        if self._is_ended or self._kjms is None:
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

    def _on_link_close(self, event: Event) -> None:
        self._detach(event.link, is_closed=True)

    def _on_link_detach(self, event: Event) -> None:
        self._detach(event.link, is_closed=False)

    def _detach(self, link: Any, *, is_closed: bool) -> None:
        self._attached.pop(address_of(link), None)
        served = self._links.get(address_of(link))
        if served is not None:
            served.detach(is_closed=is_closed)
        elif self._is_open:
            if link.state & Endpoint.LOCAL_ACTIVE:
                link.close()
            link.free()

    def _on_link_flow(self, event: Event) -> None:
        served = self._links.get(address_of(event.link))
        if served is not None:
            served.flow()

    def _on_transport_error(self, event: Event) -> None:
        condition = event.transport.condition
        said = "" if condition is None else f"{condition.name} {condition.description or ''}".rstrip()
        self._end(f"the connection broke: {said}")

    @property
    def who(self) -> tuple[str | None, str | int]:
        """Whose subscriptions its links are for: the same for all connections of a container, if that has a name."""
        return self._user, self.container or self.number

    def need_client_id(self, session: BrokeredSession) -> None:
        """Give a session's connection its container's id as client id; for the session's thread.

        Raises:
            InvalidClientIDException: Another connection has it, and wants to be the only one; or it belongs to
                another user.
        """
        self._gateway.client_ids.need(session._connection, self.container)

    def forget(self, served: ClientLink) -> None:
        """Serve a link no more, which has been answered; if the client has detached it, the engine forgets it, too."""
        link = served.link
        self._drop(served)
        if address_of(link) not in self._attached and not self._is_ended:
            link.free()

    def _drop(self, served: ClientLink) -> None:
        self._links.pop(address_of(served.link), None)
        if isinstance(served, Sending):
            self.congested.discard(served)
        served.let_go()

    # The end.

    async def drain(self) -> None:
        """Let what is under way come to its end, and close the connection."""
        for worker in self._workers.values():
            worker.pause()
        if self._transport is None or not self._is_open:
            self._abort("the gateway ends")
        else:
            while any(served.is_busy for served in self._links.values()):
                await asyncio.sleep(DRAIN_LOOK_SECONDS)
        if not self._is_ended and self._is_open:
            self._engine.condition = Condition(FORCED, "the gateway ends; connect to another one")
            self._engine.close()
            self._end("the gateway ends")
            self.flush()
        await self.closed

    def _abort(self, why: str) -> None:
        tcp = self._tcp
        self._end(why)
        if tcp is not None:
            tcp.close()

    def abort(self) -> None:
        """Cut the client off."""
        if self._tcp is not None:
            self._tcp.abort()

    def _end(self, why: str) -> None:
        if self._is_ended:
            return
        self._is_ended = True
        self._tell_workers()
        self.log("closed, of %s, container %r: %s", self._peer, self.container, why)
        self._stop_timer()
        if self._patience is not None:
            self._patience.cancel()
        self._gateway.ending(self, self.container)
        for served in list(self._links.values()):
            served.lost()
            self._drop(served)
        if self._workers:
            for worker in list(self._workers.values()):
                worker.end()
        else:
            self._gateway.run(self._close())

    async def _close(self) -> None:
        """Give back what it had of kjms."""
        await self._is_settled.wait()  # else what is being claimed for it would be claimed for ever
        kjms, self._kjms = self._kjms, None
        if kjms is not None:
            try:
                await self._loop.run_in_executor(None, self._leave, kjms)
            except JMSException as failure:
                _log.warning("connection %d: %s", self.number, failure)
        if not self._is_released:
            self._say_goodbye(self._engine)
        if self._tcp is not None:  # it is counted no more, and so may not stay
            self._gateway.part(self._tcp)
        if not self.closed.done():
            self.closed.set_result(None)
        if self._tcp is None or self._transport is None:  # else what was said last may be on its way
            self.release()

    def _say_goodbye(self, engine: Engine) -> None:
        if engine.state & Endpoint.LOCAL_UNINIT and not engine.state & Endpoint.REMOTE_UNINIT:
            engine.open()  # the client closed it before this answer
        if engine.state & Endpoint.LOCAL_ACTIVE:
            engine.close()
            self.flush()

    def release(self) -> None:
        """Free the engine with all that it has; for the end of the connection."""
        self._end("the gateway ends")
        self._attached.clear()
        self._early.clear()
        self._sessions.clear()
        super().release()
        self._gateway.released(self)

    def _leave(self, kjms: Connection) -> None:
        self._gateway.client_ids.leave(kjms)
        kjms.close()


_HANDLERS: Final = {
    Event.CONNECTION_REMOTE_OPEN.number: AmqpConnection._on_open,
    Event.CONNECTION_REMOTE_CLOSE.number: AmqpConnection._on_close,
    Event.SESSION_REMOTE_OPEN.number: AmqpConnection._on_session_open,
    Event.SESSION_REMOTE_CLOSE.number: AmqpConnection._on_session_close,
    Event.LINK_REMOTE_OPEN.number: AmqpConnection._on_link_open,
    Event.LINK_REMOTE_CLOSE.number: AmqpConnection._on_link_close,
    Event.LINK_REMOTE_DETACH.number: AmqpConnection._on_link_detach,
    Event.LINK_FLOW.number: AmqpConnection._on_link_flow,
    Event.TRANSPORT_ERROR.number: AmqpConnection._on_transport_error,
}
