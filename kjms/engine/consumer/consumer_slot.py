"""What a session holds of each of its consumers: its opening on a group consumer."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from kjms.engine.consumer.delivery import MessageSource

if TYPE_CHECKING:
    from kjms.engine.consumer.access_denial import AccessDenial
    from kjms.engine.consumer.delivery import Delivery
    from kjms.engine.consumer.selector_queue import SelectorQueue
    from kjms.engine.log_reading import Place
    from kjms.selector import Selector

__all__ = ["ConsumerSlot", "SlotSource"]


PAUSE_SECONDS: Final = 0.001  # a consumer that works so long for a message lets others run meanwhile


class ConsumerSlot:
    """One JMS consumer's opening on a reader.

    Args:
        reader: Where the messages come from.
        selector: Which of them the consumer wants; None is all.
        wakeup: Set when there may be something to poll, or when the slot closes; one for each session.

    Attributes:
        streak: How many messages the consumer took one by one, without a pause for work.
        has_priorities: Whether it took a message that is more, or less, urgent than others; its session notes that.
        is_lending: Whether its session passes messages on, so that no program may have seen them yet.
        starts: How often any consumer of this process was started; when it changes, `has_rivals` may have, too.
    """

    starts: ClassVar = 0

    def __init__(self, reader: SlotSource, selector: Selector | None, wakeup: threading.Event) -> None:
        self.reader = reader
        self.selector = selector
        self.wakeup = wakeup
        self.is_started = False
        self.is_open = True
        self.has_priorities = False
        self.is_lending = False
        self.returned: deque[Delivery] = deque()  # what this consumer gets again, before anything else
        self.returned_at = 0.0  # when it was returned
        self.queue: SelectorQueue[Delivery, ConsumerSlot] | None = None  # while it is started
        self.batch: deque[Delivery] = deque()  # dispatched to this consumer; its session has not taken it yet
        self.given: list[Delivery] = []  # the batch, with what its session has taken since that was last noted
        self.batch_until = 0.0  # until when, by time.monotonic, the session may take from it without the source's lock
        self.streak = 0
        self.taken_at = 0.0  # when it took the message that it is busy with; 0: it has asked for another since
        self.idle_since = 0.0  # when it was started, or gave up waiting; 0: it waits, or has taken a message

    @property
    def is_waiting(self) -> bool:
        """Whether the consumer asked for a message, has not been woken since, and was given none back."""
        queue = self.queue
        return queue is not None and self in queue.waiting and not self.returned

    @property
    def has_ready(self) -> bool:
        """Whether a message is ready for the consumer, though it may have to wait for a dispatch limit."""
        return bool(self.returned or self.batch or (self.queue is not None and self.queue.size))

    @property
    def has_rivals(self) -> bool:
        """Whether others may want the messages that this one waits for: it should not wait while it is busy."""
        return self.reader.is_shared

    @property
    def has_rivals_elsewhere(self) -> bool:
        """Whether consumers in other processes may want the messages that this one waits for."""
        return self.reader.has_peers

    def start(self) -> None:
        """Let messages come."""
        self.reader.start_slot(self)

    def stop(self) -> None:
        """Hold messages back: once this has returned, `poll` gives none."""
        self.reader.stop_slot(self)

    def close(self) -> None:
        """Take the consumer away; what it was to get goes to others."""
        with self.reader.lock:
            self.is_open = False
            self.stop()
        self.wakeup.set()

    def poll(self) -> Delivery | None:
        """Return the next message, or None; in that case `wakeup` will be set when there may be one.

        While the batch lasts this takes no lock: the source, where it takes the batch back, gets what is left of it.
        """
        if self.batch:
            now = time.monotonic()
            if now < self.batch_until:
                try:
                    delivery = self.batch.popleft()
                except IndexError:  # taken back meanwhile
                    pass
                else:
                    self.taken_at = now
                    return delivery
        return self.reader.take(self)

    def peek(self) -> Delivery | None:
        """Return the next message of the batch, if there is one that `poll` gives without a lock."""
        if self.batch and time.monotonic() < self.batch_until:
            try:
                return self.batch[0]
            except IndexError:  # taken back meanwhile; contextlib.suppress takes ten times as long
                return None
        return None

    def took(self, delivery: Delivery | None, now: float) -> float:
        """Note that the consumer took *delivery*, or found nothing; return how long it was busy with the one before."""
        worked = now - self.taken_at if self.taken_at else 0.0
        self.idle_since = 0.0
        if delivery is None:
            self.taken_at, self.streak = 0.0, 0
        else:
            self.taken_at = now
            self.streak = self.streak + 1 if worked < PAUSE_SECONDS else 0
        return worked

    def wait_behind_others(self) -> bool:
        """Wait behind the other consumers that wait, if there are any: this one has taken messages for a while."""
        return self.reader.wait_behind_others(self)

    def rest(self) -> None:
        """Wait no longer: pass on the wake-up that may have come too late for this consumer."""
        self.reader.rest(self)
        if not self.taken_at:
            self.idle_since = time.monotonic()


class SlotSource(MessageSource, Protocol):
    """What consumer slots use of a queue, a subscription or a temporary destination.

    Attributes:
        refusal: Raises the errors that waiting consumers must receive.
    """

    refusal: AccessDenial

    @property
    def is_shared(self) -> bool:
        """Whether several consumers are started, here or in other processes that may get messages from here."""

    @property
    def has_peers(self) -> bool:
        """Whether consumers in other processes may want the messages."""

    def start_slot(self, slot: ConsumerSlot) -> None:
        """Let messages come to *slot*."""

    def stop_slot(self, slot: ConsumerSlot) -> None:
        """Hold messages back from *slot*."""

    def rest(self, slot: ConsumerSlot) -> None:
        """Note that the consumer of *slot* stopped waiting."""

    def wait_behind_others(self, slot: ConsumerSlot) -> bool:
        """Have *slot* wait behind the consumers that wait; return whether any does."""

    def log_ends(self, seconds: float) -> Mapping[Place, int] | None:
        """Return where what is read for the destination ends now; None: nothing is read yet.

        Args:
            seconds: For how long the broker may take to answer.

        Raises:
            JMSException: The broker did not answer, or refused.
        """

    def has_read(self, slot: ConsumerSlot, ends: Mapping[Place, int]) -> bool:
        """Return whether all before *ends* was read, and nothing of it is ready for *slot*."""

    def take(self, slot: ConsumerSlot) -> Delivery | None:
        """Return the next message for *slot*, or note that it waits for one."""
