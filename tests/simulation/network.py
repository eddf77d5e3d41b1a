"""A MemoryKafka with a network: requests and answers take time, transactions end late, and leaders move.

Requests of a client take effect some time after their call, and their answers come some time after that; the lock of
the cluster is free meanwhile. The markers of a transaction are written partition by partition after its end was
answered, and its producer's next transaction begins after the last of them, as with Kafka's coordinators. While a
partition has no leader it takes no records and gives none. All chance is the run's.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from kjms.engine.kafka import AdminPort, ConsumerPort, KafkaException, KafkaMessage, ProducerPort, serve
from kjms.testing import MemoryKafka
from kjms.testing._admin import MemoryAdmin
from kjms.testing._cluster import Cluster
from kjms.testing._consumer import MemoryConsumer
from kjms.testing._faults import lost
from kjms.testing._groups import Group, Place
from kjms.testing._logs import Log
from kjms.testing._producer import MemoryProducer, Report, Waiting
from kjms.testing._transactions import Transaction, Transactions
from tests.simulation import threads
from tests.simulation.threads import Condition

BEHIND_MARKERS: Final = ("init_transactions", "send_offsets", "commit_transaction", "abort_transaction")


class LateTransactions(Transactions):
    """Writes the markers of a transaction some time after its end.

    Args:
        former: What it takes the place of.
        network: Draws the times.
    """

    def __init__(self, former: Transactions, network: Network) -> None:
        super().__init__(former._clock, former._changed)
        self._network = network
        self._numbers = itertools.count()
        self._markers: list[tuple[float, int, Transaction, Callable[[], object]]] = []

    def ending_until(self, transaction: Transaction | None) -> float:
        """Return when the last marker of *transaction* is written; 0: all are."""
        return max((at for at, _, each, _ in self._markers if each is transaction), default=0.0)

    def due(self) -> float:
        return min(super().due(), min((at for at, *_ in self._markers), default=float("inf")))

    def end(self, transaction: Transaction, *, commit: bool) -> None:
        now, producer = self._clock.monotonic(), transaction.producer
        self._finish(transaction)
        touched: list[Log | Group] = [*transaction.logs, *transaction.groups]
        for each in touched:

            def write(each: Log | Group = each) -> None:
                if isinstance(each, Log):
                    each.finish(producer, self._clock.milliseconds(), commit=commit)
                else:
                    each.finish(producer, commit=commit)

            at = now + self._network.marker_seconds()
            self._markers.append((at, next(self._numbers), transaction, write))
        self._markers.sort(key=lambda marker: marker[:2])
        transaction.logs.clear()
        transaction.groups.clear()
        transaction.begun = None
        self._open.pop(transaction, None)
        self._network.cluster.wake_all()  # a thread that waits for a time learns of an earlier one

    def begin(self, name: str, timeout: float) -> Transaction:
        transaction = super().begin(name, timeout)
        self._finish(transaction)  # a producer waits for that before its first request is answered
        return transaction

    def _finish(self, transaction: Transaction) -> None:
        for marker in [each for each in self._markers if each[2] is transaction]:
            self._markers.remove(marker)
            marker[3]()

    def expire(self, now: float) -> None:
        while self._markers and self._markers[0][0] <= now:
            self._markers.pop(0)[3]()
            self._changed.notify_all()
        super().expire(now)


class SlowProducer(MemoryProducer):
    """A producer whose records and reports are under way for a while."""

    def __init__(self, network: Network, config: Mapping[str, Any]) -> None:
        self._network = network
        self._late: deque[tuple[float, Report]] = deque()  # reports that are on their way
        super().__init__(network.cluster, config)
        self._settings = dataclasses.replace(self._settings, linger=self._settings.linger + network.seconds())

    def _drain(self, *, is_flushing: bool = False) -> None:
        network, now, before = self._network, self._cluster.clock.monotonic(), len(self._reports)
        ending = network.transactions.ending_until(self._transaction)
        kept: list[Waiting] = []
        free: deque[Waiting] = deque()
        for waiting in self._waiting:
            ready = max(network.moving_until(waiting.place), ending)
            if ready > now or any(each.place == waiting.place for each in kept):
                kept.append(waiting._replace(ready=max(ready, waiting.ready)))
            else:
                free.append(waiting)
        self._waiting = free
        super()._drain(is_flushing=is_flushing)
        self._waiting = deque([*kept, *self._waiting])
        fresh = [self._reports.pop() for _ in range(len(self._reports) - before)]
        for report in reversed(fresh):
            at = max(now + network.seconds(), self._late[-1][0] if self._late else 0.0)
            self._late.append((at, report))
        while self._late and self._late[0][0] <= now:
            self._reports.append(self._late.popleft()[1])
        wakeups = self._cluster.wakeups
        times = [each.ready for each in kept[:1]] + [at for at, _ in itertools.islice(self._late, 1)]
        if times:
            wakeups.linger(self, min(*times, wakeups._lingering.get(self, float("inf"))))

    def __len__(self) -> int:
        return super().__len__() + len(self._late)


class SlowConsumer(MemoryConsumer):
    """A consumer whose fetched records are under way for a while."""

    def __init__(self, network: Network, config: Mapping[str, Any]) -> None:
        super().__init__(network.cluster, config)
        self._network = network
        fetch = self._readings._fetch

        def later(reading: Any, found: list[KafkaMessage], most: int) -> None:
            if network.moving_until(reading.place) <= network.cluster.clock.monotonic():
                fetch(reading, found, most)

        self._readings._fetch = later  # type: ignore[method-assign]

    def poll(self, timeout: float) -> KafkaMessage | None:
        found = super().poll(timeout)
        if found is not None and self._network.latency:
            threads.sleep(self._network.seconds())
        return found


class Network:
    """What lies between the clients and *cluster*.

    Args:
        cluster: The brokers.
        latency: The longest time of a request, or of an answer, in seconds.
        markers: The longest time until a marker of a transaction is written.
    """

    def __init__(self, cluster: Cluster, latency: float, markers: float) -> None:
        self.cluster, self.latency, self._markers = cluster, latency, markers
        self.transactions = LateTransactions(cluster.transactions, self)
        cluster.transactions = self.transactions
        self._request = cluster.request
        cluster.request = self.request  # type: ignore[method-assign]
        self._asleep = Condition(cluster.lock)  # type: ignore[arg-type]
        self._moving: dict[Place, float] = {}
        self.clients = _Clients(self)

    def seconds(self) -> float:
        """Return how long the next request or answer takes: most are quick."""
        return self.latency * threads.sched.chance.random() ** 3

    def marker_seconds(self) -> float:
        """Return how long the next marker takes."""
        return self._markers * threads.sched.chance.random() ** 2

    def move(self, topic: str, seconds: float) -> None:
        """Let the partitions of *topic* have no leader for so long."""
        with self.cluster.lock:
            until = self.cluster.clock.monotonic() + seconds
            for number in range(self.cluster.partitions(topic)):
                self._moving[topic, number] = until

    def moved(self) -> None:
        """Have clients look at partitions that have a leader again."""
        with self.cluster.lock:
            self.cluster.wake_all()

    def moving_until(self, place: Place) -> float:
        """Return when *place* has a leader again; 0: it has one."""
        return self._moving.get(place, 0.0)

    @contextmanager
    def request(self, client: Any, operation: Any, *, until: float | None = None, **about: str) -> Iterator[None]:
        """Be `Cluster.request`, with time between the call and its effect, and between that and its answer."""
        cluster = self.cluster
        deadline = cluster.clock.monotonic() + 60.0 if until is None else until
        self._wait(self.seconds())
        with cluster.lock:
            while (at := self._free_at(client, operation, about)) > cluster.clock.monotonic():
                if not cluster.wait(cluster.changed, min(at, deadline)) and at > deadline:
                    raise KafkaException(lost(operation))
        try:
            with self._request(client, operation, until=until, **about):
                yield
        finally:
            self._wait(self.seconds())

    def _free_at(self, client: Any, operation: str, about: Mapping[str, str]) -> float:
        """Return when the request can be carried out: a leader is there, or a transaction has ended."""
        ending = self.transactions.ending_until(client._transaction) if operation in BEHIND_MARKERS else 0.0
        topic = about.get("topic", "") if operation == "list_offsets" else ""
        return max([ending, *(at for place, at in self._moving.items() if place[0] == topic)])

    def _wait(self, seconds: float) -> None:
        """Wait without the lock, also where the caller holds it."""
        if seconds > 0:
            with self.cluster.lock:
                self._asleep.wait(seconds)


class _Clients:
    """Makes the clients of a cluster behind *network*."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def consumer(self, config: Mapping[str, Any]) -> ConsumerPort:
        return SlowConsumer(self._network, config)

    def producer(self, config: Mapping[str, Any]) -> ProducerPort:
        return SlowProducer(self._network, config)

    def admin(self, config: Mapping[str, Any]) -> AdminPort:
        return MemoryAdmin(self._network.cluster, config)

    def wall_clock(self) -> float:
        """Return the time of day by the clock of the calling thread's process."""
        return self._network.cluster.clock.time() + threads.ahead()


def networked(kafka: MemoryKafka, latency: float, markers: float) -> Network:
    """Put a network before *kafka*, which has no clients yet."""
    network = Network(kafka._cluster, latency, markers)
    serve(kafka.bootstrap_servers, network.clients)
    return network
