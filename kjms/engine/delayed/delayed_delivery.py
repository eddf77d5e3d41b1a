"""Deliver the delayed messages of one destination when they are due.

They wait in a Kafka topic of their own (`kjms.mapping.delayed`). A consumer group gives each of its partitions to one
process, and a transactional producer with a name for each partition makes sure of that: a process that begins to serve
a partition opens that producer, which fences the last one. One transaction writes the messages that are due to their
destination, and a note where they waited; so the log, read up to its end when the producer was opened, has what waits.
The offset that the group commits only says from where to read.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kjms.engine.consumer.membership import Membership
from kjms.engine.delayed.moves import ASK_SECONDS, DelayedMoves
from kjms.engine.delayed.rest import Rest, was_made_again
from kjms.engine.delayed.scan import BATCH
from kjms.engine.interrupts import Event
from kjms.engine.kafka import (
    ConsumerPort,
    KafkaError,
    KafkaException,
    KafkaMessage,
    TopicPartition,
    jms_error,
    open_consumer,
)
from kjms.engine.log_reading import UNTIL_END
from kjms.engine.skipped import SkippedRecords
from kjms.engine.statistics import DelayedStatistics
from kjms.engine.threads import start_thread
from kjms.engine.transactions.errors import AbortedError
from kjms.engine.tuning import DEFAULTS, Tuning
from kjms.errors import JMSException
from kjms.mapping.names import delayed_group
from kjms.txn.waiting import NEVER

if TYPE_CHECKING:
    from kjms.engine.admin.topics import Topics
    from kjms.engine.delayed.partition import DelayedPartition

__all__ = ["DelayedDelivery"]

_log = logging.getLogger("kjms.schedule")

TICK_SECONDS: Final = 0.1  # the clock is looked at this often, whatever is due: it may be set
LEAST_SECONDS: Final = 0.001  # librdkafka counts in milliseconds
READ_SECONDS: Final = 0.05  # of reading, between looks at what is due
SCAN_POLL_MS: Final = 5  # between looks whether a scan has more
RETRY_SECONDS: Final = 1.0  # between a failure of the thread and its next life
CLOSE_SECONDS: Final = 5.0  # how long closing waits for a broker that does not answer


class DelayedDelivery:
    """Serves the delayed messages of one destination in a thread of its own.

    Args:
        topic: The destination's Kafka topic.
        consumer_config: Gives librdkafka's settings of a consumer in a group, or in none.
        producer_config: Those of producers.
        topics: Knows Kafka topics.
        share: Says how many messages a partition may hold in memory.
        report: Reports a lasting failure.
        skipped: Counts the records that cannot be read.
        tuning: Its times and limits.
    """

    def __init__(
        self,
        topic: str,
        consumer_config: Callable[[str | None], Mapping[str, Any]],
        producer_config: Mapping[str, Any],
        topics: Topics,
        share: Callable[[], int],
        report: Callable[[JMSException], None],
        skipped: SkippedRecords,
        tuning: Tuning = DEFAULTS,
    ) -> None:
        self._tuning = tuning
        self.topic = topic
        self._config = {**consumer_config(delayed_group(topic)), **UNTIL_END}
        self._topics = topics
        self._share = share
        self._report = report
        self._skipped = skipped
        scan_config = {**consumer_config(None), **UNTIL_END}
        self._moves = DelayedMoves(topic, scan_config, producer_config, topics, report, tuning)
        self.delayed_topic = self._moves.delayed_topic
        self._identity = "-"  # Kafka's id of the topic that is served
        self.rest: Rest | None = None  # once it has ended by itself
        self._busy_at = time.monotonic()  # when something was read, or due, last
        self._partitions: dict[int, DelayedPartition] = {}
        self._membership = Membership()
        self._closing = Event()
        self._thread = start_thread(self._run, f"kjms-schedule-{topic}")

    def __repr__(self) -> str:
        held = sum(len(each.waiting) + len(each.periodic) for each in list(self._partitions.values()))
        return f"<DelayedDelivery {self.topic}: partitions {sorted(self._partitions)}, {held} messages wait>"

    @property
    def partitions(self) -> int:
        """How many partitions it serves."""
        return len(self._partitions)

    @property
    def thread(self) -> threading.Thread:
        """Its thread."""
        return self._thread

    def statistics(self) -> DelayedStatistics:
        """Return what it serves."""
        partitions = [partition for _, partition in sorted(self._partitions.copy().items())]
        waiting = sum(len(partition.waiting) for partition in partitions)
        return DelayedStatistics(
            topic=self.topic,
            partitions=tuple(partition.number for partition in partitions),
            waiting=waiting,
            is_committed=all(partition.committed == partition.committed_offset for partition in partitions),
            is_resting=False,
        )

    def begin_to_close(self) -> None:
        """Have the thread end; other processes take over its partitions."""
        self._closing.set()
        for partition in list(self._partitions.values()):
            partition.producer.close(0)  # it would wait for Kafka

    def close(self) -> None:
        """End the thread; where the broker does not answer, it ends with the answer."""
        self.begin_to_close()
        self._thread.join(CLOSE_SECONDS)

    # The thread.

    def _run(self) -> None:
        while not self._closing.is_set() and self.rest is None:
            try:
                self._serve()
            except Exception as error:  # reported before the thread tries again
                _log.exception("serving %s failed", self.delayed_topic)
                self._report(
                    JMSException(f"delivering the delayed messages of {self.topic!r} failed: {error}", None, error)
                )
                self._closing.wait(RETRY_SECONDS)

    def _serve(self) -> None:
        consumer = open_consumer(self._config)
        self._identity = "-"
        try:
            self._membership.subscribe(
                consumer,
                self.delayed_topic,
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )
            commit = space = 0.0
            while not (self._closing.is_set() or self._was_made_again()):
                self._read(consumer)
                for partition in list(self._partitions.values()):
                    self._serve_partition(consumer, partition)
                now = time.monotonic()
                if now >= commit:
                    self._commit(consumer, self._partitions.values())
                    commit = now + self._tuning.delayed_commit_seconds
                    self.rest = self._rest_found(now)
                    if self.rest is not None:
                        self._delete_settled()
                        break
                if now >= space:
                    self._delete_settled()
                    space = now + self._tuning.delayed_retention_seconds
        finally:
            for partition in self._partitions.values():
                partition.drop()
            self._membership.close(consumer)
            self._partitions.clear()

    def _was_made_again(self) -> bool:
        return was_made_again(self._topics, self.delayed_topic, self._identity, self._report)

    def _rest_found(self, now: float) -> Rest | None:
        """Return how to notice what comes next, if nothing is to be done for a while; None: there is, or may be."""
        partitions = list(self._partitions.values())
        if (
            not partitions
            or now - self._busy_at < self._tuning.delayed_quiet_seconds
            or not all(each.is_quiet for each in partitions)
        ):
            return None
        due = min(partition.next_due for partition in partitions) - self._tuning.delayed_wake_ms
        if due < self._tuning.now_ms() + self._tuning.delayed_wake_ms:
            return None
        try:
            if self._topics.look_up(self.delayed_topic) != len(partitions):
                return None  # other processes have the other partitions
            ends = {partition.number: self._moves.end_of_log(partition.number) for partition in partitions}
        except (JMSException, KafkaException) as error:
            _log.debug("where %s ends is not known: %s", self.delayed_topic, error)
            return None
        is_read = all(partition.position >= ends[partition.number] for partition in partitions)
        return Rest(due, ends, self._identity) if is_read else None

    def _read(self, consumer: ConsumerPort) -> None:
        """Take what has come, all of it if that is done soon: among it may be what is due before all that is known."""
        first = self._membership.poll(consumer, self._poll_seconds())
        if first is None:
            return
        self._arrived(first)
        until = time.monotonic() + READ_SECONDS
        records = consumer.consume(BATCH, 0)
        while records:
            for record in records:
                self._arrived(record)
            is_more = len(records) == BATCH and time.monotonic() < until and not self._membership.has_failed
            records = consumer.consume(BATCH, 0) if is_more else []

    def _poll_seconds(self) -> float:
        """Return how long to wait for records: until a message is due, and never for long."""
        due = NEVER
        now = time.monotonic()
        for partition in self._partitions.values():
            if partition.scan is not None:
                due = 0 if partition.scan.is_busy else min(due, self._tuning.now_ms() + SCAN_POLL_MS)
            if partition.is_served and partition.paused_until <= now:
                due = min(due, partition.next_due)
        seconds = due / 1000 - self._tuning.wall_clock()
        return 0 if seconds <= 0 else max(LEAST_SECONDS, min(TICK_SECONDS, seconds))

    def _arrived(self, record: KafkaMessage) -> None:
        error = record.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            _log.warning("%s", jms_error(error, f"read {self.delayed_topic}"))
            return
        if error is None:
            self._busy_at = time.monotonic()
        partition = self._partitions.get(record.partition() or 0)
        if partition is not None and record.topic() == self.delayed_topic:
            partition.read(record, self._skipped)

    # What is done for a partition.

    def _serve_partition(self, consumer: ConsumerPort, partition: DelayedPartition) -> None:
        partition.waiting.limit = self._share()
        if partition.paused_until > time.monotonic():
            return
        try:
            if not partition.producer.is_open:
                if not partition.has_content:
                    return
                # A process that lost the partition must not fence its new owner.
                self._commit(consumer, [partition], is_awaited=True, is_proof=True)
                self._moves.open(partition)
            self._moves.serve(partition)
        except (AbortedError, JMSException, KafkaException) as error:
            self._moves.failed(partition, error)

    # Where to begin to read.

    def _commit(
        self,
        consumer: ConsumerPort,
        partitions: Iterable[DelayedPartition],
        *,
        is_awaited: bool = False,
        is_proof: bool = False,
    ) -> None:
        """Commit where to begin to read; a failure matters only if the commit is to prove ownership.

        Raises:
            KafkaException: It is another member's, if *is_proof*.
        """
        committed_offsets = {partition: partition.committed_offset for partition in partitions}
        changed = [
            partition
            for partition, committed_offset in committed_offsets.items()
            if is_proof or committed_offset != partition.committed
        ]
        if not changed:
            return
        offsets = [
            TopicPartition(self.delayed_topic, each.number, max(committed_offsets[each], 0), self._identity)
            for each in changed
        ]
        try:
            if not is_awaited:  # whether it arrives does not matter; messages are due meanwhile
                consumer.commit(offsets=offsets, asynchronous=True)
            else:
                for answer in consumer.commit(offsets=offsets, asynchronous=False):
                    if answer.error is not None:
                        raise KafkaException(answer.error)
        except KafkaException as error:
            if is_proof:
                raise
            _log.debug("%s", jms_error(error, f"commit the beginning of {self.delayed_topic}"))
        else:
            for partition in changed:
                partition.committed = committed_offsets[partition]

    def _delete_settled(self) -> None:
        """Delete the records before all that waits."""
        wanted = []
        for partition in self._partitions.values():
            if partition.is_served and partition.committed > partition.deleted:
                partition.deleted = partition.committed
                wanted.append(TopicPartition(self.delayed_topic, partition.number, partition.committed))
        if wanted:  # without waiting: messages are due meanwhile
            self._topics.admin.delete_records(wanted, request_timeout=ASK_SECONDS)

    # The group moves partitions between its members; these run in the thread, inside of a poll.

    def _on_assign(self, consumer: ConsumerPort, partitions: list[TopicPartition]) -> None:
        if self._closing.is_set():
            return
        starts = []
        if self._identity == "-":
            self._identity = self._topics.ids.find(self.delayed_topic)
        for known in consumer.committed(partitions, ASK_SECONDS) if partitions else ():
            if known.error is not None:
                raise KafkaException(known.error)
            start = self._start(consumer, known)
            self._partitions[known.partition] = self._moves.begin(known.partition, start, self._share())
            starts.append(TopicPartition(self.delayed_topic, known.partition, start))
        consumer.incremental_assign(starts)

    def _start(self, consumer: ConsumerPort, known: TopicPartition) -> int:
        place = TopicPartition(self.delayed_topic, known.partition)
        first, _ = consumer.get_watermark_offsets(place, ASK_SECONDS)
        is_known = known.offset >= 0 and known.metadata == self._identity
        return max(int(first), known.offset) if is_known else int(first)

    def _on_revoke(self, consumer: ConsumerPort, partitions: list[TopicPartition]) -> None:
        self._commit(
            consumer, [s for revoked in partitions if (s := self._partitions.get(revoked.partition))], is_awaited=True
        )
        self._on_lost(consumer, partitions)

    def _on_lost(self, consumer: ConsumerPort, partitions: list[TopicPartition]) -> None:
        for lost in partitions:
            partition = self._partitions.pop(lost.partition, None)
            if partition is not None:
                partition.drop()
        consumer.incremental_unassign(partitions)
