"""A look at what a temporary queue holds, which takes nothing from it: what a queue browser shows of one."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from kjms.engine.kafka import ConsumerPort, KafkaException, KafkaMessage, TopicPartition, jms_error, open_consumer
from kjms.engine.log_reading import UNTIL_END, records
from kjms.mapping import decode
from kjms.mapping.temporary import addressed_to

if TYPE_CHECKING:
    from kjms.destinations import Destination
    from kjms.engine.temporary.inbox_source import InboxSource
    from kjms.message import Message
    from kjms.selector import Selector

__all__ = ["InboxLook"]


class InboxLook:
    """Shows what a source holds, and then what it has no room for, as it is in the inbox.

    Args:
        queue: The temporary queue.
        source: Its source.
        config: librdkafka's settings of a consumer without a group.
        ends: Where the inbox ended when the look began.
        selector: Which messages are wanted; None is all.
        timeout: Seconds without an answer after which reading fails.
    """

    def __init__(
        self,
        queue: Destination,
        source: InboxSource,
        config: Mapping[str, Any],
        ends: Mapping[int, int],
        selector: Selector | None,
        timeout: float,
    ) -> None:
        self._queue = queue
        self._number = source.number
        self._now_ms = source.overflow.tuning.now_ms
        self._config = {**config, **UNTIL_END}
        self._selector = selector
        self._timeout = timeout
        held, gaps = source.held()
        self._topic = source.topic
        self._gaps = {place: (start, ends[place]) for place, (start, _) in gaps.items() if start < ends[place]}
        self._lock = threading.Lock()  # held by the thread that looks
        self._consumer: ConsumerPort | None = None
        self._records = chain(held, self._missed() if self._gaps else ())
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<InboxLook {self._queue}{', closed' if self._is_closed else ''}>"

    def next(self) -> Message | None:
        """Return the next message; None at the end, and once it is closed.

        Raises:
            JMSException: The broker does not answer.
        """
        try:
            with self._lock:
                while not self._is_closed and (found := next(self._records, None)) is not None:
                    message = self._message(*found)
                    if message is not None:
                        return message
        except KafkaException as error:
            raise jms_error(error, f"browse {self._queue}") from error
        return None

    def _message(self, record: KafkaMessage, delivery: int) -> Message | None:
        message = decode(record, self._queue, delivery)
        now = self._now_ms()
        if 0 < message.jms_expiration < now or message.jms_delivery_time > max(now, message.jms_timestamp):
            return None
        return message if self._selector is None or self._selector.matches(message) else None

    def _missed(self) -> Iterator[tuple[KafkaMessage, int]]:
        """Give what the source has no room for."""
        consumer = self._consumer = open_consumer(self._config)
        for place, (start, end) in self._gaps.items():
            consumer.assign([TopicPartition(self._topic, place, start)])
            for record in records(consumer, {(self._topic, place): end}, self._timeout, lambda: self._is_closed):
                if addressed_to(record) == self._number:
                    yield record, 1

    def close(self) -> None:
        """Give the Kafka consumer up; a thread that looks meanwhile gets nothing more."""
        self._is_closed = True
        with self._lock:
            consumer, self._consumer = self._consumer, None
            if consumer is not None:
                consumer.close()
