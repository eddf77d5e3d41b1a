"""Moves the messages of a delayed partition that are due to their destination, and settles them where they waited."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kjms.engine.delayed.partition import PAUSE_SECONDS, DelayedPartition, PartitionProducer
from kjms.engine.delayed.periodic_moves import PeriodicMoves
from kjms.engine.delayed.scan import BATCH
from kjms.engine.kafka import IsolationLevel, KafkaException, KafkaMessage, OffsetSpec, TopicPartition, jms_error
from kjms.engine.transactions.errors import AbortedError, UnknownError
from kjms.engine.transactions.plan import Copy
from kjms.engine.tuning import Tuning
from kjms.errors import JMSException
from kjms.mapping.delayed import CANCELLED, DELAYED, MOVED_ON, REWRITTEN, copied, early, noted
from kjms.mapping.names import delayed, delayed_transactional_id

if TYPE_CHECKING:
    from kjms.engine.admin.topics import Topics

__all__ = ["ASK_SECONDS", "DelayedMoves"]

_log = logging.getLogger("kjms.schedule")

ASK_SECONDS: Final = 10.0  # how long Kafka may take to answer
LONGEST_PAUSE: Final = 2.0
POSTPONED_MS: Final = 30_000  # until a message that its destination finds too large is tried again


class DelayedMoves:
    """Serves the partitions of one destination's delayed messages; used by one thread.

    Args:
        topic: The destination's Kafka topic.
        scan_config: librdkafka's settings of a consumer in no group.
        producer_config: Those of producers.
        topics: Knows Kafka topics.
        report: Reports a lasting failure.
        tuning: Its times and limits.
    """

    def __init__(
        self,
        topic: str,
        scan_config: Mapping[str, Any],
        producer_config: Mapping[str, Any],
        topics: Topics,
        report: Callable[[JMSException], None],
        tuning: Tuning,
    ) -> None:
        self.topic = topic
        self.delayed_topic = delayed(topic)
        self._scan_config = scan_config
        self._producer_config = producer_config
        self._topics = topics
        self._report = report
        self._last_reported = ""
        self._tuning = tuning
        self._periodic = PeriodicMoves(topic, topics, self.end_of_log, self._warn, tuning)

    def begin(self, number: int, start: int, limit: int) -> DelayedPartition:
        """Return partition *number*, to be read from *start* on, with at most *limit* messages in memory."""
        name = delayed_transactional_id(self.topic, number)
        partition = DelayedPartition(number, start, PartitionProducer(self._producer_config, name, self._tuning), limit)
        if self.end_of_log(number) > start:
            self.open(partition)  # before it is read: what the last owner left open would be in the way
        return partition

    def serve(self, partition: DelayedPartition) -> None:
        """Move what is due, cancel, and see to the log.

        Raises:
            AbortedError, JMSException, KafkaException: Kafka does not let us.
        """
        if partition.is_served:
            partition.waiting.caught_up()
        steps = (
            self._restore,
            self._cancel,
            self._advance,
            self._periodic.serve,
            self._move,
            self._rewrite,
            self._scan,
        )
        for step in steps:
            if partition.is_served:  # the last step's transaction may have been the producer's last
                step(partition)
        partition.pause = PAUSE_SECONDS
        partition.paused_until = 0.0

    def open(self, partition: DelayedPartition) -> None:
        """Fence the producers of the partition's last owners, and remember where the log ends then.

        Raises:
            KafkaException: The broker does not answer.
        """
        partition.open()
        try:
            partition.log_end = self.end_of_log(partition.number)
        except BaseException:
            partition.producer.drop()  # what others moved has not been read
            raise

    def end_of_log(self, number: int) -> int:
        """Return where the log ends, what is in open transactions included."""
        self._topics.refresh(self.delayed_topic)  # after a change of leaders librdkafka would keep asking the old one
        asked = {TopicPartition(self.delayed_topic, number): OffsetSpec.latest()}
        answers = self._topics.admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=ASK_SECONDS
        )
        return int(next(iter(answers.values())).result().offset)

    def _cancel(self, partition: DelayedPartition) -> None:
        waiting, periodic = partition.waiting, partition.periodic
        wanted = [
            offset for offset in partition.requests.cancellations if waiting.may_hold(offset) or offset in periodic
        ]
        if wanted:
            partition.write([self._note(partition, CANCELLED, wanted)])
            partition.settle(wanted)
        partition.requests.cancellations.clear()

    def _advance(self, partition: DelayedPartition) -> None:
        """Make due what is to be delivered before its time; what has no room in memory is when it is due."""
        for offset in partition.requests.deliveries:
            if partition.waiting.message(offset) is not None:
                partition.waiting.postpone(offset, self._tuning.now_ms())
                partition.requests.early.add(offset)
        partition.requests.deliveries.clear()

    def _move(self, partition: DelayedPartition) -> None:
        now = self._tuning.now_ms()
        due = partition.waiting.take(now, 1 if partition.singly else BATCH)
        if not due:
            return
        partition.singly = max(partition.singly - 1, 0)
        offsets = [offset for offset, _ in due]
        copies = [self._copy(partition, offset, record) for offset, record in due]
        try:
            partition.write([self._note(partition, MOVED_ON, offsets)], copies)
        except AbortedError as error:
            self._put_back(partition, offsets)
            if not error.is_too_large:
                raise
            self._shrink(partition, offsets, error)
        except BaseException:
            self._put_back(partition, offsets)
            raise
        else:
            partition.settle(offsets)
            partition.lean.difference_update(offsets)

    def _copy(self, partition: DelayedPartition, offset: int, record: KafkaMessage) -> Copy:
        copy = copied(record)
        if offset in partition.requests.early:
            copy = early(copy, self._tuning.now_ms())
        if offset in partition.lean:
            copy = copy._replace(headers=[header for header in copy.headers if header[0] != DELAYED])
        is_anywhere = copy.key is not None or partition.number >= self._topics.partitions(self.topic)
        return Copy(self.topic, -1 if is_anywhere else partition.number, copy)

    def _shrink(self, partition: DelayedPartition, offsets: list[int], error: AbortedError) -> None:
        """Move messages that were too large singly, then without optional headers, then later."""
        if len(offsets) > 1:
            partition.singly = len(offsets)
        elif offsets[0] not in partition.lean:
            partition.lean.add(offsets[0])
            partition.singly += 1
        else:
            partition.waiting.postpone(offsets[0], self._tuning.now_ms() + POSTPONED_MS)
            self._warn(error.cause)

    def _put_back(self, partition: DelayedPartition, offsets: Iterable[int]) -> None:
        for offset in offsets:
            partition.waiting.put_back(offset)

    def _rewrite(self, partition: DelayedPartition) -> None:
        """Copy the oldest messages to the end of the log, where much between was settled."""
        waiting = partition.waiting
        if (
            waiting.forgotten
            or partition.position - waiting.committed_offset(partition.position)
            <= 2 * len(waiting) + self._tuning.delayed_slack
        ):
            return
        soon = self._tuning.now_ms() + self._tuning.delayed_far_ms
        chosen = [(offset, record) for offset, due, record in waiting.oldest(BATCH) if due > soon]
        if chosen and waiting.next_due > soon - self._tuning.delayed_far_ms:
            self._write_anew(partition, chosen)

    def _write_anew(self, partition: DelayedPartition, chosen: Sequence[tuple[int, KafkaMessage]]) -> None:
        offsets = [offset for offset, _ in chosen]
        copies = [Copy(self.delayed_topic, partition.number, copied(record)) for _, record in chosen]
        partition.write([self._note(partition, REWRITTEN, offsets)], copies)
        partition.settle(offsets)

    def _restore(self, partition: DelayedPartition) -> None:
        """Write messages anew that another program says are settled: the next owner of the partition believes it.

        That the transaction comes through shows that this process is the owner, and so the only one to say that.
        """
        while partition.disputed:
            note = partition.disputed[0]
            named = [*note.offsets, *(progress.offset for progress in note.progress)]
            self._periodic.restore(partition, {*named})
            held = {offset: record for offset in named if (record := partition.waiting.message(offset)) is not None}
            for first in range(0, len(held), BATCH):
                chosen = [*held.items()][first : first + BATCH]
                try:
                    self._write_anew(partition, chosen)
                except AbortedError as error:
                    if not error.is_too_large:
                        raise
                    self._restore_singly(partition, chosen)
            partition.disputed.pop(0)

    def _restore_singly(self, partition: DelayedPartition, chosen: Sequence[tuple[int, KafkaMessage]]) -> None:
        for each in chosen:  # a copy is larger than what was sent: what does not fit stays where it is
            try:
                self._write_anew(partition, [each])
            except AbortedError as error:
                if not error.is_too_large:
                    raise

    def _note(self, partition: DelayedPartition, kind: str, offsets: Sequence[int]) -> Copy:
        return Copy(self.delayed_topic, partition.number, noted(kind, offsets))

    def _scan(self, partition: DelayedPartition) -> None:
        """Read the log again where memory has room for what it had no room for."""
        waiting = partition.waiting
        if partition.scan is None:
            if waiting.is_short:
                partition.scan_again(self._scan_config, self.delayed_topic)
            return
        partition.scan.step()
        if partition.scan.position >= partition.position:
            for offset in partition.scan_settled:
                partition.scan.settle(offset)
            waiting.take_in(partition.scan.found)
            partition.scan.close()
            partition.scan = None

    def failed(self, partition: DelayedPartition, error: AbortedError | JMSException | KafkaException) -> None:
        """Pause the partition after *error*, and report it."""
        partition.paused_until = time.monotonic() + partition.pause
        partition.pause = min(2 * partition.pause, LONGEST_PAUSE)
        if isinstance(error, AbortedError):
            self._warn(error.cause, is_lasting=not error.is_passing)
        elif isinstance(error, KafkaException):
            partition.producer.drop()
            self._warn(
                jms_error(error, f"serve partition {partition.number} of {self.delayed_topic}"), is_lasting=False
            )
        else:
            self._warn(error, is_lasting=not isinstance(error, UnknownError))

    def _warn(self, failure: JMSException, *, is_lasting: bool = True) -> None:
        text = f"delayed messages of {self.topic!r} are late: {failure}"
        (_log.warning if is_lasting else _log.info)("%s", text)
        if is_lasting and text != self._last_reported:  # once for each reason
            self._last_reported = text
            self._report(JMSException(text, failure.error_code, failure))
