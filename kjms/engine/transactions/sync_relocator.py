"""The engine's transactional producer for what sessions have in flight when a partition goes to another process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kjms.engine.transactions.transactional_producer import Move, Part, TransactionalProducer
from kjms.engine.tuning import DEFAULTS, Tuning

if TYPE_CHECKING:
    from kjms.engine.consumer.group_consumer import GroupConsumer

__all__ = ["SyncRelocator"]


class SyncRelocator(TransactionalProducer[None]):
    """Moves messages at once, in the thread that asks for it: in the middle of a rebalance there is no later."""

    def __init__(self, config: dict[str, object], transactional_id: str, tuning: Tuning = DEFAULTS) -> None:
        super().__init__(config, transactional_id, tuning)
        self._lock = threading.Lock()

    def move(self, reader: GroupConsumer, moves: Sequence[Move]) -> None:
        """Move messages that *reader* holds; the caller holds the client.

        Raises:
            AbortedError: None was moved.
            JMSException: None was moved, or what became of it cannot be known.
        """
        with self._lock:
            self._transact([Part([move.copy(0) for move in moves], reader, moves)])
