"""One Kafka consumer, its thread, and the messages it holds ready for the JMS consumers of this process."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from kjms.destinations import Destination
from kjms.engine._buffer import Buffer, Delivery, Feed, Partition
from kjms.engine._errors import jms_error, kafka_error
from kjms.errors import JMSException

if TYPE_CHECKING:
    from kjms.mapping.bridges import Decoder
    from kjms.selector import Selector

__all__ = ["Reader"]

_log = logging.getLogger("kjms.reader")

TICK_SECONDS: Final = 0.1  # how long a settled message of a lazy mode may wait for its commit
SHORT_POLL_SECONDS: Final = 0.005  # a poll holds up commits, so it is short while messages are in hands
BATCH: Final = 500  # records taken from librdkafka at once; more gains nothing
RETRY_SECONDS: Final = 1.0  # between a failure of the thread and its next life
GRACE_SECONDS: Final = 3.0  # consumers come and go; joining a group again costs more than waiting
PAUSE_SECONDS: Final = 1.0  # a pause discards what was fetched, so only a long stall is worth one
COMMIT_SECONDS: Final = 10.0  # how long a commit is tried again for what passes: a rebalance, a broker restarted
CLOSE_SECONDS: Final = 5.0  # how long closing waits for a Kafka that does not answer
MAX_UNWANTED: Final = 100_000  # messages no selector here wants are kept in memory, up to so many

_PASSING: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError._ASSIGNMENT_LOST,
        KafkaError._STATE,
        KafkaError._WAIT_COORD,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError.REQUEST_TIMED_OUT,
    }
)


class Reader:
    """Reads one Kafka topic for one queue or subscription, and serves all its consumers in this process.

    The thread runs, and is a member of the group, while a started consumer is there. It alone polls Kafka. Whoever
    settles messages commits them, one at a time; what others settled meanwhile goes along.

    Args:
        destination: What it reads; its messages say that they were sent to it.
        name: The destination's name, for thread names and logs.
        config: librdkafka's settings of the consumer.
        topic: The Kafka topic.
        starts: Without a group: the offset from which each partition is read. None: the group knows.
        keeps_unwanted: Whether a message that no selector here wants stays (a queue) or is done with (a subscription).
        prefetch: How many messages it holds ready.
        decode: How its records are read.
        on_error: Told of errors that only the connection's exception listener can hear.
    """

    def __init__(
        self,
        destination: Destination,
        name: str,
        config: Mapping[str, Any],
        topic: str,
        *,
        starts: Mapping[int, int] | None,
        keeps_unwanted: bool,
        prefetch: int,
        decode: Decoder,
        on_error: Callable[[JMSException], None],
    ) -> None:
        self.destination = destination
        self.name = name
        self.topic = topic
        self._config = dict(config)
        self._starts = starts
        self._prefetch = prefetch
        self._decode = decode
        self._on_error = on_error
        self._lock = threading.RLock()
        self._news = threading.Condition(self._lock)
        # One thread at a time may be inside of the Kafka consumer. Never waited for by who holds `_lock`.
        self._client = threading.Lock()
        self._committing = 0  # threads that wait for it to commit
        self._consumer: Consumer | None = None
        self._thread: threading.Thread | None = None
        self._partitions: dict[int, Partition] = {}
        self._buffer = Buffer(destination, keeps_unwanted=keeps_unwanted, limit=prefetch)
        self._orders = itertools.count()
        self._is_active = False  # whether messages were taken since the last poll, whose commits may be near
        self._in_hands = 0  # messages handed out and not settled
        self._started = 0
        self._idle_since = 0.0
        self._closing = False

    def __repr__(self) -> str:
        return (
            f"<Reader {self.name}: partitions {sorted(self._partitions)}, {self._buffer.held} ready,"
            f" {self._in_hands} in hands, {self._started} consumers started>"
        )

    # Consumers come and go.

    def add_feed(self, selector: Selector | None, wakeup: threading.Event) -> Feed:
        """Return a new consumer's feed; it is not started."""
        return Feed(self, selector, wakeup)

    def remove_feed(self, feed: Feed) -> None:
        """Take the consumer of *feed* away; what it was to get goes to others."""
        with self._lock:
            feed.is_open = False
            self.stop_feed(feed)
        feed.wakeup.set()

    def start_feed(self, feed: Feed) -> None:
        """Let messages come to *feed*, and begin to read if nobody else had asked for it.

        Raises:
            JMSException: librdkafka refuses a setting.
        """
        with self._lock:
            if feed.is_started or not feed.is_open:
                return
            if self._thread is None and not self._closing:
                self._begin()
            feed.is_started = True
            self._started += 1
            self._idle_since = 0.0
            self._buffer.join(feed)
        feed.wakeup.set()

    def stop_feed(self, feed: Feed) -> None:
        """Hold messages back from *feed*."""
        with self._lock:
            if not feed.is_started:
                return
            feed.is_started = False
            self._started -= 1
            if not self._started:
                self._idle_since = time.monotonic()
            self._buffer.leave(feed)

    def rest(self, feed: Feed) -> None:
        """Note that the consumer of *feed* stopped waiting."""
        with self._lock:
            self._buffer.rest(feed)

    # Messages go out and come back.

    def take(self, feed: Feed) -> Delivery | None:
        """Return the next message for *feed*, or note that it waits for one."""
        with self._lock:
            buffer = self._buffer
            delivery = buffer.take(feed)
            if delivery is None:
                if feed.is_started:
                    self._news.notify()
                return None
            self._in_hands += 1
            self._is_active = True
            if buffer.held == self._prefetch >> 1:
                self._news.notify()
            return delivery

    def settle(self, delivery: Delivery) -> None:
        """Note that *delivery* is done; Kafka is told by the next `flush`."""
        with self._lock:
            self._in_hands -= 1
            delivery.partition.settlement.settle(delivery.offset)

    def give_back(self, deliveries: Iterable[Delivery], *, to: Feed | None = None, is_counted: bool = True) -> None:
        """Take back messages that were handed out: they are delivered again, in their order.

        Args:
            deliveries: The messages, oldest first.
            to: The consumer that gets them again; None, or one that is stopped: whoever wants them.
            is_counted: Whether they come marked as redelivered: they do, unless no application saw them.
        """
        with self._lock:
            again = []
            for delivery in deliveries:
                self._in_hands -= 1
                delivery.count += is_counted
                delivery.decoded = None
                if delivery.partition.is_held:
                    again.append(delivery)
            if to is None or not to.is_started:
                self._buffer.put_back(again)
            else:
                to.returned.extendleft(reversed(again))
                to.wakeup.set()

    # What is settled is told to Kafka.

    def flush(self, patience: float = COMMIT_SECONDS) -> None:
        """Return when Kafka knows everything that was settled before the call.

        What cannot be committed because the partition went to another member of the group is that member's now. A
        commit that is under way when the last broker goes returns when one is back: librdkafka never gives it up.

        Args:
            patience: Seconds to try again for what passes, and to wait behind a commit that gets no answer.

        Raises:
            JMSException: Kafka did not take it.
        """
        if self._starts is not None or not self._is_dirty():
            return
        deadline = time.monotonic() + patience
        while True:
            with self._lock:
                self._committing += 1
            try:
                if not self._client.acquire(timeout=patience):
                    raise JMSException(f"acknowledge messages of {self.name}: Kafka has not answered for {patience} s")
                try:
                    error = self._commit()
                finally:
                    self._client.release()
            finally:
                with self._lock:
                    self._committing -= 1
                    if not self._committing:
                        self._news.notify()
            if error is None:
                return
            if kafka_error(error).code() not in _PASSING or time.monotonic() > deadline:
                raise jms_error(error, f"acknowledge messages of {self.name}") from error
            time.sleep(0.02)  # without the client: the rebalance itself happens in a poll

    def flush_at_last(self) -> None:
        """Flush, and return in any case: for closing.

        Raises:
            JMSException: Kafka did not take it, or did not answer in time.
        """
        failures: list[JMSException] = []

        def flush() -> None:
            try:
                self.flush(CLOSE_SECONDS)
            except JMSException as failure:
                failures.append(failure)

        if not self._is_dirty():
            return
        thread = threading.Thread(target=flush, name=f"kjms-reader-{self.name}-last-commit", daemon=True)
        thread.start()
        thread.join(CLOSE_SECONDS + 1)
        if thread.is_alive():
            failures.append(JMSException(f"acknowledge messages of {self.name}: Kafka does not answer"))
        if failures:
            raise failures[0]

    def _is_dirty(self) -> bool:
        with self._lock:
            return any(partition.settlement.is_dirty for partition in self._partitions.values())

    def _commit(self) -> KafkaException | None:
        """Commit every base that moved; the caller holds the client."""
        with self._lock:
            dirty = [
                (partition.settlement, partition.settlement.base, partition.number)
                for partition in self._partitions.values()
                if partition.settlement.is_dirty
            ]
            consumer = self._consumer
        if not dirty or consumer is None:
            return None
        try:
            consumer.commit(
                offsets=[TopicPartition(self.topic, number, base) for _, base, number in dirty], asynchronous=False
            )
        except KafkaException as error:
            return error
        for settlement, base, _ in dirty:
            settlement.committed = base
        return None

    # The thread. It blocks in a poll only while a consumer waits for messages; else it waits for news here, and whoever
    # has something to commit finds the client free.

    def _begin(self) -> None:
        try:
            self._consumer = Consumer(self._config)
        except KafkaException as error:
            raise jms_error(error, f"read {self.name}") from error
        self._thread = threading.Thread(target=self._run, name=f"kjms-reader-{self.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        consumer = self._consumer
        assert consumer is not None
        try:
            with self._client:
                self._join(consumer)
            committed = time.monotonic()
            while not self._may_end():
                if self._is_full():
                    self._wait_for_space(consumer)
                else:
                    self._read(consumer)
                    self._wait_for_news()
                if time.monotonic() - committed >= TICK_SECONDS:
                    self._flush_quietly()
                    committed = time.monotonic()
        except Exception as error:  # the thread's last words must be heard
            _log.exception("reader of %s failed", self.name)
            self._on_error(JMSException(f"reading {self.name} failed: {error}", None, error))
            with self._news:
                self._news.wait_for(lambda: self._closing, RETRY_SECONDS)
        finally:
            self._leave(consumer)

    def _join(self, consumer: Consumer) -> None:
        if self._starts is None:
            consumer.subscribe(
                [self.topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
            return
        with self._lock:
            for number, start in self._starts.items():  # those that are there already go on where they were
                self._partitions.setdefault(number, Partition(number, start, self._decode))
            positions = {number: partition.settlement.position for number, partition in self._partitions.items()}
        consumer.assign([TopicPartition(self.topic, number, position) for number, position in positions.items()])

    def _read(self, consumer: Consumer) -> None:
        """Take what Kafka has; wait for it only while a consumer here waits, too."""
        room = min(BATCH, self._prefetch - self._buffer.held)
        with self._client:
            first = consumer.poll(self._patience())
            if first is None:
                return
            records = [first]
            if room > 1:
                records += consumer.consume(room - 1, 0)
        with self._lock:
            self._arrived(records)

    def _patience(self) -> float:
        """Return how long a poll may last: nobody can commit meanwhile."""
        with self._lock:
            is_active, self._is_active = self._is_active, False
            if not self._buffer.is_hungry:
                return 0
            return SHORT_POLL_SECONDS if is_active or self._in_hands or self._buffer.held else TICK_SECONDS

    def _wait_for_news(self) -> None:
        """Wait until a consumer is hungry, half of what was ready is taken, or it is time to look after the group."""
        with self._news:
            if self._committing:  # let them, before the next poll holds the client
                self._news.wait_for(lambda: not self._committing, SHORT_POLL_SECONDS)
            if self._buffer.held > self._prefetch >> 1 or not self._buffer.is_hungry:
                self._news.wait(TICK_SECONDS)

    def _arrived(self, records: list[KafkaMessage]) -> None:
        partitions, buffer = self._partitions, self._buffer
        for record in records:
            error = record.error()
            if error is not None:
                self._report(error)
                continue
            partition = partitions.get(record.partition())
            if partition is None:
                continue
            offset = record.offset()
            partition.settlement.read(offset)
            buffer.arrive(Delivery(record, partition, offset, next(self._orders)))

    def _report(self, error: KafkaError) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            return
        failure = jms_error(error, f"read {self.name}")
        _log.warning("%s", failure)
        if not error.retriable():
            self._on_error(failure)

    def _is_full(self) -> bool:
        return self._buffer.held >= self._prefetch or len(self._buffer.unwanted) >= MAX_UNWANTED

    def _has_space(self) -> bool:
        return self._closing or (self._buffer.held <= self._prefetch >> 1 and len(self._buffer.unwanted) < MAX_UNWANTED)

    def _wait_for_space(self, consumer: Consumer) -> None:
        """Wait until consumers have taken half of what is ready; meanwhile stay a member of the group."""
        with self._news:
            if self._news.wait_for(self._has_space, PAUSE_SECONDS):
                return
        with self._client:
            paused = consumer.assignment()
            consumer.pause(paused)
        while not self._has_space() and not self._may_end():
            with self._news:
                self._news.wait_for(self._has_space, TICK_SECONDS)
            self._flush_quietly()
            with self._client:
                record = consumer.poll(0)  # paused partitions give nothing; callbacks run, a new partition may give one
            if record is not None:
                with self._lock:
                    self._arrived([record])
        with self._client:
            held = {partition.partition for partition in consumer.assignment()}
            consumer.resume([partition for partition in paused if partition.partition in held])

    def _may_end(self) -> bool:
        if self._closing:
            return True
        idle_since = self._idle_since
        return (
            idle_since > 0
            and self._starts is None
            and not self._in_hands
            and time.monotonic() - idle_since > GRACE_SECONDS
        )

    def _flush_quietly(self) -> None:
        """Commit once, from the reader's thread; whoever needs to know flushes, too, and gets the error."""
        if self._starts is not None:
            return
        with self._client:
            error = self._commit()
        if error is not None:
            _log.debug("%s", jms_error(error, f"acknowledge messages of {self.name}"))

    def _leave(self, consumer: Consumer) -> None:
        try:
            self._flush_quietly()
            with self._client:
                consumer.close()
        except Exception:
            _log.exception("reader of %s could not leave its group in order", self.name)
        with self._lock:
            if self._starts is None:
                for number in list(self._partitions):
                    self._drop(number)
            self._consumer = self._thread = None
            if self._started and not self._closing:  # somebody came while the thread was leaving, or it failed
                self._begin()

    # The group moves partitions between its members; these run in the thread, inside of a poll.

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        with self._lock:
            for assigned in partitions:
                self._partitions[assigned.partition] = Partition(assigned.partition, -1, self._decode)
        consumer.incremental_assign(partitions)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        error = self._commit()  # the poll that called this holds the client
        if error is not None:
            _log.warning("%s", jms_error(error, f"acknowledge messages of {self.name} before a rebalance"))
        self._on_lost(consumer, partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        with self._lock:
            for revoked in partitions:
                self._drop(revoked.partition)
        consumer.incremental_unassign(partitions)

    def _drop(self, number: int) -> None:
        partition = self._partitions.pop(number, None)
        if partition is None:
            return
        partition.is_held = False
        self._buffer.drop(partition)

    def begin_to_close(self) -> None:
        """Tell the thread to leave the group and end; messages in hands go to whoever reads the topic next."""
        with self._lock:
            self._closing = True
            self._news.notify_all()

    def close(self) -> None:
        """Leave the group and end the thread; where Kafka does not answer, the thread ends when it does."""
        self.begin_to_close()
        thread = self._thread
        if thread is None:
            return
        thread.join(CLOSE_SECONDS)
        if thread.is_alive():
            _log.warning("reader of %s: Kafka does not answer; what it holds is let go when it does", self.name)
