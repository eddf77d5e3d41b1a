"""The messages that one AMQP session sends to its client: which link gets the next one, and their outcomes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from kjms.errors import JMSException, MessageFormatException
from kjms.gateway._source import LinkSource, Outcome
from kjms.mapping.amqp import encode_transfer

if TYPE_CHECKING:
    from kjms.client.brokered_session import BrokeredSession
    from kjms.destinations import Queue
    from kjms.engine import Delivery
    from kjms.gateway._terminus import Wanted
    from kjms.gateway._transactions import Transactions

__all__ = ["LinkSources"]

_log = logging.getLogger("kjms.gateway")

BATCH: Final = 100  # messages that are read before the client's requests are handled
UNSENT_BYTES: Final = 1 << 20  # of messages on their way from the thread to the loop
YOUNG_SECONDS: Final = 1.0  # a new consumer of which it is not known whether it has read all gets messages by then
LOOK_SECONDS: Final = 0.02  # between looks at a link that drains or pauses
PAUSE_SECONDS: Final = 0.05  # a client that gave messages back may be about to leave, and is not to get them again


class LinkSources:
    """The sources of a session's links; used by the session's thread, but for two attributes.

    Args:
        session: The session.
        transactions: Its transactions.
        post: Has a function called in the loop's thread, in the order of posting.
        limits_releases: Whether a message that a link releases again and again becomes a dead letter.

    Attributes:
        is_paused: Whether no more messages are to go out; the loop sets it.
        consumed: How many bytes the loop has taken; the loop counts them.
        is_held_up: Whether too many bytes are on their way to the loop.
    """

    def __init__(
        self,
        session: BrokeredSession,
        transactions: Transactions,
        post: Callable[..., None],
        *,
        limits_releases: bool = True,
    ) -> None:
        self._limits_releases = limits_releases
        self._session = session
        self._transactions = transactions
        self._post = post
        self._sources: list[LinkSource] = []
        self.is_paused = False
        self._produced = 0  # bytes, by this thread
        self.consumed = 0
        self.is_held_up = False
        self._turns = 0

    def open(self, source: LinkSource, wanted: Wanted) -> None:
        """Give *source* its consumer or browser.

        Raises:
            JMSException: There is no such thing, or it may not be had.
        """
        session = self._session
        if wanted.is_browser:
            queue: Queue = wanted.destination  # type: ignore[assignment]
            source.browsed = iter(session.create_browser(queue, wanted.selector))
        elif wanted.subscription is not None:
            source.consumer = session.subscribe(
                wanted.destination,  # type: ignore[arg-type]
                wanted.subscription,
                wanted.selector,
                wanted.no_local,
                is_durable=wanted.is_durable,
                is_shared=wanted.is_shared,
                is_global=wanted.is_global,
            )
        else:
            source.consumer = session.create_consumer(wanted.destination, wanted.selector, wanted.no_local)
        if source.consumer is not None:
            source.young_until = time.monotonic() + YOUNG_SECONDS
        self._sources.append(source)

    def close(self, source: LinkSource) -> None:
        """Close the consumer or browser of *source*."""
        if source in self._sources:
            self._sources.remove(source)
        if source.consumer is not None:
            source.consumer.close()
        if source.browsed is not None:
            source.browsed.close()  # type: ignore[attr-defined]

    def fail_all(self, failure: Exception) -> None:
        """End every link with an error."""
        for source in self._sources:
            self._post(source.sink.fail, failure)

    def request(self, source: LinkSource, limit: int, *, is_draining: bool) -> None:
        """Let *source* dispatch until it has dispatched *limit* messages; if draining, only what there is now."""
        if source.dispatched >= source.limit and not source.keeps_turn:
            source.turn = self._next_turn()  # it begins to wait, behind those that waited before
        source.keeps_turn = False
        source.limit = limit
        source.is_draining = is_draining
        source.ends = None
        if source.is_waiting and source.dispatched >= limit and source.consumer is not None:
            self._session.rest(source.consumer)
            source.is_waiting = False

    def serve(self) -> bool:
        """Dispatch what there is and clients have asked for; return whether there may be more at once.

        The links that can take a message get one each, in turn. The link that has waited longest comes first.
        """
        served = [source for source in sorted(self._sources, key=attrgetter("turn")) if not self._pauses(source)]
        for source in served:
            if source.is_full():
                self._hold_back(source)
        batches: dict[LinkSource, list[tuple[Delivery | None, bytes]]] = {source: [] for source in served}
        empty: set[LinkSource] = set()
        size = count = 0
        waiting = served
        while waiting and count < BATCH:
            waiting = [source for source in waiting if self._can_take(source) and source not in empty]
            for source in waiting:
                if self._produced + size - self.consumed > UNSENT_BYTES:
                    self.is_held_up = True  # then look again: the loop counts first, and looks at this afterwards
                    if self._produced + size - self.consumed > UNSENT_BYTES:
                        waiting = []
                        break
                self.is_held_up = False
                try:
                    entry = self._next(source)
                except JMSException as failure:
                    self._sources.remove(source)
                    self._post(source.sink.fail, failure)
                    entry = None
                if entry is None:
                    empty.add(source)
                    continue
                batches[source].append(entry)
                size += len(entry[1])
                count += 1
                source.dispatched += 1
                source.turn = self._next_turn()
        self._produced += size
        for source, batch in batches.items():
            if batch:
                source.young_until = 0.0
                self._post(source.sink.send, batch)
            if source.is_draining and (
                source.dispatched >= source.limit or (source in empty and self._has_nothing(source))
            ):
                source.is_draining = False
                source.keeps_turn = source.dispatched < source.limit
                source.limit = source.dispatched
                self._post(source.sink.drained)
        return count >= BATCH

    def _has_nothing(self, source: LinkSource) -> bool:
        """Return whether there is nothing for *source*, which is drained and found nothing.

        A young consumer may not have got its partitions yet, or not read them to the end: as soon as it has read all
        that was there when it was asked, what it finds is all.
        """
        consumer = source.consumer
        if consumer is None or source.young_until < time.monotonic():
            return True
        slot = consumer._slot
        if source.ends is None:
            try:
                source.ends = slot.reader.log_ends(YOUNG_SECONDS)
            except JMSException as failure:
                _log.debug("%s", failure)
            return False  # what came before that is found at the next look
        if not slot.reader.has_read(slot, source.ends):
            return False
        source.young_until = 0.0
        return True

    def next_look(self) -> float | None:
        """Return in how many seconds `serve` may find something without a wake-up; None: only after a wake-up."""
        if any(source.is_draining or source.pauses_until for source in self._sources):
            return LOOK_SECONDS
        now = time.monotonic()
        return min((max(each.window.grows_at - now, 0.0) for each in self._sources if each.is_full()), default=None)

    def is_held_back(self, source: LinkSource) -> bool:
        """Return whether *source* may dispatch more as soon as the client has answered for messages."""
        return source.unsettled >= source.max_unsettled or source.is_full()

    def _pauses(self, source: LinkSource) -> bool:
        if source.pauses_until and time.monotonic() >= source.pauses_until:
            source.pauses_until = 0.0
        return bool(source.pauses_until)

    def _can_take(self, source: LinkSource) -> bool:
        return (
            source.dispatched < source.limit
            and source.unsettled < source.max_unsettled
            and not self.is_paused
            and not source.is_full()
        )

    def _hold_back(self, source: LinkSource) -> None:
        """Let other consumers have what *source* waited for, unless its window grows."""
        assert source.consumer is not None
        now = time.monotonic()
        source.window.filled(now)
        source.window.grow(now)
        if source.is_waiting and source.is_full():
            self._session.rest(source.consumer)
            source.is_waiting = False

    def _next_turn(self) -> int:
        self._turns += 1
        return self._turns

    def _next(self, source: LinkSource) -> tuple[Delivery | None, bytes] | None:
        now = time.time_ns() // 1_000_000
        if source.browsed is not None:
            for message in source.browsed:
                try:
                    return None, encode_transfer(message, now_ms=now)
                except MessageFormatException:
                    continue  # its consumer rejects it
            return None
        consumer = source.consumer
        assert consumer is not None
        while True:
            found = self._session.poll(consumer)
            if found is None:
                if consumer._is_closed:
                    raise JMSException(f"the consumer of {consumer._destination} was closed while its link was open")
                source.is_waiting = True
                return None
            delivery, message = found
            source.is_waiting = False
            try:
                data = encode_transfer(message, now_ms=now)
            except MessageFormatException as failure:
                self._session.reject([delivery], f"it has no form in AMQP: {failure}")
                continue
            if source.is_settled:
                self._session.accept([delivery])
            else:
                source.unsettled += 1
            return delivery, data

    def settle(
        self,
        source: LinkSource,
        outcome: Outcome,
        deliveries: Sequence[Delivery],
        transaction: bytes | None,
        cause: str,
        *,
        is_flushed: bool,
    ) -> None:
        """Give messages their outcome.

        Args:
            source: Where they came from.
            outcome: The outcome.
            deliveries: The messages.
            transaction: The id of the transaction that accepted messages are settled in.
            cause: Why they were given back or rejected.
            is_flushed: Whether to return only when what was accepted is durable; not within a transaction.

        Raises:
            UnknownTransaction: There is no such transaction in this session.
            JMSException: The broker did not take it.
        """
        session = self._session
        source.unsettled -= len(deliveries)
        source.window.answered(len(deliveries), source.unsettled, time.monotonic())
        if outcome is Outcome.ACCEPTED:
            session.accept(deliveries, self._transactions.find(transaction))
            if is_flushed and transaction is None:
                session.flush()
        elif outcome is Outcome.RELEASED:
            # A client that rolls back releases what it has prefetched each time, and has processed none of it.
            link = None if self._transactions.are_used else source.number
            if session.release(deliveries, link, is_limited=self._limits_releases):
                source.pauses_until = time.monotonic() + PAUSE_SECONDS
        elif outcome is Outcome.FAILED:
            session.fail(deliveries, cause)
            source.pauses_until = time.monotonic() + PAUSE_SECONDS
        elif outcome is Outcome.UNDELIVERABLE:
            session.cannot_deliver(deliveries, cause)
        elif outcome is Outcome.LOST:
            session.lose(deliveries, cause)
        elif outcome is Outcome.CUT_OFF:
            session.give_up(deliveries)
        else:
            session.reject(deliveries, cause)
