"""The commands of docs/bridge.md's way out of an old broker, one after the other, with programs on both sides."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from java_remote import Java, Typed

from kjms import Queue, Session, TextMessage, Topic
from tests.helpers import WAIT_MS

if TYPE_CHECKING:
    from artemis_process import Artemis

    from kjms.broker import Broker

PAGE = (Path(__file__).parents[2] / "docs" / "bridge.md").read_text("utf-8")
RECIPE = PAGE.partition("## Moving from an old broker")[2].partition("\n## ")[0]
COMMANDS = [
    "in URL topic://prices",
    "out URL topic://prices",
    "in URL orders",
    "out URL orders",
    "in URL orders --idle 10",
    "in URL DLQ orders.old-dead-letters --idle 10",
    "out URL replies",
]


def test_the_page_has_these_commands() -> None:
    """What is run here is what stands there."""
    told = [each.replace("amqp://localhost:61616", "URL") for each in re.findall(r"kjms bridge ([^`\n]+)", RECIPE)]
    assert told == COMMANDS


class Bridges:
    """Runs the commands of the page, with names of their own and a shorter wait for more."""

    def __init__(self, broker: Broker, artemis: Artemis, name: str) -> None:
        self._broker, self._artemis, self._name = broker, artemis, name
        self.running: list[subprocess.Popen[str]] = []

    def start(self, *commands: str) -> list[subprocess.Popen[str]]:
        """Start them; they are at work when this returns."""
        started = [self._open(command) for command in commands]
        for process in started:
            assert process.stderr is not None
            assert any("messages move" in line for line in process.stderr)
        return started

    def stop(self, *processes: subprocess.Popen[str]) -> None:
        """End them as Ctrl-C and SIGTERM do."""
        for process in processes:
            process.terminate()
        self._wait(processes)

    def run(self, *commands: str, more: tuple[str, ...] = ()) -> list[str]:
        """Run some that end by themselves, and return what they say at last."""
        return self._wait([self._open(command, *more) for command in commands])

    def _wait(self, processes: Sequence[subprocess.Popen[str]]) -> list[str]:
        said = [process.communicate(timeout=WAIT_MS / 1000) for process in processes]
        assert not any(process.returncode for process in processes), said
        return [out for out, _ in said]

    def _open(self, command: str, *more: str) -> subprocess.Popen[str]:
        assert command in COMMANDS
        words = command.replace("URL", self._artemis.url).replace("--idle 10", "--idle 1").split()
        own = [re.sub(r"(orders|prices|replies|DLQ)", rf"{self._name}-\1", word) for word in words]
        arguments = [sys.executable, "-m", "kjms.cli", "bridge", *own, *more, "--bootstrap"]
        process = subprocess.Popen(
            [*arguments, self._broker.bootstrap_servers],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.running.append(process)
        return process


@pytest.fixture
def bridges(kjms_broker: Broker, artemis: Artemis, kjms_destination_name: str) -> Iterator[Bridges]:
    """The bridges of the recipe, ended after the test."""
    bridges = Bridges(kjms_broker, artemis, kjms_destination_name)
    yield bridges
    for process in bridges.running:
        process.kill()
        process.communicate()


def test_the_recipe(
    java: Java,
    artemis: Artemis,
    here: Session,
    bridges: Bridges,
    kjms_destination_name: str,
) -> None:
    """Mirror, switch consumers, switch producers, drain: every message is received once, on the side that is meant."""
    name = kjms_destination_name
    connection = java.new("org.apache.qpid.jms.JmsConnectionFactory", artemis.url).createConnection()
    connection.start()
    old = connection.createSession(False, 1)
    old_queue, old_topic = old.createQueue(f"{name}-orders"), old.createTopic(f"{name}-prices")
    old_sender, old_receiver = old.createProducer(old_queue), old.createConsumer(old_queue)
    old_publisher, old_subscriber = old.createProducer(old_topic), old.createConsumer(old_topic)
    new_queue, new_topic = Queue(f"{name}-orders"), Topic(f"{name}-prices")
    sender, publisher = here.create_producer(new_queue), here.create_producer(new_topic)
    subscriber = here.create_consumer(new_topic)

    def there(consumer: Any, count: int = 1) -> set[str]:
        return {consumer.receive(Typed("long", WAIT_MS)).getText() for _ in range(count)}

    def come(consumer: Any, count: int = 1) -> set[str]:
        return {consumer.receive(WAIT_MS).get_body(str) for _ in range(count)}

    mirrors = bridges.start(*COMMANDS[:2])
    old_publisher.send(old.createTextMessage("1"))
    publisher.send(TextMessage("2"))
    assert there(old_subscriber, 2) == come(subscriber, 2) == {"1", "2"}

    old_sender.send(old.createTextMessage("a"))
    assert there(old_receiver) == {"a"}
    consumers = bridges.start("in URL orders")
    old_receiver.close()
    receiver = here.create_consumer(new_queue)
    old_sender.send(old.createTextMessage("b"))
    sender.send(TextMessage("c"))
    assert come(receiver, 2) == {"b", "c"}

    bridges.stop(*consumers)
    receiver.close()
    late = old.createConsumer(old_queue)
    back = bridges.start("out URL orders")
    sender.send(TextMessage("d"))
    assert there(late) == {"d"}
    bridges.stop(*back)
    late.close()

    old_sender.send(old.createTextMessage("e"))
    old.createProducer(old.createQueue(f"{name}-DLQ")).send(old.createTextMessage("dead"))
    said = bridges.run("in URL orders --idle 10", "in URL DLQ orders.old-dead-letters --idle 10")
    assert [each[:7] for each in said] == ["1 moved"] * 2
    assert come(here.create_consumer(new_queue)) == {"e"}
    assert come(here.create_consumer(Queue(f"{name}-orders.old-dead-letters"))) == {"dead"}

    bridges.stop(*mirrors)
    bridges.run(*COMMANDS[:2], more=("--unsubscribe",))
    assert subscriber.receive_no_wait() is None
    connection.close()
