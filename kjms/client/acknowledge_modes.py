"""When a message counts as consumed: one class per acknowledge mode, each saying what it promises.

Spec: JMS 2.0 §4.4.11.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Final

from kjms.client.dead_letters import handled_exception
from kjms.engine import COMMIT_SECONDS
from kjms.engine.kafka import inherited
from kjms.errors import IllegalStateException, JMSException
from kjms.options import SessionMode
from kjms.txn.delivery_states import DISPATCHED

if TYPE_CHECKING:
    from kjms.client.dead_letters import Redelivery
    from kjms.engine import Delivery, MessageSource, Receipt, Slot
    from kjms.message import Message
    from kjms.options import FactoryOptions

__all__ = [
    "Acknowledgement",
    "Auto",
    "Client",
    "DupsOk",
    "Individual",
    "NotYetError",
    "acknowledgement_of",
]

MORE_SECONDS: Final = 1.0  # than a receive is to wait: a rebalance, or another coordinator, takes less as a rule
HASTE_SECONDS: Final = 0.0002  # a session that asks for the next message sooner commits before the consumer thread can


class NotYetError(Exception):
    """The last message is not acknowledged yet, and the program waits for the next one no longer."""


class Acknowledgement:
    """What a session does with the messages that it dispatches.

    Args:
        redelivery: Decides what becomes of messages whose delivery failed.

    Attributes:
        asks: Whether `before_next` may have something to do, and is to be called before each message.
        is_lending: Whether the session passes messages on, so that no program may have seen them yet.
    """

    is_lending = False

    def __init__(self, redelivery: Redelivery) -> None:
        self.asks = True
        self._redelivery = redelivery
        self._is_closed = False
        self._inherited_from = 0  # in a forked child: the process whose messages these are

    def must_wait(self) -> bool:
        """Return whether the session holds as many unacknowledged messages as it may; it is woken when it holds fewer.

        Only the thread that delivers to listeners asks.
        """
        return False

    @property
    def held(self) -> Collection[Delivery]:
        """What the session has, and is to settle or to give back."""
        return ()

    @property
    def must_commit(self) -> bool:
        """Whether `before_next` waits for a commit."""
        return False

    def before_next(self, slot: Slot, seconds: float | None = None) -> bool:
        """Do what must be durable before the consumer of *slot* gets its next message; return whether it may get one.

        It may not while the session holds as many unacknowledged messages as it may.

        Args:
            slot: The slot.
            seconds: How long the program waits for a message; None: without limit.

        Raises:
            NotYetError: Kafka has not answered in that time.
        """
        return True

    def continues(self) -> None:
        """Note that the session is about to have another message: a crash may count for that one alone.

        It is called before a repeated delivery is recorded, so that both are durable before the message is seen.
        """

    def received(self, delivery: Delivery, message: Message) -> None:
        """Note that *message* is about to be returned from a receive."""
        raise NotImplementedError

    def withdraw(self, delivery: Delivery) -> None:
        """Forget that *delivery* was about to reach the program: an interrupt came between."""

    def looping(self, delivery: Delivery, message: Message) -> None:
        """Note that *message* is about to be given to a loop over its consumer."""
        self.received(delivery, message)

    def loop_failed(
        self,
        error: BaseException | None,
        slot: Slot | None = None,
        failed: str = "the loop over its consumer",
        *,
        judges: bool = False,
    ) -> None:
        """Note that *error* leaves the ``with`` statement of the session, or of the consumer of *slot*.

        Args:
            error: What was raised; None: the loop's thread or task may still work on its message while another closes.
            slot: The consumer's; None: all of the session.
            failed: What raised it, for people.
            judges: Whether it was raised for the message that was received last, and may be a verdict on it.
        """

    def listening(self, delivery: Delivery, message: Message) -> None:
        """Note that *message* is about to be given to a listener."""

    def processing(self, message: Message) -> AbstractContextManager[None]:
        """Return what the program's work on *message* is done within, where the session calls no listener."""
        return nullcontext()

    def listened(self, delivery: Delivery) -> None:
        """Note that the listener returned."""

    def acknowledge_now(self, message: Message) -> None:
        """Acknowledge *message*, which a listener or a loop works on, whatever becomes of the work.

        Raises:
            JMSException: Its partition was lost to another member of the group; the message is delivered there.
        """
        message.acknowledge()

    def listener_failed(self, delivery: Delivery, error: BaseException) -> Slot | None:
        """Note that the listener raised: the message comes again, marked, as its policy says (JMS 2.0 §4.5.2).

        Return whose consumer is served next, where that was given messages of others back as well.
        """
        delivery.attempts.cause = f"the listener raised {type(error).__name__}"
        self._give_back([delivery], to=delivery.slot, error=error, judged=delivery)
        return None

    def consumer_closes(self, slot: Slot) -> None:
        """Note that the consumer of *slot* closes, before it does."""

    def recover(self, *, judges: bool = False) -> Slot | None:
        """Deliver again what was dispatched and not acknowledged; return whose the oldest is (JMS 2.0 §4.4.11).

        Args:
            judges: Whether the exception that is handled now may be a verdict on the message that was received last.
        """
        raise NotImplementedError

    def interrupt(self) -> None:
        """Give back what is not acknowledged, marked, and not counted towards the maximum: the process is stopped."""

    def close(self) -> None:
        """Give back what was not acknowledged, and make the rest durable."""

    def _give_back_uncounted(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            assert delivery.slot is not None
            delivery.attempts.cause = "its process was stopped"
            with delivery.slot.reader.lock:
                delivery.attempts.uncounted += 1
            delivery.slot.reader.give_back([delivery])

    def _give_back(
        self,
        deliveries: list[Delivery],
        *,
        to: Slot | None,
        error: BaseException | None = None,
        is_delayed: bool = False,
        judged: Delivery | None = None,
    ) -> None:
        """Note that *deliveries* failed: each message is delivered again, or was delivered for the last time.

        Args:
            deliveries: The deliveries.
            to: The consumer that gets the messages again, after the policy's delay; None: any.
            error: What was raised, where that is known.
            is_delayed: Whether the policy's delay holds for any consumer, too.
            judged: The one for which it was raised: a verdict, or the policy's word on such an exception, holds for it
                alone. The others were received before, and come again.
        """
        redelivery = self._redelivery
        due: Callable[[Delivery], int] | None = redelivery.due if is_delayed or to is not None else None
        rejected = None
        if judged is not None and error is not None:
            due = redelivery.due_as_asked(error, judged, due)
            rejected = judged if redelivery.rejects(judged, error) else None
        again = [each for each in deliveries if not redelivery.was_last(each, error, is_rejected=each is rejected)]
        for reader, mine in _by_reader(again):
            reader.give_back(mine, to=to, due=due)

    def disown(self, process: int) -> None:
        """Refuse every acknowledgement: this is a forked child of *process*, which has the messages."""
        self._is_closed = True
        self._inherited_from = process

    def _check_open(self) -> None:
        if self._inherited_from:
            raise inherited("acknowledge", self._inherited_from)
        if self._is_closed:
            raise IllegalStateException("acknowledge: the session of this message is closed (JMS 2.0 §4.4.1)")


def _by_reader(deliveries: Iterable[Delivery]) -> Iterable[tuple[MessageSource, list[Delivery]]]:
    """Return *deliveries* by where their messages come from, each in their order."""
    found: dict[MessageSource, list[Delivery]] = {}
    latest: MessageSource | None = None
    mine: list[Delivery] = []
    for delivery in deliveries:
        reader = delivery.slot.reader  # type: ignore[union-attr] # dispatched, so it has a slot
        if reader is not latest:
            latest, mine = reader, found.setdefault(reader, [])
        mine.append(delivery)
    return found.items()


class Auto(Acknowledgement):
    """AUTO_ACKNOWLEDGE: a message is acknowledged when `receive` returns it, or when its listener has returned.

    The reader commits it in the background, and the session waits for that before it dispatches the next message. A
    loop over a consumer (``for message in consumer``) is safer than JMS asks: its message is acknowledged when the loop
    asks for the next one, or when the consumer closes without an error.

    Args:
        redelivery: Decides what becomes of messages whose delivery failed.
        is_pipelined: Leave out the waiting: a crash may then repeat as many messages as are read in 0.1 s.
    """

    def __init__(self, redelivery: Redelivery, *, is_pipelined: bool = False) -> None:
        super().__init__(redelivery)
        self._is_pipelined = is_pipelined
        self.asks = not is_pipelined
        self._looped: dict[Slot, Delivery] = {}  # what loops have; any thread may close the consumer
        self._heard: Delivery | None = None  # what a listener has, unless it recovered its session
        self._unflushed: dict[MessageSource, list[Receipt]] = {}
        self._received_at = 0.0
        self._is_hasty = False  # whether the program asked for the next message at once

    @property
    def held(self) -> Collection[Delivery]:
        return self._looped.values()

    @property
    def must_commit(self) -> bool:
        return not self._is_pipelined and bool(self._unflushed or self._looped)

    def before_next(self, slot: Slot, seconds: float | None = None) -> bool:
        if self._looped:
            self._settle_looped(slot)
        if not self._unflushed:
            return True
        begun = time.monotonic()
        self._is_hasty = begun - self._received_at < HASTE_SECONDS
        until = COMMIT_SECONDS if seconds is None else min(seconds + MORE_SECONDS, COMMIT_SECONDS)
        for reader in list(self._unflushed):
            try:
                lost = reader.flush(until, self._unflushed[reader])
            except JMSException as error:
                if until < COMMIT_SECONDS and time.monotonic() >= begun + until:
                    raise NotYetError from error
                raise
            del self._unflushed[reader]  # not before: what Kafka did not take is tried again
            if lost:
                raise JMSException(
                    f"the last message of {reader.name} could not be acknowledged: its partition was lost,"
                    " to another consumer or in an outage; the message is redelivered"
                )
        return True

    def received(self, delivery: Delivery, message: Message) -> None:
        message._receipt = self
        if self._is_pipelined:
            delivery.slot.reader.settle_soon(delivery)  # type: ignore[union-attr] # dispatched, so it has a slot
        else:
            reader = delivery.slot.reader  # type: ignore[union-attr]
            receipts = reader.settle([delivery], is_urgent=not self._is_hasty)
            self._unflushed.setdefault(reader, []).extend(receipts)
            self._received_at = time.monotonic()

    def looping(self, delivery: Delivery, message: Message) -> None:
        assert delivery.slot is not None
        message._receipt = self
        self._looped[delivery.slot] = delivery
        self.asks = True

    def withdraw(self, delivery: Delivery) -> None:
        slot = delivery.slot
        if slot is not None and self._looped.get(slot) is delivery:
            del self._looped[slot]
        if not self._is_pipelined and slot is not None:
            self._unflushed.setdefault(slot.reader, [])  # the receipt may have been lost: wait for all that is settled

    def disown(self, process: int) -> None:
        super().disown(process)
        self._looped.clear()

    def loop_failed(
        self,
        error: BaseException | None,
        slot: Slot | None = None,
        failed: str = "the loop over its consumer",
        *,
        judges: bool = False,
    ) -> None:
        latest = next(reversed(self._looped), None) if slot is None else slot
        outcome = "had not asked for the next message" if error is None else f"raised {type(error).__name__}"
        for each in list(self._looped) if slot is None else [slot]:
            delivery = self._looped.pop(each, None)
            if delivery is not None:
                delivery.attempts.cause = f"{failed} {outcome}"
                judged = delivery if judges and each is latest else None
                self._give_back([delivery], to=None, error=error, is_delayed=True, judged=judged)

    def consumer_closes(self, slot: Slot) -> None:
        self._settle_looped(slot, is_urgent=True)

    def _settle_looped(self, slot: Slot, *, is_urgent: bool = False) -> None:
        delivery = self._looped.pop(slot, None)
        if delivery is not None:
            self._settle(delivery, is_urgent=is_urgent)

    def listening(self, delivery: Delivery, message: Message) -> None:
        message._receipt = self
        self._heard = delivery

    def acknowledge(self) -> None:
        """Do nothing: the session acknowledges by itself (JMS 2.0 §3.6.2).

        Raises:
            IllegalStateException: The session is closed.
        """
        self._check_open()

    def acknowledge_now(self, message: Message) -> None:
        self._check_open()
        heard = self._heard
        if heard is not None:
            assert heard.slot is not None
            self.listened(heard)
            self.before_next(heard.slot)
        for slot in list(self._looped):
            self.before_next(slot)

    def listened(self, delivery: Delivery) -> None:
        if self._heard is not None:
            self._heard = None
            if self._is_pipelined:
                delivery.slot.reader.settle_soon(delivery)  # type: ignore[union-attr] # dispatched, so it has a slot
            else:
                self._settle(delivery)

    def listener_failed(self, delivery: Delivery, error: BaseException) -> Slot | None:
        if self._heard is not None:
            self._heard = None
            super().listener_failed(delivery, error)
        return None

    def recover(self, *, judges: bool = False) -> Slot | None:
        """Deliver again what a listener or a loop has: nothing else is unacknowledged."""
        again = [self._looped.pop(slot) for slot in list(self._looped)]
        if self._heard is not None:
            again.append(self._heard)
            self._heard = None
        error = handled_exception() if judges else None
        for delivery in again:
            delivery.attempts.cause = "the session recovered"
            self._give_back([delivery], to=delivery.slot, error=error, judged=again[-1])
        return again[0].slot if again else None

    def interrupt(self) -> None:
        again = [self._looped.pop(slot) for slot in list(self._looped)]
        if self._heard is not None:
            again.append(self._heard)
            self._heard = None
        self._give_back_uncounted(again)

    def _settle(self, delivery: Delivery, *, is_urgent: bool = False) -> None:
        assert delivery.slot is not None
        reader = delivery.slot.reader
        if self._is_pipelined:
            reader.settle_soon(delivery)
        else:
            self._unflushed.setdefault(reader, []).extend(reader.settle([delivery], is_urgent=is_urgent))

    def close(self) -> None:
        self._is_closed = True
        for slot in list(self._looped):
            self._settle_looped(slot)
        for reader in list(self._unflushed):
            reader.flush_before_exit(self._unflushed.pop(reader))


class DupsOk(Auto):
    """DUPS_OK_ACKNOWLEDGE: acknowledged in the background; a crash may repeat some messages."""

    def __init__(self, redelivery: Redelivery) -> None:
        super().__init__(redelivery, is_pipelined=True)


class Client(Acknowledgement):
    """CLIENT_ACKNOWLEDGE: acknowledging one message acknowledges all that its session has consumed.

    Args:
        redelivery: Decides what becomes of messages whose delivery failed.
        limit: How many messages may be unacknowledged; None: any number.
    """

    def __init__(self, redelivery: Redelivery, limit: int | None = None) -> None:
        super().__init__(redelivery)
        self._limit = limit
        self.asks = limit is not None
        self._open: dict[Delivery, None] = {}  # in the order of dispatch
        self._is_repeated = False  # whether the last message was not delivered for the first time
        self._unflushed: list[tuple[MessageSource, list[Receipt]]] = []  # what Kafka did not take
        self._is_awaited = False  # whether the listeners' thread may wait until fewer are unacknowledged
        self._raised: BaseException | None = None  # for the message that was received last, before the session closes

    def must_wait(self) -> bool:
        self._is_awaited = True  # first: what is acknowledged from now on wakes the thread
        self._is_awaited = self._limit is not None and len(self._open) >= self._limit
        return self._is_awaited

    @property
    def held(self) -> Collection[Delivery]:
        return self._open

    def before_next(self, slot: Slot, seconds: float | None = None) -> bool:
        return self._limit is None or len(self._open) < self._limit

    def received(self, delivery: Delivery, message: Message) -> None:
        if self._is_repeated:
            self.continues()
        self._is_repeated = delivery.count > 1
        self._open[delivery] = None
        message._receipt = self

    def withdraw(self, delivery: Delivery) -> None:
        self._open.pop(delivery, None)

    def continues(self) -> None:
        before = next(reversed(self._open), None)
        if before is not None and before.count > 1:
            assert before.slot is not None
            reader = before.slot.reader
            if self._redelivery.policy(reader.destination).count_crashes == "last":
                with reader.lock:
                    before.uncount()

    listening = received

    def listener_failed(self, delivery: Delivery, error: BaseException) -> Slot | None:
        """Carry out a verdict on the message; else leave it to the application, unacknowledged (JMS 2.0 §4.5.2)."""
        if delivery in self._open and self._redelivery.judges(delivery, error):
            del self._open[delivery]
            return super().listener_failed(delivery, error)
        return None

    def loop_failed(
        self,
        error: BaseException | None,
        slot: Slot | None = None,
        failed: str = "the loop over its consumer",
        *,
        judges: bool = False,
    ) -> None:
        if judges and slot is None:
            self._raised = error

    def acknowledge(self) -> None:
        """Acknowledge every message that the session has dispatched.

        Raises:
            IllegalStateException: The session is closed.
            JMSException: A partition was lost to another member of the group; its messages are delivered there.
        """
        self._check_open()
        settled: dict[Delivery, None] = {}
        try:
            settled, self._open = self._open, {}
            self._settle(list(settled))
        except BaseException:  # also Ctrl-C, at any point of it
            self._keep(settled)
            raise
        if self._is_awaited:
            _wake(settled)

    def _keep(self, deliveries: Iterable[Delivery]) -> None:
        """Keep what of *deliveries* was not settled."""
        self._open.update((delivery, None) for delivery in deliveries if delivery.state is DISPATCHED)

    def _settle(self, deliveries: list[Delivery]) -> None:
        unflushed: dict[MessageSource, list[Receipt]] = {}  # of this call: others may be under way in other threads
        try:
            if self._unflushed:
                with suppress(IndexError):
                    while True:
                        reader, receipts = self._unflushed.pop()
                        unflushed.setdefault(reader, []).extend(receipts)
            for reader, mine in _by_reader(deliveries):
                unflushed.setdefault(reader, []).extend(reader.settle(mine))
            lost = 0
            for reader in list(unflushed):
                lost += reader.flush(receipts=unflushed[reader])
                del unflushed[reader]
        except BaseException:
            self._unflushed.extend(unflushed.items())  # tried again with the next ones
            raise
        if lost:
            raise JMSException(
                f"acknowledge: {lost} of {len(deliveries)} messages belong to partitions that this session"
                " lost, to another consumer or in an outage; they are redelivered"
            )

    def recover(self, *, judges: bool = False) -> Slot | None:
        return self._deliver_again("the session recovered", judges=judges)

    def _deliver_again(self, cause: str, *, judges: bool) -> Slot | None:
        """Give each consumer of the session again what it had; return whose the oldest is.

        Where the program calls this while it handles an exception, that exception is taken for the cause.
        """
        error = handled_exception()
        if error is not None:
            cause = f"{cause} after {type(error).__name__}"
        again = list(self._open)
        by_slot: dict[Slot, list[Delivery]] = {}
        for delivery in again:
            assert delivery.slot is not None
            delivery.attempts.cause = cause
            by_slot.setdefault(delivery.slot, []).append(delivery)
        self._open = {}
        try:
            judged = again[-1] if again and judges else None
            for slot, deliveries in by_slot.items():
                self._give_back(deliveries, to=slot, error=error, judged=judged if judged in deliveries else None)
        except BaseException:  # also Ctrl-C, at any point of it
            self._keep(again)
            raise
        return again[0].slot if again else None

    def interrupt(self) -> None:
        again, self._open = list(self._open), {}
        self._give_back_uncounted(again)

    def close(self) -> None:
        self._is_closed = True
        again, self._open = list(self._open), {}
        error = self._raised or handled_exception()
        cause = "its session closed" if error is None else f"its session closed after {type(error).__name__}"
        for delivery in again:
            delivery.attempts.cause = cause
        judged = again[-1] if again and self._raised is not None else None
        self._give_back(again, to=None, error=error, judged=judged)


class Individual(Client):
    """INDIVIDUAL_ACKNOWLEDGE, of kjms: acknowledging a message acknowledges that message alone."""

    def received(self, delivery: Delivery, message: Message) -> None:
        super().received(delivery, message)
        message._receipt = _One(self, delivery)

    listening = received

    def acknowledge_one(self, delivery: Delivery) -> None:
        """Acknowledge *delivery*; a second time changes nothing, unless Kafka did not take it the first time.

        Raises:
            IllegalStateException: The session is closed.
            JMSException: The message's partition was lost to another member of the group.
        """
        self._check_open()
        try:
            if self._open.pop(delivery, delivery) is None:  # else it was acknowledged before, perhaps by another thread
                self._settle([delivery])
            elif self._unflushed:
                self._settle([])
        except BaseException:
            self._keep([delivery])
            raise
        if self._is_awaited:
            _wake([delivery])


def _wake(acknowledged: Iterable[Delivery]) -> None:
    """Wake the session that had *acknowledged*."""
    for delivery in acknowledged:
        if delivery.slot is not None:
            delivery.slot.wakeup.set()
            return


class _One:
    """The receipt of one message."""

    __slots__ = ("_delivery", "_mode")

    def __init__(self, mode: Individual, delivery: Delivery) -> None:
        self._mode = mode
        self._delivery = delivery

    def acknowledge(self) -> None:
        self._mode.acknowledge_one(self._delivery)


def acknowledgement_of(mode: SessionMode, redelivery: Redelivery, options: FactoryOptions) -> Acknowledgement:
    """Return what a session of *mode* does with its messages, if it is not transacted."""
    if mode == SessionMode.AUTO_ACKNOWLEDGE:
        return Auto(redelivery, is_pipelined=options.pipelined_acknowledge)
    if mode == SessionMode.CLIENT_ACKNOWLEDGE:
        return Client(redelivery, options.max_unacknowledged)
    if mode == SessionMode.DUPS_OK_ACKNOWLEDGE:
        return DupsOk(redelivery)
    return Individual(redelivery, options.max_unacknowledged)
