"""Thousands of connections, opened and closed: the process is as large afterwards as it was after the first ones."""

from __future__ import annotations

import time
import uuid

from stress_process import Held, left_since

from kjms import ConnectionFactory, JMSContext, Queue

FLAT_MEGABYTES = 16.0  # the allocator's own ups and downs, which do not grow with the number


def many_connections(servers: str, count: int) -> list[str]:
    """Open and close *count* connections of one engine, each used; return what was not as it should be."""
    queue = Queue(f"stress-{uuid.uuid4().hex[:8]}")
    factory = ConnectionFactory(servers)

    def use() -> None:
        with factory.create_connection() as connection:
            connection.exception_listener = print
            connection.start()
            session = connection.create_session()
            session.create_producer(queue)
            session.create_consumer(queue).receive_no_wait()

    with factory.create_context() as context:  # keeps the engine
        _serve(context, queue)  # a group consumer starts in the background, and the engine's threads with it
        return _repeat("connections", use, count)


def many_engines(servers: str, count: int) -> list[str]:
    """Do the same with connections that have Kafka clients of their own."""
    queue = Queue(f"stress-{uuid.uuid4().hex[:8]}")
    factory = ConnectionFactory(servers)

    def use() -> None:
        with factory.create_context() as context:
            _serve(context, queue)

    return _repeat("engines", use, count)


def _serve(context: JMSContext, queue: Queue) -> None:
    """Send a message to *queue*, and receive it."""
    context.create_producer().send(queue, "x")
    with context.create_consumer(queue) as consumer:
        assert consumer.receive(20_000) is not None


def _repeat(what: str, use: object, count: int) -> list[str]:
    assert callable(use)
    for _ in range(max(count // 10, 5)):
        use()
    before, began = Held.now(), time.monotonic()
    for _ in range(count):
        use()
    took = time.monotonic() - began
    problems = left_since(before)
    grown = Held.now().megabytes - before.megabytes
    print(
        f"{what}: {count} in {took:.1f} s, {1000 * took / count:.1f} ms each; {before.megabytes:.0f} MB before,"
        f" {grown:+.1f} MB after",
        flush=True,
    )
    if grown > FLAT_MEGABYTES:
        problems.append(f"{what}: {grown:.1f} MB more after {count}")
    return problems
