"""What tests do to an in-memory Kafka: advance its clock, and have it fail."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import get_args

from kjms.destinations import Destination
from kjms.engine.kafka import KafkaError
from kjms.mapping.names import topic_for
from kjms.testing._cluster import Cluster
from kjms.testing._consumer import MemoryConsumer
from kjms.testing._faults import Fault, LateRequest, Operation, Refusal, Repeated, Right, lost
from kjms.testing._groups import Group, Member
from kjms.testing._wakeups import Client

__all__ = ["MemoryClock", "MemoryFaults"]


class MemoryClock:
    """The time of an in-memory Kafka, and of the programs of kjms that are connected to it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def time(self) -> int:
        """Return the milliseconds since 1970, UTC: real time, and what was added to it by `advance`."""
        return self._cluster.clock.milliseconds()

    def advance(self, time: int | timedelta) -> None:
        """Let *time* pass at once, here and for the programs of kjms that are connected.

        Messages expire and become due: delivery delays, redelivery delays, times to live. Transactions, the sessions of
        silent members and calls that wait for an answer time out. Records older than ``retention.ms`` are deleted, and
        so are the offsets of groups that have had no member for seven days. What kjms does by the clock within a
        process runs in real time, such as waits of `receive`, leases among programs, and pauses between attempts.

        Args:
            time: Milliseconds, or a timedelta; 0 or more.

        Raises:
            ValueError: *time* is negative.
        """
        seconds = time.total_seconds() if isinstance(time, timedelta) else time / 1000
        if seconds < 0:
            raise ValueError(f"advance takes 0 milliseconds or more, not {time}: time does not go back")
        with self._cluster.lock:
            self._cluster.advance(seconds)


class MemoryFaults:
    """What goes wrong with an in-memory Kafka; times of faults are counted in requests."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

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

    def time_out(
        self,
        operation: Operation,
        *,
        carried_out: bool = False,
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
            carried_out: Whether they are carried out all the same.
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

    def delay(self, operation: Repeated, *, client_id: str | None = None) -> LateRequest:
        """Have the connection lost with the next such request, so that the client repeats it, and has an answer.

        The first request is still under way. It takes effect when it arrives, in whatever transaction the producer has
        by then, as on a Kafka that is asked by librdkafka. Where another producer of its transactional id has begun,
        it is refused.

        Args:
            operation: Which request.
            client_id: Only that of the program with this ``client.id``.

        Returns:
            The request; its `arrive` lets it arrive.

        Raises:
            ValueError: There is no such operation, or the client does not repeat it.
        """
        if operation not in get_args(Repeated):
            raise ValueError(f"clients do not repeat {operation!r}; it is one of {', '.join(get_args(Repeated))}")
        with self._cluster.lock:
            late = LateRequest(operation, client_id, self._cluster.lock)
            self._cluster.faults.late.append(late)
        return late

    def lose_records(self, *, times: int = 1, topic: str | None = None, client_id: str | None = None) -> None:
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

    def lose_partitions(
        self, topic: str | Destination | None = None, *, group: str | None = None, client_id: str | None = None
    ) -> int:
        """Put members out of their groups, as a coordinator does that receives no heartbeats.

        They lose their partitions, and join again at once.

        Args:
            topic: Only members that have partitions of this Kafka topic, or of this destination's.
            group: Only members of this consumer group, such as ``kjms.queue.orders``.
            client_id: Only members of the program with this ``client.id``.

        Returns:
            How many members that were.
        """
        name = topic_for(topic, "", "") if isinstance(topic, Destination) else topic
        cluster = self._cluster
        with cluster.lock:
            found = [
                member
                for each, member in _memberships(cluster.clients)
                if group in {None, each.name}
                and client_id in {None, member.consumer.client}
                and (name is None or any(name == place[0] for place in member.owned))
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
