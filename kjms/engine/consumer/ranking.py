"""When the priorities of ready messages are looked at: pure."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kjms.destinations import Destination
    from kjms.engine.consumer.batches import Batches
    from kjms.engine.consumer.consumer_slot import ConsumerSlot
    from kjms.engine.consumer.delivery import Delivery
    from kjms.engine.consumer.message_groups import MessageGroups
    from kjms.engine.consumer.selector_queue import SelectorQueue

__all__ = ["Ranking"]

QUICK: Final = 10_000  # messages that consumers take in a second, and more
LOOK_SECONDS: Final = 0.02  # between two looks at how quick they are


class Ranked(Protocol):
    """A dispatcher, as far as ranking needs it.

    Attributes:
        batches: What is dispatched, and was not taken by a session yet.
        dispatched: How many messages were dispatched, ever.
        groups: The message groups that sessions are busy with.
    """

    batches: Batches
    dispatched: int
    groups: MessageGroups[Delivery]

    @property
    def selector_queues(self) -> Mapping[Any, SelectorQueue[Delivery, ConsumerSlot]]:
        """What the consumers of each selector want."""


class Ranking:
    """Ranks messages as they arrive, which means that each is decoded for its priority, or later.

    Most queues have one priority, and a message that its session decodes costs a fifth less than one that was decoded
    before, and waited. So while consumers are `QUICK`, messages are ready *unranked*, in their order. All of them are
    ranked when consumers are less quick, and after a session took a message of another priority than the default one.
    From then on, every message is ranked as it arrives.

    Args:
        dispatcher: What holds the messages; its caller holds the lock of the source.
        destination: What the messages say that they were sent to.

    Attributes:
        is_needed: Whether a message came that is more, or less, urgent than others.
        has_unranked: Whether some of what is ready may be unranked.
    """

    __slots__ = ("_destination", "_dispatcher", "_is_quick", "_looked_at", "_taken", "has_unranked", "is_needed")

    def __init__(self, dispatcher: Ranked, destination: Destination) -> None:
        self.is_needed = False
        self._dispatcher = dispatcher
        self._destination = destination
        self.has_unranked = False
        self._is_quick = False
        self._looked_at = 0.0
        self._taken = 0

    def may_wait(self) -> bool:
        """Return whether what arrives now may be unranked, and note that it is; else rank what is ready."""
        self.has_unranked = self.look()
        return self.has_unranked

    def look(self) -> bool:
        """Look how quick consumers are; return whether messages may be unranked, else rank what is ready."""
        dispatcher, now = self._dispatcher, time.monotonic()
        seconds = now - self._looked_at
        if seconds >= LOOK_SECONDS:
            taken = dispatcher.dispatched - len(dispatcher.batches)
            self._is_quick = taken - self._taken >= seconds * QUICK
            self._looked_at, self._taken = now, taken
        if self._is_quick and not self.is_needed:
            return True
        self.rank()
        return False

    def rank(self, *, is_needed: bool = False) -> None:
        """Rank what is ready and unranked, and with *is_needed* all that arrives from now on."""
        self.is_needed = is_needed or self.is_needed
        if not self.has_unranked:
            return
        self.has_unranked = False
        self._dispatcher.batches.recall()
        for queue in self._dispatcher.selector_queues.values():
            for delivery in queue:
                delivery.message(self._destination)
            if queue.rank():
                self.is_needed = True
        self._dispatcher.groups.rank(lambda delivery: delivery.message(self._destination))
