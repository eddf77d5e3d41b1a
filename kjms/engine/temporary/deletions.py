"""Which temporary destinations of other programs are deleted, as far as this engine sends to them."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from kjms.engine.admin.topics import NOT_READY
from kjms.engine.kafka import (
    ConsumerPort,
    KafkaError,
    KafkaException,
    TopicPartition,
    jms_error,
    kafka_error,
    open_consumer,
)
from kjms.engine.log_reading import UNTIL_END, records
from kjms.engine.skipped import SkippedRecords
from kjms.mapping.internal import MalformedError
from kjms.mapping.temporary import DELETIONS, Numbers, read_deletion

__all__ = ["Deletions"]

FRESH_SECONDS: Final = 0.09  # how old a look may be: a deletion is known everywhere a tenth of a second later
MOST_KNOWN: Final = 1_000  # inboxes of which something is kept; of another one, all is read again
RETRY_SECONDS: Final = 0.02
NEW_SECONDS: Final = 0.1  # an inbox that was just made may not be known to every broker
GONE: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})


class _Known:
    """What is known of one inbox."""

    def __init__(self) -> None:
        self.deleted = Numbers()
        self.read = 0  # up to which offset of the deletions
        self.looked = -FRESH_SECONDS  # when the last look began
        self.is_gone = False
        self.is_seen = False  # whether it was there once


class Deletions:
    """Looks at the deletions of an inbox before something is sent there, unless it did so a moment ago.

    A look asks for the end of a partition; only when something was deleted since, that is read. So a program that
    sends nothing asks nothing.

    Args:
        config: librdkafka's settings of a consumer without a group.
        timeout: Seconds to wait for Kafka.
        skipped: Counts the records that cannot be read.
    """

    def __init__(self, config: Mapping[str, Any], timeout: float, skipped: SkippedRecords | None = None) -> None:
        self._config = {**config, **UNTIL_END}
        self._timeout = timeout
        self._skipped = SkippedRecords() if skipped is None else skipped
        self._lock = threading.Lock()
        self._consumer: ConsumerPort | None = None
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Deletions of {len(self._known)} inboxes>"

    def includes(self, inbox: str, number: int) -> bool:
        """Tell whether the temporary destination *number* of *inbox* is gone, or its inbox is.

        Raises:
            JMSException: The broker does not answer.
        """
        with self._lock:
            known = self._known.get(inbox)
            if known is None:
                known = self._known[inbox] = _Known()
                if len(self._known) > MOST_KNOWN:
                    self._known.popitem(last=False)
            else:
                self._known.move_to_end(inbox)
            if number in known.deleted:
                return True
            now = time.monotonic()
            if now - known.looked > FRESH_SECONDS:
                known.is_gone = not self._look(inbox, known)
                known.looked = now
            return known.is_gone or number in known.deleted

    def _look(self, inbox: str, known: _Known) -> bool:
        """Read what is new of *inbox*; return whether it is there."""
        begin = time.monotonic()
        while True:
            try:
                self._look_once(inbox, known)
            except KafkaException as error:
                inner, waited = kafka_error(error), time.monotonic() - begin
                is_gone = inner.code() in GONE
                if is_gone and (known.is_seen or waited > NEW_SECONDS):
                    return False
                if waited > self._timeout or not (is_gone or inner.retriable() or inner.code() in NOT_READY):
                    raise jms_error(error, f"look up what is deleted of {inbox!r}") from error
                time.sleep(RETRY_SECONDS)
            else:
                known.is_seen = True
                return True

    def _look_once(self, inbox: str, known: _Known) -> None:
        if self._consumer is None:
            self._consumer = open_consumer(self._config)
        place = TopicPartition(inbox, DELETIONS)
        low, high = self._consumer.get_watermark_offsets(place, self._timeout)
        known.read = max(known.read, low)
        if known.read < high:
            self._consumer.assign([TopicPartition(inbox, DELETIONS, known.read)])
            try:
                for record in records(self._consumer, {(inbox, DELETIONS): high}, self._timeout):
                    try:
                        known.deleted.add_all(read_deletion(record))
                    except MalformedError as error:
                        self._skipped.add(inbox, DELETIONS, record.offset(), error)
                    known.read = (record.offset() or 0) + 1
                known.read = high
            finally:
                self._consumer.unassign()

    def close(self) -> None:
        """Let the client go."""
        with self._lock:
            consumer, self._consumer = self._consumer, None
            if consumer is not None:
                consumer.close()
