"""Processes of multiprocessing send, by a factory that they are given, in new interpreters."""

from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path

from kjms import ConnectionFactory, Queue


def work(factory: ConnectionFactory, queue: Queue, number: int) -> None:
    """Send one message."""
    with factory.create_context() as context:
        context.create_producer().send(queue, f"worker {number}")


def main(method: str) -> None:
    """Start the workers."""
    servers, name = sys.argv[1:]
    factory, queue = ConnectionFactory(servers), Queue(name)
    with factory.create_context() as context:
        context.create_producer().send(queue, "parent")
        started = multiprocessing.get_context(method)
        workers = [started.Process(target=work, args=(factory, queue, number)) for number in range(3)]  # type: ignore
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
        print("ended:", [worker.exitcode for worker in workers])


if __name__ == "__main__":
    main(Path(__file__).stem.removeprefix("pool_"))
