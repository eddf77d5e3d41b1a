"""Read what a queue holds for a queue browser, and take nothing from it."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from kjms.engine.admin.group_progress import read_progress
from kjms.engine.admin.log_index import Origin, is_unsettled
from kjms.engine.kafka import (
    ConsumerPort,
    KafkaError,
    KafkaException,
    KafkaMessage,
    TopicPartition,
    jms_error,
    open_consumer,
)
from kjms.engine.log_reading import UNTIL_END
from kjms.errors import JMSException
from kjms.mapping import SourceRecord
from kjms.mapping.relocated import original
from kjms.txn.metadata import History, State
from kjms.txn.states import NEVER

if TYPE_CHECKING:
    from kjms.destinations import Queue
    from kjms.engine.consumer.overflow import Overflow
    from kjms.mapping.bridges import Decoder
    from kjms.message import Message
    from kjms.selector import Selector

__all__ = ["Browsing"]

_log = logging.getLogger("kjms.browsing")

POLL_SECONDS: Final = 0.1  # how soon closing by another thread is noticed
BATCH: Final = 500  # records taken from librdkafka at once
CLOSE_SECONDS: Final = 2.0  # how long closing waits for the thread that reads; else that one closes

Place = tuple[str, int]


class QueueReading:
    """Reads what is unsettled in a queue, from the settlement that is committed to where the partitions end then.

    It reads with a Kafka consumer that is in no group: what the queue's group has committed says what is settled.

    Args:
        name: The queue's name, for errors.
        config: librdkafka's settings of a consumer, with the queue's group.
        topic: The queue's Kafka topic.
        overflow: Knows the Kafka topics, and reads copies of offsets that Kafka has deleted.
        decode: How records are read.
        timeout: Seconds without an answer after which reading fails.

    Attributes:
        ready: Unsettled records that were read.
    """

    def __init__(
        self,
        name: str,
        config: Mapping[str, Any],
        topic: str,
        overflow: Overflow,
        decode: Decoder,
        timeout: float,
    ) -> None:
        self._name = name
        self._config = {**config, **UNTIL_END}
        self._topic = topic
        self._overflow = overflow
        self._decode = decode
        self._timeout = timeout
        self._consumer: ConsumerPort | None = None
        self._states: dict[Place, State] = {}
        self._ends: dict[Place, int] = {}
        self._to_read: list[list[TopicPartition]] = []  # one topic after the other
        self._left: dict[Place, int] = {}  # what is being read, with its ends
        self.ready: deque[KafkaMessage] = deque()
        self._deadline = 0.0

    def __repr__(self) -> str:
        return f"<QueueReading {self._name}: {len(self._left)} partitions left, {len(self.ready)} records ready>"

    def history(self, place: Place, offset: int) -> History:
        """Return what happened to the message at *offset* of the partition at *place*, as far as it is settlement."""
        return self._states[place].histories.get(offset, NEVER)

    def includes(self, source: SourceRecord) -> bool:
        """Return whether *source*, a record of the queue's own topic, is among what is read."""
        place, offset = (source.topic() or "", source.partition() or 0), source.offset() or 0
        state = self._states.get(place) if place[0] == self._topic else None
        return state is not None and offset < self._ends[place] and is_unsettled(state, offset)

    def close(self) -> None:
        """Close the Kafka consumer."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            self.ready.clear()
            consumer.close()

    def read(self) -> bool:
        """Read what Kafka has for now; return whether there may be more.

        Raises:
            JMSException: The broker does not answer, or the queue's settlement was written by a later kjms.
            KafkaException: The broker refuses the request.
        """
        if self._consumer is None:
            self._consumer = open_consumer(self._config)
            self._begin(self._consumer)
        consumer = self._consumer
        if not self._left:
            if not self._to_read:
                return False
            starts = self._to_read.pop(0)
            self._left = {(start.topic, start.partition): self._ends[start.topic, start.partition] for start in starts}
            consumer.assign(starts)
        first = consumer.poll(POLL_SECONDS)
        if first is None:
            if time.monotonic() > self._deadline:
                raise JMSException(f"browse {self._name}: the broker has not answered for {self._timeout:g} s")
            return True
        self._deadline = time.monotonic() + self._timeout
        for record in (first, *consumer.consume(BATCH - 1, 0)):
            self._arrived(consumer, record)
        return True

    def _begin(self, consumer: ConsumerPort) -> None:
        """Find out what is settled, and where the queue ends."""
        found = read_progress(self._name, self._topic, self._overflow, consumer, self._decode)
        self._states = {(each.topic, each.number): each.state for each in found}
        self._ends = {(each.topic, each.number): each.end for each in found}
        for _, of_one_topic in groupby(found, key=lambda each: each.topic):
            filled = [
                TopicPartition(each.topic, each.number, each.state.committed_offset)
                for each in of_one_topic
                if each.end > each.state.committed_offset
            ]
            if filled:
                self._to_read.append(filled)
        self._deadline = time.monotonic() + self._timeout

    def _arrived(self, consumer: ConsumerPort, record: KafkaMessage) -> None:
        place = record.topic() or "", record.partition() or 0
        end, offset = self._left.get(place), record.offset() or 0
        error = record.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            if not error.retriable():
                raise KafkaException(error)
            _log.debug("browse %s: %s", self._name, error)
        elif end is not None:
            if error is None and offset < end and is_unsettled(self._states[place], offset):
                self.ready.append(record)
            if offset >= (end if error is not None else end - 1):
                del self._left[place]
                consumer.pause([TopicPartition(*place)])


class Browsing:
    """One look at a queue, from what is unsettled when it begins to what the queue's partitions end with then.

    It takes nothing, and no consumer notices. One thread reads; any thread may close.

    Args:
        queue: The queue.
        config: librdkafka's settings of a consumer, with the queue's group.
        topic: The queue's Kafka topic.
        overflow: Knows the Kafka topics, and reads copies of offsets that Kafka has deleted.
        decode: How records are read.
        selector: Which messages are wanted; None is all.
        timeout: Seconds without an answer after which reading fails.
    """

    def __init__(
        self,
        queue: Queue,
        config: Mapping[str, Any],
        topic: str,
        overflow: Overflow,
        decode: Decoder,
        selector: Selector | None,
        timeout: float,
    ) -> None:
        self._queue = queue
        self._topic = topic
        self._overflow = overflow
        self._decode = decode
        self._selector = selector
        self._reading = QueueReading(str(queue), config, topic, overflow, decode, timeout)
        self._lock = threading.Lock()  # held by the thread that reads
        self._is_closed = False
        self._moved: set[Origin] = set()  # what was shown of messages that were relocated

    def __repr__(self) -> str:
        return f"<Browsing {self._queue}: {self._reading!r}>"

    def next(self) -> Message | None:
        """Return the next message; None at the end, and once it is closed.

        Raises:
            JMSException: The broker does not answer, or the queue's settlement was written by a later kjms.
        """
        message = None
        try:
            with self._lock:
                while message is None and not self._is_closed:
                    if self._reading.ready:
                        message = self._message(self._reading.ready.popleft())
                    elif not self._reading.read():
                        self._is_closed = True
        except KafkaException as error:
            self._is_closed = True
            doing = f"browse {self._queue}"
            raise jms_error(error, doing, to="Read", topic=self._topic, group=self._overflow.group) from error
        finally:
            if self._is_closed:
                self.close()
        return None if self._is_closed else message

    def close(self) -> None:
        """Close the Kafka consumer; a thread that reads meanwhile gets nothing more."""
        self._is_closed = True
        if not self._lock.acquire(timeout=CLOSE_SECONDS):
            return  # the thread that reads closes it when the broker answers
        try:
            self._reading.close()
        finally:
            self._lock.release()

    def _message(self, record: KafkaMessage) -> Message | None:
        """Return the message of *record*; None where it is not to be shown."""
        place = record.topic() or "", record.partition() or 0
        history = self._reading.history(place, record.offset() or 0)
        source: SourceRecord = record
        if place[0] != self._topic:
            source, before = original(record)
            origin = source.topic() or "", source.partition() or 0, source.offset() or 0
            if origin in self._moved or self._reading.includes(source):
                return None  # it was relocated since the look began, perhaps for the second time
            self._moved.add(origin)
            history = max(history, before)
        message = self._decode(source, self._queue, history.deliveries + 1)
        now = self._overflow.tuning.now_ms()
        if 0 < message.jms_expiration < now or message.jms_delivery_time > max(now, message.jms_timestamp):
            return None
        return message if self._selector is None or self._selector.matches(message) else None
