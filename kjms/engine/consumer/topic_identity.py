"""Notice that a topic was deleted and made again: what is settled of the former one says nothing of the new one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from kjms.errors import JMSException

if TYPE_CHECKING:
    from kjms.destinations import Destination
    from kjms.engine.consumer.assignment import Assignment
    from kjms.engine.consumer.delivery import AssignedPartition
    from kjms.engine.consumer.intake import RecordIntake
    from kjms.engine.consumer.overflow import Overflow

__all__ = ["TopicIdentity"]

_log = logging.getLogger("kjms.consumer")


class TopicIdentity:
    """Knows Kafka's ids of the topics that are read; used by the consumer thread.

    Kafka's client reads on from where it was in the former topic, or from the start, and does not say which.

    Args:
        assignment: The partitions that are held.
        overflow: Asks for the ids.
        intake: Sees what a topic made again explains.
        destination: The destination, for errors.
        identity: The id of the topic when its start offsets were read; ``-``: not known.
        lock: The lock of the source.
        on_error: Receives an error for a topic that was made again.

    Attributes:
        identity: The id of the topic when it was read last.
    """

    def __init__(
        self,
        assignment: Assignment,
        overflow: Overflow,
        intake: RecordIntake,
        destination: Destination,
        identity: str,
        lock: threading.RLock,
        on_error: Callable[[JMSException], None],
    ) -> None:
        self._assignment = assignment
        self._overflow = overflow
        self._intake = intake
        self._destination = destination
        self._lock = lock
        self._on_error = on_error
        self.identity = identity

    def find(self) -> None:
        """Ask for the topic's id, unless it is known."""
        if self.identity == "-":
            self.identity = self._overflow.topics.ids.find(self._assignment.topic)

    def opened(self, partition: AssignedPartition) -> None:
        """Take the topic's id from *partition*, which was restored just now."""
        topic = self._assignment.topic
        if partition.topic == topic and partition.identity != "-":
            if self.identity not in {"-", partition.identity}:  # Kafka's client was the first to notice
                self._made_again(topic, self.identity)
            self.identity = partition.identity

    def give_up_former(self) -> bool:
        """Give up partitions of topics that were deleted and made again; return whether there were any."""
        intake = self._intake
        is_urgent, intake.is_suspicious = intake.is_suspicious, False
        with self._lock:
            partitions = [partition for partition in self._assignment if not partition.is_transfer]
        seen = {t: self._overflow.topics.ids.watch(t, is_urgent=is_urgent) for t in {p.topic for p in partitions}}
        gone = []
        for partition in partitions:
            latest = seen[partition.topic]
            if partition.identity == "-" and not partition.is_kept:
                partition.identity = latest
            elif "-" not in (partition.identity, latest) and partition.identity != latest:
                gone.append(partition)
        if not gone:
            return False
        # Asked once more: an answer that was late, or of a broker that lags behind, must not do that.
        present = {topic: self._overflow.topics.ids.find(topic) for topic in {partition.topic for partition in gone}}
        gone = [partition for partition in gone if present[partition.topic] not in {"-", partition.identity}]
        if not gone:
            return False
        with self._lock:
            for partition in gone:
                partition.is_gone = True
                self._assignment.remove(partition)
        for topic, identity in {partition.topic: partition.identity for partition in gone}.items():
            self._made_again(topic, identity)
        return True

    def _made_again(self, topic: str, former: str) -> None:
        """Report that *topic*, whose id was *former*, was deleted and made again."""
        if topic == self._assignment.topic:
            self.identity = "-"
        self._overflow.topics.forget(topic, former)
        failure = JMSException(
            f"the Kafka topic {topic!r} of {self._destination} was deleted and made again: it is read from its start;"
            " messages of the former topic that were not acknowledged are gone"
        )
        _log.warning("%s", failure)
        self._on_error(failure)
