"""One Kafka consumer, its thread, and the messages it holds ready for the JMS consumers of this process."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from kjms.destinations import Destination
from kjms.engine._errors import jms_error, kafka_error
from kjms.errors import JMSException
from kjms.mapping import decode
from kjms.message import Message
from kjms.txn.states import PartitionSettlement

if TYPE_CHECKING:
    from kjms.selector import Selector

__all__ = ["Delivery", "Feed", "Reader"]

_log = logging.getLogger("kjms.reader")

TICK_SECONDS: Final = 0.1  # how long a settled message of a lazy mode may wait for its commit
SHORT_POLL_SECONDS: Final = 0.005  # a poll holds up commits, so it is short while messages are in hands
BATCH: Final = 500  # records taken from librdkafka at once; more gains nothing
GRACE_SECONDS: Final = 3.0  # consumers come and go; joining a group again costs more than waiting
PAUSE_SECONDS: Final = 1.0  # a pause discards what was fetched, so only a long stall is worth one
COMMIT_SECONDS: Final = 10.0  # how long a commit is tried again while the group rebalances
MAX_UNWANTED: Final = 100_000  # messages no selector here wants are kept in memory, up to so many

_REBALANCING: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError._ASSIGNMENT_LOST,  # noqa: SLF001
        KafkaError._STATE,  # noqa: SLF001
    }
)


class Partition:
    """A Kafka partition while a reader holds it."""

    __slots__ = ("is_held", "number", "settlement")

    def __init__(self, number: int, base: int) -> None:
        self.number = number
        self.settlement = PartitionSettlement(base)
        self.is_held = True


class Delivery:
    """A message on its way: the record it came from, and how often it was handed out."""

    __slots__ = ("count", "decoded", "feed", "offset", "partition", "record")

    def __init__(self, record: KafkaMessage, partition: Partition, offset: int) -> None:
        self.record = record
        self.partition = partition
        self.offset = offset
        self.count = 1
        self.decoded: Message | None = None
        self.feed: Feed | None = None

    def message(self, destination: Destination) -> Message:
        """Return the JMS message: decoded once per delivery, since an application may change the one it got."""
        if self.decoded is None:
            self.decoded = decode(self.record, destination, self.count)
        return self.decoded


class Lane:
    """The messages ready for the consumers that share one selector, oldest first."""

    __slots__ = ("feeds", "hungry", "ready", "selector")

    def __init__(self, selector: Selector | None) -> None:
        self.selector = selector
        self.ready: deque[Delivery] = deque()
        self.feeds: list[Feed] = []
        self.hungry: dict[Feed, None] = {}  # in the order in which they began to wait

    def wakes(self, arrived: int) -> None:
        """Wake as many of the waiting consumers as messages arrived."""
        while arrived and self.hungry:
            feed = next(iter(self.hungry))
            del self.hungry[feed]
            feed.wakeup.set()
            arrived -= 1


class Feed:
    """One JMS consumer's opening on a reader.

    Args:
        reader: Where the messages come from.
        selector: Which of them the consumer wants; None is all.
        wakeup: Set when there may be something to poll, or when the feed closes.
    """

    def __init__(self, reader: Reader, selector: Selector | None, wakeup: threading.Event) -> None:
        self.reader = reader
        self.selector = selector
        self.wakeup = wakeup
        self.is_started = False
        self.is_open = True
        self.returned: deque[Delivery] = deque()  # what this consumer gets again, before anything else

    def start(self) -> None:
        """Let messages come."""
        self.reader.start_feed(self)

    def stop(self) -> None:
        """Hold messages back: once this has returned, `poll` gives none."""
        self.reader.stop_feed(self)

    def poll(self) -> Delivery | None:
        """Return the next message, or None; in that case `wakeup` will be set when there may be one."""
        return self.reader.take(self)

    def rest(self) -> None:
        """Wait no longer: pass on the wake-up that may have come too late for this consumer."""
        self.reader.rest(self)

    def close(self) -> None:
        """Give back what was not handed out."""
        self.reader.remove_feed(self)


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
        on_error: Callable[[JMSException], None],
    ) -> None:
        self.destination = destination
        self.name = name
        self.topic = topic
        self._config = dict(config)
        self._starts = starts
        self._keeps_unwanted = keeps_unwanted
        self._prefetch = prefetch
        self._on_error = on_error
        self._lock = threading.RLock()
        self._news = threading.Condition(self._lock)
        # One thread at a time may be inside of the Kafka consumer. Never waited for by who holds `_lock`.
        self._client = threading.Lock()
        self._committing = 0  # threads that wait for it to commit
        self._consumer: Consumer | None = None
        self._thread: threading.Thread | None = None
        self._partitions: dict[int, Partition] = {}
        self._lanes: dict[Selector | None, Lane] = {}
        self._unwanted: list[Delivery] = []
        self._held = 0  # messages in lanes
        self._in_hands = 0  # messages handed out and not settled
        self._started = 0
        self._idle_since = 0.0
        self._closing = False

    def __repr__(self) -> str:
        return (
            f"<Reader {self.name}: partitions {sorted(self._partitions)}, {self._held} ready,"
            f" {self._in_hands} in hands, {self._started} consumers started>"
        )

    # Consumers come and go.

    def add_feed(self, selector: Selector | None, wakeup: threading.Event) -> Feed:
        """Return a new consumer's feed; it is not started."""
        feed = Feed(self, selector, wakeup)
        with self._lock:
            lane = self._lanes.get(selector)
            if lane is None:
                lane = self._lanes[selector] = Lane(selector)
                unwanted, self._unwanted = self._unwanted, []
                for delivery in unwanted:  # perhaps this one wants them
                    self._place(delivery)
            lane.feeds.append(feed)
        return feed

    def remove_feed(self, feed: Feed) -> None:
        """Take the consumer of *feed* away; what it was to get goes to others."""
        self.stop_feed(feed)
        with self._lock:
            feed.is_open = False
            lane = self._lanes[feed.selector]
            lane.feeds.remove(feed)
            orphans = list(feed.returned)
            feed.returned.clear()
            if not lane.feeds:
                del self._lanes[feed.selector]
                self._held -= len(lane.ready)
                orphans += lane.ready
            self._put_back(orphans)
        feed.wakeup.set()

    def start_feed(self, feed: Feed) -> None:
        """Let messages come to *feed*, and begin to read if nobody else had asked for it."""
        with self._lock:
            if feed.is_started:
                return
            feed.is_started = True
            self._started += 1
            self._idle_since = 0.0
            if self._thread is None and not self._closing:
                self._begin()
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
            self._pass_on_wakeup(feed)

    def rest(self, feed: Feed) -> None:
        """Note that the consumer of *feed* stopped waiting."""
        with self._lock:
            self._pass_on_wakeup(feed)

    def _pass_on_wakeup(self, feed: Feed) -> None:
        lane = self._lanes.get(feed.selector)
        if lane is None:
            return
        if feed in lane.hungry:
            del lane.hungry[feed]
        elif lane.ready:
            lane.wakes(1)

    # Messages go out and come back.

    def take(self, feed: Feed) -> Delivery | None:
        """Return the next message for *feed*, or note that it waits for one."""
        with self._lock:
            if not feed.is_started:
                return None
            if feed.returned:
                delivery = feed.returned.popleft()
            else:
                lane = self._lanes[feed.selector]
                if lane.ready:
                    delivery = lane.ready.popleft()
                else:
                    other = self._take_from_others(lane) if len(self._lanes) > 1 else None
                    if other is None:
                        lane.hungry[feed] = None
                        self._news.notify()
                        return None
                    delivery = other
                self._held -= 1
                if self._held == self._prefetch >> 1:
                    self._news.notify()
            delivery.feed = feed
            self._in_hands += 1
            return delivery

    def _take_from_others(self, lane: Lane) -> Delivery | None:
        for other in self._lanes.values():
            if other is lane:
                continue
            for index, delivery in enumerate(other.ready):
                if self._wants(lane, delivery):
                    del other.ready[index]
                    return delivery
        return None

    def settle(self, delivery: Delivery) -> None:
        """Note that *delivery* is done; Kafka is told by the next `flush`."""
        with self._lock:
            self._in_hands -= 1
            delivery.partition.settlement.settle(delivery.offset)

    def give_back(self, deliveries: Iterable[Delivery], *, to: Feed | None = None) -> None:
        """Take back messages that were handed out: they are delivered again, in their order and marked.

        Args:
            deliveries: The messages, oldest first.
            to: The consumer that gets them again; None: whoever wants them.
        """
        with self._lock:
            again = []
            for delivery in deliveries:
                self._in_hands -= 1
                delivery.count += 1
                delivery.decoded = None
                if delivery.partition.is_held:
                    again.append(delivery)
            if to is None:
                self._put_back(again)
            else:
                to.returned.extendleft(reversed(again))
                to.wakeup.set()

    def _put_back(self, deliveries: list[Delivery]) -> None:
        for delivery in reversed(deliveries):
            self._place(delivery, first=True)
        for lane in self._lanes.values():
            lane.wakes(len(lane.ready))

    def _place(self, delivery: Delivery, *, first: bool = False) -> None:
        chosen: Lane | None = None
        for lane in self._lanes.values():
            if (chosen is None or len(lane.ready) < len(chosen.ready)) and self._wants(lane, delivery):
                chosen = lane
        if chosen is not None:
            self._held += 1
            if first:
                chosen.ready.appendleft(delivery)
            else:
                chosen.ready.append(delivery)
        elif self._keeps_unwanted:
            self._unwanted.append(delivery)
        else:
            delivery.partition.settlement.settle(delivery.offset)

    def _wants(self, lane: Lane, delivery: Delivery) -> bool:
        return lane.selector is None or lane.selector.matches(delivery.message(self.destination))

    # What is settled is told to Kafka.

    def flush(self) -> None:
        """Return when Kafka knows everything that was settled before the call.

        What cannot be committed because the partition went to another member of the group is that member's now.

        Raises:
            JMSException: Kafka did not take it.
        """
        if self._starts is not None or not self._is_dirty():
            return
        deadline = 0.0
        while True:
            with self._lock:
                self._committing += 1
            with self._client:
                error = self._commit()
            with self._lock:
                self._committing -= 1
                if not self._committing:
                    self._news.notify()
            if error is None:
                return
            now = time.monotonic()
            deadline = deadline or now + COMMIT_SECONDS
            if kafka_error(error).code() not in _REBALANCING or now > deadline:
                raise jms_error(error, f"acknowledge messages of {self.name}") from error
            time.sleep(0.02)  # without the client: the rebalance itself happens in a poll

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
        self._consumer = Consumer(self._config)
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
        finally:
            self._leave(consumer)

    def _join(self, consumer: Consumer) -> None:
        if self._starts is None:
            consumer.subscribe(
                [self.topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
            return
        with self._lock:
            self._partitions = {number: Partition(number, start) for number, start in self._starts.items()}
        consumer.assign([TopicPartition(self.topic, number, start) for number, start in self._starts.items()])

    def _read(self, consumer: Consumer) -> None:
        """Take what Kafka has; wait for it only while a consumer here waits, too."""
        room = min(BATCH, self._prefetch - self._held)
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
        if not self._is_hungry():
            return 0
        return SHORT_POLL_SECONDS if self._in_hands else TICK_SECONDS

    def _is_hungry(self) -> bool:
        with self._lock:
            return any(lane.hungry for lane in self._lanes.values())

    def _wait_for_news(self) -> None:
        """Wait until a consumer is hungry, half of what was ready is taken, or it is time to look after the group."""
        with self._news:
            if self._committing:  # let them, before the next poll holds the client
                self._news.wait_for(lambda: not self._committing, SHORT_POLL_SECONDS)
            if self._held > self._prefetch >> 1 or not any(lane.hungry for lane in self._lanes.values()):
                self._news.wait(TICK_SECONDS)

    def _arrived(self, records: list[KafkaMessage]) -> None:
        partitions = self._partitions
        only = next(iter(self._lanes.values())) if len(self._lanes) == 1 else None
        if only is not None and only.selector is not None:
            only = None
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
            if only is not None:
                self._held += 1
                only.ready.append(Delivery(record, partition, offset))
            else:
                self._place(Delivery(record, partition, offset))
        for lane in self._lanes.values():
            if lane.hungry:
                lane.wakes(len(lane.ready))

    def _report(self, error: KafkaError) -> None:
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            return
        failure = jms_error(error, f"read {self.name}")
        _log.warning("%s", failure)
        if not error.retriable():
            self._on_error(failure)

    def _is_full(self) -> bool:
        return self._held >= self._prefetch or len(self._unwanted) >= MAX_UNWANTED

    def _has_space(self) -> bool:
        return self._closing or (self._held <= self._prefetch >> 1 and len(self._unwanted) < MAX_UNWANTED)

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
        try:
            self.flush()
        except JMSException as error:
            _log.warning("%s", error)  # whoever needs to know flushes, too, and gets the error

    def _leave(self, consumer: Consumer) -> None:
        self._flush_quietly()
        with self._client:
            consumer.close()
        with self._lock:
            for number in list(self._partitions):
                self._drop(number)
            self._consumer = self._thread = None
            if self._started and not self._closing:  # somebody came while the thread was leaving
                self._begin()

    # The group moves partitions between its members; these run in the thread, inside of a poll.

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        with self._lock:
            for assigned in partitions:
                self._partitions[assigned.partition] = Partition(assigned.partition, -1)
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
        for lane in self._lanes.values():
            kept = deque(delivery for delivery in lane.ready if delivery.partition is not partition)
            self._held -= len(lane.ready) - len(kept)
            lane.ready = kept
            for feed in lane.feeds:
                feed.returned = deque(delivery for delivery in feed.returned if delivery.partition is not partition)
        self._unwanted = [delivery for delivery in self._unwanted if delivery.partition is not partition]

    def close(self) -> None:
        """Leave the group and end the thread; messages in hands go back to whoever reads the topic next."""
        with self._lock:
            self._closing = True
            self._news.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

