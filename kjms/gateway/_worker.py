"""The thread of one AMQP session: it owns a kjms session, which blocks, so that the event loop never does.

A session that has nothing to do has no thread. The next request, or the next message for it, starts one.

The loop posts what is to be done, in the order in which the client asked for it; results go back to the loop in the
order in which they came about. Nothing else is shared between the two but counters that only one of them changes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kjms.client.brokered_session import BrokeredSession, PassthroughProducer
from kjms.errors import InvalidDestinationException, JMSException
from kjms.gateway._sources import LinkSources
from kjms.gateway._transactions import Transactions
from kjms.mapping.amqp import decode

if TYPE_CHECKING:
    from kjms import Connection, Message
    from kjms.destinations import Destination
    from kjms.engine import Delivery
    from kjms.gateway._source import LinkSource, Outcome
    from kjms.gateway._terminus import Wanted

__all__ = ["Worker"]

_log = logging.getLogger("kjms.gateway")

LINGER_SECONDS: Final = 1.0  # without anything to do, until the thread ends


class Worker:
    """One AMQP session, and its thread while it has something to do.

    Args:
        connection: The client's, in kjms.
        name: For the thread.
        post: Has a function called in the loop's thread, in the order of posting.
        on_end: Called in the loop's thread when everything is closed.
        max_transaction_size: How many bytes may be sent in a transaction.
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        post: Callable[..., None],
        on_end: Callable[[], None],
        max_transaction_size: int,
    ) -> None:
        self._session = connection._open_session(BrokeredSession, BrokeredSession.INDIVIDUAL_ACKNOWLEDGE)
        self._post = post
        self._on_end = on_end
        self._tasks: deque[Callable[[], None]] = deque()
        self._transactions = Transactions(self._session, max_transaction_size)
        self._sources = LinkSources(self._session, self._transactions, post)
        self._is_ending = False
        self._name = name
        self._thread: threading.Thread | None = None  # while there is something to do
        self._is_over = False
        self._starting = threading.Lock()
        self.held = 0  # bytes of messages that the client sent and that wait here; the loop's alone
        self.named: set[Any] = set()  # the session's links that have a name; the loop's alone
        self._session.on_wake(self._begin)

    # For the loop's thread.

    def do(self, task: Callable[[BrokeredSession], Any], then: Callable[[Any, Exception | None], None]) -> None:
        """Have *task* done with the session, and *then* called in the loop's thread, with its result or failure."""

        def run() -> None:
            try:
                result = task(self._session)
            except Exception as failure:
                if not isinstance(failure, JMSException | ValueError):
                    _log.exception("a client's request failed")
                self._post(then, None, failure)
            else:
                self._post(then, result, None)

        self._put(run)

    def send(
        self,
        producer: PassthroughProducer,
        destination: Destination | None,
        data: bytes,
        transaction: bytes | None,
        then: Callable[[Exception | None], None],
    ) -> None:
        """Send a message; *then* is called in the loop's thread when Kafka has it, or does not take it."""
        self._put(lambda: self._send(producer, destination, data, transaction, then))

    def settle(
        self,
        source: LinkSource,
        outcome: Outcome,
        deliveries: Sequence[Delivery],
        transaction: bytes | None,
        cause: str,
        then: Callable[[Exception | None], None] | None,
    ) -> None:
        """Give messages their outcome; *then*, if the client waits, is called when that is durable."""
        self._put(lambda: self._settle(source, outcome, deliveries, transaction, cause, then))

    def request(self, source: LinkSource, limit: int, *, is_draining: bool) -> None:
        """Let *source* dispatch until it has dispatched *limit* messages; if draining, only what there is now."""
        self._put(lambda: self._sources.request(source, limit, is_draining=is_draining))

    def begin(self, transaction: bytes) -> None:
        """Begin a transaction."""
        self._put(lambda: self._transactions.begin(transaction))

    def mark_rollback_only(self, transaction: bytes, failure: Exception) -> None:
        """Note that a message of a transaction was refused: its client, which may not wait for that, cannot commit."""
        self._put(lambda: self._transactions.mark_rollback_only(transaction, failure))

    def end_transaction(
        self, transaction: bytes, *, is_commit: bool, then: Callable[[Any, Exception | None], None]
    ) -> None:
        """Commit or roll back; *then* is called in the loop's thread."""
        self.do(lambda _: self._transactions.discharge(transaction, is_commit=is_commit), then)

    def pause(self) -> None:
        """Send no more messages to the client."""
        self._sources.is_paused = True

    @property
    def is_paused(self) -> bool:
        """Whether the client gets no more messages, and is to send no more."""
        return self._sources.is_paused

    def consumed(self, size: int) -> None:
        """Count *size* bytes that the loop has given to the engine, or dropped."""
        self._sources.consumed += size

    def loop_has_room(self) -> None:
        """Go on, if it was the loop that held this thread up."""
        if self._sources.is_held_up:
            self._session.wake()

    def end(self) -> None:
        """Close everything, after what was posted before."""
        self._put(self._end)

    def _put(self, task: Callable[[], None]) -> None:
        self._tasks.append(task)
        self._session.wake()

    # For tasks.

    def open_source(self, source: LinkSource, wanted: Wanted) -> None:
        """Give *source* its consumer or browser.

        Raises:
            JMSException: There is no such thing, or it may not be had.
        """
        self._sources.open(source, wanted)

    def close_source(self, source: LinkSource) -> None:
        """Close the consumer or browser of *source*."""
        self._sources.close(source)

    # The thread.

    def _begin(self) -> None:
        """Start the thread, if there is none; for any thread."""
        if self._thread is not None or self._is_over:
            return
        with self._starting:
            if self._thread is None and not self._is_over:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                try:
                    self._thread.start()
                except RuntimeError as error:  # the system has no more threads, or the program ends
                    self._thread = None
                    _log.error("a client's session waits until it is woken again: %s", error)

    def _may_go(self) -> bool:
        """Let the thread end, unless the session has been woken; the next wake-up starts another one."""
        self._thread = None
        if not self._session.is_awake:
            return True  # a wake-up from now on finds no thread
        with self._starting:
            if self._thread is not None:
                return True
            self._thread = threading.current_thread()
            return False

    def _run(self) -> None:
        try:
            if not self._work():
                return
        except Exception as failure:
            _log.exception("a client's session failed")
            self._sources.fail_all(failure)
        self._is_over = True
        self._close()

    def _work(self) -> bool:
        """Do what there is to do; return whether the session has to be closed, rather than left alone for a while."""
        session = self._session
        is_busy = False
        timeout: float | None = None
        while not self._is_ending:
            if not is_busy:
                is_awake = session.wait(LINGER_SECONDS if timeout is None else timeout)
                if not is_awake and timeout is None:
                    if self._may_go():
                        return False
                    continue
            while self._tasks:
                self._tasks.popleft()()
            is_busy = self._sources.serve()
            timeout = self._sources.next_look()
        return True

    def _close(self) -> None:
        try:
            self._transactions.rollback_all()
            self._session.close()
        except Exception as failure:
            _log.warning("a client's session was not closed as it should be: %s", failure)
        self._is_ending = True
        self._post(self._on_end)

    def _end(self) -> None:
        self._is_ending = True

    def _settle(
        self,
        source: LinkSource,
        outcome: Outcome,
        deliveries: Sequence[Delivery],
        transaction: bytes | None,
        cause: str,
        then: Callable[[Exception | None], None] | None,
    ) -> None:
        failure: Exception | None = None
        try:
            self._sources.settle(source, outcome, deliveries, transaction, cause, is_flushed=then is not None)
        except JMSException as error:
            failure = error
            _log.warning("%s", error)
        if then is not None:
            self._post(then, failure)

    def _send(
        self,
        producer: PassthroughProducer,
        destination: Destination | None,
        data: bytes,
        transaction: bytes | None,
        then: Callable[[Exception | None], None],
    ) -> None:
        try:
            message = decode(data, destination, now_ms=time.time_ns() // 1_000_000)
            where = destination or message.jms_destination
            if where is None:
                raise InvalidDestinationException("a message to the anonymous relay has its destination in 'to' (§6.2)")
            if transaction is not None:
                with self._session.within(self._transactions.with_room(transaction, len(data))):
                    producer.forward(message, where)
            elif self._tasks or message.jms_delivery_mode == 1:  # others follow, or no client waits
                producer.forward(message, where, _Completion(partial(self._post, then)))
                return
            else:
                producer.forward(message, where)
        except (JMSException, ValueError) as failure:
            if transaction is not None:
                self._transactions.mark_rollback_only(transaction, failure)
            self._post(then, failure)
        else:
            self._post(then, None)


class _Completion:
    """Reports to the loop whether the broker has taken a message."""

    __slots__ = ("_report",)

    def __init__(self, report: Callable[[Exception | None], None]) -> None:
        self._report = report

    def on_completion(self, message: Message) -> None:
        self._report(None)

    def on_exception(self, message: Message, exception: Exception) -> None:
        self._report(exception)
