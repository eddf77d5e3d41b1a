"""A program with one connection, told over its standard input what to do; it answers each line with one.

Run it as ``python other_program.py HOST:PORT``. Lines are JSON: a list of a function's name and its arguments.
"""

from __future__ import annotations

import queue
import sys
from typing import Any

from kjms import ConnectionFactory, MessageConsumer, Session, Topic
from tests.helpers import SHORT_SESSION, serve_requests


class Program:
    def __init__(self, servers: str) -> None:
        self.connection = ConnectionFactory(servers, kafka=SHORT_SESSION).create_connection()
        self.failures: queue.Queue[Exception] = queue.Queue()
        self.consumers: list[MessageConsumer] = []
        self.sessions: list[Session] = []

    def client(self, client_id: str) -> None:
        self.connection.client_id = client_id

    def start(self, mode: int = Session.AUTO_ACKNOWLEDGE) -> None:
        self.connection.exception_listener = self.failures.put
        self.connection.start()
        self.sessions.append(self.connection.create_session(mode))

    def consume(self, method: str, topic: str, *arguments: Any) -> int:
        self.consumers.append(getattr(self.sessions[0], method)(Topic(topic), *arguments))
        return len(self.consumers) - 1

    def receive(self, consumer: int, milliseconds: int) -> str | None:
        message = self.consumers[consumer].receive(milliseconds)
        return None if message is None else message.text  # type: ignore[attr-defined]

    def close(self, consumer: int) -> None:
        self.consumers[consumer].close()

    def failure(self) -> str:
        return type(self.failures.get(timeout=60)).__name__

    def unsubscribe(self, name: str) -> None:
        self.sessions[0].unsubscribe(name)


if __name__ == "__main__":
    program = Program(sys.argv[1])
    with program.connection:
        serve_requests(program)
