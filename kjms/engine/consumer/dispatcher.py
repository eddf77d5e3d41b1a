"""The messages that a reader holds ready, and which of its consumers gets which: no thread and no Kafka in it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from kjms.destinations import Destination
from kjms.engine.consumer.batches import Batches
from kjms.engine.consumer.consumer_slot import ConsumerSlot
from kjms.engine.consumer.delayed_messages import DelayedMessages
from kjms.engine.consumer.delivery import DEFAULT_PRIORITY, AssignedPartition, Delivery
from kjms.engine.consumer.eviction import Eviction
from kjms.engine.consumer.message_groups import MessageGroups, urgency
from kjms.engine.consumer.peer_sharing import PeerSharing
from kjms.engine.consumer.ranking import Ranking
from kjms.engine.consumer.rotation import STREAK
from kjms.engine.consumer.selector_hints import SelectorHints
from kjms.engine.consumer.selector_queue import SelectorQueue, SelectorQueues
from kjms.engine.tuning import DEFAULTS
from kjms.mapping import decode
from kjms.txn.delivery_states import (
    BLOCK,
    DELAYED,
    DISPATCH,
    MATCH,
    READY,
    SETTLE,
    UNMATCH,
    UNMATCHED,
    DeliveryState,
)

__all__ = ["Dispatcher"]

OVERTAKING: Final = 10  # times the limit: so many later messages may be dispatched before one that is less urgent
RETURNED_SECONDS: Final = 0.5  # in which a consumer that gave a message back may ask for it before others do
LISTED: Final = frozenset({DeliveryState.UNMATCHED, DeliveryState.READY, DeliveryState.RETURNED})
MAX_KEPT_BACK: Final = 100_000  # messages that no selector here wants, or that are not due, are kept in memory


_Queue = SelectorQueue[Delivery, ConsumerSlot]


class Dispatcher:
    """Shares out messages among started consumers.

    Consumers with the same selector share a *selector queue*. A message is ready in each selector queue that it matches
    and goes to the first consumer that takes it, so each consumer sees messages in their order, those of a higher
    priority first, and none waits behind a busy one. While a session has a message of a group, no other session gets
    one of the group. A message that matches no selector is unmatched: it is kept until a selector queue comes that it
    matches, or settled where nothing is kept; of very many, the older are evicted: dropped from memory, to be re-read.

    Args:
        destination: What the messages say that they were sent to.
        keeps_unmatched: Whether messages that match no selector are kept.
        limit: How many messages it should hold ready; its caller looks at `held`.
        evicts: Whether messages can be re-read.
        most_unmatched: How many unmatched messages are held before the older half of them is evicted.
        batch: How many messages are dispatched at once to a consumer, at the most.

    Attributes:
        in_flight: How many messages are dispatched, batches included, and those that are on their way to peers.
        dispatched: How many were dispatched, ever.
        eviction: The partitions with evicted messages.
        delayed: What was given back, and is not due again.
        batches: What is dispatched, and was not taken by a session yet.
        was_refused: Whether the last consumer that asked is to wait for a commit that permits to dispatch a message.
        selector_queues: What the consumers of each selector want.
        ranking: Whether the priority of each message is known.
        groups: The message groups that sessions are busy with.
        sharing: What goes to other processes.
    """

    def __init__(
        self,
        destination: Destination,
        *,
        keeps_unmatched: bool,
        limit: int,
        evicts: bool = False,
        most_unmatched: int = DEFAULTS.most_unmatched,
        batch: int = 0,
    ) -> None:
        self.held = self.in_flight = self.dispatched = 0
        self.batches = Batches(self, batch)
        self.unmatched: list[Delivery] = []
        self.was_refused = False
        self.wants_dispatch_limit = False  # whether a message was asked for that is near or beyond the limit
        self.delayed = DelayedMessages[Delivery]()
        self.selector_queues = SelectorQueues[Delivery, ConsumerSlot]()
        self.groups = MessageGroups[Delivery]()
        self.ranking = Ranking(self, destination)
        self._hints = SelectorHints(destination)
        self._destination = destination
        self._keeps_unmatched = keeps_unmatched
        self._limit = limit
        self.eviction = Eviction[AssignedPartition](is_possible=evicts, most_unmatched=most_unmatched)
        self.sharing = PeerSharing(self, destination, limit)

    @property
    def is_awaited(self) -> bool:
        """Whether a consumer waits, here or, as far as is known, in another process."""
        return self.selector_queues.is_waiting or self.sharing.is_awaited

    @property
    def kept_back(self) -> int:
        """How many are here and not ready: no consumer wants them, they are not due, or their group is busy."""
        return len(self.unmatched) + len(self.delayed) + self.groups.waiting

    def is_full(self, limit: int) -> bool:
        """Whether no more is to be read: *limit* messages are ready; more of them while a consumer waits for others."""
        most = MAX_KEPT_BACK if self.selector_queues.is_waiting else limit
        return self.held >= most or self.kept_back >= MAX_KEPT_BACK

    def has_room(self, limit: int) -> bool:
        """Whether half of it is taken: what was full is read on."""
        most = MAX_KEPT_BACK - 1 if self.selector_queues.is_waiting else limit >> 1
        return self.held <= most and self.kept_back < MAX_KEPT_BACK

    def join(self, slot: ConsumerSlot) -> None:
        """Let the consumer of *slot* take part."""
        self.ranking.rank()
        self.batches.recall()
        queue = self.selector_queues.get(slot.selector)
        if queue is None:
            queue = self.selector_queues[slot.selector] = _Queue(slot.selector, 2 * self._limit)
            self._hints.renew(slot.selector)
            evicted = self.eviction.joined(is_for_all=queue.selector is None)
            everything = self._everything()
            self.unmatched = []
            for delivery in everything:
                is_late = delivery.partition in evicted or self.eviction.holds_back(delivery.partition)
                if not is_late and self._wants(queue, delivery):
                    self._add(queue, delivery)
                elif not delivery.ready_in:
                    self._keep(delivery)
        queue.slots.append(slot)
        queue.is_withdrawn = False
        slot.queue = queue

    def _everything(self) -> list[Delivery]:
        """Return what is ready or unmatched, oldest first."""
        found = self.selector_queues.ready()
        found.update((delivery.order, delivery) for delivery in self.unmatched)
        return [delivery for _, delivery in sorted(found.items())]

    def leave(self, slot: ConsumerSlot) -> None:
        """Take the consumer of *slot* out; what it was to get goes to others."""
        queue = slot.queue
        if queue is None:
            return
        self.ranking.rank()  # the next consumer may find it among what was unmatched
        self.batches.recall()
        slot.queue = None
        queue.slots.remove(slot)
        queue.rotation.stop()
        self.selector_queues.rest(queue, slot)
        returned = list(slot.returned)
        slot.returned.clear()
        if not queue.slots:
            del self.selector_queues[queue.selector]
            for delivery in queue:
                delivery.ready_in -= 1
                if not delivery.ready_in:
                    self.held -= 1
                    returned.append(delivery)
        for delivery in returned:
            self.let_go(delivery)
        self.put_back(returned)
        self.put_back(self.groups.free())  # it may have been an older one of their group that no consumer wants now

    def arrive(self, delivery: Delivery) -> None:
        """Make *delivery*, the newest message, ready for a consumer that wants it."""
        delivery.decode(self._destination)
        if delivery.priority != DEFAULT_PRIORITY:
            self.ranking.rank(is_needed=True)
        if delivery.priority > self.batches.priority:
            self.batches.recall()
        if delivery.due:
            self.delayed.add(delivery)
            return
        if self.eviction.is_urgent and self.eviction.holds_back(delivery.partition):
            self.eviction.evict(delivery)
            return
        lucky = None
        for queue in self.selector_queues.values():
            if queue.selector is None or self._wants(queue, delivery):
                self._add(queue, delivery)
                lucky = lucky or (queue if queue.waiting else None)
        if not delivery.ready_in:
            if self._keep(delivery):
                delivery.compact()
        elif lucky is not None:
            lucky.wake(1)

    def arrive_run(self, deliveries: Sequence[Delivery]) -> None:
        """Make *deliveries*, the newest messages of a partition in their order, ready: as `arrive` does with each."""
        queue = next(iter(self.selector_queues.values()), None)
        if queue is None or len(self.selector_queues) > 1 or self.eviction.is_urgent:
            for delivery in deliveries:
                self.arrive(delivery)
            return
        selector, destination, read = queue.selector, self._destination, deliveries[0].partition.decode
        if selector is None and read is decode and not self.sharing.peers and self.ranking.may_wait():
            self._extend(queue, deliveries)
            return
        ready: list[Delivery] = []
        for number, delivery in enumerate(deliveries):
            message = delivery.decoded = read(delivery.record, destination, delivery.count)  # as `Delivery.decode` does
            if read is not decode or "JMSPriority" in message._properties:
                delivery.priority = message.jms_priority
            if delivery.priority != DEFAULT_PRIORITY or delivery.due:
                self._extend(queue, ready)
                for other in deliveries[number:]:
                    self.arrive(other)
                return
            if selector is None or selector.matches(message):
                ready.append(delivery)
            elif self._keep(delivery):
                delivery.compact()
        self._extend(queue, ready)

    def _extend(self, queue: _Queue, deliveries: Sequence[Delivery]) -> None:
        """Make *deliveries*, of the default priority, ready in *queue*, the only one, which they match."""
        if self.batches.priority < DEFAULT_PRIORITY:
            self.batches.recall()
        for delivery in deliveries:
            delivery.state = READY
            delivery.ready_in = 1
        queue.extend(DEFAULT_PRIORITY, deliveries)
        self.held += len(deliveries)
        queue.wake(len(deliveries))

    def take(self, slot: ConsumerSlot) -> Delivery | None:
        """Return the next message for *slot*, or note that it waits for one."""
        queue = slot.queue
        if queue is None:
            return None
        self.was_refused = False
        if slot.has_priorities:
            self.ranking.rank(is_needed=True)
        is_shared = len(queue.slots) > 1
        if queue.rotation.is_on and (slot.streak >= STREAK or self.sharing.peers):
            queue.rotation.stop()  # one that does not wait behind others would leave them nothing
        if is_shared and not slot.batch:
            self.batches.recall()  # another consumer's, which would be older than what this one gets
        delivery = self._next(slot, queue)
        if delivery is None:
            queue.rotation.found_nothing()
            self._wait(slot, queue)
            return None
        if queue.rotation.is_on and self.batches.fill_in_rotation(slot, queue):
            return delivery
        if queue.waiting or queue.woken:
            queue.asks(slot)
        if self.batches.size and not (is_shared or queue.waiting or slot.returned or slot.batch):
            self.batches.fill(slot, queue)
        return delivery

    def _next(self, slot: ConsumerSlot, queue: _Queue) -> Delivery | None:
        if slot.returned:
            delivery = slot.returned[0]
            delivery.state = DISPATCH[delivery.state]
            self.in_flight += 1
            self.dispatched += 1
            slot.returned.popleft()
            return delivery
        if slot.batch:
            return slot.batch.popleft()
        following = self._following(slot, queue) if self.groups.waiting else None
        for rank, ready in queue.levels if len(queue.levels) < 2 else queue.by_turn(OVERTAKING * self._limit):
            while ready:
                delivery = ready[0]
                if delivery.state is not READY:
                    ready.popleft()
                    queue.size -= 1
                elif delivery.group is not None and self._is_held_up(slot, delivery):
                    ready.popleft()
                    queue.size -= 1
                    self.held -= 1
                elif following is not None and urgency(following) < (rank, delivery.order):
                    return self._follow(slot, queue, following)
                elif self._may_dispatch(delivery):
                    self._dispatch(slot, queue, delivery)  # before it is taken out: Ctrl-C may come at each call
                    ready.popleft()
                    queue.size -= 1
                    self.held -= 1
                    return delivery
                else:
                    return None
        return None if following is None else self._follow(slot, queue, following)

    def _following(self, slot: ConsumerSlot, queue: _Queue) -> Delivery | None:
        """Return what *slot* may have, and wants, of what waits for its session: the first of each group."""
        firsts = (self._first_for(slot, queue, group.waiting) for group in self.groups.followed_by(slot.wakeup))
        wanted = (each for each in firsts if each is not None and self._wants(queue, each))
        return min(wanted, key=urgency, default=None)

    def _first_for(self, slot: ConsumerSlot, queue: _Queue, waiting: Sequence[Delivery]) -> Delivery | None:
        """Return the first of *waiting* that a consumer of the session of *slot* wants: it comes before the others."""
        if self._wants(queue, waiting[0]):
            return waiting[0]
        queues = self.selector_queues.of_session(slot.wakeup)
        return next((each for each in waiting if any(self._wants(one, each) for one in queues)), None)

    def _follow(self, slot: ConsumerSlot, queue: _Queue, delivery: Delivery) -> Delivery | None:
        """Dispatch *delivery*, which waits for the session of *slot*, unless it is beyond the dispatch limit."""
        if not self._may_dispatch(delivery):
            return None
        self.groups.follow(delivery)
        self._dispatch(slot, queue, delivery)
        return delivery

    def _may_dispatch(self, delivery: Delivery) -> bool:
        """Return whether *delivery* is below the dispatch limit; near or beyond the limit, ask for a new one."""
        partition, offset = delivery.partition, delivery.offset
        settlement = partition.settlement
        if offset >= partition.extend_at or offset < settlement.free_from:
            if delivery.count > 1:  # a repeated one is recorded before it is made
                return True
            is_permitted = settlement.permits(offset)
            if not is_permitted:
                settlement.requests.add(offset)
                self.was_refused = True
            self.wants_dispatch_limit = not is_permitted or partition.is_near_end(offset) or self.wants_dispatch_limit
            return is_permitted
        return True

    def to_grant(self, most: int) -> dict[AssignedPartition, set[int]]:
        """Return what is to be granted, by partition: what was asked for, and what will be asked for next.

        That is one message for each consumer that waits, or *most* messages where these are more.
        """
        grants: dict[AssignedPartition, set[int]] = {}
        for queue in self.selector_queues.values():
            left = max(len(queue.waiting) + len(queue.woken), most)
            for _, level in queue.by_turn(OVERTAKING * self._limit):
                for delivery in level:
                    if left <= 0:
                        break
                    if delivery.state is READY:
                        grants.setdefault(delivery.partition, set()).add(delivery.offset)
                        left -= 1
        return grants

    def _dispatch(self, slot: ConsumerSlot, queue: _Queue, delivery: Delivery) -> None:
        delivery.partition.settlement.dispatch(delivery.offset, is_lent=slot.is_lending)
        delivery.slot = slot
        delivery.state = DISPATCH[delivery.state]
        delivery.ready_in = 0
        self.in_flight += 1
        self.dispatched += 1
        instead = self.groups.take(slot.wakeup, delivery)
        if instead is not None:
            instead.state = BLOCK[instead.state]
            instead.ready_in = 0
            self.held -= 1
        if delivery.busy is not None and delivery.busy.waiting:
            following = self._first_for(slot, queue, delivery.busy.waiting)
            if following is not None:
                self.selector_queues.wake_session(slot.wakeup, lambda queue: self._wants(queue, following), but=slot)

    def _is_held_up(self, slot: ConsumerSlot, delivery: Delivery) -> bool:
        """Whether *slot* may not have *delivery*, for the sake of its group's order; if so, it waits from now on."""
        session = self.groups.hold_up(slot.wakeup, delivery)
        if session is None:
            return False
        delivery.state = BLOCK[delivery.state]
        delivery.ready_in = 0
        self.selector_queues.wake_session(session, lambda queue: self._wants(queue, delivery))
        return True

    def let_go(self, delivery: Delivery) -> None:
        """Note that no session has *delivery* any more: the next of its group may be dispatched."""
        group = self.groups.let_go(delivery)
        while group is not None:
            following = self.groups.next(group)
            if following is None:
                return
            self.put_back([following])
            if following.ready_in:
                return

    def wait(self, slot: ConsumerSlot) -> Delivery | None:
        """Note that *slot* waits, though there may be a message; return none. What batches have is ready again."""
        self.batches.recall()  # a consumer is woken for what is ready
        if slot.queue is not None:
            self._wait(slot, slot.queue)
        return None

    def _wait(self, slot: ConsumerSlot, queue: _Queue) -> None:
        queue.wait(slot)
        queue.busy_since = 0.0
        if queue.is_withdrawn:
            queue.is_withdrawn = False
            self.sharing.has_reopened = True

    def wait_behind_others(self, slot: ConsumerSlot) -> bool:
        """Have *slot* wait behind the consumers that wait while it takes message by message; return whether any does.

        Other processes would take its waiting for a want, and a message that waits for this session would stay.
        """
        queue = slot.queue
        if queue is None or slot.returned or self.sharing.peers or slot.wakeup in self.groups.followed:
            return False
        if self.batches.size:
            queue.rotation.look(self.dispatched)
        return queue.wait_behind_others(slot)

    def rest(self, slot: ConsumerSlot) -> None:
        """Note that *slot* waits no longer."""
        if slot.queue is not None:
            self.selector_queues.rest(slot.queue, slot)

    def put_back(self, deliveries: Iterable[Delivery]) -> None:
        """Make messages that were taken ready again, each in its old place."""
        touched: set[_Queue] = set()
        for delivery in deliveries:
            delivery.state = UNMATCH[delivery.state]
            delivery.ready_in = 0
            delivery.partition.settlement.come_back(delivery.offset)
            if delivery.due:
                self.delayed.add(delivery)
                continue
            for queue in self.selector_queues.values():
                if self._wants(queue, delivery):
                    self._add(queue, delivery, is_back=True)
                    touched.add(queue)
            if not delivery.ready_in:
                self._keep(delivery)
        for queue in touched:
            if not queue.is_sorted:
                queue.sort()
        self.selector_queues.wake(touched)

    def mend(self, deliveries: Iterable[Delivery]) -> None:
        """Make ready again what is listed nowhere of *deliveries*, all that are held: an interrupt came between."""
        ready = self.selector_queues.ready().values()
        returned = [each for queue in self.selector_queues.values() for slot in queue.slots for each in slot.returned]
        listed = {*ready, *self.unmatched, *returned}
        self.held = len(ready)
        self.put_back([each for each in deliveries if each.state in LISTED and each not in listed])

    def release(self, now: int) -> None:
        """Make the messages ready that are due at *now*, in milliseconds since the epoch."""
        due = self.delayed.release(now)
        if due:
            self.batches.recall()  # what is due is older
            self.put_back(due)

    def release_returned(self, now: float) -> None:
        """Let any consumer have what waits, by *now*, for the one that had it: that one has not asked for it for long.

        It may ask for no more, as where its session waits on another consumer.
        """
        for queue in [*self.selector_queues.values()]:
            for slot in queue.slots:
                if slot.returned and max(slot.returned_at, slot.taken_at) <= now - RETURNED_SECONDS:
                    self._let_others_have(slot.returned)

    def _let_others_have(self, returned: deque[Delivery]) -> None:
        self.batches.recall()  # what comes back is older
        back = [*returned]
        returned.clear()
        for delivery in back:
            delivery.attempts.is_back = True
            self.let_go(delivery)
        self.put_back(back)

    def dispatch_limit_moved(self) -> None:
        """Continue to dispatch: the dispatch limits have moved."""
        if self.wants_dispatch_limit and self.groups.waiting:
            self.selector_queues.wake_all()  # what waits for one session is ready for no consumer
        else:
            self.selector_queues.wake()
        self.wants_dispatch_limit = False

    def drop(self, partition: AssignedPartition) -> None:
        """Forget the messages of *partition*: another reader has it now."""
        self.batches.recall()
        gone: set[int] = set()
        for queue in self.selector_queues.values():
            gone.update(delivery.order for delivery in queue if delivery.partition is partition)
            queue.tidy(partition)
            for slot in queue.slots:
                slot.returned = deque(d for d in slot.returned if d.partition is not partition)
        self.held -= len(gone)
        self.unmatched = [delivery for delivery in self.unmatched if delivery.partition is not partition]
        self.delayed.drop(partition)
        self.groups.drop(partition.group_scope)
        self.eviction.drop(partition)

    def _wants(self, queue: _Queue, delivery: Delivery) -> bool:
        return queue.selector is None or queue.selector.matches(delivery.message(self._destination))

    def _add(self, queue: _Queue, delivery: Delivery, *, is_back: bool = False) -> None:
        if not delivery.ready_in:
            self.held += 1
            delivery.state = MATCH[delivery.state]
        delivery.ready_in += 1
        if is_back:
            queue.put_back(delivery)
        else:
            queue.add(delivery)
        if queue.size > queue.prune_at:
            queue.tidy()
            queue.prune_at = 2 * max(self._limit, queue.size)

    def _keep(self, delivery: Delivery) -> bool:
        """Keep *delivery*, which no consumer here wants, or settle it; return whether it may stay for long."""
        if self._hints.left:
            self._hints.look(delivery.message(self._destination), self.selector_queues)
        if not self._keeps_unmatched and self.selector_queues:
            delivery.state = SETTLE[delivery.state]
            delivery.partition.settlement.settle(delivery.offset)
            return False
        if self.sharing.peers and self.sharing.hand_over(delivery):
            return True
        self.unmatched.append(delivery)
        if len(self.unmatched) >= self.eviction.due_at:
            self.unmatched = self.eviction.trim(self.unmatched, self.sharing.is_wanted_elsewhere)
        return True

    def is_staying(self, delivery: Delivery) -> bool:
        """Return whether no consumer wants *delivery*, or it is not due."""
        is_kept = delivery.state is UNMATCHED or delivery.state is DELAYED
        return is_kept and not self.sharing.is_wanted_elsewhere(delivery)

    def to_reread(self) -> list[AssignedPartition]:
        """Return the partitions with evicted messages, to be re-read, and with them whatever is ready: in order.

        Where all of them are wanted, these are only the partitions of the overflow topic as long as there are such.
        """
        self.batches.recall()
        first, left, ready = self.eviction.reread(self._everything(), is_for_all=None in self.selector_queues)
        self.held -= ready
        self.unmatched = []
        self.put_back(left)  # some may have been in one of these partitions when a consumer came that wants them
        return first
