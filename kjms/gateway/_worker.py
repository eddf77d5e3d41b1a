"""The kjms session of one AMQP session: the event loop does with it what is quick, and a thread what may block.

One of the two has the session at a time. Where a thread has it, or is to have it, the loop posts what is to be done,
in the order in which the client asked for it. A request that blocks, or a message for the session, has the pool's next
free thread take it, and the thread lets it go when there is nothing more to do. Results go to the loop in the order in
which they came about. Nothing else is shared between the two but counters that only one of them changes.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from kjms.client.brokered_session import BrokeredSession, PassthroughProducer
from kjms.errors import InvalidDestinationException, JMSException
from kjms.gateway._source import Outcome
from kjms.gateway._sources import LinkSources
from kjms.gateway._transactions import Transactions
from kjms.mapping.amqp import decode_transfer

if TYPE_CHECKING:
    from kjms import Connection, Message
    from kjms.destinations import Destination
    from kjms.engine import Delivery
    from kjms.gateway._pool import WorkerPool
    from kjms.gateway._source import LinkSource
    from kjms.gateway._terminus import Wanted

__all__ = ["Worker"]

_log = logging.getLogger("kjms.gateway")

QUICK_BYTES: Final = 1 << 16  # a message that is larger takes long to decode


class Worker:
    """One AMQP session.

    Args:
        connection: The client's, in kjms.
        pool: The threads.
        post: Has a function called in the loop's thread, in the order of posting.
        on_end: Called in the loop's thread when everything is closed.
        max_transaction_size: How many bytes may be sent in a transaction.
        limits_releases: Whether a message that a link releases again and again becomes a dead letter.
    """

    def __init__(
        self,
        connection: Connection,
        pool: WorkerPool,
        post: Callable[..., None],
        on_end: Callable[[], None],
        max_transaction_size: int,
        *,
        limits_releases: bool,
    ) -> None:
        self._session = connection._open_session(
            lambda its, mode: BrokeredSession(its, mode, pass_on=post), BrokeredSession.INDIVIDUAL_ACKNOWLEDGE
        )
        self._pool = pool
        self._post = post
        self._on_end = on_end
        self._tasks: deque[Callable[[], object]] = deque()
        self._transactions = Transactions(self._session, max_transaction_size)
        self._sources = LinkSources(self._session, self._transactions, post, limits_releases=limits_releases)
        self._is_ending = False
        self._is_taken = False  # whether the loop or a thread has the session, or a thread is to have it
        self._is_over = False
        self._taking = threading.Lock()
        self._timer: asyncio.TimerHandle | None = None  # the loop's alone
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
        """Send a message; *then* is called in the loop's thread when Kafka or the transaction has it, or refuses it."""
        is_quick = len(data) <= QUICK_BYTES
        if is_quick and (destination is None or self._session.knows(destination)) and self._is_free():
            try:
                if self._send(producer, destination, data, transaction, then, is_quick=True):
                    return
            except Exception as failure:
                self._fail(failure)
                self.end()
                return
            finally:
                self._let_go()
        self._put(lambda: self._send(producer, destination, data, transaction, then, is_quick=False))

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
        if then is None and outcome is Outcome.ACCEPTED and self._is_free():
            is_held_back = self._sources.is_held_back(source)
            try:
                self._settle(source, outcome, deliveries, transaction, cause, None)
            finally:
                if is_held_back:
                    self._session.wake()
                self._let_go()
            return
        self._put(lambda: self._settle(source, outcome, deliveries, transaction, cause, then))

    def request(self, source: LinkSource, limit: int, *, is_draining: bool) -> None:
        """Let *source* dispatch until it has dispatched *limit* messages; if draining, only what there is now."""
        self._put(lambda: self._sources.request(source, limit, is_draining=is_draining))

    def begin(self, transaction: bytes) -> None:
        """Begin a transaction."""
        if self._is_free():
            try:
                self._transactions.begin(transaction)
            finally:
                self._let_go()
        else:
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
        """Continue, if it was the loop that held this thread up."""
        if self._sources.is_held_up:
            self._session.wake()

    def end(self) -> None:
        """Close everything, after what was posted before."""
        self._put(self._end)

    def _put(self, task: Callable[[], object]) -> None:
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

    # Which thread has the session.

    def _take(self) -> bool:
        """Take the session; return whether it was free."""
        if self._is_taken:
            return False  # what has it looks for more to do when it lets go
        with self._taking:
            if self._is_taken or self._is_over:
                return False
            self._is_taken = True
            return True

    def _let_go(self) -> None:
        """Let go of the session; a thread takes it if it was woken meanwhile."""
        self._is_taken = False
        if self._session.is_awake:
            self._begin()

    def _is_free(self) -> bool:
        """Take the session for the loop, if nothing is to be done before; return whether that succeeded."""
        return not self._tasks and self._take()

    def _begin(self) -> None:
        """Have a thread take the session, unless one has it; for any thread."""
        if self._take():
            self._pool.submit(self._run)

    def _look_in(self, seconds: float) -> None:
        """Look again for what to do after some time; for the loop's thread."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if self._is_over else asyncio.get_running_loop().call_later(seconds, self._session.wake)

    # The thread.

    def _run(self) -> None:
        try:
            self._work()
        except Exception as failure:
            self._fail(failure)
            self._is_ending = True
        if self._is_ending:
            self._is_over = True
            self._close()
        else:
            self._let_go()

    def _work(self) -> None:
        """Do what there is to do."""
        session, sources = self._session, self._sources
        is_busy = False
        while is_busy or session.is_awake:
            session.wait(0)  # from here on, a wake-up is a new one
            while self._tasks:
                self._tasks.popleft()()
            if self._is_ending:
                return
            is_busy = sources.serve()
            if is_busy and self._pool.is_full:
                session.wake()  # when it is scheduled again
                break
        seconds = sources.next_look()
        if seconds is not None:
            self._post(self._look_in, seconds)

    def _fail(self, failure: Exception) -> None:
        _log.error("a client's session failed", exc_info=failure)
        _forget_frames(failure)
        self._sources.fail_all(failure)

    def _close(self) -> None:
        try:
            self._transactions.rollback_all()
            self._session.close()
        except Exception as failure:
            _log.warning("a client's session was not closed in order: %s", failure)
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
            _forget_frames(error)
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
        *,
        is_quick: bool,
    ) -> bool:
        """Send a message; return whether it was sent or refused: with *is_quick*, only what does not block is."""
        session = self._session
        outcome: Exception | None = None
        try:
            message = decode_transfer(data, destination, now_ms=time.time_ns() // 1_000_000)
            where = destination or message.jms_destination
            if where is None:
                raise InvalidDestinationException("a message to the anonymous relay has its destination in 'to' (§6.2)")
            if is_quick and not session.forwards_quickly(message, where):
                return False
            if transaction is None:
                session.choose_publisher(message)
                producer.forward(message, where, _Completion(then))
                return True
            with session.within(self._transactions.with_room(transaction, len(data))):
                producer.forward(message, where)
        except (JMSException, ValueError) as failure:
            _forget_frames(failure)
            if transaction is not None:
                self._transactions.mark_rollback_only(transaction, failure)
            outcome = failure
        if is_quick:
            then(outcome)
        else:
            self._post(then, outcome)
        return True


def _forget_frames(failure: BaseException | None) -> None:
    """Let go of the frames that *failure* came through: the loop's have references to proton's objects."""
    while failure is not None:
        failure.__traceback__ = None
        failure = failure.__cause__ or failure.__context__


class _Completion:
    """Tells a link whether the broker has taken a message; called in the loop's thread."""

    __slots__ = ("_then",)

    def __init__(self, then: Callable[[Exception | None], None]) -> None:
        self._then = then

    def on_completion(self, message: Message) -> None:
        self._then(None)

    def on_exception(self, message: Message, exception: Exception) -> None:
        self._then(exception)
