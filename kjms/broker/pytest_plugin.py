"""Fixtures for tests on a Kafka, real or in memory. Every pytest run loads this module: it imports nothing heavy."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kjms import Connection, ConnectionFactory, Queue, Topic, aio
    from kjms.broker import Broker
    from kjms.broker._shared import SharedBroker
    from kjms.testing import MemoryKafka

_LONGEST_NAME = 80  # Kafka allows 249, and kjms appends to names
_SHARED: pytest.StashKey[SharedBroker] = pytest.StashKey()
_PORT = "kjms_shared_broker_port"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker process of pytest-xdist where to ask for the Kafka that all workers on this machine share."""
    if not node.gateway.spec.popen:
        return
    stash = node.config.stash
    if _SHARED not in stash:
        from kjms.broker._shared import SharedBroker

        stash[_SHARED] = SharedBroker()
    node.workerinput[_PORT] = stash[_SHARED].port


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the Kafka that workers shared."""
    if _SHARED in config.stash:
        config.stash[_SHARED].close()


@pytest.fixture(scope="session")
def kjms_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A Kafka for the whole test run, with ``bootstrap_servers`` and ``kind``; see `kjms.broker.find_broker`."""
    port = getattr(request.config, "workerinput", {}).get(_PORT)
    if port is not None:
        from kjms.broker._shared import ask

        yield ask(port)
        return
    from kjms.broker import find_broker

    with find_broker() as broker:
        yield broker


@pytest.fixture
def kjms_destination_name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses, readable, and legal as that of a Kafka topic."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", request.node.name).strip("-")
    return f"{readable[:_LONGEST_NAME]}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def kjms_queue(kjms_destination_name: str) -> Queue:
    """A queue of the test's own."""
    from kjms import Queue

    return Queue(f"{kjms_destination_name}-queue")


@pytest.fixture
def kjms_topic(kjms_destination_name: str) -> Topic:
    """A topic of the test's own."""
    from kjms import Topic

    return Topic(f"{kjms_destination_name}-topic")


@pytest.fixture(scope="session")
def kjms_factory(kjms_broker: Broker) -> ConnectionFactory:
    """A connection factory for the session's Kafka."""
    from kjms import ConnectionFactory

    return ConnectionFactory(kjms_broker.bootstrap_servers)


@pytest.fixture
def kjms_connection(kjms_factory: ConnectionFactory) -> Iterator[Connection]:
    """A started connection, closed after the test."""
    with kjms_factory.create_connection() as connection:
        connection.start()
        yield connection


@pytest.fixture
def kjms_memory() -> Iterator[MemoryKafka]:
    """A Kafka in memory, of the test's own; see `kjms.testing.MemoryKafka`."""
    from kjms.testing import MemoryKafka

    with MemoryKafka() as kafka:
        yield kafka


@pytest.fixture
def kjms_memory_context(kjms_memory: MemoryKafka) -> aio.JMSContext:
    """A context for asyncio on `kjms_memory`; it connects at the beginning of its ``async with``, in any event loop."""
    from kjms import aio

    return aio.ConnectionFactory(kjms_memory.bootstrap_servers).create_context()
