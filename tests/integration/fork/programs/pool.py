"""Processes of multiprocessing, forked or in new interpreters, send by a factory that their connected parent gives."""

from __future__ import annotations

import multiprocessing
import sys

from kjms import ConnectionFactory, Queue


def work(factory: ConnectionFactory, queue: Queue, number: int) -> None:
    """Send one message."""
    with factory.create_context() as context:
        context.create_producer().send(queue, f"worker {number}")


def main() -> None:
    """Start the workers."""
    servers, name, method = sys.argv[1:]
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
    main()
