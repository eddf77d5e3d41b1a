"""A program with one transacted session, told over its standard input what to do; it answers each line with one.

Run it as ``python other_program.py HOST:PORT``. Lines are JSON: a list of a function's name and its arguments.
"""

from __future__ import annotations

import sys

from kjms import ConnectionFactory, Queue, Session
from tests.helpers import serve_requests, take

DELIVERIES = 8  # of a message, before the next one is sent: fewer than lead to the dead-letter queue


class Program:
    def __init__(self, servers: str) -> None:
        kafka = {"session.timeout.ms": 30_000}  # it keeps its partitions on a slow machine, too
        self.connection = ConnectionFactory(servers, kafka=kafka).create_connection()
        self.connection.start()
        self.session = self.connection.create_session(Session.SESSION_TRANSACTED)

    def consume(self, queue: str) -> None:
        self.producer = self.session.create_producer(Queue(queue))
        self.send()
        self.consumer = self.session.create_consumer(Queue(queue))

    def send(self) -> None:
        self.producer.send(self.session.create_text_message("again"))
        self.session.commit()

    def work(self, times: int) -> None:
        """Receive the only message of the queue so many times; roll back, or send the next one and commit."""
        for number in range(times):
            take(self.consumer, 1)
            if number % DELIVERIES < DELIVERIES - 1:
                self.session.rollback()
            else:
                self.send()


if __name__ == "__main__":
    program = Program(sys.argv[1])
    with program.connection:
        serve_requests(program)
