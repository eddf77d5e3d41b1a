"""An in-memory Kafka for tests of programs that use kjms."""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, get_args

from kjms.engine.kafka import (
    AdminPort,
    ConsumerPort,
    KafkaError,
    KafkaException,
    ProducerPort,
    inherited,
    serve,
    serve_no_more,
)
from kjms.testing._admin import MemoryAdmin
from kjms.testing._cluster import Cluster
from kjms.testing._consumer import MemoryConsumer
from kjms.testing._faults import Fault, Operation, Refusal, Right, lost
from kjms.testing._groups import Group, Member
from kjms.testing._producer import MemoryProducer
from kjms.testing._wakeups import Client

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["MemoryKafka"]

_numbers: Final = itertools.count(1)
_clusters: weakref.WeakSet[Cluster] = weakref.WeakSet()


class _Clients:
    """Makes the clients of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def consumer(self, config: Mapping[str, Any]) -> ConsumerPort:
        return MemoryConsumer(self._cluster, config)

    def producer(self, config: Mapping[str, Any]) -> ProducerPort:
        return MemoryProducer(self._cluster, config)

    def admin(self, config: Mapping[str, Any]) -> AdminPort:
        return MemoryAdmin(self._cluster, config)

    def wall_clock(self) -> float:
        return self._cluster.clock.time()


class MemoryKafka:
    """A Kafka in the memory of this process: kjms works with it as with any other, and needs no Java.

    Attributes:
        bootstrap_servers: Its address, for `kjms.ConnectionFactory`; it means something in this process only.
    """

    def __init__(self) -> None:
        self.bootstrap_servers = f"memory-{next(_numbers)}.process-{os.getpid()}.invalid:9092"
        self._cluster = Cluster(self.bootstrap_servers)
        _clusters.add(self._cluster)
        serve(self.bootstrap_servers, _Clients(self._cluster))

    def __repr__(self) -> str:
        with self._cluster.lock:
            state = ", closed" if self._cluster.closed is not None else ""
            topics, groups = len(self._cluster.topics), len(self._cluster.groups)
        return f"<MemoryKafka {self.bootstrap_servers}: {topics} topics, {groups} groups{state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it, with all that it holds; a second time does nothing."""

        def closed(doing: str) -> Exception:
            text = f"{doing}: the MemoryKafka at {self.bootstrap_servers} is closed"
            error: Exception = KafkaException(KafkaError(KafkaError._DESTROY, text))
            return error

        serve_no_more(self.bootstrap_servers)
        with self._cluster.lock:
            if self._cluster.closed is None:
                self._cluster.closed = closed
                self._cluster.wake_all()

    # Time.

    def time(self) -> float:
        """Return the time here, in seconds since 1970: real time, and what was added to it by `advance`."""
        return self._cluster.clock.time()

    def advance(self, seconds: float) -> None:
        """Let *seconds* pass at once, here and for the programs of kjms that are connected.

        Messages expire and become due: delivery delays, redelivery delays, times to live. Transactions, the sessions of
        silent members and calls that wait for an answer time out. Records older than ``retention.ms`` are deleted, and
        so are the offsets of groups that have had no member for seven days. What kjms does by the clock within a
        process runs in real time, such as waits of `receive`, leases among programs, and pauses between attempts.

        Args:
            seconds: How many; 0 or more.

        Raises:
            ValueError: *seconds* is negative.
        """
        if seconds < 0:
            raise ValueError(f"seconds is 0 or more, not {seconds}: time does not go back")
        with self._cluster.lock:
            self._cluster.advance(seconds)

    # Faults.

    @contextmanager
    def outage(self, client_id: str | None = None) -> Iterator[None]:
        """Have the brokers away inside of the ``with`` block: clients wait, time out, and look for them.

        Members of groups lose their partitions when their session time-out is over, as on a real Kafka.

        Args:
            client_id: The ``client.id`` of the program that cannot reach them; None: none can.
        """
        cluster, faults = self._cluster, self._cluster.faults
        with cluster.lock:
            faults.away[client_id] = faults.away.get(client_id, 0) + 1
            away = [client for client in cluster.clients if faults.is_away(client.client)]
            for client in away:
                client.hear(cluster.down())
            cluster.silence(_memberships(away))
            cluster.wake_all()
        try:
            yield
        finally:
            with cluster.lock:
                faults.away[client_id] -= 1
                if not faults.away[client_id]:
                    del faults.away[client_id]
                cluster.unsilence()
                cluster.wake_all()

    def fail(
        self,
        operation: Operation,
        error: int | KafkaError,
        *,
        times: int = 1,
        topic: str | None = None,
        group: str | None = None,
        client_id: str | None = None,
    ) -> None:
        """Have the next requests fail, with nothing carried out.

        Args:
            operation: Which requests.
            error: What the client gets: a code of `confluent_kafka.KafkaError`, or an error with its flags (``fatal``,
                ``retriable``, ``txn_requires_abort``).
            times: How many of them.
            topic: Only those about this Kafka topic.
            group: Only those about this consumer group.
            client_id: Only those of the program with this ``client.id``.

        Raises:
            ValueError: There is no such operation, or *times* is less than 1.
        """
        found = error if isinstance(error, KafkaError) else KafkaError(error)
        self._add(Fault(operation, found, times, False, topic, group, client_id))

    def lose_answer(
        self,
        operation: Operation,
        *,
        carried_out: bool = True,
        fatal: bool = False,
        times: int = 1,
        topic: str | None = None,
        group: str | None = None,
        client_id: str | None = None,
    ) -> None:
        """Have the next requests time out, so that the client does not know whether they were carried out.

        As with librdkafka, the end of a transaction that timed out can be called again: it continues where it was.

        Args:
            operation: Which requests.
            carried_out: Whether they are carried out.
            fatal: Of a producer's transactions: whether it comes to its end with that, fenced off, as it is when the
                coordinator gives it up meanwhile. Another one must then find out the outcome of the transaction.
            times: How many of them.
            topic: Only those about this Kafka topic.
            group: Only those about this consumer group.
            client_id: Only those of the program with this ``client.id``.

        Raises:
            ValueError: There is no such operation, or *times* is less than 1.
        """
        error = lost(operation)
        if fatal:
            error = KafkaError(KafkaError._FENCED, f"the answer to {operation} was lost", fatal=True)
        self._add(Fault(operation, error, times, carried_out, topic, group, client_id))

    def lose_record(self, *, times: int = 1, topic: str | None = None, client_id: str | None = None) -> None:
        """Have the next records confirmed without an offset, and not stored.

        librdkafka does so if a broker refuses a producer's first records of a partition for a passing reason, and takes
        later ones that were sent at the same time.

        Args:
            times: How many of them.
            topic: Only those for this Kafka topic.
            client_id: Only those of the program with this ``client.id``.

        Raises:
            ValueError: *times* is less than 1.
        """
        self._add(Fault("produce", lost("produce"), times, False, topic, None, client_id, is_confirmed=True))

    def _add(self, fault: Fault) -> None:
        if fault.operation not in get_args(Operation):
            raise ValueError(
                f"there is no operation {fault.operation!r}; it is one of {', '.join(get_args(Operation))}"
            )
        if fault.times < 1:
            raise ValueError(f"times is 1 or more, not {fault.times}")
        with self._cluster.lock:
            self._cluster.faults.faults.append(fault)
            self._cluster.wake_all()

    @contextmanager
    def refuse(
        self,
        right: Right,
        *,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
    ) -> Iterator[None]:
        """Withhold a right inside of the ``with`` block, as a missing ACL does.

        Args:
            right: Kafka's name for it: ``"Read"``, ``"Write"``, ``"Create"``, ...
            topic: Of this Kafka topic.
            group: Of this consumer group; ``Read`` is what members need.
            transactional_id: Of this transactional id; ``Write`` is what producers need.

        Raises:
            ValueError: There is no such right, or not one of topic, group and transactional id is given.
        """
        if right not in get_args(Right):
            raise ValueError(f"there is no right {right!r}; it is one of {', '.join(get_args(Right))}")
        if [topic, group, transactional_id].count(None) != 2:
            raise ValueError("refuse takes one of topic, group and transactional_id")
        cluster = self._cluster
        refusal = Refusal(right, topic, group, transactional_id)
        with cluster.lock:
            cluster.faults.refusals.append(refusal)
            cluster.wake_all()
        try:
            yield
        finally:
            with cluster.lock:
                cluster.faults.refusals.remove(refusal)
                cluster.wake_all()

    def expel(self, group: str | None = None, *, client_id: str | None = None) -> int:
        """Put members out of their groups, as a coordinator does that receives no heartbeats.

        They lose their partitions, and join again at once.

        Args:
            group: The consumer group, such as ``kjms.queue.orders``; None: every group.
            client_id: The ``client.id`` of the program whose members are meant; None: every program's.

        Returns:
            How many members that were.
        """
        cluster = self._cluster
        with cluster.lock:
            found = [
                member
                for each, member in _memberships(cluster.clients)
                if group in {None, each.name} and client_id in {None, member.consumer.client}
            ]
            for member in found:
                member.consumer.lose()
        return len(found)

    def kill(self, client_id: str) -> None:
        """End the program with this ``client.id``, as ``kill -9`` does: brokers receive nothing more from it.

        Its transactions stay open until they time out or are fenced off, and its members keep their partitions until
        their session time-out is over. Its calls, and those of clients that it makes later, fail.
        """
        cluster = self._cluster
        with cluster.lock:
            killed = [client for client in cluster.clients if client.client == client_id]
            cluster.silence(_memberships(killed))
            cluster.faults.killed.add(client_id)
            cluster.wake_all()


def _memberships(clients: Iterable[Client]) -> list[tuple[Group, Member]]:
    consumers = (client for client in list(clients) if isinstance(client, MemoryConsumer))
    return [membership for consumer in consumers if (membership := consumer.membership) is not None]


def _disown() -> None:
    for cluster in _clusters:
        cluster.closed = inherited
        cluster.lock = threading.RLock()  # a thread that is not there may have held the other one


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_disown)
