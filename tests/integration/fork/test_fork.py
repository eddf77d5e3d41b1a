"""Processes that fork: a child begins without its parent's connections, and leaves them alone."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kjms import Connection, ConnectionFactory, JMSException, Message, Queue, TextMessage
from kjms.broker import LocalBroker
from kjms.engine import _publisher
from tests.helpers import WAIT_MS, text

PROGRAMS = Path(__file__).parent / "programs"
SECONDS = 120


def run(program: str, broker: LocalBroker, queue: Queue, *arguments: str) -> list[str]:
    """Return the lines that *program* prints; it must end in order, and without a word on stderr."""
    command = [sys.executable, str(PROGRAMS / f"{program}.py"), broker.bootstrap_servers, queue.queue_name, *arguments]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=SECONDS)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.splitlines()


def received(connection: Connection, queue: Queue, count: int) -> list[str]:
    """Return the texts of *count* messages of *queue*, sorted."""
    with connection.create_session() as session, session.create_consumer(queue) as consumer:
        messages = [consumer.receive(20_000) for _ in range(count)]
        assert consumer.receive_no_wait() is None
    return sorted(message.text or "" for message in messages if isinstance(message, TextMessage))


def test_a_forked_child_connects_and_sends(kjms_broker: LocalBroker, connection: Connection, queue: Queue) -> None:
    """A child sends and receives by a connection of its own while the parent's is open; the parent's works on."""
    assert run("child_sends", kjms_broker, queue) == ["child ended with 0", "parent received from the child"]
    assert received(connection, queue, 1) == ["from the parent, afterwards"]


def test_inherited_objects_refuse_every_use(kjms_broker: LocalBroker, queue: Queue) -> None:
    """What the parent connected raises IllegalStateException in the child; closing it there does nothing."""
    lines = run("inherited", kjms_broker, queue)
    assert lines[-2:] == ["the parent received its message", "end"]
    refused = lines[:-2]
    assert len(refused) > 20
    for line in refused:
        name, _, outcome = line.partition(": ")
        assert outcome.startswith("IllegalStateException"), (name, outcome)
        assert "from which this one was forked" in outcome or "another thread" in outcome, (name, outcome)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(kjms_broker: LocalBroker, connection: Connection, queue: Queue, method: str) -> None:
    """Processes of multiprocessing get the factory and connect by themselves, whichever way they are started."""
    assert run("pool", kjms_broker, queue, method) == ["ended: [0, 0, 0]"]
    assert received(connection, queue, 4) == ["parent", "worker 0", "worker 1", "worker 2"]


def test_a_parent_that_forks_workers_beforehand(kjms_broker: LocalBroker, connection: Connection, queue: Queue) -> None:
    """Workers that a connected parent forked again and again consume, and end with SIGTERM, as gunicorn's do."""
    assert run("preforking", kjms_broker, queue) == ["consumed 12", "workers ended with {0}", "parent sends on"]
    with connection.create_session() as session, session.create_consumer(queue) as consumer:
        while (left := text(consumer.receive(WAIT_MS))) != "last":
            assert left.startswith("message ")  # a worker could not say in time that it had settled it


def test_a_listener_that_forks(kjms_broker: LocalBroker, queue: Queue) -> None:
    """A child that a message listener forked acknowledges nothing; in the parent the message is acknowledged."""
    assert run("listener_forks", kjms_broker, queue) == ["child ended", "acknowledged once"]


def test_a_loop_that_forks(kjms_broker: LocalBroker, queue: Queue) -> None:
    """A child that exits from a loop over a consumer gives nothing back; the parent's message is acknowledged."""
    assert run("loop_forks", kjms_broker, queue) == ["child ended with 0", "acknowledged once"]


def test_a_send_waits_no_longer_than_the_send_timeout(
    kjms_broker: LocalBroker, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A send whose delivery report never comes fails when its time is over, and so does what waits behind it."""
    monkeypatch.setattr(_publisher, "REPORT_SECONDS", 0.2)
    factory = ConnectionFactory(kjms_broker.bootstrap_servers, send_timeout=1_000, kafka={"client.id": "silent"})
    with factory.create_connection() as connection:
        session = connection.create_session()
        producer = session.create_producer(queue)
        producer.send(session.create_text_message("reported"))
        going_on = threading.Event()
        for publisher in (connection._engine.prompt, connection._engine.bulk):
            Stuck(going_on).keep(publisher)
        try:
            with pytest.raises(JMSException, match=r"not confirmed by .* within 1000 ms"):
                producer.send(session.create_text_message("not reported"))
            producer.send(session.create_text_message("not waited for"), completion_listener=Listener())
            with pytest.raises(JMSException, match="1 messages sent before"):
                producer.send(session.create_text_message("behind it"))
        finally:
            going_on.set()


class Listener:
    def on_completion(self, message: Message) -> None: ...

    def on_exception(self, message: Message, error: Exception) -> None: ...


class Stuck:
    """Keeps a publisher's thread busy, so that it reports nothing."""

    def __init__(self, going_on: threading.Event) -> None:
        self._going_on = going_on
        self._has_begun = threading.Event()

    def keep(self, publisher: _publisher.Publisher) -> None:
        """Return when the thread of *publisher* is busy."""
        publisher.inform(self)
        while not self._has_begun.wait(0.5):
            publisher.inform(self)

    def catch_up(self) -> None:
        self._has_begun.set()
        self._going_on.wait(60)
