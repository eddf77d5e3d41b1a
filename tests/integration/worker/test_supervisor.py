"""``kjms worker`` with real processes and signals; each process has a Kafka in its own memory."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from kjms import ConnectionFactory, Queue, RedeliveryPolicy
from tests.helpers import WAIT_MS, program_environment, seen, wait_for

pytestmark = pytest.mark.slow  # starting processes takes seconds

START_SECONDS = 60.0

SHOP = """
import os, time
from kjms import ConnectionFactory, Queue
from kjms.testing import MemoryKafka
from kjms.worker import Application, listener

kafka = MemoryKafka()
factory = ConnectionFactory(kafka.bootstrap_servers)

@listener(Queue("orders"))
def pack(body: str):
    print("began", body, flush=True)
    time.sleep(float(body))
    print("ended", body, flush=True)

app = Application(factory, [pack])
if "BUSY" in os.environ:
    with factory.create_context() as context:
        context.create_producer().send(Queue("orders"), os.environ["BUSY"])
"""

STUCK = """
import threading
from kjms import Queue, Session
from kjms.worker import listener

@listener(Queue("{queue}"), session_mode=Session.SESSION_TRANSACTED)
def pack(body: str):
    print("began", body, flush=True)
    threading.Event().wait()
"""


class Worker:
    """A running command, and the lines that it has written."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def wait_for(self, pattern: str, count: int = 1) -> list[str]:
        """Return the lines with *pattern*, when there are *count* of them."""

        def found() -> list[str]:
            return [line for line in self.lines if re.search(pattern, line)]

        wait_for(lambda: len(found()) >= count or self.process.poll() is not None, START_SECONDS)
        assert len(found()) >= count, "\n".join(self.lines)
        return found()

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Return the exit code, when it has ended by itself and its output was read."""
        code = self.process.wait(START_SECONDS)
        self._reader.join(START_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


Start = Callable[..., Worker]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start the command in a directory with an application; what is left of it ends with the test."""
    (tmp_path / "shop.py").write_text(SHOP, "utf-8")
    started: list[tuple[Worker, list[psutil.Process]]] = []

    def start(*arguments: str, **variables: str) -> Worker:
        process = subprocess.Popen(
            [sys.executable, "-m", "kjms", "worker", *arguments],
            cwd=tmp_path,
            env={**program_environment(), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append((Worker(process), []))
        return started[-1][0]

    yield start
    for worker, _ in started:
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in worker.children():
                child.kill()
        worker.process.kill()
        worker.end()


def test_a_process_that_is_killed_is_started_again(start: Start) -> None:
    """The others stay, and at SIGTERM all end with exit code 0; a second SIGTERM does no harm."""
    worker = start("shop:app", "--processes", "2")
    worker.wait_for("is ready", 2)
    killed, other = worker.children()
    killed.kill()
    worker.wait_for(rf"pid {killed.pid}\) has ended by itself: SIGKILL")
    worker.wait_for("is ready", 3)
    assert other in worker.children()
    for _ in range(5):
        worker.signal(signal.SIGTERM)
    assert worker.end() == 0
    assert len(worker.wait_for("has stopped", 2)) == 2


def test_processes_are_replaced_one_after_the_other(start: Start) -> None:
    """At SIGHUP the next process serves before the last one stops; each place keeps one."""
    worker = start("shop:app", "--processes", "2")
    worker.wait_for("is ready", 2)
    before = {child.pid for child in worker.children()}
    worker.signal(signal.SIGHUP)
    worker.wait_for("has ended: exit code 0", 2)
    assert before.isdisjoint(child.pid for child in worker.children())
    assert len(worker.children()) == 2
    steps = [
        match[2]
        for line in worker.wait_for("is ready|is stopping", 6)
        if (match := re.search(r"pid (\d+) (is ready|is stopping)", line))
    ]
    assert steps == ["is ready", "is ready", "is ready", "is stopping", "is ready", "is stopping"]
    worker.signal(signal.SIGINT)
    assert worker.end() == 0


def test_new_code_that_fails_leaves_the_processes_as_they_are(start: Start, tmp_path: Path) -> None:
    """The error is logged with its place in the program; the next reload works again."""
    worker = start("shop:app")
    worker.wait_for("is ready")
    before = worker.children()
    (tmp_path / "shop.py").write_text("1 / 0\n", "utf-8")
    worker.signal(signal.SIGHUP)
    worker.wait_for("the others stay as they are")
    assert worker.wait_for(r'shop\.py", line 1')
    assert worker.children() == before
    (tmp_path / "shop.py").write_text(SHOP, "utf-8")
    worker.signal(signal.SIGHUP)
    worker.wait_for("has ended: exit code 0")
    assert worker.children() != before
    worker.signal(signal.SIGTERM)
    assert worker.end() == 0


def test_what_runs_is_finished_within_the_grace_period(start: Start) -> None:
    """The function ends its message after SIGTERM, and the exit code is 0."""
    worker = start("shop:app", "--grace", "60s", BUSY="0.5")
    worker.wait_for("began")
    worker.signal(signal.SIGTERM)
    assert worker.end() == 0
    assert "ended 0.5" in worker.lines


def test_what_outlasts_the_grace_period_ends_with_the_process(start: Start) -> None:
    """The exit code is 1, and the log says that the message is redelivered."""
    worker = start("shop:app", "--grace", "100ms", BUSY="600")
    worker.wait_for("began")
    worker.signal(signal.SIGTERM)
    assert worker.end() == 1
    worker.wait_for("1 listeners still ran at the end of the grace period")


def test_a_stuck_function_gives_its_message_back_uncounted(
    start: Start, kjms_broker: Any, queue: Queue, tmp_path: Path
) -> None:
    """Another process gets it at once, marked; it does not count towards the maximum, nor does what was held ahead."""
    (tmp_path / "stuck.py").write_text(STUCK.format(queue=queue.queue_name), "utf-8")
    with ConnectionFactory(
        kjms_broker.bootstrap_servers, redelivery=RedeliveryPolicy(max_deliveries=1)
    ).create_context() as shop:
        for body in ("one", "two"):
            shop.create_producer().send(queue, body)
        worker = start("stuck", "--grace", "10ms", "--bootstrap", kjms_broker.bootstrap_servers)
        worker.wait_for("began one")
        worker.signal(signal.SIGTERM)
        assert worker.end() == 1
        with shop.create_consumer(queue) as consumer:
            got = sorted([seen(consumer.receive(WAIT_MS)), seen(consumer.receive(WAIT_MS))])
    assert got == [("one", True, 2), ("two", False, 1)]


def test_a_second_ctrl_c_ends_the_grace_period(start: Start) -> None:
    """A function that runs does not hold up someone at a terminal."""
    worker = start("shop:app", "--grace", "1h", BUSY="600")
    worker.wait_for("began")
    worker.signal(signal.SIGINT)
    worker.wait_for("is stopping: SIGTERM")
    worker.signal(signal.SIGINT)
    assert worker.end() == 1


def test_processes_end_without_their_supervisor(start: Start) -> None:
    """After kill -9 of the supervisor they end in order: none stays behind."""
    worker = start("shop:app", "--processes", "2")
    worker.wait_for("is ready", 2)
    children = worker.children()
    worker.process.kill()
    _, left = psutil.wait_procs(children, START_SECONDS)
    assert left == []
    worker.end()
    assert len(worker.wait_for("is stopping: the supervisor has gone", 2)) == 2


def test_changes_of_files_replace_the_processes(start: Start, tmp_path: Path) -> None:
    """With --watch, a saved Python file is enough; also after a start that failed."""
    (tmp_path / "shop.py").write_text("1 / 0\n", "utf-8")
    worker = start("shop:app", "--watch")
    worker.wait_for("waiting for a change of a file")
    (tmp_path / "shop.py").write_text(SHOP, "utf-8")
    worker.wait_for("is ready")
    (tmp_path / "other.py").write_text("", "utf-8")
    worker.wait_for("is ready", 2)
    worker.signal(signal.SIGINT)
    assert worker.end() == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["missing"], 2, "there is no module 'missing'"),
        (["shop:missing"], 2, "has no attribute 'missing'"),
        (["shop:app", "--bootstrap", "kafka:9092"], 2, "has a connection factory of its own"),
        (["broken"], 1, "ZeroDivisionError"),
    ],
)
def test_a_start_that_fails(start: Start, tmp_path: Path, arguments: list[str], code: int, words: str) -> None:
    """The command ends with one message, whatever the number of processes."""
    (tmp_path / "broken.py").write_text("1 / 0\n", "utf-8")
    worker = start(*arguments, "--processes", "3")
    assert worker.end() == code
    assert sum(line.startswith("kjms worker:") and words in line for line in worker.lines) == 1
    assert "pid" not in "".join(worker.lines[1:]) or code == 1


def test_the_supervisor_serves_the_metrics_of_all_processes(start: Start, tmp_path: Path) -> None:
    """It adds up what each process has counted; ready is 503 until each of them serves."""
    pytest.importorskip("prometheus_client")
    (tmp_path / "figures").mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    observed = SHOP.replace("kafka.bootstrap_servers)", "kafka.bootstrap_servers, observers=[PrometheusObserver()])")
    (tmp_path / "shop.py").write_text(f"from kjms.observe.prometheus import PrometheusObserver\n{observed}", "utf-8")
    variables = {"BUSY": "0.01", "PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "figures")}
    worker = start("shop:app", "--processes", "2", "--health", str(port), **variables)
    worker.wait_for("ended", 2)

    def metrics() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=START_SECONDS) as answer:
            return str(answer.read(), "utf-8")

    wait_for(lambda: 'kjms_messages_received_total{destination="queue://orders"} 2.0' in metrics(), START_SECONDS)
    worker.signal(signal.SIGTERM)
    assert worker.end() == 0


def test_process_1_collects_what_others_leave() -> None:
    """A process whose parent has ended becomes that of process 1, which takes its exit code; its own stay its own."""
    code = """
import ctypes, os, subprocess, sys, time
from kjms.worker._supervisor import reap_others
ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: as process 1 is
own = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
subprocess.run([sys.executable, "-c", "import os; os.fork() or os._exit(3)"])
def children():
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return file.read().split()
while children():
    reap_others({own.pid} if own.poll() is None else set())
    time.sleep(0.01)
print("left", own.returncode)
"""
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        env=program_environment(),
        check=False,
    )
    assert run.stdout == "left 7\n", run.stderr
