"""A program that is killed: it has a temporary queue, a client identifier and shared consumers.

Run it as ``python other_program.py HOST:PORT``. Lines are JSON: a list of a function's name and its arguments.
"""

from __future__ import annotations

import sys

from kjms import ConnectionFactory, Session, Topic
from tests.helpers import serve_requests


class Program:
    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.kept: list[object] = []

    def temporary(self) -> str:
        """Create a temporary queue, and return its Kafka topic."""
        session = ConnectionFactory(self.servers).create_connection().create_session(Session.AUTO_ACKNOWLEDGE)
        self.kept.append(session)
        return str(session.create_temporary_queue().queue_name).rpartition("/")[0]

    def shared(self, topic: str, name: str, client_id: str) -> None:
        """Open a consumer of a shared non-durable subscription."""
        connection = ConnectionFactory(self.servers, client_id=client_id).create_connection()
        session = connection.create_session(Session.AUTO_ACKNOWLEDGE)
        self.kept.append(session.create_shared_consumer(Topic(topic), name))
        connection.start()


if __name__ == "__main__":
    serve_requests(Program(sys.argv[1]))
