"""Serves the messages of one destination that are not due yet: each goes to the destination when its time comes.

They wait in a Kafka topic of their own (`kjms.mapping.delayed`). A consumer group gives each of its partitions to one
process, and a transactional producer with a name for each partition makes sure of that: whoever begins to serve a
partition makes that producer anew, which ends what the last one left open and shuts it out. One transaction writes the
messages that are due where they belong, and a note where they waited; so what the log says, read up to where it ended
when the producer was made, is what waits. What the group commits only says from where to read.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kjms.engine.consumer.membership import Membership
from kjms.engine.kafka import (
    ConsumerPort,
    IsolationLevel,
    KafkaError,
    KafkaException,
    KafkaMessage,
    OffsetSpec,
    TopicPartition,
    jms_error,
    open_consumer,
)
from kjms.engine.log_reading import UNTIL_END
from kjms.engine.statistics import DelayedStatistics
from kjms.engine.transactions.transactional_producer import (
    AbortedError,
    Copy,
    Part,
    TransactionalProducer,
    UnknownError,
)
from kjms.engine.tuning import DEFAULTS, Tuning
from kjms.errors import JMSException
from kjms.mapping.delayed import CANCEL, CANCELLED, DELAYED, MOVED_ON, REWRITTEN, Note, copied, noted, read
from kjms.mapping.names import delayed, delayed_group, delayed_transactional_id
from kjms.txn.waiting import NEVER, Waiting

if TYPE_CHECKING:
    from kjms.engine.admin.topics import Topics

__all__ = ["DelayedDelivery", "Rest", "fold", "was_made_again"]

_log = logging.getLogger("kjms.schedule")

BATCH: Final = 500  # records taken at once, and moved in one transaction
TICK_SECONDS: Final = 0.1  # the clock is looked at this often, whatever is due: somebody may set it
LEAST_SECONDS: Final = 0.001  # librdkafka counts in milliseconds
READ_SECONDS: Final = 0.05  # of reading, between looks at what is due
SCAN_SECONDS: Final = 0.03  # of reading the log again, between looks at what is due
SCAN_POLL_MS: Final = 5  # until it is looked whether more has come of it
PAUSE_SECONDS: Final = 0.1  # after what went wrong; twice as long each time
LONGEST_PAUSE: Final = 2.0
RETRY_SECONDS: Final = 1.0  # between a failure of the thread and its next life
ASK_SECONDS: Final = 10.0  # how long Kafka may take to answer
CLOSE_SECONDS: Final = 5.0  # how long closing waits for a Kafka that does not answer
POSTPONED_MS: Final = 30_000  # until a message that its destination finds too large is tried again
FEW: Final = 2_000  # records that are read again then


class PartitionProducer(TransactionalProducer[None]):
    """The transactional producer of one partition, used by one thread; of those with its name the newest alone works.

    Args:
        config: librdkafka's settings of the producer.
        transactional_id: Its name in Kafka.
    """

    @property
    def is_open(self) -> bool:
        """Whether it can be used; after some errors it has to be opened again."""
        return self._producer is not None

    def open(self) -> None:
        """Shut out all others of its name; what they left open is ended.

        Raises:
            KafkaException: Kafka does not answer.
        """
        self._producer = None
        self._begin_anew()

    def write(self, copies: Sequence[Copy]) -> None:
        """Write *copies*, all or none of them.

        Raises:
            AbortedError: None was written.
            UnknownError: The log will say.
        """
        self._transact([Part(copies)])

    def drop(self) -> None:
        """Use it no more."""
        self._producer = None

    def _was_committed(self, commits: object, first: TopicPartition | None) -> bool:
        self._producer = None
        raise UnknownError("transaction outcome unknown; the log decides")


class DelayedPartition:
    """A partition while this process serves it."""

    def __init__(self, number: int, start: int, line: PartitionProducer, limit: int) -> None:
        self.number = number
        self.line = line
        self.waiting: Waiting[KafkaMessage] = Waiting(limit)
        self.position = start
        self.barrier = -1  # what the log ended with when the line was opened; before that is read, nothing is moved
        self.orders: list[int] = []  # what is to be cancelled
        self.scan: Scan | None = None
        self.scan_settled: list[int] = []  # since it began
        self.alone = 0  # so many go one by one, after they were too large together
        self.lean: set[int] = set()  # whose copies say nothing of where they waited, for want of room
        self.rest_until = 0.0
        self.pause = PAUSE_SECONDS
        self.committed = start
        self.deleted = -1

    @property
    def is_served(self) -> bool:
        """Whether what is due can be moved."""
        return self.line.is_open and self.position >= self.barrier

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is to be done but to wait, and little has to be read to begin again."""
        is_idle = not self.orders and self.scan is None and not self.waiting.forgotten and self.rest_until == 0.0
        return is_idle and self.position >= self.barrier and self.position - self.committed_offset <= FEW

    @property
    def committed_offset(self) -> int:
        """Where somebody else would have to begin to read."""
        return self.waiting.committed_offset(self.position)

    def settle(self, offsets: Iterable[int]) -> None:
        """Note that what stands at *offsets* waits no more."""
        for offset in offsets:
            self.waiting.settle(offset)
            if self.scan is not None:
                self.scan_settled.append(offset)

    def drop(self) -> None:
        """Serve it no more."""
        self.line.drop()
        if self.scan is not None:
            self.scan.close()
            self.scan = None


class Scan:
    """A second reading of a partition's log, for what did not fit into memory at the first.

    Args:
        config: librdkafka's settings of a consumer in no group.
        topic: The Kafka topic.
        number: The partition.
        known: What the first reading found.
    """

    def __init__(self, config: Mapping[str, Any], topic: str, number: int, known: Waiting[KafkaMessage]) -> None:
        self.position = known.committed_offset(0)
        self.found: Waiting[KafkaMessage] = Waiting(known.limit // 2)
        self.is_busy = True  # whether it has just got something
        self._known = known
        self._floor = known.horizon
        self._consumer = open_consumer(dict(config))
        self._consumer.assign([TopicPartition(topic, number, self.position)])

    def add(self, offset: int, due: int, message: KafkaMessage) -> None:
        """Note a message; of those due before the horizon all is known."""
        if (due, offset) >= self._floor and not self._known.is_gone(offset):
            self.found.add(offset, due, message)

    def settle(self, offset: int) -> None:
        """Note that the message at *offset* waits no more."""
        self.found.settle(offset)

    def step(self) -> None:
        """Read what has come; not for long, since others may be due."""
        until = time.monotonic() + SCAN_SECONDS
        self.is_busy = False
        while records := self._consumer.consume(BATCH, 0):
            self.is_busy = True
            for record in records:
                self.position = max(self.position, fold(self, record))
            if time.monotonic() > until:
                return

    def close(self) -> None:
        """End it."""
        self._consumer.close()


def fold(waiting: Waiting[KafkaMessage] | Scan, record: KafkaMessage, orders: list[int] | None = None) -> int:
    """Note in *waiting* what *record* says, and in *orders* what it wants cancelled; return where the log goes on."""
    offset = record.offset() or 0
    error = record.error()
    if error is not None:
        return offset if error.code() == KafkaError._PARTITION_EOF else -1
    try:
        found = read(record)
    except Exception:  # the client raises on header names that are no UTF-8
        _log.warning(
            "%s[%s]@%d: its headers cannot be read; it is left alone", record.topic(), record.partition(), offset
        )
        return offset + 1
    if not isinstance(found, Note):
        waiting.add(offset, found, record)
    elif found.kind != CANCEL:
        for settled in found.offsets:
            waiting.settle(settled)
    elif orders is not None:
        orders.extend(each for each in found.offsets if each < offset)
    return offset + 1


class Rest(NamedTuple):
    """What it takes to notice that a log which was left alone has to be served again.

    Attributes:
        due: When to begin, in milliseconds since the epoch; a message is due soon after.
        ends: Where each partition ended; whatever is written there changes that.
        identity: Kafka's id of the topic.
    """

    due: int
    ends: Mapping[int, int]
    identity: str


def was_made_again(topics: Topics, name: str, identity: str, tell: Callable[[JMSException], None]) -> bool:
    """Return whether the topic *name* is no more the one with that *identity*: what is known of it holds no longer.

    It is reported.
    """
    latest = topics.watch(name)
    if "-" in (identity, latest) or latest == identity:
        return False
    if topics.find_identity(name) in {"-", identity}:  # the answer was late
        return False
    topics.forget(name, identity)
    failure = JMSException(
        f"the Kafka topic {name!r} was deleted and made again: delayed messages that waited in the former"
        " topic are gone"
    )
    _log.warning("%s", failure)
    tell(failure)
    return True


class DelayedDelivery:
    """Serves the delayed messages of one destination in a thread of its own.

    Args:
        topic: The destination's Kafka topic.
        consumer_config: Gives librdkafka's settings of a consumer in a group, or in none.
        producer_config: Those of producers.
        topics: Knows Kafka topics.
        share: Says how many messages a partition may hold in memory.
        tell: Told of trouble that lasts.
        tuning: Its times and limits.
    """

    def __init__(
        self,
        topic: str,
        consumer_config: Callable[[str | None], Mapping[str, Any]],
        producer_config: Mapping[str, Any],
        topics: Topics,
        share: Callable[[], int],
        tell: Callable[[JMSException], None],
        tuning: Tuning = DEFAULTS,
    ) -> None:
        self._tuning = tuning
        self.topic = topic
        self.later = delayed(topic)
        self._config = {**consumer_config(delayed_group(topic)), **UNTIL_END}
        self._scan_config = {**consumer_config(None), **UNTIL_END}
        self._producer_config = producer_config
        self._topics = topics
        self._share = share
        self._tell = tell
        self._told = ""
        self._identity = "-"  # Kafka's id of the topic that is served
        self.rest: Rest | None = None  # once it has ended by itself
        self._busy_at = time.monotonic()  # when something was read, or due, last
        self._stretches: dict[int, DelayedPartition] = {}
        self._membership = Membership()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"kjms-schedule-{topic}", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        held = sum(len(stretch.waiting) for stretch in list(self._stretches.values()))
        return f"<Later {self.topic}: partitions {sorted(self._stretches)}, {held} messages wait>"

    @property
    def partitions(self) -> int:
        """How many partitions it serves."""
        return len(self._stretches)

    @property
    def thread(self) -> threading.Thread:
        """Its thread."""
        return self._thread

    def statistics(self) -> DelayedStatistics:
        """Return what it serves."""
        stretches = [stretch for _, stretch in sorted(self._stretches.copy().items())]
        waiting = sum(len(stretch.waiting) for stretch in stretches)
        return DelayedStatistics(
            topic=self.topic,
            partitions=tuple(stretch.number for stretch in stretches),
            waiting=waiting,
            is_committed=all(stretch.committed == stretch.committed_offset for stretch in stretches),
            is_resting=False,
        )

    def begin_to_close(self) -> None:
        """Tell the thread to end; others go on with what it serves."""
        self._closing.set()
        for stretch in list(self._stretches.values()):
            stretch.line.close(0)  # it would wait for Kafka

    def close(self) -> None:
        """End the thread; where Kafka does not answer, it ends when it does."""
        self.begin_to_close()
        self._thread.join(CLOSE_SECONDS)

    # The thread.

    def _run(self) -> None:
        while not self._closing.is_set() and self.rest is None:
            try:
                self._serve()
            except Exception as error:  # the thread's last words must be heard
                _log.exception("serving %s failed", self.later)
                self._tell(
                    JMSException(f"delivering the delayed messages of {self.topic!r} failed: {error}", None, error)
                )
                self._closing.wait(RETRY_SECONDS)

    def _serve(self) -> None:
        consumer = open_consumer(self._config)
        self._identity = "-"
        try:
            self._membership.subscribe(
                consumer, self.later, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
            commit = space = 0.0
            while not (self._closing.is_set() or self._was_made_again()):
                self._read(consumer)
                for stretch in list(self._stretches.values()):
                    self._look_after(consumer, stretch)
                now = time.monotonic()
                if now >= commit:
                    self._commit(consumer, self._stretches.values())
                    commit = now + self._tuning.delayed_commit_seconds
                    self.rest = self._rest_found(now)
                    if self.rest is not None:
                        self._give_space_back()
                        break
                if now >= space:
                    self._give_space_back()
                    space = now + self._tuning.delayed_space_seconds
        finally:
            for stretch in self._stretches.values():
                stretch.drop()
            self._membership.close(consumer)
            self._stretches.clear()

    def _was_made_again(self) -> bool:
        return was_made_again(self._topics, self.later, self._identity, self._tell)

    def _rest_found(self, now: float) -> Rest | None:
        """Return how to notice what comes next, if nothing is to be done for a while; None: there is, or may be."""
        stretches = list(self._stretches.values())
        if (
            not stretches
            or now - self._busy_at < self._tuning.delayed_quiet_seconds
            or not all(each.is_quiet for each in stretches)
        ):
            return None
        due = min(stretch.waiting.next_due for stretch in stretches) - self._tuning.delayed_wake_ms
        if due < self._tuning.now_ms() + self._tuning.delayed_wake_ms:
            return None
        try:
            if self._topics.look_up(self.later) != len(stretches):
                return None  # others have the other partitions, and know what waits there
            ends = {stretch.number: self._end_of_log(stretch.number) for stretch in stretches}
        except (JMSException, KafkaException) as error:
            _log.debug("where %s ends is not known: %s", self.later, error)
            return None
        is_read = all(stretch.position >= ends[stretch.number] for stretch in stretches)
        return Rest(due, ends, self._identity) if is_read else None

    def _read(self, consumer: ConsumerPort) -> None:
        """Take what has come, all of it if that is done soon: among it may be what is due before all that is known."""
        first = self._membership.poll(consumer, self._patience())
        if first is None:
            return
        self._arrived(first)
        until = time.monotonic() + READ_SECONDS
        records = consumer.consume(BATCH, 0)
        while records:
            for record in records:
                self._arrived(record)
            is_more = len(records) == BATCH and time.monotonic() < until and not self._membership.has_failed
            records = consumer.consume(BATCH, 0) if is_more else []

    def _patience(self) -> float:
        """Return how long to wait for records: until a message is due, and never for long."""
        due = NEVER
        now = time.monotonic()
        for stretch in self._stretches.values():
            if stretch.scan is not None:
                due = 0 if stretch.scan.is_busy else min(due, self._tuning.now_ms() + SCAN_POLL_MS)
            if stretch.is_served and stretch.rest_until <= now:
                due = min(due, 0 if stretch.orders else stretch.waiting.next_due)
        seconds = due / 1000 - self._tuning.wall_clock()
        return 0 if seconds <= 0 else max(LEAST_SECONDS, min(TICK_SECONDS, seconds))

    def _arrived(self, record: KafkaMessage) -> None:
        error = record.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            _log.warning("%s", jms_error(error, f"read {self.later}"))
            return
        if error is None:
            self._busy_at = time.monotonic()
        stretch = self._stretches.get(record.partition() or 0)
        if stretch is not None and record.topic() == self.later:
            stretch.position = max(stretch.position, fold(stretch.waiting, record, stretch.orders))

    # What is done for a partition.

    def _look_after(self, consumer: ConsumerPort, stretch: DelayedPartition) -> None:
        stretch.waiting.limit = self._share()
        if stretch.rest_until > time.monotonic():
            return
        try:
            if not stretch.line.is_open:
                if not (len(stretch.waiting) or stretch.waiting.forgotten or stretch.orders):
                    return
                # Who lost the partition must not shut out who has it.
                self._commit(consumer, [stretch], is_awaited=True, is_proof=True)
                self._open(stretch)
            if stretch.is_served:
                stretch.waiting.caught_up()
                self._cancel(stretch)
                self._move(stretch)
                self._write_anew(stretch)
                self._look_again(stretch)
            stretch.pause = PAUSE_SECONDS
            stretch.rest_until = 0.0
        except (AbortedError, JMSException, KafkaException) as error:
            self._failed(stretch, error)

    def _open(self, stretch: DelayedPartition) -> None:
        stretch.line.open()
        try:
            stretch.barrier = self._end_of_log(stretch.number)
        except BaseException:
            stretch.line.drop()  # what others moved has not been read
            raise

    def _end_of_log(self, number: int) -> int:
        """Return where the log ends, what is in open transactions included."""
        self._topics.look_up(self.later)  # after a change of leaders the client would be refused for ever (librdkafka)
        asked = {TopicPartition(self.later, number): OffsetSpec.latest()}
        answers = self._topics.admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=ASK_SECONDS
        )
        return int(next(iter(answers.values())).result().offset)

    def _cancel(self, stretch: DelayedPartition) -> None:
        wanted = [offset for offset in stretch.orders if stretch.waiting.may_hold(offset)]
        if wanted:
            stretch.line.write([self._note(stretch, CANCELLED, wanted)])
            stretch.settle(wanted)
        stretch.orders.clear()

    def _note(self, stretch: DelayedPartition, kind: str, offsets: list[int]) -> Copy:
        return Copy(self.later, stretch.number, noted(kind, offsets))

    def _move(self, stretch: DelayedPartition) -> None:
        now = self._tuning.now_ms()
        due = stretch.waiting.take(now, 1 if stretch.alone else BATCH)
        if not due:
            return
        stretch.alone = max(stretch.alone - 1, 0)
        offsets = [offset for offset, _ in due]
        copies = [self._copy(stretch, offset, record) for offset, record in due]
        try:
            stretch.line.write([*copies, self._note(stretch, MOVED_ON, offsets)])
        except AbortedError as error:
            self._put_back(stretch, offsets)
            if not error.is_too_large:
                raise
            self._make_smaller(stretch, offsets, error)
        except BaseException:
            self._put_back(stretch, offsets)
            raise
        else:
            stretch.settle(offsets)
            stretch.lean.difference_update(offsets)

    def _copy(self, stretch: DelayedPartition, offset: int, record: KafkaMessage) -> Copy:
        copy = copied(record)
        if offset in stretch.lean:
            copy = copy._replace(headers=[header for header in copy.headers if header[0] != DELAYED])
        is_anywhere = copy.key is not None or stretch.number >= self._topics.partitions(self.topic)
        return Copy(self.topic, -1 if is_anywhere else stretch.number, copy)

    def _make_smaller(self, stretch: DelayedPartition, offsets: list[int], error: AbortedError) -> None:
        """See to it that messages which were too large, together or with what a copy says, are moved otherwise."""
        if len(offsets) > 1:
            stretch.alone = len(offsets)
        elif offsets[0] not in stretch.lean:
            stretch.lean.add(offsets[0])
            stretch.alone += 1
        else:
            stretch.waiting.postpone(offsets[0], self._tuning.now_ms() + POSTPONED_MS)
            self._say(error.cause)

    def _put_back(self, stretch: DelayedPartition, offsets: Iterable[int]) -> None:
        for offset in offsets:
            stretch.waiting.put_back(offset)

    def _write_anew(self, stretch: DelayedPartition) -> None:
        """Write what stands at the log's beginning once more, at its end, where much between was settled."""
        waiting = stretch.waiting
        if (
            waiting.forgotten
            or stretch.position - stretch.committed_offset <= 2 * len(waiting) + self._tuning.delayed_slack
        ):
            return
        soon = self._tuning.now_ms() + self._tuning.delayed_far_ms
        chosen = [(offset, record) for offset, due, record in waiting.oldest(BATCH) if due > soon]
        if chosen and waiting.next_due > soon - self._tuning.delayed_far_ms:
            offsets = [offset for offset, _ in chosen]
            copies = [Copy(self.later, stretch.number, copied(record)) for _, record in chosen]
            stretch.line.write([*copies, self._note(stretch, REWRITTEN, offsets)])
            stretch.settle(offsets)

    def _look_again(self, stretch: DelayedPartition) -> None:
        """Read the log again where memory has room for what it had no room for."""
        waiting = stretch.waiting
        if stretch.scan is None:
            if waiting.is_short:
                stretch.scan = Scan(self._scan_config, self.later, stretch.number, waiting)
                stretch.scan_settled.clear()
            return
        stretch.scan.step()
        if stretch.scan.position >= stretch.position:
            for offset in stretch.scan_settled:
                stretch.scan.settle(offset)
            waiting.take_in(stretch.scan.found)
            stretch.scan.close()
            stretch.scan = None

    def _failed(self, stretch: DelayedPartition, error: AbortedError | JMSException | KafkaException) -> None:
        stretch.rest_until = time.monotonic() + stretch.pause
        stretch.pause = min(2 * stretch.pause, LONGEST_PAUSE)
        if isinstance(error, AbortedError):
            self._say(error.cause, is_news=not error.is_passing)
        elif isinstance(error, KafkaException):
            stretch.line.drop()
            self._say(jms_error(error, f"serve partition {stretch.number} of {self.later}"), is_news=False)
        else:
            self._say(error, is_news=not isinstance(error, UnknownError))

    def _say(self, failure: JMSException, *, is_news: bool = True) -> None:
        text = f"delayed messages of {self.topic!r} are late: {failure}"
        (_log.warning if is_news else _log.info)("%s", text)
        if is_news and text != self._told:  # not each time that it fails for the same reason
            self._told = text
            self._tell(JMSException(text, failure.error_code, failure))

    # What Kafka is told of where to begin.

    def _commit(
        self,
        consumer: ConsumerPort,
        stretches: Iterable[DelayedPartition],
        *,
        is_awaited: bool = False,
        is_proof: bool = False,
    ) -> None:
        """Commit where to begin to read; what fails does not matter, unless it is to prove who has the partition.

        Raises:
            KafkaException: It is another member's, if *is_proof*.
        """
        committed_offsets = {stretch: stretch.committed_offset for stretch in stretches}
        told = [
            stretch
            for stretch, committed_offset in committed_offsets.items()
            if is_proof or committed_offset != stretch.committed
        ]
        if not told:
            return
        offsets = [
            TopicPartition(self.later, each.number, max(committed_offsets[each], 0), self._identity) for each in told
        ]
        try:
            if not is_awaited:  # whether it arrives does not matter; messages are due meanwhile
                consumer.commit(offsets=offsets, asynchronous=True)
            else:
                for answer in consumer.commit(offsets=offsets, asynchronous=False):
                    if answer.error is not None:
                        raise KafkaException(answer.error)
        except KafkaException as error:
            if is_proof:
                raise
            _log.debug("%s", jms_error(error, f"commit the beginning of {self.later}"))
        else:
            for stretch in told:
                stretch.committed = committed_offsets[stretch]

    def _give_space_back(self) -> None:
        """Delete what stands before all that waits."""
        wanted = []
        for stretch in self._stretches.values():
            if stretch.is_served and stretch.committed > stretch.deleted:
                stretch.deleted = stretch.committed
                wanted.append(TopicPartition(self.later, stretch.number, stretch.committed))
        if wanted:  # nobody waits for it: messages are due meanwhile
            self._topics.admin.delete_records(wanted, request_timeout=ASK_SECONDS)

    # The group moves partitions between its members; these run in the thread, inside of a poll.

    def _on_assign(self, consumer: ConsumerPort, partitions: list[TopicPartition]) -> None:
        if self._closing.is_set():
            return
        starts = []
        if self._identity == "-":
            self._identity = self._topics.find_identity(self.later)
        for known in consumer.committed(partitions, ASK_SECONDS) if partitions else ():
            if known.error is not None:
                raise KafkaException(known.error)
            start = self._start(consumer, known)
            line = PartitionProducer(
                self._producer_config, delayed_transactional_id(self.topic, known.partition), self._tuning
            )
            stretch = DelayedPartition(known.partition, start, line, self._share())
            if self._end_of_log(known.partition) > start:
                self._open(stretch)  # before it is read: what the last owner left open would be in the way
            self._stretches[known.partition] = stretch
            starts.append(TopicPartition(self.later, known.partition, start))
        consumer.incremental_assign(starts)

    def _start(self, consumer: ConsumerPort, known: TopicPartition) -> int:
        place = TopicPartition(self.later, known.partition)
        first, _ = consumer.get_watermark_offsets(place, ASK_SECONDS)
        is_known = known.offset >= 0 and known.metadata == self._identity
        return max(int(first), known.offset) if is_known else int(first)

    def _on_revoke(self, consumer: ConsumerPort, partitions: list[TopicPartition]) -> None:
        self._commit(
            consumer, [s for revoked in partitions if (s := self._stretches.get(revoked.partition))], is_awaited=True
        )
        self._on_lost(consumer, partitions)

    def _on_lost(self, consumer: ConsumerPort, partitions: list[TopicPartition]) -> None:
        for lost in partitions:
            stretch = self._stretches.pop(lost.partition, None)
            if stretch is not None:
                stretch.drop()
        consumer.incremental_unassign(partitions)
