"""The engine's thread for handing messages over: it follows what other processes want of the queues read here."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kjms.engine.kafka import ConsumerPort, KafkaException, TopicPartition, jms_error, level_of, open_consumer
from kjms.engine.settings import NEW_TOPIC
from kjms.errors import JMSException

if TYPE_CHECKING:
    from kjms.engine.handover.transfer import Handover
    from kjms.engine.publisher import Publisher

__all__ = ["Exchange"]

_log = logging.getLogger("kjms.handover")

TICK_SECONDS: Final = 0.05  # between looks at who waits
IDLE_TICK_SECONDS: Final = 0.2  # the same where nothing moves; closing waits for it
ASK_SECONDS: Final = 10.0  # how long Kafka may take to say where something stands
WAIT_MS: Final = 500  # news ends the wait; a fetch that brings none is repeated after that
BATCH: Final = 500  # notices taken from librdkafka at once
CLOSE_SECONDS: Final = 5.0
GRUMBLE_SECONDS: Final = 30.0  # between warnings of the same trouble


class Exchange:
    """Serves the hand-overs of one engine's readers.

    Args:
        engine: The engine's name, by which the others know it.
        config: librdkafka's settings of a consumer that reads on its own.
        publisher: Writes notices.
    """

    def __init__(self, engine: str, config: Mapping[str, Any], publisher: Publisher) -> None:
        self.engine = engine
        self.publisher = publisher
        self._config = {**config, "fetch.wait.max.ms": WAIT_MS, **NEW_TOPIC}
        self._news = threading.Condition()
        self._members: dict[str, Handover] = {}  # by the topic of their notices
        self._consumer: ConsumerPort | None = None
        self._thread: threading.Thread | None = None
        self._closing = False
        self._grumbled: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<Exchange of {self.engine}: {len(self._members)} readers>"

    @property
    def thread(self) -> threading.Thread | None:
        """Its thread; None: none was started yet."""
        return self._thread

    def join(self, member: Handover) -> None:
        """Serve *member* from now on."""
        with self._news:
            self._members[member.demand] = member
            if self._thread is None and not self._closing:
                self._thread = threading.Thread(target=self._run, name="kjms-exchange", daemon=True)
                self._thread.start()
            self._news.notify()

    def leave(self, member: Handover) -> None:
        """Serve *member* no more."""
        with self._news:
            if self._members.get(member.demand) is member:
                del self._members[member.demand]

    # The thread.

    def follow(self, member: Handover, since_ms: int, greeted_at: int) -> None:
        """Read the notices of *member*'s topic, those from *since_ms* on that stand before *greeted_at*, and the later.

        Raises:
            KafkaException: Kafka does not say where they stand.
        """
        if self._consumer is None:
            self._consumer = open_consumer(self._config)
        asked = TopicPartition(member.demand, 0, max(since_ms, 0))
        found = self._consumer.offsets_for_times([asked], ASK_SECONDS)[0]
        if found.error is not None:
            raise KafkaException(found.error)
        start = found.offset if 0 <= found.offset < greeted_at else greeted_at
        self._consumer.incremental_assign([TopicPartition(member.demand, 0, start)])

    def _run(self) -> None:
        try:
            while not self._closing:
                with self._news:
                    if not self._members:
                        self._news.wait_for(lambda: self._members or self._closing)
                    members = list(self._members.values())
                for member in members:
                    self._tick(member)
                self._forsake(members)
                now = time.monotonic()
                is_stirred = any(member.is_stirred(now) for member in members)
                seconds = TICK_SECONDS if is_stirred else IDLE_TICK_SECONDS
                if self._consumer is not None and any(member.is_followed for member in members):
                    self._read(self._consumer, seconds)
                else:
                    with self._news:
                        self._news.wait_for(lambda: self._closing, seconds)
        except Exception:  # nobody hands over any more, and all else goes on
            _log.exception("messages are not handed over any more")
        finally:
            if self._consumer is not None:
                self._consumer.close()

    def _tick(self, member: Handover) -> None:
        try:
            member.tick(time.monotonic())
        except (JMSException, KafkaException) as error:
            failure = error if isinstance(error, JMSException) else jms_error(error, "hand messages over")
            now = time.monotonic()
            if now - self._grumbled.get(str(failure), -GRUMBLE_SECONDS) > GRUMBLE_SECONDS:
                self._grumbled = {str(failure): now}
                _log.log(level_of(failure, logging.WARNING), "%s; tried again", failure)
            with self._news:
                self._news.wait_for(lambda: self._closing, TICK_SECONDS)

    def _forsake(self, members: list[Handover]) -> None:
        """Stop reading for those who left."""
        if self._consumer is None:
            return
        wanted = {member.demand for member in members if member.is_followed}
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
            with self._news:
                member = self._members.get(record.topic() or "")
            if member is not None:
                member.heard(record.offset() or 0, record.value())

    def close(self) -> None:
        """End the thread."""
        with self._news:
            self._closing = True
            self._news.notify_all()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)
