"""Which messages of one partition are settled, and from where Kafka would deliver again: pure, no clock, no I/O."""

from __future__ import annotations

from collections import deque

__all__ = ["PartitionSettlement"]


class PartitionSettlement:
    """The settlement of one partition for one queue or subscription.

    Kafka remembers one number per group and partition: the *base*, before which everything is settled. Messages are
    settled in any order; the base follows when the oldest of them is. Offsets have holes (transaction markers,
    compaction), so only offsets that were really read are counted.

    Args:
        base: The offset from which Kafka delivers; -1 while it is not known.

    Attributes:
        committed: The base that Kafka knows.
        position: The offset after the last message that was read.

    >>> partition = PartitionSettlement(base=7)
    >>> for offset in (7, 8, 10): partition.read(offset)
    >>> partition.settle(8); partition.base
    7
    >>> partition.settle(7); partition.base
    10
    >>> partition.settle(10); partition.base
    11
    """

    __slots__ = ("_done", "_open", "base", "committed", "position")

    def __init__(self, base: int) -> None:
        self.base = base
        self.committed = base
        self.position = base
        self._open: deque[int] = deque()
        self._done: set[int] = set()

    @property
    def is_dirty(self) -> bool:
        """Whether the base has moved since it was committed last."""
        return self.base != self.committed

    @property
    def unsettled(self) -> int:
        """How many messages were read and are not settled."""
        return len(self._open) - len(self._done)

    def read(self, offset: int) -> None:
        """Note that the message at *offset* was read; offsets come in rising order."""
        if not self._open:
            self.base = offset
            if self.committed < 0:
                self.committed = offset  # nothing is settled yet, so there is nothing to tell Kafka
        self._open.append(offset)
        self.position = offset + 1

    def settle(self, offset: int) -> None:
        """Settle the message at *offset*, which was read before; settling it again changes nothing."""
        if not self._open or offset < self._open[0] or offset in self._done:
            return
        if offset != self._open[0]:
            self._done.add(offset)
            return
        self._open.popleft()
        while self._open and self._open[0] in self._done:
            self._done.remove(self._open.popleft())
        self.base = self._open[0] if self._open else self.position
