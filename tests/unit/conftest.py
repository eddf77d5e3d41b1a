"""What the tests without a broker share: an in-memory Kafka of each test's own, and connections to it."""

from __future__ import annotations

import pytest

from kjms import ConnectionFactory
from kjms.testing import MemoryKafka


@pytest.fixture
def kafka(kjms_memory: MemoryKafka) -> MemoryKafka:
    """An in-memory Kafka of this test's own."""
    return kjms_memory


@pytest.fixture
def kjms_factory(kafka: MemoryKafka) -> ConnectionFactory:
    """A connection factory for it."""
    return ConnectionFactory(kafka.bootstrap_servers)
