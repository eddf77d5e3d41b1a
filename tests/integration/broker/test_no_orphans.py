"""Nothing outlives the program that started the broker, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from kjms.broker import LocalBroker
from tests.helpers import wait_for

pytestmark = pytest.mark.slow

PROGRAM = """
import json, os, sys, time
from kjms.broker import LocalBroker
broker = LocalBroker().start()
guard = os.popen(f"ps -o ppid= -p {broker.pid}").read()
child = 0
if sys.argv[1] == "forking":  # a forked child holds every pipe of its parent open, and outlives it
    child = os.fork()
    if child == 0:
        time.sleep(600)
print(json.dumps({"pids": [broker.pid, int(guard)], "directory": str(broker.data_dir), "child": child}))
sys.stdout.flush()
time.sleep(600)
"""


@pytest.fixture
def program(request: pytest.FixtureRequest) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A running program with a broker, and what it said about it."""
    run = subprocess.Popen([sys.executable, "-c", PROGRAM, request.param], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    with run:
        said = json.loads(run.stdout.readline())
        yield run, said
        run.kill()
    if said["child"]:
        os.kill(said["child"], signal.SIGKILL)


@pytest.mark.parametrize("program", ["plain", "forking"], indirect=True)
def test_nothing_is_left_of_a_program_that_was_killed(program: tuple[subprocess.Popen[str], dict[str, Any]]) -> None:
    """Five seconds after kill -9 no process and no temporary directory is left."""
    run, said = program
    run.kill()
    wait_for(lambda: not any(map(psutil.pid_exists, said["pids"])), 5)
    wait_for(lambda: not Path(said["directory"]).exists(), 1)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux can tie a process to its parent's life")
def test_kafka_does_not_outlive_its_guard() -> None:
    """When the guard itself is killed, Kafka ends with it; the broker can be started again, and then leaves nothing."""
    broker = LocalBroker().start()
    try:
        pid = broker.pid
        assert pid is not None
        os.kill(psutil.Process(pid).ppid(), signal.SIGKILL)
        wait_for(lambda: not psutil.pid_exists(pid), 5)
        assert not broker.is_running()
        directory = broker.data_dir
        broker.start()
        assert broker.data_dir == directory
    finally:
        broker.close()
    assert not directory.exists()
