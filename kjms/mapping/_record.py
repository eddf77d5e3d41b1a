"""What goes to Kafka and what comes from there, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

__all__ = ["ANY_PARTITION", "KafkaRecord", "SourceRecord", "compact"]

ANY_PARTITION: Final = -1
"""Where a record is to go whose key decides, or that may go anywhere: the Kafka client chooses."""


class KafkaRecord(NamedTuple):
    """A record as a Kafka producer takes it."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int
    """Milliseconds since 1970 UTC; 0 leaves it to the producer."""


class SourceRecord(Protocol):
    """A record as a Kafka consumer gives it: ``confluent_kafka.Message`` is one."""

    def value(self) -> bytes | None:
        """The record's value."""

    def key(self) -> bytes | None:
        """The record's key."""

    def headers(self) -> Sequence[tuple[str, bytes | None]] | None:
        """The record's headers in their order; None where there are none."""

    def timestamp(self) -> tuple[int, int]:
        """What kind of timestamp it is, and the timestamp in milliseconds."""

    def topic(self) -> str | None:
        """The topic that the record was read from."""

    def partition(self) -> int | None:
        """The partition of the topic."""

    def offset(self) -> int | None:
        """The record's offset in the partition."""


def compact(record: SourceRecord) -> None:
    """Let *record*, which may wait for long, hold its headers in a tuple: the garbage collector does not look into it.

    Of the Kafka client's records, each has a list, and the collector looks at all of it in each of its passes. Other
    kinds of records are left as they are.
    """
    set_headers = getattr(record, "set_headers", None)
    if set_headers is None:
        return
    try:
        headers = record.headers()
    except UnicodeDecodeError:  # a header's name is no UTF-8
        return
    if headers:
        set_headers(tuple(headers))
