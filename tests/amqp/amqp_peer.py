"""An AMQP client for tests that keeps to no more manners than its test has."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any


class Peer:
    """A client with an engine and a socket, and no manners of its own."""

    def __init__(self, port: int, name: str, *desired: str) -> None:
        from proton import Collector, Connection, Transport, symbol

        self.transport, self.connection, self.events = Transport(), Connection(), Collector()
        self.connection.collect(self.events)
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

    def detach(self, link: Any) -> None:
        """Detach *link*, and wait for the gateway's answer: its consumer is closed then."""
        from proton import Event

        link.detach()

        def is_answered() -> bool:
            while (event := self.events.peek()) is not None:
                is_it = event.type == Event.LINK_REMOTE_DETACH and event.link == link
                self.events.pop()
                if is_it:
                    return True
            return False

        self.wait(is_answered)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


class Names:
    """Attaches links of one connection, each in a session of its own."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    def answered(self, link: Any) -> Any:
        self.peer.wait(lambda: link.remote_source.address or link.state & link.REMOTE_CLOSED)
        return link

    def durable(self, name: str, topic: str, *kinds: str, filters: Any = None) -> Any:
        return self.receiver(name, topic, *kinds, filters=filters, is_durable=True)

    def receiver(self, name: str, topic: str, *kinds: str, filters: Any = None, is_durable: bool = False) -> Any:
        from proton import Terminus, symbol

        session = self.peer.connection.session()
        session.open()
        link = session.receiver(name)
        link.source.address = topic
        link.source.capabilities.put_object([symbol(each) for each in kinds])
        if is_durable:
            link.source.durability = Terminus.DELIVERIES
            link.source.expiry_policy = Terminus.EXPIRE_NEVER
        if filters:
            link.source.filter.put_object(filters)
        link.open()
        return self.answered(link)


class Received:
    """The bodies that receivers of one peer are sent, in the order of their sending."""

    def __init__(self, peer: Peer, receivers: list[Any]) -> None:
        self._peer = peer
        self._receivers = receivers
        self.bodies: list[list[str]] = [[] for _ in receivers]

    def wait(self, count: int) -> None:
        self._peer.wait(lambda: self._read() >= count)

    def _read(self) -> int:
        from proton import Message

        for receiver, bodies in zip(self._receivers, self.bodies, strict=True):
            while (delivery := receiver.current) is not None and delivery.readable and not delivery.partial:
                message = Message()
                message.decode(receiver.recv(delivery.pending))
                bodies.append(str(message.body))
                delivery.update(delivery.ACCEPTED)
                delivery.settle()  # which advances
        return sum(map(len, self.bodies))


class Lookup:
    """Attaches links with a null source, which ask what a durable subscription is."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    def ask(self, name: str) -> Any:
        session = self.peer.connection.session()
        session.open()
        link = session.receiver(name)
        link.open()
        self.peer.wait(lambda: link.remote_source.address or link.state & link.REMOTE_CLOSED)
        return link

    def end(self, link: Any) -> Any:
        link.close()
        self.peer.wait(lambda: link.state & link.REMOTE_CLOSED)
        return link.remote_condition


def plain(data: Any) -> Any:
    data.rewind()
    found = data.get_object() if data.next() is not None else None
    return getattr(found, "elements", found)
