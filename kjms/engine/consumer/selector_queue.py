"""The messages that are ready for the consumers that share one selector: pure."""

from __future__ import annotations

import threading
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from kjms.engine.consumer.rotation import Rotation
from kjms.txn.delivery_states import READY, DeliveryState

if TYPE_CHECKING:
    from kjms.selector import Selector

__all__ = ["SelectorQueue", "SelectorQueues"]

AT_ONCE: Final = 4  # consumers are woken, each wakes the next one: more would hold each other up
STUCK_SECONDS: Final = 0.5  # what was handed over to consumers that take nothing for so long goes back


class Queued(Protocol):
    """A delivery, as far as a selector queue needs it."""

    state: DeliveryState
    priority: int
    order: int

    @property
    def partition(self) -> object:
        """Return where it comes from."""


class Waiter(Protocol):
    """A consumer, as far as a selector queue needs it."""

    wakeup: threading.Event
    taken_at: float
    idle_since: float

    @property
    def batch(self) -> Sized:
        """Return what is dispatched to it, and was not taken by its session yet."""


D = TypeVar("D", bound=Queued)
Q = TypeVar("Q", bound=Queued)
C = TypeVar("C", bound=Waiter)


class SelectorQueue(Generic[D, C]):
    """What the consumers that share one selector want; some of it others may have taken meanwhile.

    Attributes:
        levels: For each priority that has come up, highest first: the messages, oldest first.
        size: How many there are, those that were taken included.
        waiting: The consumers that wait, in the order in which they began to; with each, which one it was to begin.
        woken: The consumers that were woken, and have not asked for a message since; with each, the same.
        is_sorted: Whether all that was put back is in its place.
        busy_since: Since when, as far as was looked, no consumer has waited; 0: one does, or did at the last look.
        is_withdrawn: Whether its consumers are so busy that other processes are to keep what it wants.
        hold_seconds: For how many seconds what was handed over waits for consumers that do not ask, while others wait.
        rotation: Whether its consumers rotate.
    """

    __slots__ = (
        "_begun",
        "busy_since",
        "hold_seconds",
        "is_sorted",
        "is_withdrawn",
        "levels",
        "prune_at",
        "rotation",
        "selector",
        "size",
        "slots",
        "waiting",
        "woken",
    )

    def __init__(self, selector: Selector | None, prune_at: int) -> None:
        self.selector = selector
        self.prune_at = prune_at  # how large it may get before what others took is thrown out
        self.levels: list[tuple[int, deque[D]]] = []
        self.size = 0
        self.is_sorted = True
        self.slots: list[C] = []
        self.waiting: dict[C, int] = {}
        self.woken: dict[C, int] = {}
        self._begun = 0
        self.busy_since = 0.0
        self.is_withdrawn = False
        self.hold_seconds = STUCK_SECONDS
        self.rotation = Rotation(self.slots, self.waiting, self.woken)

    def __iter__(self) -> Iterator[D]:
        for _, level in self.levels:
            for delivery in level:
                if delivery.state is READY:
                    yield delivery

    def add(self, delivery: D) -> None:
        """Put *delivery* behind those of its priority."""
        self.size += 1
        self._level(delivery.priority).append(delivery)

    def extend(self, priority: int, deliveries: Sequence[D]) -> None:
        """Put *deliveries* behind those of *priority*, which they all have."""
        self.size += len(deliveries)
        self._level(priority).extend(deliveries)

    def put_back(self, delivery: D) -> None:
        """Put *delivery* in its old place, or before the others of its priority until they are sorted.

        What another selector queue gave away is still listed here: it must not be listed twice.
        """
        level = self._level(delivery.priority)
        if level and level[0] is delivery:
            return
        self.size += 1
        if level and level[-1].order < delivery.order:
            level.append(delivery)
        else:
            self.is_sorted = self.is_sorted and not (level and level[0].order < delivery.order)
            level.appendleft(delivery)

    def _level(self, priority: int) -> deque[D]:
        rank = -priority
        for each, level in self.levels:
            if each == rank:
                return level
        level = deque()
        insort(self.levels, (rank, level), key=_rank)
        return level

    def by_turn(self, most_overtaking: int) -> list[tuple[int, deque[D]]]:
        """Return the levels that have messages, most urgent first; before it one that *most_overtaking* overtook."""
        levels = [level for level in self.levels if level[1]]
        if len(levels) > 1:
            last = max(levels[1:], key=_age)
            if levels[0][1][0].order - last[1][0].order > most_overtaking:
                levels.remove(last)
                levels.insert(0, last)
        return levels

    def tidy(self, without: object | None = None) -> None:
        """Throw out what others took, and what is of the partition *without*."""
        self.size = 0
        for number, (rank, level) in enumerate(self.levels):
            kept = deque(d for d in level if d.state is READY and d.partition is not without)
            self.levels[number] = rank, kept
            self.size += len(kept)

    def rank(self) -> bool:
        """Put each message among those of its priority; return whether one was not."""
        if all(delivery.priority == -rank for rank, level in self.levels for delivery in level):
            return False
        deliveries = sorted(self, key=_order)
        self.levels, self.size = [], 0
        for delivery in deliveries:
            self.add(delivery)
        return True

    def sort(self) -> None:
        """Bring what came back into its old place: once, though it may have been listed still."""
        self.tidy()
        self.is_sorted = True
        self.levels = [
            (rank, deque({delivery.order: delivery for delivery in sorted(level, key=_order)}.values()))
            for rank, level in self.levels
        ]
        self.size = sum(len(level) for _, level in self.levels)

    @property
    def taken_at(self) -> float:
        """When a consumer took the message that it is busy with, the last of them; 0: none is busy."""
        return max((slot.taken_at for slot in self.slots), default=0.0)

    def is_busy(self, now: float) -> bool:
        """Return whether messages are ready, or in batches, and none of its consumers waits *now*.

        Note since when none does.
        """
        if self.waiting:
            self.busy_since = 0.0
            return False
        self.busy_since = self.busy_since or now
        return any(slot.batch for slot in self.slots) or next(iter(self), None) is not None

    def is_stuck(self, now: float) -> bool:
        """Whether each of its consumers has been busy for long with the message that it took last."""
        return not self.waiting and all(0 < slot.taken_at <= now - STUCK_SECONDS for slot in self.slots)

    def may_get_stuck(self, now: float) -> bool:
        """Return whether messages are ready, and time alone may change whether its consumers are stuck."""
        if self.waiting or self.is_stuck(now) or not all(slot.taken_at for slot in self.slots):
            return False
        return next(iter(self), None) is not None

    def is_idle(self, now: float) -> bool:
        """Whether each of its consumers has been busy for long, or has not asked for a message for long."""
        return not self.waiting and all(
            0 < (slot.taken_at or slot.idle_since) <= now - (STUCK_SECONDS if slot.taken_at else self.hold_seconds)
            for slot in self.slots
        )

    def withdraw(self, now: float) -> None:
        """Have other processes keep what it wants until one of its consumers waits, by *now*: they have time for it.

        A consumer that asks from time to time, but does not wait, would never get a message that others always take
        away before it asks again. So what is handed over next stays twice as long.
        """
        if not self.is_withdrawn and not self.is_stuck(now):
            self.hold_seconds *= 2
        self.is_withdrawn = True

    def wake_one(self) -> bool:
        """Wake the consumer that has waited longest; tell whether there was one."""
        if not self.waiting:
            return False
        slot = next(iter(self.waiting))
        self.woken[slot] = self.waiting.pop(slot)
        slot.wakeup.set()
        return True

    def wake(self, count: int) -> None:
        """Wake consumers for *count* messages: a few at once, each of which wakes the next one when it `asks`.

        Where consumers rotate, only one is woken, and none while another one is active.
        """
        if self.rotation.is_on:
            if count > 0 and not self.rotation.is_any_active() and self.wake_one():
                self.rotation.woke()
            return
        for _ in range(min(count, AT_ONCE - len(self.woken))):
            if not self.wake_one():
                return

    def asks(self, slot: C) -> None:
        """Note that *slot* asked for a message and got one: it waits no longer, and what is left is for the next."""
        if self.comes(slot):
            self.wake(self.size - len(self.woken))

    def comes(self, slot: C) -> bool:
        """Note that *slot* waits no longer; return whether it was woken."""
        self.waiting.pop(slot, None)
        return self.woken.pop(slot, None) is not None

    def wait(self, slot: C) -> None:
        """Note that *slot* waits for a message; if it was woken for one, and did not get it, in its old place."""
        if slot in self.waiting:
            return
        begun = self.woken.pop(slot, None)
        if begun is None:
            self._begun += 1
            begun = self._begun
        is_in_place = not self.waiting or self.waiting[next(reversed(self.waiting))] < begun
        self.waiting[slot] = begun
        if not is_in_place:
            order = sorted(self.waiting.items(), key=_place)
            self.waiting.clear()  # the rotation looks at this one
            self.waiting.update(order)

    def wait_behind_others(self, slot: C) -> bool:
        """Have *slot* wait behind the others that wait, the first of which comes; return whether any does."""
        if not (self.rotation.is_on and self.rotation.is_any_active(but=slot)) and not self.wake_one():
            return False
        self.rotation.woke()
        slot.taken_at = 0.0
        self.comes(slot)
        self.wait(slot)
        return True

    @property
    def is_starved(self) -> bool:
        """Whether a consumer waits, and what is ready, if anything, is for those that were woken."""
        if self.rotation.is_on and self.size:
            return False
        return bool(self.waiting) and (not self.woken or self.size <= len(self.woken))


class SelectorQueues(dict["Selector | None", SelectorQueue[D, C]]):
    """The selector queues of all started consumers, by selector; None is no selector."""

    @property
    def is_waiting(self) -> bool:
        """Whether a consumer waits for more than is ready."""
        return any(queue.is_starved for queue in self.values())

    @property
    def is_rotating(self) -> bool:
        """Whether consumers rotate."""
        return any(queue.rotation.is_on for queue in self.values())

    @property
    def waiting(self) -> int:
        """How many consumers wait for more than is ready."""
        return sum(len(queue.waiting) for queue in self.values() if queue.is_starved)

    @property
    def slots(self) -> int:
        """How many consumers are started."""
        return sum(len(queue.slots) for queue in self.values())

    @property
    def selectors(self) -> tuple[str | None, ...]:
        """The text forms of the selectors of started consumers; None is none."""
        return tuple(None if selector is None else str(selector) for selector in self)

    def ready(self) -> dict[int, D]:
        """Return the messages that are ready, by their order."""
        return {delivery.order: delivery for queue in self.values() for delivery in queue}

    def wake(self, queues: Iterable[SelectorQueue[D, C]] | None = None) -> None:
        """Wake consumers for what is ready in each of *queues*; None: in all."""
        for queue in self.values() if queues is None else queues:
            if queue.waiting:
                queue.wake(queue.size)

    def end_stuck_rotations(self, batched: int) -> bool:
        """End rotations where others wait for long for what is ready, or *batched*; return whether any did."""
        stuck = [
            queue
            for queue in self.values()
            if queue.rotation.is_on and queue.waiting and (queue.size or batched) and queue.rotation.end_where_stuck()
        ]
        return bool(stuck)

    def wake_others(self) -> None:
        """Wake consumers that wait while something is ready: those that were woken have not come for it in time."""
        for queue in self.values():
            if queue.waiting and queue.size:
                queue.woken.clear()
                queue.wake(queue.size)

    def wake_all(self) -> None:
        """Wake every consumer that waits: something has changed for it."""
        for queue in self.values():
            while queue.wake_one():
                pass

    def of_session(self, session: threading.Event) -> list[SelectorQueue[D, C]]:
        """Return the selector queues with a consumer of *session*."""
        return [queue for queue in self.values() if any(slot.wakeup is session for slot in queue.slots)]

    def wake_session(
        self, session: threading.Event, wants: Callable[[SelectorQueue[D, C]], bool], but: C | None = None
    ) -> None:
        """Wake a consumer of *session*, other than *but*, that waits, and whose queue *wants* what is for the session.

        Args:
            session: The wake-up that its consumers share.
            wants: Tells of a selector queue whether its consumers want it.
            but: A consumer that has just taken a message.
        """
        for queue in self.values():
            for slot in queue.waiting:
                if slot.wakeup is session and slot is not but and wants(queue):
                    del queue.waiting[slot]
                    session.set()
                    return

    def rest(self, queue: SelectorQueue[D, C], slot: C) -> None:
        """Note that *slot*, of *queue*, waits no longer; had it been woken, wake another one for what it leaves."""
        queue.woken.pop(slot, None)
        if queue.waiting.pop(slot, None) is not None:
            return
        for other in self.values():
            if other.waiting and next(iter(other), None) is not None:
                other.wake_one()


def _order(delivery: Queued) -> int:
    return delivery.order


def _place(consumer: tuple[object, int]) -> int:
    return consumer[1]


def _rank(level: tuple[int, object]) -> int:
    return level[0]


def _age(level: tuple[int, deque[Q]]) -> int:
    return -level[1][0].order
