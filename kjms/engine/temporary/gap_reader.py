"""Reads records of an inbox again for sources that had no room for them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kjms.engine.interrupts import Condition
from kjms.engine.kafka import ConsumerPort, TopicPartition, open_consumer
from kjms.engine.log_reading import records
from kjms.engine.threads import start_thread
from kjms.errors import JMSException
from kjms.mapping.temporary import addressed_to

if TYPE_CHECKING:
    from kjms.engine.temporary.inbox_source import InboxSource

__all__ = ["GapReader"]

_log = logging.getLogger("kjms.inbox")

RETRY_SECONDS: Final = 1.0  # between a failure and the next attempt


class GapReader:
    """Fills sources that have room again, in a thread that is there while there are any.

    Args:
        topic: The inbox's Kafka topic.
        config: librdkafka's settings of a consumer without a group.
        report: Reports a failure that belongs to no call.
        timeout: Seconds to wait for Kafka.

    Attributes:
        thread: The thread; None: there is none now.
    """

    def __init__(
        self, topic: str, config: Mapping[str, Any], report: Callable[[JMSException], None], timeout: float
    ) -> None:
        self._topic = topic
        self._config = config
        self._report = report
        self._timeout = timeout
        self._changed = Condition()
        self._behind: dict[InboxSource, None] = {}  # that have room again, and missed records
        self._closing = False
        self.thread: threading.Thread | None = None

    def read_again(self, source: InboxSource) -> None:
        """Read soon what *source* missed while it was full."""
        with self._changed:
            if self._closing or source in self._behind:
                return
            self._behind[source] = None
            if self.thread is None:
                self.thread = start_thread(self._read_all_again, "kjms-inbox-again")

    def _read_all_again(self) -> None:
        consumer = open_consumer(self._config)
        try:
            while True:
                with self._changed:
                    source = next(iter(self._behind), None)
                    if source is None or self._closing:
                        self.thread = None
                        return
                try:
                    self._fill(consumer, source)
                except Exception as error:  # other sources must still be filled
                    _log.exception("%s: messages beyond the memory limit could not be read", source.name)
                    self._report(JMSException(f"reading {source.name} failed: {error}", None, error))
                    with self._changed:
                        self._changed.wait_for(lambda: self._closing, RETRY_SECONDS)
                else:
                    with self._changed:
                        del self._behind[source]
                    source.look_for_room()  # it may have been emptied meanwhile
        finally:
            consumer.close()

    def _fill(self, consumer: ConsumerPort, source: InboxSource) -> None:
        """Read on for *source*, until it is full or has caught up."""
        while not self._closing:
            gaps = source.gaps()
            for place, (start, end) in gaps.items():
                reached = self._read_gap(consumer, source, place, start, end)
                source.catch_up({place: reached})
                if reached < end:
                    return
            if source.catch_up({}):
                return

    def _read_gap(self, consumer: ConsumerPort, source: InboxSource, place: int, start: int, end: int) -> int:
        """Return up to where *source* took the records from *start* to *end*."""
        if start >= end:
            return start
        consumer.assign([TopicPartition(self._topic, place, start)])
        try:
            reached = start
            ends = {(self._topic, place): end}
            for record in records(consumer, ends, self._timeout, lambda: self._closing):
                if addressed_to(record) == source.number and not source.read_again(record):
                    return record.offset() or 0
                reached = (record.offset() or 0) + 1
            return reached if self._closing else end
        finally:
            consumer.unassign()

    def begin_to_close(self) -> None:
        """Have the thread end."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
