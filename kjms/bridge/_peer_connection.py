"""One connection to the other broker: its bytes, the engine behind them, and one link; in the loop's thread.

TLS is asyncio's: the engine never sees it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol

from proton import (
    SASL,
    Delivery,
    Described,
    Event,
    Link,
    Terminus,
    Transport,
    TransportException,
    symbol,
    ulong,
)

from kjms._version import __version__
from kjms.amqp.transport import EngineProtocol
from kjms.bridge._errors import LostError, is_passing, refusal
from kjms.errors import JMSException, JMSSecurityException

if TYPE_CHECKING:
    from kjms.bridge._link_spec import LinkSpec
    from kjms.bridge._options import PeerOptions

__all__ = ["InboundDelivery", "PeerConnection"]

HANG_UP_SECONDS: Final = 0.5  # that a broker has to take what was sent last
SELECTOR: Final = "apache.org:selector-filter:string"
OUTGOING_BYTES: Final = 1 << 20


class PeerConnectionState(Enum):
    """The state of a connection to the other broker, and of its link.

    Attributes:
        is_closing: Whether the bridge has ended it, or it is lost.
    """

    ATTACHING = "the broker has not attached the link"
    ATTACHED = "messages can come or go"
    CLOSING = "the bridge closes it, and the broker has to answer"
    ENDED = "it is lost, or refused, or closed"

    is_closing: bool


for _state in PeerConnectionState:
    _state.is_closing = _state in {PeerConnectionState.CLOSING, PeerConnectionState.ENDED}


class PeerConnectionEvent(Enum):
    """What happens to a connection to the other broker."""

    ATTACHED = "the broker attaches the link"
    CLOSED = "the bridge closes the link"
    ENDED = "something ends the connection"


PEER_CONNECTION: Final[Mapping[tuple[PeerConnectionState, PeerConnectionEvent], PeerConnectionState]] = {
    (PeerConnectionState.ATTACHING, PeerConnectionEvent.ATTACHED): PeerConnectionState.ATTACHED,
    (PeerConnectionState.ATTACHING, PeerConnectionEvent.CLOSED): PeerConnectionState.CLOSING,
    (PeerConnectionState.ATTACHING, PeerConnectionEvent.ENDED): PeerConnectionState.ENDED,
    (PeerConnectionState.ATTACHED, PeerConnectionEvent.ATTACHED): PeerConnectionState.ATTACHED,
    (PeerConnectionState.ATTACHED, PeerConnectionEvent.CLOSED): PeerConnectionState.CLOSING,
    (PeerConnectionState.ATTACHED, PeerConnectionEvent.ENDED): PeerConnectionState.ENDED,
    (
        PeerConnectionState.CLOSING,
        PeerConnectionEvent.ATTACHED,
    ): PeerConnectionState.CLOSING,  # the answers of both cross on their way
    (PeerConnectionState.CLOSING, PeerConnectionEvent.CLOSED): PeerConnectionState.CLOSING,
    (PeerConnectionState.CLOSING, PeerConnectionEvent.ENDED): PeerConnectionState.ENDED,
    (PeerConnectionState.ENDED, PeerConnectionEvent.ATTACHED): PeerConnectionState.ENDED,
    (PeerConnectionState.ENDED, PeerConnectionEvent.CLOSED): PeerConnectionState.ENDED,
    (PeerConnectionState.ENDED, PeerConnectionEvent.ENDED): PeerConnectionState.ENDED,
}


class InboundDelivery:
    """A message that was received; its connection keeps proton's delivery, which only the loop's thread may free."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class ConnectionUser(Protocol):
    """What a connection reports to; its methods are called in the loop's thread."""

    def ready(self, connection: PeerConnection) -> None:
        """Note that messages can come or go."""

    def has_credit(self) -> None:
        """Note that the broker takes messages, or more of them."""

    def arrived(self, delivery: InboundDelivery) -> None:
        """Note that a message came."""

    def settled(self, token: Any, state: int, condition: str | None, description: str | None) -> None:
        """Note the outcome of a message that was sent."""


class PeerConnection(EngineProtocol):
    """A connection.

    Args:
        user: What it reports to.
        options: Where the broker is, and how to log in.
        spec: What is received or sent there.

    Attributes:
        attached: Done when the broker has attached the link, or with the error that ended the connection before.
        ended: Done with what ended the connection.
    """

    def __init__(self, user: ConnectionUser, options: PeerOptions, spec: LinkSpec) -> None:
        super().__init__()
        self._user = user
        self._options = options
        self._spec = spec
        self._transport = Transport(Transport.CLIENT)
        self._unsettled: dict[InboundDelivery, Delivery] = {}
        self._partial = bytearray()  # of the message that is coming
        self._tags = 0
        self._state = PeerConnectionState.ATTACHING
        self._is_dispatching = False
        self._has_received = False
        loop = asyncio.get_running_loop()
        self.attached: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[Exception] = loop.create_future()
        self._lost: asyncio.Future[None] = loop.create_future()
        self._prepare()

    def _prepare(self) -> None:
        options, engine, transport = self._options, self._engine, self._transport
        assert transport is not None
        engine.container = self._spec.container
        engine.hostname = options.host
        engine.properties = {symbol("product"): "kjms bridge", symbol("version"): __version__}
        sasl = transport.sasl()
        login = options.login
        if login is not None:
            engine.user, engine.password = login
            sasl.allow_insecure_mechs = True  # whether it is TLS is decided by the URL, and the engine does not see it
            sasl.allowed_mechs("PLAIN")
        else:
            sasl.allowed_mechs("EXTERNAL ANONYMOUS" if options.tls_certificate else "ANONYMOUS")
        transport.max_frame_size = options.max_frame_size
        transport.idle_timeout = options.idle_timeout / 1000
        transport.bind(engine)
        engine.open()
        session = engine.session()
        session.open()
        self.link = session.receiver(self._spec.link) if self._spec.is_inward else session.sender(self._spec.link)
        _describe(self.link, self._spec)
        self.link.open()

    @property
    def is_attached(self) -> bool:
        """Whether messages can come or go."""
        return self._state is PeerConnectionState.ATTACHED

    def _happens(self, event: PeerConnectionEvent) -> None:
        self._state = PEER_CONNECTION[self._state, event]

    # Bytes.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send what the engine has prepared."""
        assert isinstance(transport, asyncio.Transport)
        self._tcp = transport
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Take bytes from the broker."""
        if self._is_released:
            return
        self._has_received = True
        try:
            self._push(data)
        except TransportException as error:
            self.end(LostError(f"what it sends is no AMQP 1.0: {error}"))
        self.flush()

    def connection_lost(self, error: Exception | None) -> None:
        """End the connection: it is gone."""
        self._tcp = None
        if not self._lost.done():
            self._lost.set_result(None)
        self._stop_timer()
        transport = self._transport
        if transport is None:
            return
        if self._has_received and error is None:  # it may have sent the reason
            with contextlib.suppress(TransportException):
                transport.close_tail()
            transport.pending()
            self._dispatch()
        if isinstance(error, ssl.SSLError):
            self.end(JMSSecurityException(f"the broker does not take the bridge's certificate: {error}", None, error))
        elif error is not None:
            self.end(LostError(str(error)))
        elif self._has_received:
            self.end(LostError("it closed the connection"))
        else:
            self.end(LostError("it closed the connection before it sent anything; it may want TLS, or a certificate"))

    def _fill(self) -> None:
        self._dispatch()

    @property
    def is_ended(self) -> bool:
        """Whether the connection has ended."""
        return self.ended.done()

    # Events.

    def _dispatch(self) -> None:
        if self._is_dispatching:  # what handling an event makes happen is handled after it
            return
        self._is_dispatching = True
        while True:
            event = self._collector.peek()
            if event is None:
                break
            handle = _HANDLERS.get(event.type)
            if handle is not None:
                try:
                    handle(self, event)
                except UnicodeDecodeError as error:  # the engine passes names on unread
                    self.end(LostError(f"a text that it sent is not encoded as it should be ({error.reason})"))
            self._collector.pop()
        self._is_dispatching = False

    def _on_attach(self, event: Event) -> None:
        link = event.link
        terminus = link.remote_source if self._spec.is_inward else link.remote_target
        if terminus.address is None or self.ended.done():  # the broker refuses the link, and will give the reason
            return
        if self._spec.is_inward and self._spec.selector and not _has_selector(terminus):
            self.end(
                JMSException(f"{self._spec.doing}: the broker takes no selectors, which {self._spec.selector_reason}")
            )
            return
        self._happens(PeerConnectionEvent.ATTACHED)
        if not self.attached.done():
            self.attached.set_result(None)
        self._user.ready(self)

    def _on_flow(self, event: Event) -> None:
        self._user.has_credit()

    def _on_delivery(self, event: Event) -> None:
        delivery = event.delivery
        if self._spec.is_inward:
            if delivery.readable:
                self._read(event.link, delivery)
        elif delivery.updated and delivery.remote_state:
            condition = delivery.remote.condition if delivery.remote_state == Delivery.REJECTED else None
            state, token = delivery.remote_state, delivery.token
            is_hopeless = state == Delivery.MODIFIED and bool(delivery.remote.undeliverable)
            delivery.settle()
            self._user.settled(
                token,
                Delivery.REJECTED if is_hopeless else state,
                None if condition is None else condition.name,
                None if condition is None else condition.description,
            )

    def _read(self, link: Link, delivery: Delivery) -> None:
        self._partial += link.recv(delivery.pending) or b""  # a link's transfers come one after the other
        if delivery.aborted:
            self._partial.clear()
            delivery.settle()
        elif not delivery.partial:
            data = bytes(self._partial)
            self._partial.clear()
            link.advance()
            received = InboundDelivery(data)
            self._unsettled[received] = delivery
            self._user.arrived(received)

    def _on_link_end(self, event: Event) -> None:
        link = event.link
        if self._state.is_closing:
            self._engine.close()
            return
        condition = link.remote_condition
        self._refused(condition, "it ended the link")

    def _on_session_end(self, event: Event) -> None:
        self._refused(event.session.remote_condition, "session ended")

    def _on_close(self, event: Event) -> None:
        if self._state.is_closing:
            event.transport.close_tail()
            return
        self._refused(self._engine.remote_condition, "it closed the connection")

    def _refused(self, condition: Any, otherwise: str) -> None:
        name = None if condition is None else str(condition.name)
        text = None if condition is None else condition.description
        if is_passing(name):
            self.end(LostError(f"{name}: {text}" if name else otherwise))
        else:
            self.end(refusal(self._spec.doing, name, text))

    def _on_trouble(self, event: Event) -> None:
        transport = event.transport
        condition = transport.condition
        name = None if condition is None else str(condition.name)
        text = None if condition is None else str(condition.description)
        if transport.sasl().outcome not in {SASL.OK, None} or name == "amqp:unauthorized-access":
            login = self._options.login
            login_name = f"user {login[0]!r}" if login is not None else "clients without a name"
            self.end(JMSSecurityException(f"the broker does not let in {login_name}: {text}", name))
        else:
            self.end(LostError(f"{name}: {text}"))

    def end(self, cause: Exception) -> None:
        """End the connection because of *cause*."""
        was_closing = self._state.is_closing
        self._happens(PeerConnectionEvent.ENDED)
        if not self.ended.done():
            self.ended.set_result(cause)
        if not self.attached.done():
            self.attached.set_exception(cause)
            self.attached.exception()  # else asyncio logs that it was never retrieved
        if self._tcp is not None and not was_closing:
            self._engine.close()
            asyncio.get_running_loop().call_soon(self._hang_up)

    async def gone(self) -> None:
        """Return when the connection, which has ended, is closed; it is cut off where the broker does not let it go."""
        await asyncio.wait([self._lost], timeout=HANG_UP_SECONDS)
        if self._tcp is not None:
            self._tcp.abort()
            await self._lost

    def release(self) -> None:
        """Free the engine with all that it has; for the end of the connection."""
        if not self._is_released:
            self._unsettled.clear()
            del self.link
        super().release()

    def _hang_up(self) -> None:
        self.flush()
        if self._tcp is not None:
            self._tcp.close()

    # For the bridge.

    def grant(self, credit: int) -> None:
        """Let the broker send so many messages more."""
        self.link.flow(credit)

    @property
    def credit(self) -> int:
        """How many messages may come, or may be sent."""
        return int(self.link.credit)

    def has_room(self) -> bool:
        """Return whether a message can be sent now."""
        return (
            self.is_attached
            and self.link.credit > 0
            and not self.is_congested
            and self.link.session.outgoing_bytes < OUTGOING_BYTES
        )

    def send(self, token: object, data: bytes) -> None:
        """Send a message; its outcome is reported with *token*."""
        self._tags += 1
        delivery = self.link.delivery(str(self._tags))
        delivery.token = token
        self.link.send(data)
        self.link.advance()

    def settle(self, received: InboundDelivery, state: int) -> None:
        """Settle a message with its outcome."""
        delivery = self._unsettled.pop(received, None)
        if delivery is not None and not self.ended.done():
            delivery.update(state)
            delivery.settle()

    def close(self, *, is_final: bool) -> None:
        """End the link, and the connection when the broker has confirmed all that was sent before.

        Args:
            is_final: Whether a subscription ends, too.
        """
        if self.ended.done():
            return
        self._happens(PeerConnectionEvent.CLOSED)
        if self._spec.is_topic and self._spec.is_inward and not is_final:
            self.link.detach()
        else:
            self.link.close()
        self.flush()


def _describe(link: Link, spec: LinkSpec) -> None:
    """Write what the bridge wants into its attach."""
    mine, other = (link.source, link.target) if spec.is_inward else (link.target, link.source)
    mine.address = spec.address
    mine.capabilities.put_object(symbol("topic" if spec.is_topic else "queue"))
    other.address = spec.container
    if spec.is_inward:
        if spec.is_topic:
            mine.durability = Terminus.DELIVERIES
            mine.expiry_policy = Terminus.EXPIRE_NEVER
        if spec.selector:
            mine.filter.put_dict({symbol("jms-selector"): Described(symbol(SELECTOR), spec.selector)})
    link.snd_settle_mode = Link.SND_UNSETTLED
    link.rcv_settle_mode = Link.RCV_FIRST


def _has_selector(terminus: Terminus) -> bool:
    data = terminus.filter
    data.rewind()
    found = data.get_object() if data.next() is not None else None
    if not isinstance(found, dict):
        return False
    # In a list: a descriptor may be of any type, and have no hash.
    return any(getattr(value, "descriptor", None) in [SELECTOR, ulong(0x0000468C00000004)] for value in found.values())


_HANDLERS: Final[dict[Any, Callable[[PeerConnection, Event], None]]] = {
    Event.LINK_REMOTE_OPEN: PeerConnection._on_attach,
    Event.LINK_FLOW: PeerConnection._on_flow,
    Event.DELIVERY: PeerConnection._on_delivery,
    Event.LINK_REMOTE_CLOSE: PeerConnection._on_link_end,
    Event.LINK_REMOTE_DETACH: PeerConnection._on_link_end,
    Event.SESSION_REMOTE_CLOSE: lambda connection, event: connection._refused(
        event.session.remote_condition, "session ended"
    ),
    Event.CONNECTION_REMOTE_CLOSE: PeerConnection._on_close,
    Event.TRANSPORT_ERROR: PeerConnection._on_trouble,
}
