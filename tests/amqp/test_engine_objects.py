"""proton's objects stay in the thread of their event loop: no other frees one, and none outlives its connection."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from amqp_peer import Peer
from gateway_thread import RunningGateway

from kjms import ConnectionFactory, Queue, TextMessage
from kjms.errors import JMSException
from kjms.mapping.amqp import encode
from kjms.testing import MemoryKafka
from tests.helpers import WAIT_SECONDS, load_module

SASL = b"AMQP\x03\x01\x00\x00"
AMQP = b"AMQP\x00\x01\x00\x00"
MESSAGES = 50


class Ownership:
    """Which thread made each of proton's objects, and which ones another thread than the maker's freed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from proton import Collector
        from proton._wrapper import Wrapper

        self._alive: dict[int, tuple[str, threading.Thread]] = {}  # by id: a reference here could be the last one
        self.freed_elsewhere: Counter[str] = Counter()
        for kind in (Wrapper, Collector):
            monkeypatch.setattr(kind, "__init__", self._noting(kind.__init__))
            monkeypatch.setattr(kind, "__del__", self._judging(kind.__del__))

    def _noting(self, init: Callable[..., None]) -> Callable[..., None]:
        def noting(made: Any, *args: Any, **options: Any) -> None:
            self._alive[id(made)] = type(made).__name__, threading.current_thread()
            init(made, *args, **options)

        return noting

    def _judging(self, free: Callable[[Any], None]) -> Callable[[Any], None]:
        def judging(made: Any) -> None:
            here = threading.current_thread()
            name, maker = self._alive.pop(id(made), ("", here))
            if maker is not here:
                self.freed_elsewhere[f"{name} of {maker.name} freed by {here.name}"] += 1
            free(made)

        return judging

    def left(self) -> Counter[str]:
        """Return how many objects of each class exist that other threads than this one made."""
        here = threading.current_thread()
        return Counter(name for name, maker in self._alive.copy().values() if maker is not here)


@pytest.fixture
def ownership(proton: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ownership]:
    """Watches proton's objects while the garbage collector is off."""
    gc.collect()
    gc.disable()
    try:
        yield Ownership(monkeypatch)
    finally:
        gc.enable()


@pytest.fixture
def factory(proton: None) -> Iterator[ConnectionFactory]:
    """A factory on a Kafka in memory."""
    with MemoryKafka() as kafka:
        yield ConnectionFactory(kafka.bootstrap_servers)


@pytest.fixture
def running(factory: ConnectionFactory) -> Iterator[RunningGateway]:
    """A gateway whose loop runs in a thread of its own."""
    gateway = RunningGateway(factory)
    yield gateway
    gateway.close()


def wait_until_none_is_left(ownership: Ownership) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while ownership.left() and time.monotonic() < until:
        time.sleep(0.02)
    assert not ownership.left()
    gc.collect()  # in this thread, as it may be in any
    assert not ownership.freed_elsewhere


def exchange(peer: Peer, queue: str) -> None:
    """Send messages, receive them, and detach both links in order."""
    sender = peer.session.sender("sender")
    sender.target.address = queue
    sender.open()
    peer.wait(lambda: sender.credit > 0)
    sent = []
    for number in range(MESSAGES):
        peer.wait(lambda: sender.credit > 0)
        sent.append(sender.delivery(str(number)))
        sender.send(encode(TextMessage(f"{number}")).encode())
        sender.advance()
        peer.write()
    peer.wait(lambda: all(delivery.settled for delivery in sent))
    receiver = peer.receiver(queue, MESSAGES)
    received = []

    def take() -> bool:
        while (delivery := receiver.current) is not None and delivery.readable and not delivery.partial:
            receiver.recv(delivery.pending)
            receiver.advance()
            delivery.update(delivery.ACCEPTED)
            received.append(delivery)
        peer.write()
        return len(received) == MESSAGES and all(delivery.settled for delivery in received)

    peer.wait(take)
    for link in (sender, receiver):
        link.close()
        peer.wait(lambda link=link: link.state & link.REMOTE_CLOSED)


def talk(port: int, data: bytes) -> None:
    with socket.create_connection(("localhost", port)) as client:
        client.settimeout(WAIT_SECONDS)
        with contextlib.suppress(ConnectionError):
            client.sendall(data)
            while client.recv(65_536):
                pass


def test_links_leave_nothing_behind_while_their_connection_lives(
    running: RunningGateway, ownership: Ownership, kjms_destination_name: str
) -> None:
    """The objects of links and sessions that have ended are freed by the loop while their connection lives on."""
    with Peer(running.port, "lives") as peer:
        peer.wait(lambda: peer.session.state & peer.session.REMOTE_ACTIVE)
        for _ in range(3):
            exchange(peer, kjms_destination_name)
            left_open = peer.receiver(kjms_destination_name, 1)
            peer.wait(lambda left_open=left_open: left_open.state & left_open.REMOTE_ACTIVE)
            peer.session.close()  # without a detach: the gateway's link goes with its session
            peer.wait(lambda: peer.session.state & peer.session.REMOTE_CLOSED)
            peer.session = peer.connection.session()
            peer.session.open()
        peer.wait(lambda: peer.session.state & peer.session.REMOTE_ACTIVE)
        until = time.monotonic() + WAIT_SECONDS
        while set(ownership.left()) & {"Link", "Sender", "Receiver", "Delivery"} and time.monotonic() < until:
            time.sleep(0.02)
        assert not set(ownership.left()) & {"Link", "Sender", "Receiver", "Delivery"}
        gc.collect()
        assert not ownership.freed_elsewhere
    wait_until_none_is_left(ownership)


@pytest.mark.parametrize("is_in_order", [True, False])
def test_an_ended_connection_leaves_nothing_behind(
    running: RunningGateway, ownership: Ownership, kjms_destination_name: str, is_in_order: bool
) -> None:
    """Once a client has closed its connection, or is gone, no object of it exists any more."""
    with Peer(running.port, "ends") as peer:
        exchange(peer, kjms_destination_name)
        peer.receiver(kjms_destination_name, 10)
        peer.write()
        if is_in_order:
            peer.connection.close()
            peer.wait(lambda: peer.connection.state & peer.connection.REMOTE_CLOSED)
    wait_until_none_is_left(ownership)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        SASL + b"\x00\x00\x00\x07\x02\x01\x00\x00",
        SASL + b"\x00\x00\x00\x10\x02\x01\x00\x00\x00\x53\x41\xc0\x01\x00\x00\x00",
        AMQP + b"\x7f\xff\xff\xff\x02\x00\x00\x00",
        AMQP + b"\x00\x00\x00\x10\x02\x00\x00\x00\x00\x53\x14\xc0\x03\x01\x41\x41",
        AMQP + b"\x00\x00\x00\x14\x02\x00\x00\x00\x00\x53\x10\xc0\x07\x01\xa1\x04\xff\xff\xff\xff",  # no UTF-8
    ],
)
def test_nonsense_leaves_nothing_behind(running: RunningGateway, ownership: Ownership, data: bytes) -> None:
    """No object exists of a connection whose client broke the protocol."""
    for _ in range(3):
        talk(running.port, data)
    wait_until_none_is_left(ownership)


def test_damaged_conversations_leave_nothing_behind(running: RunningGateway, ownership: Ownership) -> None:
    """No object exists of connections that sent, received and committed, whole or in damaged frames."""
    fuzz = load_module(Path(__file__).parents[1] / "fuzz_gateway.py")
    chance = random.Random(18)
    whole = fuzz.conversation()

    async def talk_all() -> None:
        conversations = [whole, *(fuzz.damaged(whole, chance) for _ in range(fuzz.TOGETHER))]
        await asyncio.gather(*(fuzz.talk(running.port, frames, chance) for frames in conversations))

    for _ in range(3):
        asyncio.run(talk_all())
    wait_until_none_is_left(ownership)


def test_a_client_that_is_not_let_in_leaves_nothing_behind(factory: ConnectionFactory, ownership: Ownership) -> None:
    """No object exists of a connection that was refused: by its login, or because there are too many."""
    gateway = RunningGateway(factory, anonymous=False, pass_credentials=True)
    talk(gateway.port, AMQP)
    gateway.close()
    wait_until_none_is_left(ownership)
    gateway = RunningGateway(factory, max_connections=1)
    with Peer(gateway.port, "first") as first:
        first.wait(lambda: first.session.state & first.session.REMOTE_ACTIVE)
        with Peer(gateway.port, "second") as second:
            second.wait(lambda: second.connection.state & second.connection.REMOTE_CLOSED)
    wait_until_none_is_left(ownership)
    gateway.close()


def test_a_gateway_that_ends_leaves_nothing_behind(
    factory: ConnectionFactory, ownership: Ownership, kjms_destination_name: str
) -> None:
    """No object of its clients outlives a gateway."""
    gateway = RunningGateway(factory)
    with Peer(gateway.port, "stays") as peer:
        exchange(peer, kjms_destination_name)
        peer.receiver(kjms_destination_name, 10)
        peer.write()
        gateway.close()
    wait_until_none_is_left(ownership)


def test_a_bridge_leaves_nothing_behind(
    running: RunningGateway, factory: ConnectionFactory, ownership: Ownership, kjms_destination_name: str
) -> None:
    """A bridge frees the objects of its connection in the thread of its event loop, at both ends of it."""
    from kjms.bridge import BridgeIn, BridgeOptions, BridgeOut, PeerOptions

    options = BridgeOptions(count=MESSAGES)
    with factory.create_context() as context:
        producer = context.create_producer()
        for number, bridge in enumerate((BridgeOut, BridgeIn)):
            source, target = Queue(f"{kjms_destination_name}-{number}"), Queue(f"{kjms_destination_name}-to-{number}")
            for text in range(MESSAGES):
                producer.send(source, f"{text}")
            assert bridge(factory, PeerOptions(running.url), source, target, options).run() == (MESSAGES, 0, 0)
    with pytest.raises(JMSException):  # nothing listens there
        BridgeIn(factory, PeerOptions("amqp://localhost:1", connect_timeout=200), target, None, options).run()
    wait_until_none_is_left(ownership)
