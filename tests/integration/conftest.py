"""What the tests on a real Kafka share: a session, destinations, and other processes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from kjms import Connection, Queue, Session, Topic
from tests.helpers import Desk, Program


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
def desk(kjms_broker: Any) -> Iterator[Desk]:
    """Connections that end with the test."""
    with contextlib.ExitStack() as stack:
        yield Desk(kjms_broker.bootstrap_servers, stack)


@pytest.fixture
def programs(kjms_broker: Any, request: pytest.FixtureRequest) -> Iterator[Callable[[], Program]]:
    """Start other processes."""
    started: list[Program] = []

    def start() -> Program:
        started.append(Program(request.path.parent / "other_program.py", kjms_broker.bootstrap_servers))
        return started[-1]

    yield start
    for program in started:
        program.end()


@pytest.fixture
def make_again(kjms_broker: Any) -> Callable[..., None]:
    """A function that deletes a Kafka topic, and makes another of the same name at once."""
    admin = AdminClient({"bootstrap.servers": kjms_broker.bootstrap_servers})

    def identity(topic: str) -> str:
        try:
            return str(admin.describe_topics(TopicCollection([topic]))[topic].result().topic_id)
        except KafkaException:  # there is none at the moment
            return ""

    def make(topic: str, partitions: int = 1) -> None:
        former = identity(topic)
        admin.delete_topics([topic], operation_timeout=20)[topic].result()
        while identity(topic) in {"", former}:
            with contextlib.suppress(KafkaException):  # the deletion may be under way
                admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()
            time.sleep(0.01)

    return make
