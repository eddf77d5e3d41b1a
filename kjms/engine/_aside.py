"""What a reader needs of its engine beyond Kafka's group: messages that must make way, and copies of settlement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kjms.errors import JMSException

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition

    from kjms.engine._bookkeeping import Bookkeeping
    from kjms.engine._mover import Mover
    from kjms.engine._topics import Topics

__all__ = ["Aside"]

MARGIN: Final = 64 * 1024  # bytes by which a copy may be larger than what it was made of


class Aside:
    """What a reader needs of its engine to move messages, and not to forget what was settled.

    Partition *n* of the aside topic belongs to whoever holds partition *n* of the topic itself: it is restored,
    committed and given up together with that, so that a message that was moved aside has one owner at any time, too.

    Args:
        mover: Makes the moves.
        topics: Knows and makes Kafka topics.
        bookkeeping: Keeps copies of settlement.
        group: The consumer group.
        source: The Kafka topic that messages are moved from.
        topic: The Kafka topic that they are moved to; made when it is first needed.
        engine: The engine's name, as settlement names its writer.
    """

    def __init__(
        self, mover: Mover, topics: Topics, bookkeeping: Bookkeeping, group: str, source: str, topic: str, engine: str
    ) -> None:
        self.mover = mover
        self.topic = topic
        self._bookkeeping = bookkeeping
        self._group = group
        self._created = source in topics.created
        self.engine = engine
        self._topics = topics
        self._source = source
        self._exists = False

    def identity(self, topic: str) -> str:
        """Return Kafka's id of *topic*, ``-`` where it does not say."""
        return self._topics.identity(topic)

    def keep(self, offsets: Iterable[TopicPartition]) -> None:
        """Keep a copy of what was committed."""
        self._bookkeeping.keep(self._group, offsets)

    def recall(self, places: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], tuple[int, str]]:
        """Return the copies of what was committed for *places*, and forgotten by Kafka.

        Raises:
            JMSException: Kafka does not say.
        """
        is_new, self._created = self._created, False  # of a topic that was just made nothing can have been forgotten
        return {} if is_new else self._bookkeeping.recall(self._group, places)

    def exists(self) -> bool:
        """Tell whether something was ever moved aside.

        Raises:
            JMSException: Kafka does not say.
        """
        if not self._exists:
            self._exists = self._topics.look_up(self.topic) > 0
        return self._exists

    def ensure(self) -> None:
        """Make the topic where it is missing.

        Raises:
            JMSException: It cannot be made.
        """
        if self._exists:
            return
        partitions = self._topics.partitions(self._source)
        if not partitions:
            raise JMSException(f"the Kafka topic {self._source!r} is gone")
        self._topics.ensure_internal(self.topic, like=self._source, partitions=partitions, margin=MARGIN)
        self._exists = True
