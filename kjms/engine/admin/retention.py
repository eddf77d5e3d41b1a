"""Delete settled records of queues, from the front of each partition.

Kafka keeps what is in a queue until it is deleted. Records before the offset that the queue's group has committed are
settled for good. They are deleted when they are old enough, no other group that commits offsets still needs them, and
kjms made the topic, or the options say so.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kjms.engine.interrupts import Event
from kjms.engine.kafka import IsolationLevel, KafkaException, OffsetSpec, TopicPartition, jms_error
from kjms.engine.outage import level_of
from kjms.engine.threads import start_thread
from kjms.engine.tuning import DEFAULTS, Tuning
from kjms.errors import JMSException

if TYPE_CHECKING:
    from kjms.engine.admin.bookkeeping import Bookkeeping
    from kjms.engine.admin.topics import Topics
    from kjms.engine.consumer.kafka_source import KafkaSource
    from kjms.engine.outage import CloseTimeout

__all__ = ["RetentionCleaner"]

_log = logging.getLogger("kjms.retention")

TICK_SECONDS: Final = 2.0  # until the queues that were made are written down
CLOSE_SECONDS: Final = 2.0

Places = dict[tuple[str, int], int]
"""An offset for partitions of topics."""


class RetentionCleaner:
    """Looks after the queues that the engine reads, in a thread of its own.

    Args:
        topics: Knows Kafka topics.
        bookkeeping: Knows which of them kjms made.
        timeout: Seconds that Kafka may take to answer.
        tuning: Its times and limits.

    Attributes:
        rounds: How often what can go was looked for, ever.
    """

    def __init__(self, topics: Topics, bookkeeping: Bookkeeping, timeout: float, tuning: Tuning = DEFAULTS) -> None:
        self._tuning = tuning
        self.rounds = 0
        self._topics = topics
        self._bookkeeping = bookkeeping
        self._timeout = timeout
        self._sources: dict[KafkaSource, int | None] = {}
        self._lock = threading.Lock()
        self._made: set[str] = set()
        self._not_made: set[str] = set()
        self._closing = Event()
        self._thread: threading.Thread | None = None

    @property
    def thread(self) -> threading.Thread | None:
        """Its thread; None: none was started yet."""
        return self._thread

    def look_after(self, source: KafkaSource, kept_ms: int | None) -> None:
        """Give back the space of what *source*, of a queue, has settled.

        Args:
            source: What settles the messages.
            kept_ms: For how many milliseconds they stay; None: as was said last, or else an hour if kjms made the
                topic, and without limit if not.
        """
        with self._lock:
            if kept_ms is not None or source not in self._sources:
                self._sources[source] = kept_ms
        self.begin()

    def begin(self) -> None:
        """Start the thread, unless it runs: there is something to write down, or to look after."""
        with self._lock:
            if self._thread is None and not self._closing.is_set():
                self._thread = start_thread(self._run, "kjms-retention")

    def _run(self) -> None:
        due = 0.0
        is_over = False
        while not is_over:
            is_over = self._closing.wait(min(TICK_SECONDS, self._tuning.retention_seconds))
            try:
                self.write_down()
                if time.monotonic() >= due and not is_over:
                    due = time.monotonic() + self._tuning.retention_seconds
                    self.give_back()
                    self.rounds += 1
            except (JMSException, KafkaException) as error:
                failure = error if isinstance(error, JMSException) else jms_error(error, "delete settled records")
                level = level_of(failure, logging.WARNING)
                _log.log(level, "settled records were not deleted: %s; kjms tries again later", failure)
            except Exception:
                _log.exception("settled records were not deleted; kjms tries again later")

    def write_down(self) -> None:
        """Write down which queues' topics were made here.

        Raises:
            JMSException: Kafka does not take it.
        """
        new = self._topics.new_queues
        while new:
            self._bookkeeping.keep_made(new[0])
            self._made.add(new.popleft())

    def give_back(self) -> int:
        """Delete what can go; return from how many partitions something went.

        Raises:
            JMSException: Kafka does not say what kjms made.
            KafkaException: The broker refuses the request.
        """
        with self._lock:
            sources = dict(self._sources)
        while self._topics.made_again:  # perhaps not by kjms
            topic = self._topics.made_again.popleft()
            self._made.discard(topic)
            self._not_made.discard(topic)
        unknown = {source.topic for source, kept in sources.items() if kept is None} - self._made - self._not_made
        if unknown:
            self._made |= self._bookkeeping.made(unknown)
            self._not_made |= unknown - self._made
        count = 0
        for source, kept in sources.items():
            if kept is not None or source.topic in self._made:
                count += self._give_back(source, self._tuning.kept_ms if kept is None else kept)
        return count

    def _give_back(self, source: KafkaSource, kept_ms: int) -> int:
        places = source.places()
        if not places:
            return 0
        goals = {place: offset for place, offset in self._committed(source.group, places).items() if offset > 0}
        if not goals:
            return 0
        for place, offset in self._old(goals, kept_ms).items():
            goals[place] = min(goals[place], offset)
        starts = self._offsets(dict.fromkeys(goals, OffsetSpec.earliest()))
        goals = {place: offset for place, offset in goals.items() if offset > starts[place]}
        for group in self._other_groups(source.group) if goals else ():
            for place, offset in self._committed(group, goals).items():
                if 0 <= offset < goals[place]:
                    goals[place] = offset
        wanted = [TopicPartition(*place, offset) for place, offset in goals.items() if offset > starts[place]]
        if not wanted:
            return 0
        for place, answer in self._topics.admin.delete_records(wanted, request_timeout=self._timeout).items():
            answer.result()
            _log.debug("%s[%d]: records before %d are gone", place.topic, place.partition, place.offset)
        return len(wanted)

    def _committed(self, group: str, places: Iterable[tuple[str, int]]) -> Places:
        answer = self._topics.committed(group, [TopicPartition(*place) for place in places])
        return {(known.topic, known.partition): known.offset for known in answer}

    def _other_groups(self, own: str) -> list[str]:
        """Return every group but *own*; one that cannot be asked about must not lose anything, either.

        Raises:
            KafkaException: Kafka does not name all.
        """
        answer = self._topics.admin.list_consumer_groups(request_timeout=self._timeout).result()
        if answer.errors:
            raise answer.errors[0]
        return [group.group_id for group in answer.valid if group.group_id != own]

    def _old(self, places: Iterable[tuple[str, int]], kept_ms: int) -> Places:
        """Return the offset of each partition's first record that is not old enough; where all are, its end."""
        since = max(self._tuning.now_ms() - kept_ms, 0)  # negative times are Kafka's words for other offsets
        ends = self._offsets(dict.fromkeys(places, OffsetSpec.latest()))
        firsts = self._offsets(dict.fromkeys(ends, OffsetSpec.for_timestamp(since)))
        return {place: first if first >= 0 else ends[place] for place, first in firsts.items()}

    def _offsets(self, wanted: Mapping[tuple[str, int], OffsetSpec]) -> Places:
        asked = {TopicPartition(*place): spec for place, spec in wanted.items()}
        answers = self._topics.admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=self._timeout
        )
        return {(place.topic, place.partition): answer.result().offset for place, answer in answers.items()}

    def close(self, timeout: CloseTimeout) -> None:
        """End the thread; what was made is written down first, if the broker answers."""
        self._closing.set()
        if self._thread is not None:
            timeout.join(self._thread, CLOSE_SECONDS)
