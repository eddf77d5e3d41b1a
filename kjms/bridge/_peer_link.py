"""The link to the other broker as the bridge's thread sees it, whatever becomes of single connections.

A thread of its own runs the event loop with the connection in it, and makes a new one when one is lost. The two threads
share deques, and post each other what is to be done.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from proton import Delivery

from kjms.bridge._errors import LostError
from kjms.bridge._inbound import InboundQueue
from kjms.bridge._outbound import OutboundQueue, PeerOutcome
from kjms.bridge._peer_connection import InboundDelivery, PeerConnection
from kjms.errors import JMSException, JMSSecurityException

if TYPE_CHECKING:
    from kjms.bridge._link_spec import LinkSpec
    from kjms.bridge._options import PeerOptions

__all__ = ["PeerLink"]

_log = logging.getLogger("kjms.bridge")

FIRST_PAUSE: Final = 0.1  # seconds until a lost connection is made anew; doubled each time
LONGEST_PAUSE: Final = 10.0
CLOSE_SECONDS: Final = 10.0  # that the broker has to confirm what was settled


class PeerLink:
    """A link to the other broker, which outlives its connections.

    Args:
        options: Where the broker is, and how to log in.
        spec: What is received or sent there.
        window: How many messages may be on their way.
        wake: Called, in another thread, when there is something new.

    Attributes:
        failure: The error that ended it for good.
        is_connected: Whether the broker is there.
        connections: How many connections there have been.
    """

    def __init__(self, options: PeerOptions, spec: LinkSpec, window: int, wake: Callable[[], None]) -> None:
        self._options = options
        self._spec = spec
        self._wake = wake
        self.failure: Exception | None = None
        self.is_connected = False
        self.connections = 0
        self._inbound = InboundQueue(window, wake)
        self._outbound = OutboundQueue(wake)
        self._connection: PeerConnection | None = None
        self._is_first_over = threading.Event()
        self._tls = self._tls_context()
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=f"kjms-bridge-{self._place}", daemon=True)

    @property
    def _place(self) -> str:
        return f"{self._options.host}:{self._options.port}"

    # For the bridge's thread.

    def start(self) -> None:
        """Return when the broker gives or takes messages, or after `give_up`.

        Raises:
            JMSSecurityException: It does not let the bridge in, or its certificate is not valid.
            InvalidDestinationException: It has no such address.
            JMSException: It does not answer, or refuses in another way.
        """
        self._thread.start()
        self._is_first_over.wait()
        if self.failure is not None:
            raise self.failure

    def give_up(self) -> None:
        """End the attempts to connect; for any thread."""
        self._post(self._close, False)

    def take(self, most: int, most_bytes: int) -> list[InboundDelivery]:
        """Return messages that came."""
        return self._inbound.take(most, most_bytes)

    def settle(self, deliveries: Sequence[InboundDelivery], state: int = Delivery.ACCEPTED) -> None:
        """Settle messages; the broker delivers those again that came by a connection that was lost."""
        if deliveries:
            self._post(self._settle, deliveries, state)

    def limit(self, most: int) -> None:
        """Have no more than *most* messages here that are not settled."""
        if most != self._inbound.limit:
            self._inbound.limit = most
            self._post(self._grant)

    def send(self, messages: Iterable[tuple[Any, bytes]]) -> None:
        """Send messages, in their order, each with a token that comes back with its outcome."""
        self._post(self._send, list(messages))

    def outcomes(self) -> list[PeerOutcome]:
        """Return the outcomes that the broker has given."""
        return self._outbound.outcomes()

    def close(self, *, is_final: bool = False) -> bool:
        """End it; return whether the broker has confirmed all that was settled.

        Args:
            is_final: Whether a subscription ends, too.
        """
        if not self._thread.is_alive():
            return False
        self._post(self._close, is_final)
        self._thread.join(CLOSE_SECONDS)
        return not self._thread.is_alive()

    def _post(self, call: Callable[..., None], *values: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(call, *values)

    # The event loop's thread.

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._live())
        except Exception as failure:
            _log.exception("the bridge's connection failed")
            self._fail(failure)
        finally:
            self._is_first_over.set()
            self._loop.run_until_complete(asyncio.sleep(0))  # `connection_lost` comes for what was closed last
            self._loop.close()
            self._wake()

    def _fail(self, failure: Exception) -> None:
        self.failure = failure
        self._is_first_over.set()
        self._wake()

    async def _live(self) -> None:
        timeout = self._options.connect_timeout / 1000
        deadline = self._loop.time() + timeout
        pause = FIRST_PAUSE
        while not self._closing.is_set():
            before = self.connections
            cause = await self._use_a_connection(timeout)
            if self._closing.is_set():
                break
            if isinstance(cause, JMSException):
                self._fail(cause)
                break
            if self.connections == 0 and self._loop.time() + pause > deadline:
                milliseconds = self._options.connect_timeout
                self._fail(JMSException(f"no broker at {self._place}, tried for {milliseconds} ms: {cause}"))
                break
            if self.connections > before:
                pause = FIRST_PAUSE
                _log.warning("the connection to %s is lost: %s", self._place, cause)
            with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
                await asyncio.wait_for(self._closing.wait(), pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _use_a_connection(self, timeout: float) -> Exception:
        """Make a connection, and return what ended it."""
        connection: PeerConnection | None = None
        made: list[PeerConnection] = []  # by asyncio, which does not return it if a handshake fails

        def make() -> PeerConnection:
            made.append(PeerConnection(self, self._options, self._spec))
            return made[-1]

        try:
            connecting = self._loop.create_task(
                self._loop.create_connection(
                    make,
                    self._options.host,
                    self._options.port,
                    ssl=self._tls,
                    server_hostname=self._options.host if self._tls is not None else None,
                )
            )
            await self._wait_for(connecting, timeout)
            _, connection = connecting.result()
            self._connection = connection
            await self._wait_for(connection.attached, timeout)
            if not connection.attached.done():
                connection.end(LostError("it did not answer in time"))
            return await connection.ended
        except ssl.SSLCertVerificationError as error:
            return JMSSecurityException(
                f"the certificate of {self._place} is not valid: {error.verify_message}", None, error
            )
        except (OSError, TimeoutError, asyncio.TimeoutError) as error:
            return LostError(str(error) or "it did not answer in time")
        finally:
            self._connection = None
            self.is_connected = False
            self._inbound.lost()
            if connection is not None:
                await connection.gone()
            for each in made:
                each.release()

    async def _wait_for(self, wanted: asyncio.Future[Any], timeout: float) -> None:
        """Wait until *wanted* is done, for *timeout* seconds at most; no longer than until the bridge closes."""
        closing = self._loop.create_task(self._closing.wait())
        await asyncio.wait([wanted, closing], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        closing.cancel()
        if not wanted.done() and isinstance(wanted, asyncio.Task):
            wanted.cancel()
            await asyncio.wait([wanted])
            raise TimeoutError

    def _tls_context(self) -> ssl.SSLContext | None:
        options = self._options
        if not options.is_secure:
            return None
        context = ssl.create_default_context(cafile=options.tls_ca)
        if options.tls_certificate is not None:
            context.load_cert_chain(options.tls_certificate, options.tls_key)
        return context

    # For the connection, and for what the bridge's thread posts.

    def ready(self, connection: PeerConnection) -> None:
        """Note that messages can come or go."""
        self._connection = connection
        self.is_connected = True
        self.connections += 1
        if self.connections > 1:
            _log.warning("connected to %s again", self._place)
        self._is_first_over.set()
        self._outbound.begin_again()
        if self._spec.is_inward:
            self._grant()
        else:
            self._outbound.push(connection)
        self._wake()

    def has_credit(self) -> None:
        """Note that the broker takes messages, or more of them."""
        if not self._spec.is_inward:
            self._outbound.push(self._connection)

    def arrived(self, delivery: InboundDelivery) -> None:
        """Note that a message came."""
        self._inbound.arrived(delivery, self._open_connection)

    def settled(self, token: Any, state: int, condition: str | None, description: str | None) -> None:
        """Note the outcome of a message that was sent."""
        self._outbound.settled(PeerOutcome(token, state, condition, description))

    @property
    def _open_connection(self) -> PeerConnection | None:
        """The connection, unless it is being closed."""
        return None if self._closing.is_set() else self._connection

    def _settle(self, deliveries: Sequence[InboundDelivery], state: int) -> None:
        connection = self._connection
        if connection is None:
            return
        self._inbound.settle(deliveries, state, connection)
        self._inbound.grant(self._open_connection)
        connection.flush()

    def _grant(self) -> None:
        connection = self._open_connection
        if connection is not None and self._inbound.grant(connection):
            connection.flush()

    def _send(self, messages: list[tuple[Any, bytes]]) -> None:
        self._outbound.send(messages, self._connection)

    def _close(self, is_final: bool) -> None:
        self._closing.set()
        connection = self._connection
        if connection is not None:
            self._inbound.release(connection)
            connection.close(is_final=is_final)
