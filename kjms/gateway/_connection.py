"""One client's connection in the event loop's thread: its bytes, the engine behind them, and its states.

Whatever blocks runs elsewhere: connecting and closing in the loop's executor, the rest in the session's `Worker`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from proton import Condition, Connection, DataException, Endpoint, Event, Transport, TransportException, symbol

from kjms._version import __version__
from kjms.amqp.transport import EngineProtocol
from kjms.errors import InvalidClientIDException, JMSException
from kjms.gateway._access import KafkaAccess
from kjms.gateway._calls import CallQueue
from kjms.gateway._client import ClientInfo
from kjms.gateway._errors import DECODE_ERROR, INVALID_FIELD, ConnectionFault, condition_of
from kjms.gateway._flow import ConnectionFlow
from kjms.gateway._handshake import Handshake, HandshakeState
from kjms.gateway._outcomes import OutcomeQueue
from kjms.gateway._proton import event_of, next_event, pop
from kjms.gateway._sasl import Credentials, SaslError
from kjms.gateway._sessions import ClientSessions
from kjms.gateway._source import Outcome
from kjms.gateway._states import CONNECTION, ConnectionEvent, ConnectionState, after
from kjms.gateway._worker import Worker

if TYPE_CHECKING:
    from kjms.gateway._access import KafkaLogin
    from kjms.gateway._authentication import Authenticator
    from kjms.gateway._clients import Clients
    from kjms.gateway._metrics import Metrics
    from kjms.gateway._names import LinkNames
    from kjms.gateway._options import GatewayOptions
    from kjms.gateway._pool import WorkerPool

__all__ = ["AmqpConnection"]

_log = logging.getLogger("kjms.gateway")

SOLE: Final = "sole-connection-for-container"
OFFERED: Final = (SOLE, "DELAYED_DELIVERY", "ANONYMOUS-RELAY", "SHARED-SUBS")
FAILED: Final = "amqp:connection-establishment-failed"
FORCED: Final = "amqp:connection:forced"
ILLEGAL_STATE: Final = "amqp:illegal-state"
FIRST_FRAME_BYTES: Final = 4096  # the largest frame that is read before the connection is open; AMQP asks for 512
DRAIN_LOOK_SECONDS: Final = 0.01
DELIVERY: Final = Event.DELIVERY.number
MISREAD: Final = (UnicodeDecodeError, OverflowError, RecursionError, DataException)  # of proton, about what was sent


class AmqpConnection(EngineProtocol):
    """A client's connection.

    Args:
        container: The gateway's name in AMQP.
        options: The gateway's options.
        metrics: Its metrics.
        authenticator: Decides which clients may come in.
        login: How Kafka is reached.
        clients: All clients of the gateway.
        link_names: The names of all their links.
        pool: The threads for what blocks.

    Attributes:
        client: The client.
        closed: Done when nothing is left of it in kjms.
    """

    def __init__(
        self,
        container: str,
        options: GatewayOptions,
        metrics: Metrics,
        authenticator: Authenticator,
        login: KafkaLogin,
        clients: Clients,
        link_names: LinkNames,
        pool: WorkerPool,
    ) -> None:
        super().__init__()
        self._engine.container = container
        self._options = options
        self._metrics = metrics
        self._tls = authenticator.tls
        self._clients = clients
        self._state = ConnectionState.HANDSHAKE
        self.client = client = ClientInfo()
        self._handshake = Handshake(
            lambda: authenticator.mechanisms(has_certificate=_common_name(self._tcp) is not None),
            is_secured=self._tls is not None,
            allows_anonymous=options.anonymous,
        )
        self._handshake_timer: asyncio.TimerHandle | None = None
        self._access = access = KafkaAccess(client, login, lambda: not self.is_ended)
        calls = CallQueue(self._call, self.flush)

        def open_worker(on_end: Callable[[], None]) -> Worker:
            assert access.connection is not None
            return Worker(
                access.connection,
                pool,
                calls.post,
                on_end,
                options.max_transaction_size,
                limits_releases=options.limits_releases,
            )

        flow = ConnectionFlow(options.max_message_size, lambda: self._tcp, lambda: self.is_congested)
        self._sessions = ClientSessions(
            client, options, metrics, access, link_names, flow, OutcomeQueue(), open_worker
        )  # fmt: skip
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        client = self.client
        return f"<AmqpConnection {client.number} of {client.peer}, container {client.container!r}>"

    @property
    def is_ended(self) -> bool:
        """Whether its client is gone, or is to go."""
        return self._state.is_ended

    def _happens(self, event: ConnectionEvent) -> None:
        self._state = after(CONNECTION, self._state, event)

    # Bytes.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake, if there is room for the client."""
        assert isinstance(transport, asyncio.Transport)
        self._tcp = transport
        address = transport.get_extra_info("peername")
        if address:
            self.client.address, self.client.peer = str(address[0]), f"{address[0]}:{address[1]}"
        if not self._clients.enter(self):
            self._metrics.refused_total += 1
            self.client.log("refused, of %s: too many clients have not logged in yet", self.client.peer)
            self._happens(ConnectionEvent.ENDED)
            self._happens(ConnectionEvent.CLOSED)
            self.closed.set_result(None)
            transport.abort()
            return
        self._handshake_timer = asyncio.get_running_loop().call_later(
            self._options.handshake_timeout / 1000, self._abort, "it did not open its connection in time"
        )
        if self._tls is not None:  # the task begins before anything is read, and has the transport read nothing then
            self._clients.run(self._secure(transport, self._tls))

    async def _secure(self, tcp: asyncio.Transport, tls: ssl.SSLContext) -> None:
        """Establish TLS: here, and not in asyncio's server, so that a client counts before its handshake."""
        timeout, loop = self._options.handshake_timeout / 1000, asyncio.get_running_loop()
        try:
            secured = await loop.start_tls(tcp, self, tls, server_side=True, ssl_handshake_timeout=timeout)
        except (OSError, asyncio.TimeoutError) as error:
            self._abort(f"refused: TLS failed: {error}")
            return
        if self.is_ended or secured is None:
            tcp.abort()
            self._abort("the client is gone")
        else:
            self._tcp = secured
            data = self._handshake.secured()
            if data:
                self.data_received(data)

    def data_received(self, data: bytes) -> None:
        """Take bytes from the client."""
        handshake = self._handshake
        if handshake.state is HandshakeState.TLS:  # it came with the last of TLS's handshake
            handshake.receive(data)
            return
        if self._is_released:
            return
        self._metrics.bytes_received_total += len(data)
        if self._transport is not None:
            self._push(data)
            return
        tcp = self._tcp
        assert tcp is not None
        try:
            answer = handshake.receive(data)
        except SaslError as error:
            if error.answer:
                tcp.write(error.answer)
            self._abort(f"refused: {error}")
            return
        if answer:
            tcp.write(answer)
        credentials = handshake.take_credentials()
        if credentials is not None:
            tcp.pause_reading()  # what comes now waits in its socket
            self._clients.run(self._log_in(credentials))
        elif handshake.state is HandshakeState.OVER:
            self._start_amqp(handshake.rest)

    def connection_lost(self, error: Exception | None) -> None:
        """End the connection: the client is gone."""
        self._tcp = None
        if not self.is_ended:
            self._end("the client is gone" if error is None else f"the client is gone: {error}")
        elif self.closed.done():
            self.release()

    async def _log_in(self, credentials: Credentials) -> None:
        if credentials.mechanism == "EXTERNAL":
            credentials = credentials._replace(user=_common_name(self._tcp))
        try:
            is_accepted = await self._access.accepts(credentials)
        except JMSException as failure:
            self._metrics.refused_total += 1
            if self._tcp is not None:
                self._tcp.write(self._handshake.refused(is_temporary=True))
            self._abort(f"refused: {failure}")
            return
        if self._tcp is None or self.is_ended:
            return
        if is_accepted:
            self._tcp.write(self._handshake.accepted())
            self._tcp.resume_reading()
            self._start_amqp(self._handshake.rest)
        else:
            self._tcp.write(self._handshake.refused(is_temporary=False))
            self._metrics.refused_total += 1
            self._abort(f"refused: user {self.client.user!r} with {credentials.mechanism}")

    def _start_amqp(self, data: bytes) -> None:
        """Let the engine have all that comes from now on."""
        self._happens(ConnectionEvent.NEGOTIATED)
        self._transport = transport = Transport(Transport.SERVER)
        transport.max_frame_size = min(self._options.max_frame_size, FIRST_FRAME_BYTES)
        transport.channel_max = self._options.max_sessions - 1
        transport.idle_timeout = self._options.idle_timeout / 1000
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
        if self._sessions.flow.congested and not self.is_congested:
            self._sessions.flow.push()

    def _wrote(self, size: int) -> None:
        self._metrics.bytes_sent_total += size

    # Events and calls.

    def _call(self, call: Callable[..., None], *values: Any) -> None:
        """Make a call that a worker has posted."""
        try:
            call(*values)
        except MISREAD as error:
            self._misread(error)
        except Exception:
            _log.exception("connection %d: an answer failed", self.client.number)

    def _dispatch(self) -> None:
        collector, sessions = self._collector, self._sessions
        while (found := next_event(collector)) is not None:
            kind, what = found
            try:
                if kind == DELIVERY:
                    sessions.delivery(what)
                elif not sessions.handle(kind, what) and kind in _HANDLERS:
                    sessions.outcomes.flush()
                    _HANDLERS[kind](self, event_of(what))
            except MISREAD as error:
                self._misread(error)
            except ConnectionFault as fault:
                self._close_with(fault.name, str(fault))
            pop(collector)
        sessions.outcomes.flush()

    def _misread(self, error: Exception) -> None:
        """End a connection whose client sent a value that is not of its type: the engine passes them on unread."""
        _log.debug("connection %d: what the client sent", self.client.number, exc_info=error)
        if isinstance(error, UnicodeDecodeError):
            fault = f"a text is not encoded as it should be ({error.reason})"
        elif isinstance(error, RecursionError):
            fault = "values are nested too deep"
        else:
            fault = f"a value is not of its type ({error})"
        self._close_with(DECODE_ERROR, f"the client broke the protocol: {fault}")

    def _close_with(self, name: str, why: str) -> None:
        """End the connection with an error; what calls this flushes afterwards."""
        if self.is_ended:
            return
        engine, tcp = self._engine, self._tcp
        if engine.state & Endpoint.LOCAL_UNINIT:
            engine.open()
        engine.condition = Condition(name, why)
        engine.close()
        self._end(why)
        if tcp is not None:
            asyncio.get_running_loop().call_soon(tcp.close)

    def _on_open(self, event: Event) -> None:
        if self.is_ended:
            return
        if self._state is not ConnectionState.NEGOTIATED:
            raise ConnectionFault(ILLEGAL_STATE, "the client opened its connection twice")
        assert self._handshake_timer is not None
        self._handshake_timer.cancel()  # from here on the client waits for the gateway
        self.client.container = self._engine.remote_container or ""
        try:
            is_sole = SOLE in (self._engine.remote_desired_capabilities or ())
            properties = self._engine.remote_properties
        except TypeError as error:
            raise DataException(f"the capabilities or properties are not symbols: {error}") from error
        self.client.is_qpid_jms = isinstance(properties, dict) and properties.get("product") == "QpidJMS"
        self._happens(ConnectionEvent.OPEN_RECEIVED)
        self._clients.run(self._opened(is_sole=is_sole))

    async def _opened(self, *, is_sole: bool) -> None:
        self._engine.offered_capabilities = [symbol(name) for name in OFFERED]
        self._engine.properties = {symbol("product"): "kjms", symbol("version"): __version__}
        client = self.client
        try:
            self._clients.logged_in(self)
            await self._clients.wait_for_ending(self)
            if not await self._access.open(is_sole=is_sole):
                return
        except Exception as failure:
            if not isinstance(failure, JMSException):
                _log.exception("connection %d: opening it failed", client.number)
            self._refuse(failure)
        else:
            if not self.is_ended:
                self._answer_open(ConnectionEvent.OPENED)
                self._metrics.opened_total += 1
                login = "without a name" if client.user is None else f"user {client.user!r}"
                client.log("opened by %s, container %r, %s", client.peer, client.container, login)
                self._call(self._sessions.open)
        finally:
            was_abandoned = self._state is ConnectionState.ABANDONED
            self._happens(ConnectionEvent.OPENING_OVER)
            if was_abandoned:
                self._close_soon()
        self.flush()

    def _answer_open(self, event: ConnectionEvent) -> None:
        assert self._transport is not None
        self._happens(event)
        self._transport.max_frame_size = self._options.max_frame_size
        self._sessions.is_open = True
        self._engine.open()

    def _refuse(self, failure: Exception) -> None:
        """Open the connection as one that is closed at once (mapping §2.1)."""
        if self.is_ended:
            return
        engine = self._engine
        engine.properties = {**(engine.properties or {}), symbol(FAILED): True}
        engine.offered_capabilities = None
        if isinstance(failure, InvalidClientIDException):
            info = {symbol("invalid-field"): symbol("container-id")}
            engine.condition = Condition(INVALID_FIELD, str(failure), info)
        else:
            engine.condition = Condition(*condition_of(failure))
        self._answer_open(ConnectionEvent.REFUSED)
        engine.close()
        asyncio.get_running_loop().call_later(
            self._options.handshake_timeout / 1000, self._abort, "it was refused, and did not go"
        )
        self._metrics.refused_total += 1
        self.client.log("refused, of %s, container %r: %s", self.client.peer, self.client.container, failure)

    def _on_close(self, event: Event) -> None:
        self._end("the client closed it", None)  # which answers when all that the client had is free

    def _on_transport_error(self, event: Event) -> None:
        condition = event.transport.condition
        cause = "" if condition is None else f"{condition.name} {condition.description or ''}".rstrip()
        self._end(f"the connection broke: {cause}")

    # The end.

    async def drain(self) -> None:
        """Let what is under way come to its end, and close the connection."""
        self._sessions.pause()
        if self._transport is None or not self._sessions.is_open:
            self._abort("the gateway ends")
        else:
            while self._sessions.is_busy:
                await asyncio.sleep(DRAIN_LOOK_SECONDS)
        if not self.is_ended and self._sessions.is_open:
            self._engine.condition = Condition(FORCED, "the gateway ends; connect to another one")
            self._engine.close()
            self._end("the gateway ends", Outcome.CUT_OFF)
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

    def _end(self, why: str, outcome: Outcome | None = Outcome.LOST) -> None:
        """End the connection; *outcome* is that of the messages that the client has not answered for."""
        if self.is_ended:
            return
        self._happens(ConnectionEvent.ENDED)
        self._sessions.outcomes.flush()
        self.client.log("closed, of %s, container %r: %s", self.client.peer, self.client.container, why)
        self._stop_timer()
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
        self._clients.ending(self)
        self._sessions.end(self._close_soon, outcome, why)

    def _close_soon(self) -> None:
        """Close what is left in kjms; while the connection is being opened, the end of that does it."""
        if self._state is not ConnectionState.ABANDONED:
            self._clients.run(self._close())

    async def _close(self) -> None:
        """Give back what it had of kjms."""
        await self._access.close()
        if not self._is_released and _closes(self._engine):
            self.flush()
        if self._tcp is not None:  # it is counted no more, and so may not stay
            self._clients.part(self._tcp)
        if not self.closed.done():
            self._happens(ConnectionEvent.CLOSED)
            self.closed.set_result(None)
        if self._tcp is None or self._transport is None:  # else what was sent last may be on its way
            self.release()

    def release(self) -> None:
        """Free the engine with all that it has; for the end of the connection."""
        self._end("the gateway ends", Outcome.CUT_OFF)
        self._sessions.release()
        super().release()
        self._clients.released(self)


def _closes(engine: Connection) -> bool:
    """Close the engine's connection, which has ended; return whether that has to be sent."""
    if engine.state & Endpoint.LOCAL_UNINIT and not engine.state & Endpoint.REMOTE_UNINIT:
        engine.open()  # the client closed it before this answer
    if not engine.state & Endpoint.LOCAL_ACTIVE:
        return False
    engine.close()
    return True


def _common_name(tcp: asyncio.Transport | None) -> str | None:
    """Return the common name in the certificate that the client has shown, and that an authority vouches for."""
    certificate = None if tcp is None else tcp.get_extra_info("peercert")
    parts = (certificate or {}).get("subject", ())
    return next((str(value) for part in parts for key, value in part if key == "commonName"), None)


_HANDLERS: Final = {
    Event.CONNECTION_REMOTE_OPEN.number: AmqpConnection._on_open,
    Event.CONNECTION_REMOTE_CLOSE.number: AmqpConnection._on_close,
    Event.TRANSPORT_ERROR.number: AmqpConnection._on_transport_error,
}
