"""A send while the Kafka client's buffer is full."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pytest

from kjms import Queue, TextMessage
from kjms.errors import ResourceAllocationException
from kjms.testing import MemoryKafka
from tests.helpers import Desk, Intercepted, intercepted


class Crowded(Intercepted):
    """A producer whose buffer gets room again and again, which other threads take first.

    Attributes:
        left: How often they do.
    """

    def __init__(self, inner: Any, config: Mapping[str, Any], left: int) -> None:
        super().__init__(inner, config)
        self.left = left

    def produce(self, topic: str, value: bytes, *arguments: Any, **named: Any) -> None:
        """Accept a message when no other thread is faster."""
        if value == b"text" and self.left > 0:
            raise BufferError("Local: Queue full")
        self.inner.produce(topic, value, *arguments, **named)

    def __len__(self) -> int:
        self.left -= 1
        return max(self.left, 0)


class Stuck(Intercepted):
    """A producer whose buffer stays full."""

    def produce(self, topic: str, value: bytes, *arguments: Any, **named: Any) -> None:
        """Accept no message."""
        if value == b"text":
            raise BufferError("Local: Queue full")
        self.inner.produce(topic, value, *arguments, **named)


def test_a_send_waits_for_room_as_often_as_others_take_it(kafka: MemoryKafka, desk: Desk, queue: Queue) -> None:
    """However long others are faster, the message is sent in the end."""
    often = 4 * sys.getrecursionlimit()
    with intercepted(kafka.bootstrap_servers, producer=lambda inner, config: Crowded(inner, config, often)):
        session = desk.session(connection=desk.connect(is_apart=True))
        session.create_producer(queue).send(TextMessage("text"))
    assert desk.stored(queue) == ["text"]


def test_a_send_that_finds_no_room_says_so(kafka: MemoryKafka, desk: Desk, queue: Queue) -> None:
    """A buffer that stays full for the send timeout refuses the message, which is not sent later."""
    with intercepted(kafka.bootstrap_servers, producer=Stuck):
        session = desk.session(connection=desk.connect(is_apart=True, send_timeout=200))
        with pytest.raises(ResourceAllocationException, match="the send buffer was full for 200 ms"):
            session.create_producer(queue).send(TextMessage("text"))
    assert desk.stored(queue) == []
