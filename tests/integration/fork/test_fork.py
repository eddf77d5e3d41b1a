"""Processes that fork: a child begins without its parent's connections, and leaves them alone."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kjms import Connection, Queue, TextMessage
from kjms.broker import LocalBroker
from tests.helpers import WAIT_MS, text

PROGRAMS = Path(__file__).parent / "programs"
SECONDS = 100  # less than a test may take


def run(program: str, broker: LocalBroker, queue: Queue, *arguments: str) -> list[str]:
    """Return the lines that *program* prints; it must end in order, and with an empty stderr."""
    python = [sys.executable, "-W", "ignore:This process:DeprecationWarning"]  # "is multi-threaded", since Python 3.12
    command = [*python, str(PROGRAMS / f"{program}.py"), broker.bootstrap_servers, queue.queue_name, *arguments]
    started = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        output, errors = started.communicate(timeout=SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)  # and its children, if it hangs
        started.wait()
    assert (started.returncode, errors) == (0, "")
    return output.splitlines()


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
