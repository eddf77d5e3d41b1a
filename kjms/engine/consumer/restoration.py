"""Restore the settlement of partitions from what their group committed last."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from kjms.engine.consumer.delivery import AssignedPartition
from kjms.engine.kafka import ConsumerPort, KafkaError, KafkaException, TopicPartition, kafka_error
from kjms.errors import JMSException
from kjms.txn.metadata import DamagedStateError, NewerStateError, State, is_foreign, owner, read_state

if TYPE_CHECKING:
    from kjms.engine.consumer.overflow import Overflow
    from kjms.engine.log_reading import Place
    from kjms.mapping.bridges import Decoder

__all__ = ["NEWER_SETTLEMENT", "NOT_KNOWN", "Recall", "SettlementRestorer", "beginning", "kept_state"]

_log = logging.getLogger("kjms.settlement")

OPEN_SECONDS: Final = 2.0  # a transaction that is being committed takes milliseconds
ASK_SECONDS: Final = 10.0  # how long the broker may take to say what was committed
NEWER_SETTLEMENT: Final = "NEWER_SETTLEMENT"
"""The error code where a later version of kjms wrote what is settled."""

NOT_KNOWN: Final[Mapping[Place, int]] = {}

Recall: TypeAlias = "Callable[[Sequence[Place]], Mapping[Place, tuple[int, str] | None]]"
"""Returns the copy of what was committed for each partition, offset and metadata; None: there is none."""


class SettlementRestorer:
    """Makes partitions from what their group committed last; needs no lock, but the client's `turn`.

    Args:
        name: The destination's name, for errors and logs.
        topic: The Kafka topic.
        overflow: What the engine does for the group consumer.
        decode: How records are read.
        on_error: Receives what only the connection's exception listener can report.
    """

    def __init__(
        self, name: str, topic: str, overflow: Overflow, decode: Decoder, on_error: Callable[[JMSException], None]
    ) -> None:
        self._name = name
        self._topic = topic
        self._overflow = overflow
        self._decode = decode
        self._on_error = on_error

    def restore(
        self,
        consumer: ConsumerPort,
        wanted: Sequence[Place],
        read_copies: Recall,
        begins: Mapping[Place, int] = NOT_KNOWN,
    ) -> list[AssignedPartition]:
        """Return *wanted* with their committed state, to be added; it may take long, and needs no lock.

        A partition whose settlement a later kjms wrote is left alone: what that settled would be delivered again.

        Args:
            consumer: Asks Kafka.
            wanted: The partitions.
            read_copies: Returns copies of offsets that Kafka has deleted; partitions it does not name are left out.
            begins: Where logs begin, as far as that is known: of a topic that was just made, *consumer* may wait long
                for a leader that says so.

        Raises:
            KafkaException: Kafka does not say what was committed.
        """
        return [
            AssignedPartition(
                topic,
                number,
                state,
                self._decode,
                is_overflow=topic != self._topic,
                is_transfer=topic == self._overflow.handover,
                identity=identity,
            )
            for (topic, number), state, identity in self.read(consumer, wanted, read_copies, begins)
        ]

    def read(
        self,
        consumer: ConsumerPort,
        wanted: Sequence[Place],
        read_copies: Recall,
        begins: Mapping[Place, int] = NOT_KNOWN,
    ) -> list[tuple[Place, State, str]]:
        """Return what is committed of each of *wanted*, and the id of its topic: see `restore`.

        Raises:
            KafkaException: Kafka does not say what was committed.
        """
        if not wanted:
            return []
        states = []
        answers = self._committed(consumer, wanted)
        forgotten = [(known.topic, known.partition) for known in answers if known.offset < 0]
        copies = read_copies(forgotten) if forgotten else {}
        if any(copy is not None for copy in copies.values()):
            # A copy follows a commit. One that came between the answer and the copies shows in another answer: only
            # what Kafka does not have then was deleted.
            answers = self._committed(consumer, wanted)
        # Asked each time, and kept: what is committed of a topic must never be taken for another one's of its name.
        identities = {topic: self._overflow.topics.ids.find(topic) for topic in {known.topic for known in answers}}
        for known in answers:
            place = known.topic, known.partition
            if known.offset < 0 and place not in copies:
                continue
            copy = copies.get(place) if known.offset < 0 else None
            try:
                identity = identities[known.topic]
                state = (
                    self._state(consumer, known, identity)
                    if copy is None
                    else self._remembered(consumer, known, identity, *copy)
                )
            except NewerStateError as error:
                why = f"partition {known.partition} of {self._name} is not read: {error}"
                self._on_error(JMSException(why, NEWER_SETTLEMENT))
                continue
            if state is None:
                first = begins[place] if place in begins else beginning(consumer, known)
                state = State(first, first, (), first)
            states.append((place, state, identity))
        return states

    def _committed(self, consumer: ConsumerPort, wanted: Sequence[Place]) -> list[TopicPartition]:
        """Return what is committed for the partitions *wanted*.

        The broker does not answer while a transaction is open that holds offsets of them. An engine that gave them up
        in order has none, so this one was killed, or left out of the group: the transaction is ended.

        Raises:
            KafkaException: The broker did not answer, or refused.
        """
        places = [TopicPartition(*place) for place in wanted]
        try:
            answers = consumer.committed(places, OPEN_SECONDS)
        except KafkaException as error:
            if kafka_error(error).code() != KafkaError._TIMED_OUT:
                raise
            self._overflow.end_transactions(places)
            answers = consumer.committed(places, ASK_SECONDS)
        for known in answers:
            if known.error is not None:
                raise KafkaException(known.error)
        return list(answers)

    def _state(self, consumer: ConsumerPort, known: TopicPartition, identity: str) -> State | None:
        place = f"partition {known.partition} of {known.topic}"
        return kept_state(known.metadata, known.offset, identity, lambda: _end(consumer, known), place)

    def _remembered(
        self, consumer: ConsumerPort, place: TopicPartition, identity: str, offset: int, metadata: str
    ) -> State | None:
        """Return the state from a copy: more may have been settled since, so what comes may have been delivered."""
        known = TopicPartition(place.topic, place.partition, offset, metadata)
        state = self._state(consumer, known, identity)
        if state is None:
            return None
        _log.warning(
            "partition %d of %s: Kafka has deleted the group's offsets; kjms continues from a copy",
            place.partition,
            place.topic,
        )
        limit = max(_end(consumer, place), state.dispatch_limit)
        return state._replace(dispatch_limit=limit, held=None, possible=(), lent=())


def kept_state(
    metadata: str | None, offset: int, identity: str, end: Callable[[], int], place: str | None = None
) -> State | None:
    """Return the settlement that a commit keeps; None: the partition is read from its start.

    Args:
        metadata: What stands beside the offset.
        offset: The committed offset; negative: there is none.
        identity: The topic's id; ``-``: it is not known.
        end: Returns where the log ends.
        place: How the log calls the partition; None: what is wrong with the settlement is not logged.

    Raises:
        NewerStateError: A later version of kjms wrote it.
    """
    if offset < 0:
        return None
    if place and is_foreign(metadata):
        _log.warning("%s: the group's last offset was committed by another library; kjms continues from there", place)
    topic_id, _ = owner(metadata)
    if identity != "-" and topic_id not in {"", "-", identity}:
        if place:
            _log.warning("%s: the topic was deleted and created again; kjms reads it from its start", place)
        return None
    try:
        state = read_state(metadata, offset)
    except DamagedStateError as error:
        if place:
            _log.warning("%s: %s; messages from there may have been delivered before", place, error)
        return State(offset, end(), (), offset)
    last = end()
    if state.committed_offset > last:
        if place:
            _log.warning("%s: the log ends before the settled offset; kjms reads it from its start", place)
        return None
    return state.within(last)


def beginning(consumer: ConsumerPort, place: TopicPartition) -> int:
    """Return where the log begins: said as a number, it is found at once."""
    return int(consumer.get_watermark_offsets(TopicPartition(place.topic, place.partition), ASK_SECONDS)[0])


def _end(consumer: ConsumerPort, place: TopicPartition) -> int:
    return int(consumer.get_watermark_offsets(TopicPartition(place.topic, place.partition), ASK_SECONDS)[1])
