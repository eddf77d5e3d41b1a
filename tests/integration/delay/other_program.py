"""A program that uses one queue, to be killed: ``other_program.py ROLE HOST:PORT QUEUE [...]``.

``send`` takes a delay and texts, ``consume`` the seconds by which its clock is ahead.

It says when it serves the queue's delayed messages, and then waits for the end of its standard input.
"""

from __future__ import annotations

import sys
import time

from kjms import ConnectionFactory, Queue
from kjms.testing.engine import statistics, tuned


def main() -> None:
    role, servers, name, *rest = sys.argv[1:]
    hasty = {"session.timeout.ms": 1_000, "heartbeat.interval.ms": 200}
    ahead = float(rest[0]) if role == "consume" and rest else 0.0
    factory = ConnectionFactory(servers, kafka=hasty)
    with tuned(wall_clock=lambda: time.time() + ahead), factory.create_connection() as connection:
        session = connection.create_session()
        if role == "consume":
            consumer = session.create_consumer(Queue(name), "none = 'of them'")
            connection.start()
            assert consumer is not None
        else:
            producer = session.create_producer(Queue(name))
            for text in rest[1:]:
                producer.send(session.create_text_message(text), delivery_delay=int(rest[0]))
        while (served := statistics(connection).delayed_of(name)) is None or not served.partitions:
            time.sleep(0.01)
        print("serves", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
