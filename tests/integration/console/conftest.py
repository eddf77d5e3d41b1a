"""A Kafka of the console's own tests: its pages show all queues of a cluster, and those of other tests are many."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kjms import ConnectionFactory
from kjms.broker import LocalBroker


@pytest.fixture(scope="session")
def kjms_broker() -> Iterator[LocalBroker]:
    """A Kafka that only these tests use."""
    with LocalBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def kjms_factory(kjms_broker: LocalBroker) -> ConnectionFactory:
    """A connection factory for that Kafka: the plugin's own may already be made, for the Kafka of all tests."""
    return ConnectionFactory(kjms_broker.bootstrap_servers)
