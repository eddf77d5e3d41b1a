"""What the tests of temporary destinations share: another process that replies."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kjms import ConnectionFactory


class Program:
    """Another process that does what it is told: see ``other_program.py``."""

    def __init__(self, servers: str) -> None:
        program = Path(__file__).parent / "other_program.py"
        self.process = subprocess.Popen(
            [sys.executable, str(program), servers], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def do(self, name: str, *arguments: Any) -> Any:
        """Tell it what to do, and return what it says: a value, or the name of an exception with ``!`` before it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps([name, *arguments]), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

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


@pytest.fixture(scope="module", autouse=True)
def engine_stays(kjms_factory: ConnectionFactory) -> Iterator[None]:
    """Keep the engine, and its inbox, from one test to the next."""
    with kjms_factory.create_context() as context:
        context.create_temporary_queue()
        yield


@pytest.fixture
def programs(kjms_broker: Any) -> Iterator[Callable[[], Program]]:
    """Start other processes."""
    started: list[Program] = []

    def start() -> Program:
        started.append(Program(kjms_broker.bootstrap_servers))
        return started[-1]

    yield start
    for program in started:
        program.end()
