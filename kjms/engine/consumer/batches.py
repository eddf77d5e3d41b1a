"""Batches of messages that are dispatched to one consumer at once: pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from kjms.engine.consumer.delivery import HIGHEST_PRIORITY
from kjms.engine.consumer.rotation import SHARE, STREAK
from kjms.engine.consumer.selector_queue import SelectorQueue
from kjms.txn.delivery_states import DISPATCHED, READY, RETURN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kjms.engine.consumer.consumer_slot import ConsumerSlot
    from kjms.engine.consumer.delivery import AssignedPartition, Delivery
    from kjms.engine.consumer.message_groups import MessageGroups

__all__ = ["Batches"]


class Dispatching(Protocol):
    """A dispatcher, as far as batches need it.

    Attributes:
        held: How many messages are ready.
        in_flight: How many are dispatched.
        dispatched: How many were dispatched, ever.
        groups: The message groups that sessions are busy with.
        wants_dispatch_limit: Whether a message was asked for that is near or beyond the limit.
    """

    held: int
    in_flight: int
    dispatched: int
    groups: MessageGroups[Delivery]
    wants_dispatch_limit: bool

    @property
    def selector_queues(self) -> Mapping[Any, SelectorQueue[Delivery, ConsumerSlot]]:
        """What the consumers of each selector want."""

    def put_back(self, deliveries: Iterable[Delivery]) -> None:
        """Make messages that were dispatched ready again, each in its old place."""


class Batches:
    """Dispatches messages ahead of the requests of sessions, and takes back those that no session has taken.

    A session takes from its consumer's batch without the source's lock: each message is removed once, by the session or
    by `recall`.

    Args:
        dispatcher: What holds the messages.
        size: How many messages a batch has at the most; 0: there are none.

    Attributes:
        size: The same.
        priority: What arrives with a higher one goes before what is left of a batch.
        slots: The consumers that may have something left of a batch.
    """

    def __init__(self, dispatcher: Dispatching, size: int) -> None:
        self._dispatcher = dispatcher
        self.size = size
        self.priority = HIGHEST_PRIORITY
        self.slots: set[ConsumerSlot] = set()

    def __len__(self) -> int:
        return sum(len(slot.batch) for slot in self.slots)

    def fill(self, slot: ConsumerSlot, queue: SelectorQueue[Delivery, ConsumerSlot], most: int | None = None) -> None:
        """Dispatch to *slot* what it will ask for next, where nothing but the order of the messages decides.

        That is not so with several priorities or message groups. What peers handed over is dispatched one by one: it is
        requested as it is taken.

        A batch ends near a dispatch limit, unless a new one was asked for already: a slow consumer's limits stay near.

        Args:
            slot: The only consumer that asks: a consumer gets messages in their order, and what another one took from
                this batch would be older than what that one has had.
            queue: What it wants.
            most: How many messages, at the most; None: `size`.
        """
        dispatcher = self._dispatcher
        if len(dispatcher.selector_queues) > 1 or dispatcher.groups.busy:
            return
        levels = [(rank, level) for rank, level in queue.levels if level]
        if len(levels) != 1:
            return
        (rank, level), batch = levels[0], slot.batch
        latest: AssignedPartition | None = None
        least = end = 0
        if slot.given:
            self.note_taken()  # the session has taken all of the batch before, since the last commit
        try:
            for _ in range(min(self.size if most is None else most, self.size, len(level))):
                delivery = level[0]
                partition = delivery.partition
                if partition is not latest:
                    if partition.is_transfer:
                        break
                    if latest is not None:
                        latest.settlement.advance(batch[-1].offset)
                    latest = partition
                    is_far = dispatcher.wants_dispatch_limit
                    end = partition.settlement.dispatch_limit if is_far else partition.extend_at
                    least = partition.settlement.free_from
                if (
                    delivery.state is not READY
                    or delivery.group is not None
                    or not least <= delivery.offset < end
                    or delivery.is_relocating
                ):
                    break
                least = delivery.offset
                delivery.slot = slot
                delivery.state = DISPATCHED
                delivery.ready_in = 0
                batch.append(delivery)
                level.popleft()
        finally:  # also where Ctrl-C came
            if batch:
                batch[-1].partition.settlement.advance(batch[-1].offset)
                slot.given = list(batch)
                self.slots.add(slot)
                self.priority = min(self.priority, -rank)
                queue.size -= len(batch)
                dispatcher.held -= len(batch)
                dispatcher.in_flight += len(batch)
                dispatcher.dispatched += len(batch)

    def fill_in_rotation(self, slot: ConsumerSlot, queue: SelectorQueue[Delivery, ConsumerSlot]) -> bool:
        """Dispatch to *slot* what it will ask for next, if no other consumer is active; return whether it did."""
        rotation = queue.rotation
        if slot.returned or slot.batch or rotation.is_any_active(but=slot):
            return False
        self.fill(slot, queue, SHARE)
        if not slot.batch:
            rotation.found_nothing()
            return False
        rotation.gave(len(slot.batch))
        slot.streak, slot.taken_at = STREAK, 0.0  # it waits behind others then
        queue.comes(slot)
        return True

    def note_taken(self, *, is_single: bool = False) -> dict[AssignedPartition, int]:
        """Note what sessions have taken of batches; return where what is left of them begins, by partition.

        Args:
            is_single: Whether all is of one partition.
        """
        starts: dict[AssignedPartition, int] = {}
        for slot in self.slots:
            given = slot.given
            count = len(given) - len(slot.batch)  # the session may take one more meanwhile: it counts as left then
            for delivery in given[:count]:
                if delivery.state is DISPATCHED:
                    delivery.partition.settlement.dispatch(delivery.offset, is_lent=slot.is_lending)
            del given[:count]
            for delivery in given[:1] if is_single else given:
                starts.setdefault(delivery.partition, delivery.offset)
        return starts

    def recall(self) -> None:
        """Make ready again what is left of batches, each message in its old place."""
        if not self.slots:
            return
        back: list[Delivery] = []
        for slot in self.slots:
            while slot.batch:
                try:
                    back.append(slot.batch.pop())
                except IndexError:  # its session took the last one
                    break
        self.note_taken()
        self.slots.clear()
        self.priority = HIGHEST_PRIORITY
        dispatcher = self._dispatcher
        dispatcher.in_flight -= len(back)
        dispatcher.dispatched -= len(back)
        for delivery in back:
            delivery.state = RETURN[delivery.state]
            settlement = delivery.partition.settlement
            settlement.dispatched = min(settlement.dispatched, delivery.offset)
        dispatcher.put_back(back)
