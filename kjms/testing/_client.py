"""What all clients of an in-memory Kafka have: a cluster that can wake them and tell them of errors."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from kjms.engine import CLIENT_ID, ProgramName
from kjms.engine.kafka import KafkaError, KafkaException
from kjms.testing._cluster import Cluster

__all__ = ["MemoryClient"]


class MemoryClient:
    """A client; its subclass adds it to the cluster when it is complete.

    Args:
        cluster: The cluster.
        config: librdkafka's settings.
    """

    def __init__(self, cluster: Cluster, config: Mapping[str, Any]) -> None:
        self._cluster = cluster
        self._condition = threading.Condition(cluster.lock)
        self.client_id = str(config.get("client.id", "rdkafka"))
        # Consumers in groups are named for program, host and process, where the program has not chosen a name.
        self.client = CLIENT_ID if ProgramName.read(self.client_id) is not None else self.client_id
        self.on_error: Callable[[KafkaError], None] | None = config.get("error_cb")
        self._errors: deque[KafkaError] = deque()

    # What the cluster calls, with the lock held.

    def wake(self) -> None:
        """Return from a poll: there is something to do."""
        self._condition.notify_all()

    def hear(self, error: KafkaError) -> None:
        """Pass *error* to the error callback, in the next poll."""
        self._errors.append(error)
        self._condition.notify_all()

    # What subclasses call, without it.

    def _tell(self) -> int:
        """Call the error callback with each error that was reported; return how many there were.

        Raises:
            KafkaException: An error is fatal: confluent-kafka raises it, and asks no callback.
        """
        told = 0
        while self._errors:
            error = self._errors.popleft()
            told += 1
            if error.fatal():
                raise KafkaException(error)
            if self.on_error is not None:
                self.on_error(error)
        return told
