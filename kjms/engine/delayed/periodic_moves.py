"""Accepts definitions of periodic messages, and sends these messages when their times come.

Each step is one transaction of the partition's producer, with a note of what was done: so a message is sent if and only
if the log says so, and the next owner continues from there.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kjms.engine.delayed.partition import DelayedPartition
from kjms.engine.delayed.periodic import Defined, Ticks
from kjms.engine.kafka import KafkaMessage
from kjms.engine.transactions.errors import AbortedError
from kjms.engine.transactions.plan import Copy
from kjms.engine.tuning import Tuning
from kjms.errors import JMSException
from kjms.mapping import ANY_PARTITION, KafkaRecord
from kjms.mapping.delayed import CANCELLED, MOVED_ON, REWRITTEN, Progress, copied, noted
from kjms.mapping.names import delayed
from kjms.mapping.periodic import defined, ticked
from kjms.txn.cron import NEVER

if TYPE_CHECKING:
    from kjms.engine.admin.topics import Topics

__all__ = ["PeriodicMoves"]

_log = logging.getLogger("kjms.schedule")

BEHIND: Final = 1_000  # records after a definition before it is written anew; a new owner has to read them
POSTPONED_MS: Final = 30_000  # until a message that its destination finds too large is tried again


class PeriodicMoves:
    """Serves the definitions in the partitions of one destination's delayed messages; used by one thread.

    Args:
        topic: The destination's Kafka topic.
        topics: Knows Kafka topics.
        end_of_log: Returns where a partition of the delayed messages ends.
        warn: Reports a lasting failure.
        tuning: Its times and limits.
    """

    def __init__(
        self,
        topic: str,
        topics: Topics,
        end_of_log: Callable[[int], int],
        warn: Callable[[JMSException], None],
        tuning: Tuning,
    ) -> None:
        self._topic = topic
        self._delayed_topic = delayed(topic)
        self._topics = topics
        self._end_of_log = end_of_log
        self._warn = warn
        self._tuning = tuning
        self._rewritten_at = 0.0

    def serve(self, partition: DelayedPartition) -> None:
        """Send what is due, then accept and refuse new definitions, then see to the log.

        Raises:
            AbortedError, JMSException, KafkaException: Kafka does not let us.
        """
        if not len(partition.periodic):
            return
        now = self._tuning.now_ms()
        if partition.periodic.next_due <= now:
            self._send(partition, partition.periodic.due(now), now)
            self._judge(partition, now)
        self._rewrite(partition)

    def _send(self, partition: DelayedPartition, ticks: Sequence[Ticks[KafkaMessage]], now: int) -> None:
        if not ticks:
            return
        copies = [self._copy(each.defined, scheduled, now) for each in ticks for scheduled in each.times]
        progress = [each.progress for each in ticks]
        try:
            partition.write([self._note(partition, MOVED_ON, progress)], copies)
        except AbortedError as error:
            if not error.is_too_large:
                raise
            self._send_singly(partition, ticks, now, error)
        else:
            partition.periodic.advance(progress)

    def _send_singly(
        self, partition: DelayedPartition, ticks: Sequence[Ticks[KafkaMessage]], now: int, error: AbortedError
    ) -> None:
        """Send each message that is not too large; what is too large alone is tried again later."""
        first = ticks[0]
        if len(ticks) > 1 or len(first.times) > 1:
            for each in ticks:
                for scheduled, after in zip(each.times, [*each.times[1:], each.progress.next], strict=True):
                    progress = Progress(each.defined.offset, after, scheduled)
                    self._send(partition, [Ticks(each.defined, [scheduled], progress)], now)
                    if each.defined.postponed > now:
                        break
            return
        partition.periodic.postpone(first.defined.offset, now + POSTPONED_MS)
        self._warn(error.cause)

    def _copy(self, each: Defined[KafkaMessage], scheduled: int, now: int) -> Copy:
        message = ticked(each.message, each.definition, scheduled, now)
        partitions = self._topics.partitions(self._topic)
        if message.key is not None or not partitions:
            return Copy(self._topic, ANY_PARTITION, message)
        # Those of one definition stay in order.
        return Copy(self._topic, zlib.crc32(each.definition.name.encode()) % partitions, message)

    def _judge(self, partition: DelayedPartition, now: int) -> None:
        if partition.periodic.is_settled:
            return
        ended, accepted = partition.periodic.judge(now)
        notes = [self._note(partition, MOVED_ON, accepted)] if accepted else []
        if ended:
            notes.append(self._note(partition, CANCELLED, ended))
        partition.write(notes)
        partition.periodic.advance(accepted)
        partition.settle(ended)

    def _rewrite(self, partition: DelayedPartition) -> None:
        """Copy the definitions to the end of the log where much stands behind the first of them."""
        periodic = partition.periodic
        if (
            partition.position - periodic.first_offset <= BEHIND
            or time.monotonic() < self._rewritten_at + self._tuning.delayed_quiet_seconds
            or partition.waiting.committed_offset(partition.position) < periodic.first_offset
        ):
            return
        self._rewritten_at = time.monotonic()
        self._write_all_anew(partition, [each for each in periodic if each.is_accepted])

    def restore(self, partition: DelayedPartition, offsets: Container[int]) -> None:
        """Write the definitions at *offsets* anew that are accepted: what another program says of them is not so.

        Raises:
            AbortedError, JMSException, KafkaException: Kafka does not let us.
        """
        chosen = [each for each in partition.periodic if each.is_accepted and each.offset in offsets]
        if chosen:
            self._write_all_anew(partition, chosen)

    def _write_all_anew(self, partition: DelayedPartition, chosen: Sequence[Defined[KafkaMessage]]) -> None:
        try:
            self._write_anew(partition, chosen)
        except AbortedError as error:
            if not error.is_too_large:
                raise
            for each in chosen:  # a copy is larger than what was sent: what does not fit stays where it is
                try:
                    self._write_anew(partition, [each])
                except AbortedError as failure:
                    if not failure.is_too_large:
                        raise

    def _write_anew(self, partition: DelayedPartition, chosen: Sequence[Defined[KafkaMessage]]) -> None:
        copies = [Copy(self._delayed_topic, partition.number, _rewritten(each)) for each in chosen]
        offsets = [each.offset for each in chosen]
        partition.write([self._note(partition, REWRITTEN, offsets)], copies)
        partition.settle(offsets)
        # Before the copies were read, their names would seem to be free.
        try:
            partition.log_end = max(partition.log_end, self._end_of_log(partition.number))
        except BaseException:
            partition.producer.drop()  # when it is opened again, the log is read up to its end
            raise

    def _note(self, partition: DelayedPartition, kind: str, said: Sequence[int | Progress]) -> Copy:
        return Copy(self._delayed_topic, partition.number, noted(kind, said))


def _rewritten(each: Defined[KafkaMessage]) -> KafkaRecord:
    definition = replace(each.definition, next=NEVER if each.next is None else each.next, last=each.last)
    return defined(copied(each.message), definition)
