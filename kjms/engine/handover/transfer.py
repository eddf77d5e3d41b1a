"""Claims, reads and releases transfer partitions: those of this process, and those of processes that are gone."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from kjms.engine.handover.peers import NONE, Peers
from kjms.engine.transactions.plan import Move, copier

if TYPE_CHECKING:
    from kjms.engine.consumer.delivery import AssignedPartition, Delivery
    from kjms.engine.handover.peers import Peer
    from kjms.engine.handover.ports import Consumer, Topics
    from kjms.engine.transactions.plan import Copy

__all__ = ["REQUEST_DELAY_SECONDS", "HandoverTopics", "TransferPartitions", "moves_back", "moves_over"]

_log = logging.getLogger("kjms.handover")

LOOK_SECONDS: Final = 1.0  # between looks whether others have begun to hand over
REQUEST_DELAY_SECONDS: Final = 0.1  # a consumer waits that long before other processes are asked for messages
FIRST_HANDOVER_DELAY_SECONDS: Final = 0.5  # the same before the topics are created: a group's first member gets all
COUNT_SECONDS: Final = 10.0  # between looks how many partitions the queue has, or how many members its group
MOST_FOR_EACH: Final = 2  # transfer partitions for each member: its own, and that of the process that was there before
ACTIVE_SECONDS: Final = 3.0  # since the last message
EMPTY_SECONDS: Final = 5.0  # until an empty transfer partition is released that its holder does not need
ADOPTED_EMPTY_SECONDS: Final = 2.0  # the same of one that was adopted
SWEEP_SECONDS: Final = 5.0  # between looks for transfer partitions without a holder that are not empty
ASK_SECONDS: Final = 10.0  # how long the consumer's client may be in use
OPENED_SECONDS: Final = 1.0  # after which a message may still be on its way


class HandoverTopics:
    """Which topics of a queue's handover exist, and how many partitions they have.

    Attributes:
        partitions: Of the handover topic; 0: there is none.
        source_partitions: Of the queue's own topic; 0: not known.
    """

    def __init__(self, topics: Topics) -> None:
        self.partitions = 0
        self.source_partitions = 0
        self._topics = topics
        self._looked_at = -LOOK_SECONDS * 100
        self._is_looked_for = False  # whether the broker has answered once, and lets this user look
        self._counted_at = 0.0
        self._full_since = 0.0  # when the first of the last looks found no partition free
        self._full_at = 0.0  # when the last one did
        self._has_warned = False

    def look(self, now: float, starvation: float, assigned: int) -> None:
        """Look for the topics; create them for consumers that have waited long where others have partitions.

        Where no consumer waits for them, they are looked for with those of all queues, in one request.

        Args:
            now: The time.
            starvation: For how many seconds a consumer has waited.
            assigned: How many partitions of the queue are this process's.
        """
        if self._is_looked_for and not starvation:
            if self._topics.expected_partitions(self._topics.handover):
                self.count()
            return
        if now - self._looked_at < (REQUEST_DELAY_SECONDS if starvation else LOOK_SECONDS):
            return
        self._looked_at = now
        self.count_source(now)
        self.count()
        self._is_looked_for = True
        if not self.partitions and starvation > FIRST_HANDOVER_DELAY_SECONDS and assigned < self.source_partitions:
            self._topics.ensure_handover()
            self.count()

    def count_source(self, now: float) -> None:
        """Find out from time to time how many partitions the queue has."""
        if now - self._counted_at > COUNT_SECONDS or not self.source_partitions:
            self._counted_at = now
            self.source_partitions = self._topics.source_partitions()

    def count(self) -> int:
        """Find out and return how many transfer partitions there are."""
        self.partitions = self._topics.topic_partitions(self._topics.handover)
        return self.partitions

    def grow(self, now: float) -> int:
        """Add transfer partitions where looks for some time, by *now*, found none free; return how many there are then.

        Claims alone are no reason: a record in the interest topic can claim any number. Members of the group are one:
        each needs a partition, and the process that it has replaced may still have a claim.
        """
        if now - self._full_at > LOOK_SECONDS:
            self._full_since = now
        self._full_at = now
        if now - self._full_since < LOOK_SECONDS:
            return self.partitions
        members = self._topics.members()
        wanted = min(self.partitions + max(1, self.partitions // 2), MOST_FOR_EACH * members)
        if wanted > self.partitions:
            self._full_since = now
            self._topics.grow(self._topics.handover, wanted)
            return self.count()
        self._full_since = now + COUNT_SECONDS
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "%s: other processes claim all %d partitions, and the group has %d members, for which %d are enough;"
                " a consumer waits for messages of other processes until a claim ends",
                self._topics.handover, self.partitions, members, MOST_FOR_EACH * members,
            )  # fmt: skip
        return self.partitions


class TransferPartitions:
    """The transfer partitions of one queue that this process claims and reads.

    Args:
        consumer: Reads them.
        publish: Publishes what is claimed; called with the consumer's lock.

    Attributes:
        number: This process's own, or the one that it has claimed; -1: none.
        adopted: Those that it claims in order to empty them, since their holders are gone.
        open: Those that are read.
        arrived_at: When the last message came, or may have.
    """

    def __init__(self, consumer: Consumer, publish: Callable[[], None]) -> None:
        self.topic = consumer.overflow.handover
        self._consumer = consumer
        self._lock = consumer.lock
        self._publish = publish

    def reset(self, peers: Peers, topics: HandoverTopics) -> None:
        """Claim nothing."""
        self._peers = peers
        self._topics = topics
        self.number = NONE
        self.adopted: set[int] = set()
        self.open: dict[int, AssignedPartition] = {}
        self.arrived_at = 0.0
        self.releasing: set[int] = set()  # read no longer; a commit for them may be under way
        self._quiet_since: dict[int, float] = {}
        self._known_empty: dict[int, int] = {}  # without a holder, and their ends when they were found empty
        self._swept_at = -LOOK_SECONDS * 100

    @property
    def is_held(self) -> bool:
        """Whether this process has a transfer partition of its own."""
        return self.number in self._peers.own

    @property
    def is_claimed(self) -> bool:
        """Whether this process claims any."""
        return self.number != NONE or bool(self.adopted)

    @property
    def claimed(self) -> list[int]:
        """All that are claimed; those being released are, too."""
        return sorted({*self.adopted, *self.releasing, *({self.number} if self.number != NONE else ())})

    @property
    def own(self) -> AssignedPartition | None:
        """This process's own, if it is read."""
        return self.open.get(self.number)

    def is_active(self, now: float) -> bool:
        """Return whether there are messages, or were a short while ago."""
        return now - self.arrived_at < ACTIVE_SECONDS or any(p.settlement.unsettled for p in self.open.values())

    # Claims.

    def withdraw_refused(self, now: float, claimed_at: float) -> None:
        """Withdraw a claim that was not granted soon: another process was first."""
        if not self.is_held and now - claimed_at > REQUEST_DELAY_SECONDS * 2:
            self.number = NONE

    def find_free(self, now: float) -> list[int]:
        """Return transfer partitions without a claim; they are created where there are none for a while."""
        return self._peers.free(self._topics.partitions) or self._peers.free(self._topics.grow(now))

    def claim(self, free: Sequence[int], now: float) -> None:
        """Claim one of *free*; the caller holds the lock, and publishes it."""
        self.number = random.choice(free)
        self.arrived_at = now

    def give_up_expired(self, now: float, valid_until: float) -> bool:
        """Give up what others may have claimed by now, with the lock held; return whether the claims had expired.

        Any member of the group can commit for a transfer partition, so the consumer does this before each commit, too.
        """
        has_expired = now > valid_until and bool(self._peers.own)
        if has_expired:
            _log.warning("%s: the lease of this process's transfer partitions expired; they are given up", self.topic)
            self._peers.give_up()
            self.number = NONE
            self.adopted.clear()
        if self.open:
            for number in self.open.keys() - self._peers.own:
                self.releasing.add(number)
                self._consumer.transfers.drop(self.open.pop(number))
        return has_expired

    def release(self) -> None:
        """Publish what is free, once no commit for it can be under way: it would undo what others commit."""
        released = set(self.releasing)
        if released:
            with self._consumer.client.held(ASK_SECONDS):
                pass
            with self._lock:
                self.releasing -= released
                self._publish()

    def claimed_by(self, peer: Peer) -> None:
        """Record that *peer* claims transfer partitions: they may be empty no longer."""
        for number in peer.claimed & self._known_empty.keys():
            del self._known_empty[number]

    def sweep_soon(self) -> None:
        """Have the next `sweep` look: a process has left, or its lease is over."""
        self._swept_at = time.monotonic() - SWEEP_SECONDS

    def sweep(self, now: float) -> None:
        """Claim those that hold messages and have no holder: the process with the queue's first partition does."""
        if now - self._swept_at < SWEEP_SECONDS or 0 not in self._consumer.numbers():
            return
        self._swept_at = now
        count = self._topics.count()
        with self._lock:
            lost = {number for number in self.adopted if number not in self._peers.own}  # claimed, and not granted
            self.adopted -= lost
            free = [n for n in self._peers.free(count) if n not in self.adopted and n != self.number]
        if not free:
            return
        found = self._consumer.transfers.find_unread(self.topic, free, self._known_empty)
        if found:
            with self._lock:
                self.adopted |= found
                self._publish()

    # Reading.

    def open_claimed(self, begin: Callable[[AssignedPartition], bool]) -> None:
        """Read what is claimed and granted; *begin* is called with the lock, after all waiting, and can prevent it."""
        for number in sorted({self.number, *self.adopted} & self._peers.own - self.open.keys()):
            self._consumer.transfers.open(self.topic, number, begin)

    def begin(self, partition: AssignedPartition, now: float) -> bool:
        """Record that *partition* is read from now on; return False if it is another process's by now."""
        number = partition.number
        if number not in self._peers.own or number not in {self.number, *self.adopted}:
            return False
        self.open[number] = partition
        self._quiet_since[number] = self.arrived_at = now
        self._publish()
        return True

    def close_idle(self, now: float, *, is_needed: Callable[[], bool]) -> None:
        """Release those that are empty, this process's own as well if it is not needed."""
        empty = []
        with self._lock:
            is_own_needed = is_needed()
            for number, partition in self.open.items():
                is_own = number == self.number
                is_moving = partition.settlement.unsettled or now - self.arrived_at < OPENED_SECONDS
                if is_moving or (is_own and is_own_needed):
                    self._quiet_since[number] = now
                elif now - self._quiet_since[number] > (EMPTY_SECONDS if is_own else ADOPTED_EMPTY_SECONDS):
                    empty.append(number)
        for number in empty:
            end = self._consumer.transfers.prepare_release(self.topic, number)
            with self._lock:
                closing = self.open.get(number)
                if end is None or closing is None or closing.settlement.unsettled:
                    self._quiet_since[number] = now
                    continue
                del self.open[number]
                self.releasing.add(number)
                self._known_empty[number] = end
                self._consumer.transfers.drop(closing)
                self.adopted.discard(number)
                if number == self.number:
                    self.number = NONE
                self._publish()

    def drop_all(self) -> None:
        """Read none any more; the caller holds the lock."""
        for number in list(self.open):
            self._consumer.transfers.drop(self.open.pop(number))


def moves_back(consumer: Consumer, deliveries: Sequence[Delivery]) -> list[Move[Delivery]]:
    """Return the moves of *deliveries* to the overflow topic's partition of the owner of their partition."""
    topic = consumer.overflow.topic
    numbers = [delivery.record.partition() or 0 for delivery in deliveries]
    return [
        Move(delivery, copier(topic, number), overflow_partition=number)
        for delivery, number in zip(deliveries, numbers, strict=True)
    ]


def moves_over(topic: str, leaving: Iterable[tuple[Peer, Delivery]]) -> list[Move[Delivery]]:
    """Return the moves of deliveries, each to the transfer partition of its peer in *topic*."""
    copiers: dict[int, Callable[[Delivery], Copy]] = {}
    moves: list[Move[Delivery]] = []
    for peer, delivery in leaving:
        number = peer.transfer_partition
        copy = copiers.get(number)
        if copy is None:
            copy = copiers[number] = copier(topic, number)
        moves.append(Move(delivery, copy, peer=peer, transfer_partition=number))
    return moves
