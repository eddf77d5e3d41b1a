"""Read transfer partitions: other processes hand messages over in them, and no group assigns them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from kjms.engine.consumer.assignment import start_of
from kjms.engine.consumer.client import COMMIT_SECONDS
from kjms.engine.consumer.delivery import Delivery
from kjms.engine.consumer.fetch_positions import with_copies
from kjms.engine.consumer.offset_committer import TRANSIENT
from kjms.engine.kafka import ConsumerPort, KafkaError, TopicPartition, jms_error, kafka_error, open_consumer
from kjms.engine.log_reading import UNTIL_END
from kjms.engine.settings import NEW_TOPIC

if TYPE_CHECKING:
    from kjms.engine.consumer.assignment import Assignment
    from kjms.engine.consumer.client import ConsumerClient
    from kjms.engine.consumer.delivery import AssignedPartition
    from kjms.engine.consumer.dispatcher import Dispatcher
    from kjms.engine.consumer.fetch_positions import FetchPositions
    from kjms.engine.consumer.membership import Membership
    from kjms.engine.consumer.offset_committer import OffsetCommitter
    from kjms.engine.consumer.overflow import Overflow
    from kjms.engine.consumer.restoration import Recall
    from kjms.txn.states import PartitionSettlement

__all__ = ["TransferReading"]

_log = logging.getLogger("kjms.consumer")

CLOSE_SECONDS: Final = 5.0  # how long closing waits for a broker that does not answer
SHORT_POLL_SECONDS: Final = 0.005


class TransferReading:
    """Opens transfer partitions, and gives them up.

    Locks: `drop` is called with the group consumer's lock; the others are called without it, and wait for the
    client's `turn`.

    Args:
        config: librdkafka's settings of the consumer.
        assignment: The partitions that are held.
        client: Holds the Kafka consumer.
        fetch: What it fetches.
        committer: Commits what is settled of them.
        dispatcher: Where their messages wait.
        overflow: What the engine does for the group consumer.
        lock: The group consumer's lock.
        changed: Its condition: the consumer thread waits for it.
        may_open: Returns whether the consumer is surely a member of its group, and stays.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        assignment: Assignment,
        client: ConsumerClient,
        fetch: FetchPositions,
        committer: OffsetCommitter,
        dispatcher: Dispatcher,
        overflow: Overflow,
        lock: threading.RLock,
        changed: threading.Condition,
        may_open: Callable[[], bool],
    ) -> None:
        self._config = config
        self._assignment = assignment
        self._client = client
        self._fetch = fetch
        self._committer = committer
        self._dispatcher = dispatcher
        self._overflow = overflow
        self._lock = lock
        self._changed = changed
        self._may_open = may_open

    def open(self, topic: str, number: int, is_ours: Callable[[AssignedPartition], bool]) -> None:
        """Read partition *number* of the hand-over *topic*, if that is possible now.

        Args:
            topic: The topic.
            number: The partition.
            is_ours: Asked with the lock, after all waiting, whether it is still to be read; from then on, it is.

        Raises:
            JMSException: The broker does not answer.
            KafkaException: It does not say what was committed.
        """
        begins = {(topic, number): self._overflow.topics.beginning(topic, number)}

        def opened(recall: Recall) -> list[AssignedPartition]:
            with self._client.held(COMMIT_SECONDS):
                consumer = self._client.consumer
                if consumer is None or not self._may_open() or not consumer.memberid():
                    return []
                self._fetch.unassign_left(consumer)  # it may be one of those that are to be given up
                return self._fetch.open(consumer, list(begins), recall, is_ours, begins)

        with_copies(opened, self._overflow.recall)

    def drop(self, partition: AssignedPartition) -> None:
        """Stop reading *partition*; the caller holds the lock."""
        self._fetch.leave(partition)
        self._changed.notify()

    def find_unread(self, topic: str, numbers: Collection[int], known_empty: Mapping[int, int]) -> set[int]:
        """Return which partitions of the hand-over *topic* have something behind what is settled.

        Args:
            topic: The topic.
            numbers: The partitions.
            known_empty: Of some of them: where they ended when there was no message.

        Raises:
            JMSException: The broker does not answer.
            KafkaException: It does not say.
        """
        ends = self._overflow.topics.ends(topic)
        changed = [number for number in numbers if ends.get(number, 0) not in {0, known_empty.get(number)}]
        if not changed:
            return set()
        with self._client.held(COMMIT_SECONDS):
            consumer = self._client.consumer
            if consumer is None:
                return set()
            known = consumer.committed([TopicPartition(topic, number) for number in changed], COMMIT_SECONDS)
        return {place.partition for place in known if place.offset < ends[place.partition]}

    def prepare_release(self, topic: str, number: int) -> int | None:
        """Return where partition *number* of the hand-over *topic* ends if it may be released, else None.

        It may where all in it is settled, and Kafka's dispatch limit is not beyond that.

        Raises:
            JMSException: The broker does not answer.
            KafkaException: It does not say what was committed.
        """
        if not self._take_limit_back(topic, number):
            return None

        def find(recall: Recall) -> list[AssignedPartition]:
            with self._client.held(COMMIT_SECONDS):
                consumer = self._client.consumer
                return [] if consumer is None else self._fetch.restorer.restore(consumer, [(topic, number)], recall)

        restored = with_copies(find, self._overflow.recall)
        if not restored:
            return None
        partition = restored[0]
        reading = open_consumer({**self._config, **UNTIL_END, **NEW_TOPIC})
        try:
            reading.assign([start_of(partition)])
            while True:
                record = reading.poll(COMMIT_SECONDS)
                error = None if record is None else record.error()
                if record is None or (error is not None and error.code() != KafkaError._PARTITION_EOF):
                    return None
                offset = record.offset() or 0
                if error is not None:
                    return offset  # markers of transactions may be all that stands before it
                if partition.settlement.read(offset, Delivery(record, partition, offset, 0)):
                    return None
        finally:
            reading.close()

    def _take_limit_back(self, topic: str, number: int) -> bool:
        """Have Kafka's dispatch limit end where what was dispatched does; return whether it does, with all settled."""
        with self._client.held(COMMIT_SECONDS):
            with self._lock:
                partition = self._assignment.get(topic, number)
                if partition is None or partition.settlement.unsettled:
                    return False
                if not _needs_commit(partition.settlement):
                    return True
            error, _ = self._committer.commit([partition])
            return error is None

    def give_up(self, consumer: ConsumerPort, membership: Membership) -> None:
        """Give up the transfer partitions in order, while Kafka still counts us in."""
        with self._lock:
            held = self._assignment.transfers()
            for partition in held:
                partition.is_held = False
                self._dispatcher.drop(partition)
            partitions = [partition for partition in held if _needs_commit(partition.settlement)]
        deadline = time.monotonic() + CLOSE_SECONDS
        with self._client.turn:
            while partitions:
                error, _ = self._committer.commit(partitions)
                if error is None or kafka_error(error).code() not in TRANSIENT or time.monotonic() > deadline:
                    break
                membership.poll(consumer, SHORT_POLL_SECONDS)  # it rebalances; what comes is read again
        if partitions and error is not None:
            _log.warning("%s", jms_error(error, f"acknowledge messages of {self._assignment.name}"))
        with self._lock:
            for partition in held:
                self.drop(partition)
        with self._client.turn:
            self._fetch.unassign_left(consumer)


def _needs_commit(settlement: PartitionSettlement[Delivery]) -> bool:
    """Return whether Kafka's state of a partition says less than is known, or more than was dispatched.

    Others may still write to it. Its next holder would take what they write for possibly delivered, up to the dispatch
    limit in Kafka.
    """
    return bool(settlement.unsettled) or settlement.is_dirty or settlement.has_window
