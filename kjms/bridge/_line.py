"""One connection to the other broker: its bytes, the engine that understands them, and one link; in the loop's thread.

TLS is asyncio's: the engine never sees it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

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
    from kjms.bridge._options import PeerOptions
    from kjms.bridge._peer import LinkSpec, Peer

__all__ = ["InboundDelivery", "PeerConnection"]

HANG_UP_SECONDS: Final = 0.5  # that a broker has to take what was sent last
SELECTOR: Final = "apache.org:selector-filter:string"
OUTGOING_BYTES: Final = 1 << 20


class InboundDelivery:
    """A message that was received; its line keeps the delivery, which only the loop's thread may free."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class PeerConnection(EngineProtocol):
    """A connection.

    Args:
        peer: Who wants it.
        options: Who is on the other side.
        way: What is received or sent there.
    """

    def __init__(self, peer: Peer, options: PeerOptions, way: LinkSpec) -> None:
        super().__init__()
        self._peer = peer
        self._options = options
        self._way = way
        self._transport = Transport(Transport.CLIENT)
        self._unsettled: dict[InboundDelivery, Delivery] = {}
        self._partial = bytearray()  # of the message that is coming
        self._tags = 0
        self.is_attached = False
        self._is_closing = False
        self._is_dispatching = False
        self._has_heard = False
        loop = asyncio.get_running_loop()
        self.attached: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[Exception] = loop.create_future()  # with what ended it
        self._lost: asyncio.Future[None] = loop.create_future()
        self._prepare()

    def _prepare(self) -> None:
        options, engine, transport = self._options, self._engine, self._transport
        assert transport is not None
        engine.container = self._way.container
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
        self.link = session.receiver(self._way.link) if self._way.is_inward else session.sender(self._way.link)
        self._describe(self.link)
        self.link.open()

    def _describe(self, link: Link) -> None:
        way = self._way
        mine, other = (link.source, link.target) if way.is_inward else (link.target, link.source)
        mine.address = way.address
        mine.capabilities.put_object(symbol("topic" if way.is_topic else "queue"))
        other.address = way.container
        if way.is_inward:
            if way.is_topic:
                mine.durability = Terminus.DELIVERIES
                mine.expiry_policy = Terminus.EXPIRE_NEVER
            if way.selector:
                mine.filter.put_dict({symbol("jms-selector"): Described(symbol(SELECTOR), way.selector)})
        link.snd_settle_mode = Link.SND_UNSETTLED
        link.rcv_settle_mode = Link.RCV_FIRST

    # Bytes.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to speak."""
        assert isinstance(transport, asyncio.Transport)
        self._tcp = transport
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Take bytes from the broker."""
        if self._is_released:
            return
        self._has_heard = True
        try:
            self._push(data)
        except TransportException as error:
            self._end(LostError(f"what it says is no AMQP 1.0: {error}"))
        self.flush()

    def eof_received(self) -> bool:
        """Hear that the broker says no more."""
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """Hear that the connection is gone."""
        self._tcp = None
        if not self._lost.done():
            self._lost.set_result(None)
        self._stop_timer()
        transport = self._transport
        if transport is None:
            return
        if self._has_heard and error is None:  # it may have said why
            with contextlib.suppress(TransportException):
                transport.close_tail()
            transport.pending()
            self._dispatch()
        if isinstance(error, ssl.SSLError):
            self._end(JMSSecurityException(f"the broker does not take the bridge's certificate: {error}", None, error))
        elif error is not None:
            self._end(LostError(str(error)))
        elif self._has_heard:
            self._end(LostError("it closed the connection"))
        else:
            self._end(LostError("it closed the connection without a word; it may want TLS, or a certificate"))

    def _fill(self) -> None:
        self._dispatch()

    @property
    def is_ended(self) -> bool:
        """Whether the connection has ended."""
        return self.ended.done()

    # What the engine says.

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
                    self._end(LostError(f"a text of its is not encoded as it should be ({error.reason})"))
            self._collector.pop()
        self._is_dispatching = False

    def _on_attach(self, event: Event) -> None:
        link = event.link
        terminus = link.remote_source if self._way.is_inward else link.remote_target
        if terminus.address is None:  # the broker refuses the link, and will say why
            return
        if self._way.is_inward and self._way.selector and not _has_selector(terminus):
            self._end(JMSException(f"{self._way.doing}: the broker takes no selectors, which {self._why_selector()}"))
            return
        self.is_attached = True
        if not self.attached.done():
            self.attached.set_result(None)
        self._peer.line_is_ready(self)

    def _why_selector(self) -> str:
        return "was asked for" if self._way.has_own_selector else "are needed so that nothing moves in circles"

    def _on_flow(self, event: Event) -> None:
        self._peer.line_has_credit(self)

    def _on_delivery(self, event: Event) -> None:
        delivery = event.delivery
        if self._way.is_inward:
            if delivery.readable:
                self._read(event.link, delivery)
        elif delivery.updated and delivery.remote_state:
            condition = delivery.remote.condition if delivery.remote_state == Delivery.REJECTED else None
            state, token = delivery.remote_state, delivery.token
            is_hopeless = state == Delivery.MODIFIED and bool(delivery.remote.undeliverable)
            delivery.settle()
            self._peer.answered(
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
            ticket = InboundDelivery(data)
            self._unsettled[ticket] = delivery
            self._peer.arrived(ticket)

    def _on_link_end(self, event: Event) -> None:
        link = event.link
        if self._is_closing:
            self._engine.close()
            return
        condition = link.remote_condition
        self._refused(condition, "it ended the link")

    def _on_close(self, event: Event) -> None:
        if self._is_closing:
            event.transport.close_tail()
            return
        self._refused(self._engine.remote_condition, "it closed the connection")

    def _refused(self, condition: Any, otherwise: str) -> None:
        name = None if condition is None else str(condition.name)
        said = None if condition is None else condition.description
        if is_passing(name):
            self._end(LostError(f"{name}: {said}" if name else otherwise))
        else:
            self._end(refusal(self._way.doing, name, said))

    def _on_trouble(self, event: Event) -> None:
        transport = event.transport
        condition = transport.condition
        name = None if condition is None else str(condition.name)
        said = None if condition is None else str(condition.description)
        if transport.sasl().outcome not in {SASL.OK, None} or name == "amqp:unauthorized-access":
            login = self._options.login
            who = f"user {login[0]!r}" if login is not None else "whoever gives no name"
            self._end(JMSSecurityException(f"the broker does not let in {who}: {said}", name))
        else:
            self._end(LostError(f"{name}: {said}"))

    def _end(self, cause: Exception) -> None:
        self.is_attached = False
        if not self.ended.done():
            self.ended.set_result(cause)
        if not self.attached.done():
            self.attached.set_exception(cause)
            self.attached.exception()  # somebody has seen it
        if self._tcp is not None and not self._is_closing:
            self._is_closing = True
            self._engine.close()
            asyncio.get_running_loop().call_soon(self._hang_up)

    def abort(self, cause: Exception) -> None:
        """End the connection because of *cause*."""
        self._end(cause)

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

    # What the bridge wants.

    def grant(self, credit: int) -> None:
        """Let the broker send so many messages more."""
        self.link.flow(credit)

    @property
    def credit(self) -> int:
        """How many messages may come, or may be sent."""
        return int(self.link.credit)

    def has_room(self) -> bool:
        """Tell whether a message can be sent now."""
        return (
            self.is_attached
            and self.link.credit > 0
            and not self.is_congested
            and self.link.session.outgoing_bytes < OUTGOING_BYTES
        )

    def send(self, token: object, data: bytes) -> None:
        """Send a message; `Peer.answered` is told what became of it."""
        self._tags += 1
        delivery = self.link.delivery(str(self._tags))
        delivery.token = token
        self.link.send(data)
        self.link.advance()

    def settle(self, ticket: InboundDelivery, state: int) -> None:
        """Say what became of a message."""
        delivery = self._unsettled.pop(ticket, None)
        if delivery is not None and not self.ended.done():
            delivery.update(state)
            delivery.settle()

    def close(self, *, for_ever: bool) -> None:
        """End the link, and the connection when the broker has heard of all that was said before.

        Args:
            for_ever: Whether a subscription ends, too.
        """
        if self.ended.done():
            return
        self._is_closing = True
        if self._way.is_topic and self._way.is_inward and not for_ever:
            self.link.detach()
        else:
            self.link.close()
        self.flush()


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
    Event.SESSION_REMOTE_CLOSE: lambda line, event: line._refused(event.session.remote_condition, "session ended"),
    Event.CONNECTION_REMOTE_CLOSE: PeerConnection._on_close,
    Event.TRANSPORT_ERROR: PeerConnection._on_trouble,
}
