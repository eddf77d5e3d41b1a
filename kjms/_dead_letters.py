"""Messages that were delivered too often: where they go, and what is written on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kjms.destinations import Destination, Queue
from kjms.engine._engine import destination_name
from kjms.engine._mover import Copy
from kjms.mapping import KafkaRecord

if TYPE_CHECKING:
    from kjms.engine import Engine
    from kjms.engine._delivery import Delivery
    from kjms.options import FactoryOptions, RedeliveryPolicy

__all__ = ["dead_letter"]

CAUSE: Final = "JMS_kjms_Cause"
DESTINATION: Final = "JMS_kjms_OriginalDestination"
TOPIC: Final = "JMS_kjms_OriginalTopic"
PARTITION: Final = "JMS_kjms_OriginalPartition"
OFFSET: Final = "JMS_kjms_OriginalOffset"
DELIVERIES: Final = "JMS_kjms_Deliveries"
CUT: Final = "JMS_kjms_Omitted"
OWN: Final = frozenset({CAUSE, DESTINATION, TOPIC, PARTITION, OFFSET, DELIVERIES, CUT})


def dead_letter(
    engine: Engine, options: FactoryOptions, destination: Destination, delivery: Delivery, policy: RedeliveryPolicy
) -> Callable[[int], Copy]:
    """Return what makes the copy of *delivery* for the dead-letter queue, with its cause and where it came from.

    A copy that the queue's topic finds too large is made smaller: without the message's own headers, then without its
    body, which still stands where it came from as long as Kafka keeps it there.
    """

    def copy(too_large: int) -> Copy:
        queue = Queue(policy.dead_letter_queue(destination_name(destination)))
        topic, _ = engine.topic_of(queue, options)
        record = delivery.record
        deliveries = delivery.count - 1
        headers: list[tuple[str, bytes | None]] = [
            (CAUSE, f"delivered {deliveries} times{delivery.cause and f'; {delivery.cause}'}".encode()),
            (DELIVERIES, b"%d" % deliveries),
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
            headers[:0] = [header for header in record.headers() or () if header[0] not in OWN]
        return Copy(
            topic,
            -1 if record.key() is not None else 0,
            KafkaRecord(record.key(), value, headers, max(record.timestamp()[1], 0)),
        )

    return copy
