"""Read a topic without a group: every partition, from the offsets where the consumer was created."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kjms.engine.consumer.delivery import AssignedPartition
from kjms.engine.kafka import ConsumerPort, TopicPartition
from kjms.errors import JMSException
from kjms.txn.metadata import State

if TYPE_CHECKING:
    from kjms.engine.consumer.assignment import Assignment
    from kjms.engine.consumer.overflow import Overflow
    from kjms.engine.consumer.topic_identity import TopicIdentity
    from kjms.mapping.bridges import Decoder

__all__ = ["StandaloneReading"]

_log = logging.getLogger("kjms.consumer")


class StandaloneReading:
    """Assigns the partitions of a topic to a Kafka consumer that is in no group; used by the consumer thread.

    Args:
        starts: The offset from which each partition is read.
        assignment: The partitions that are held.
        overflow: Counts the topic's partitions.
        identities: Knows the topic's id.
        decode: How records are read.
        lock: The lock of the source.
    """

    def __init__(
        self,
        starts: Mapping[int, int],
        assignment: Assignment,
        overflow: Overflow,
        identities: TopicIdentity,
        decode: Decoder,
        lock: threading.RLock,
    ) -> None:
        self._starts = dict(starts)
        self._assignment = assignment
        self._overflow = overflow
        self._identities = identities
        self._decode = decode
        self._lock = lock
        self._look_at = 0.0

    def begin(self) -> None:
        """Learn the topic's id, before anything is read."""
        self._identities.find()
        self._look_at = time.monotonic() + self._overflow.tuning.partition_check_seconds

    def assign(self, consumer: ConsumerPort) -> None:
        """Have *consumer* read all partitions; the caller holds the client's `turn`."""
        assignment, topic = self._assignment, self._assignment.topic
        with self._lock:
            for number, start in self._starts.items():
                if assignment.get(topic, number) is None:  # the others continue where they were
                    state = State(start, start, (), start)
                    identity = self._identities.identity
                    assignment.add(
                        AssignedPartition(topic, number, state, self._decode, is_kept=False, identity=identity)
                    )
            places = [(p.topic, p.number, p.settlement.position) for p in assignment]
        consumer.assign([TopicPartition(*place) for place in places])

    def is_due(self, now: float) -> bool:
        """Return whether it is time, once, to look for partitions that were added."""
        if now < self._look_at:
            return False
        self._look_at = now + self._overflow.tuning.partition_check_seconds
        return True

    def find_added(self) -> bool:
        """Find partitions that were added to the topic, to be read from their start; return whether there are any."""
        try:
            count = self._overflow.source_partitions()
        except JMSException as error:
            _log.debug("%s", error)
            return False
        added = [number for number in range(count) if number not in self._starts]
        self._starts.update(dict.fromkeys(added, 0))
        return bool(added)

    def restart(self) -> None:
        """Read all partitions from their start: all that is in a topic made again came later than the consumer."""
        with self._lock:
            self._starts.clear()
        self.find_added()
