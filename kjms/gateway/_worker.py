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
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from kjms.client.brokered_session import BrokeredSession, PassthroughProducer, Transacted
from kjms.errors import InvalidDestinationException, JMSException, MessageFormatException, ResourceAllocationException
from kjms.gateway._window import Window
from kjms.mapping.amqp import decode, encode

if TYPE_CHECKING:
    from kjms import Connection, Message, MessageConsumer
    from kjms.destinations import Destination, Queue
    from kjms.engine.consumer.delivery import Delivery
    from kjms.gateway._links import ClientLink
    from kjms.gateway._terminus import Wanted

__all__ = ["LinkSink", "LinkSource", "UnknownTransaction", "Worker"]

_log = logging.getLogger("kjms.gateway")

BATCH: Final = 100  # messages that are read before what the client says has its turn
UNSENT_BYTES: Final = 1 << 20  # of messages on their way from the thread to the loop
YOUNG_SECONDS: Final = 1.0  # for so long a new consumer may need until it gets messages that are there already
LINGER_SECONDS: Final = 1.0  # without anything to do, until the thread ends
LOOK_SECONDS: Final = 0.02  # between looks at whether it does
PAUSE_SECONDS: Final = 0.05  # a client that gave messages back may be about to leave, and is not to get them again

ACCEPT, RELEASE, FAIL, REJECT = range(4)
"""What a client may say of a message."""


class UnknownTransaction(JMSException):
    """A transaction that was not declared, or is over."""


class LinkSink(Protocol):
    """A link's side in the loop's thread; its methods are called there."""

    def send(self, batch: Sequence[tuple[Delivery | None, bytes]]) -> None:
        """Send messages to the client."""

    def drained(self) -> None:
        """Tell the client that there is nothing more."""

    def fail(self, failure: Exception) -> None:
        """End the link."""


class LinkSource:
    """What a client's receiver gets its messages from.

    Args:
        outlet: Where they go.
        is_settled: Whether they are settled when they are sent.
        max_unsettled: So many may wait for the client's answer.
    """

    def __init__(self, outlet: LinkSink, *, is_settled: bool, max_unsettled: int) -> None:
        self.outlet = outlet
        self.is_settled = is_settled
        self.max_unsettled = max_unsettled
        self.consumer: MessageConsumer | None = None
        self.look: Iterator[Message] | None = None  # a browser's
        self.limit = 0  # how many the client has asked for, since the link began
        self.handed = 0
        self.turn = 0  # rises when it is handed a message, and when it begins to wait for one
        self.unsettled = 0
        self.window = Window()
        self.is_draining = False
        self.is_waiting = False
        self.young_until = 0.0
        self.pauses_until = 0.0

    def is_full(self) -> bool:
        """Whether the client has enough messages, for the sake of other processes that serve the same queue."""
        return (
            self.unsettled >= self.window.size
            and not self.is_draining
            and self.consumer is not None
            and self.consumer._feed.has_rivals_elsewhere
        )


class Worker:
    """One AMQP session, and its thread while it has something to do.

    Args:
        connection: The client's, in kjms.
        name: For the thread.
        post: Has a function called in the loop's thread, in the order of posting.
        on_end: Called in the loop's thread when everything is closed.
        max_transaction_size: So many bytes may be sent in a transaction.
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
        self._feedings: list[LinkSource] = []
        self._transactions: dict[bytes, Transacted] = {}
        self._max_transaction_size = max_transaction_size
        self._sizes: dict[bytes, int] = {}  # of what was sent in each of them
        self._doomed: dict[bytes, Exception] = {}  # why they cannot commit
        self._is_ending = False
        self.is_paused = False  # whether no more messages are to go out
        self._produced = 0  # bytes, by this thread
        self.consumed = 0  # bytes, by the loop
        self._is_held_up = False
        self._turns = 0
        self.held = 0  # bytes of messages that the client sent and that wait here; the loop's alone
        self.named: set[ClientLink] = set()  # the session's links that have a name; the loop's alone
        self._name = name
        self._thread: threading.Thread | None = None  # while there is something to do
        self._is_over = False
        self._starting = threading.Lock()
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
        forwarder: PassthroughProducer,
        destination: Destination | None,
        data: bytes,
        transaction: bytes | None,
        then: Callable[[Exception | None], None],
    ) -> None:
        """Send a message; *then* is called in the loop's thread when Kafka has it, or does not take it."""
        self._put(lambda: self._send(forwarder, destination, data, transaction, then))

    def tell(
        self,
        feeding: LinkSource,
        fate: int,
        deliveries: Sequence[Delivery],
        transaction: bytes | None,
        cause: str,
        then: Callable[[Exception | None], None] | None,
    ) -> None:
        """Tell the fate of messages; *then*, if the client waits, is called when that is durable."""
        self._put(lambda: self._tell(feeding, fate, deliveries, transaction, cause, then))

    def ask(self, feeding: LinkSource, limit: int, *, is_draining: bool) -> None:
        """Let *feeding* hand out until it has handed out *limit* messages; if draining, only what there is now."""

        def run() -> None:
            if feeding.handed >= feeding.limit:  # it begins to wait, behind those that waited before
                feeding.turn = self._next_turn()
            feeding.limit = limit
            feeding.is_draining = is_draining
            if feeding.is_waiting and feeding.handed >= limit and feeding.consumer is not None:
                self._session.rest(feeding.consumer)
                feeding.is_waiting = False

        self._put(run)

    def began(self, transaction: bytes) -> None:
        """Begin a transaction."""
        self._put(lambda: self._transactions.__setitem__(transaction, self._session.begin()))

    def doom(self, transaction: bytes, failure: Exception) -> None:
        """Note that a message of a transaction was refused: its client, which may not wait for that, cannot commit."""
        self._put(lambda: self._doom(transaction, failure))

    def end_transaction(
        self, transaction: bytes, *, is_commit: bool, then: Callable[[Any, Exception | None], None]
    ) -> None:
        """Commit or roll back; *then* is called in the loop's thread."""
        self.do(lambda session: self._discharge(transaction, is_commit), then)

    def loop_has_room(self) -> None:
        """Go on, if it was the loop that held this thread up."""
        if self._is_held_up:
            self._session.wake()

    def wake(self) -> None:
        """Have the thread look at what changed."""
        self._session.wake()

    def end(self) -> None:
        """Close everything, after what was posted before."""
        self._put(self._end)

    def _put(self, task: Callable[[], None]) -> None:
        self._tasks.append(task)
        self._session.wake()

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
            return True  # who wakes it from now on finds no thread
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
            for feeding in self._feedings:
                self._post(feeding.outlet.fail, failure)
        self._is_over = True
        self._close()

    def _work(self) -> bool:
        """Do what there is to do; return whether the session has to be closed, rather than left alone for a while."""
        session = self._session
        is_busy = False
        patience: float | None = None
        while not self._is_ending:
            if not is_busy:
                is_awake = session.wait(LINGER_SECONDS if patience is None else patience)
                if not is_awake and patience is None:
                    if self._may_go():
                        return False
                    continue
            is_busy, patience = False, None
            while self._tasks:
                self._tasks.popleft()()
            is_busy = self._serve()
            if any(feeding.is_draining or feeding.pauses_until for feeding in self._feedings):
                patience = LOOK_SECONDS
            else:
                patience = self._until_growth()
        return True

    def _close(self) -> None:
        try:
            for transaction in self._transactions.values():
                transaction.rollback()
            self._session.close()
        except Exception as failure:
            _log.warning("a client's session was not closed as it should be: %s", failure)
        self._is_ending = True
        self._post(self._on_end)

    def _end(self) -> None:
        self._is_ending = True

    # Messages to the client.

    def open(self, feeding: LinkSource, wanted: Wanted) -> None:
        """Give *feeding* what it feeds on; called by a task.

        Raises:
            JMSException: There is no such thing, or it may not be had.
        """
        session = self._session
        if wanted.is_browser:
            queue: Queue = wanted.destination  # type: ignore[assignment]
            feeding.look = iter(session.create_browser(queue, wanted.selector))
        elif wanted.subscription is not None:
            feeding.consumer = session.subscribe(
                wanted.destination,  # type: ignore[arg-type]
                wanted.subscription,
                wanted.selector,
                wanted.no_local,
                is_durable=wanted.is_durable,
                is_shared=wanted.is_shared,
                is_global=wanted.is_global,
            )
        else:
            feeding.consumer = session.create_consumer(wanted.destination, wanted.selector, wanted.no_local)
        if feeding.consumer is not None:
            feeding.young_until = time.monotonic() + YOUNG_SECONDS
        self._feedings.append(feeding)

    def shut(self, feeding: LinkSource) -> None:
        """Close what *feeding* feeds on; called by a task."""
        if feeding in self._feedings:
            self._feedings.remove(feeding)
        if feeding.consumer is not None:
            feeding.consumer.close()
        if feeding.look is not None:
            feeding.look.close()  # type: ignore[attr-defined]

    def _serve(self) -> bool:
        """Hand out what there is and clients have asked for; return whether there may be more at once.

        The links that can take a message get one each, in turn. The link that has waited longest comes first.
        """
        served = [feeding for feeding in sorted(self._feedings, key=_turn) if not self._pauses(feeding)]
        for feeding in served:
            if feeding.is_full():
                self._hold_back(feeding)
        batches: dict[LinkSource, list[tuple[Delivery | None, bytes]]] = {feeding: [] for feeding in served}
        empty: set[LinkSource] = set()
        size = count = 0
        waiting = served
        while waiting and count < BATCH:
            waiting = [feeding for feeding in waiting if self._can_take(feeding) and feeding not in empty]
            for feeding in waiting:
                self._is_held_up = self._produced + size - self.consumed > UNSENT_BYTES
                if self._is_held_up:
                    waiting = []
                    break
                try:
                    entry = self._next(feeding)
                except JMSException as failure:
                    self._feedings.remove(feeding)
                    self._post(feeding.outlet.fail, failure)
                    entry = None
                if entry is None:
                    empty.add(feeding)
                    continue
                batches[feeding].append(entry)
                size += len(entry[1])
                count += 1
                feeding.handed += 1
                feeding.turn = self._next_turn()
        self._produced += size
        for feeding, batch in batches.items():
            if batch:
                feeding.young_until = 0.0
                self._post(feeding.outlet.send, batch)
            if feeding.is_draining and (
                feeding.handed >= feeding.limit or (feeding in empty and self._is_grown(feeding))
            ):
                feeding.is_draining = False
                feeding.limit = feeding.handed
                self._post(feeding.outlet.drained)
        return count >= BATCH

    def _pauses(self, feeding: LinkSource) -> bool:
        if feeding.pauses_until and time.monotonic() >= feeding.pauses_until:
            feeding.pauses_until = 0.0
        return bool(feeding.pauses_until)

    def _can_take(self, feeding: LinkSource) -> bool:
        return (
            feeding.handed < feeding.limit
            and feeding.unsettled < feeding.max_unsettled
            and not self.is_paused
            and not feeding.is_full()
        )

    def _hold_back(self, feeding: LinkSource) -> None:
        """Let other consumers have what *feeding* waited for, unless its window grows."""
        assert feeding.consumer is not None
        now = time.monotonic()
        feeding.window.filled(now)
        feeding.window.grow(now)
        if feeding.is_waiting and feeding.is_full():
            self._session.rest(feeding.consumer)
            feeding.is_waiting = False

    def _until_growth(self) -> float | None:
        """Return in how many seconds the window of a full link grows; None: no link is full."""
        now = time.monotonic()
        return min((max(f.window.grows_at - now, 0.0) for f in self._feedings if f.is_full()), default=None)

    def _next_turn(self) -> int:
        self._turns += 1
        return self._turns

    def _is_grown(self, feeding: LinkSource) -> bool:
        """Tell whether *feeding* would have had by now what there was when it began."""
        return feeding.young_until < time.monotonic()

    def _next(self, feeding: LinkSource) -> tuple[Delivery | None, bytes] | None:
        now = time.time_ns() // 1_000_000
        if feeding.look is not None:
            for message in feeding.look:
                try:
                    return None, encode(message, now_ms=now).encode()
                except MessageFormatException:
                    continue  # its consumer will hear of it
            return None
        consumer = feeding.consumer
        assert consumer is not None
        while True:
            found = self._session.poll(consumer)
            if found is None:
                if consumer._is_closed:
                    raise JMSException(f"the consumer of {consumer._destination} was closed: others have its place")
                feeding.is_waiting = True
                return None
            delivery, message = found
            feeding.is_waiting = False
            try:
                data = encode(message, now_ms=now).encode()
            except MessageFormatException as failure:
                self._session.reject([delivery], f"it has no form in AMQP: {failure}")
                continue
            if feeding.is_settled:
                self._session.accept([delivery])
            else:
                feeding.unsettled += 1
            return delivery, data

    def _tell(
        self,
        feeding: LinkSource,
        fate: int,
        deliveries: Sequence[Delivery],
        transaction: bytes | None,
        cause: str,
        then: Callable[[Exception | None], None] | None,
    ) -> None:
        session = self._session
        feeding.unsettled -= len(deliveries)
        feeding.window.answered(len(deliveries), feeding.unsettled, time.monotonic())
        failure: Exception | None = None
        try:
            if fate == ACCEPT:
                session.accept(deliveries, self._in_transaction(transaction))
                if then is not None and transaction is None:
                    session.flush()
            elif fate == RELEASE:
                session.release(deliveries)
            elif fate == FAIL:
                session.fail(deliveries, cause)
                feeding.pauses_until = time.monotonic() + PAUSE_SECONDS
            else:
                session.reject(deliveries, cause)
        except JMSException as error:
            failure = error
            _log.warning("%s", error)
        if then is not None:
            self._post(then, failure)

    # Messages from the client.

    def _send(
        self,
        forwarder: PassthroughProducer,
        destination: Destination | None,
        data: bytes,
        transaction: bytes | None,
        then: Callable[[Exception | None], None],
    ) -> None:
        try:
            message = decode(data, destination, now_ms=time.time_ns() // 1_000_000)
            where = destination or message.jms_destination
            if where is None:
                raise InvalidDestinationException("a message to the anonymous relay says in 'to' where it goes (§6.2)")
            if transaction is not None:
                with self._session.within(self._with_room(transaction, len(data))):
                    forwarder.forward(message, where)
            elif self._tasks or message.jms_delivery_mode == 1:  # others follow, or nobody waits
                forwarder.forward(message, where, _Completion(self._post, then))
                return
            else:
                forwarder.forward(message, where)
        except (JMSException, ValueError) as failure:
            if transaction is not None:
                self._doom(transaction, failure)
            self._post(then, failure)
        else:
            self._post(then, None)

    # Transactions.

    def _in_transaction(self, transaction: bytes | None) -> Transacted | None:
        if transaction is None:
            return None
        found = self._transactions.get(transaction)
        if found is None:
            raise UnknownTransaction("there is no such transaction in this session")
        return found

    def _with_room(self, number: bytes, size: int) -> Transacted | None:
        """Return the transaction, which may be too small for a message of that size, or doomed."""
        transaction = self._in_transaction(number)
        if number in self._doomed:
            raise self._doomed[number]
        whole = self._sizes[number] = self._sizes.get(number, 0) + size
        if whole > self._max_transaction_size:
            raise ResourceAllocationException(
                f"what was sent in a transaction is larger than the {self._max_transaction_size} bytes that are allowed"
            )
        return transaction

    def _doom(self, number: bytes, failure: Exception) -> None:
        transaction = self._transactions.get(number)
        if transaction is not None:
            transaction.forget_sent()
            self._doomed.setdefault(number, failure)

    def _discharge(self, number: bytes, is_commit: bool) -> None:
        transaction = self._in_transaction(number)
        assert transaction is not None
        del self._transactions[number]
        self._sizes.pop(number, None)
        failure = self._doomed.pop(number, None)
        if not is_commit:
            transaction.rollback()
            return
        if failure is None:
            failure = self._session.end_well(transaction)
        if failure is not None:
            transaction.rollback()
            raise failure


def _turn(feeding: LinkSource) -> int:
    return feeding.turn


class _Completion:
    """Tells the loop what became of a message."""

    __slots__ = ("_post", "_then")

    def __init__(self, post: Callable[..., None], then: Callable[[Exception | None], None]) -> None:
        self._post = post
        self._then = then

    def on_completion(self, message: Message) -> None:
        self._post(self._then, None)

    def on_exception(self, message: Message, exception: Exception) -> None:
        self._post(self._then, exception)
