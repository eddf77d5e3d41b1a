"""The inbox of an engine: one Kafka topic for all its temporary destinations, and the threads that read it."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kjms.engine.kafka import (
    ConsumerPort,
    KafkaError,
    KafkaException,
    KafkaMessage,
    TopicPartition,
    jms_error,
    open_consumer,
)
from kjms.engine.log_reading import UNTIL_END, records
from kjms.engine.settings import NEW_TOPIC
from kjms.engine.statistics import InboxStatistics
from kjms.engine.tuning import DEFAULTS, Tuning
from kjms.errors import JMSException
from kjms.mapping.temporary import DELETIONS, MESSAGES, PARTITIONS, Numbers, addressed_to, deletion

if TYPE_CHECKING:
    from kjms.destinations import Destination
    from kjms.engine.admin.topics import Topics
    from kjms.engine.consumer.consumer_slot import ConsumerSlot
    from kjms.engine.publisher import Publisher
    from kjms.engine.temporary.mailbox import Mailbox

__all__ = ["Entry", "Inbox"]

_log = logging.getLogger("kjms.inbox")

POLL_SECONDS: Final = 0.1  # how soon what is due, or was forgotten by the program, is noticed
BATCH: Final = 500  # records taken from librdkafka at once
CLOSE_SECONDS: Final = 5.0  # how long closing waits for a Kafka that does not answer
RETRY_SECONDS: Final = 1.0  # between a failure and the next attempt
JOURNAL_SECONDS: Final = 1.0  # between looks whether there is something to write down
# What waits is kept, however long that takes; a segment has to be full before its space can be given back.
CONFIG: Final = {"retention.ms": "-1", "retention.bytes": "-1", "segment.bytes": str(64 * 1024 * 1024)}


@dataclass(eq=False)
class Entry:
    """A temporary destination.

    Attributes:
        destination: Its plain value; the program's own object is not kept alive.
        number: Its number.
        owner: The id of its connection.
        prefetch: How many messages a mailbox of it holds ready.
        mailboxes: A queue's one, or one for each consumer of a topic.
        slots: Those of its open consumers.
        is_forgotten: Whether the program has lost it: it goes with its last consumer.
    """

    destination: Destination
    number: int
    owner: str
    prefetch: int
    mailboxes: tuple[Mailbox, ...] = ()
    slots: set[ConsumerSlot] = field(default_factory=set)
    is_forgotten: bool = False


class Inbox:
    """Brings each record to the mailboxes of the temporary destination that it is for.

    One thread reads the Kafka topic from its start. Another reads again what did not fit into a mailbox; it is there
    while there is something of the kind.

    Args:
        topic: The Kafka topic, which is there already.
        config: librdkafka's settings of a consumer without a group.
        publisher: What writes.
        topics: Deletes records.
        forget: Told of numbers whose temporary destinations the program has lost, in the inbox's thread.
        write_journal: Writes down what befell messages, in the inbox's thread.
        tell: Told of trouble that belongs to no call.
        patience: Seconds to wait for Kafka.
        tuning: Its times and limits.
    """

    def __init__(
        self,
        topic: str,
        config: Mapping[str, Any],
        publisher: Publisher,
        topics: Topics,
        *,
        forget: Callable[[Iterable[int]], None],
        write_journal: Callable[[], None],
        tell: Callable[[JMSException], None],
        patience: float,
        tuning: Tuning = DEFAULTS,
    ) -> None:
        self._tuning = tuning
        self.topic = topic
        self.entries: dict[int, Entry] = {}
        self.forgotten: deque[int] = deque()  # from finalizers, which may run anywhere and so must not take a lock
        self._config = {**NEW_TOPIC, **config, **UNTIL_END}
        self._publisher = publisher
        self._topics = topics
        self._forget = forget
        self._write_journal = write_journal
        self._tell = tell
        self._patience = patience
        self._news = threading.Condition()
        self._positions = dict.fromkeys(range(PARTITIONS), 0)
        self._waiting = 0  # threads that wait for a position
        self._due: set[Mailbox] = set()  # whose messages wait for their time
        self._behind: dict[Mailbox, None] = {}  # that have room again, and want what they missed
        self._again: threading.Thread | None = None
        self._deleted = Numbers()
        self._deleted_since = 0  # deletions since they were last summed up
        self._spared = 0  # the offset before which space was given back
        self._closing = False
        try:
            self._consumer = open_consumer(self._config)
            self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        except KafkaException as error:
            raise jms_error(error, f"read the Kafka topic {topic!r}") from error
        self._thread = threading.Thread(target=self._run, name="kjms-inbox", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<Inbox {self.topic}: {len(self.entries)} temporary destinations, read to {self._positions}>"

    # Deleting.

    def delete(self, numbers: Iterable[int], *, wait: bool = True) -> None:
        """Say, to all programs, that the temporary destinations *numbers* are deleted.

        Raises:
            JMSException: Kafka did not take it.
        """
        gone = Numbers()
        for number in numbers:
            gone.add(number)
        with self._news:
            self._deleted.add_all(gone)
            self._deleted_since += 1
        if wait:
            self._publisher.send_and_wait(self.topic, DELETIONS, deletion(gone))
        else:
            self._publisher.send(self.topic, DELETIONS, deletion(gone), _hear)

    # The thread.

    def _run(self) -> None:
        consumer = self._consumer
        journal = space = time.monotonic()
        while not self._closing:
            try:
                first = consumer.poll(POLL_SECONDS)
                if first is not None:
                    for record in (first, *consumer.consume(BATCH, 0)):
                        self._route(record)
                    if self._waiting:
                        with self._news:
                            self._news.notify_all()
                self._tidy()
                now = time.monotonic()
                if now - journal > JOURNAL_SECONDS:
                    journal = now
                    self._write_journal()
                if now - space > self._tuning.inbox_space_seconds:
                    space = now
                    self._give_space_back()
            except Exception as error:  # the others' messages must still come
                _log.exception("reading the Kafka topic %r failed", self.topic)
                self._tell(JMSException(f"reading the Kafka topic {self.topic!r} failed: {error}", None, error))
                with self._news:
                    self._news.wait_for(lambda: self._closing, RETRY_SECONDS)
        consumer.close()

    def _route(self, record: KafkaMessage) -> None:
        error, place, offset = record.error(), record.partition() or 0, record.offset() or 0
        if error is None:
            number = addressed_to(record)
            entry = None if number is None else self.entries.get(number)
            if entry is not None:
                for mailbox in entry.mailboxes:
                    mailbox.accept(record)
            self._positions[place] = offset + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            self._positions[place] = max(self._positions[place], offset)
        else:
            failure = jms_error(error, f"read the Kafka topic {self.topic!r}")
            _log.warning("%s", failure)
            if not error.retriable():
                self._tell(failure)

    def _tidy(self) -> None:
        if self.forgotten:
            self._forget([self.forgotten.popleft() for _ in range(len(self.forgotten))])
        if self._due:
            with self._news:
                due = list(self._due)
            over = [mailbox for mailbox in due if not mailbox.release()]
            with self._news:
                self._due.difference_update(over)
            for mailbox in over:
                if mailbox.release():  # something came back meanwhile
                    self.wait_until_due(mailbox)

    def statistics(self) -> InboxStatistics:
        """Return which temporary destinations there are, and what waits for them."""
        with self._news:
            position, freed, deletions = self._positions[MESSAGES], self._spared, self._deleted_since
        entries = [entry for _, entry in sorted(self.entries.copy().items())]
        return InboxStatistics(
            topic=self.topic,
            destinations=tuple(entry.destination._name for entry in entries),
            behind=tuple(sorted({m.name for entry in entries for m in entry.mailboxes if m.gaps()})),
            position=position,
            freed=freed,
            deletions=deletions,
            group_consumers=tuple(mailbox.statistics() for entry in entries for mailbox in entry.mailboxes),
        )

    @property
    def threads(self) -> list[threading.Thread | None]:
        """Its threads."""
        return [self._thread, self._again]

    def wait_until_due(self, mailbox: Mailbox) -> None:
        """Have messages of *mailbox* made ready when it is their time."""
        with self._news:
            self._due.add(mailbox)

    def wait_until_read(self, ends: Mapping[int, int]) -> None:
        """Return when all that stands before *ends* has been brought to the mailboxes.

        Raises:
            JMSException: Kafka does not answer.
        """
        with self._news:
            self._waiting += 1
            try:
                if not self._news.wait_for(
                    lambda: all(self._positions[place] >= end for place, end in ends.items()), self._patience
                ):
                    raise JMSException(f"the Kafka topic {self.topic!r} has not answered for {self._patience:g} s")
            finally:
                self._waiting -= 1

    # Space.

    def _give_space_back(self) -> None:
        """Delete what was read and nobody will read again, and sum up what is deleted."""
        read = self._positions[MESSAGES]
        gaps = [mailbox.gaps() for entry in list(self.entries.values()) for mailbox in entry.mailboxes]
        oldest = min([read, *(gap[MESSAGES][0] for gap in gaps if MESSAGES in gap)])
        wanted: dict[int, int] = {}
        if oldest - self._spared >= self._tuning.inbox_space_records:
            wanted[MESSAGES] = self._spared = oldest
        with self._news:
            is_long, summary = self._deleted_since >= self._tuning.inbox_space_records, deletion(self._deleted)
        try:
            if is_long and not any(DELETIONS in gap for gap in gaps):
                before = self._positions[DELETIONS]
                self._publisher.send_and_wait(self.topic, DELETIONS, summary)
                wanted[DELETIONS] = before
                self._deleted_since = 0
            if wanted:
                self._topics.delete_records(self.topic, wanted)
        except JMSException as failure:  # there will be another time
            _log.info("%s", failure)

    # What did not fit is read again.

    def read_again(self, mailbox: Mailbox) -> None:
        """Read, soon, what *mailbox* missed while it was full."""
        with self._news:
            if self._closing or mailbox in self._behind:
                return
            self._behind[mailbox] = None
            if self._again is None:
                self._again = threading.Thread(target=self._read_all_again, name="kjms-inbox-again", daemon=True)
                self._again.start()

    def _read_all_again(self) -> None:
        consumer = open_consumer(self._config)
        try:
            while True:
                with self._news:
                    mailbox = next(iter(self._behind), None)
                    if mailbox is None or self._closing:
                        self._again = None
                        return
                try:
                    self._fill(consumer, mailbox)
                except Exception as error:  # the others' messages must still come
                    _log.exception("%s: what did not fit could not be read", mailbox.name)
                    self._tell(JMSException(f"reading {mailbox.name} failed: {error}", None, error))
                    with self._news:
                        self._news.wait_for(lambda: self._closing, RETRY_SECONDS)
                else:
                    with self._news:
                        del self._behind[mailbox]
                    mailbox.look_for_room()  # it may have been emptied meanwhile, and asked in vain
        finally:
            consumer.close()

    def _fill(self, consumer: ConsumerPort, mailbox: Mailbox) -> None:
        """Read on for *mailbox*, until it is full or has caught up."""
        while not self._closing:
            gaps = mailbox.gaps()
            for place, (start, end) in gaps.items():
                reached = self._read_gap(consumer, mailbox, place, start, end)
                mailbox.catch_up({place: reached})
                if reached < end:
                    return
            if mailbox.catch_up({}):
                return

    def _read_gap(self, consumer: ConsumerPort, mailbox: Mailbox, place: int, start: int, end: int) -> int:
        """Return how far the records from *start* to *end* could be brought to *mailbox*."""
        if start >= end:
            return start
        consumer.assign([TopicPartition(self.topic, place, start)])
        try:
            reached = start
            ends = {(self.topic, place): end}
            for record in records(consumer, ends, self._patience, lambda: self._closing):
                if addressed_to(record) == mailbox.number and not mailbox.read_again(record):
                    return record.offset() or 0
                reached = (record.offset() or 0) + 1
            return reached if self._closing else end
        finally:
            consumer.unassign()

    def close(self) -> None:
        """End the threads."""
        with self._news:
            self._closing = True
            self._news.notify_all()
        for thread in (self._thread, self._again):
            if thread is not None:
                thread.join(CLOSE_SECONDS)
                if thread.is_alive():
                    _log.warning("the Kafka topic %r: Kafka does not answer", self.topic)


def _hear(error: object, _record: object) -> None:
    if error is not None:
        _log.warning("other programs do not know that a temporary destination is deleted: %s", error)
