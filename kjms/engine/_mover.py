"""Moves messages: one Kafka transaction writes the copies elsewhere and settles the originals."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as KafkaMessage

from kjms.engine._errors import jms_error, kafka_error
from kjms.errors import JMSException
from kjms.mapping import KafkaRecord
from kjms.mapping.names import transactional_id
from kjms.txn.metadata import History
from kjms.txn.states import NEVER

if TYPE_CHECKING:
    from kjms.engine._delivery import Delivery
    from kjms.engine._reader import Reader

__all__ = ["Copy", "Made", "Move", "Mover", "OutgrownError"]

_log = logging.getLogger("kjms.mover")

BATCH: Final = 500  # messages in one transaction: a transaction costs as much as a hundred of them
FLUSH_SECONDS: Final = 10.0  # how long the copies may take: nothing is held up meanwhile
COMMIT_SECONDS: Final = 10.0  # how long a call may take before it is made again
TRANSACTION_MS: Final = 15_000  # readers of a group whose owner died in a transaction wait that long at the most
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds between attempts
LARGEST_RECORD: Final = 1_000_000_000  # bytes: what was read can be written, so that the broker's limit decides
LEANEST: Final = 2  # how often a copy can be made smaller
LEANER: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})


class Copy(NamedTuple):
    """A copy of a message, and where it goes."""

    topic: str
    partition: int
    record: KafkaRecord
    history: History = NEVER
    """What the copy tells of what happened to the message before."""


class Move(NamedTuple):
    """A message that is to be moved.

    Attributes:
        delivery: The message.
        copy: Makes its copy; told how often the copy was too large for its target, to leave more and more out.
        is_aside: Whether the message goes on from its copy, as if nothing had happened; else it is done with here.
    """

    delivery: Delivery
    copy: Callable[[int], Copy]
    is_aside: bool


Made = tuple[Move, History, tuple[int, int]]
"""A move, the history that its copy tells, and the copy's partition and offset."""


class OutgrownError(JMSException):
    """More was settled, or handed out, while messages were being moved: now it takes more of them to make room."""


class _AbortedError(Exception):
    """The transaction was aborted; the cause says why."""

    def __init__(self, cause: JMSException, *, is_too_large: bool = False) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.is_too_large = is_too_large


class Mover:
    """The engine's mover, with a thread and a transactional producer of its own from the first move on.

    A message that cannot be moved stays unsettled where it is, and is tried again.

    Args:
        config: librdkafka's settings of the producer.
        engine: The engine's name, from which comes the producer's name in Kafka.
        tell: Told of trouble that lasts.
    """

    def __init__(self, config: Mapping[str, Any], engine: str, tell: Callable[[JMSException], None]) -> None:
        self._config = {
            **config,
            "transactional.id": transactional_id(engine),
            "enable.idempotence": True,
            "transaction.timeout.ms": TRANSACTION_MS,
            "message.timeout.ms": TRANSACTION_MS,
            "message.max.bytes": LARGEST_RECORD,
            "partitioner": "murmur2_random",
            # Transactions in a row: the coordinator has Kafka ask again until the last one's markers are written.
            "retry.backoff.ms": 5,
            "retry.backoff.max.ms": 250,
        }
        self._id = transactional_id(engine)
        self._tell = tell
        self._moves: deque[tuple[Reader, list[Move]]] = deque()  # what belongs together is moved together
        self._news = threading.Condition()
        self._busy = 0
        self._alone = 0  # so many go one by one, after they failed together
        self._told = ""
        self._closing = False
        self._thread: threading.Thread | None = None
        self._producer: Producer | None = None

    def submit(self, reader: Reader, moves: Sequence[Move]) -> None:
        """Move messages that *reader* holds, soon and in their order, *moves* all in one transaction."""
        if not moves:
            return
        with self._news:
            self._moves.append((reader, list(moves)))
            if self._thread is None and not self._closing:
                self._thread = threading.Thread(target=self._run, name=f"{self._id}-mover", daemon=True)
                self._thread.start()
            self._news.notify_all()

    def fence(self, engine: str) -> None:
        """End the transaction that *engine*, which is gone or slept, left open; it can commit none any more.

        Raises:
            KafkaException: Kafka does not let us.
        """
        Producer({**self._config, "transactional.id": transactional_id(engine)}).init_transactions(COMMIT_SECONDS)

    def close(self, seconds: float) -> None:
        """Do what is left to do, for *seconds* at the most, and end; what is not done stays where it was."""
        with self._news:
            self._news.wait_for(lambda: not self._moves and not self._busy, seconds if self._thread else 0)
            self._closing = True
            self._news.notify_all()
        if self._thread is not None:
            self._thread.join(seconds + COMMIT_SECONDS)

    # The thread.

    def _run(self) -> None:
        pause = FIRST_PAUSE
        while True:
            with self._news:
                self._news.wait_for(lambda: self._moves or self._closing)
                if self._closing:
                    break
                reader, batch = self._take()
            try:
                self._carry_out(reader, batch)
                pause = FIRST_PAUSE
            except Exception as error:
                self._put_back(reader, batch, error)
                pause = self._rest(pause, batch, error)
            finally:
                with self._news:
                    self._busy = 0
                    self._news.notify_all()
        self._producer = None  # an open transaction is aborted when the producer goes

    def _take(self) -> tuple[Reader, list[Move]]:
        reader, batch = self._moves.popleft()
        if self._alone:
            self._alone -= 1
        else:
            while self._moves and self._moves[0][0] is reader and len(batch) < BATCH:
                batch += self._moves.popleft()[1]
        self._busy = len(batch)
        return reader, batch

    def _put_back(self, reader: Reader, batch: list[Move], error: Exception) -> None:
        aside = [move for move in batch if move.is_aside]  # only together they make the settlement fit
        single = [[move] for move in batch if not move.is_aside]
        if isinstance(error, _AbortedError) and isinstance(error.cause, OutgrownError):
            reader.forget(aside)  # others are to go with them
            aside = []
        if isinstance(error, _AbortedError) and error.is_too_large and len(batch) == 1:
            batch[0].delivery.too_large += 1  # else the batch was too large, and perhaps no message of it
        units = [unit for unit in (*single, aside) if unit]
        with self._news:
            self._moves.extend((reader, unit) for unit in units)  # at the end: they hold up nobody else's
            self._alone = max(self._alone, len(units) if len(batch) > 1 else 0)

    def _rest(self, pause: float, batch: list[Move], error: Exception) -> float:
        failure = error.cause if isinstance(error, _AbortedError) else error
        is_too_large = isinstance(error, _AbortedError) and error.is_too_large
        if isinstance(failure, OutgrownError) or (
            is_too_large and (len(batch) > 1 or (not batch[0].is_aside and batch[0].delivery.too_large <= LEANEST))
        ):
            _log.debug("%s; tried again, otherwise", failure)
            return pause
        _log.warning("%s; tried again in %.1f s", failure, pause)
        if str(failure) != self._told:  # not each time that it fails for the same reason
            self._told = str(failure)
            self._tell(failure if isinstance(failure, JMSException) else JMSException(self._told, None, failure))
        with self._news:
            others = any(unit[0] not in batch for _, unit in self._moves)
            self._news.wait_for(lambda: self._closing, FIRST_PAUSE if others else pause)
        return min(pause * 2, LONGEST_PAUSE)

    # One transaction.

    def _carry_out(self, reader: Reader, batch: list[Move]) -> None:
        """Move *batch*.

        Raises:
            _AbortedError: It was not moved.
        """
        batch[:] = reader.still_held(batch)
        if not batch:
            return
        copies = [move.copy(move.delivery.too_large) for move in batch]
        producer = self._begin()
        try:
            places = self._write(producer, copies)
            told = [copy.history for copy in copies]
            self._settle(producer, reader, [*zip(batch, told, places, strict=True)])
        except _AbortedError:
            raise
        except KafkaException as error:
            raise _AbortedError(self._undo(producer, error)) from error
        except BaseException as error:
            self._abort(producer)
            raise _AbortedError(error if isinstance(error, JMSException) else JMSException(repr(error))) from error

    def _begin(self) -> Producer:
        producer = self._producer
        if producer is None:
            try:
                producer = Producer(self._config)
                producer.init_transactions(COMMIT_SECONDS)
            except KafkaException as error:
                raise jms_error(error, "prepare to move messages") from error
            self._producer = producer
        try:
            producer.begin_transaction()
        except KafkaException as error:
            self._producer = None
            raise jms_error(error, "move messages") from error
        return producer

    def _write(self, producer: Producer, copies: list[Copy]) -> list[tuple[int, int]]:
        """Write *copies*; return the partition and offset of each."""
        places: list[tuple[int, int]] = [(-1, -1)] * len(copies)
        failures: dict[int, KafkaError] = {}

        def report(number: int) -> Callable[[KafkaError | None, KafkaMessage], None]:
            def on_delivery(error: KafkaError | None, message: KafkaMessage) -> None:
                if error is not None:
                    failures[number] = error
                else:
                    places[number] = message.partition() or 0, message.offset() or 0

            return on_delivery

        for number, (topic, partition, record, _) in enumerate(copies):
            key, value, headers, timestamp = record
            try:
                producer.produce(
                    topic, value, key, partition, headers=headers, timestamp=timestamp, on_delivery=report(number)
                )
            except KafkaException as error:
                failures[number] = kafka_error(error)
                break
            producer.poll(0)
        # The target may be dead: wait for it before anything of the source is touched.
        if not failures and producer.flush(FLUSH_SECONDS):
            raise JMSException(f"move messages to {copies[0].topic}: not confirmed within {FLUSH_SECONDS:.0f} s")
        if failures:
            first, why = next(
                ((n, failure) for n, failure in failures.items() if failure.code() != KafkaError._PURGE_QUEUE),
                next(iter(failures.items())),
            )
            is_too_large = any(failure.code() in LEANER for failure in failures.values())
            self._abort(producer)
            raise _AbortedError(jms_error(why, f"move a message to {copies[first].topic}"), is_too_large=is_too_large)
        return places

    def _settle(self, producer: Producer, reader: Reader, made: list[Made]) -> None:
        """Settle the originals in the transaction, and end it: nobody else commits for the group meanwhile."""
        with reader.client_held(COMMIT_SECONDS):
            commits, group = reader.plan_moves(made)
            try:
                if commits:
                    producer.send_offsets_to_transaction([commit.offset for commit in commits], group, COMMIT_SECONDS)
                self._commit(producer, reader, commits)
            except BaseException:
                reader.unplan_moves(made)
                raise
            reader.moved(commits, made)

    def _commit(self, producer: Producer, reader: Reader, commits: Sequence[Any]) -> None:
        """End the transaction, and return when it is known that it came through."""
        while True:
            try:
                producer.commit_transaction(COMMIT_SECONDS)
            except KafkaException as error:
                if kafka_error(error).retriable() and not self._closing:
                    continue  # its outcome is not known before it is answered
                if not kafka_error(error).fatal() or not self._was_committed(reader, commits):
                    raise
            return

    def _was_committed(self, reader: Reader, commits: Sequence[Any]) -> bool:
        """After a fatal error in a commit: find out what became of it."""
        while True:
            self._producer = None
            try:
                self._begin_anew()
                return bool(commits) and reader.has_committed(commits)
            except KafkaException as error:
                _log.warning("what became of a transaction is not known yet: %s", error)
                with self._news:
                    if self._news.wait_for(lambda: self._closing, FIRST_PAUSE * 10):
                        raise

    def _begin_anew(self) -> None:
        """End, in Kafka, what the last producer of this name left open."""
        producer = Producer(self._config)
        producer.init_transactions(COMMIT_SECONDS)
        self._producer = producer

    def _undo(self, producer: Producer, error: KafkaException) -> JMSException:
        """Abort the transaction, or give the producer up; return what went wrong."""
        if kafka_error(error).fatal():
            self._producer = None
        else:
            self._abort(producer)
        return jms_error(error, "move messages")

    def _abort(self, producer: Producer) -> None:
        try:
            producer.abort_transaction(COMMIT_SECONDS)
        except KafkaException as error:
            _log.debug("a transaction could not be aborted: %s", error)
            self._producer = None  # the next one's beginning ends it
