"""The one receive loop of all sessions: take a message, let it expire or become a dead letter, decode it, settle it.

The core never waits for a message. The blocking session, the session of an event loop, the gateway's session and the
listener thread are four ways to wait around it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kjms.client.acknowledge_modes import Auto
from kjms.client.thread_guard import ThreadGuard
from kjms.destinations import Destination, Queue
from kjms.engine import destination_name
from kjms.errors import ResourceAllocationException
from kjms.message import Message

if TYPE_CHECKING:
    from kjms.client.acknowledge_modes import Acknowledgement
    from kjms.client.dead_letters import Redelivery
    from kjms.engine import ConsumerSlot, Delivery
    from kjms.options import FactoryOptions

__all__ = ["SessionCore"]

_log = logging.getLogger("kjms.session")


class SessionCore:
    """Takes messages for the consumers of one session, and settles those that are not to be delivered.

    Args:
        number: The session's, for error texts.
        options: The factory's options.
        now_ms: The clock, in milliseconds since the epoch.
        redelivery: Decides what becomes of messages whose delivery failed.
        acknowledgement: What the session does with the messages that it delivers.

    Attributes:
        guard: Held while a thread uses the session.
        delivering: Held while a message is on its way to the program, so that stopping can wait for it.
        arriving: The message that a receive is about to return.
        interrupted: What receives had, by their consumers' slots, that Ctrl-C, or another handler of a signal, ended.
    """

    def __init__(
        self,
        number: int,
        options: FactoryOptions,
        now_ms: Callable[[], int],
        redelivery: Redelivery,
        acknowledgement: Acknowledgement,
    ) -> None:
        self.guard = ThreadGuard(f"session {number}")
        self.redelivery = redelivery
        self.acknowledgement = acknowledgement
        self.delivering = threading.RLock()
        self.arriving: tuple[Delivery, Message] | None = None
        self.interrupted: dict[ConsumerSlot, tuple[Delivery, Message] | None] = {}
        self._number = number
        self._options = options
        self._now_ms = now_ms

    def overrun(self, doing: str) -> ResourceAllocationException:
        """Return the error for a session that holds as many unacknowledged messages as it may."""
        return ResourceAllocationException(
            f"{doing}: session {self._number} holds {self._options.max_unacknowledged} messages that are not"
            " acknowledged, and may hold no more (max_unacknowledged)"
        )

    def take(
        self,
        slot: ConsumerSlot,
        destination: Destination,
        deliver: Callable[[Delivery, Message], None] | None = None,
    ) -> tuple[Delivery, Message] | None:
        """Return the next message that the consumer of *slot* is to get, or None: it waits for one from now on.

        Args:
            slot: The consumer's slot.
            destination: What the consumer is on.
            deliver: Notes that the message is about to reach the program; stopping waits for it.
        """
        while True:
            with self.delivering:
                delivery = slot.poll()
                if delivery is None:
                    return None
                message: Message | None
                message = delivery.decoded  # as in `acceptable`, without a call
                if message is None:
                    message = delivery.partition.decode(delivery.record, destination, delivery.count)
                delivery.decoded = None
                properties = message._properties
                if delivery.count > 1 or "JMSExpiration" in properties or "JMSPriority" in properties:
                    message = self.checked(delivery, message, destination)
                if message is not None:
                    found = delivery, message
                    if deliver is not None:
                        self.arriving = found
                        deliver(delivery, message)
                    return found

    def take_at_hand(
        self, slot: ConsumerSlot, destination: Destination, deliver: Callable[[Delivery, Message], None]
    ) -> Message | None:
        """Return the next message where that needs no lock of the engine and no answer of Kafka; None: `take` tells.

        It is one of a batch, in its first delivery, that does not expire, in a session that has nothing to commit.
        """
        acknowledgement = self.acknowledgement
        if acknowledgement.asks and acknowledgement.must_commit:
            return None
        next_one = slot.peek()
        if next_one is None or next_one.count > 1 or "JMSExpiration" in next_one.message(destination)._properties:
            return None
        if acknowledgement.asks and not acknowledgement.before_next(slot):
            return None
        found = self.take(slot, destination, deliver)
        self.arriving = None
        return None if found is None else found[1]

    # Interrupts: what a handler of a signal raises, between any two steps of what the main thread does.

    def was_interrupted(self, slot: ConsumerSlot) -> None:
        """Note that a receive for *slot* was interrupted: the program never gets what that had taken."""
        self.interrupted[slot] = self.arriving  # first: the next interrupt may come at once
        self._take_back(slot)

    def all_interrupted(self, slots: Iterable[ConsumerSlot]) -> None:
        """Note that a call that settles, or gives back, messages of *slots* was interrupted."""
        for slot in slots:
            self.interrupted.setdefault(slot)
        self.take_back()

    def take_back(self) -> None:
        """Take back what interrupted calls have left dispatched, and no program will settle."""
        for slot in list(self.interrupted):
            self._take_back(slot)

    def _take_back(self, slot: ConsumerSlot) -> None:
        found = self.interrupted[slot]
        if found is not None:
            self.acknowledgement.withdraw(found[0])
        slot.reader.reclaim(slot, self.acknowledgement.held)
        if found is None or found[0].partition.settlement.holds(found[0].offset):
            del self.interrupted[slot]

    def after_interrupt(self, slot: ConsumerSlot, read: Callable[[Message], None] | None) -> Message | None:
        """Return the message that an interrupted receive for *slot* had acknowledged before, if there is one."""
        self.take_back()
        found = self.interrupted.get(slot)
        if found is None:
            return None
        if read is not None:
            read(found[1])
        del self.interrupted[slot]  # from here on no handler of a signal runs before the program has it
        return found[1]

    def report_interrupted(self) -> None:
        """Log which messages are acknowledged, and never reach the program: the session closes."""
        for found in self.interrupted.values():
            if found is not None:
                _log.warning(
                    "session %d: message %s is acknowledged, and was not returned: its receive was interrupted, and"
                    " no other one came before the session closed (CLIENT_ACKNOWLEDGE loses none)",
                    self._number,
                    found[1].jms_message_id,
                )

    def acceptable(self, delivery: Delivery, destination: Destination, *, records: bool = True) -> Message | None:
        """Return the message of *delivery*; None if it has expired or was delivered too often: then it is settled.

        The message is the program's from then on: if it is delivered again, it is decoded again.

        Args:
            delivery: The delivery.
            destination: What the consumer is on.
            records: Whether a repeated delivery is recorded durably before it is made.
        """
        message = delivery.decoded
        if message is None:
            message = delivery.partition.decode(delivery.record, destination, delivery.count)
        delivery.decoded = None
        properties = message._properties
        if delivery.count > 1 or "JMSExpiration" in properties or "JMSPriority" in properties:
            return self.checked(delivery, message, destination, records=records)
        return message

    def checked(
        self, delivery: Delivery, message: Message, destination: Destination, *, records: bool = True
    ) -> Message | None:
        """Return *message*, unless it has expired or was delivered too often; note that its priority matters."""
        properties = message._properties  # where header fields wait until they are read
        if "JMSPriority" in properties and message.jms_priority != Message.DEFAULT_PRIORITY:
            delivery.priority = message.jms_priority  # it may not have been known: `kjms.engine.consumer.ranking`
            delivery.slot.has_priorities = True  # type: ignore[union-attr] # dispatched, so it has a slot
        if "JMSExpiration" in properties:
            expires = message.jms_expiration
            if expires and expires < self._now_ms():
                self.expire(delivery, destination)
                return None
        if delivery.count > 1 and (
            self.redelivery.is_one_too_many(delivery) or (records and not self._is_recorded(delivery))
        ):
            return None
        return message

    def expire_if_due(self, delivery: Delivery) -> bool:
        """Let the message of *delivery*, which a session has, go if it has expired; return whether it has."""
        assert delivery.slot is not None
        destination = delivery.slot.reader.destination
        expires = delivery.message(destination).jms_expiration
        if not expires or expires >= self._now_ms():
            return False
        self.expire(delivery, destination)
        return True

    def expire(self, delivery: Delivery, destination: Destination) -> None:
        """Let the expired message of *delivery* go: to the expiry queue, where there is one."""
        queue_name = self._options.destination(destination_name(destination)).expiry_queue
        if queue_name is None or destination == Queue(queue_name):
            assert delivery.slot is not None
            delivery.slot.reader.settle([delivery])
        else:
            self.redelivery.expire(delivery, queue_name)

    def _is_recorded(self, delivery: Delivery) -> bool:
        """Record a repeated delivery durably before it is made, so that a message that kills its consumer is found."""
        slot = delivery.slot
        assert slot is not None
        reader = slot.reader
        self.acknowledgement.continues()
        try:
            if reader.record(delivery):
                return True
        except BaseException:
            reader.give_back([delivery], to=slot, is_counted=False)  # not behind those given back with it
            raise
        reader.give_back([delivery], is_counted=False)  # its partition was lost meanwhile
        return False

    def delivery(self, read: Callable[[Message], None] | None, *, is_loop: bool) -> Callable[[Delivery, Message], None]:
        """Return what notes that a message is delivered: to a loop over its consumer, to *read* first, or as it is.

        If *read* raises, the session's mode decides what becomes of the message.
        """
        note = self.acknowledgement.looping if is_loop else self.acknowledgement.received
        if read is None:
            return note

        def deliver(delivery: Delivery, message: Message) -> None:
            try:
                read(message)
            except BaseException:
                if isinstance(self.acknowledgement, Auto):  # not received: it comes again before any later one
                    assert delivery.slot is not None
                    delivery.slot.reader.give_back([delivery], to=delivery.slot, is_counted=False)
                else:
                    self.acknowledgement.received(delivery, message)
                raise
            note(delivery, message)

        return deliver
