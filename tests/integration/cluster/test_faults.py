"""Faults of a cluster of three, of its disks and of its network: what was confirmed is there once afterwards."""

from __future__ import annotations

import contextlib
import itertools
import resource
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from kjms import ConnectionFactory, JMSException, Queue, Session
from kjms.broker import LocalBroker
from tests.helpers import WAIT_MS, Intercepted, apart, intercepted, send, stored_records, text, wait_for
from tests.kafka_proxy import KafkaProxy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

LEAST = 30
"""Messages, below which a round is void: nothing was under way when the fault came, or nothing continued."""
BACKLOG = 200
"""Messages that wait to be moved: not more than can be moved at the end."""
FAULT_SECONDS = 180.0
"""In which work continues after a fault, on a machine that does much else."""


class Traffic:
    """One thread sends, and another moves messages in transactions, until `end`.

    Attributes:
        confirmed: The texts whose send returned.
        moved: How many commits returned.
    """

    def __init__(self, servers: str, queue: Queue, **kafka: Any) -> None:
        self.confirmed: list[str] = []
        self.moved = 0
        self._servers, self._target = servers, Queue(f"{queue.queue_name}-moved")
        self._is_sent, self._is_over = threading.Event(), threading.Event()
        self._stack = contextlib.ExitStack()
        connection = self._stack.enter_context(apart(servers, kafka=kafka))
        sending, moving = connection.create_session(), connection.create_session(Session.SESSION_TRANSACTED)
        producer, sink = sending.create_producer(queue), moving.create_producer(self._target)
        source = moving.create_consumer(queue)
        numbers = itertools.count()

        def send_one() -> None:
            if len(self.confirmed) - self.moved > BACKLOG:
                self._is_sent.wait(0.1)
                return
            body = str(next(numbers))  # one that failed is not sent again: it may be there
            producer.send(sending.create_text_message(body))
            self.confirmed.append(body)
            self._is_sent.wait(0.02)

        def move_one() -> None:
            message = source.receive(500)
            if message is not None:
                sink.send(moving.create_text_message(text(message)))
                moving.commit()
                self.moved += 1

        self._threads = [
            threading.Thread(target=self._again_and_again, args=(work, end), name=work.__name__)
            for work, end in ((send_one, self._is_sent), (move_one, self._is_over))
        ]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _again_and_again(work: Callable[[], None], end: threading.Event) -> None:
        while not end.is_set():
            with contextlib.suppress(JMSException):
                work()

    def flow(self) -> None:
        """Return when messages are sent and moved, as many as make a round count."""
        sent, moved = len(self.confirmed), self.moved
        wait_for(lambda: len(self.confirmed) > sent + LEAST and self.moved > moved + LEAST, FAULT_SECONDS)

    def end(self) -> None:
        """Stop sending, move the rest, and close."""
        self._is_sent.set()
        self._threads[0].join()
        with contextlib.suppress(AssertionError):  # what is missing is reported by the test
            wait_for(lambda: self.moved >= len(self.confirmed), FAULT_SECONDS)
        self._is_over.set()
        self._threads[1].join()
        self._stack.close()

    def lost_and_doubled(self) -> tuple[list[str], list[str]]:
        """Return what was confirmed and did not arrive, and what arrived more than once."""
        there = Counter((record.value() or b"").decode() for record in stored_records(self._servers, self._target_name))
        return sorted(set(self.confirmed) - there.keys()), sorted(each for each, count in there.items() if count > 1)

    @property
    def _target_name(self) -> str:
        return self._target.queue_name


@contextlib.contextmanager
def traffic(servers: str, queue: Queue, **kafka: Any) -> Iterator[Traffic]:
    """Have messages sent and moved inside of the block, before which some were."""
    made = Traffic(servers, queue, **kafka)
    try:
        made.flow()
        yield made
        made.flow()
    finally:
        made.end()


@pytest.mark.requirement("JMS-4.4.7-2", "JMS-4.3.8-4")
def test_each_leader_is_killed(cluster: LocalBroker, queue: Queue) -> None:
    """One node after the other: leaders of partitions, and coordinators of the group and of the transactions."""
    with traffic(cluster.bootstrap_servers, queue) as running:
        for node in cluster.nodes:
            cluster.kill(node)
            running.flow()
            cluster.start(node)
            running.flow()
    assert running.lost_and_doubled() == ([], [])


@pytest.mark.requirement("JMS-4.4.7-2", "JMS-4.3.8-4")
def test_the_quorum_is_lost_and_comes_back(cluster: LocalBroker, queue: Queue) -> None:
    """Two of three nodes are gone: nothing is confirmed, and calls end; everything continues when they are back."""
    with traffic(cluster.bootstrap_servers, queue) as running:
        cluster.kill(1)
        cluster.kill(2)
        connection = ConnectionFactory(cluster.bootstrap_servers, send_timeout=3_000).create_connection()
        with connection, pytest.raises(JMSException):
            send(connection, Queue(f"{queue.queue_name}-alone"), *("without a majority" for _ in range(3)))
        cluster.start()
    assert running.lost_and_doubled() == ([], [])


@pytest.mark.requirement("JMS-4.4.7-2", "JAK-commit-8")
def test_the_coordinator_is_killed_in_the_middle_of_a_commit(
    cluster: LocalBroker, queue: Queue, other_queue: Queue
) -> None:
    """Each node is killed once when a transaction is written and settled, and not yet committed: one coordinates it."""
    killed: list[int] = []
    victims = list(cluster.nodes)

    class Killing(Intercepted):
        def commit_transaction(self, *arguments: Any) -> None:
            if self.config["transactional.id"].endswith("-sessions") and victims and len(moved) % 2:
                killed.append(victims.pop())
                cluster.kill(killed[-1])
            self.inner.commit_transaction(*arguments)

    moved: list[str] = []
    names = [str(number) for number in range(2 * len(victims) + 2)]
    servers = cluster.bootstrap_servers
    with intercepted(servers, producer=Killing), apart(servers, send_timeout=60_000) as connection:
        send(connection, queue, *names)
        session = connection.create_session(Session.SESSION_TRANSACTED)
        consumer, producer = session.create_consumer(queue), session.create_producer(other_queue)
        while len(moved) < len(names):
            message = consumer.receive(3 * WAIT_MS)
            assert message is not None
            producer.send(session.create_text_message(text(message)))
            try:
                session.commit()
            except JMSException:
                assert killed, "nothing was killed yet"
            else:
                moved.append(text(message))
            cluster.start()
    assert killed == [3, 2, 1]
    assert [(record.value() or b"").decode() for record in stored_records(servers, other_queue.queue_name)] == names


@pytest.mark.requirement("JMS-4.3.8-4")
def test_a_full_disk(queue: Queue) -> None:
    """A broker that cannot write ends by itself; once there is room, it has all that was confirmed, and continues.

    The broker's files may grow to a megabyte more than the largest has: to Kafka, that is a disk that takes no more.
    """
    with LocalBroker() as broker, traffic(broker.bootstrap_servers, queue) as running:
        process = psutil.Process(broker.pid)
        process.rlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
        with apart(broker.bootstrap_servers, send_timeout=3_000) as connection, pytest.raises(JMSException):
            send(connection, Queue(f"{queue.queue_name}-large"), *("x" * 100_000 for _ in range(1_000)))
        assert broker.wait(FAULT_SECONDS)
        broker.start()
        running.flow()
        assert running.lost_and_doubled()[1] == []
    assert len(running.confirmed) > 3 * LEAST


@pytest.fixture(scope="module")
def proxy() -> Iterator[KafkaProxy]:
    with KafkaProxy() as proxy:
        yield proxy


@pytest.mark.requirement("JMS-4.4.7-2", "JMS-4.3.8-4")
@pytest.mark.parametrize("requests", [True, False], ids=["requests", "responses"])
def test_a_half_open_connection(proxy: KafkaProxy, queue: Queue, requests: bool) -> None:
    """Nothing passes in one direction, for one program, longer than its group waits for it; another one takes over."""
    servers = proxy.bootstrap_servers
    name = f"half-open-{requests}"
    with traffic(servers, queue, **{"client.id": name, "session.timeout.ms": 6_000}) as running:
        proxy.silence(name, requests=requests)
        before = running.moved
        with apart(servers, kafka={"session.timeout.ms": 6_000}) as other:
            send(other, queue, "from the other")
            taken = other.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(queue).receive(6 * WAIT_MS)
            assert taken is not None, "the silent program was not put out of its group"
        assert running.moved <= before + 1
        proxy.release()
    lost, doubled = running.lost_and_doubled()
    assert (lost, doubled) == ([], [])
