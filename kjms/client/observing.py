"""What tells a session's observers of its messages; a session without observers has none of this.

Each class is the observed form of one that sessions use: it does what that does, and tells of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kjms.client.acknowledge_modes import Acknowledgement, Auto, Client, Individual
from kjms.client.completion_queue import CompletionQueue, Pending
from kjms.client.listener_thread import ListenerThread
from kjms.client.session_sender import SessionSender
from kjms.client.transacted import Transacted
from kjms.observe import (
    Committed,
    DeadLettered,
    Outcome,
    Received,
    Redelivered,
    RolledBack,
    Sending,
    Sent,
    Settled,
)
from kjms.observe._observers import Observers
from kjms.options import SessionMode

if TYPE_CHECKING:
    from kjms.client.completion_listener import CompletionListener
    from kjms.client.consumer import MessageConsumer
    from kjms.client.dead_letters import Redelivery
    from kjms.client.message_listener import MessageListener
    from kjms.client.routes import Route
    from kjms.destinations import Destination, Queue
    from kjms.engine import Delivery, SessionTransaction, Slot
    from kjms.engine.kafka import KafkaError, KafkaMessage
    from kjms.errors import JMSException
    from kjms.mapping import KafkaRecord
    from kjms.message import Message
    from kjms.observe import Header
    from kjms.options import FactoryOptions

__all__ = [
    "Observation",
    "ObservedAuto",
    "ObservedClient",
    "ObservedDupsOk",
    "ObservedIndividual",
    "ObservedListenerThread",
    "ObservedSender",
    "ObservedTransacted",
    "observed_acknowledgement_of",
]


def _since(begin: float) -> float:
    """Return the milliseconds since `time.perf_counter` said *begin*."""
    return (time.perf_counter() - begin) * 1000


class Begun(NamedTuple):
    """A send that was begun, and when, by `time.perf_counter`."""

    sending: Sending
    begin: float

    def ended(self, error: BaseException | None = None) -> Sent:
        """Return its outcome."""
        return Sent(self.sending, _since(self.begin), error)


class Observation:
    """What the observers of one session know of its messages.

    Args:
        observers: The observers.
        now_ms: The clock, in milliseconds since the epoch.

    Attributes:
        observers: The observers.
        last: The message that reached the program last.
    """

    def __init__(self, observers: Observers, now_ms: Callable[[], int]) -> None:
        self.observers = observers
        self.last: Received | None = None
        self._now_ms = now_ms
        self._open: dict[Delivery, tuple[Received, float]] = {}  # and when it was delivered, by time.perf_counter

    # Receiving.

    def received(self, delivery: Delivery, message: Message, *, is_listener: bool = False) -> None:
        """Note that *message* is about to reach the program."""
        assert delivery.slot is not None
        sent_at, record = max(message.jms_timestamp, message.jms_delivery_time), delivery.record
        event = self.last = Received(
            delivery.slot.reader.destination,
            message,
            delivery.count,
            float(max(self._now_ms() - sent_at, 0)) if sent_at else None,
            is_listener,
            record.topic(),
            record.partition(),
            record.offset(),
        )
        self.observers.tell("received", event)
        if delivery.count > 1:
            self.observers.tell("redelivered", Redelivered(event, delivery.attempts.cause))
        self._open[delivery] = event, time.perf_counter()

    def call(self, listener: MessageListener, message: Message) -> None:
        """Call *listener* with *message*, which was received last."""
        with self.processing(message):
            listener(message)

    def processing(self, message: Message) -> AbstractContextManager[None]:
        """Return what the program's work on *message* is done within."""
        event = self.last
        if event is None or event.message is not message:
            event = next((event for event, _ in list(self._open.values()) if event.message is message), None)
        return nullcontext() if event is None else self.observers.processing(event)

    def of(self, deliveries: Iterable[Delivery]) -> tuple[Received, ...]:
        """Return what observers know of those of *deliveries* that are not settled."""
        return tuple(self._open[each][0] for each in deliveries if each in self._open)

    def settled(
        self,
        deliveries: Iterable[Delivery],
        outcome: Outcome = "acknowledged",
        error: BaseException | None = None,
        *,
        is_timed: bool = True,
    ) -> None:
        """Note what became of *deliveries*; those that were settled before are left out."""
        found: dict[Destination, list[tuple[Received, float]]] = {}
        for delivery in deliveries:
            known = self._open.pop(delivery, None)
            if known is not None:
                found.setdefault(known[0].destination, []).append(known)
        for destination, messages in found.items():
            events = tuple(event for event, _ in messages)
            times = tuple(_since(begin) for _, begin in messages) if is_timed else ()
            self.observers.tell("settled", Settled(destination, events, outcome, times, error))

    def dead_lettered(self, delivery: Delivery, message: Message, queue: Queue, error: BaseException | None) -> None:
        """Note that *message*, of *delivery*, moves to the dead-letter queue *queue*."""
        assert delivery.slot is not None
        self.settled([delivery], "dead-lettered", error)
        source, cause = delivery.slot.reader.destination, delivery.attempts.cause
        self.observers.tell("dead_lettered", DeadLettered(source, queue, message, delivery.count, cause, error))

    # Sending.

    def sending(self, message: Message, *, is_transacted: bool) -> tuple[Begun, list[Header]]:
        """Note that *message* is about to be sent; return that, and what is added to its record."""
        begin = time.perf_counter()
        assert message._destination is not None
        sending = Sending(message._destination, message, is_transacted)
        return Begun(sending, begin), self.observers.sending(sending)

    def sent(self, begun: Begun, error: BaseException | None = None) -> None:
        """Note the outcome of a send."""
        self.observers.tell("sent", begun.ended(error))


# Receiving: one class for each acknowledge mode.


class ObservedAuto(Auto):
    """AUTO_ACKNOWLEDGE, observed.

    Args:
        redelivery: Decides what becomes of messages whose delivery failed.
        observation: Learns of messages.
        is_pipelined: Whether no commit is waited for.
    """

    def __init__(self, redelivery: Redelivery, observation: Observation, *, is_pipelined: bool = False) -> None:
        super().__init__(redelivery, is_pipelined=is_pipelined)
        self._observation = observation

    def received(self, delivery: Delivery, message: Message) -> None:
        self._observation.received(delivery, message)
        super().received(delivery, message)
        self._observation.settled([delivery], is_timed=False)

    def looping(self, delivery: Delivery, message: Message) -> None:
        self._observation.received(delivery, message)
        super().looping(delivery, message)

    def _settle_looped(self, slot: Slot, *, is_urgent: bool = False) -> None:
        delivery = self._looped.get(slot)
        super()._settle_looped(slot, is_urgent=is_urgent)
        if delivery is not None:
            self._observation.settled([delivery])

    def listening(self, delivery: Delivery, message: Message) -> None:
        self._observation.received(delivery, message, is_listener=True)
        super().listening(delivery, message)

    def processing(self, message: Message) -> AbstractContextManager[None]:
        return self._observation.processing(message)

    def listened(self, delivery: Delivery) -> None:
        is_open = self._heard is not None
        super().listened(delivery)
        if is_open:
            self._observation.settled([delivery])

    def _give_back(self, deliveries: list[Delivery], *, error: BaseException | None = None, **how: Any) -> None:
        super()._give_back(deliveries, error=error, **how)
        self._observation.settled(deliveries, "returned", error)

    def _give_back_uncounted(self, deliveries: list[Delivery]) -> None:
        super()._give_back_uncounted(deliveries)
        self._observation.settled(deliveries, "returned")


class ObservedDupsOk(ObservedAuto):
    """DUPS_OK_ACKNOWLEDGE, observed."""

    def __init__(self, redelivery: Redelivery, observation: Observation) -> None:
        super().__init__(redelivery, observation, is_pipelined=True)


class _ObservedClient(Client):
    """What the modes have in common in which the program settles its messages.

    Args:
        redelivery: Decides what becomes of messages whose delivery failed.
        observation: Learns of messages.
        limit: How many messages may be unacknowledged; None: any number.
    """

    def __init__(self, redelivery: Redelivery, observation: Observation, limit: int | None = None) -> None:
        super().__init__(redelivery, limit)
        self.observation = observation

    def received(self, delivery: Delivery, message: Message) -> None:
        self.observation.received(delivery, message)
        super().received(delivery, message)

    def listening(self, delivery: Delivery, message: Message) -> None:
        self.observation.received(delivery, message, is_listener=True)
        super().received(delivery, message)

    def processing(self, message: Message) -> AbstractContextManager[None]:
        return self.observation.processing(message)

    def _settle(self, deliveries: list[Delivery]) -> None:
        super()._settle(deliveries)
        self.observation.settled(deliveries)

    def _give_back(self, deliveries: list[Delivery], *, error: BaseException | None = None, **how: Any) -> None:
        super()._give_back(deliveries, error=error, **how)
        self.observation.settled(deliveries, "returned", error)

    def _give_back_uncounted(self, deliveries: list[Delivery]) -> None:
        super()._give_back_uncounted(deliveries)
        self.observation.settled(deliveries, "returned")


class ObservedClient(_ObservedClient):
    """CLIENT_ACKNOWLEDGE, observed."""


class ObservedIndividual(_ObservedClient, Individual):
    """INDIVIDUAL_ACKNOWLEDGE, observed."""


class ObservedTransacted(_ObservedClient, Transacted):
    """SESSION_TRANSACTED, observed."""

    def __init__(
        self,
        redelivery: Redelivery,
        observation: Observation,
        commit: Callable[[SessionTransaction], JMSException | None],
        limit: int | None = None,
    ) -> None:
        Transacted.__init__(self, redelivery, commit, limit)
        self.observation = observation
        self._begun: list[Begun] = []
        self._failure: JMSException | None = None  # of the commit that a rollback follows
        self._commit_begin = 0.0  # of one that needs no Kafka transaction

    def began(self, begun: Begun) -> None:
        """Note a message that the transaction sends."""
        self._begun.append(begun)

    def forget_sent(self) -> None:
        super().forget_sent()
        self._begun = []

    def take_received(self) -> list[Delivery]:
        self._commit_begin = time.perf_counter()
        return super().take_received()

    def was_settled(self, received: list[Delivery]) -> None:
        self._committed(received, [], self._commit_begin)

    def commit(self) -> JMSException | None:
        received, begun, begin = list(self._open), self._begun, time.perf_counter()
        failure = self._failure = super().commit()
        if failure is None:
            self._begun = []
            self._committed(received, begun, begin)
        return failure

    def _committed(self, received: list[Delivery], begun: list[Begun], begin: float) -> None:
        observation = self.observation
        if received or begun:
            sent = tuple(each.sending for each in begun)
            observation.observers.tell("committed", Committed(sent, observation.of(received), _since(begin)))
        for each in begun:
            observation.sent(each)
        observation.settled(received)

    def rollback(self, *, judges: bool = False) -> Slot | None:
        return self._rolling_back(partial(super().rollback, judges=judges))

    def interrupt(self) -> None:
        self._rolling_back(super().interrupt)

    def close(self) -> None:
        self._rolling_back(super().close)

    def _rolling_back(self, roll_back: Callable[[], Slot | None]) -> Slot | None:
        failure, self._failure = self._failure, None
        begun, self._begun = self._begun, []
        event = RolledBack(tuple(each.sending for each in begun), self.observation.of(self._open), failure)
        if event.sent or event.received or failure is not None:
            self.observation.observers.tell("rolled_back", event)
        return roll_back()


def observed_acknowledgement_of(
    mode: SessionMode, redelivery: Redelivery, options: FactoryOptions, observation: Observation
) -> Acknowledgement:
    """Return what an observed session of *mode* does with its messages, if it is not transacted."""
    if mode == SessionMode.AUTO_ACKNOWLEDGE:
        return ObservedAuto(redelivery, observation, is_pipelined=options.pipelined_acknowledge)
    if mode == SessionMode.CLIENT_ACKNOWLEDGE:
        return ObservedClient(redelivery, observation, options.max_unacknowledged)
    if mode == SessionMode.DUPS_OK_ACKNOWLEDGE:
        return ObservedDupsOk(redelivery, observation)
    return ObservedIndividual(redelivery, observation, options.max_unacknowledged)


# Calling listeners.


class ObservedListenerThread(ListenerThread):
    """Calls the listeners of a session within what its observers return, if one of them returns something."""

    def __init__(self, observation: Observation, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._observation = observation

    def _listener_of(self, consumer: MessageConsumer) -> MessageListener | None:
        listener = super()._listener_of(consumer)
        if listener is None or not self._observation.observers.has("processing"):
            return listener
        return partial(self._observation.call, listener)


# Sending.


class ObservedPending(Pending):
    """An asynchronous send that is observed."""

    __slots__ = ("_begun", "_observation")

    def observe(self, observation: Observation, begun: Begun) -> None:
        """Tell *observation* the outcome."""
        self._observation = observation
        self._begun = begun

    def __call__(self, error: KafkaError | None, record: KafkaMessage) -> None:
        super().__call__(error, record)
        failure = None if self.error is None else self._queue.publisher.failure(self.error, self._topic)
        self._observation.sent(self._begun, failure)


class ObservedSender(SessionSender):
    """Sends the messages of one session, and tells of each."""

    def __init__(self, observation: Observation, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._observation = observation
        self._current: Begun | None = None  # the send that is begun; None: the publisher will report it
        self.completions.make_pending = self._pending

    def _pending(
        self, queue: CompletionQueue, topic: str, message: Message, listener: CompletionListener | None
    ) -> Pending:
        begun, self._current = self._current, None
        assert begun is not None
        pending = ObservedPending(queue, topic, message, listener)
        pending.observe(self._observation, begun)
        return pending

    def send(self, message: Message, route: Route, listener: CompletionListener | None, original: Message) -> None:
        self._guard.acquire("send")
        try:
            transaction = self.transaction
            begun, headers = self._observation.sending(message, is_transacted=transaction is not None)
            self._current = begun
            try:
                super().send(message, _with_headers(route, headers) if headers else route, listener, original)
            except BaseException as error:
                self._observation.sent(begun, error)
                raise
            if transaction is not None:
                assert isinstance(transaction, ObservedTransacted)
                transaction.began(begun)
            elif self._current is begun:
                self._observation.sent(begun)
        finally:
            self._guard.release()


def _with_headers(route: Route, headers: list[Header]) -> Route:
    """Return *route*, whose records get *headers*, too."""
    encode, added = route.encode, {name for name, _ in headers}

    def encode_more(message: Message) -> KafkaRecord:
        record = encode(message)
        record.headers[:] = [header for header in record.headers if header[0] not in added]
        record.headers.extend(headers)
        return record

    more = copy(route)
    more.encode = encode_more
    return more
