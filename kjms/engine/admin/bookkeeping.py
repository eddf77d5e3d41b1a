"""Copies of settlement, used when Kafka has deleted what a group committed.

Kafka deletes a group's offsets some days after its last member left (``offsets.retention.minutes``). The topic
``kjms.bookkeeping`` is compacted, so it keeps the newest copy. A record's key is the group, the topic and the
partition, with line feeds between; its value is the committed offset, a space, and the commit's metadata. A key of an
empty group and a topic says with its value, Kafka's id of that topic, that kjms made it, for a queue. With ``queue`` or
``topic`` in the place of the partition, it says that kjms made the topic for that kind of destination, or consumed it
first as one. All this is in partition 0, which is read whole.

Partition 1 has a record for each transaction that settles nothing. Of these, one alone is ever read, by its offset.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kjms.engine.admin.notes import COPIES, KINDS, read_copy
from kjms.engine.delivery_reports import failure_of
from kjms.engine.kafka import (
    KafkaError,
    KafkaException,
    KafkaMessage,
    TopicPartition,
    jms_error,
    open_consumer,
)
from kjms.engine.log_reading import UNTIL_END, records
from kjms.engine.skipped import SkippedRecords
from kjms.engine.transactions.errors import UnknownError
from kjms.engine.transactions.plan import Copy
from kjms.errors import JMSException
from kjms.mapping import KafkaRecord
from kjms.mapping.internal import MalformedError, read_text
from kjms.mapping.names import BOOKKEEPING

if TYPE_CHECKING:
    from kjms.engine.admin.topics import Topics
    from kjms.engine.publisher import Publisher

__all__ = ["Bookkeeping"]

_log = logging.getLogger("kjms.bookkeeping")

T = TypeVar("T")

READ_SECONDS: Final = 30.0  # how long Kafka may say nothing
MARKS: Final = 1  # of the marks of transactions


class Bookkeeping:
    """Writes and finds copies of settlement.

    Args:
        topics: Knows and makes Kafka topics.
        publisher: Writes the copies in the background.
        settings: librdkafka's settings of a consumer without a group.
        skipped: Counts the records that cannot be read.
    """

    def __init__(
        self,
        topics: Topics,
        publisher: Publisher,
        settings: Mapping[str, Any],
        skipped: SkippedRecords | None = None,
    ) -> None:
        self._topics = topics
        self._publisher = publisher
        self._settings = settings
        self._skipped = SkippedRecords() if skipped is None else skipped
        self._lock = threading.Lock()
        self._is_there = False
        self._kinds: dict[str, list[tuple[str, str]]] = {}
        self._kinds_position = 0

    def keep(self, group: str, offsets: Iterable[TopicPartition]) -> None:
        """Write copies of what *group* has committed; a failure is logged: the next copy will do."""
        try:
            for offset in offsets:
                value = f"{offset.offset} {offset.metadata or ''}".encode()
                self._write(_key(group, offset.topic, offset.partition), value)
        except JMSException as error:
            _log.warning("no copy of the settlement of %s was made: %s", group, error)

    def _write(self, key: bytes, value: bytes) -> None:
        self._ensure()
        self._publisher.send(BOOKKEEPING, COPIES, KafkaRecord(key, value, [], 0), _report)

    def _ensure(self) -> None:
        with self._lock:
            if not self._is_there:
                self._topics.ensure_compacted(BOOKKEEPING, partitions=MARKS + 1)
                self._is_there = True

    def keep_made(self, topic: str, *, is_awaited: bool = False) -> None:
        """Record that kjms made *topic*, for a queue.

        Args:
            topic: The Kafka topic.
            is_awaited: Whether to return only when Kafka has confirmed it.

        Raises:
            JMSException: Kafka does not take it.
        """
        identity = self._topics.ids.find(topic).encode()
        if is_awaited:
            self._ensure()
            self._publisher.send_and_wait(BOOKKEEPING, COPIES, KafkaRecord(_made_key(topic), identity, [], 0))
        else:
            self._write(_made_key(topic), identity)

    def keep_kind(self, topic: str, kind: str, identity: str) -> None:
        """Record that *topic*, which has Kafka's id *identity*, is used for the *kind* of destination.

        Raises:
            JMSException: Kafka has not confirmed it.
        """
        self._ensure()
        record = KafkaRecord(_kind_key(topic, kind), identity.encode(), [], 0)
        self._publisher.send_and_wait(BOOKKEEPING, COPIES, record)

    def kinds(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        """Return, by topic, for which kinds of destinations topics are used, each with the topic's id, the first first.

        It reads what came since the last time; one thread at a time.

        Raises:
            JMSException: The broker does not answer.
        """
        if self._topics.look_up(BOOKKEEPING):
            end = self._topics.ends(BOOKKEEPING)[COPIES]
            if end < self._kinds_position:  # made anew
                self._kinds, self._kinds_position = {}, 0
            for record in self._records(self._kinds_position, end):
                try:
                    group, _, rest = read_text(record.key()).partition("\n")
                    topic, _, kind = rest.partition("\n")
                    if not group and topic and kind in {"", *KINDS} and record.value() is not None:
                        self._kinds.setdefault(topic, []).append((kind or KINDS[0], read_text(record.value())))
                except MalformedError as error:
                    self._skipped.add(BOOKKEEPING, COPIES, record.offset(), error)
            self._kinds_position = end
        return self._kinds

    def forget(self, group: str, places: Iterable[tuple[str, int]]) -> None:
        """Delete the copies of what *group* committed for *places*; it exists no more.

        Raises:
            JMSException: Kafka does not take it.
        """
        self._wipe(_key(group, topic, number) for topic, number in places)

    def forget_made(self, topic: str) -> None:
        """Delete what says that kjms made or used *topic*, which exists no more.

        Raises:
            JMSException: Kafka does not take it.
        """
        self._wipe([_made_key(topic), *(_kind_key(topic, kind) for kind in KINDS)])

    def _wipe(self, keys: Iterable[bytes]) -> None:
        if self._topics.look_up(BOOKKEEPING):
            for key in keys:
                self._publisher.send(BOOKKEEPING, COPIES, KafkaRecord(key, None, [], 0), _report)

    def made(self, topics: Iterable[str]) -> set[str]:
        """Return those of *topics* that kjms made, for queues: they, and no later ones of the same names.

        Raises:
            JMSException: The broker does not answer.
        """
        wanted = {_made_key(topic): topic for topic in topics}
        if not wanted or not self._topics.look_up(BOOKKEEPING):
            return set()
        identities = {wanted[key]: identity for key, identity in self._read(wanted, read_text).items()}
        return {topic for topic, identity in identities.items() if identity == self._topics.ids.find(topic)}

    def recall(self, group: str, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, str]]:
        """Return the newest copies of what *group* committed for *places*: offset and metadata.

        Raises:
            JMSException: The broker does not answer.
        """
        if not self._topics.look_up(BOOKKEEPING):
            return {}
        wanted = {_key(group, topic, number): (topic, number) for topic, number in places}
        return {wanted[key]: copy for key, copy in self._read(wanted, read_copy).items()}

    def mark(self, transactional_id: str) -> Copy:
        """Return the mark of a transaction that settles nothing: the transaction came through if it is visible.

        Raises:
            JMSException: There is no place for it.
        """
        self._ensure()
        return Copy(BOOKKEEPING, MARKS, KafkaRecord(_mark_key(transactional_id), b"", [], 0))

    def is_visible(self, place: TopicPartition) -> bool:
        """Return whether consumers of committed records see the one at *place*; it waits for transactions before it.

        Raises:
            UnknownError: The place cannot be read.
        """
        consumer = open_consumer({**self._settings, **UNTIL_END})
        try:
            consumer.assign([place])
            deadline = time.monotonic() + READ_SECONDS
            while time.monotonic() < deadline:
                record = consumer.poll(0.1)
                if record is None:
                    continue
                error = record.error()
                if error is None or error.code() == KafkaError._PARTITION_EOF:
                    if error is None or (record.offset() or 0) > place.offset:
                        return error is None and record.offset() == place.offset
                elif not error.retriable():
                    raise UnknownError(f"transaction outcome unknown: {error.str()}")
            raise UnknownError(f"transaction outcome unknown: {place.topic!r} could not be read")
        except KafkaException as error:
            raise UnknownError(f"transaction outcome unknown: {error}") from error
        finally:
            consumer.close()

    def wipe_mark(self, transactional_id: str) -> None:
        """Delete the last mark from Kafka: its producer ends."""
        try:
            record = KafkaRecord(_mark_key(transactional_id), None, [], 0)
            self._publisher.send(BOOKKEEPING, MARKS, record, _report)
        except JMSException as error:
            _log.debug("%s", error)

    def _read(self, keys: Container[bytes], read: Callable[[bytes | None], T]) -> dict[bytes, T]:
        """Return what *read* makes of the newest value of each of *keys*; one that it cannot read is skipped."""
        found: dict[bytes, T] = {}
        for record in self._records(0, self._topics.ends(BOOKKEEPING)[COPIES]):
            key, value = record.key(), record.value()
            if key is None or key not in keys:
                continue
            found.pop(key, None)
            if value is not None:
                try:
                    found[key] = read(value)
                except MalformedError as error:
                    self._skipped.add(BOOKKEEPING, COPIES, record.offset(), error)
        return found

    def _records(self, begin: int, end: int) -> Iterator[KafkaMessage]:
        """Return the records of the copies from offset *begin* to before *end*."""
        if end <= begin:
            return
        try:
            consumer = open_consumer({**self._settings, **UNTIL_END})
        except KafkaException as error:
            raise jms_error(error, f"read {BOOKKEEPING}", to="Read", topic=BOOKKEEPING) from error
        try:
            consumer.assign([TopicPartition(BOOKKEEPING, COPIES, begin)])  # OFFSET_BEGINNING costs half a second
            yield from records(consumer, {(BOOKKEEPING, COPIES): end}, READ_SECONDS)
        except KafkaException as error:
            raise jms_error(error, f"read {BOOKKEEPING}", to="Read", topic=BOOKKEEPING) from error
        finally:
            consumer.close()


def _mark_key(transactional_id: str) -> bytes:
    return f"\n\n{transactional_id}".encode()


def _key(group: str, topic: str, number: int) -> bytes:
    return f"{group}\n{topic}\n{number}".encode()


def _kind_key(topic: str, kind: str) -> bytes:
    return f"\n{topic}\n{kind}".encode()


def _made_key(topic: str) -> bytes:
    return f"\n{topic}".encode()


def _report(error: KafkaError | None, record: KafkaMessage) -> None:
    error = failure_of(error, record)
    if error is not None:
        _log.warning("a record of %s was not written: %s", BOOKKEEPING, error)
