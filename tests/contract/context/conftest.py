"""What the tests of the simplified API share: contexts, and a listener of completed sends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kjms import ConnectionFactory, JMSContext
from kjms.engine import process_statistics
from tests.helpers import Completions


@pytest.fixture(autouse=True)
def nothing_is_left_open() -> Iterator[None]:
    """See to it that each test closes its contexts: the connection of one that is left open would live on."""

    def connections() -> int:
        return sum(engine.connections for engine in process_statistics())

    before = connections()
    yield
    assert connections() == before


@pytest.fixture
def completions() -> Completions:
    """A completion listener that notes what it is told."""
    return Completions()


@pytest.fixture
def context(kjms_factory: ConnectionFactory) -> Iterator[JMSContext]:
    """A context that acknowledges by itself."""
    with kjms_factory.create_context() as context:
        yield context
