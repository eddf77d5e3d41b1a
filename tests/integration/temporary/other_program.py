"""A program with one connection, told over its standard input what to do; it answers each line with one.

Run it as ``python other_program.py HOST:PORT``. Lines are JSON: a list of a function's name and its arguments.
"""

from __future__ import annotations

import sys

from kjms import ConnectionFactory, TemporaryQueue
from kjms.destinations import parse_destination
from tests.helpers import serve_requests


class Program:
    def __init__(self, servers: str) -> None:
        self.connection = ConnectionFactory(servers).create_connection()
        self.connection.start()
        self.session = self.connection.create_session()
        self.queues: list[TemporaryQueue] = []

    def create(self) -> str:
        self.queues.append(self.session.create_temporary_queue())
        return str(self.queues[-1])

    def delete(self, number: int) -> None:
        self.queues[number].delete()

    def send(self, destination: str, text: str) -> None:
        with self.session.create_producer(None) as producer:
            producer.send(self.session.create_text_message(text), parse_destination(destination))

    def consume(self, destination: str) -> None:
        self.session.create_consumer(parse_destination(destination)).close()

    def receive(self, number: int) -> str | None:
        with self.session.create_consumer(self.queues[number]) as consumer:
            message = consumer.receive(20_000)
        return None if message is None else message.text  # type: ignore[attr-defined]


if __name__ == "__main__":
    program = Program(sys.argv[1])
    with program.connection:
        serve_requests(program)
