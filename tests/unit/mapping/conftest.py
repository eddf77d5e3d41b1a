"""A record as a Kafka consumer gives it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kjms import Queue
from kjms.mapping import KafkaRecord, decode
from kjms.message import Message


class Source:
    def __init__(self, record: KafkaRecord) -> None:
        self.value = lambda: record.value
        self.key = lambda: record.key
        self.headers = lambda: record.headers
        self.timestamp = lambda: (1, record.timestamp)
        self.topic = lambda: "orders"
        self.partition = lambda: 3
        self.offset = lambda: 7


@pytest.fixture(scope="session")
def source() -> Callable[[KafkaRecord], Source]:
    """Make what the Kafka client gives of a record."""
    return Source


@pytest.fixture(scope="session")
def read() -> Callable[..., Message]:
    """Decode a record made of value, headers, key and timestamp, as if read from queue ``orders``."""

    def decoded(value: bytes | None, headers: object = None, key: bytes | None = None, timestamp: int = 0) -> Message:
        return decode(Source(KafkaRecord(key, value, headers, timestamp)), Queue("orders"))  # type: ignore[arg-type]

    return decoded
