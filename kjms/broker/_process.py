"""The program's end of the life line to the guard, which runs Kafka as its child."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from kjms.errors import JMSException

_GUARD = Path(__file__).with_name("_guard.py")


class GuardedProcess:
    """A guard, and the one process that it runs. Not for use by two threads at once.

    Args:
        temporary: A directory that the guard removes when it leaves, however the program ends; or None.
        keep_open: Open file descriptors that guard and process inherit: locks that last as long as either of them.

    Attributes:
        pid: The process's id while it runs, else None.
        exit_code: How the last process ended, else None; negative: the signal that killed it.
    """

    def __init__(self, temporary: Path | None, keep_open: Sequence[int]) -> None:
        self.pid: int | None = None
        self.exit_code: int | None = None
        self._failure: str | None = None
        self._received = b""
        # A session of its own: Ctrl-C in the terminal reaches the program, which then decides.
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), str(temporary or "")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            pass_fds=keep_open,
        )

    def has_guard(self) -> bool:
        """Tell whether the guard is there, ready to start a process."""
        return self._guard.poll() is None

    def start(self, command: Sequence[str], log: Path, archive: tuple[Path, Path] | None) -> None:
        """Start *command* with its output appended to *log*.

        When it ends in order, the guard renames the file that it made from ``archive[0]`` to ``archive[1]``.

        Raises:
            JMSException: It cannot be executed.
        """
        self.pid = self.exit_code = self._failure = None
        names = [str(path) for path in archive] if archive else None
        self._order({"do": "start", "command": list(command), "log": str(log), "archive": names})
        while self.pid is None and self.exit_code is None:
            self._listen(None)
            if self._failure is not None:
                raise JMSException(f"Java cannot be started: {self._failure}")

    def is_running(self) -> bool:
        """Tell whether the process runs."""
        self._listen(0)
        return self.pid is not None

    def wait(self, timeout: float) -> bool:
        """Wait at most *timeout* seconds for the process to end; tell whether it has."""
        deadline = time.monotonic() + timeout
        while self.pid is not None:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            self._listen(remaining)
        return True

    def terminate(self) -> None:
        """Ask the process to end."""
        self._order({"do": "stop"})

    def kill(self) -> None:
        """End the process at once."""
        self._order({"do": "kill"})

    def close(self, timeout: float) -> None:
        """Let the guard end the process and leave, and wait for it at most *timeout* seconds."""
        assert self._guard.stdin is not None
        assert self._guard.stdout is not None
        with contextlib.suppress(OSError):
            self._guard.stdin.close()
        try:
            self._guard.wait(timeout)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()
        self._listen(0)
        self._guard.stdout.close()
        self.pid = None

    def _order(self, order: dict[str, object]) -> None:
        assert self._guard.stdin is not None
        try:
            self._guard.stdin.write(json.dumps(order).encode() + b"\n")
            self._guard.stdin.flush()
        except OSError:
            self._gone()

    def _listen(self, timeout: float | None) -> None:
        """Take in what the guard says, waiting at most *timeout* seconds for it to say something."""
        assert self._guard.stdout is not None
        descriptor = self._guard.stdout.fileno()
        while select.select([descriptor], [], [], timeout)[0]:
            data = os.read(descriptor, 4096)
            if not data:
                self._gone()
                return
            *lines, self._received = (self._received + data).split(b"\n")
            for line in lines:
                self._hear(*line.decode().split(" ", 1))
            timeout = 0

    def _hear(self, what: str, detail: str) -> None:
        if what == "started":
            self.pid = int(detail)
        elif what == "exited":
            self.pid, self.exit_code = None, int(detail)
        else:
            self._failure = detail

    def _gone(self) -> None:
        """The guard is gone, and the process with it."""
        if self.pid is not None or self._failure is None:
            self._failure = "the guard process is gone"
        if self.pid is not None:
            self.pid, self.exit_code = None, -9
