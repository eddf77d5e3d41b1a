"""Runs the commands as a user does: as processes, with a shell where there is a pipe."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kjms.broker import Broker
from tests.helpers import Kjms, Run

WAIT_SECONDS = 60


@pytest.fixture
def environment(kjms_broker: Broker) -> dict[str, str]:
    """The environment of a user whose Kafka is the tests' one, and who has ``kjms`` on the PATH."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("KJMS_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), own.get("PATH", os.defpath)])
    return {**own, "PATH": path, "KJMS_BOOTSTRAP": kjms_broker.bootstrap_servers}


@pytest.fixture
def kjms(environment: dict[str, str], tmp_path: Path) -> Kjms:
    """Run ``kjms`` with these arguments in an empty directory, and return what it did."""

    def run(*arguments: str, stdin: bytes = b"", expected: int = 0) -> Run:
        done = subprocess.run(
            ["kjms", *arguments],
            input=stdin,
            capture_output=True,
            env=environment,
            cwd=tmp_path,
            timeout=WAIT_SECONDS,
            check=False,
        )
        assert done.returncode == expected, done.stderr.decode()
        return done

    return run


@pytest.fixture
def start(environment: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start ``kjms`` with these arguments; what is left of it after the test is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def run(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["kjms", *arguments], env=environment, cwd=tmp_path, **options)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def shell(environment: dict[str, str], tmp_path: Path) -> Callable[[str], Run]:
    """Run a line of shell."""

    def run(line: str) -> Run:
        return subprocess.run(
            ["sh", "-c", line], capture_output=True, env=environment, cwd=tmp_path, timeout=WAIT_SECONDS, check=False
        )

    return run
