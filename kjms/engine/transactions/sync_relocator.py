"""Relocate messages in flight when their partition goes to another process: in the thread of the rebalance."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from kjms.engine.transactions.plan import Move, Settler, TransactionPart
from kjms.engine.transactions.transactional_producer import TransactionalProducer
from kjms.engine.tuning import DEFAULTS, Tuning

__all__ = ["SyncRelocator"]


class SyncRelocator(TransactionalProducer[None]):
    """Relocates messages in the calling thread, before a rebalance continues."""

    def __init__(self, config: Mapping[str, Any], transactional_id: str, tuning: Tuning = DEFAULTS) -> None:
        super().__init__(config, transactional_id, tuning)
        self._lock = threading.Lock()

    def move(self, settler: Settler[Any], moves: Sequence[Move[Any]]) -> None:
        """Relocate messages of *settler*; the caller holds its client.

        Raises:
            AbortedError: None was relocated.
            JMSException: None was relocated, or the outcome is unknown.
        """
        with self._lock:
            self._transact([TransactionPart(settler=settler, moves=moves)])
