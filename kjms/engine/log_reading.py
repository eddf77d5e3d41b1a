"""Reading a Kafka log once, from one place to another."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, TypeAlias

from kjms.engine.kafka import ConsumerPort, KafkaError, KafkaException, KafkaMessage
from kjms.errors import JMSException

__all__ = ["UNTIL_END", "Place", "records"]

Place: TypeAlias = "tuple[str, int]"
"""A topic, and the number of a partition."""

UNTIL_END: Final = {"enable.partition.eof": True}
"""What the settings of a consumer must say, so that `records` learns where partitions end."""

BATCH: Final = 1_000  # records taken from librdkafka at once
POLL_SECONDS: Final = 0.1  # how soon the end of reading is noticed
QUIET_SECONDS: Final = 1.0  # without a record or event, before the caller is asked which logs are still there


def records(
    consumer: ConsumerPort,
    ends: Mapping[Place, int],
    timeout: float,
    is_over: Callable[[], bool] = lambda: False,
    cut: Callable[[Mapping[Place, int]], Collection[Place]] = lambda _: (),
) -> Iterator[KafkaMessage]:
    """Give the records of what *consumer* is assigned, until each partition was read up to its end.

    Args:
        consumer: Made with `UNTIL_END`.
        ends: The offset before which each partition is read.
        timeout: Seconds without a record or event after which reading fails.
        is_over: Says whether no more is wanted.
        cut: Returns which partitions of those with these ends do not exist any more, or end earlier: for these Kafka
            sends nothing that finishes them. It is called once a second while nothing arrives; they are finished.

    A partition is finished by its last record before the end, by any record at or beyond the end, or by librdkafka's
    end-of-partition event. While others keep writing, the event may never come.

    Raises:
        JMSException: No record or event of what is left to read arrived in time.
        KafkaException: The broker refuses the request.
    """
    left = dict(ends)
    arrived = asked = time.monotonic()
    while left and not is_over():
        first = consumer.poll(POLL_SECONDS)
        for record in () if first is None else (first, *consumer.consume(BATCH, 0)):
            error, offset = record.error(), record.offset() or 0
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                if error.retriable():
                    continue
                raise KafkaException(error)
            place = record.topic() or "", record.partition() or 0
            end = left.get(place)
            if end is None:  # finished: what came later is none of this reading's
                continue
            arrived = asked = time.monotonic()
            if error is None and offset < end:
                yield record
                offset += 1
            if offset >= end:  # a later record says so, too: before the end there may stand a transaction's marker
                del left[place]
        now = time.monotonic()
        if left and now - asked > min(QUIET_SECONDS, timeout):
            for place in cut(left):
                del left[place]
            asked = time.monotonic()
        if left and now - arrived > timeout:
            topic = next(iter(left))[0]
            raise JMSException(f"the Kafka topic {topic!r} has not answered for {timeout:g} s")
