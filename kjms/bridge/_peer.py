"""The other broker as the bridge's thread sees it: messages to take and settle, or to send, whatever the line does.

A thread of its own runs the event loop with the line in it, and a new line when one is lost. The two threads share
deques, and post each other what is to be done.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from proton import Delivery

from kjms.bridge._errors import LostError
from kjms.bridge._line import InboundDelivery, PeerConnection
from kjms.errors import JMSException, JMSSecurityException

if TYPE_CHECKING:
    from kjms.bridge._options import PeerOptions

__all__ = ["Answer", "LinkSpec", "Peer"]

_log = logging.getLogger("kjms.bridge")

FIRST_PAUSE: Final = 0.1  # seconds until a lost line is made anew; doubled each time
LONGEST_PAUSE: Final = 10.0
CLOSE_SECONDS: Final = 10.0  # the broker has to say that it heard what was settled


@dataclass(frozen=True)
class LinkSpec:
    """What is received from the broker, or sent to it.

    Attributes:
        is_inward: Whether messages come from there.
        address: The broker's name of the queue or topic.
        is_topic: Whether it is a topic.
        selector: Which of its messages are wanted.
        has_own_selector: Whether somebody asked for a selector; else it is there for the bridge's sake.
        container: What the bridge is called there.
        link: What its link is called, and its subscription of a topic.
    """

    is_inward: bool
    address: str
    is_topic: bool
    selector: str | None
    has_own_selector: bool
    container: str
    link: str

    @property
    def doing(self) -> str:
        """The beginning of what is said when it goes wrong."""
        return f"{'receive from' if self.is_inward else 'send to'} the broker's {self.address!r}"


class Answer(NamedTuple):
    """What the broker said of a message: one of proton's outcomes, and AMQP's error if it has one."""

    token: Any
    state: int
    condition: str | None
    description: str | None


class Peer:
    """The other broker.

    Args:
        options: Who it is.
        way: What is received or sent there.
        window: So many messages may be on their way.
        wake: Called, in another thread, when there is something new.
    """

    def __init__(self, options: PeerOptions, way: LinkSpec, window: int, wake: Callable[[], None]) -> None:
        self._options = options
        self._way = way
        self._wake = wake
        self._limit = window
        self._place = f"{options.host}:{options.port}"
        self.failure: Exception | None = None
        """Why it ended for good."""
        self.is_connected = False
        self.connections = 0
        self._tickets: deque[InboundDelivery] = deque()  # that came and were not taken yet
        self._unsettled: set[InboundDelivery] = set()  # of the line that there is
        self._answers: deque[Answer] = deque()
        self._outbox: dict[Any, bytes] = {}  # sent or to be sent, and not answered
        self._unsent: deque[Any] = deque()
        self._line: PeerConnection | None = None
        self._is_closing = False
        self._is_pushing = False
        self._is_first_over = threading.Event()
        self._tls = self._tls_context()
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=f"kjms-bridge-{self._place}", daemon=True)

    # For the bridge's thread.

    def start(self) -> None:
        """Return when the broker gives or takes messages, or after `give_up`.

        Raises:
            JMSSecurityException: It does not let us in, or is not who it should be.
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
        taken: list[InboundDelivery] = []
        while most > len(taken) and most_bytes > 0:
            try:
                taken.append(self._tickets.popleft())
            except IndexError:  # there are no more, or the line was lost just now
                break
            most_bytes -= len(taken[-1].data)
        return taken

    def settle(self, tickets: Sequence[InboundDelivery], state: int = Delivery.ACCEPTED) -> None:
        """Say what became of messages; of a line that was lost the broker knows it already, or will ask again."""
        if tickets:
            self._post(self._settle, tickets, state)

    def limit(self, most: int) -> None:
        """Have no more than *most* messages here that are not settled."""
        if most != self._limit:
            self._limit = most
            self._post(self._grant)

    def send(self, messages: Iterable[tuple[Any, bytes]]) -> None:
        """Send messages, in their order, each with what its answer is told by."""
        self._post(self._send, list(messages))

    def answers(self) -> list[Answer]:
        """Return what the broker has said of messages."""
        return [self._answers.popleft() for _ in range(len(self._answers))]

    def close(self, *, for_ever: bool = False) -> bool:
        """End it; tell whether the broker has heard of all that was said."""
        if not self._thread.is_alive():
            return False
        self._post(self._close, for_ever)
        self._thread.join(CLOSE_SECONDS)
        return not self._thread.is_alive()

    def _post(self, call: Callable[..., None], *values: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(call, *values)

    # The loop's thread.

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._live())
        except Exception as failure:
            _log.exception("the bridge's connection failed")
            self._fail(failure)
        finally:
            self._is_first_over.set()
            self._loop.run_until_complete(asyncio.sleep(0))  # what was closed last hears of it
            self._loop.close()
            self._wake()

    def _fail(self, failure: Exception) -> None:
        self.failure = failure
        self._is_first_over.set()
        self._wake()

    async def _live(self) -> None:
        patience = self._options.connect_timeout / 1000
        deadline = self._loop.time() + patience
        pause = FIRST_PAUSE
        while not self._is_closing:
            before = self.connections
            cause = await self._use_a_line(patience)
            if self._is_closing:
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

    async def _use_a_line(self, patience: float) -> Exception:
        """Make a line, and return what ended it."""
        line: PeerConnection | None = None
        made: list[PeerConnection] = []  # by asyncio, which does not return it if a handshake fails

        def make() -> PeerConnection:
            made.append(PeerConnection(self, self._options, self._way))
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
            await self._wait_for(connecting, patience)
            _, line = connecting.result()
            self._line = line
            await self._wait_for(line.attached, patience)
            if not line.attached.done():
                line.abort(LostError("it did not answer in time"))
            return await line.ended
        except ssl.SSLCertVerificationError as error:
            return JMSSecurityException(
                f"the certificate of {self._place} is not valid: {error.verify_message}", None, error
            )
        except (OSError, TimeoutError, asyncio.TimeoutError) as error:
            return LostError(str(error) or "it did not answer in time")
        finally:
            self._line = None
            self.is_connected = False
            self._tickets.clear()  # the broker gives them to somebody again
            self._unsettled.clear()
            if line is not None:
                await line.gone()
            for each in made:
                each.release()

    async def _wait_for(self, wanted: asyncio.Future[Any], patience: float) -> None:
        """Wait until *wanted* is done, for *patience* seconds at most; no longer than until the bridge closes."""
        closing = self._loop.create_task(self._closing.wait())
        await asyncio.wait([wanted, closing], timeout=patience, return_when=asyncio.FIRST_COMPLETED)
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

    def line_is_ready(self, line: PeerConnection) -> None:
        """Hear that messages can come or go."""
        self._line = line
        self.is_connected = True
        self.connections += 1
        if self.connections > 1:
            _log.warning("connected to %s again", self._place)
        self._is_first_over.set()
        self._unsent = deque(self._outbox)
        if self._way.is_inward:
            self._grant()
        else:
            self._push()
        self._wake()

    def line_has_credit(self, line: PeerConnection) -> None:
        """Hear that the broker takes messages."""
        if not self._way.is_inward:
            self._push()

    # Messages from the broker.

    def arrived(self, ticket: InboundDelivery) -> None:
        """Hear of a message."""
        self._unsettled.add(ticket)
        self._tickets.append(ticket)
        if len(self._tickets) == 1:
            self._wake()
        self._grant(is_flushed=False)

    def _settle(self, tickets: Sequence[InboundDelivery], state: int) -> None:
        line = self._line
        if line is None:
            return
        for ticket in tickets:
            if ticket in self._unsettled:
                self._unsettled.discard(ticket)
                line.settle(ticket, state)
        self._grant(is_flushed=False)
        line.flush()

    def _grant(self, *, is_flushed: bool = True) -> None:
        """Let the broker send more, when half of what it may is used up."""
        line = self._line
        if line is None or not line.is_attached or self._is_closing:
            return
        there = line.credit + len(self._unsettled)
        if there <= self._limit // 2 or (there < self._limit and line.credit == 0):
            line.grant(self._limit - there)
            if is_flushed:
                line.flush()

    # Messages to the broker.

    def _send(self, messages: list[tuple[Any, bytes]]) -> None:
        for token, data in messages:
            self._outbox[token] = data
            self._unsent.append(token)
        self._push()

    def _push(self) -> None:
        line = self._line
        if line is None or self._is_pushing:
            return
        self._is_pushing = True
        while self._unsent:
            while self._unsent and line.has_room():
                token = self._unsent.popleft()
                line.send(token, self._outbox[token])
            before = len(self._unsent)
            line.flush()
            if not line.has_room() or before == 0:
                break
        self._is_pushing = False

    def answered(self, token: Any, state: int, condition: str | None, description: str | None) -> None:
        """Hear what became of a message."""
        if self._outbox.pop(token, None) is not None:
            self._answers.append(Answer(token, state, condition, description))
            if len(self._answers) == 1:
                self._wake()

    def _close(self, for_ever: bool) -> None:
        self._is_closing = True
        self._closing.set()
        line = self._line
        if line is not None:
            for ticket in self._unsettled:
                line.settle(ticket, Delivery.RELEASED)
            line.close(for_ever=for_ever)
