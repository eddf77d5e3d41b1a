"""Do what docs/tutorial.md says, from top to bottom, and expect what it shows."""

from __future__ import annotations

import contextlib
import doctest
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kjms.broker._ports import free_port
from tests.helpers import ROOT, WAIT_SECONDS, program_environment, wait_for

PAGE = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
STEP = re.compile(
    r"""
    ^(?:<!--\ tested:\ (?P<note>[^\n]*)\ -->\n)?
    (?:```(?P<language>\w+)(?:\ title="(?P<title>[^"]+)")?\n(?P<code>.*?)^```)?
    """,
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
BROKER = "kjms broker --port 9092"
NOT_RUN = ("mkdir ", "python3 -m venv ", ". ", "pip install ")
"""How the commands begin that make the reader's environment; the test has one."""


class Reader:
    """A reader of the tutorial: a folder, terminals with programs that run, and what was printed last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"127.0.0.1:{free_port()}"
        self.environment = {
            **program_environment(),
            "KJMS_BOOTSTRAP": self.address,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.terminals: dict[str, Terminal] = {}
        self.commands = self.printed = ""

    def save(self, name: str, program: str) -> None:
        """Write a file, with the address of this test's broker."""
        (self.folder / name).write_text(program.replace("localhost:9092", self.address), "utf-8")

    def run(self, commands: str) -> None:
        """Run *commands* one after the other in the first terminal."""
        self.commands, self.printed = commands, ""
        for command in commands.splitlines():
            if command == BROKER:
                self.open("broker", BROKER.replace("9092", self.address.rpartition(":")[2]))
                self.printed = self.terminals["broker"].read(1).replace(self.address, "127.0.0.1:9092")
            elif not command.startswith(NOT_RUN):
                done = subprocess.run(
                    ["bash", "-c", command],
                    cwd=self.folder,
                    env=self.environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    timeout=3 * WAIT_SECONDS,
                    check=False,
                )
                self.printed += done.stdout
                assert done.returncode == ("crash" in command), f"$ {command}\n{done.stdout}"

    def open(self, name: str, command: str) -> None:
        """Run *command* in a terminal of its own."""
        self.terminals[name] = Terminal(shlex.split(command), self.folder, self.environment)

    def count(self, words: str) -> int:
        """Return how many lines with *words* were printed in the other terminals and not read before."""
        return sum(words in line for terminal in self.terminals.values() for line in terminal.lines)

    def end(self, name: str) -> str:
        """Press Ctrl-C in a terminal, and return what was printed there and not read before."""
        terminal = self.terminals.pop(name)
        terminal.program.send_signal(signal.SIGINT)
        assert terminal.program.wait(WAIT_SECONDS) == 0, name
        return terminal.rest()


class Terminal:
    """A program that runs, and the lines that it prints."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self.program = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.lines: list[str] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.program.stdout is not None
        with self.program.stdout as output:
            for line in output:
                self.lines.append(line)

    def read(self, count: int) -> str:
        """Return the next lines."""
        wait_for(lambda: len(self.lines) >= count, 3 * WAIT_SECONDS)
        read, self.lines[:count] = self.lines[:count], []
        return "".join(read)

    def rest(self) -> str:
        """Return the lines that are left when the program has ended."""
        self._thread.join(WAIT_SECONDS)
        return "".join(self.lines)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """A reader at the first step; the programs that still run end with the test."""
    reader = Reader(tmp_path)
    yield reader
    for terminal in reader.terminals.values():
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(terminal.program.pid).children(recursive=True):
                child.kill()
        terminal.program.kill()
        terminal.program.wait(WAIT_SECONDS)
        terminal.rest()


def same(shown: str, printed: str) -> bool:
    """Whether the page shows what was printed, but for points in time, durations, and what ``...`` stands for."""
    shown, printed = (re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\d+\.\d+s", "TIME", text) for text in (shown, printed))
    return doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_tutorial_works_from_top_to_bottom(reader: Reader) -> None:
    """Each program and command of the tutorial does what the page says."""
    for step in STEP.finditer(PAGE):  # it matches lines of prose, too, without a group
        note, language, code = step["note"], step["language"], step["code"]
        if language == "python":
            reader.save(step["title"], code)
        elif note in {"worker 1", "worker 2", "server"}:
            reader.open(note, code)
            if note == "worker 2":
                assert reader.terminals[note].read(1) == "waiting for orders\n"
        elif note == "output of worker 1":
            reader.printed = reader.terminals["worker 1"].read(code.count("\n"))
            assert same(code, reader.printed), reader.printed
        elif note == "end the workers":
            wait_for(lambda: reader.count("packed:") == 20)
            shares = [re.findall("packed: (.*)", reader.end(name)) for name in ("worker 1", "worker 2")]
            assert sorted(map(int, shares[0] + shares[1])) == list(range(1, 21))
            assert min(map(len, shares)) > 3, shares
        elif note == "end the server":
            assert reader.end("server") == ""
        elif language == "bash":
            reader.run(code)
        elif language == "text":
            # A dead letter moves after the worker's last line; a busy machine needs longer than the page waits.
            if reader.commands.startswith(("kjms dlq list", "python receive.py")):
                wait_for(lambda code=code: same(code, reader.printed) or reader.run(reader.commands))  # type: ignore[misc]
            assert same(code, reader.printed), f"the page shows\n{code}\nand this was printed:\n{reader.printed}"
    reader.end("broker")


def test_the_commands_that_the_test_leaves_out_install_what_there_is() -> None:
    """The extras that the page installs are extras of kjms, and all its steps are read."""
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    for extra in re.findall(r"pip install '/path/to/kjms\[(\w+)\]'", PAGE):
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE)
    assert PAGE.count("\n```") == 2 * sum(step["code"] is not None for step in STEP.finditer(PAGE))
