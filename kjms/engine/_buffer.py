"""The messages that a reader holds ready, and which of its consumers gets which: no thread and no Kafka in it."""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kjms.destinations import Destination
from kjms.engine._delivery import Delivery, Partition

if TYPE_CHECKING:
    from kjms.engine._reader import Reader
    from kjms.selector import Selector

__all__ = ["Buffer", "Feed"]


class Feed:
    """One JMS consumer's opening on a reader.

    Args:
        reader: Where the messages come from.
        selector: Which of them the consumer wants; None is all.
        wakeup: Set when there may be something to poll, or when the feed closes.
    """

    def __init__(self, reader: Reader, selector: Selector | None, wakeup: threading.Event) -> None:
        self.reader = reader
        self.selector = selector
        self.wakeup = wakeup
        self.is_started = False
        self.is_open = True
        self.returned: deque[Delivery] = deque()  # what this consumer gets again, before anything else
        self.lane: Lane | None = None  # while it is started

    @property
    def is_hungry(self) -> bool:
        """Whether the consumer asked for a message and has not been woken since."""
        lane = self.lane
        return lane is not None and self in lane.hungry

    def start(self) -> None:
        """Let messages come."""
        self.reader.start_feed(self)

    def stop(self) -> None:
        """Hold messages back: once this has returned, `poll` gives none."""
        self.reader.stop_feed(self)

    def poll(self) -> Delivery | None:
        """Return the next message, or None; in that case `wakeup` will be set when there may be one."""
        return self.reader.take(self)

    def rest(self) -> None:
        """Wait no longer: pass on the wake-up that may have come too late for this consumer."""
        self.reader.rest(self)


class Lane:
    """What the consumers that share one selector want, oldest first; some of it others may have taken meanwhile."""

    __slots__ = ("feeds", "hungry", "prune_at", "ready", "selector")

    def __init__(self, selector: Selector | None, prune_at: int) -> None:
        self.selector = selector
        self.prune_at = prune_at  # how long `ready` may get before what others took is thrown out
        self.ready: deque[Delivery] = deque()
        self.feeds: list[Feed] = []
        self.hungry: dict[Feed, None] = {}  # in the order in which they began to wait

    def wake_one(self) -> bool:
        """Wake the consumer that has waited longest; tell whether there was one."""
        if not self.hungry:
            return False
        feed = next(iter(self.hungry))
        del self.hungry[feed]
        feed.wakeup.set()
        return True


class Buffer:
    """Shares out messages among started consumers.

    Consumers with the same selector share a *lane*. A message is ready in every lane that wants it, and goes to the
    first consumer that takes it, so each consumer sees messages in their order, and none waits behind a busy one. What
    no lane wants is kept aside until a lane comes that does, or settled where nothing is kept.

    Args:
        destination: What the messages say that they were sent to.
        keeps_unwanted: Whether what nobody wants is kept.
        limit: How many messages it should hold ready; whoever fills it looks at `held`.
    """

    def __init__(self, destination: Destination, *, keeps_unwanted: bool, limit: int) -> None:
        self.held = 0
        self.unwanted: list[Delivery] = []
        self.wants_mark = False  # whether a message was asked for that is near the mark, or beyond it
        self._delayed: list[tuple[int, int, Delivery]] = []  # a heap: when due, order
        self._lanes: dict[Selector | None, Lane] = {}
        self._destination = destination
        self._keeps_unwanted = keeps_unwanted
        self._limit = limit

    @property
    def is_hungry(self) -> bool:
        """Whether a consumer waits."""
        return any(lane.hungry for lane in self._lanes.values())

    @property
    def kept_back(self) -> int:
        """How many messages are here and ready for nobody: no consumer wants them, or they are not due."""
        return len(self.unwanted) + len(self._delayed)

    @property
    def next_due(self) -> int:
        """When the next message is due that waits, in milliseconds since the epoch; 0: none waits."""
        return self._delayed[0][0] if self._delayed else 0

    def join(self, feed: Feed) -> None:
        """Let the consumer of *feed* take part."""
        lane = self._lanes.get(feed.selector)
        if lane is None:
            lane = self._lanes[feed.selector] = Lane(feed.selector, 2 * self._limit)
            everything = {d.order: d for other in self._lanes.values() for d in other.ready if not d.is_taken}
            everything.update((delivery.order, delivery) for delivery in self.unwanted)
            self.unwanted = []
            for _, delivery in sorted(everything.items()):
                if self._wants(lane, delivery):
                    self._add(lane, delivery)
                elif not delivery.lanes:
                    self._keep(delivery)
        lane.feeds.append(feed)
        feed.lane = lane

    def leave(self, feed: Feed) -> None:
        """Take the consumer of *feed* out; what it was to get goes to others."""
        lane = feed.lane
        if lane is None:
            return
        feed.lane = None
        lane.feeds.remove(feed)
        self._pass_on(lane, feed)
        returned = list(feed.returned)
        feed.returned.clear()
        if not lane.feeds:
            del self._lanes[lane.selector]
            for delivery in lane.ready:
                if not delivery.is_taken:
                    delivery.lanes -= 1
                    if not delivery.lanes:
                        self.held -= 1
                        returned.append(delivery)
        self.put_back(returned)

    def arrive(self, delivery: Delivery) -> None:
        """Make *delivery*, the newest message, ready for whoever wants it."""
        if delivery.due:
            self._delay(delivery)
            return
        for lane in self._lanes.values():
            if lane.selector is None or self._wants(lane, delivery):
                self._add(lane, delivery)
        if not delivery.lanes:
            self._keep(delivery)
            return
        for lane in self._lanes.values():
            if lane.hungry and lane.ready and lane.ready[-1] is delivery and lane.wake_one():
                return

    def take(self, feed: Feed) -> Delivery | None:
        """Return the next message for *feed*, or note that it waits for one."""
        lane = feed.lane
        if lane is None:
            return None
        if feed.returned:
            lane.hungry.pop(feed, None)
            delivery = feed.returned.popleft()
            delivery.is_taken = True
            return delivery
        ready = lane.ready
        while ready:
            delivery = ready[0]
            if delivery.is_taken:
                ready.popleft()
                continue
            partition, offset = delivery.partition, delivery.offset
            if offset >= partition.extend_at:
                self.wants_mark = True
                if offset >= partition.settlement.mark:
                    partition.wants = max(partition.wants, offset + 1)
                    break
            ready.popleft()
            partition.settlement.hand_out(offset)
            delivery.is_taken = True
            delivery.lanes = 0
            delivery.feed = feed
            self.held -= 1
            if lane.hungry:
                lane.hungry.pop(feed, None)  # it does not wait any more: the next wake-up is somebody else's
            return delivery
        lane.hungry[feed] = None
        return None

    def wait(self, feed: Feed) -> Delivery | None:
        """Note that *feed* waits, though there may be a message; return none."""
        if feed.lane is not None:
            feed.lane.hungry[feed] = None
        return None

    def rest(self, feed: Feed) -> None:
        """Note that *feed* waits no longer."""
        if feed.lane is not None:
            self._pass_on(feed.lane, feed)

    def put_back(self, deliveries: Iterable[Delivery]) -> None:
        """Make messages that were taken ready again, each in its old place."""
        touched: set[Lane] = set()
        for delivery in deliveries:
            delivery.is_taken = False
            delivery.lanes = 0
            if delivery.due:
                self._delay(delivery)
                continue
            for lane in self._lanes.values():
                if self._wants(lane, delivery):
                    self._add(lane, delivery)
                    touched.add(lane)
            if not delivery.lanes:
                self._keep(delivery)
        for lane in touched:
            lane.ready = deque(sorted((d for d in lane.ready if not d.is_taken), key=_order))
        self._wake(touched)

    def release(self, now: int) -> None:
        """Make the messages ready that are due at *now*, in milliseconds since the epoch."""
        due = []
        while self._delayed and self._delayed[0][0] <= now:
            delivery = heapq.heappop(self._delayed)[2]
            delivery.due = 0
            due.append(delivery)
        self.put_back(due)

    def marked(self) -> None:
        """Go on handing out: the marks have moved."""
        self.wants_mark = False
        self._wake(self._lanes.values())

    def _wake(self, lanes: Iterable[Lane]) -> None:
        """Wake as many consumers as there are messages ready in their lanes."""
        for lane in lanes:
            for _ in lane.ready:
                if not lane.wake_one():
                    break

    def _delay(self, delivery: Delivery) -> None:
        heapq.heappush(self._delayed, (delivery.due, delivery.order, delivery))

    def drop(self, partition: Partition) -> None:
        """Forget the messages of *partition*: another reader has it now."""
        gone: set[int] = set()
        for lane in self._lanes.values():
            gone.update(d.order for d in lane.ready if d.partition is partition and not d.is_taken)
            lane.ready = deque(d for d in lane.ready if d.partition is not partition and not d.is_taken)
            for feed in lane.feeds:
                feed.returned = deque(d for d in feed.returned if d.partition is not partition)
        self.held -= len(gone)
        self.unwanted = [delivery for delivery in self.unwanted if delivery.partition is not partition]
        self._delayed = [entry for entry in self._delayed if entry[2].partition is not partition]
        heapq.heapify(self._delayed)

    def _wants(self, lane: Lane, delivery: Delivery) -> bool:
        return lane.selector is None or lane.selector.matches(delivery.message(self._destination))

    def _add(self, lane: Lane, delivery: Delivery) -> None:
        if not delivery.lanes:
            self.held += 1
        delivery.lanes += 1
        lane.ready.append(delivery)
        if len(lane.ready) > lane.prune_at:
            lane.ready = deque(d for d in lane.ready if not d.is_taken)
            lane.prune_at = 2 * max(self._limit, len(lane.ready))

    def _keep(self, delivery: Delivery) -> None:
        if self._keeps_unwanted or not self._lanes:  # nobody is there who could not want it
            self.unwanted.append(delivery)
        else:
            delivery.partition.settlement.settle(delivery.offset)

    def _pass_on(self, lane: Lane, feed: Feed) -> None:
        """Take *feed* from those who wait; had it been woken, wake somebody else for what it leaves."""
        if feed in lane.hungry:
            del lane.hungry[feed]
            return
        for other in self._lanes.values():
            if other.hungry and any(not delivery.is_taken for delivery in other.ready):
                other.wake_one()


def _order(delivery: Delivery) -> int:
    return delivery.order
