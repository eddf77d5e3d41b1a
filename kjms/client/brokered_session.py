"""A session for the AMQP gateway and the bridges, which pass messages on and settle each of them by itself.

The client reports the outcome of each message, in any order, perhaps within a transaction. There may be several
transactions. What is sent keeps the header fields that it came with. As with every session, one thread uses it;
another one may `wake` it.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final, cast

from kjms.client.acknowledge_modes import Acknowledgement
from kjms.client.completion_queue import CompletionQueue
from kjms.client.consumer import MessageConsumer
from kjms.client.producer import MessageProducer
from kjms.client.session import Session
from kjms.client.transacted import Transacted
from kjms.engine import DURABLE, NON_DURABLE
from kjms.errors import (
    IllegalStateException,
    JMSException,
    JMSSecurityException,
    TransactionRolledBackException,
)
from kjms.options import DeliveryMode, SessionMode

if TYPE_CHECKING:
    from datetime import timedelta

    from kjms.client.completion_listener import CompletionListener
    from kjms.client.connection import Connection
    from kjms.client.dead_letters import Redelivery
    from kjms.client.observing import Observation
    from kjms.client.session_parts import SessionParts
    from kjms.destinations import Destination, Topic
    from kjms.engine import AssignedPartition, Delivery, MessageSource, Receipt, Slot, Space, Terms
    from kjms.message import Message

__all__ = ["BrokeredSession", "PassthroughProducer", "Transacted"]

_log = logging.getLogger("kjms.session")

MANY: Final = 8  # sends under way at the same time, which are worth waiting for a batch
BACKLOG: Final = 50_000  # of the 100,000 records that librdkafka's buffer holds: beyond that a send may have to wait


class PassthroughProducer(MessageProducer):
    """A producer that leaves a message's header fields alone, but for where it goes."""

    def forward(self, message: Message, destination: Destination, listener: CompletionListener | None = None) -> None:
        """Send *message*; one whose delivery time is still to come is delivered then.

        Args:
            message: The message, with all its header fields.
            destination: Where to.
            listener: Makes the send asynchronous.

        Raises:
            JMSException: As `MessageProducer.send` does.
        """
        delay = 0
        if message.jms_delivery_time > message.jms_timestamp:
            delay = max(message.jms_delivery_time - self._sender.now_ms(), 0)
        self.send(message, destination, delivery_delay=delay, completion_listener=listener)

    def _set_headers(
        self,
        message: Message,
        destination: Destination,
        delivery_mode: DeliveryMode | int | None,
        priority: int | None,
        time_to_live: int | timedelta | None,
        delivery_delay: int,
    ) -> None:
        message._destination = destination


class Brokered(Acknowledgement):
    """Keeps each message of a brokered session open until its outcome is known.

    Args:
        redelivery: Decides what becomes of messages whose delivery failed.
    """

    is_lending = True

    def __init__(self, redelivery: Redelivery) -> None:
        super().__init__(redelivery)
        self._open: dict[Delivery, None] = {}  # in the order of dispatch
        self._last: Delivery | None = None
        self._unflushed: dict[MessageSource, dict[AssignedPartition, Receipt]] = {}  # the last stands for all

    def continues(self) -> None:
        last = self._last
        if last is not None and last in self._open and last.count > 1 and last.slot is not None:
            with last.slot.reader.lock:
                last.uncount()  # no consumer failed on it

    def received(self, delivery: Delivery, message: Message) -> None:
        self.continues()
        self._last = delivery
        self._open[delivery] = None

    def hold(self, deliveries: Sequence[tuple[Delivery, Message]]) -> None:
        """Note that the messages of *deliveries* are processed together: if that fails, none is to blame."""
        self._open.update((delivery, None) for delivery, _ in deliveries)

    def take(self, delivery: Delivery) -> bool:
        """Tell whether *delivery* was open; it is not any more."""
        if delivery not in self._open:
            return False
        del self._open[delivery]
        return True

    def settle(self, deliveries: list[Delivery]) -> None:
        """Note that *deliveries* are done; `flush` makes that durable, and so do their sources by themselves soon."""
        for slot, run in itertools.groupby(deliveries, attrgetter("slot")):
            for receipt in slot.reader.settle(list(run)):
                self._unflushed.setdefault(slot.reader, {})[receipt[0]] = receipt

    def flush(self) -> int:
        """Make durable what is settled, and return of how many queues or subscriptions something came too late.

        Raises:
            JMSException: Kafka did not take it.
        """
        lost = 0
        for reader in list(self._unflushed):
            lost += reader.flush(receipts=list(self._unflushed[reader].values()))
            del self._unflushed[reader]  # not before: what Kafka did not take is tried again
        return lost

    def give_back(
        self,
        deliveries: Collection[Delivery],
        *,
        is_counted: bool,
        due: Callable[[Delivery], int] | None = None,
    ) -> None:
        """Return *deliveries* for any consumer, marked as redelivered if they are counted.

        Args:
            deliveries: The deliveries.
            is_counted: Whether they count.
            due: Says when each may be delivered again; None: if it counts, as the policy says, else at once.
        """
        by_reader: dict[MessageSource, list[Delivery]] = {}
        for delivery in sorted(deliveries, key=lambda each: each.order):
            assert delivery.slot is not None
            if not (is_counted and self._redelivery.was_last(delivery, None)):
                by_reader.setdefault(delivery.slot.reader, []).append(delivery)
        if is_counted:
            due = self._redelivery.due
        for reader, mine in by_reader.items():
            reader.give_back(mine, is_counted=is_counted, due=due)

    def of(self, slot: Slot) -> list[Delivery]:
        """Return what the consumer of *slot* has open."""
        return [delivery for delivery in self._open if delivery.slot is slot]

    def consumer_closes(self, slot: Slot) -> None:
        self.give_back([each for each in self.of(slot) if self.take(each)], is_counted=False)

    def recover(self, *, judges: bool = False) -> Slot | None:
        raise IllegalStateException("recover: the messages of a brokered session are settled one by one")

    def close(self) -> None:
        self._is_closed = True
        unsettled, self._open = self._open, {}
        self.give_back(unsettled, is_counted=False)
        for reader in self._unflushed:
            reader.flush_before_exit()


class ObservedBrokered(Brokered):
    """The same, observed.

    Args:
        redelivery: Decides what becomes of messages whose delivery failed.
        observation: Learns of messages.
    """

    def __init__(self, redelivery: Redelivery, observation: Observation) -> None:
        super().__init__(redelivery)
        self._observation = observation

    def received(self, delivery: Delivery, message: Message) -> None:
        self._observation.received(delivery, message)
        super().received(delivery, message)

    def hold(self, deliveries: Sequence[tuple[Delivery, Message]]) -> None:
        for delivery, message in deliveries:
            self._observation.received(delivery, message)
        super().hold(deliveries)

    def settle(self, deliveries: list[Delivery]) -> None:
        super().settle(deliveries)
        self._observation.settled(deliveries)

    def give_back(
        self,
        deliveries: Collection[Delivery],
        *,
        is_counted: bool,
        due: Callable[[Delivery], int] | None = None,
    ) -> None:
        super().give_back(deliveries, is_counted=is_counted, due=due)
        self._observation.settled(deliveries, "returned")


def brokered(parts: SessionParts) -> Brokered:
    """Return what a brokered session of *parts* does with its messages."""
    if parts.observation is None:
        return Brokered(parts.redelivery)
    return ObservedBrokered(parts.redelivery, parts.observation)


class Wakeup(threading.Event):
    """An event that calls a function each time that it is set.

    Attributes:
        on_set: The function; it is called by whichever thread sets the event, which may hold locks of the engine.
    """

    def __init__(self) -> None:
        super().__init__()
        self.on_set: Callable[[], None] | None = None

    def set(self) -> None:
        super().set()
        if self.on_set is not None:
            self.on_set()


class BrokeredSession(Session):
    """A session whose user passes messages on for other programs.

    Args:
        connection: Its connection.
        acknowledge_mode: Not used: each message is settled by itself.
        pass_on: Has its argument, which calls completion listeners, called soon; see `CompletionQueue`.
    """

    def __init__(
        self,
        connection: Connection,
        acknowledge_mode: int = SessionMode.INDIVIDUAL_ACKNOWLEDGE,
        *,
        pass_on: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        wakeup = Wakeup()

        def acknowledgement(parts: SessionParts) -> Brokered:
            self._parts = parts
            return brokered(parts)

        super().__init__(
            connection,
            acknowledge_mode,
            wakeup=wakeup,
            completions=lambda engine: CompletionQueue(engine.bulk, pass_on),
            acknowledgement=acknowledgement,
        )
        self._most_under_way = 0  # sends, since there were none
        self._connection: Connection = connection
        self._wakeup: Wakeup = wakeup
        self._brokered = cast("Brokered", self._core.acknowledgement)

    # Waiting and receiving.

    def wake(self) -> None:
        """End a `wait`, the present or the next one; for any thread."""
        if not self._wakeup.is_set():  # to set it again would cost as much as the first time
            self._wakeup.set()

    @property
    def is_awake(self) -> bool:
        """Whether the next `wait` returns at once."""
        return self._wakeup.is_set()

    def on_wake(self, call: Callable[[], None]) -> None:
        """Have *call* called whenever a `wait` would end; see `Wakeup`."""
        self._wakeup.on_set = call

    def wait(self, seconds: float | None = None) -> bool:
        """Return when there may be a message for a consumer that `poll` found none for, or `wake` was called.

        Returns:
            Whether there was a reason other than the time.
        """
        is_awake = self._wakeup.wait(seconds)
        if is_awake:  # else it may have been set since, and that is to count
            self._wakeup.clear()
        return is_awake

    def poll(self, consumer: MessageConsumer) -> tuple[Delivery, Message] | None:
        """Return the next message with its delivery; None: there is none, and `wait` returns when there may be one.

        Raises:
            JMSException: Kafka did not take the note that it is delivered again.
            JMSSecurityException: Kafka does not let this user read there.
        """
        core = self._core
        with core.guard.taken_to("receive"):
            found = core.take(consumer._slot, consumer._destination, self._brokered.received)
            core.arriving = None
            if found is None:
                consumer._slot.reader.refusal.check()
            return found

    def rest(self, consumer: MessageConsumer) -> None:
        """Note that *consumer* is not polled for a while: others get what it waited for."""
        consumer._slot.rest()

    # The outcome of messages; a second one for the same message changes nothing.

    def accept(self, deliveries: Iterable[Delivery], transaction: Transacted | None = None) -> None:
        """Note that *deliveries* are done, or will be when *transaction* commits."""
        brokered = self._brokered
        taken = [each for each in deliveries if brokered.take(each)]
        if transaction is None:
            brokered.settle(taken)
        else:
            transaction._open.update(dict.fromkeys(taken))

    def flush(self) -> None:
        """Return when what was accepted is durable.

        Raises:
            JMSException: Kafka did not take it, or a partition went to another process, which delivers it again.
        """
        if self._brokered.flush():
            raise JMSException(
                "accept: a partition was lost, to another process or in an outage; its messages are redelivered"
            )

    def release(self, deliveries: Iterable[Delivery], link: int | None = None, *, is_limited: bool = True) -> bool:
        """Take *deliveries* back as if they had not been made.

        A message that the same link has released before comes again when the redelivery policy says. One that it has
        released as often as a message may be delivered becomes a dead letter.

        Args:
            deliveries: The deliveries.
            link: The number of the link that releases them; None: nothing is known of it.
            is_limited: Whether a message becomes a dead letter in the end.

        Returns:
            Whether the link has released one of the messages before.
        """
        back = [each for each in deliveries if self._brokered.take(each)]
        if link is None:
            self._brokered.give_back(back, is_counted=False)
            return False
        first: list[Delivery] = []
        again: dict[Delivery, int] = {}
        for delivery in back:
            attempts = delivery.attempts
            releases = 1 if attempts.releases is None else attempts.releases[link] + 1
            if releases > 1 and is_limited:
                attempts.cause = "the client released it"
                if self._core.redelivery.was_released_too_often(delivery, releases):
                    continue
            if attempts.releases is None:
                attempts.releases = Counter()
            attempts.releases[link] = releases
            if releases > 1:
                again[delivery] = releases
            else:
                first.append(delivery)
        self._brokered.give_back(first, is_counted=False)
        due = self._core.redelivery.due
        self._brokered.give_back(again, is_counted=False, due=lambda each: due(each, again[each]))
        return bool(again)

    def fail(self, deliveries: Iterable[Delivery], cause: str) -> None:
        """Take *deliveries* back, which failed: they come again as the redelivery policy says."""
        back = [each for each in deliveries if self._brokered.take(each)]
        for delivery in back:
            delivery.attempts.cause = cause
        self._brokered.give_back(back, is_counted=True)

    def lose(self, deliveries: Iterable[Delivery], cause: str) -> None:
        """Take back *deliveries* of a consumer whose program is lost, and may have seen them: they come again, marked.

        The oldest alone counts towards the maximum: a program has most of its messages ahead of its work.
        """
        back = [each for each in deliveries if self._brokered.take(each)]
        for number, delivery in enumerate(back):
            delivery.attempts.cause = cause
            if number:
                delivery.attempts.uncounted += 1
        self._brokered.give_back(back, is_counted=True)

    def give_up(self, deliveries: Iterable[Delivery]) -> None:
        """Take back *deliveries*, which were possibly processed: they come marked, and no delivery is counted."""
        back = [each for each in deliveries if self._brokered.take(each)]
        for reader, mine in itertools.groupby(back, attrgetter("slot.reader")):
            with reader.lock:
                for delivery in mine:
                    delivery.possibly_made()
        self._brokered.give_back(back, is_counted=False)

    def cannot_deliver(self, deliveries: Iterable[Delivery], cause: str) -> None:
        """Take *deliveries*, which the client cannot deliver: what has expired at the client is no dead letter."""
        for delivery in deliveries:
            if self._brokered.take(delivery) and not self._core.expire_if_due(delivery):
                delivery.attempts.cause = cause
                self._core.redelivery.dead_letter(delivery, None)

    def reject(self, deliveries: Iterable[Delivery], cause: str) -> None:
        """Move *deliveries* to their dead-letter queues, whatever their count."""
        for delivery in deliveries:
            if self._brokered.take(delivery):
                delivery.attempts.cause = cause
                self._core.redelivery.dead_letter(delivery, None)

    # Sending.

    def create_passthrough_producer(self, destination: Destination | None) -> PassthroughProducer:
        """Return a producer that leaves header fields alone.

        Raises:
            InvalidDestinationException: There is no such destination, and it may not be created.
        """
        return self._open_producer("create_passthrough_producer", PassthroughProducer, destination)

    def _senders(self) -> tuple[bytes | None, bytes | None]:
        _, without_id = super()._senders()  # ids say nothing of this connection
        return without_id, without_id

    def knows(self, destination: Destination) -> bool:
        """Return whether sending to *destination* needs no answer of Kafka first."""
        return self._sender.knows(destination)

    def forwards_quickly(self, message: Message, destination: Destination) -> bool:
        """Return whether `PassthroughProducer.forward` waits for nothing."""
        return (
            self._sender.knows(destination)
            and message.jms_delivery_time <= message.jms_timestamp
            and self._sender.completions.publisher.backlog < BACKLOG
        )

    def choose_publisher(self, message: Message) -> None:
        """Choose the publisher for *message*, which is sent with a listener.

        A client that waits for a PERSISTENT message gets its answer promptly. Others are sent in batches, and so are
        those of a client that sends many without waiting. The publisher changes only while no send is under way:
        messages of two publishers may overtake each other.
        """
        completions, engine = self._sender.completions, self._connection._engine
        under_way = len(completions)
        if under_way:
            self._most_under_way = max(self._most_under_way, under_way)
            return
        is_alone = message.jms_delivery_mode == DeliveryMode.PERSISTENT and self._most_under_way < MANY
        completions.publisher = engine.prompt if is_alone else engine.bulk
        self._most_under_way = 0

    # Transactions.

    def begin(self) -> Transacted:
        """Return a new transaction, to `accept` and send within, and to commit or roll back."""
        return self._parts.transacted()

    def end_well(self, transaction: Transacted) -> JMSException | None:
        """Commit *transaction*; return the reason if nothing of it came through: it is to be rolled back then.

        What only received messages of one partition needs no Kafka transaction: one commit of the group settles it.
        """
        received = transaction.take_received()
        if received and all(each.partition is received[0].partition for each in received):
            failure = self._settle_together(transaction, received)
            if failure is None:
                transaction.was_settled(received)
            return failure
        if received:
            transaction.put_back(received)
        return transaction.commit()

    def _settle_together(self, transaction: Transacted, received: list[Delivery]) -> JMSException | None:
        partition, slot = received[0].partition, received[0].slot
        assert slot is not None
        reader = slot.reader
        gone = TransactionRolledBackException(
            "commit: the messages were lost, to another consumer or in an outage; they are delivered again"
        )
        with reader.lock:  # no other commit is to settle a part of them
            if not partition.is_held:
                transaction.put_back(received)
                return gone
            receipts = reader.settle(received)
        while True:
            try:
                return gone if reader.flush(receipts=receipts) else None
            except JMSSecurityException as refusal:  # the consumer may not continue either
                return refusal
            except JMSException as failure:
                if self._connection._is_closing:
                    return failure
                _log.warning("whether a transaction was committed is not known yet: %s", failure)

    @contextlib.contextmanager
    def within(self, transaction: Transacted | None) -> Iterator[None]:
        """Make what is sent meanwhile a part of *transaction*."""
        self._sender.transaction = transaction
        try:
            yield
        finally:
            self._sender.transaction = None

    # Subscriptions.

    def subscribe(
        self,
        topic: Topic,
        name: str,
        selector: str | None,
        no_local: bool,
        *,
        is_durable: bool,
        is_shared: bool,
        is_global: bool,
    ) -> MessageConsumer:
        """Return a consumer of a named subscription.

        Args:
            topic: The topic.
            name: The subscription's name.
            selector: Which messages it wants; None or "" is all.
            no_local: Leave out what connections with this client id send.
            is_durable: Whether it outlives its consumers.
            is_shared: Whether it may have several.
            is_global: Whether its name is one among those without a client id, although the connection has one.

        Raises:
            JMSException: As `Session.create_shared_durable_consumer` and its kin do.
        """
        doing = f"create_{'shared_' if is_shared else ''}{'durable_' if is_durable else ''}consumer"
        space: Space = DURABLE if is_durable else NON_DURABLE
        return self._subscribe(
            doing, MessageConsumer, topic, name, selector, no_local, space, is_shared=is_shared, is_global=is_global
        )

    def durable_subscription(self, name: str, *, is_global: bool) -> Terms | None:
        """Return what the durable subscription *name* is; None: there is none."""
        self._check_open("durable_subscription")
        return self._connection._engine.subscriptions.look_up(self._slots.durable(name, is_global=is_global))

    def end_subscription(self, name: str, *, is_global: bool) -> None:
        """End the durable subscription *name*, as `unsubscribe` does."""
        self._check_open("unsubscribe")
        self._connection._engine.subscriptions.remove(self._slots.durable(name, is_global=is_global))
