"""What a consumer gets: a message that went through a record."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kjms import Queue
from kjms.mapping import KafkaRecord, decode, encode
from kjms.message import Message


class Source:
    """A record as a Kafka consumer gives it."""

    def __init__(self, record: KafkaRecord) -> None:
        self.value = lambda: record.value
        self.key = lambda: record.key
        self.headers = lambda: record.headers
        self.timestamp = lambda: (1, record.timestamp)
        self.topic = lambda: "orders"
        self.partition = lambda: 0
        self.offset = lambda: 7


@pytest.fixture(scope="session")
def received() -> Callable[..., Message]:
    """Send a message through a record, and return what a consumer of queue ``orders`` gets."""
    return lambda message, count=1: decode(Source(encode(message)), Queue("orders"), count)
