"""Several gateways serve one queue: their clients share its messages, whichever gateway has the queue's partition."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from amqp_peer import Peer
from gateway_thread import RunningGateway

from kjms import ConnectionFactory, Queue, Session
from kjms.broker import LocalBroker

CREDIT = 1_000
SECONDS = 40.0
WAITING = (
    150  # messages that wait while clients come: more than a gateway sends ahead to the one of the partition's holder
)
BURSTS = 4
numbers = itertools.count()


class Client:
    """A client with one receiver, in a thread: it takes the same time for each message, and accepts each after that."""

    def __init__(self, gateway: RunningGateway, queue: Queue, work: float, batch: int = 1) -> None:
        self.got: list[str] = []
        self._work = work
        self._batch = batch
        self._address = queue.queue_name
        self._port = gateway.port
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        from proton import Delivery, Message

        open_: list[Any] = []
        with Peer(self._port, f"sharing-{next(numbers)}") as peer:
            peer.socket.settimeout(0.2)
            receiver = peer.receiver(self._address, CREDIT)
            while not self._is_over.is_set():
                try:
                    peer.wait(lambda: receiver.current is not None and not receiver.current.partial)
                except TimeoutError:
                    continue
                delivery = receiver.current
                message = Message()
                message.decode(receiver.recv(delivery.pending))
                self._is_over.wait(self._work)
                self.got.append(message.body)
                open_.append(delivery)
                receiver.advance()
                receiver.flow(1)
                if len(open_) == self._batch:
                    for each in open_:
                        each.update(Delivery.ACCEPTED)
                        each.settle()
                    open_.clear()
                peer.write()

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()


@pytest.fixture
def gateways(proton: None, kjms_broker: LocalBroker) -> Iterator[list[RunningGateway]]:
    """Three gateways with engines of their own, as three processes would have."""
    own = [{"client.id": f"gateway-{next(numbers)}"} for _ in range(3)]
    factories = [ConnectionFactory(kjms_broker.bootstrap_servers, kafka=each) for each in own]
    running = [RunningGateway(factory) for factory in factories]
    yield running
    for gateway in running:
        gateway.close()


def shares(
    gateways: list[RunningGateway],
    factory: ConnectionFactory,
    queue: Queue,
    count: int,
    work: float,
    batch: int = 1,
    part: float = 1.0,
) -> list[int]:
    """Return how many of *count* messages each gateway's client got, that takes *work* seconds for each.

    Bursts of so many are sent until no client gets more than *part* of one, or `BURSTS` were: the last one counts.
    """
    with factory.create_context() as context:
        producer = context.create_producer()
        clients = [Client(gateway, queue, work, batch) for gateway in gateways]
        try:
            begun = 0  # each has to have had one: by then they know of each other
            deadline = time.monotonic() + SECONDS
            while not all(client.got for client in clients) and time.monotonic() < deadline:
                if begun - sum(len(client.got) for client in clients) < WAITING:
                    producer.send(queue, "first")
                    begun += 1
                else:
                    time.sleep(0.005)
            assert all(client.got for client in clients)
            while sum(len(client.got) for client in clients) < begun:
                time.sleep(0.01)
            got: list[int] = []
            for _ in range(BURSTS):
                got = parts_of_burst(clients, factory, queue, count)
                if max(got) <= count * part:
                    break
            return got
        finally:
            for client in clients:
                client.close()


def parts_of_burst(clients: list[Client], factory: ConnectionFactory, queue: Queue, count: int) -> list[int]:
    """Send *count* messages at once, and return how many of them each client got."""
    before, deadline = [len(client.got) for client in clients], time.monotonic() + SECONDS
    with factory.create_context(Session.SESSION_TRANSACTED) as burst:
        for number in range(count):
            burst.create_producer().send(queue, str(number))
        burst.commit()
    while sum(len(client.got) for client in clients) < sum(before) + count and time.monotonic() < deadline:
        time.sleep(0.01)
    got = [client.got[start:] for client, start in zip(clients, before, strict=True)]
    assert sorted(itertools.chain(*got), key=int) == list(map(str, range(count)))
    return [len(each) for each in got]


@pytest.mark.parametrize(("count", "work", "part"), [(600, 0.005, 0.75), (240, 0.03, 0.6)])
def test_gateways_share_a_queue(
    gateways: list[RunningGateway],
    kjms_factory: ConnectionFactory,
    kjms_destination_name: str,
    count: int,
    work: float,
    part: float,
) -> None:
    """Clients that take equally long get similar parts of a queue, whichever gateway reads its partition.

    A third each is ideal. Without sharing, one gets 0.9 of each burst; a busy machine delays the sharing of some.
    """
    got = shares(gateways, kjms_factory, Queue(kjms_destination_name), count, work, part=part)
    assert max(got) <= count * part


def test_clients_that_answer_for_many_at_once_get_them(
    gateways: list[RunningGateway], kjms_factory: ConnectionFactory, kjms_destination_name: str
) -> None:
    """A client that keeps its answers back until it has 20 messages gets them, though others serve the queue."""
    shares(gateways, kjms_factory, Queue(kjms_destination_name), 200, 0.03, batch=20)
