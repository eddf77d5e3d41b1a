"""What the tests of the simplified API share: contexts, and a listener of completed sends."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from kjms import ConnectionFactory, JMSContext
from kjms.engine import process_statistics
from tests.helpers import Completions


@pytest.fixture(autouse=True)
def nothing_is_left_open(request: pytest.FixtureRequest) -> Iterator[None]:
    """See to it that each test closes its contexts: the connection of one that is left open would live on."""
    if "kafka" in request.fixturenames:
        request.getfixturevalue("kafka")  # and its connection, which all tests share

    def connections() -> int:
        return sum(engine.connections for engine in process_statistics())

    before = connections()
    yield
    assert connections() <= before  # one of an earlier test may end meanwhile


@pytest.fixture
def own_factory(kafka: Any) -> ConnectionFactory:
    """A factory whose connections share no engine, and so no thread, with those of other factories."""
    return ConnectionFactory(kafka.bootstrap_servers, kafka={"client.id": f"own-{uuid.uuid4().hex}"})


@pytest.fixture
def completions() -> Completions:
    """A completion listener that notes its calls."""
    return Completions()


@pytest.fixture
def context(kjms_factory: ConnectionFactory) -> Iterator[JMSContext]:
    """A context that acknowledges by itself."""
    with kjms_factory.create_context() as context:
        yield context
