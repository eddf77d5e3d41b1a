"""Three brokers, for the tests of one folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kjms.broker import LocalBroker


@pytest.fixture(scope="package")
def three_brokers() -> Iterator[LocalBroker]:
    """A Kafka of three nodes, all of which run."""
    with LocalBroker(nodes=3) as broker:
        yield broker


@pytest.fixture
def cluster(three_brokers: LocalBroker) -> Iterator[LocalBroker]:
    """The same, for a test that stops, kills and pauses nodes: they run again afterwards."""
    yield three_brokers
    three_brokers.resume()
    three_brokers.start()
