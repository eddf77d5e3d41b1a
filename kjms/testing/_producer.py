"""The producer of an in-memory Kafka, as confluent-kafka's behaves: idempotent, transactional where it has an id."""

from __future__ import annotations

import enum
import logging
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from kjms.engine.kafka import (
    OFFSET_INVALID,
    ClusterMetadata,
    KafkaError,
    KafkaException,
    KafkaMessage,
    OnDelivery,
    TopicPartition,
)
from kjms.testing._admin import described
from kjms.testing._client import MemoryClient
from kjms.testing._cluster import NEVER, Cluster, refused
from kjms.testing._consumer import committable, offset_of
from kjms.testing._faults import Operation
from kjms.testing._groups import GroupMetadata, Place
from kjms.testing._logs import LOG_APPEND_TIME, size_of
from kjms.testing._transactions import Transaction

__all__ = ["MemoryProducer", "murmur2"]

UNASSIGNED: Final = -1
NO_TIME: Final = (0, -1)
DISCONNECTED: Final = "[thrd:TxnCoordinator]: TxnCoordinator/1: Disconnected (after 12ms in state UP)"
MOST_RECORDS: Final = 100_000
"""How many records and reports a producer holds, unless ``queue.buffering.max.messages`` says otherwise."""
MOST_KILOBYTES: Final = 1_048_576
"""How large they may be together, unless ``queue.buffering.max.kbytes`` says otherwise."""


class State(enum.Enum):
    """Where a transactional producer stands; the names are librdkafka's."""

    INIT = "Init"
    READY = "Ready"
    IN_TRANSACTION = "InTransaction"
    ABORTABLE = "AbortableError"
    FATAL = "FatalError"


@dataclass(frozen=True)
class Settings:
    """What a producer is set to, in seconds and bytes.

    Attributes:
        id: The transactional id; empty without one.
        limit: How large a record may be.
        message_timeout: How long a record waits for brokers.
        transaction_timeout: How long a transaction may stay open.
        linger: How long a record waits for others.
        most_records: How many records and reports it holds.
        most_bytes: How large they may be together.
    """

    id: str
    limit: int
    message_timeout: float
    transaction_timeout: float
    linger: float
    most_records: int
    most_bytes: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Settings:
        """Return what librdkafka's settings in *config* say."""
        return cls(
            id=str(config.get("transactional.id") or ""),
            limit=int(config.get("message.max.bytes", 1_000_000)),
            message_timeout=float(config.get("message.timeout.ms", 300_000)) / 1000,
            transaction_timeout=float(config.get("transaction.timeout.ms", 60_000)) / 1000,
            linger=float(config.get("linger.ms", config.get("queue.buffering.max.ms", 5))) / 1000,
            most_records=int(config.get("queue.buffering.max.messages", MOST_RECORDS)),
            most_bytes=int(config.get("queue.buffering.max.kbytes", MOST_KILOBYTES)) * 1024,
        )


class Waiting(NamedTuple):
    """A record that no broker has taken yet."""

    place: Place
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp: int
    on_delivery: OnDelivery | None
    ready: float
    until: float


Report: TypeAlias = "tuple[OnDelivery | None, KafkaError | None, KafkaMessage]"
"""What `poll` calls, and with what."""


class MemoryProducer(MemoryClient):
    """A producer; see `kjms.engine.kafka.ProducerPort`.

    A record is in its log when `produce` returns, unless brokers are away; its report waits for `poll` or `flush`.

    Args:
        cluster: The cluster.
        config: librdkafka's settings.
    """

    def __init__(self, cluster: Cluster, config: Mapping[str, Any]) -> None:
        super().__init__(cluster, config)
        self._settings = Settings.of(config)
        self._bytes = 0  # of the records that are not reported yet
        self._flushed = 0  # how often
        self._waiting: deque[Waiting] = deque()
        self._reports: deque[Report] = deque()
        self._state = State.INIT
        self._error: KafkaException | None = None  # why it can only abort, or nothing any more
        self._is_empty = True  # whether nothing was done in the transaction: brokers are not asked about it
        self._unanswered = ""  # the end of a transaction that was carried out, and not answered
        self._transaction: Transaction | None = None
        self._epoch = -1
        self._logger: Any = config.get("logger")
        self._lines: deque[str] = deque()  # what it says of lost connections, in the next poll
        cluster.add(self)

    # What the cluster calls, with the lock held.

    def wake(self) -> None:
        """Return from a wait: there is something to do."""
        self._drain()
        super().wake()

    # Records.

    def produce(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        partition: int = UNASSIGNED,
        *,
        headers: Sequence[tuple[str, bytes | str | None]] | Mapping[str, bytes | str | None] = (),
        timestamp: int = 0,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        value, key = _bytes(value), _bytes(key)
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        contents = [(name, _bytes(content)) for name, content in pairs]
        cluster = self._cluster
        with cluster.lock:
            cluster.check("produce", self)
            if self._settings.id and self._state is not State.IN_TRANSACTION:
                code = KafkaError._FATAL if self._state is State.FATAL else KafkaError._STATE
                raise refused(code, f"Unable to produce message: {KafkaError(code).str()}")
            if self._state is State.FATAL:
                raise refused(KafkaError._FATAL, "Unable to produce message: Local: Fatal error")
            size = len(value or b"") + len(key or b"")
            if len(self) >= self._settings.most_records or self._bytes + size > self._settings.most_bytes:
                raise BufferError("Local: Queue full")
            if size > self._settings.limit:
                text = "Unable to produce message: Broker: Message size too large"
                raise refused(KafkaError.MSG_SIZE_TOO_LARGE, text)
            count = cluster.partitions(topic)
            if count and partition >= count:
                raise refused(KafkaError._UNKNOWN_PARTITION, "Unable to produce message: Local: Unknown partition")
            if partition == UNASSIGNED:
                partition = self._partition(key, count)
            now = cluster.clock.monotonic()
            ready, until = now + self._settings.linger, now + self._settings.message_timeout
            timestamp = timestamp or cluster.milliseconds()
            self._is_empty = False
            is_first = not self._waiting
            self._waiting.append(
                Waiting((topic, partition), key, value, contents, timestamp, on_delivery, ready, until)
            )
            self._bytes += size
            if is_first:
                self._drain()
            if is_first or self._reports:  # else a poll that waits knows already how long
                self._condition.notify()

    def _partition(self, key: bytes | None, count: int) -> int:
        if count <= 1:
            return 0
        if key is None:
            return random.randrange(count)
        return (murmur2(key) & 0x7FFFFFFF) % count

    def _drain(self, *, is_flushing: bool = False) -> None:
        """Have the cluster take what waits and has waited long enough, in its order."""
        cluster = self._cluster
        now = cluster.clock.monotonic()
        while self._waiting:
            waiting = self._waiting[0]
            topic = waiting.place[0]
            fault = None
            if cluster.faults.is_away(self.client):
                if waiting.until > now:
                    return
                error: KafkaError | None = KafkaError(KafkaError._MSG_TIMED_OUT)
            elif waiting.ready > now and not is_flushing:
                cluster.wakeups.linger(self, waiting.ready)
                return
            else:
                error = cluster.faults.refusal("produce", topic=topic)
                fault = cluster.faults.next("produce", self.client, topic=topic)
                if error is None and fault is not None and not fault.is_carried_out:
                    error = fault.error
            self._waiting.popleft()
            if fault is not None and fault.is_confirmed:
                self._reports.append((waiting.on_delivery, None, _message(waiting)))
                continue
            self._take(waiting, error)
            if fault is not None and fault.is_carried_out:
                on_delivery, _, message = self._reports.pop()
                self._reports.append((on_delivery, fault.error, message))

    def _take(self, waiting: Waiting, error: KafkaError | None) -> None:
        """Write a record to its log, or report why not."""
        cluster = self._cluster
        topic = cluster.topics.get(waiting.place[0])
        log = cluster.log(waiting.place)
        offset = OFFSET_INVALID
        timestamp = waiting.timestamp
        if error is None and self._is_fenced():
            self._fail(_fenced("Failed to add partitions to transaction"))
            error = KafkaError(KafkaError._PURGE_QUEUE)
        elif error is None and (topic is None or log is None):
            error = KafkaError(KafkaError._UNKNOWN_TOPIC if topic is None else KafkaError._UNKNOWN_PARTITION)
        elif error is None and topic is not None and size_of(waiting.key, waiting.value, waiting.headers) > topic.limit:
            error = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
        if error is None and topic is not None and log is not None:
            transaction = self._transaction
            if topic.time_type == LOG_APPEND_TIME:
                timestamp = cluster.milliseconds()
            if transaction is not None:
                cluster.transactions.opened(transaction)
                transaction.logs[log] = None
            producer = None if transaction is None else transaction.producer
            record = log.append(
                waiting.key, waiting.value, waiting.headers, timestamp, topic.time_type, transaction=producer
            )
            offset = record.offset
        elif self._state is State.IN_TRANSACTION and error is not None:
            text = f"ProduceRequest for {waiting.place[0]} [{waiting.place[1]}] with 1 message(s) failed: {error.str()}"
            self._fail(refused(error.code(), text, abort=True))
        time = (topic.time_type, timestamp) if topic is not None and error is None else NO_TIME
        self._reports.append((waiting.on_delivery, error, _message(waiting, offset, error, time)))

    def poll(self, timeout: float = -1) -> int:
        return self._poll(timeout)

    def _poll(self, timeout: float, *, is_flushing: bool = False) -> int:
        cluster = self._cluster
        until = NEVER if timeout < 0 else cluster.clock.monotonic() + timeout
        with cluster.lock:
            flushed = self._flushed
            while flushed == self._flushed:
                if cluster.end_of(self) is not None:
                    cluster.wait(self._condition, until)
                    break
                cluster.expire()
                self._drain(is_flushing=is_flushing)
                if self._reports or self._errors or self._lines or not self._wait(until):
                    break
            reports: deque[Report] = deque()
            if not self._errors:  # these come first, and reports with the next poll
                reports, self._reports = self._reports, reports
                self._bytes -= sum(len(message.value() or b"") + len(message.key() or b"") for _, _, message in reports)
        while self._lines:
            self._logger.log(logging.INFO, "%s [%s] %s", "FAIL", "rdkafka#producer-1", self._lines.popleft())
        told = self._tell()
        for on_delivery, why, message in reports:
            if on_delivery is not None:
                on_delivery(why, message)
        return len(reports) + told

    def _wait(self, until: float) -> bool:
        """Wait, but not beyond the time at which something is to be done for the first record."""
        first = NEVER
        if self._waiting:
            first = self._waiting[0].ready
            if self._cluster.faults.is_away(self.client):
                first = min(waiting.until for waiting in self._waiting)
        return self._cluster.wait(self._condition, min(first, until)) or first <= until

    def flush(self, timeout: float = -1) -> int:
        clock = self._cluster.clock
        until = NEVER if timeout < 0 else clock.monotonic() + timeout
        while len(self):
            left = until - clock.monotonic()
            self._poll(-1 if left == NEVER else max(left, 0), is_flushing=True)
            if left <= 0:
                break
        with self._cluster.lock:
            self._flushed += 1  # a poll of another thread has nothing to wait for any more
            self._condition.notify_all()
        return len(self)

    def purge(self) -> None:
        with self._cluster.lock:
            self._cluster.check("purge", self)
            while self._waiting:
                self._take(self._waiting.popleft(), KafkaError(KafkaError._PURGE_QUEUE))
            self._condition.notify_all()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._reports)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        cluster = self._cluster
        until = NEVER if timeout < 0 else cluster.clock.monotonic() + timeout
        cluster.check("list_topics", self)
        with cluster.request(self, "describe", topic=topic or "", until=until):
            return described(cluster, topic)

    # Transactions.

    def init_transactions(self, timeout: float = -1) -> None:
        cluster = self._cluster
        cluster.check("init_transactions", self)
        if not self._settings.id:
            raise refused(
                KafkaError._NOT_CONFIGURED, "The Transactional API requires transactional.id to be configured"
            )
        if self._unanswered == "init_transactions":  # it was done, and this is the answer
            self._unanswered = ""
            return
        with self._request("init_transactions", timeout):
            if self._state is not State.INIT:
                raise self._error or self._invalid()
            self._transaction = cluster.transactions.begin(self._settings.id, self._settings.transaction_timeout)
            self._epoch = self._transaction.epoch
            self._state = State.READY
            self._unanswered = "init_transactions"
        self._unanswered = ""

    def begin_transaction(self) -> None:
        with self._cluster.lock:
            self._cluster.check("begin_transaction", self)
            if self._state is not State.READY:
                raise self._error or self._invalid()
            self._state = State.IN_TRANSACTION
            self._is_empty = True

    def send_offsets_to_transaction(
        self, offsets: list[TopicPartition], group_metadata: GroupMetadata, timeout: float = -1
    ) -> None:
        cluster = self._cluster
        cluster.check("send_offsets_to_transaction", self)
        with self._request("send_offsets", timeout, group=group_metadata.group):
            if self._state is not State.IN_TRANSACTION or self._transaction is None:
                raise self._error or self._invalid()
            self._is_empty = False
            doing = "Failed to commit offsets to transaction on broker 1"
            if self._is_fenced():
                raise self._fail(_fenced(doing))
            group = cluster.group(group_metadata.group)
            code = None
            if group_metadata.generation >= 0 or group_metadata.member:
                code = group.refusal(group_metadata.generation, group_metadata.member)
            codes = [code, *(committable(cluster, each) for each in offsets)]
            code = next((each for each in codes if each is not None), None)
            if code is not None:
                raise self._fail(refused(code, f"{doing}: {KafkaError(code).str()}", abort=True))
            cluster.transactions.opened(self._transaction)
            self._transaction.groups[group] = None
            pending = group.pending.setdefault(self._transaction.producer, {})
            settled = {(each.topic, each.partition): offset_of(cluster, each) for each in offsets}
            pending.update(settled)
            transaction = self._transaction

            def again() -> int:
                if group not in transaction.groups:
                    return int(KafkaError.INVALID_TXN_STATE)
                group.pending.setdefault(transaction.producer, {}).update(settled)
                return 0

            self._cut("send_offsets", again)

    def commit_transaction(self, timeout: float = -1) -> None:
        self._end(timeout, commit=True)

    def abort_transaction(self, timeout: float = -1) -> None:
        self._end(timeout, commit=False)

    def _end(self, timeout: float, *, commit: bool) -> None:
        cluster = self._cluster
        clock = cluster.clock
        doing: Operation = "commit_transaction" if commit else "abort_transaction"
        cluster.check(doing, self)
        begun = clock.monotonic()
        if commit and self._state is State.IN_TRANSACTION and self.flush(timeout):
            text = "Failed to flush all outstanding messages within the API timeout"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text, retriable=True))
        left = timeout if timeout < 0 else max(timeout - (clock.monotonic() - begun), 0)
        if self._unanswered == doing:  # it was done, and this is the answer
            self._unanswered = ""
            return
        with cluster.lock:
            if self._state is State.IN_TRANSACTION and self._is_empty:
                self._state = State.READY
                return
        is_done = False
        try:
            with self._request(doing, left):
                if self._state is not State.IN_TRANSACTION and (commit or self._state is not State.ABORTABLE):
                    raise self._error or self._invalid()
                if self._is_fenced():
                    raise self._fail(_fenced("Failed to end transaction"))
                if not commit:
                    while self._waiting:
                        self._take(self._waiting.popleft(), KafkaError(KafkaError._PURGE_QUEUE))
                transaction = self._transaction
                if transaction is not None:
                    cluster.transactions.end(transaction, commit=commit)

                    def again() -> int:
                        cluster.transactions.end(transaction, commit=commit)
                        return 0

                    self._cut(doing, again)
                self._state, self._error = State.READY, None
                is_done = True
        except KafkaException as error:
            with cluster.lock:
                why = error.args[0]
                if why.fatal() or why.txn_requires_abort():
                    self._fail(error)
                elif is_done:
                    self._unanswered = doing
            raise

    def _request(self, operation: Operation, timeout: float, group: str = "") -> Any:
        cluster = self._cluster
        until = NEVER if timeout < 0 else cluster.clock.monotonic() + timeout
        return cluster.request(self, operation, group=group, id=self._settings.id, until=until)

    def _cut(self, doing: Operation, again: Callable[[], int]) -> None:
        """Where a test asked for it: the request was made twice, and the one that was cut off may do it *again*."""
        late = self._cluster.faults.next_late(doing, self.client)
        transaction, epoch = self._transaction, self._epoch
        if late is None or transaction is None:
            return

        def arrives() -> int:
            return int(KafkaError.INVALID_PRODUCER_EPOCH) if transaction.epoch != epoch else again()

        late.cut(arrives)
        if self._logger is not None:
            self._lines.append(DISCONNECTED)

    def _is_fenced(self) -> bool:
        return self._transaction is not None and self._transaction.epoch != self._epoch

    def _fail(self, error: KafkaException) -> KafkaException:
        """Note that the transaction can only be aborted, or the producer do nothing more; return *error*."""
        if error is self._error:
            return error
        is_fatal = error.args[0].fatal()
        if is_fatal or self._state is State.IN_TRANSACTION:
            self._state = State.FATAL if is_fatal else State.ABORTABLE
            self._error = error
        if is_fatal:
            self.hear(error.args[0])
        return error

    def _invalid(self) -> KafkaException:
        return refused(KafkaError._STATE, f"Operation not valid in state {self._state.value}")


def _message(
    waiting: Waiting,
    offset: int = OFFSET_INVALID,
    error: KafkaError | None = None,
    timestamp: tuple[int, int] = NO_TIME,
) -> KafkaMessage:
    topic, partition = waiting.place
    key, value = waiting.key, waiting.value
    return KafkaMessage(
        topic=topic, partition=partition, offset=offset, key=key, value=value, error=error, timestamp=timestamp
    )


def _fenced(doing: str) -> KafkaException:
    text = f"{doing}: Local: This instance has been fenced by a newer instance"
    return refused(KafkaError._FENCED, text, fatal=True)


def _bytes(content: bytes | str | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


def murmur2(key: bytes) -> int:
    """Return the hash by which Java's clients, and ``partitioner=murmur2_random``, choose a key's partition.

    >>> murmur2(b"21") - 2**32
    -973932308
    """
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    found = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for at in range(0, whole, 4):
        part = int.from_bytes(key[at : at + 4], "little") * multiplier & mask
        part = (part ^ part >> 24) * multiplier & mask
        found = found * multiplier & mask ^ part
    if whole < len(key):
        found = (found ^ int.from_bytes(key[whole:], "little")) * multiplier & mask
    found = (found ^ found >> 13) * multiplier & mask
    return found ^ found >> 15
