"""Record what happened to messages after their first delivery, for people and for Spark.

The topic ``kjms.redeliveries`` gets a record for each repeated delivery, dead letter and message that went to an expiry
queue. Its key is the Kafka topic that the message came from, its value a JSON object. No delivery depends on it.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from kjms.engine.delivery_reports import failure_of
from kjms.engine.tuning import DEFAULTS, Tuning
from kjms.errors import JMSException
from kjms.mapping import ANY_PARTITION, KafkaRecord
from kjms.mapping.names import REDELIVERIES

if TYPE_CHECKING:
    from kjms.destinations import Destination
    from kjms.engine.admin.topics import Topics
    from kjms.engine.consumer.delivery import Delivery, Event
    from kjms.engine.kafka import KafkaError, KafkaMessage
    from kjms.engine.publisher import Publisher

__all__ = ["RedeliveryLog"]

_log = logging.getLogger("kjms.redeliveries")

MOST = 10_000  # events that wait to be written; beyond that the oldest is dropped


class RedeliveryLog:
    """Collects events, from any thread and without waiting, and writes them when asked to.

    Args:
        topics: Knows and makes Kafka topics.
        publisher: Writes the records in the background.
        tuning: Has the clock.
    """

    def __init__(self, topics: Topics, publisher: Publisher, tuning: Tuning = DEFAULTS) -> None:
        self._now_ms = tuning.now_ms
        self._topics = topics
        self._publisher = publisher
        self._events: deque[dict[str, Any]] = deque(maxlen=MOST)
        self._writing = threading.Lock()
        self._is_there = False
        self._host = socket.gethostname()

    def note(self, event: Event, group: str, destination: Destination, delivery: Delivery) -> None:
        """Record what happens to *delivery*."""
        record = delivery.record
        self._events.append(
            {
                "event": event,
                "time": self._now_ms(),
                "destination": str(destination),
                "group": group,
                "topic": record.topic(),
                "partition": record.partition(),
                "offset": record.offset(),
                "message_id": delivery.message(destination).jms_message_id,
                "delivery": delivery.count,
                "cause": delivery.attempts.cause,
                "host": self._host,
                "process": os.getpid(),
            }
        )

    def write(self) -> None:
        """Write the events; a failure is logged."""
        if not self._events:
            return
        with self._writing:
            try:
                if not self._is_there:
                    if not self._topics.partitions(REDELIVERIES):
                        self._topics.make(REDELIVERIES, 1, self._topics.replication_factor, {})
                    self._is_there = True
                while self._events:
                    event = self._events.popleft()
                    value = json.dumps(event, ensure_ascii=False).encode()
                    record = KafkaRecord(str(event["topic"]).encode(), value, [], event["time"])
                    self._publisher.send(REDELIVERIES, ANY_PARTITION, record, _report)
            except JMSException as error:
                _log.warning("%s", error)
            except IndexError:  # the oldest event was dropped meanwhile
                pass


def _report(error: KafkaError | None, record: KafkaMessage) -> None:
    error = failure_of(error, record)
    if error is not None:
        _log.warning("a record of %s was not written: %s", REDELIVERIES, error)
