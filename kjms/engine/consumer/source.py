"""What sessions and transactions use of the place where messages come from: a Kafka topic, or the inbox."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from kjms.destinations import Destination
    from kjms.engine.consumer.access_denial import AccessDenial
    from kjms.engine.consumer.consumer_slot import ConsumerSlot
    from kjms.engine.consumer.delivery import Delivery, Receipt
    from kjms.engine.transactions.plan import Copy, Settler
    from kjms.engine.transactions.redelivery_log import Event

__all__ = ["COMMIT_SECONDS", "MessageSource"]

COMMIT_SECONDS: Final = 10.0  # how long a commit is tried again after transient errors, as of a rebalance


class MessageSource(Protocol):
    """What sessions, and transactions, use of a queue, a subscription or a temporary destination.

    Attributes:
        destination: Where the messages were sent.
        lock: Guards what is held, dispatched and settled; taken by each method.
        refusal: Raises what waiting consumers must hear.
    """

    destination: Destination
    lock: threading.RLock
    refusal: AccessDenial

    @property
    def relocations(self) -> Settler[Delivery]:
        """What Kafka transactions settle."""

    @property
    def name(self) -> str:
        """The destination's name."""

    @property
    def is_shared(self) -> bool:
        """Whether several consumers are started, here or in other processes that may get messages from here."""

    @property
    def has_peers(self) -> bool:
        """Whether consumers in other processes may want the messages."""

    def remove_slot(self, slot: ConsumerSlot) -> None:
        """Take the consumer of *slot* away; what it was to get goes to others."""

    def start_slot(self, slot: ConsumerSlot) -> None:
        """Let messages come to *slot*."""

    def stop_slot(self, slot: ConsumerSlot) -> None:
        """Hold messages back from *slot*."""

    def rest(self, slot: ConsumerSlot) -> None:
        """Note that the consumer of *slot* stopped waiting."""

    def take(self, slot: ConsumerSlot) -> Delivery | None:
        """Return the next message for *slot*, or note that it waits for one."""

    def settle(self, delivery: Delivery, *, is_urgent: bool = False) -> Receipt:
        """Note that *delivery*, which a session had, is done; return what `flush` takes.

        Args:
            delivery: The delivery.
            is_urgent: Whether the consumer thread commits it at once. Else the next `flush` does, or the thread within
                0.1 s.
        """

    def flush(self, timeout: float = COMMIT_SECONDS, receipts: Sequence[Receipt] = ()) -> int:
        """Return when what was settled is committed, and how much of *receipts* was lost: see `OffsetCommitter.flush`.

        Raises:
            JMSException: The broker refused it.
        """

    def flush_before_exit(self, receipts: Sequence[Receipt] = ()) -> None:
        """Flush, and return in any case: see `OffsetCommitter.flush_before_exit`.

        Raises:
            JMSException: The broker refused it, or did not answer in time.
        """

    def uncount(self, delivery: Delivery) -> None:
        """Note that the session which has *delivery* goes on to another message."""

    def record(self, delivery: Delivery) -> bool:
        """Record *delivery* durably before it is made; return whether it still may be.

        Raises:
            JMSException: The broker refused it.
        """

    def give_back(
        self,
        deliveries: Iterable[Delivery],
        *,
        to: ConsumerSlot | None = None,
        is_counted: bool = True,
        due: Callable[[Delivery], int] | None = None,
    ) -> None:
        """Take back messages that were dispatched: they are delivered again, in their order.

        Args:
            deliveries: The messages, oldest first.
            to: The consumer that gets them again; None, or one that is stopped: any that matches.
            is_counted: Whether they come marked as redelivered: they do, unless no application saw them.
            due: Says when a message may be delivered again, in milliseconds since the epoch; 0 is at once.
        """

    def dead_letter(self, delivery: Delivery, copy: Callable[[int], Copy], why: Event) -> None:
        """Relocate *delivery*, which a session has, for good: no consumer here gets it again.

        Its count says how many deliveries were made.
        """
