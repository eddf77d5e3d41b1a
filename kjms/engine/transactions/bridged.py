"""Write what a bridge brings into Kafka together with notes of its ids, so that no restart brings it twice.

Messages and the notes of their ids are one Kafka transaction, and the producer's name is the bridge's own: a
restart fences the producer before it, and then reads what was committed. After any failure, the bridge restarts.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kjms.engine.kafka import KafkaException, TopicPartition, jms_error, open_consumer
from kjms.engine.log_reading import UNTIL_END, records
from kjms.engine.settings import consumer_settings, producer_settings
from kjms.engine.transactions.errors import AbortedError, UnknownError
from kjms.engine.transactions.plan import Copy, TransactionPart
from kjms.engine.transactions.transactional_producer import TransactionalProducer
from kjms.errors import JMSException
from kjms.mapping import KafkaRecord
from kjms.mapping.names import bridge_transactional_id, bridged

if TYPE_CHECKING:
    from kjms.engine.engine import Engine

__all__ = ["MOST", "Bridged", "TooLargeError"]

MOST: Final = 100_000
"""How many ids are remembered: some 10 MB."""
DIGEST_BYTES: Final = 16
OFFSETS: Final = 2 * MOST  # where each note has one id: a note and the end of its transaction have an offset each
READ_SECONDS: Final = 60.0  # without anything read: another transaction may have to time out before
# Of the notes the last ones count. A segment is deleted when those after it hold enough.
NOTES_CONFIG: Final = {"retention.ms": "-1", "retention.bytes": "16777216", "segment.bytes": "4194304"}


class TooLargeError(JMSException):
    """Messages are larger than Kafka allows, each or together."""


class Bridged(TransactionalProducer[None]):
    """What one bridge has brought to one Kafka topic; used by one thread.

    Args:
        engine: Has the settings of clients.
        topic: The Kafka topic.
        name: The bridge's.
        most: How many ids are remembered.
    """

    def __init__(self, engine: Engine, topic: str, name: str, most: int = MOST) -> None:
        self.notes = bridged(topic, name)
        super().__init__(producer_settings(engine.settings), bridge_transactional_id(self.notes))
        engine.topics.ensure_internal(self.notes, like=topic, partitions=1, config=NOTES_CONFIG)
        self._settings: Mapping[str, Any] = consumer_settings(engine.settings, None)
        self._most = most
        self._ids: dict[bytes, None] = {}

    def begin(self) -> None:
        """Fence the producer before this one, and read what was committed.

        Raises:
            JMSException: Kafka does not let us.
        """
        self._producer = None
        self._ids.clear()
        try:
            self._begin_anew()
        except KafkaException as error:
            raise jms_error(error, "begin bridging", transactional_id=self._id) from error
        self.read()

    def has(self, message_id: str) -> bool:
        """Return whether the message with that id was committed before."""
        return _digest(message_id) in self._ids

    def write(self, copies: Sequence[Copy], message_ids: Iterable[str]) -> None:
        """Write *copies*, and note their ids.

        Raises:
            TooLargeError: Nothing was written; another attempt would not change that.
            JMSException: The outcome is unknown; `begin` finds it out.
        """
        digests = list(map(_digest, message_ids))
        if self._producer is None:
            raise JMSException("write: the bridge has to begin() again first")
        note = Copy(self.notes, 0, KafkaRecord(None, b"".join(digests), [], time.time_ns() // 1_000_000))
        try:
            self._transact([TransactionPart([*copies, note] if digests else copies)])
        except AbortedError as error:
            self._producer = None
            if error.is_too_large:
                raise TooLargeError(str(error.cause), None, error) from error
            raise error.cause from error
        except BaseException:
            self._producer = None
            raise
        self._remember(digests)
        if self._producer is None:  # it was left; another bridge of its name may have begun meanwhile
            self.begin()

    def interrupt(self) -> None:
        """End a `write` that the broker does not answer, for good; any thread may call it."""
        self._closing = True

    def close(self, seconds: float = 0) -> None:
        self._producer = None

    def _was_committed(self, commits: object, first: object) -> bool:
        raise UnknownError("transaction outcome unknown; begin() reads it from the log")

    def _remember(self, digests: Iterable[bytes]) -> None:
        ids = self._ids
        for digest in digests:
            ids.pop(digest, None)  # the last time counts
            ids[digest] = None
        while len(ids) > self._most:
            del ids[next(iter(ids))]

    def read(self) -> None:
        """Read the last notes; the producer's beginning has ended every transaction that could bring more."""
        place = TopicPartition(self.notes, 0)
        consumer = open_consumer({**self._settings, **UNTIL_END})
        try:
            first, end = consumer.get_watermark_offsets(place, READ_SECONDS)
            place.offset = max(first, end - OFFSETS)
            if place.offset < end:
                consumer.assign([place])
                for record in records(consumer, {(self.notes, 0): end}, READ_SECONDS):
                    value = record.value() or b""
                    self._remember(value[at : at + DIGEST_BYTES] for at in range(0, len(value), DIGEST_BYTES))
        except KafkaException as error:
            raise jms_error(error, f"read the Kafka topic {self.notes!r}", to="Read", topic=self.notes) from error
        finally:
            consumer.close()


def _digest(message_id: str) -> bytes:
    return hashlib.blake2b(message_id.encode(errors="surrogatepass"), digest_size=DIGEST_BYTES).digest()
