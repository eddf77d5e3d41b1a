"""What a group consumer needs of its engine beyond Kafka's group: the overflow topic, and copies of settlement."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kjms.engine.kafka import KafkaException, jms_error
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
FIRST_TRANSFER_PARTITIONS: Final = 4  # of a new handover topic; it gets more when more processes need one
# Interest of a minute ago does not matter any more. One clock, the broker's, says how old a record is.
INTEREST_CONFIG: Final = {
    "retention.ms": "3600000",
    "retention.bytes": "67108864",
    "segment.ms": "3600000",
    "segment.bytes": "16777216",
    "message.timestamp.type": "LogAppendTime",
}


class Overflow:
    """What a group consumer needs of its engine to relocate messages, and to keep what was settled.

    Partition *n* of the overflow topic belongs to the process that holds partition *n* of the topic itself: it is
    restored, committed and given up together with that, so that a relocated message has one owner at any time, too.

    Args:
        relocator: Relocates messages.
        sync_relocator: Relocates those that cannot wait.
        topics: Knows and makes Kafka topics.
        bookkeeping: Keeps copies of settlement.
        redelivery_log: Records, for people, what happened to messages.
        group: The consumer group.
        source: The Kafka topic that messages are relocated from.
        engine: The engine's name, as settlement names its writer.
        tuning: The times and limits of group consumers.

    Attributes:
        topic: The overflow topic; created when it is first needed.
        handover: The topic through which the group's processes hand messages to each other, likewise.
        interest: The topic in which they publish their interest, likewise.
        topics: Knows and makes Kafka topics.
    """

    def __init__(
        self,
        relocator: Relocator,
        sync_relocator: SyncRelocator,
        topics: Topics,
        bookkeeping: Bookkeeping,
        redelivery_log: RedeliveryLog,
        group: str,
        source: str,
        engine: str,
        tuning: Tuning = DEFAULTS,
    ) -> None:
        self.tuning = tuning
        self.relocator = relocator
        self.sync_relocator = sync_relocator
        self.redelivery_log = redelivery_log
        self.topic = overflow(source, group)
        self.handover = handover(source, group)
        self.interest = interest(source, group)
        self.group = group
        self._bookkeeping = bookkeeping
        self.engine = engine
        self.topics = topics
        self._source = source

    def keep(self, offsets: Iterable[TopicPartition]) -> None:
        """Keep a copy of what was committed."""
        self._bookkeeping.keep(self.group, offsets)

    def recall(self, places: Sequence[Place]) -> Mapping[Place, tuple[int, str] | None]:
        """Return the copies of what was committed for *places*, and deleted by Kafka; None where there is none.

        That reads a log, so the caller must not hold the group's client.

        Raises:
            JMSException: The broker did not answer, or refused.
        """
        return {**dict.fromkeys(places), **self._bookkeeping.recall(self.group, places)}

    def is_new(self) -> bool:
        """Tell, once, whether this process has just made the source: nothing of it can have been forgotten."""
        is_new = self._source in self.topics.created
        self.topics.created.discard(self._source)
        return is_new

    def end_transactions(self, places: Iterable[TopicPartition]) -> None:
        """End the open transactions of the engines that committed last for *places*.

        Raises:
            KafkaException: The broker refused it.
        """
        writers = {owner(known.metadata)[1] for known in self.topics.committed(self.group, places)}
        for engine in writers - {self.engine, "-", ""}:
            _log.warning("%s: a transaction that another process left open is ended", self.group)
            self.relocator.fence(transactional_ids(engine))

    def source_partitions(self) -> int:
        """Return how many partitions the topic itself has now.

        Raises:
            JMSException: The broker did not answer, or refused.
        """
        return self.topics.look_up(self._source)

    def partitions(self) -> int:
        """Return how many partitions the overflow topic has now; 0: it was not created yet.

        Raises:
            JMSException: The broker did not answer, or refused.
        """
        return self.topics.look_up(self.topic)

    def ensure(self, number: int) -> None:
        """Make the topic, or its partition *number*, where it is missing.

        Raises:
            JMSException: It cannot be made.
        """
        there = self.partitions()
        if number < there:
            return
        wanted = self.topics.look_up(self._source)
        if number >= wanted:
            raise JMSException(f"the Kafka topic {self._source!r} has no partition {number} any more")
        if there:
            self.topics.grow(self.topic, wanted)
        else:
            self.topics.ensure_internal(self.topic, like=self._source, partitions=wanted, margin=MARGIN)

    def topic_partitions(self, topic: str) -> int:
        """Return how many partitions *topic* has now; 0 where there is no such topic.

        Raises:
            JMSException: The broker did not answer, or refused.
        """
        return self.topics.look_up(topic)

    def expected_partitions(self, topic: str) -> int:
        """Return how many partitions *topic* had when it was seen last, about a second ago."""
        return self.topics.expected.partitions(topic)

    def grow(self, topic: str, partitions: int) -> None:
        """Give *topic* more partitions.

        Raises:
            JMSException: The broker refuses the request.
        """
        self.topics.grow(topic, partitions)

    def members(self) -> int:
        """Return how many members the group has now.

        Raises:
            JMSException: The broker did not answer, or refused.
        """
        answers = self.topics.coordinators.ask(
            lambda admin, timeout: admin.describe_consumer_groups([self.group], request_timeout=timeout)
        )
        try:
            return len(answers[self.group].result().members)
        except KafkaException as error:
            raise jms_error(error, f"describe group {self.group!r}", to="Describe", group=self.group) from error

    def ensure_handover(self) -> None:
        """Make the topics through which processes hand messages to each other, where they are missing.

        Raises:
            JMSException: They cannot be made.
        """
        self.ensure(self.source_partitions() - 1)  # messages that peers send back arrive there
        self.topics.ensure_internal(self.interest, like=self._source, partitions=1, config=INTEREST_CONFIG)
        self.topics.ensure_internal(
            self.handover, like=self._source, partitions=FIRST_TRANSFER_PARTITIONS, margin=MARGIN
        )
