"""What the tests on a real Kafka share: a connection, and ways to wait for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from kjms import Connection, ConnectionFactory, Queue, Session, Topic

WAIT_SECONDS = 20.0


@pytest.fixture
def connection(kjms_factory: ConnectionFactory) -> Iterator[Connection]:
    """A started connection."""
    with kjms_factory.create_connection() as connection:
        connection.start()
        yield connection


@pytest.fixture
def session(connection: Connection) -> Session:
    """A session that acknowledges by itself."""
    return connection.create_session()


@pytest.fixture
def queue(kjms_destination_name: str) -> Queue:
    """A queue of this test's own."""
    return Queue(kjms_destination_name)


@pytest.fixture
def topic(kjms_destination_name: str) -> Topic:
    """A topic of this test's own."""
    return Topic(kjms_destination_name)


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], None]:
    """A function that waits until its argument returns something true."""

    def wait(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.01)

    return wait
