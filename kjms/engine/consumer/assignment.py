"""The partitions that a reader holds: restored from what Kafka keeps of them, and what Kafka is told in return."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kjms.engine.consumer.delivery import AssignedPartition, Delivery
from kjms.engine.kafka import ConsumerPort, KafkaError, KafkaException, TopicPartition, kafka_error
from kjms.errors import JMSException
from kjms.txn.metadata import (
    DamagedStateError,
    NewerStateError,
    State,
    is_foreign,
    owner,
    read_state,
    write_state,
)
from kjms.txn.states import NOBODY, Snapshot

if TYPE_CHECKING:
    from kjms.engine.consumer.overflow import Overflow
    from kjms.engine.log_reading import Place
    from kjms.mapping.bridges import Decoder

__all__ = ["Assignment", "Commit", "Recall", "beginning", "oldest", "start_of"]

_log = logging.getLogger("kjms.settlement")

ROOMY: Final = 0.6  # of the limit: from that size on, room is made before it is needed
OPEN_SECONDS: Final = 2.0  # a transaction that is being committed takes milliseconds
ASK_SECONDS: Final = 10.0  # how long Kafka may take to say what was committed
NOT_KNOWN: Final[Mapping[Place, int]] = {}
SMALLEST_LIMIT: Final = 200  # characters; a broker that allows less keeps no settlement


Recall: TypeAlias = "Callable[[Sequence[Place]], Mapping[Place, tuple[int, str] | None]]"
"""Returns the copy of what was committed for each partition, offset and metadata; None: there is none."""


class Commit(NamedTuple):
    """What is to be committed for a partition."""

    partition: AssignedPartition
    snapshot: Snapshot
    offset: TopicPartition


class Assignment:
    """The partitions of one reader, by topic and number; whoever uses it holds the reader's lock.

    Args:
        name: The destination's name, for errors and logs.
        topic: The Kafka topic.
        aside: What the engine does for the reader.
        decode: How records are read.
        tell: Told of what only the connection's exception listener can hear.
    """

    def __init__(
        self,
        name: str,
        topic: str,
        aside: Overflow,
        decode: Decoder,
        tell: Callable[[JMSException], None],
    ) -> None:
        self.topic = topic
        self.aside = aside.topic
        self.handover = aside.handover
        self.limit = aside.tuning.metadata_limit
        self.name = name
        self.group = aside.group
        self.engine = aside.engine
        self._most_runs = aside.tuning.most_runs
        self._decode = decode
        self._identity = aside.identity
        self._end_transactions = aside.end_transactions
        self._tell = tell
        self._partitions: dict[tuple[str, int], AssignedPartition] = {}

    def __iter__(self) -> Iterator[AssignedPartition]:
        return iter(self._partitions.values())

    @property
    def is_kept(self) -> bool:
        """Whether Kafka keeps the settlement: it does for a group."""
        return bool(self.group)

    def get(self, topic: str, number: int) -> AssignedPartition | None:
        """Return the partition if it is held."""
        return self._partitions.get((topic, number))

    def numbers(self) -> list[int]:
        """Return the partitions of the topic that are held."""
        return [number for topic, number in self._partitions if topic == self.topic]

    def add(self, partition: AssignedPartition) -> None:
        """Hold *partition* from now on."""
        self._partitions[partition.topic, partition.number] = partition

    def transfers(self) -> list[AssignedPartition]:
        """Return the transfer partitions that are held."""
        return [partition for partition in self if partition.is_transfer]

    def remove(self, partition: AssignedPartition) -> None:
        """Hold *partition* no longer."""
        partition.is_held = False
        self._partitions.pop((partition.topic, partition.number), None)

    def of(self, number: int) -> list[AssignedPartition]:
        """Return partition *number* of the topic, and what was moved aside of it, if they are held."""
        both = (self.get(topic, number) for topic in (self.topic, self.aside))
        return [partition for partition in both if partition is not None]

    def drop(self, number: int) -> list[AssignedPartition]:
        """Hold partition *number*, and what was moved aside of it, no longer; return both."""
        dropped = self.of(number)
        for partition in dropped:
            self.remove(partition)
        return dropped

    # From Kafka.

    def restore(
        self, consumer: ConsumerPort, wanted: Sequence[Place], recall: Recall, begins: Mapping[Place, int] = NOT_KNOWN
    ) -> list[AssignedPartition]:
        """Return *wanted* as Kafka knows them, to be added; it may take long, and needs no lock.

        A partition whose settlement a later kjms wrote is left alone: what that settled would be delivered again.

        Args:
            consumer: Asks Kafka.
            wanted: The partitions.
            recall: Returns the copies of what Kafka has forgotten; a partition that it does not name is left out.
            begins: Where logs begin, as far as that is known: of a topic that was just made, *consumer* may wait long
                for a leader that says so.

        Raises:
            KafkaException: Kafka does not say what was committed.
        """
        if not wanted:
            return []
        partitions = []
        answers = self._committed(consumer, [TopicPartition(*place) for place in wanted])
        for known in answers:
            if known.error is not None:
                raise KafkaException(known.error)
        forgotten = [(known.topic, known.partition) for known in answers if known.offset < 0]
        copies = recall(forgotten) if forgotten else {}
        # Asked each time, and kept: what is committed of a topic must never be taken for another one's of its name.
        identities = {topic: self._identity(topic) for topic in {known.topic for known in answers}}
        for known in answers:
            place = known.topic, known.partition
            if known.offset < 0 and place not in copies:
                continue
            copy = copies.get(place)
            try:
                identity = identities[known.topic]
                state = (
                    self._state(consumer, known, identity)
                    if copy is None
                    else self._remembered(consumer, known, identity, *copy)
                )
            except NewerStateError as error:
                self._tell(JMSException(f"partition {known.partition} of {self.name} is not read: {error}"))
                continue
            if state is None:
                first = begins[place] if place in begins else beginning(consumer, known)
                state = State(first, first, (), first)
            is_overflow, is_transfer = known.topic != self.topic, known.topic == self.handover
            partitions.append(
                AssignedPartition(
                    known.topic,
                    known.partition,
                    state,
                    self._decode,
                    is_overflow=is_overflow,
                    is_transfer=is_transfer,
                    identity=identities[known.topic],
                )
            )
        return partitions

    def _committed(self, consumer: ConsumerPort, places: list[TopicPartition]) -> list[TopicPartition]:
        """Return what is committed for *places*.

        Kafka does not say while a transaction is open that holds offsets of them. Who gave them up in order has none,
        so it is of somebody who was killed, or left out of the group: it is ended.

        Raises:
            KafkaException: Kafka does not say.
        """
        try:
            return list(consumer.committed(places, OPEN_SECONDS))
        except KafkaException as error:
            if kafka_error(error).code() != KafkaError._TIMED_OUT:
                raise
        self._end_transactions(places)
        return list(consumer.committed(places, ASK_SECONDS))

    def _state(self, consumer: ConsumerPort, known: TopicPartition, identity: str) -> State | None:
        if known.offset < 0:
            return None
        place = f"partition {known.partition} of {known.topic}"
        if is_foreign(known.metadata):
            _log.warning("%s: the group's last offset was committed by another library; kjms goes on from there", place)
        topic_id, _ = owner(known.metadata)
        if identity != "-" and topic_id not in {"", "-", identity}:
            _log.warning("%s: the topic was made anew since it was read last; it is read from its start", place)
            return None
        try:
            state = read_state(known.metadata, known.offset)
        except DamagedStateError as error:
            _log.warning("%s: %s; what comes from there may have been delivered before", place, error)
            return State(known.offset, _end(consumer, known), (), known.offset)
        end = _end(consumer, known)
        if state.committed_offset > end:
            _log.warning("%s: the log ends before what was settled; it is read from its start", place)
            return None
        return state.within(end)

    def _remembered(
        self, consumer: ConsumerPort, place: TopicPartition, identity: str, offset: int, metadata: str
    ) -> State | None:
        """Return the state from a copy: more may have been settled since, so what comes may have been delivered."""
        known = TopicPartition(place.topic, place.partition, offset, metadata)
        state = self._state(consumer, known, identity)
        if state is None:
            return None
        _log.warning(
            "partition %d of %s: Kafka has forgotten what was settled; it goes on from a copy",
            place.partition,
            place.topic,
        )
        return replace(state, dispatch_limit=max(_end(consumer, place), state.dispatch_limit))

    # To Kafka.

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
            is_proof: Commit what is known already, too: it proves that the partitions are still this reader's.
        """
        commits, too_large = [], []
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
                for _, delivery in settlement.messages():
                    if delivery.is_in_flight:
                        delivery.note(is_last=True)
            if not (settled or is_last or is_proof or settlement.is_dirty or partition.needs_dispatch_limit):
                continue
            snapshot = settlement.snapshot(
                0 if is_last else partition.window(), NOBODY if settled is None else settled[partition]
            )
            metadata = self._written(partition, snapshot.state)
            partition.is_crowded = len(metadata) > ROOMY * self.limit or len(snapshot.state.runs) > self._most_runs
            if len(metadata) > self.limit:
                too_large.append(partition)  # at a partition's end, too: what Kafka has is all that was promised
                continue
            commits.append(
                Commit(
                    partition,
                    snapshot,
                    TopicPartition(partition.topic, partition.number, snapshot.state.committed_offset, metadata),
                )
            )
        return commits, too_large

    def _written(self, partition: AssignedPartition, state: State) -> str:
        return write_state(state, partition.identity, self.engine)

    def committed(self, commits: Iterable[Commit]) -> None:
        """Note that Kafka has *commits*."""
        for partition, snapshot, offset in commits:
            partition.settlement.committed(snapshot)
            partition.dispatch_limit_moved()
            partition.kept = offset

    def refused(self) -> bool:
        """Make do with less room for the settlement: the broker allows less; tell whether that is possible."""
        self.limit = self.limit * 3 // 4
        return self.limit >= SMALLEST_LIMIT


def oldest(partition: AssignedPartition, share: float) -> list[Delivery]:
    """Return the oldest *share* of what makes the settlement of *partition* large; the newer may be settled soon."""
    crowd = partition.settlement.crowd()
    return [delivery for _, delivery in crowd[: max(1, int(len(crowd) * share))]]


def start_of(partition: AssignedPartition) -> TopicPartition:
    """Return from where *partition* is to be read."""
    return TopicPartition(partition.topic, partition.number, partition.settlement.position)


def beginning(consumer: ConsumerPort, place: TopicPartition) -> int:
    """Return where the log begins: said as a number, it is found at once."""
    return int(consumer.get_watermark_offsets(TopicPartition(place.topic, place.partition), ASK_SECONDS)[0])


def _end(consumer: ConsumerPort, place: TopicPartition) -> int:
    return int(consumer.get_watermark_offsets(TopicPartition(place.topic, place.partition), ASK_SECONDS)[1])
