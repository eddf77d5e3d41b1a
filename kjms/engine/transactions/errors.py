"""How a Kafka transaction of the engine fails."""

from __future__ import annotations

from collections.abc import Sequence

from kjms.errors import JMSException

__all__ = ["AbortedError", "LostError", "OutgrownError", "UnknownError"]


class OutgrownError(JMSException):
    """More was settled, or dispatched, meanwhile, and the settlement does not fit: more messages have to overflow."""


class LostError(JMSException):
    """Messages that were to be settled are another consumer's now.

    Args:
        reason: Says which.
        deliveries: The messages.
    """

    def __init__(self, reason: str, deliveries: Sequence[object]) -> None:
        super().__init__(reason)
        self.deliveries = deliveries


class UnknownError(JMSException):
    """The outcome of a transaction is unknown: other processes have its partitions now."""


class AbortedError(Exception):
    """The transaction was aborted.

    Args:
        cause: Why.
        is_too_large: Whether a copy, or some of them together, were larger than their topic allows.
        is_passing: Whether the same work may succeed when tried again: the producer failed, or its group rebalanced.
    """

    def __init__(self, cause: JMSException, *, is_too_large: bool = False, is_passing: bool = False) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.is_too_large = is_too_large
        self.is_passing = is_passing
