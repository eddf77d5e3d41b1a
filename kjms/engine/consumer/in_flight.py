"""The deliveries that sessions have: dispatched, and neither settled nor given back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kjms.txn.delivery_states import RETURN, SETTLE
from kjms.txn.states import NEVER

if TYPE_CHECKING:
    from kjms.engine.consumer.delivery import Delivery, Receipt, Slot
    from kjms.engine.consumer.dispatcher import Dispatcher

__all__ = ["InFlight"]


class InFlight:
    """Counts what is in flight, and takes it back; its caller holds the lock of the source.

    Args:
        dispatcher: Where what comes back goes.
        now_ms: Tells the time, in milliseconds since the epoch.

    Attributes:
        count: How many messages are in flight, those that are being relocated included.
        dispatched: How many were dispatched, ever.
        is_active: Whether some were dispatched since the last poll, so that their commits may be near.
    """

    def __init__(self, dispatcher: Dispatcher, now_ms: Callable[[], int]) -> None:
        self._dispatcher = dispatcher
        self._now_ms = now_ms
        self.count = 0
        self.dispatched = 0
        self.is_active = False

    def add(self, delivery: Delivery) -> None:
        """Note that *delivery* was dispatched."""
        self.count += 1
        self.dispatched += 1
        self.is_active = True

    def settle(self, delivery: Delivery) -> Receipt:
        """Note that *delivery* is done; return what `MessageSource.flush` takes."""
        self.count -= 1
        delivery.state = SETTLE[delivery.state]
        if delivery.busy is not None:
            self._dispatcher.let_go(delivery)
        partition = delivery.partition
        settlement = partition.settlement
        settlement.settle(delivery.offset)
        return partition, settlement.version

    def give_back(
        self,
        deliveries: Iterable[Delivery],
        *,
        to: Slot | None = None,
        is_counted: bool = True,
        due: Callable[[Delivery], int] | None = None,
    ) -> bool:
        """Take back messages: see `MessageSource.give_back`. Return whether some of them wait for a time."""
        back: list[Delivery] = []
        later: list[Delivery] = []
        for delivery in deliveries:
            self.count -= 1
            delivery.state = RETURN[delivery.state]
            delivery.decoded = None
            delivery.is_made = False
            if is_counted:
                delivery.come_back(due, self._now_ms())
            elif delivery.count > 1 or delivery.record_history != NEVER:
                delivery.note()  # the delivery may have been recorded, and was not made
            if delivery.partition.is_held:
                (later if delivery.due else back).append(delivery)
        is_for_all = to is None or not to.is_started
        for delivery in (*back, *later) if is_for_all else later:
            delivery.is_back = True
            self._dispatcher.let_go(delivery)
        self._dispatcher.put_back(later)
        if to is None or is_for_all:
            self._dispatcher.put_back(back)
        else:
            to.returned.extendleft(reversed(back))
            to.wakeup.set()
        return bool(later)
