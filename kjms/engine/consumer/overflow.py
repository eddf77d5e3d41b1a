"""What a reader needs of its engine beyond Kafka's group: messages that must make way, and copies of settlement."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kjms.engine.tuning import DEFAULTS, Tuning
from kjms.errors import JMSException
from kjms.mapping.names import handover, interest, overflow, transactional_ids
from kjms.txn.metadata import owner

if TYPE_CHECKING:
    from kjms.engine.admin.bookkeeping import Bookkeeping
    from kjms.engine.admin.topics import Topics
    from kjms.engine.kafka import TopicPartition
    from kjms.engine.log_reading import Place
    from kjms.engine.transactions.redelivery_log import RedeliveryLog
    from kjms.engine.transactions.relocator import Relocator
    from kjms.engine.transactions.sync_relocator import SyncRelocator

__all__ = ["Overflow"]

_log = logging.getLogger("kjms.settlement")

MARGIN: Final = 64 * 1024  # bytes by which a copy may be larger than what it was made of
FIRST_BOXES: Final = 4  # partitions of a new hand-over topic; it gets more when more processes need one
# What was said a minute ago does not matter any more. One clock, the broker's, says how long ago it was.
INTEREST_CONFIG: Final = {
    "retention.ms": "3600000",
    "retention.bytes": "67108864",
    "segment.ms": "3600000",
    "segment.bytes": "16777216",
    "message.timestamp.type": "LogAppendTime",
}


class Overflow:
    """What a reader needs of its engine to move messages, and not to forget what was settled.

    Partition *n* of the aside topic belongs to whoever holds partition *n* of the topic itself: it is restored,
    committed and given up together with that, so that a message that was moved aside has one owner at any time, too.

    Args:
        mover: Makes the moves.
        rescuer: Makes those that cannot wait.
        topics: Knows and makes Kafka topics.
        bookkeeping: Keeps copies of settlement.
        journal: Keeps, for people, what befell messages.
        group: The consumer group.
        source: The Kafka topic that messages are moved from.
        engine: The engine's name, as settlement names its writer.
        tuning: The times and limits of readers.

    Attributes:
        topic: The Kafka topic for messages that make way; made when it is first needed.
        handover: The one through which the group's processes hand messages to each other, likewise.
        interest: The one in which they say what they want, likewise.
    """

    def __init__(
        self,
        mover: Relocator,
        rescuer: SyncRelocator,
        topics: Topics,
        bookkeeping: Bookkeeping,
        journal: RedeliveryLog,
        group: str,
        source: str,
        engine: str,
        tuning: Tuning = DEFAULTS,
    ) -> None:
        self.tuning = tuning
        self.mover = mover
        self.rescuer = rescuer
        self.journal = journal
        self.topic = overflow(source, group)
        self.handover = handover(source, group)
        self.interest = interest(source, group)
        self.group = group
        self._bookkeeping = bookkeeping
        self.engine = engine
        self._topics = topics
        self._source = source

    def identity(self, topic: str) -> str:
        """Ask for Kafka's id of *topic*; return ``-`` where it does not say."""
        return self._topics.ids.find(topic)

    def last_identity(self, topic: str, *, is_urgent: bool = False) -> str:
        """Return Kafka's id of *topic* as it was seen last, and see to it, without waiting, that it is looked at."""
        return self._topics.ids.watch(topic, is_urgent=is_urgent)

    def forget(self, topic: str, identity: str) -> None:
        """Forget the topic that had the id *identity*: it was deleted, and another one is called *topic* now."""
        self._topics.forget(topic, identity)

    def keep(self, offsets: Iterable[TopicPartition]) -> None:
        """Keep a copy of what was committed."""
        self._bookkeeping.keep(self.group, offsets)

    def recall(self, places: Sequence[Place]) -> Mapping[Place, tuple[int, str] | None]:
        """Return the copies of what was committed for *places*, and forgotten by Kafka; None where there is none.

        That reads a log, so the caller must not hold the reader's client.

        Raises:
            JMSException: Kafka does not say.
        """
        return {**dict.fromkeys(places), **self._bookkeeping.recall(self.group, places)}

    def is_new(self) -> bool:
        """Tell, once, whether this process has just made the source: nothing of it can have been forgotten."""
        is_new = self._source in self._topics.created
        self._topics.created.discard(self._source)
        return is_new

    def end_transactions(self, places: Iterable[TopicPartition]) -> None:
        """End the transactions of those who committed last for *places*.

        Raises:
            KafkaException: Kafka does not let us.
        """
        writers = {owner(known.metadata)[1] for known in self._topics.committed(self.group, places)}
        for engine in writers - {self.engine, "-", ""}:
            _log.warning("%s: a transaction that another process left open is ended", self.group)
            self.mover.fence(transactional_ids(engine))

    def source_partitions(self) -> int:
        """Return how many partitions the topic itself has now.

        Raises:
            JMSException: Kafka does not say.
        """
        return self._topics.look_up(self._source)

    def partitions(self) -> int:
        """Return how many partitions what was moved aside has now; 0 where nothing ever was.

        Raises:
            JMSException: Kafka does not say.
        """
        return self._topics.look_up(self.topic)

    def ensure(self, number: int) -> None:
        """Make the topic, or its partition *number*, where it is missing.

        Raises:
            JMSException: It cannot be made.
        """
        there = self.partitions()
        if number < there:
            return
        wanted = self._topics.look_up(self._source)
        if number >= wanted:
            raise JMSException(f"the Kafka topic {self._source!r} has no partition {number} any more")
        if there:
            self._topics.grow(self.topic, wanted)
        else:
            self._topics.ensure_internal(self.topic, like=self._source, partitions=wanted, margin=MARGIN)

    def topic_partitions(self, topic: str) -> int:
        """Return how many partitions *topic* has now; 0 where there is no such topic.

        Raises:
            JMSException: Kafka does not say.
        """
        return self._topics.look_up(topic)

    def beginning(self, topic: str, number: int) -> int:
        """Return where partition *number* of *topic* begins; wait for the leader of a topic that was just made.

        Raises:
            JMSException: Kafka does not say.
        """
        return self._topics.beginning(topic, number)

    def ends(self, topic: str) -> Mapping[int, int]:
        """Return where each partition of *topic* ends for readers of committed records.

        Raises:
            JMSException: Kafka does not say.
        """
        return self._topics.ends(topic)

    def grow(self, topic: str, partitions: int) -> None:
        """Give *topic* more partitions.

        Raises:
            JMSException: Kafka refuses.
        """
        self._topics.grow(topic, partitions)

    def ensure_handover(self) -> None:
        """Make the topics through which processes hand messages to each other, where they are missing.

        Raises:
            JMSException: They cannot be made.
        """
        self.ensure(self.source_partitions() - 1)  # what is sent back arrives there
        self._topics.ensure_internal(self.interest, like=self._source, partitions=1, config=INTEREST_CONFIG)
        self._topics.ensure_internal(self.handover, like=self._source, partitions=FIRST_BOXES, margin=MARGIN)
