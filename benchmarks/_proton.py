"""The rival python-qpid-proton: an AMQP 1.0 client for Python on a C library."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from proton import Link, Message, symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container, LinkOption
from proton.utils import BlockingConnection

from kjms.bench._payload import AMOUNT, PRICE, REGION, TEXT, URGENT
from kjms.bench._workload import Clock

__all__ = ["latency", "receive", "receive_lazily", "send"]

AHEAD = 1_000  # messages that the broker may send ahead, as many as kjms takes
WAIT_SECONDS = 60


class _Queue(LinkOption):
    """Says, as JMS clients do, that the address is a queue."""

    def apply(self, link: Link) -> None:
        terminus = link.target if link.is_sender else link.source
        terminus.capabilities.put_object(symbol("queue"))


def _message() -> Message:
    properties = {"region": REGION, "amount": AMOUNT, "price": PRICE, "urgent": URGENT}
    return Message(body=TEXT, durable=True, properties=properties)


def _read(message: Message) -> None:
    if (message.body, message.properties["region"], message.properties["amount"]) != (TEXT, REGION, AMOUNT):
        raise RuntimeError("a message is not what was sent")


def latency(url: str, queue: str, count: int, warm: int) -> float:
    """Return the median milliseconds of a send that is waited for, after some that do not count."""
    connection = BlockingConnection(url, timeout=WAIT_SECONDS)
    sender = connection.create_sender(queue, options=_Queue())
    times = []
    for message in [_message() for _ in range(warm + count)]:
        begin = time.perf_counter()
        sender.send(message)
        times.append(time.perf_counter() - begin)
    connection.close()
    return statistics.median(times[warm:]) * 1000


class _Handler(MessagingHandler):
    """Runs until it is done; its clock runs from its first message on."""

    def __init__(self, url: str, queue: str, count: int) -> None:
        super().__init__(prefetch=AHEAD)
        self.clock = Clock()
        self.url, self.queue, self.left = url, queue, count

    def count(self, event: Any) -> None:
        """Count a message that is done."""
        self.left -= 1
        if self.left == 0:
            self.clock.__exit__()
            event.connection.close()

    def on_transport_error(self, event: Any) -> None:
        raise RuntimeError(event.transport.condition)

    on_link_error = on_rejected = on_transport_error


class _Sender(_Handler):
    def on_start(self, event: Any) -> None:
        self.messages = iter([_message() for _ in range(self.left)])
        event.container.create_sender(event.container.connect(self.url), self.queue, options=_Queue())

    def on_link_opened(self, event: Any) -> None:
        self.clock.__enter__()

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit:
            message = next(self.messages, None)
            if message is None:
                return
            event.sender.send(message)

    def on_accepted(self, event: Any) -> None:
        self.count(event)


class _Receiver(_Handler):
    def on_start(self, event: Any) -> None:
        event.container.create_receiver(event.container.connect(self.url), self.queue, options=_Queue())
        self.read: Callable[[Message], object] = self.first

    def first(self, _: Message) -> None:
        self.read = _read
        self.clock.__enter__()

    def on_message(self, event: Any) -> None:
        self.read(event.message)
        self.count(event)


def send(url: str, queue: str, count: int) -> float:
    """Return the messages per second of an event loop that sends on credit, and receives an outcome for each."""
    handler = _Sender(url, queue, count)
    Container(handler).run()
    return count / handler.clock.seconds


def receive_lazily(url: str, queue: str, count: int) -> float:
    """Return the messages per second of an event loop that accepts each message when its handler has returned."""
    handler = _Receiver(url, queue, count + 1)
    Container(handler).run()
    return count / handler.clock.seconds


def receive(url: str, queue: str, count: int) -> float:
    """Return the messages per second of a loop that receives a message and accepts it."""
    connection = BlockingConnection(url, timeout=WAIT_SECONDS)
    receiver = connection.create_receiver(queue, credit=AHEAD, options=_Queue())
    receiver.receive()
    receiver.accept()
    with Clock() as clock:
        for _ in range(count):
            _read(receiver.receive())
            receiver.accept()
    connection.close()
    return count / clock.seconds
