"""Tell what the delivery report of a record proves: librdkafka also confirms records that no broker has stored.

It sends several requests for a partition at a time. If a broker refuses the first for a passing reason, and takes a
later one, librdkafka concludes that the first was stored, and confirms it. Brokers see the gap in the sequence, except
where they know nothing of the producer: in a partition that it has never written to. Such a report has no offset, and
every other confirmation has one (docs/decisions/034-believe-no-confirmation-without-an-offset.md).
"""

from __future__ import annotations

from typing import Final

from kjms.engine.kafka import KafkaError, KafkaMessage

__all__ = ["NOT_PROVED", "failure_of"]

NOT_PROVED: Final = KafkaError._INCONSISTENT
"""The code of `failure_of` where Kafka's own report has no error."""


def failure_of(error: KafkaError | None, record: KafkaMessage) -> KafkaError | None:
    """Return why *record* may be missing in Kafka; None: it is stored.

    Args:
        error: The delivery report's error.
        record: The delivery report's record.
    """
    if error is None and record.offset() is None:
        return KafkaError(
            NOT_PROVED,
            "outcome unknown: the broker confirmed a later message of the partition, but not this one",
        )
    return error
