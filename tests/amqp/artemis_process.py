"""A real ActiveMQ Artemis in a process of its own, which can be ended, killed and started again with what it kept."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

from java_remote import build

PROJECT = Path(__file__).parent / "artemis"


class Artemis:
    """A broker on 127.0.0.1, at the same port whenever it runs.

    Args:
        folder: Where it keeps its messages.
        login: The name and password that it wants; None: it admits every client.
    """

    def __init__(self, folder: Path, login: tuple[str, str] | None = None) -> None:
        self._folder = folder
        self._login = login or ()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"amqp://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and return when it takes connections."""
        self._process = subprocess.Popen(
            ["java", "-Xmx512m", "-cp", build(PROJECT), "kjms.Artemis", str(self.port), self._folder, *self._login],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"},
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == "ready":
                return
        raise AssertionError(f"Artemis ended with {self._process.wait()}")

    def kill(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def close(self) -> None:
        """End it as it wants to be ended."""
        if self._process is not None:
            self._process.communicate()
            self._process = None
