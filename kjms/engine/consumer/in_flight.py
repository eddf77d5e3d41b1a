"""The deliveries that sessions have: dispatched, and neither settled nor given back."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from kjms.txn.delivery_states import DISPATCHED, RETURN, SETTLE, DeliveryState
from kjms.txn.states import NEVER

if TYPE_CHECKING:
    from kjms.engine.consumer.delivery import AssignedPartition, Delivery, Receipt, Slot
    from kjms.engine.consumer.dispatcher import Dispatcher

__all__ = ["InFlight"]


class InFlight:
    """Settles what sessions are done with, and takes back the rest; its caller holds the lock of the source.

    Args:
        dispatcher: Where what comes back goes.
        now_ms: Tells the time, in milliseconds since the epoch.

    Attributes:
        settled: What sessions are done with, to be settled with the next `collect`; they append to it without the lock.
        is_active: Whether some were dispatched since the last poll, so that their commits may be near.
    """

    def __init__(self, dispatcher: Dispatcher, now_ms: Callable[[], int]) -> None:
        self._dispatcher = dispatcher
        self._now_ms = now_ms
        self.settled: deque[Delivery] = deque()
        self.is_active = False

    def collect(self) -> None:
        """Settle what sessions are done with."""
        settled = self.settled
        if settled:
            found: list[Delivery] = []
            try:
                for _ in range(len(settled)):
                    found.append(settled.popleft())
                self.settle(found)
            except BaseException:  # Ctrl-C, at any point of it
                settled.extendleft(each for each in reversed(found) if each.state is DISPATCHED)
                raise

    def settle(self, deliveries: Sequence[Delivery]) -> list[Receipt]:
        """Note that *deliveries* are done; return what `MessageSource.flush` takes."""
        counts: dict[AssignedPartition, int] = {}
        partition, first, past = None, 0, 0
        try:
            for delivery in deliveries:
                if delivery.partition is not partition or delivery.offset != past:
                    if partition is not None:
                        partition.settlement.settle(first, past)
                        counts[partition] = counts.get(partition, 0) + past - first
                    partition, first = delivery.partition, delivery.offset
                past = delivery.offset + 1
            if partition is not None:
                partition.settlement.settle(first, past)
                counts[partition] = counts.get(partition, 0) + past - first
            self._let_go(deliveries)
        except BaseException:  # Ctrl-C, at any point of it
            left = [each for each in deliveries if each.state is not DeliveryState.SETTLED]
            self._let_go([each for each in left if not each.partition.settlement.holds(each.offset)])
            raise
        receipts: list[Receipt] = []
        for partition, count in counts.items():
            receipts.append((partition, partition.settlement.version, count))
        return receipts

    def _let_go(self, deliveries: Sequence[Delivery]) -> None:
        """Note that no session has *deliveries* any more, which are settled."""
        dispatcher = self._dispatcher
        done = 0
        try:
            for delivery in deliveries:  # not before they are: what Ctrl-C leaves unsettled is still dispatched
                delivery.state = SETTLE[delivery.state]
                done += 1
                if delivery.busy is not None:
                    dispatcher.let_go(delivery)
        finally:
            dispatcher.in_flight -= done

    def give_back(
        self,
        deliveries: Iterable[Delivery],
        *,
        to: Slot | None = None,
        is_counted: bool = True,
        due: Callable[[Delivery], int] | None = None,
    ) -> bool:
        """Take back messages: see `MessageSource.give_back`. Return whether some of them wait for a time."""
        self._dispatcher.batches.recall()  # what comes back is older
        back: list[Delivery] = []
        later: list[Delivery] = []
        for delivery in deliveries:
            self._dispatcher.in_flight -= 1
            delivery.state = RETURN[delivery.state]
            delivery.decoded = None
            delivery.attempts.is_made = False
            if is_counted:
                delivery.come_back(due, self._now_ms())
            else:
                if due is not None:
                    delivery.due = due(delivery)
                if delivery.count > 1 or delivery.recorded != NEVER:
                    delivery.note()  # the delivery may have been recorded, and was not made
            if delivery.partition.is_held:
                (later if delivery.due else back).append(delivery)
        is_for_all = to is None or not to.is_started
        for delivery in (*back, *later) if is_for_all else later:
            delivery.attempts.is_back = True
            self._dispatcher.let_go(delivery)
        self._dispatcher.put_back(later)
        if to is None or is_for_all:
            self._dispatcher.put_back(back)
        else:
            to.returned.extendleft(reversed(back))
            to.returned_at = time.monotonic()
            to.wakeup.set()
        return bool(later)

    def is_to_blame(self, delivery: Delivery, most: int) -> bool:
        """Return whether *delivery* is to become a dead letter: see `MessageSource.is_to_blame`."""
        settlement = delivery.partition.settlement
        here = [each for _, each in settlement.messages() if each.count > 1 and each.counted > most]
        for each in here[1:]:
            each.attempts.uncounted += 1
            each.note()
        settlement.uncount_unread(most)
        is_to_blame = delivery.counted > most
        if is_to_blame:
            delivery.count -= 1  # it is not made
        return is_to_blame

    def reclaim(self, slot: Slot, kept: Collection[Delivery], partitions: Iterable[AssignedPartition]) -> None:
        """Take back what *slot* was given of *partitions*, and not *kept*: see `MessageSource.reclaim`."""
        self.collect()
        self._dispatcher.batches.recall()
        messages = [each for partition in partitions for _, each in partition.settlement.messages()]
        self._dispatcher.mend(messages)
        held = [each for each in messages if each.is_in_flight]
        self._dispatcher.in_flight = max(self._dispatcher.in_flight, len(held))  # it may not have been counted
        lost = [each for each in held if each.slot is slot and each.state is DISPATCHED and each not in kept]
        for delivery in lost:
            delivery.possibly_made()
        slot.returned = deque(delivery for delivery in slot.returned if delivery.state is not DISPATCHED)
        self.give_back(lost, is_counted=False)
