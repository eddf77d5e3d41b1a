"""An in-memory Kafka for tests of programs that use kjms."""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from kjms.checking import checked
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
from kjms.testing._controls import MemoryClock, MemoryFaults
from kjms.testing._producer import MemoryProducer

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

    Args:
        nodes: How many brokers it has, which is how many replicas a topic may have.

    Attributes:
        bootstrap_servers: Its address, for `kjms.ConnectionFactory`; it means something in this process only.
        clock: Its time, which tests advance.
        faults: What goes wrong.

    Raises:
        ValueError: *nodes* is less than 1.
    """

    @checked
    def __init__(self, nodes: int = 1) -> None:
        if nodes < 1:
            raise ValueError(f"a MemoryKafka has 1 node or more, not {nodes}")
        self.bootstrap_servers = f"memory-{next(_numbers)}.process-{os.getpid()}.invalid:9092"
        self._cluster = Cluster(self.bootstrap_servers, nodes)
        self.clock = MemoryClock(self._cluster)
        self.faults = MemoryFaults(self._cluster)
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


def _disown() -> None:
    for cluster in _clusters:
        cluster.closed = inherited
        cluster.lock = threading.RLock()  # a thread that is not there may have held the other one


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_disown)
