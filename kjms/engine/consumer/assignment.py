"""The partitions that a group consumer holds, and what is to be committed for them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kjms.engine.consumer.delivery import AssignedPartition, Delivery
from kjms.engine.kafka import TopicPartition
from kjms.engine.tuning import DEFAULTS, Tuning
from kjms.txn.delivery_states import GROUP_BLOCKED
from kjms.txn.metadata import write_state
from kjms.txn.states import MOST_NOTED, NO_OFFSETS, Snapshot

if TYPE_CHECKING:
    from kjms.engine.consumer.dispatcher import Dispatcher

__all__ = ["Assignment", "Commit", "oldest", "start_of"]

_log = logging.getLogger("kjms.settlement")

ROOMY: Final = 0.6  # of the limit: from that size on, room is made before it is needed
NARROW: Final = 64  # offsets beyond the last dispatched message that may be dispatched before the next commit
WIDE: Final = 16_384  # the same where many messages are dispatched between two commits
SLOW_SECONDS: Final = 0.02  # a commit takes about 1 ms, 5 % of the work of a consumer that takes so long for a message
MOST_SLOW: Final = 5  # consumers that may be slow; more of them would commit more often than 250 times a second
MOST_GRANTED: Final = 256  # messages that are granted one by one; a list of them takes room
LOOK_SECONDS: Final = 0.1  # so long after the last look, or after so many messages,
LOOK_MESSAGES: Final = 8  # it is looked again how quick consumers are
SMALLEST_LIMIT: Final = 200  # characters; a broker that allows less keeps no settlement


class Commit(NamedTuple):
    """What is to be committed for a partition."""

    partition: AssignedPartition
    snapshot: Snapshot
    offset: TopicPartition


class Assignment:
    """The partitions of one group consumer, by topic and number; its caller holds the group consumer's lock.

    Args:
        name: The destination's name, for errors and logs.
        topic: The Kafka topic.
        overflow_topic: The Kafka topic for what is relocated.
        group: The consumer group; empty: there is none, and no settlement is kept.
        engine: The engine's name, as settlement names its writer.
        dispatcher: Where messages of the partitions wait.
        tuning: Times and limits.
        clock: Tells the time, in seconds.

    Attributes:
        is_slow: Whether consumers work for so long that each message is granted by a commit before it is dispatched.
        is_kept: Whether Kafka keeps the settlement: it does for a group.
        crowding: The partitions of which messages are being relocated, so that their settlement gets small again.
        has_transfers: Whether a transfer partition is held.
    """

    def __init__(
        self,
        name: str,
        topic: str,
        overflow_topic: str,
        group: str,
        engine: str,
        dispatcher: Dispatcher,
        tuning: Tuning = DEFAULTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.topic = topic
        self.group = group
        self.is_kept = bool(group)
        self.engine = engine
        self.limit = tuning.metadata_limit
        self.crowding: set[AssignedPartition] = set()
        self._overflow_topic = overflow_topic
        self._most_runs = tuning.most_runs
        self._dispatcher = dispatcher
        self._partitions: dict[tuple[str, int], AssignedPartition] = {}
        self._window = NARROW  # how far dispatch limits are ahead of what was dispatched
        self._pace = 0  # the most that was dispatched between two commits; it fades
        self._clock = clock
        self._looked_at, self._taken = clock(), 0
        self.is_slow = False
        self.has_transfers = False

    def __iter__(self) -> Iterator[AssignedPartition]:
        return iter(self._partitions.values())

    def get(self, topic: str, number: int) -> AssignedPartition | None:
        """Return the partition if it is held."""
        return self._partitions.get((topic, number))

    def numbers(self) -> list[int]:
        """Return the partitions of the topic that are held."""
        return [number for topic, number in self._partitions if topic == self.topic]

    def add(self, partition: AssignedPartition) -> None:
        """Hold *partition* from now on."""
        self._partitions[partition.topic, partition.number] = partition
        self.has_transfers = self.has_transfers or partition.is_transfer

    def transfers(self) -> list[AssignedPartition]:
        """Return the transfer partitions that are held."""
        return [partition for partition in self if partition.is_transfer]

    def remove(self, partition: AssignedPartition) -> None:
        """Give *partition* up."""
        partition.is_held = False
        self._partitions.pop((partition.topic, partition.number), None)
        self.has_transfers = any(other.is_transfer for other in self)
        self._dispatcher.drop(partition)
        self.crowding.discard(partition)

    def of(self, number: int) -> list[AssignedPartition]:
        """Return partition *number* of the topic, and of the overflow topic, if they are held."""
        both = (self.get(topic, number) for topic in (self.topic, self._overflow_topic))
        return [partition for partition in both if partition is not None]

    def drop(self, number: int) -> list[AssignedPartition]:
        """Hold partition *number*, and that of the overflow topic, no longer; return both."""
        dropped = self.of(number)
        for partition in dropped:
            self.remove(partition)
        return dropped

    def plan(
        self,
        *,
        last: Collection[AssignedPartition] = (),
        settled: Mapping[AssignedPartition, Collection[int]] | None = None,
        is_proof: bool = False,
    ) -> tuple[list[Commit], list[AssignedPartition]]:
        """Return what is to be committed, and the partitions whose settlement does not fit.

        Args:
            last: Partitions that are given up in order: what sessions have of them is recorded as delivered.
            settled: If given, only of these partitions, with these offsets as if they were settled.
            is_proof: Commit what is known already, too: it proves that the partitions are still this process's.
        """
        commits, too_large = [], []
        now, batches = self._clock(), self._dispatcher.batches
        if self.is_slow or now - self._looked_at >= LOOK_SECONDS:
            self._look(now)
        starts = batches.note_taken(is_single=len(self._partitions) == 1) if batches.slots else {}
        window = 0 if self.is_slow else -1  # the latter: it is not known yet
        grants: dict[AssignedPartition, set[int]] | None = None
        for partition in self._partitions.values():
            settlement = partition.settlement
            if (
                not partition.is_kept
                or settlement.committed_offset < 0
                or (settled is not None and partition not in settled)
            ):
                continue
            is_last = partition in last
            if is_last:
                _note_in_flight(partition)
            has_changed = settled or is_last or is_proof or settlement.is_dirty or partition.needs_dispatch_limit
            if not has_changed and not (settlement.granted or (self.is_slow and settlement.has_window)):
                continue
            granted: frozenset[int] = NO_OFFSETS
            if not is_last:
                window = self._next_window() if window < 0 else window
                if settlement.requests or settlement.granted:
                    if grants is None:
                        grants = self._dispatcher.to_grant(min(window, MOST_GRANTED))
                    granted = self._granted(partition, grants, starts.get(partition), window)
                if not has_changed and settlement.granted == granted and not (self.is_slow and settlement.has_window):
                    continue
            snapshot = settlement.snapshot(
                None if is_last else window,
                NO_OFFSETS if settled is None else settled[partition],
                start=starts.get(partition),
                granted=granted,
            )
            metadata = write_state(snapshot.state, partition.identity, self.engine)
            partition.is_crowded = len(metadata) > ROOMY * self.limit or len(snapshot.state.runs) > self._most_runs
            if len(metadata) > self.limit:
                too_large.append(partition)  # at a partition's end, too: what Kafka has is all that was promised
                continue
            settlement.narrow(snapshot)  # what comes besides is dispatched after the commit
            if partition.window != window or partition.extend_at > settlement.dispatch_limit:
                partition.dispatch_limit_moved(0 if is_last else window)
            commits.append(
                Commit(
                    partition,
                    snapshot,
                    TopicPartition(partition.topic, partition.number, snapshot.state.committed_offset, metadata),
                )
            )
        return commits, too_large

    @staticmethod
    def _granted(
        partition: AssignedPartition, grants: Mapping[AssignedPartition, set[int]], start: int | None, window: int
    ) -> frozenset[int]:
        """Return what is to be granted of *partition* beside its window, that begins at *start*."""
        settlement = partition.settlement
        begin = settlement.dispatched if start is None else start
        found = {each for each in grants.get(partition, ()) if not begin <= each < settlement.dispatched + window}
        for offset in settlement.requests:
            delivery = settlement.get(offset)
            if delivery is not None and delivery.state is GROUP_BLOCKED:  # it waits for one session
                found.add(offset)
        return frozenset(found)

    def _look(self, now: float) -> None:
        """Look how long consumers work for a message."""
        dispatcher = self._dispatcher
        taken = dispatcher.dispatched - len(dispatcher.batches)
        seconds, messages = now - self._looked_at, taken - self._taken
        if seconds < LOOK_SECONDS and messages < LOOK_MESSAGES:
            return
        self._looked_at, self._taken = now, taken
        was_slow = self.is_slow
        self.is_slow = seconds * min(max(dispatcher.selector_queues.slots, 1), MOST_SLOW) > messages * SLOW_SECONDS
        if self.is_slow and not was_slow:
            dispatcher.batches.recall()

    def _next_window(self) -> int:
        """Return how far dispatch limits are to be ahead: farther where more is dispatched between two commits.

        What counts is what all partitions have together: their messages may come one partition after the other, and
        each of them would have to wait for several commits of its own. And it is the most of some commits, not what the
        last one found: a batch is dispatched at once, and the commits until the next batch find nothing.
        """
        since, before = 0, self._window
        for partition in self._partitions.values():
            dispatched = partition.settlement.dispatched
            since += dispatched - partition.planned
            partition.planned = dispatched
        self._pace = max(since, self._pace * 3 // 4)
        if self._pace > before >> 1:
            self._window = min(before << 2, WIDE)
        elif self._pace < before >> 3:
            self._window = max(before >> 1, NARROW)
        if self._window != before:
            for partition in self._partitions.values():
                partition.dispatch_limit_moved(self._window)  # it is near, or far, in another measure
        return self._window

    def committed(self, commits: Iterable[Commit]) -> None:
        """Note that Kafka has *commits*."""
        for partition, snapshot, offset in commits:
            settlement = partition.settlement
            settlement.committed(snapshot)
            partition.extend_at = settlement.dispatch_limit - (partition.window >> 1)  # as `dispatch_limit_moved` does
            partition.refill_at = len(settlement.granted) + 1 >> 1
            partition.kept = offset

    def refused(self) -> bool:
        """Make do with less room for the settlement: the broker allows less; tell whether that is possible."""
        self.limit = self.limit * 3 // 4
        return self.limit >= SMALLEST_LIMIT


def _note_in_flight(partition: AssignedPartition) -> None:
    """Note that what sessions have of *partition*, which is given up, was delivered; of very many, only possibly."""
    settlement = partition.settlement
    in_flight = [delivery for _, delivery in settlement.messages() if delivery.is_in_flight]
    if len(in_flight) > MOST_NOTED:
        settlement.possibly_delivered(delivery.offset for delivery in in_flight)
        return
    for delivery in in_flight:
        delivery.note(is_last=True)


def oldest(partition: AssignedPartition, share: float) -> list[Delivery]:
    """Return the oldest *share* of what makes the settlement of *partition* large; the newer may be settled soon."""
    crowd = [delivery for _, delivery in partition.settlement.messages(take_room=True)]
    return crowd[: max(1, int(len(crowd) * share))]


def start_of(partition: AssignedPartition) -> TopicPartition:
    """Return from where *partition* is to be read."""
    return TopicPartition(partition.topic, partition.number, partition.settlement.position)
