"""An AMQP client for tests that keeps to no more manners than its test has."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any


class Peer:
    """A client with an engine and a socket, and no manners of its own."""

    def __init__(self, port: int, name: str, *desired: str) -> None:
        from proton import Connection, Transport, symbol

        self.transport, self.connection = Transport(), Connection()
        self.connection.container = name
        self.connection.desired_capabilities = [symbol(each) for each in desired]
        self.transport.bind(self.connection)
        self.connection.open()
        self.session = self.connection.session()
        self.session.open()
        self.socket = socket.create_connection(("localhost", port))
        self.socket.settimeout(10)

    def receiver(self, address: str, credit: int) -> Any:
        receiver = self.session.receiver("receiver")
        receiver.source.address = address
        receiver.open()
        receiver.flow(credit)
        return receiver

    def write(self) -> None:
        while (pending := self.transport.pending()) > 0:
            self.socket.sendall(self.transport.peek(pending))
            self.transport.pop(pending)

    def wait(self, condition: Callable[[], object]) -> None:
        self.write()
        while not condition():
            data = self.socket.recv(65_536)
            assert data, "the gateway has closed the connection"
            while data:
                piece, data = data[: self.transport.capacity()], data[self.transport.capacity() :]
                self.transport.push(piece)
            self.write()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
