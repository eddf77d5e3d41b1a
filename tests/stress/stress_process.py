"""What a process has open: its threads, file descriptors and memory, before and after."""

from __future__ import annotations

import faulthandler
import gc
import sys
import threading
import time
from dataclasses import dataclass

import psutil

GOING_SECONDS = 30.0  # what was closed is gone after that, on a slow machine, too


@dataclass(frozen=True)
class Held:
    """What the process holds."""

    threads: frozenset[str]
    native_threads: int
    descriptors: int
    megabytes: float

    @classmethod
    def now(cls) -> Held:
        gc.collect()
        process = psutil.Process()
        names = frozenset(f"{each.name} {each.ident}" for each in threading.enumerate())
        return cls(names, process.num_threads(), process.num_fds(), process.memory_info().rss / 1_000_000)


def left_since(before: Held) -> list[str]:
    """Return what is held that was not held *before*, after waiting for it to go."""
    deadline = time.monotonic() + GOING_SECONDS
    while True:
        now = Held.now()
        left = []
        if now.threads - before.threads:
            left.append(f"threads are left: {', '.join(sorted(now.threads - before.threads))}")
        if now.native_threads > before.native_threads:
            left.append(f"{now.native_threads} threads instead of {before.native_threads}, Kafka's clients' included")
        if now.descriptors > before.descriptors:
            left.append(f"{now.descriptors} file descriptors instead of {before.descriptors}")
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.1)


def show_all_threads() -> None:
    """Write the stack of every thread to stderr: a deadlock explains itself there."""
    faulthandler.dump_traceback(sys.stderr, all_threads=True)
