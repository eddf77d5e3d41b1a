"""A process with slow consumers of a long queue, whose memory is watched: ``-m benchmarks._watched SERVERS QUEUE``."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Final

import psutil

from kjms import ConnectionFactory, Queue, Session
from kjms.bench._reading import read_message

__all__ = ["WATCHED_AT", "watched"]

WATCHED_AT: Final = (2, 5, 10, 20)  # seconds after the first message
CONSUMERS: Final = 16
PAUSE_SECONDS: Final = 0.02  # that a message takes a consumer


def watched(servers: str, queue: str) -> list[float]:
    """Return by how many megabytes the memory of such a process had grown at each of those times."""
    command = [sys.executable, "-m", "benchmarks._watched", servers, queue]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [float(line) for line in run.stdout.split()]


def main(servers: str, queue: str) -> None:
    """Consume slowly, and print the memory at its times."""
    this = psutil.Process()
    with ConnectionFactory(servers).create_connection() as connection:
        begin = this.memory_info().rss
        sessions = [connection.create_session(Session.AUTO_ACKNOWLEDGE) for _ in range(CONSUMERS)]
        for session in sessions:
            session.create_consumer(Queue(queue)).message_listener = _work
        connection.start()
        started = time.monotonic()
        for seconds in WATCHED_AT:
            time.sleep(max(0.0, started + seconds - time.monotonic()))
            print((this.memory_info().rss - begin) / 2**20, flush=True)


def _work(message: object) -> None:
    read_message(message)
    time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main(*sys.argv[1:])
