"""The engine's thread for handover: it reads the interest topics of the queues that this process consumes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from kjms.engine.interrupts import Condition
from kjms.engine.kafka import ConsumerPort, KafkaException, TopicPartition, jms_error, open_consumer
from kjms.engine.outage import CloseTimeout, level_of
from kjms.engine.settings import NEW_TOPIC
from kjms.engine.skipped import SkippedRecords
from kjms.engine.threads import start_thread
from kjms.errors import JMSException

if TYPE_CHECKING:
    from kjms.engine.publisher import Publisher

__all__ = ["HandoverService", "Member"]

_log = logging.getLogger("kjms.handover")

TICK_SECONDS: Final = 0.05  # between looks for waiting consumers
IDLE_TICK_SECONDS: Final = 0.2  # the same where nothing moves; closing waits for it
ALONE_SECONDS: Final = 1.0  # the same where no other process hands over: so often it is looked for one
ASK_SECONDS: Final = 10.0  # how long Kafka may take to find an offset
WAIT_MS: Final = 500  # a new record ends the wait; a fetch that brings none is repeated after that
BATCH: Final = 500  # records taken from librdkafka at once
CLOSE_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 1.0  # after an unexpected error of the Kafka client
WARNING_SECONDS: Final = 30.0  # between warnings of the same trouble


class Member(Protocol):
    """The handover of one queue or subscription."""

    interest_topic: str

    @property
    def is_followed(self) -> bool:
        """Whether its interest topic is to be read."""

    def is_busy(self, now: float) -> bool:
        """Return whether to call `tick` often."""

    def tick(self, now: float) -> None:
        """Do what is due."""

    def received(self, offset: int, value: bytes | None) -> None:
        """Record what the interest topic has at *offset*."""


class HandoverService:
    """Serves the handovers of one engine's group consumers in one thread.

    Args:
        engine: The engine's name, by which peers know it.
        config: librdkafka's settings of a consumer without a group.
        publisher: Writes interest records.
        skipped: Counts the records that cannot be read.
    """

    def __init__(
        self, engine: str, config: Mapping[str, Any], publisher: Publisher, skipped: SkippedRecords | None = None
    ) -> None:
        self.engine = engine
        self.publisher = publisher
        self.skipped = SkippedRecords() if skipped is None else skipped
        self._config = {**config, "fetch.wait.max.ms": WAIT_MS, **NEW_TOPIC}
        self._changed = Condition()
        self._members: dict[str, Member] = {}  # by their interest topics
        self._consumer: ConsumerPort | None = None
        self._thread: threading.Thread | None = None
        self._closing = False
        self._is_called = False  # something moves again
        self._last_warned: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<HandoverService of {self.engine}: {len(self._members)} handovers>"

    @property
    def thread(self) -> threading.Thread | None:
        """Its thread; None: none was started yet."""
        return self._thread

    def join(self, member: Member) -> None:
        """Serve *member* from now on."""
        with self._changed:
            self._members[member.interest_topic] = member
            if self._thread is None and not self._closing:
                self._thread = start_thread(self._run, "kjms-handover")
            self._changed.notify()

    def wake(self) -> None:
        """Look soon: something moves again in a queue where nothing did for long."""
        with self._changed:
            self._is_called = True
            self._changed.notify()

    def leave(self, member: Member) -> None:
        """Serve *member* no more."""
        with self._changed:
            if self._members.get(member.interest_topic) is member:
                del self._members[member.interest_topic]

    # The thread.

    def follow(self, member: Member, since_ms: int, joined_at: int) -> None:
        """Read *member*'s interest topic: what was written after *since_ms*, and all from offset *joined_at* on.

        Raises:
            KafkaException: Kafka does not say where that is.
        """
        if self._consumer is None:
            self._consumer = open_consumer(self._config)
        asked = TopicPartition(member.interest_topic, 0, max(since_ms, 0))
        found = self._consumer.offsets_for_times([asked], ASK_SECONDS)[0]
        if found.error is not None:
            raise KafkaException(found.error)
        start = found.offset if 0 <= found.offset < joined_at else joined_at
        former = [place for place in self._consumer.assignment() if place.topic == member.interest_topic]
        if former:  # of a handover that has ended since this thread looked last
            self._consumer.incremental_unassign(former)
        self._consumer.incremental_assign([TopicPartition(member.interest_topic, 0, start)])

    def _run(self) -> None:
        try:
            while not self._closing:
                try:
                    self._serve()
                except Exception:  # it must not end the thread: handover would end for all queues
                    self._failed("exchange messages with other processes")
                    with self._changed:
                        self._changed.wait_for(lambda: self._closing, RETRY_SECONDS)
        finally:
            if self._consumer is not None:
                self._consumer.close()

    def _serve(self) -> None:
        """Call each member once, and read what has come."""
        with self._changed:
            members = list(self._members.values())
        self._unassign(members)  # first: a queue may have been closed and opened again
        if not members:
            with self._changed:
                self._changed.wait_for(lambda: self._members or self._closing)
            return
        for member in members:
            self._tick(member)
        now = time.monotonic()
        seconds = TICK_SECONDS if any(member.is_busy(now) for member in members) else IDLE_TICK_SECONDS
        if self._consumer is not None and any(member.is_followed for member in members):
            self._read(self._consumer, seconds)
        else:
            self._rest(TICK_SECONDS if seconds == TICK_SECONDS else ALONE_SECONDS)

    def _rest(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._is_called, seconds)
            self._is_called = False

    def _tick(self, member: Member) -> None:
        try:
            member.tick(time.monotonic())
        except (JMSException, KafkaException) as error:
            failure = error if isinstance(error, JMSException) else jms_error(error, "hand messages over")
            now = time.monotonic()
            if now - self._last_warned.get(str(failure), -WARNING_SECONDS) > WARNING_SECONDS:
                self._last_warned = {str(failure): now}
                _log.log(level_of(failure, logging.WARNING), "%s; tried again", failure)
            with self._changed:
                self._changed.wait_for(lambda: self._closing, TICK_SECONDS)
        except Exception:  # of this queue; others are served all the same
            self._failed(f"do the handover of {member.interest_topic}")

    def _failed(self, doing: str) -> None:
        """Log an unexpected error that came while *doing* something: not each time where it comes again and again."""
        now = time.monotonic()
        if now - self._last_warned.get(doing, -WARNING_SECONDS) > WARNING_SECONDS:
            self._last_warned[doing] = now
            _log.exception("could not %s: an error of kjms, please report it; tried again", doing)

    def _unassign(self, members: list[Member]) -> None:
        """Stop reading for handovers that have ended."""
        if self._consumer is None:
            return
        wanted = {member.interest_topic for member in members if member.is_followed}
        idle = [place for place in self._consumer.assignment() if place.topic not in wanted]
        if idle:
            self._consumer.incremental_unassign(idle)

    def _read(self, consumer: ConsumerPort, seconds: float) -> None:
        first = consumer.poll(seconds)
        for record in [] if first is None else [first, *consumer.consume(BATCH, 0)]:
            error = record.error()
            if error is not None:
                _log.debug("%s", jms_error(error, "read what other processes want"))
                continue
            with self._changed:
                member = self._members.get(record.topic() or "")
            if member is not None:
                try:
                    member.received(record.offset() or 0, record.value())
                except Exception:  # what follows, and other queues, are served all the same
                    self._failed(f"take in a record of {member.interest_topic}")

    def close(self, timeout: CloseTimeout) -> None:
        """End the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            timeout.join(self._thread, CLOSE_SECONDS)
