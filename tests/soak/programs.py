"""The programs of a soak: one keeps the books, and the others may be killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final

from kjms.broker._ports import free_port
from tests.helpers import ROOT, program_environment
from tests.soak import mover
from tests.soak.load import MOVED, MOVING

END_SECONDS: Final = 120.0  # in which a program ends in order
NO_BROKER: Final = 1  # the exit code of a command that finds none
STOPPED: Final = frozenset({0, NO_BROKER, -signal.SIGTERM})  # exit codes of a program that was to end


class Programs:
    """Starts, replaces and ends the programs, each under a name.

    Args:
        servers: Kafka's bootstrap servers.
        seed: Decides what they do by chance.
        folder: For their logs.
        movers: How many programs move messages.

    Attributes:
        problems: What was wrong with their ends.
        report: What the program with the books has reported last.
    """

    def __init__(self, servers: str, seed: int, folder: Path, movers: int) -> None:
        self.movers = movers
        self._folder = folder
        self.gateway_port = free_port()
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._lock = threading.Lock()
        self._replacing = threading.Lock()
        self.problems: list[str] = []
        self.report: dict[str, Any] = {"sent": 0, "arrived": 0, "missing": 0, "errors": {}, "problems": []}
        module = (sys.executable, "-m")
        address = ("--bootstrap", servers, "--log-level", "warning")
        names = (MOVING.queue_name, MOVED.queue_name)
        self._commands: dict[str, Sequence[str]] = {
            "workers": (*module, "kjms.cli", "worker", "tests.soak.application", *address, "--grace", "10s"),
            "gateway": (
                *(*module, "kjms.cli", "gateway", "--anonymous"),
                *("--listen", f"127.0.0.1:{self.gateway_port}", *address),
            ),
            **{
                f"mover {number}": (*module, mover.__name__, servers, *names, str(seed + number))
                for number in range(movers)
            },
            "load": (*module, "tests.soak.load", servers, str(seed), str(self.gateway_port)),
        }

    @property
    def names(self) -> list[str]:
        """Their names."""
        return [*self._commands]

    def start(self) -> None:
        """Start all of them."""
        for name in self._commands:
            self._start(name)
        threading.Thread(target=self._read_reports, args=(self._running["load"].stdout,), daemon=True).start()

    def _start(self, name: str) -> None:
        pipe = subprocess.PIPE if name == "load" else subprocess.DEVNULL
        with (self._folder / f"{name.replace(' ', '-')}.log").open("a") as log:
            process = subprocess.Popen(
                self._commands[name],
                stdin=pipe,
                stdout=pipe if name == "load" else log,
                stderr=log,
                text=True,
                cwd=ROOT,
                env=program_environment(),
            )
        with self._lock:
            self._running[name] = process

    def _read_reports(self, lines: IO[str]) -> None:
        for line in lines:
            self.report = json.loads(line)

    def process_id(self, name: str) -> int:
        """Return the id of a program's process."""
        with self._lock:
            return self._running[name].pid

    def replace(self, name: str, number: signal.Signals) -> None:
        """End a program by a signal, and start another one."""
        with self._replacing:
            with self._lock:
                process = self._running[name]
            if process.poll() is None:
                process.send_signal(number)
                self._await(name, process, {-number} if number == signal.SIGKILL else STOPPED)
            self._start(name)

    def _await(self, name: str, process: subprocess.Popen[str], allowed: frozenset[int] | set[int]) -> None:
        try:
            code = process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.problems.append(f"{name} does not end within {END_SECONDS:.0f} s")
            process.kill()
            process.wait()
        else:
            if code not in allowed:
                self.problems.append(f"{name} ended with code {code}; see {self._folder}")

    def look(self) -> None:
        """Start a program again that has ended by itself, and note it, unless it found no broker when it started."""
        for name, process in [*self._running.items()]:
            if process.poll() is not None and name != "load" and not self._replacing.locked():
                if process.returncode != NO_BROKER:
                    self.problems.append(f"{name} ended by itself with code {process.returncode}; see {self._folder}")
                self._start(name)
        if self._running["load"].poll() is not None:
            raise RuntimeError(f"the program that keeps the books has ended; see {self._folder}")

    def order(self, order: str) -> None:
        """Give the program with the books an order."""
        pipe = self._running["load"].stdin
        assert pipe is not None
        print(order, file=pipe, flush=True)

    def end(self) -> None:
        """End all of them in order, the one with the books first."""
        load = self._running["load"]
        assert load.stdin is not None
        load.stdin.close()
        self._await("load", load, {0})
        time.sleep(1)  # until its last report is read
        for name, process in self._running.items():
            if name != "load":
                process.terminate()
        for name, process in self._running.items():
            if name != "load":
                self._await(name, process, STOPPED)

    def kill(self) -> None:
        """Kill what is left."""
        for process in self._running.values():
            if process.poll() is None:
                process.kill()
