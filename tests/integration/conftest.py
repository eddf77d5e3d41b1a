"""What the tests on a real Kafka share: a session, destinations, and other processes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from kjms import Connection, Queue, Session, Topic


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


class Program:
    """Another process that does what it is told: the file ``other_program.py`` beside the test."""

    def __init__(self, program: Path, servers: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(program), servers], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, name: str, *arguments: Any) -> None:
        """Tell it what to do, without waiting."""
        assert self.process.stdin is not None
        print(json.dumps([name, *arguments]), file=self.process.stdin, flush=True)

    def answer(self) -> Any:
        """Return what it says to what it was told first: a value, or the name of an exception with ``!`` before it."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def do(self, name: str, *arguments: Any) -> Any:
        """Tell it what to do, and return what it says."""
        self.ask(name, *arguments)
        return self.answer()

    def kill(self) -> None:
        """End it as ``kill -9`` does."""
        self.process.kill()
        self.process.wait(30)

    def end(self) -> None:
        """End it, in order where it still lives."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


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
