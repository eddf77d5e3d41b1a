"""Publishes deletions of temporary destinations in an inbox, and deletes records that need not be read again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from kjms.engine.delivery_reports import failure_of
from kjms.engine.tuning import Tuning
from kjms.errors import JMSException
from kjms.mapping.temporary import DELETIONS, MESSAGES, Numbers, deletion

if TYPE_CHECKING:
    from kjms.engine.admin.topics import Topics
    from kjms.engine.kafka import KafkaError, KafkaMessage
    from kjms.engine.publisher import Publisher
    from kjms.engine.temporary.inbox_source import InboxSource

__all__ = ["InboxRetention"]

_log = logging.getLogger("kjms.inbox")


class InboxRetention:
    """The deletions in one inbox, and its beginning.

    Args:
        topic: The inbox's Kafka topic.
        publisher: Writes deletions.
        topics: Deletes records.
        tuning: Its times and limits.

    Attributes:
        deletions: Since they were last summed up.
        freed: The offset before which records were deleted.
    """

    def __init__(self, topic: str, publisher: Publisher, topics: Topics, tuning: Tuning) -> None:
        self._topic = topic
        self._publisher = publisher
        self._topics = topics
        self._tuning = tuning
        self._lock = threading.Lock()
        self._deleted = Numbers()
        self.deletions = 0
        self.freed = 0
        self._cleaned_at = time.monotonic()

    def delete(self, numbers: Iterable[int], *, wait: bool = True) -> None:
        """Publish to all programs that the temporary destinations *numbers* are deleted.

        Raises:
            JMSException: Kafka did not take it.
        """
        gone = Numbers()
        for number in numbers:
            gone.add(number)
        with self._lock:
            self._deleted.add_all(gone)
            self.deletions += 1
        if wait:
            self._publisher.send_and_wait(self._topic, DELETIONS, deletion(gone))
        else:
            self._publisher.send(self._topic, DELETIONS, deletion(gone), _log_failure)

    def clean(self, now: float, positions: Mapping[int, int], sources: Callable[[], Iterable[InboxSource]]) -> None:
        """Delete, from time to time, records that need not be read again, and sum up the deletions.

        Args:
            now: The time.
            positions: Up to where each partition was read.
            sources: Returns all sources; they may have missed records.
        """
        if now - self._cleaned_at <= self._tuning.inbox_retention_seconds:
            return
        self._cleaned_at = now
        read = positions[MESSAGES]
        gaps = [source.gaps() for source in sources()]
        oldest = min([read, *(gap[MESSAGES][0] for gap in gaps if MESSAGES in gap)])
        wanted: dict[int, int] = {}
        if oldest - self.freed >= self._tuning.inbox_retention_records:
            wanted[MESSAGES] = self.freed = oldest
        with self._lock:
            counted, summary = self.deletions, deletion(self._deleted)
        try:
            if counted >= self._tuning.inbox_retention_records and not any(DELETIONS in gap for gap in gaps):
                before = positions[DELETIONS]
                self._publisher.send_and_wait(self._topic, DELETIONS, summary)
                wanted[DELETIONS] = before
                with self._lock:
                    self.deletions -= counted  # others may have come since
            if wanted:
                self._topics.delete_records(self._topic, wanted)
        except JMSException as failure:  # tried again the next time
            _log.info("%s", failure)


def _log_failure(error: KafkaError | None, record: KafkaMessage) -> None:
    error = failure_of(error, record)
    if error is not None:
        _log.warning("other programs do not know that a temporary destination is deleted: %s", error)
