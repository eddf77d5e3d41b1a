"""What a transaction has written: how much of it is confirmed, and where it stands: pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from kjms.engine.delivery_reports import failure_of
from kjms.engine.kafka import TopicPartition
from kjms.mapping import ANY_PARTITION

if TYPE_CHECKING:
    from kjms.engine.kafka import KafkaError, KafkaMessage
    from kjms.engine.transactions.plan import Move

__all__ = ["Written"]

Place = tuple[str, int]
"""A topic, and the partition, or `ANY_PARTITION`: the Kafka client chooses."""


class Written:
    """The records of one transaction, as they are written and confirmed.

    A transactional producer keeps the order of writing in each partition. So the offsets of a partition, in their
    order, are those of its records, and one report can serve all of them.

    Attributes:
        failures: What could not be written: the topic, and the error.
        topics: How many records were written to each topic, in the order of their first ones.
    """

    def __init__(self) -> None:
        self.failures: list[tuple[str, KafkaError]] = []
        self.topics = Counter[str]()
        self._first: Place | None = None
        # In the order of writing; their partitions have no other record.
        self._moves: defaultdict[Place, list[Move[Any]]] = defaultdict(list)
        self._offsets: defaultdict[Place, list[int]] = defaultdict(list)  # of what is confirmed

    def add(self, topic: str, partition: int, move: Move[Any] | None) -> None:
        """Note that the copy of *move* is being written; None: a record that belongs to no move."""
        self.topics[topic] += 1
        self._first = self._first or (topic, partition)
        if move is not None:
            self._moves[topic, partition].append(move)

    def report(self, error: KafkaError | None, record: KafkaMessage) -> None:
        """Take the delivery report of *record*."""
        topic = record.topic() or ""
        failure = failure_of(error, record)
        if failure is not None:
            self.failures.append((topic, failure))
        else:
            self._offsets[topic, record.partition() or 0].append(record.offset() or 0)

    def unconfirmed(self) -> list[str]:
        """Return the topics of which a record is not confirmed."""
        confirmed = Counter[str]()
        for (topic, _), offsets in self._offsets.items():
            confirmed[topic] += len(offsets)
        return [topic for topic, count in self.topics.items() if confirmed[topic] < count]

    def note_places(self) -> None:
        """Note in each move where its copy is, unless the Kafka client chose its partition; all are confirmed."""
        for place, moves in self._moves.items():
            if place[1] != ANY_PARTITION:
                for move, offset in zip(moves, sorted(self._offsets[place]), strict=True):
                    move.place = place[1], offset

    def place_of_first(self) -> TopicPartition | None:
        """Return where the first record is, or another one of its topic, if the Kafka client chose its partition."""
        for (topic, partition), offsets in self._offsets.items():
            if self._first in ((topic, partition), (topic, ANY_PARTITION)):
                return TopicPartition(topic, partition, min(offsets))
        return None
