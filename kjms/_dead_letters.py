"""Messages that were delivered too often: where they go, and what is written on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kjms.destinations import Destination, Queue
from kjms.engine._engine import destination_name
from kjms.mapping import KafkaRecord

if TYPE_CHECKING:
    from kjms.engine import Engine
    from kjms.engine._buffer import Delivery
    from kjms.options import FactoryOptions, RedeliveryPolicy

__all__ = ["dead_letter"]


def dead_letter(
    engine: Engine, options: FactoryOptions, destination: Destination, delivery: Delivery, policy: RedeliveryPolicy
) -> None:
    """Send a copy of *delivery*, with its cause and where it came from, to the dead-letter queue.

    The caller settles the original afterwards: a crash in between leaves it in both places, and loses it in none.

    Raises:
        JMSException: The dead-letter queue did not take it.
    """
    queue = Queue(policy.dead_letter_queue(destination_name(destination)))
    topic, _ = engine.topic_of(queue, options)
    record = delivery.record
    headers: list[tuple[str, bytes | None]] = [
        *(record.headers() or ()),
        ("JMS_kjms_Cause", b"delivered %d times" % (delivery.count - 1)),
        ("JMS_kjms_OriginalDestination", str(destination).encode()),
        ("JMS_kjms_OriginalPartition", b"%d" % delivery.partition.number),
        ("JMS_kjms_OriginalOffset", b"%d" % delivery.offset),
    ]
    copy = KafkaRecord(record.key(), record.value(), headers, record.timestamp()[1])
    engine.prompt.send_and_wait(topic, 0 if copy.key is None else -1, copy)
