"""Messages that nobody is to get any more: which queue they go to, what is written on them, and how they come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kjms.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic
from kjms.engine._engine import destination_name
from kjms.engine._transactor import Copy
from kjms.mapping import KafkaRecord
from kjms.mapping.later import LATER
from kjms.mapping.temporary import letters_name

if TYPE_CHECKING:
    from kjms.engine import Engine
    from kjms.engine._delivery import Delivery
    from kjms.mapping import SourceRecord
    from kjms.options import FactoryOptions, RedeliveryPolicy

__all__ = [
    "CAUSE",
    "CUT",
    "DELIVERIES",
    "DESTINATION",
    "OFFSET",
    "PARTITION",
    "TOPIC",
    "dead_letter",
    "expired_letter",
    "raised_letter",
]

CAUSE: Final = "JMS_kjms_Cause"
DESTINATION: Final = "JMS_kjms_OriginalDestination"
TOPIC: Final = "JMS_kjms_OriginalTopic"
PARTITION: Final = "JMS_kjms_OriginalPartition"
OFFSET: Final = "JMS_kjms_OriginalOffset"
DELIVERIES: Final = "JMS_kjms_Deliveries"
EXPIRATION: Final = "JMS_kjms_OriginalExpiration"
CUT: Final = "JMS_kjms_Omitted"
# Where a delayed message waited goes as well: it says which subscriptions of a topic are to get it, and no more does.
OWN: Final = frozenset({CAUSE, DESTINATION, TOPIC, PARTITION, OFFSET, DELIVERIES, EXPIRATION, CUT, LATER})
EXPIRES: Final = "JMSExpiration"
EXPIRED: Final = "expired"


def dead_letter(
    engine: Engine, options: FactoryOptions, destination: Destination, delivery: Delivery, policy: RedeliveryPolicy
) -> Callable[[int], Copy]:
    """Return what makes the copy of *delivery*, delivered too often, for the dead-letter queue."""
    times = "1 time" if delivery.count == 2 else f"{delivery.count - 1} times"
    cause = f"delivered {times}{delivery.cause and f'; {delivery.cause}'}"
    is_temporary = isinstance(destination, TemporaryQueue | TemporaryTopic)
    name = letters_name(destination) if is_temporary else destination_name(destination)
    queue = Queue(policy.dead_letter_queue(name))
    return _letter(engine, options, destination, delivery, queue, cause)


def expired_letter(
    engine: Engine, options: FactoryOptions, destination: Destination, delivery: Delivery, queue_name: str
) -> Callable[[int], Copy]:
    """Return what makes the copy of *delivery*, whose message has expired, for the expiry queue."""
    return _letter(engine, options, destination, delivery, Queue(queue_name), EXPIRED)


def _letter(
    engine: Engine,
    options: FactoryOptions,
    destination: Destination,
    delivery: Delivery,
    queue: Queue,
    cause: str,
) -> Callable[[int], Copy]:
    """Return what makes the copy of *delivery* for *queue*, with its cause and where it came from.

    The copy does not expire. One that the queue's topic finds too large is made smaller: without the message's own
    headers, then without its body, which still stands where it came from as long as Kafka keeps it there.
    """

    def copy(too_large: int) -> Copy:
        topic, _ = engine.topic_of(queue, options)
        record = delivery.record
        headers: list[tuple[str, bytes | None]] = [
            (CAUSE, cause.encode()),
            (DELIVERIES, b"%d" % (delivery.count - 1)),
            (DESTINATION, str(destination).encode()),
            (TOPIC, str(record.topic()).encode()),
            (PARTITION, b"%d" % (record.partition() or 0)),
            (OFFSET, b"%d" % (record.offset() or 0)),
        ]
        value = record.value()
        if too_large > 1:
            value = None
        if too_large:
            headers.append((CUT, b"headers" if too_large == 1 else b"headers, body"))
        else:
            own = [header for header in record.headers() or () if header[0] not in OWN]
            headers[:0] = [(EXPIRATION if name == EXPIRES else name, data) for name, data in own]
        return Copy(
            topic,
            -1 if record.key() is not None else 0,
            KafkaRecord(record.key(), value, headers, max(record.timestamp()[1], 0)),
        )

    return copy


def raised_letter(record: SourceRecord, topic: str, partitions: int, now: int) -> Copy:
    """Return the message again that became the dead letter *record*, for where it came from.

    It is as it was, and nothing tells of its deliveries. It expires when it would have, unless that time is over.

    Args:
        record: The dead letter.
        topic: The Kafka topic that the message came from.
        partitions: How many partitions that has.
        now: Milliseconds since the epoch.
    """
    letter = dict(record.headers() or ())
    number = _number(letter.get(PARTITION))
    headers = [header for header in record.headers() or () if header[0] not in OWN]
    expiration = letter.get(EXPIRATION)
    if _number(expiration) > now:
        headers.append((EXPIRES, expiration))
    return Copy(
        topic,
        -1 if record.key() is not None else number if number < partitions else 0,
        KafkaRecord(record.key(), record.value(), headers, max(record.timestamp()[1], 0)),
    )


def _number(data: bytes | None) -> int:
    try:
        return int(data or b"0")
    except ValueError:
        return 0
