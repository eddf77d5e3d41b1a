"""The inbox of an engine: one Kafka topic for all its temporary destinations, and the threads that read it."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kjms.engine.interrupts import Condition, Event
from kjms.engine.kafka import (
    KafkaError,
    KafkaException,
    KafkaMessage,
    TopicPartition,
    jms_error,
    open_consumer,
)
from kjms.engine.log_reading import UNTIL_END
from kjms.engine.settings import NEW_TOPIC
from kjms.engine.statistics import InboxStatistics
from kjms.engine.temporary.gap_reader import GapReader
from kjms.engine.temporary.inbox_retention import InboxRetention
from kjms.engine.threads import start_thread
from kjms.engine.tuning import DEFAULTS, Tuning
from kjms.errors import JMSException
from kjms.mapping.temporary import MESSAGES, PARTITIONS, addressed_to

if TYPE_CHECKING:
    from kjms.destinations import Destination
    from kjms.engine.admin.topics import Topics
    from kjms.engine.consumer.consumer_slot import ConsumerSlot
    from kjms.engine.consumer.overflow import Overflow
    from kjms.engine.publisher import Publisher
    from kjms.engine.temporary.inbox_source import InboxSource

__all__ = ["Entry", "Inbox"]

_log = logging.getLogger("kjms.inbox")

POLL_SECONDS: Final = 0.1  # how soon what is due, or was forgotten by the program, is noticed
BATCH: Final = 500  # records taken from librdkafka at once
CLOSE_SECONDS: Final = 5.0  # how long closing waits for a Kafka that does not answer
RETRY_SECONDS: Final = 1.0  # between a failure and the next attempt
LOG_SECONDS: Final = 1.0  # between writes of the redelivery log
# What waits is kept, however long that takes; a segment has to be full before its space can be given back.
CONFIG: Final = {"retention.ms": "-1", "retention.bytes": "-1", "segment.bytes": str(64 * 1024 * 1024)}


@dataclass(eq=False)
class Entry:
    """A temporary destination.

    Attributes:
        destination: Its plain value; the program's own object is not kept alive.
        number: Its number.
        owner: The id of its connection.
        prefetch: How many messages a source of it holds ready.
        sources: A queue's one, or one for each consumer of a topic.
        slots: Those of its open consumers.
        is_forgotten: Whether the program has lost it: it goes with its last consumer.
    """

    destination: Destination
    number: int
    owner: str
    prefetch: int
    sources: tuple[InboxSource, ...] = ()
    slots: set[ConsumerSlot] = field(default_factory=set)
    is_forgotten: bool = False


class ReadPositions:
    """Up to where each partition of an inbox was read; one thread reads, others wait for it.

    Args:
        topic: The inbox's Kafka topic.
        timeout: Seconds to wait for Kafka.

    Attributes:
        offsets: By partition: the offset after the last record that was read.
    """

    def __init__(self, topic: str, timeout: float) -> None:
        self.offsets = dict.fromkeys(range(PARTITIONS), 0)
        self._topic = topic
        self._timeout = timeout
        self._changed = Condition()
        self._waiting = 0  # threads that wait

    def advanced(self) -> None:
        """Wake threads that wait."""
        if self._waiting:
            with self._changed:
                self._changed.notify_all()

    def wait(self, ends: Mapping[int, int]) -> None:
        """Return when all before *ends* has been delivered to the sources.

        Raises:
            JMSException: The broker does not answer.
        """
        with self._changed:
            self._waiting += 1
            try:
                if not self._changed.wait_for(
                    lambda: all(self.offsets[place] >= end for place, end in ends.items()), self._timeout
                ):
                    raise JMSException(f"the Kafka topic {self._topic!r} has not answered for {self._timeout:g} s")
            finally:
                self._waiting -= 1


class Inbox:
    """Delivers each record to the sources of its temporary destination.

    One thread reads the Kafka topic from its start.

    Args:
        topic: The Kafka topic, which is there already.
        config: librdkafka's settings of a consumer without a group.
        publisher: What writes.
        topics: Deletes records.
        overflow: Settles messages of sources, and has the redelivery log.
        forget: Called with the numbers of temporary destinations that the program has lost, in the inbox's thread.
        report: Reports a failure that belongs to no call.
        timeout: Seconds to wait for Kafka.
        tuning: Its times and limits.
    """

    def __init__(
        self,
        topic: str,
        config: Mapping[str, Any],
        publisher: Publisher,
        topics: Topics,
        overflow: Overflow,
        *,
        forget: Callable[[Iterable[int]], None],
        report: Callable[[JMSException], None],
        timeout: float,
        tuning: Tuning = DEFAULTS,
    ) -> None:
        self.topic = topic
        self.entries: dict[int, Entry] = {}
        self.forgotten: deque[int] = deque()  # from finalizers, which may run anywhere and so must not take a lock
        config = {**NEW_TOPIC, **config, **UNTIL_END}
        self.positions = ReadPositions(topic, timeout)
        self.gaps = GapReader(topic, config, report, timeout)
        self.retention = InboxRetention(topic, publisher, topics, tuning)
        self._forget = forget
        self.overflow = overflow
        self._report = report
        self._lock = threading.Lock()
        self._due: set[InboxSource] = set()  # whose messages are not due yet
        self._closing = Event()
        try:
            self._consumer = open_consumer(config)
            self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        except KafkaException as error:
            raise jms_error(error, f"read the Kafka topic {topic!r}") from error
        self._thread = start_thread(self._run, "kjms-inbox")

    def __repr__(self) -> str:
        return f"<Inbox {self.topic}: {len(self.entries)} temporary destinations, read to {self.positions.offsets}>"

    # The thread.

    def _run(self) -> None:
        consumer = self._consumer
        written = time.monotonic()
        while not self._closing.is_set():
            try:
                first = consumer.poll(POLL_SECONDS)
                if first is not None:
                    for record in (first, *consumer.consume(BATCH, 0)):
                        self._route(record)
                    self.positions.advanced()
                self._tidy()
                now = time.monotonic()
                if now - written > LOG_SECONDS:
                    written = now
                    self.overflow.redelivery_log.write()
                self.retention.clean(now, self.positions.offsets, self._sources)
            except Exception as error:  # other messages must still be delivered
                _log.exception("reading the Kafka topic %r failed", self.topic)
                self._report(JMSException(f"reading the Kafka topic {self.topic!r} failed: {error}", None, error))
                self._closing.wait(RETRY_SECONDS)
        consumer.close()

    def _route(self, record: KafkaMessage) -> None:
        error, place, offset = record.error(), record.partition() or 0, record.offset() or 0
        if error is None:
            number = addressed_to(record)
            entry = None if number is None else self.entries.get(number)
            if entry is not None:
                for source in entry.sources:
                    source.accept(record)
            self.positions.offsets[place] = offset + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            self.positions.offsets[place] = max(self.positions.offsets[place], offset)
        else:
            failure = jms_error(error, f"read the Kafka topic {self.topic!r}")
            _log.warning("%s", failure)
            if not error.retriable():
                self._report(failure)

    def _tidy(self) -> None:
        if self.forgotten:
            self._forget([self.forgotten.popleft() for _ in range(len(self.forgotten))])
        if self._due:
            with self._lock:
                due = list(self._due)
            over = [source for source in due if not source.release()]
            with self._lock:
                self._due.difference_update(over)
            for source in over:
                if source.release():  # something came back meanwhile
                    self.wait_until_due(source)

    def statistics(self) -> InboxStatistics:
        """Return which temporary destinations there are, and what waits for them."""
        entries = [entry for _, entry in sorted(self.entries.copy().items())]
        return InboxStatistics(
            topic=self.topic,
            destinations=tuple(entry.destination._name for entry in entries),
            behind=tuple(sorted({m.name for entry in entries for m in entry.sources if m.gaps()})),
            position=self.positions.offsets[MESSAGES],
            freed=self.retention.freed,
            deletions=self.retention.deletions,
            group_consumers=tuple(source.statistics() for entry in entries for source in entry.sources),
        )

    @property
    def threads(self) -> list[threading.Thread | None]:
        """Its threads."""
        return [self._thread, self.gaps.thread]

    def _sources(self) -> list[InboxSource]:
        return [source for entry in list(self.entries.values()) for source in entry.sources]

    def wait_until_due(self, source: InboxSource) -> None:
        """Have messages of *source* made ready when it is their time."""
        with self._lock:
            self._due.add(source)

    def close(self) -> None:
        """End the threads."""
        self._closing.set()
        self.gaps.begin_to_close()
        for thread in (self._thread, self.gaps.thread):
            if thread is not None:
                thread.join(CLOSE_SECONDS)
                if thread.is_alive():
                    _log.warning("the Kafka topic %r: the broker does not answer", self.topic)
