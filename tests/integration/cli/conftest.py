"""Runs the commands: in this process by ``main``, as processes where signals or pipes are at stake, and by a shell."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest

from kjms.broker import Broker
from kjms.cli import main
from tests.helpers import Kjms, Run

WAIT_SECONDS = 60


@pytest.fixture
def environment(kjms_broker: Broker) -> dict[str, str]:
    """The environment of a user with the tests' Kafka, with ``kjms`` on the PATH."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("KJMS_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), own.get("PATH", os.defpath)])
    return {**own, "PATH": path, "KJMS_BOOTSTRAP": kjms_broker.bootstrap_servers}


@pytest.fixture
def kjms(environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kjms:
    """Run ``kjms`` with these arguments in an empty directory, and return what it did.

    It runs in this process, with the environment and the standard streams of one of its own. Its engine is its own,
    too, as that of another program, unless the test writes a ``kjms.toml``.
    """
    (tmp_path / "kjms.toml").write_text('[kafka]\n"client.id" = "kjms-cli-tests"\n', encoding="utf-8")

    def run(*arguments: str, stdin: bytes | TextIO = b"", expected: int | None = 0, is_merged: bool = False) -> Run:
        output, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
        with monkeypatch.context() as patch:
            patch.chdir(tmp_path)
            for name in os.environ.keys() - environment.keys():
                patch.delenv(name)
            for name, value in environment.items():
                patch.setenv(name, value)
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)) if isinstance(stdin, bytes) else stdin)
            patch.setattr(sys, "stdout", output)
            patch.setattr(sys, "stderr", output if is_merged else errors)
            code = main(arguments)
        output.flush()
        written = (stream.buffer.getvalue() for stream in (output, errors))
        done = subprocess.CompletedProcess(["kjms", *arguments], code, *written)
        assert code == expected or expected is None, done.stderr.decode()
        return done

    return run


@pytest.fixture
def pipeline(kjms: Kjms) -> Callable[[str], bytes]:
    """Run the commands of a line one after the other, each on the output of the one before.

    Return what the last one writes, errors included. ``kjms`` runs in this process, anything else in a shell.
    """

    def run(line: str) -> bytes:
        written, commands = b"", line.split(" | ")
        for number, command in enumerate(commands, 1):
            name, *arguments = shlex.split(command)
            if name == "kjms":
                end: dict[str, Any] = {"expected": None, "is_merged": True} if number == len(commands) else {}
                written = kjms(*arguments, stdin=written, **end).stdout
            else:
                shell = ["sh", "-c", command]
                done = subprocess.run(shell, input=written, stdout=subprocess.PIPE, timeout=WAIT_SECONDS, check=True)
                written = done.stdout
        return written

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
