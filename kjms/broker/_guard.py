"""The guard: a small process that runs Kafka for a program, and does not let it outlive that program.

It is started by file name, ``python -I -S _guard.py PARENT TEMPORARY``, and knows nothing of kjms.
Its stdin is the life line. Orders come as JSON lines, answers go to stdout as text lines::

    {"do": "start", "command": [...], "log": "...", "archive": ["made at exit", "name if whole"] | null}
    {"do": "stop"}    SIGTERM          {"do": "kill"}    SIGKILL
    started PID       failed REASON    exited CODE

When stdin ends, or the parent is gone (a forked sibling may still hold the other end of stdin), Kafka is ended and the
TEMPORARY directory, unless empty, removed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from typing import Any

GRACE_SECONDS = 2.0  # how long Kafka may take to end properly once no process needs it any more
PARENT_CHECK_SECONDS = 0.5
_PR_SET_PDEATHSIG = 1


class Guard:
    """One Kafka at most, its log and the archive of classes that Java may write when it ends."""

    def __init__(self) -> None:
        self.kafka: subprocess.Popen[bytes] | None = None
        self._archive: list[str] | None = None

    def start(self, command: list[str], log: str, archive: list[str] | None) -> None:
        """Run *command* with its output appended to *log*."""
        self._archive = archive
        try:
            with open(log, "ab") as output:
                self.kafka = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    close_fds=False,  # the lock of the data directory goes along: held as long as a Kafka lives
                    start_new_session=True,  # a process group of its own, see kill()
                    preexec_fn=_ending_with(os.getpid()),  # noqa: PLW1509 - this process has one thread
                )
        except OSError as error:
            say(f"failed {error}")
        else:
            say(f"started {self.kafka.pid}")

    def terminate(self) -> None:
        """Ask Kafka to end, if it runs."""
        if self.kafka is not None:
            self.kafka.terminate()

    def kill(self) -> None:
        """Kill Kafka, if it runs, and the second Java that may be writing the archive for it."""
        if self.kafka is not None and self.kafka.poll() is None:
            os.killpg(self.kafka.pid, signal.SIGKILL)

    def look(self) -> None:
        """Report the end of Kafka, if it came."""
        if self.kafka is not None and self.kafka.poll() is not None:
            self._keep_archive()
            say(f"exited {self.kafka.returncode}")
            self.kafka = None

    def end(self) -> None:
        """End Kafka, properly if it is quick about it."""
        if self.kafka is not None:
            self.kafka.terminate()
            try:
                self.kafka.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
                self.kafka.wait()
            self.look()

    def _keep_archive(self) -> None:
        if self._archive is None or self.kafka is None:
            return
        made, name = self._archive
        if self.kafka.returncode in (0, 128 + signal.SIGTERM):
            with contextlib.suppress(OSError):
                os.replace(made, name)
        for unfinished in (made, f"{made}.config"):
            with contextlib.suppress(OSError):
                os.unlink(unfinished)


def _ending_with(guard: int) -> Any:
    """Return what the child does before it becomes Kafka: on Linux, ask to be killed when the guard is."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(1)

    return prepare


def say(line: str) -> None:
    """Tell the parent; it may be gone."""
    with contextlib.suppress(OSError):
        os.write(1, line.encode() + b"\n")


def serve(guard: Guard, parent: int) -> None:
    """Carry out orders until stdin ends, the parent is gone or SIGTERM comes."""
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    leave: list[int] = []
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda number, _: leave.append(number))
    for number in (signal.SIGINT, signal.SIGHUP):  # those are the program's affair
        signal.signal(number, signal.SIG_IGN)
    received = b""
    while not leave and os.getppid() == parent:
        readable, _, _ = select.select([0, woken], [], [], PARENT_CHECK_SECONDS)
        if woken in readable:
            os.read(woken, 512)
        guard.look()
        if 0 in readable:
            data = os.read(0, 65536)
            if not data:
                return
            *lines, received = (received + data).split(b"\n")
            for line in lines:
                obey(guard, json.loads(line))


def obey(guard: Guard, order: dict[str, Any]) -> None:
    """Carry out one order."""
    if order["do"] == "start":
        guard.start(order["command"], order["log"], order["archive"])
    elif order["do"] == "stop":
        guard.terminate()
    else:
        guard.kill()


def main() -> None:
    """Serve the parent named on the command line, then leave nothing behind."""
    parent, temporary = int(sys.argv[1]), sys.argv[2]
    guard = Guard()
    try:
        serve(guard, parent)
    finally:
        guard.end()
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)


if __name__ == "__main__":
    main()
