"""``kjms exporter`` against a real Kafka."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from kjms import Connection, ConnectionFactory, Queue
from kjms.broker import LocalBroker
from kjms.health import ask
from tests.helpers import WAIT_SECONDS, browse, consume, program_environment, send_with_length, take, wait_for

pytest.importorskip("prometheus_client")


class Exporter:
    """A running ``kjms exporter``."""

    def __init__(self, servers: str, folder: Path, timeout: str) -> None:
        self._log = folder / "exporter.log"
        environment = {**program_environment(), "KJMS_BOOTSTRAP": servers}
        arguments = ["exporter", "--listen", "127.0.0.1:0", "--interval", "0.2", "--timeout", timeout]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kjms", *arguments], cwd=folder, env=environment, stderr=log
            )
        wait_for(lambda: "metrics at" in self._log.read_text("utf-8"))
        found = re.search(r"metrics at http://([\d.]+):(\d+)/metrics", self._log.read_text("utf-8"))
        assert found is not None
        self.host, self.port = found[1], int(found[2])

    def value(self, sample: str) -> float | None:
        """Return the value of *sample*, a name with its labels as they are served."""
        with urllib.request.urlopen(f"http://{self.host}:{self.port}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{sample} ")), None)

    def depth(self, queue: Queue) -> float | None:
        return self.value(f'kjms_queue_depth_messages{{kind="queue",queue="{queue.queue_name}"}}')


@pytest.fixture
def exporter(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Exporter]:
    """A function that runs ``kjms exporter`` for these bootstrap servers until the test ends."""

    def run(servers: str, timeout: str = "2") -> Exporter:
        started = Exporter(servers, tmp_path, timeout)
        request.addfinalizer(started.process.wait)
        request.addfinalizer(started.process.kill)
        return started

    return run


def test_the_exporter_serves_what_a_browser_shows(
    exporter: Callable[..., Exporter], kjms_broker: Any, connection: Connection, queue: Queue
) -> None:
    """The depth is exact while messages come and go; on SIGTERM all processes of the exporter end."""
    running = exporter(kjms_broker.bootstrap_servers)
    send_with_length(connection, queue, *map(str, range(10)))
    wait_for(lambda: running.depth(queue) == 10)
    with connection.create_session() as session, session.create_consumer(queue) as consumer:
        take(consumer, 4)
    wait_for(lambda: running.depth(queue) == 6)
    assert len(browse(connection, queue)) == 6
    assert ask(running.host, running.port, ready=True).is_healthy
    others = psutil.Process(running.process.pid).children(recursive=True)
    assert others
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(20) == 128 + signal.SIGTERM
    _, alive = psutil.wait_procs(others, 20)
    assert [each for each in alive if each.status() != psutil.STATUS_ZOMBIE] == []  # of an init that reaps late


@pytest.mark.slow
def test_the_exporter_outlives_an_abort(exporter: Callable[..., Exporter], queue: Queue) -> None:
    """If the process that asks the cluster is aborted, a new one asks, and at most one collection fails."""
    with LocalBroker() as broker, ConnectionFactory(broker.bootstrap_servers).create_connection() as connection:
        running = exporter(broker.bootstrap_servers, str(WAIT_SECONDS))
        consume(connection, queue).close()
        send_with_length(connection, queue, *"abc")
        wait_for(lambda: running.depth(queue) == 3)
        failed = running.value("kjms_collection_failures_total")
        assert failed is not None
        children = psutil.Process(running.process.pid).children()
        (child,) = [each for each in children if "spawn_main" in str(each.cmdline())]
        child.send_signal(signal.SIGABRT)  # as librdkafka ends it
        send_with_length(connection, queue, "d")
        wait_for(lambda: running.depth(queue) == 4)
        assert running.value("kjms_collection_failures_total") in {failed, failed + 1}
        assert not child.is_running()


@pytest.mark.slow
def test_the_exporter_outlives_its_cluster(exporter: Callable[..., Exporter], queue: Queue) -> None:
    """kjms_up is 0 while the cluster is away, again and again, and the figures come back with it."""
    with LocalBroker() as broker:
        running = exporter(broker.bootstrap_servers)
        with ConnectionFactory(broker.bootstrap_servers).create_connection() as connection:
            send_with_length(connection, queue, *"abc")
        for _ in range(3):
            wait_for(lambda: running.value("kjms_up") == 1)
            wait_for(lambda: running.depth(queue) == 3)
            broker.kill()
            wait_for(lambda: running.value("kjms_up") == 0)
            assert running.depth(queue) is None
            assert ask(running.host, running.port).is_healthy
            assert not ask(running.host, running.port, ready=True).is_healthy
            broker.start()
        wait_for(lambda: running.depth(queue) == 3)
