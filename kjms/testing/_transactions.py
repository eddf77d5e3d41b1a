"""Transactional ids of an in-memory Kafka: producer ids, epochs that fence, and what a transaction has touched."""

from __future__ import annotations

from dataclasses import dataclass, field

from kjms.testing._groups import Group
from kjms.testing._logs import Log

__all__ = ["Transaction"]


@dataclass(eq=False)
class Transaction:
    """What the coordinator knows of a transactional id.

    Attributes:
        id: The transactional id.
        producer: The producer id, one for all producers of that transactional id.
        epoch: Grows with each of them; only the last may write.
        timeout: Seconds after which an open transaction is aborted.
        begun: When the open transaction wrote first, by the cluster's monotonic clock; None: none is open.
        logs: The partitions that it wrote to.
        groups: The groups that it commits offsets of.
    """

    id: str
    producer: int
    epoch: int = -1
    timeout: float = 60.0
    begun: float | None = None
    logs: dict[Log, None] = field(default_factory=dict)
    groups: dict[Group, None] = field(default_factory=dict)

    @property
    def deadline(self) -> float:
        """When it is aborted; infinite where none is open."""
        return float("inf") if self.begun is None else self.begun + self.timeout

    def touch(self, now: float) -> None:
        """Note that the open transaction does something: with the first of it, it begins."""
        if self.begun is None:
            self.begun = now

    def end(self, timestamp: int, *, commit: bool) -> None:
        """End the open transaction, if there is one."""
        for log in self.logs:
            log.finish(self.producer, timestamp, commit=commit)
        for group in self.groups:
            group.finish(self.producer, commit=commit)
        self.logs.clear()
        self.groups.clear()
        self.begun = None
