"""The outcomes that a client gives messages, gathered so that a session gets many of them at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kjms.engine import Delivery
    from kjms.gateway._source import LinkSource, Outcome
    from kjms.gateway._worker import Worker

__all__ = ["OutcomeQueue"]


class OutcomeQueue:
    """Outcomes on their way to the sessions of one connection; used in the event loop's thread."""

    def __init__(self) -> None:
        self._entries: list[tuple[tuple[Any, ...], list[Delivery]]] = []

    def add(
        self,
        worker: Worker,
        source: LinkSource,
        outcome: Outcome,
        transaction: bytes | None,
        cause: str,
        delivery: Delivery,
        then: Callable[[Exception | None], None] | None,
    ) -> None:
        """Gather an outcome; the next `flush` passes it on."""
        key = (worker, source, outcome, transaction, cause, then)
        if self._entries and then is None and self._entries[-1][0] == key:
            self._entries[-1][1].append(delivery)
        else:
            self._entries.append((key, [delivery]))

    def flush(self) -> None:
        """Pass on what was gathered."""
        entries, self._entries = self._entries, []
        for (worker, source, outcome, transaction, cause, then), deliveries in entries:
            worker.settle(source, outcome, deliveries, transaction, cause, then)
