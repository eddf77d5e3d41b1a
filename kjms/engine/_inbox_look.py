"""A look at what a temporary queue holds, which takes nothing from it: what a queue browser shows of one."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from kjms.engine._errors import jms_error
from kjms.errors import JMSException
from kjms.mapping import decode
from kjms.mapping.temporary import addressed_to

if TYPE_CHECKING:
    from kjms.destinations import Destination
    from kjms.engine._mailbox import Mailbox
    from kjms.message import Message
    from kjms.selector import Selector

__all__ = ["InboxLook"]

BATCH: Final = 500  # records taken from librdkafka at once
POLL_SECONDS: Final = 0.1  # how soon a look that is closed by another thread is noticed


class InboxLook:
    """Shows what a mailbox holds, and then what it has no room for, as it stands in the inbox.

    Args:
        queue: The temporary queue.
        mailbox: Its mailbox.
        config: librdkafka's settings of a consumer without a group.
        ends: Where the inbox ended when the look began.
        selector: Which messages are wanted; None is all.
        patience: Seconds after which a Kafka that says nothing is given up.
    """

    def __init__(
        self,
        queue: Destination,
        mailbox: Mailbox,
        config: Mapping[str, Any],
        ends: Mapping[int, int],
        selector: Selector | None,
        patience: float,
    ) -> None:
        self._queue = queue
        self._number = mailbox.number
        self._config = {**config, "enable.partition.eof": True}
        self._selector = selector
        self._patience = patience
        self._ready, gaps = mailbox.held()
        self._topic = mailbox.topic
        self._gaps = {place: (start, ends[place]) for place, (start, _) in gaps.items() if start < ends[place]}
        self._lock = threading.Lock()  # held by the thread that looks
        self._consumer: Consumer | None = None
        self._place: int | None = None  # which partition it reads
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<InboxLook {self._queue}: {len(self._ready)} records ready, {len(self._gaps)} partitions left>"

    def next(self) -> Message | None:
        """Return the next message; None at the end, and once it is closed.

        Raises:
            JMSException: Kafka does not answer.
        """
        try:
            with self._lock:
                while not self._is_closed and (self._ready or self._gaps):
                    if not self._ready:
                        self._read()
                        continue
                    message = self._message(*self._ready.popleft())
                    if message is not None:
                        return message
        except KafkaException as error:
            raise jms_error(error, f"browse {self._queue}") from error
        return None

    def _message(self, record: KafkaMessage, delivery: int) -> Message | None:
        message = decode(record, self._queue, delivery)
        now = time.time_ns() // 1_000_000
        if 0 < message.jms_expiration < now or message.jms_delivery_time > max(now, message.jms_timestamp):
            return None
        return message if self._selector is None or self._selector.matches(message) else None

    def _read(self) -> None:
        """Read some of what the mailbox has no room for."""
        place, (start, end) = next(iter(self._gaps.items()))
        if self._consumer is None:
            self._consumer = Consumer(self._config)
        if place != self._place:
            self._place = place
            self._consumer.assign([TopicPartition(self._topic, place, start)])
        deadline = time.monotonic() + self._patience
        while not self._ready and start < end and not self._is_closed:
            first = self._consumer.poll(POLL_SECONDS)
            for record in [] if first is None else [first, *self._consumer.consume(BATCH, 0)]:
                error, offset = record.error(), record.offset() or 0
                if error is None:
                    start = offset + 1
                    if offset < end and addressed_to(record) == self._number:
                        self._ready.append((record, 1))
                elif error.code() == KafkaError._PARTITION_EOF:
                    start = max(start, offset)
                elif not error.retriable():
                    raise KafkaException(error)
            if time.monotonic() > deadline:
                raise JMSException(f"browse {self._queue}: Kafka has not answered for {self._patience:g} s")
        if start < end:
            self._gaps[place] = start, end
        else:
            del self._gaps[place]

    def close(self) -> None:
        """Give the Kafka consumer up; a thread that looks meanwhile gets nothing more."""
        self._is_closed = True
        with self._lock:
            consumer, self._consumer = self._consumer, None
            self._ready = deque()
            if consumer is not None:
                consumer.close()
