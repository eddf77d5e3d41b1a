"""What the tests of faults share: an in-memory Kafka of each test's own, and programs that use it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from kjms import Queue, Topic
from kjms.testing import MemoryKafka
from tests.helpers import Desk


@pytest.fixture
def kafka() -> Iterator[MemoryKafka]:
    """A Kafka."""
    with MemoryKafka() as kafka:
        yield kafka


@pytest.fixture
def desk(kafka: MemoryKafka) -> Iterator[Desk]:
    """Connections to it that are closed when the test ends."""
    with contextlib.ExitStack() as stack:
        yield Desk(kafka.bootstrap_servers, stack)


@pytest.fixture
def queue() -> Queue:
    """A queue."""
    return Queue("orders")


@pytest.fixture
def other_queue() -> Queue:
    """Another queue."""
    return Queue("shipped")


@pytest.fixture
def topic() -> Topic:
    """A topic."""
    return Topic("prices")
