"""Which partitions the Kafka client fetches, and from where: restore, assign, unassign and re-read them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kjms.engine.consumer.assignment import start_of
from kjms.engine.consumer.client import COMMIT_SECONDS
from kjms.engine.consumer.reading import Reading, read_of
from kjms.engine.consumer.restoration import NOT_KNOWN, Recall, beginning
from kjms.engine.kafka import ConsumerPort, TopicPartition
from kjms.errors import JMSException

if TYPE_CHECKING:
    from kjms.engine.consumer.assignment import Assignment
    from kjms.engine.consumer.client import ConsumerClient
    from kjms.engine.consumer.delivery import AssignedPartition
    from kjms.engine.consumer.dispatcher import Dispatcher
    from kjms.engine.consumer.overflow import Overflow
    from kjms.engine.consumer.restoration import SettlementRestorer
    from kjms.engine.consumer.topic_identity import TopicIdentity
    from kjms.engine.log_reading import Place

__all__ = ["FetchPositions", "with_copies"]

LONG_RUN: Final = 1_000  # settled offsets: reading and dropping them takes longer than to fetch anew (4 ms)


def _is_wanted(_partition: AssignedPartition) -> bool:
    return True


class FetchPositions:
    """What the Kafka client of a group consumer fetches.

    Locks: each method that is given a consumer is called with the client's `turn` held, and takes the group consumer's
    lock for what it notes. The others wait for `turn`, and are called without that lock.

    Args:
        assignment: The partitions that are held.
        client: Holds the Kafka consumer.
        overflow: What the engine does for the group consumer.
        restorer: Makes partitions from what was committed.
        identities: Receives the ids of topics.
        dispatcher: Says what is to be read again.
        lock: The group consumer's lock.
        look_back: How many records before its start each partition of the topic is read, to know what was there.

    Attributes:
        reading: What the client fetches, and whether it is paused.
    """

    def __init__(
        self,
        assignment: Assignment,
        client: ConsumerClient,
        overflow: Overflow,
        restorer: SettlementRestorer,
        identities: TopicIdentity,
        dispatcher: Dispatcher,
        lock: threading.RLock,
        look_back: int,
    ) -> None:
        self.restorer = restorer
        self.reading = Reading()
        self._assignment = assignment
        self._client = client
        self._overflow = overflow
        self._identities = identities
        self._dispatcher = dispatcher
        self._lock = lock
        self._look_back = look_back
        self._left: set[Place] = set()  # given up, and still fetched
        self._forgotten: list[Place] = []  # assigned, and not read before the copies of their settlement are found
        self._catching_up: set[AssignedPartition] = set()  # long runs of what comes may be settled
        self._reread_at = 0.0  # when what is evicted began to be read again
        self._rest_until = 0.0  # it is not begun anew before

    # The group assigns partitions, and takes them away.

    def assign(self, consumer: ConsumerPort, numbers: Sequence[int]) -> None:
        """Read the partitions *numbers* of the topic, and of the overflow topic, which the group assigned."""
        overflow = self._overflow
        count = overflow.partitions() if numbers else 0
        wanted = [(self._assignment.topic, number) for number in numbers]
        wanted += [(overflow.topic, number) for number in numbers if number < count]
        if wanted and overflow.is_new():
            self.open(consumer, wanted, dict.fromkeys)
        else:
            restored = self.restorer.restore(consumer, wanted, self._put_off)
            incomplete = {number for _, number in self._forgotten}
            # What was relocated of a partition, and the partition, are opened together.
            self._forgotten += [(each.topic, each.number) for each in restored if each.number in incomplete]
            self.hold(consumer, [each for each in restored if each.number not in incomplete])

    def _put_off(self, places: Sequence[Place]) -> dict[Place, None]:
        """Note that *places* are opened with copies of their settlement; inside of the client, no log is read."""
        self._forgotten += places
        return {}

    def open_forgotten(self, consumer: ConsumerPort) -> None:
        """Open the partitions whose offsets Kafka has deleted, at those of the copies; wait for the client's `turn`."""
        if not self._forgotten:
            return
        copies = self._overflow.recall(self._forgotten)
        with self._client.turn:
            places, self._forgotten = self._forgotten, []
            self.open(consumer, places, lambda asked: {place: copies[place] for place in asked})

    def unassign(self, consumer: ConsumerPort, places: Sequence[TopicPartition]) -> None:
        """Give up *places*, partitions of the topic that the group took away, and what was relocated of them."""
        gone = {place.partition for place in places}
        self._forgotten = [place for place in self._forgotten if place[1] not in gone]
        with self._lock:
            dropped = [partition for place in places for partition in self._assignment.drop(place.partition)]
        leaving = {(place.topic, place.partition) for place in places}  # also those that `assign` did not open
        leaving.update((partition.topic, partition.number) for partition in dropped)
        consumer.incremental_unassign(read_of(consumer, leaving))

    def forget_all(self) -> None:
        """Hold nothing any more: the client has left its group; the caller holds the lock."""
        for partition in list(self._assignment):
            self._assignment.remove(partition)
        self._left.clear()
        self.reading.forget_all()
        self._forgotten.clear()
        self._catching_up.clear()

    # Partitions are read that the group does not assign.

    def open_overflow(self, number: int) -> None:
        """Make sure that what is relocated of partition *number* is read here.

        Raises:
            JMSException: The partition is read elsewhere now.
        """
        assignment, overflow = self._assignment, self._overflow
        topic, name = overflow.topic, assignment.name
        if assignment.get(topic, number) is not None:
            return
        overflow.ensure(number)
        begins = {
            (topic, number): overflow.topics.beginning(topic, number)
        }  # without the client: sessions continue meanwhile
        with self._client.held(COMMIT_SECONDS):
            consumer = self._client.consumer
            if consumer is None or assignment.get(assignment.topic, number) is None:
                raise JMSException(f"partition {number} of {name} is read elsewhere now")
            # It was not there when the partition was assigned, so nothing of it can have been forgotten.
            if not self.open(consumer, list(begins), dict.fromkeys, begins=begins):
                raise JMSException(f"partition {number} of the overflow topic of {name} cannot be read")

    def open(
        self,
        consumer: ConsumerPort,
        places: Sequence[Place],
        recall: Recall,
        is_ours: Callable[[AssignedPartition], bool] = _is_wanted,
        begins: Mapping[Place, int] = NOT_KNOWN,
    ) -> list[AssignedPartition]:
        """Read the partitions at *places* from where their settlement stands."""
        restored = self.restorer.restore(consumer, places, recall, begins)  # without the lock: it may take long
        self.hold(consumer, restored, is_ours)
        return restored

    def hold(
        self,
        consumer: ConsumerPort,
        restored: Sequence[AssignedPartition],
        is_ours: Callable[[AssignedPartition], bool] = _is_wanted,
    ) -> None:
        """Hold *restored*, and read on where they stand."""
        starts = [self._start(partition) for partition in restored]
        # First: librdkafka does not forget that a partition was paused when it was lost, and fetches late what resumes.
        consumer.resume(starts)
        self.reading.fetch(consumer, starts)
        with self._lock:
            for partition in restored:
                if is_ours(partition):
                    self._assignment.add(partition)
                    self._catching_up.add(partition)
                else:
                    self._left.add((partition.topic, partition.number))
        for partition in restored:
            self._identities.opened(partition)

    def _start(self, partition: AssignedPartition) -> TopicPartition:
        """Return from where to read *partition*: earlier where it matters what was there."""
        start = start_of(partition)
        if self._look_back and partition.topic == self._assignment.topic and start.offset > 0:
            start.offset = max(start.offset - self._look_back, 0)  # a log that begins later is read from there
        return start

    def leave(self, partition: AssignedPartition) -> None:
        """Hold *partition* no longer, and have it fetched no longer, soon; the caller holds the lock."""
        self._assignment.remove(partition)
        self._left.add((partition.topic, partition.number))

    def unassign_left(self, consumer: ConsumerPort) -> None:
        """Have the client fetch no longer what was left."""
        if self._left:
            with self._lock:
                left, self._left = self._left, set()
            consumer.incremental_unassign(read_of(consumer, left))

    # What is settled is passed over, and what is evicted is read again.

    def skip_known(self, consumer: ConsumerPort) -> None:
        """Fetch on behind the long runs of settled or placed messages that come next; wait for the client's `turn`."""
        self._catching_up.update(p for p in list(self._assignment) if p.settlement.is_behind)
        if not self._catching_up:
            return
        with self._client.turn:
            places = []
            with self._lock:
                self._catching_up = {p for p in self._catching_up if p.is_held and p.settlement.is_catching_up}
                for partition in self._catching_up:
                    margin = self._look_back if partition.topic == self._assignment.topic else 0
                    offset = partition.settlement.skip_known(LONG_RUN, margin)
                    if offset is not None:
                        places.append(TopicPartition(partition.topic, partition.number, offset))
            self.reading.fetch_from(consumer, places)

    def reread(self, consumer: ConsumerPort) -> None:
        """Read again what is evicted, if a consumer has come that may match it; wait for the client's `turn`.

        That takes its time, so it is finished before it begins anew, and what is new is read for as long first.
        """
        assignment, dispatcher = self._assignment, self._dispatcher
        if not dispatcher.eviction.wants_reread:
            return
        now = time.monotonic()
        with self._lock:
            if assignment.crowding:  # what is being relocated would come before older ones
                return
            rereading = [partition for partition in assignment if partition.settlement.is_rereading]
            if dispatcher.eviction.is_urgent:
                if any(p.is_overflow and (p.settlement.is_rereading or p.settlement.is_behind) for p in assignment):
                    return  # older ones are still to come
            elif rereading:
                self._rest_until = now + (now - self._reread_at)
                return
            elif now < self._rest_until:
                return
            self._reread_at = now
            partitions = dispatcher.to_reread()
        with self._client.turn:
            firsts = [beginning(consumer, start_of(partition)) for partition in partitions]
            with self._lock:
                places = [
                    TopicPartition(partition.topic, partition.number, partition.settlement.reread_from(first))
                    for partition, first in zip(partitions, firsts, strict=True)
                    if partition.is_held
                ]
                self._catching_up.update(partitions)
            self.reading.fetch_from(consumer, places)


def with_copies(restored: Callable[[Recall], list[AssignedPartition]], recall: Recall) -> list[AssignedPartition]:
    """Return what *restored* returns, which holds the client's `turn`; `recall` reads copies in between, without it."""
    forgotten: list[Place] = []

    def put_off(places: Sequence[Place]) -> dict[Place, None]:
        forgotten.extend(places)
        return {}

    found = restored(put_off)
    if forgotten:
        copies = recall(forgotten)
        found += restored(lambda places: {place: copies[place] for place in places if place in copies})
    return found
