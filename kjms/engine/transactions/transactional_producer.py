"""Write and settle messages in one Kafka transaction: all of it is committed, or nothing."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

from kjms.engine.delivery_reports import NOT_PROVED
from kjms.engine.interrupts import Condition
from kjms.engine.kafka import (
    KafkaError,
    KafkaException,
    ProducerPort,
    TopicPartition,
    jms_error,
    kafka_error,
    open_producer,
)
from kjms.engine.settings import KEEP_BROKERS
from kjms.engine.statistics import TransactionStatistics
from kjms.engine.threads import start_thread
from kjms.engine.transactions import plan
from kjms.engine.transactions.call_thread import CallThread, GivenUpError
from kjms.engine.transactions.errors import AbortedError, UnknownError
from kjms.engine.transactions.plan import Copy, Move, PlannedCommit, TransactionPart
from kjms.engine.transactions.unanswered import ProducerLog, logged
from kjms.engine.transactions.written import Written
from kjms.engine.tuning import DEFAULTS, Tuning
from kjms.errors import JMSException
from kjms.mapping.names import is_internal

__all__ = ["TransactionalProducer"]

_log = logging.getLogger("kjms.transactions")

COMMIT_SECONDS: Final = 10.0  # how long a call may take before it is made again
SETTLE_SECONDS: Final = 5.0  # librdkafka may not keep it (its issues 5456, 5511), and has a second to do so
TRANSACTION_MS: Final = 30_000  # consumers wait at most that long for the open transaction of a dead process
PAUSE_SECONDS: Final = 0.1  # between attempts to find something out
LARGEST_RECORD: Final = 1_000_000_000  # bytes: what was read can be written, so that the broker's limit decides
LEANER: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
CONSEQUENCES: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._STATE})  # of another record's failure
PASSING: Final = frozenset({KafkaError._FATAL, NOT_PROVED})  # with the next producer, the same records may be written
MOVING: Final = frozenset(  # the consumer's partitions, as the next poll says, or the coordinator's broker
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError._DESTROY_BROKER,
    }
)

Unit = TypeVar("Unit")
Settler: TypeAlias = plan.Settler[Any]


class TransactionalProducer(Generic[Unit]):
    """A transactional producer with a thread, which carries out units of work in order, several in one transaction.

    A unit that comes alone may be carried out by the thread that brings it. So one thread at a time is *busy*: it has
    the producer.

    Args:
        config: librdkafka's settings of the producer.
        transactional_id: Its name in Kafka, used by no other producer.
        tuning: Its times and limits.
    """

    def __init__(self, config: Mapping[str, Any], transactional_id: str, tuning: Tuning = DEFAULTS) -> None:
        self._flush_seconds = tuning.flush_seconds
        self._config = {
            **KEEP_BROKERS,
            **config,
            "transactional.id": transactional_id,
            "enable.idempotence": True,
            "transaction.timeout.ms": TRANSACTION_MS,
            "message.timeout.ms": TRANSACTION_MS,
            "message.max.bytes": LARGEST_RECORD,
            "partitioner": "murmur2_random",
            "linger.ms": 1,
            # Transactions in a row: the coordinator has Kafka ask again until the last one's markers are written.
            "retry.backoff.ms": 2,
            "retry.backoff.max.ms": 20,
        }
        self._id = transactional_id
        self._units: deque[Unit] = deque()
        self._changed = Condition()
        self._is_busy = False
        self._closing = False
        self._thread: threading.Thread | None = None
        self._producer: ProducerPort | None = None
        self._log: ProducerLog | None = None  # of the producer that was opened last
        self._settling = CallThread(f"{transactional_id}-settling")
        self._may_hang = True  # settling: where coordinators move from one broker to another
        self._commits = self._failures = 0  # transactions, ever

    def statistics(self) -> TransactionStatistics:
        """Return what it has done, and has to do."""
        with self._changed:
            is_started = self._thread is not None or self._is_busy or self._commits + self._failures > 0
            return TransactionStatistics(
                self._id, is_started, self._is_busy, len(self._units), self._commits, self._failures
            )

    @property
    def thread(self) -> threading.Thread | None:
        """Its thread; None before the first unit that no other thread carries out, and where it needs none."""
        return self._thread

    def _submit(self, unit: Unit) -> bool:
        """Have *unit* carried out soon; return whether that is still possible."""
        with self._changed:
            if self._closing:
                return False
            self._units.append(unit)
            if self._thread is None:
                self._thread = start_thread(self._run, self._id)
            self._changed.notify_all()
            return True

    def close(self, seconds: float) -> None:
        """Carry out what waits, for *seconds* at the most, and end; the rest stays where it was."""
        with self._changed:
            self._changed.wait_for(self._is_done, seconds)
            self._closing = True
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: not self._is_busy, seconds + COMMIT_SECONDS):
                return  # the thread that is busy drops the producer
        if self._thread is not None:
            self._thread.join(COMMIT_SECONDS)
        self._producer = None  # an open transaction is aborted when the producer goes
        self._settling.end()

    def _is_done(self) -> bool:
        """Return whether closing has nothing to wait for; the caller holds the lock."""
        return not self._units and not self._is_busy

    def _carry_out_here(self, unit: Unit) -> bool:
        """Carry out *unit* in the present thread, if no other one is waiting or under way; return whether it was.

        It takes a seventh longer to have the other thread do it, and to wait for that. The main thread never does it:
        an interrupt would end it half-way.
        """
        if threading.current_thread() is threading.main_thread():
            return False
        with self._changed:
            if self._closing or self._is_busy or self._units:
                return False
            self._is_busy = True
        self._carry_out_busily([unit])
        return True

    def _carry_out_busily(self, batch: list[Unit]) -> None:
        """Carry out *batch*, and be busy no longer."""
        try:
            self._carry_out(batch)
        except Exception as error:
            self._failed(batch, error)
        except BaseException as error:
            self._failed(batch, RuntimeError(repr(error)))
            raise
        finally:
            if self._closing:  # `close` may not have waited
                self._producer = None
                self._settling.end()
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()

    # The thread.

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._is_busy and (self._units or self._closing))
                if self._closing:
                    break
                batch = self._take()
                self._is_busy = True
            self._carry_out_busily(batch)

    def _take(self) -> list[Unit]:
        """Take the units for the next transaction; the caller holds the lock."""
        raise NotImplementedError

    def _carry_out(self, batch: list[Unit]) -> None:
        raise NotImplementedError

    def _failed(self, batch: list[Unit], error: Exception) -> None:
        """Report *error*, or put *batch* back."""
        raise NotImplementedError

    # One transaction.

    def _transact(self, parts: Sequence[TransactionPart], *, is_singly: bool = False) -> None:
        """Write and settle all of *parts*.

        Args:
            parts: What is to be done.
            is_singly: Write one record after the other: together they are larger than their topic allows.

        Raises:
            AbortedError: Nothing was.
            JMSException: Nothing was: it could not even be begun.
        """
        try:
            self._write_and_settle(parts, is_singly=is_singly)
        except BaseException:
            self._failures += 1
            raise
        self._commits += 1

    def _write_and_settle(self, parts: Sequence[TransactionPart], *, is_singly: bool) -> None:
        producer = self._begin()
        try:
            written = Written()
            self._write(producer, parts, written, is_singly=is_singly)
            self._settle(producer, parts, written.place_of_first())
        except (AbortedError, UnknownError):
            raise
        except KafkaException as error:
            raise self._undone(producer, error) from error
        except BaseException as error:
            self._abort(producer)
            raise AbortedError(error if isinstance(error, JMSException) else JMSException(repr(error))) from error
        if self._producer is producer and self._is_in_doubt(producer):
            _log.info("%s: a request may arrive again; a new epoch refuses it", self._id)
            self._leave()

    def _begin(self) -> ProducerPort:
        producer = self._producer
        if producer is None:
            try:
                self._begin_anew()
            except KafkaException as error:
                raise jms_error(error, "prepare a transaction", transactional_id=self._id) from error
            producer = self._producer
            assert producer is not None
        try:
            producer.begin_transaction()
        except KafkaException as error:
            self._producer = None
            raise AbortedError(jms_error(error, "begin a transaction"), is_passing=True) from error
        return producer

    def _leave(self) -> None:
        """Use the producer no more: the next one's beginning fences its requests."""
        self._producer = None

    def _is_in_doubt(self, producer: ProducerPort) -> bool:
        """Return whether a request of the last transaction may arrive in the next one of the same epoch."""
        try:
            producer.poll(0)  # the log's lines
        except Exception as error:  # a fatal error; the transaction is committed all the same
            _log.debug("%s: %s", self._id, error)
            return True
        return self._log is not None and self._log.is_in_doubt

    def _write(
        self, producer: ProducerPort, parts: Sequence[TransactionPart], written: Written, *, is_singly: bool
    ) -> None:
        """Write the copies of *parts*, and note in each move where its copy is."""
        asked: set[str] = set()  # topics whose partitions were asked for
        produce, report, failures = producer.produce, written.report, written.failures
        for number, (move, (topic, partition, record, history)) in enumerate(_copies(parts)):
            key, value, headers, timestamp = record
            if move is not None:
                move.told = history
            written.add(topic, partition, move)
            while True:
                try:
                    produce(topic, value, key, partition, headers=headers, timestamp=timestamp, on_delivery=report)
                except BufferError:
                    self._await_some(producer, written)
                    continue
                except KafkaException as error:
                    if kafka_error(error).code() == KafkaError._UNKNOWN_PARTITION and topic not in asked:
                        asked.add(topic)  # it may have been given partitions
                        producer.list_topics(topic, COMMIT_SECONDS)
                        continue
                    producer.poll(PAUSE_SECONDS)  # another record's failure may be the reason
                    failures.append((topic, kafka_error(error)))
                break
            if is_singly:
                self._await_some(producer, written)
            if failures:
                break
            if not number & 0xFF:
                producer.poll(0)
        # The target may be dead: wait for it before anything of the source is touched.
        while not failures and len(producer):
            self._await_some(producer, written)
        if failures:
            self._raise_for(producer, written)
        written.note_places()

    def _await_some(self, producer: ProducerPort, written: Written) -> None:
        """Return when some of the records have been confirmed, or not."""
        before = len(producer)
        deadline = time.monotonic() + self._flush_seconds
        while producer.flush(PAUSE_SECONDS) >= before and not written.failures:  # after a failure the rest is not sent
            if time.monotonic() > deadline:
                self._producer = None  # it may have forgotten the brokers (`KEEP_BROKERS`), and finds none any more
                raise JMSException(
                    f"write to {', '.join(map(repr, written.unconfirmed()))}: not confirmed within"
                    f" {self._flush_seconds:.0f} s; a partition has no leader, or fewer in-sync replicas than"
                    " min.insync.replicas asks for"
                )

    def _raise_for(self, producer: ProducerPort, written: Written) -> None:
        """Abort, and raise the first failure that is not the consequence of another."""
        failures = written.failures
        topic, why = next(((t, failure) for t, failure in failures if failure.code() not in CONSEQUENCES), failures[0])
        is_too_large = any(failure.code() in LEANER for _, failure in failures)
        if why.code() in CONSEQUENCES:  # librdkafka does not say which topic was the reason: most likely the program's
            topic = next((each for each in written.topics if not is_internal(each)), topic)
            why = self._why(producer) or why
        self._abort(producer)
        raise AbortedError(
            jms_error(why, f"write to {topic!r}", to="Write", topic=topic),
            is_too_large=is_too_large,
            is_passing=why.fatal() or why.code() in PASSING,
        )

    def _why(self, producer: ProducerPort) -> KafkaError | None:
        """Return why the transaction of *producer* can only be aborted: the next call of any kind raises it."""
        try:
            producer.begin_transaction()
        except KafkaException as error:
            return None if kafka_error(error).code() == KafkaError._STATE else kafka_error(error)
        return None

    def _settle(self, producer: ProducerPort, parts: Sequence[TransactionPart], first: TopicPartition | None) -> None:
        """Settle in the transaction, and commit it, while no other thread can commit for the groups."""
        made: dict[Settler, list[Move[Any]]] = {}
        settled: dict[Settler, list[Any]] = {}
        for part in parts:
            if part.settler is not None:
                made.setdefault(part.settler, []).extend(part.moves)
                settled.setdefault(part.settler, []).extend(part.deliveries)
        with contextlib.ExitStack() as stack:
            for settler in made:
                stack.enter_context(settler.client.held(COMMIT_SECONDS))
            commits: dict[Settler, Sequence[PlannedCommit]] = {}
            try:
                groups = {}
                for settler, moved in made.items():
                    commits[settler], groups[settler] = settler.plan(moved, settled[settler])
                for settler, planned in commits.items():
                    if planned:
                        offsets = [commit.offset for commit in planned]
                        self._settle_offsets(producer, offsets, groups[settler])
                self._commit(producer, commits, first)
            except BaseException as error:
                for settler, moved in made.items():
                    settler.unplan(moved)
                    if isinstance(error, UnknownError) and self._closing:
                        settler.committer.stop()
                raise
            for settler, planned in commits.items():
                settler.done(planned, made[settler], settled[settler])

    def _settle_offsets(self, producer: ProducerPort, offsets: list[TopicPartition], group: Any) -> None:
        """Send *offsets* to the transaction, where there are several brokers in a thread that may be left to the call.

        A single broker is its own successor: the call continues when it is back.

        Raises:
            KafkaException: They were not taken, or there was no answer in time.
        """
        if not self._may_hang:
            producer.send_offsets_to_transaction(offsets, group, SETTLE_SECONDS)
            return
        try:
            self._settling.call(
                SETTLE_SECONDS + 1, producer.send_offsets_to_transaction, offsets, group, SETTLE_SECONDS
            )
        except GivenUpError as error:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, str(error), retriable=True)) from error

    def _commit(
        self, producer: ProducerPort, commits: Mapping[Settler, Sequence[PlannedCommit]], first: TopicPartition | None
    ) -> None:
        """Commit the transaction, in which *first* was written, and return when its outcome is known.

        Raises:
            AbortedError: It was not committed, and may be made again.
            UnknownError: The program closes, and does not wait for the outcome.
        """
        deadline = time.monotonic() + COMMIT_SECONDS
        while True:
            try:
                producer.commit_transaction(COMMIT_SECONDS)
            except KafkaException as error:
                if kafka_error(error).retriable():
                    if self._closing:
                        raise UnknownError("transaction outcome unknown: the broker has not answered yet") from error
                    if time.monotonic() < deadline:
                        continue
                    # It may have forgotten the brokers (`KEEP_BROKERS`): the next one finds them, and the outcome.
                elif not kafka_error(error).fatal():
                    raise
                if not self._was_committed(commits, first):
                    raise AbortedError(jms_error(error, "commit a transaction"), is_passing=True) from error
            return

    def _was_committed(self, commits: Mapping[Settler, Sequence[PlannedCommit]], first: TopicPartition | None) -> bool:
        """Return whether the transaction was committed, after a fatal error in its commit.

        Raises:
            UnknownError: That cannot be done.
        """
        while True:
            self._producer = None
            try:
                self._begin_anew()
                for settler, planned in commits.items():
                    if planned:
                        is_there = settler.committer.has_committed(planned)
                        return self._is_visible(first) if is_there is None else is_there
                return self._is_visible(first)
            except UnknownError:
                raise
            except (KafkaException, JMSException) as error:
                _log.warning("transaction outcome unknown, asking again: %s", error)
                with self._changed:
                    if self._changed.wait_for(lambda: self._closing, PAUSE_SECONDS * 10):
                        raise UnknownError(f"transaction outcome unknown: {error}") from error

    def _is_visible(self, first: TopicPartition | None) -> bool:
        """Return whether consumers of committed records see the one at *first*.

        Raises:
            UnknownError: That cannot be found out.
        """
        return False

    def _begin_anew(self) -> None:
        """Fence the last producer of this name; the broker aborts what it left open."""
        config, self._log = logged({**self._config, "transactional.id": self._id})
        self._producer = self._open(config)

    def _open(self, config: Mapping[str, Any]) -> ProducerPort:
        """Return a producer that has fenced the last one of its name.

        Raises:
            KafkaException: Kafka does not let us, or no broker answers.
        """
        producer = open_producer(config)
        known = producer.list_topics("", COMMIT_SECONDS)  # connects: else it may look for its coordinator 500 ms later
        self._may_hang = len(known.brokers) > 1
        producer.init_transactions(COMMIT_SECONDS)
        return producer

    def _undone(self, producer: ProducerPort, error: KafkaException) -> AbortedError:
        """Abort the transaction, unless the next producer has to; return the error."""
        is_passing = kafka_error(error).fatal() or kafka_error(error).retriable()
        if is_passing:
            self._producer = None  # it may have forgotten the brokers (`KEEP_BROKERS`); the next one ends what is open
        else:
            self._abort(producer)
        is_passing = is_passing or kafka_error(error).code() in MOVING
        return AbortedError(jms_error(error, "commit a transaction"), is_passing=is_passing)

    def _abort(self, producer: ProducerPort) -> None:
        try:
            producer.abort_transaction(COMMIT_SECONDS)
        except KafkaException as error:
            _log.debug("a transaction could not be aborted: %s", error)
        self._producer = None  # the abort, or a request before it, may have been repeated, and arrive again

    def fence(self, transactional_ids: Iterable[str]) -> None:
        """Fence producers of those names, of an engine that is gone or slept; the broker aborts what they left open.

        Raises:
            KafkaException: Kafka does not let us.
        """
        for name in transactional_ids:
            self._open({**self._config, "transactional.id": name})


def _copies(parts: Iterable[TransactionPart]) -> Iterator[tuple[Move[Any] | None, Copy]]:
    """Return the copies of *parts*, one by one, each with the move that it belongs to; None: it belongs to none."""
    for part in parts:
        for copy in part.copies:
            yield None, copy
        for move in part.moves:
            yield move, move.copy(move.delivery)
