"""Which messages of a group consumer go to other processes, and which that they handed over go back: pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from kjms.destinations import Destination
from kjms.engine.consumer.message_groups import GroupBindings
from kjms.engine.consumer.selector_queue import SelectorQueue
from kjms.txn.delivery_states import RELOCATE

if TYPE_CHECKING:
    from kjms.engine.consumer.batches import Batches
    from kjms.engine.consumer.consumer_slot import ConsumerSlot
    from kjms.engine.consumer.delivery import AssignedPartition, Delivery
    from kjms.engine.consumer.eviction import Eviction
    from kjms.engine.handover.peers import Peer, Peers
    from kjms.selector import Selector

__all__ = ["BUSY_SECONDS", "PeerSharing"]

BUSY_SECONDS: Final = 0.02  # consumers none of which has waited for so long are busy


class Held(Protocol):
    """The messages that a dispatcher holds.

    Attributes:
        held: How many are ready.
        unmatched: Those that match no selector here.
        eviction: The partitions with evicted messages.
        batches: What is dispatched, and was not taken by a session yet.
    """

    held: int
    unmatched: list[Delivery]
    eviction: Eviction[AssignedPartition]
    batches: Batches

    @property
    def selector_queues(self) -> Mapping[Selector | None, SelectorQueue[Delivery, ConsumerSlot]]:
        """What the consumers of each selector want."""


class PeerSharing:
    """Takes messages from a dispatcher for peers; its caller holds the lock of the source.

    Args:
        held: The messages.
        destination: What the messages say that they were sent to.
        limit: How many messages the dispatcher should hold ready.

    Attributes:
        peers: Other processes that may want the messages.
        leaving: What they are to get, until it is sent.
        has_reopened: Whether consumers wait that were too busy for what peers hand over.
    """

    def __init__(self, held: Held, destination: Destination, limit: int) -> None:
        self.peers: Peers | tuple[()] = ()
        self.leaving: list[tuple[Peer, Delivery]] = []
        self.has_reopened = False
        self._held = held
        self._destination = destination
        self._limit = limit
        self._bindings: GroupBindings[Peer] = GroupBindings()

    @property
    def is_awaited(self) -> bool:
        """Whether a consumer waits in another process, as far as is known."""
        return any(peer.wants for peer in self.peers)

    @property
    def room(self) -> int:
        """How many messages peers have requested that they do not have yet."""
        return sum(peer.free for peer in self.peers if peer.wants)

    def wants(self, *, without_withdrawn: bool = False) -> set[str | None]:
        """Return the selectors of the consumers that are started here."""
        queues = self._held.selector_queues.values()
        return {
            None if queue.selector is None else queue.selector.text
            for queue in queues
            if not (without_withdrawn and queue.is_withdrawn)
        }

    def undispatched(self, partition: AssignedPartition) -> int:
        """Return how many messages of *partition* are here and not dispatched."""
        self._held.batches.recall()
        queues = self._held.selector_queues.values()
        orders = {delivery.order for queue in queues for delivery in queue if delivery.partition is partition}
        return len(orders) + sum(delivery.partition is partition for delivery in self._held.unmatched)

    def is_wanted_elsewhere(self, delivery: Delivery) -> bool:
        """Return whether a peer wants *delivery*."""
        if not self.peers:  # as in most processes, which ask this of each message that is kept
            return False
        return any(peer.wants and peer.does_want(delivery.message(self._destination)) for peer in self.peers)

    # Messages go to peers.

    def hand_over(self, delivery: Delivery) -> bool:
        """Let a peer have *delivery*, which matches no selector here; return whether one has room for it.

        Of several, the peer with the fewest on their way gets it: they share evenly, however much each requests.
        It goes to none before messages that wait for that peer: these are older.
        """
        best: Peer | None = None
        full: list[Peer] = []
        for peer in self.peers:
            if not (peer.wants and peer.does_want(delivery.message(self._destination))):
                continue
            if self._bindings.exclude(delivery, peer):
                continue
            if not peer.room(is_targeted=True) or peer.waits_from is not None:
                full.append(peer)
            elif best is None or peer.credit.outstanding < best.credit.outstanding:
                best = peer
        if best is None:
            for peer in full:
                peer.wait_from(delivery.order)
            return False
        self._leave(delivery, best)
        return True

    def offer_waiting(self) -> None:
        """Let peers have what waits for their room, as far as they have room by now."""
        for peer in self.peers:
            since = peer.waits_from
            if since is not None and peer.room(is_targeted=True):
                peer.waits_from = None
                self.offer(peer, list(peer.wants), is_new=False, since=since)

    def give_waiting(self) -> bool:
        """Let quick peers have more than they have room for: what else would be relocated; return whether they get any.

        They share it evenly, and each gets its messages in order.
        """
        takers = [peer for peer in self.peers if peer.waits_from is not None and peer.room_in_a_crowd]
        if not takers:
            return False
        for peer in takers:
            peer.waits_from = None
        kept: list[Delivery] = []
        for delivery in self._held.unmatched:
            message = delivery.message(self._destination)
            wanting = [p for p in takers if p.does_want(message) and not self._bindings.exclude(delivery, p)]
            best = min((peer for peer in wanting if peer.room_in_a_crowd), key=_outstanding, default=None)
            if best is not None:
                self._leave(delivery, best)
                continue
            kept.append(delivery)
            for peer in wanting:
                peer.wait_from(delivery.order)
        has_given = len(kept) < len(self._held.unmatched)
        self._held.unmatched = kept
        return has_given

    def offer(self, peer: Peer, among: Collection[str | None], *, is_new: bool, since: int = 0) -> None:
        """Let *peer* have messages that match no selector here, and one of the selectors *among*.

        Args:
            peer: The peer.
            among: The selectors of its consumers that may want them.
            is_new: Whether these are new: they may match what is evicted, too.
            since: The order of the first message that may go.
        """
        held = self._held
        held.batches.recall()
        if is_new:
            held.eviction.peer_joined()
        kept: list[Delivery] = []
        for number, delivery in enumerate(held.unmatched):
            if delivery.order < since:
                kept.append(delivery)
                continue
            if not peer.room(is_targeted=True):
                waiting = held.unmatched[number:]
                peer.waits_from = min(each.order for each in waiting)
                kept += waiting
                break
            if not peer.does_want(delivery.message(self._destination), among) or self._bindings.exclude(delivery, peer):
                kept.append(delivery)
            else:
                self._leave(delivery, peer)
        held.unmatched = kept

    def share(self, now: float) -> bool:
        """Let peers have some of what matches consumers here, too, where these have been busy for a while by *now*.

        Message groups stay here, and what peers handed over, unless no consumer here asks for it; so do as many
        messages as there are consumers, while these take them quickly. Return whether time alone may change what is to
        be shared: to be called again soon.
        """
        pressed = []
        is_soon = False
        for queue in [queue for queue in self._held.selector_queues.values() if queue.is_busy(now)]:
            if now - queue.busy_since >= BUSY_SECONDS:
                pressed.append(queue)
            is_soon = is_soon or now - max(queue.busy_since, queue.taken_at) < BUSY_SECONDS
        takers = [peer for peer in self.peers if peer.room(is_targeted=False)] if pressed else []
        if takers:
            self._held.batches.recall()
            for queue in pressed:
                self._share(queue, takers, now)
        return is_soon

    def _share(self, queue: SelectorQueue[Delivery, ConsumerSlot], takers: list[Peer], now: float) -> None:
        """Let *takers* have the oldest of *queue*, but not the last ones where its consumers are quick.

        The consumers that get these later get them in order.
        """
        own = len(queue.slots) if now - queue.taken_at < BUSY_SECONDS else 0
        is_idle = queue.is_withdrawn or queue.is_idle(now)
        ready = [*itertools.islice(queue, self._limit + own)]
        for delivery in ready[: len(ready) - own]:
            if not takers:
                return
            if delivery.group is not None or (delivery.partition.is_transfer and not is_idle):
                continue
            wanting = [p for p in takers if None in p.wants or p.does_want(delivery.message(self._destination))]
            if wanting:
                peer = max(wanting, key=_free_room)
                if delivery.partition.is_transfer:
                    queue.withdraw(now)
                self._held.held -= 1
                self._leave(delivery, peer)
                if not peer.room(is_targeted=False):
                    takers.remove(peer)

    def _leave(self, delivery: Delivery, peer: Peer) -> None:
        delivery.state = RELOCATE[delivery.state]
        delivery.ready_in = 0
        if delivery.group is not None:
            self._bindings.bind(delivery.group, peer)
        peer.sent()
        self.leaving.append((peer, delivery))

    # Messages that peers handed over go back.

    def may_get_stuck(self, now: float) -> bool:
        """Return whether messages are ready for consumers none of which waits, and which have not been busy long."""
        return any(queue.may_get_stuck(now) for queue in self._held.selector_queues.values())

    def send_back(self, now: float) -> list[Delivery]:
        """Remove and return what peers handed over that is stuck, by *now*, behind busy consumers.

        Message groups stay. Peers are not to hand over such messages before one of these consumers waits.
        """
        queues = self._held.selector_queues.values()
        stuck = [queue for queue in queues if queue.is_stuck(now)]
        free = [queue for queue in queues if queue not in stuck]
        gone: list[Delivery] = []
        for queue in stuck:
            for delivery in queue:
                if not delivery.partition.is_transfer or delivery.group is not None or delivery.due:
                    continue
                if delivery.ready_in > 1 and any(self._matches(other, delivery) for other in free):
                    continue
                delivery.state = RELOCATE[delivery.state]
                delivery.ready_in = 0
                self._held.held -= 1
                queue.withdraw(now)
                gone.append(delivery)
        return gone

    def give_up(self, is_to_go: Callable[[Delivery], bool]) -> list[Delivery]:
        """Remove and return messages that match no selector here, where *is_to_go* is true."""
        held = self._held
        gone = [delivery for delivery in held.unmatched if is_to_go(delivery)]
        if gone:
            held.unmatched = [delivery for delivery in held.unmatched if not is_to_go(delivery)]
        for delivery in gone:
            delivery.state = RELOCATE[delivery.state]
        return gone

    def _matches(self, queue: SelectorQueue[Delivery, ConsumerSlot], delivery: Delivery) -> bool:
        return queue.selector is None or queue.selector.matches(delivery.message(self._destination))


def _outstanding(peer: Peer) -> int:
    return peer.credit.outstanding


def _free_room(peer: Peer) -> int:
    return peer.room(is_targeted=False)
