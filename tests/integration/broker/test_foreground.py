"""``kjms broker`` in a terminal: one line when it is ready, a clean end, one line when it fails."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

COMMAND = [sys.executable, "-m", "kjms.cli", "broker"]


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """A function that runs the command as the leader of its own process group, as a shell does."""
    running: list[subprocess.Popen[str]] = []

    def run(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        running.append(process)
        return process

    yield run
    for process in running:
        process.kill()
        process.communicate()


def ready(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.stderr.read() if process.stderr else ""
    return dict(json.loads(line))


def test_ctrl_c_ends_it_cleanly(start: Callable[..., subprocess.Popen[str]], plain_kafka: Any) -> None:
    """The ready line has the address; Ctrl-C, which a terminal sends to all of the group, gives exit code 0."""
    process = start("--json", "--config", "message.max.bytes=1234567")
    said = ready(process)
    assert said["temporary"] is True
    assert "__consumer_offsets" in plain_kafka(said["bootstrap_servers"]).topics()
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, output, errors) == (0, "", "")
    assert not psutil.pid_exists(said["pid"])
    assert not Path(said["data_dir"]).exists()


@pytest.mark.slow
def test_sigterm_ends_it_cleanly_and_keeps_named_data(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """The line for people names address and data; SIGTERM gives exit code 0, and the data stays."""
    process = start("--data", str(tmp_path / "data"))
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("kjms broker: Kafka 4.2.2 ready at 127.0.0.1:")
    assert f"(data in {tmp_path}/data, kept; Ctrl-C stops it)" in line
    process.terminate()
    assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == 0
    assert (tmp_path / "data" / "kafka" / "meta.properties").is_file()


@pytest.mark.slow
def test_the_death_of_kafka_ends_it_with_one_line(start: Callable[..., subprocess.Popen[str]]) -> None:
    """When Kafka dies, the command fails with exit code 1 and says so."""
    process = start("--json")
    os.kill(ready(process)["pid"], signal.SIGKILL)
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert output == ""
    assert errors.startswith("kjms broker: Kafka was killed by signal 9; ")
    assert errors.count("\n") == 1


def test_a_port_in_use_is_one_line(start: Callable[..., subprocess.Popen[str]]) -> None:
    """A start that fails gives exit code 1 and one line that names the port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        process = start("--port", str(port))
        assert process.communicate(timeout=60) == (
            "",
            f"kjms broker: port {port} on 127.0.0.1 is in use by another program\n",
        )
    assert process.returncode == 1


@pytest.mark.parametrize("arguments", [["--port", "0"], ["--port", "http"], ["--config", "novalue"]])
def test_wrong_arguments(start: Callable[..., subprocess.Popen[str]], arguments: list[str]) -> None:
    """Arguments that make no sense give exit code 2."""
    process = start(*arguments)
    process.communicate(timeout=30)
    assert process.returncode == 2
