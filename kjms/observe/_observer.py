"""The interface of observers."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from kjms.observe._events import (
        Committed,
        DeadLettered,
        Outage,
        Rebalanced,
        Received,
        Recovered,
        Redelivered,
        RolledBack,
        Sending,
        Sent,
        Settled,
    )

__all__ = ["Header", "Observer"]

Header: TypeAlias = tuple[str, bytes]
"""A header of a Kafka record."""


class Observer:
    """Learns what the connections of a factory do; override the methods that you need.

    A method is called by the thread that does the work, several may be called at the same time, and locks of kjms may
    be held: it returns at once, waits for nothing and uses no connection. An exception that it raises is logged, once a
    minute at the most, and changes nothing else.
    """

    def sending(self, event: Sending) -> Iterable[Header] | None:
        """Return headers for the record of a message that is about to be sent; None: there are none.

        They replace headers of the record that have the same names. Consumers see them as String properties.
        """
        return None

    def sent(self, event: Sent) -> None:
        """Note the outcome of a send; in a transaction, after its commit."""

    def received(self, event: Received) -> None:
        """Note that a message is about to reach the program."""

    def redelivered(self, event: Redelivered) -> None:
        """Note that a message is about to reach the program again; called after `received`."""

    def processing(self, event: Received) -> AbstractContextManager[object] | None:
        """Return what a listener is called within; None: nothing.

        Its ``__exit__`` gets what the listener raised, and cannot suppress it.
        """
        return None

    def settled(self, event: Settled) -> None:
        """Note that messages are acknowledged, delivered again, or dead letters."""

    def dead_lettered(self, event: DeadLettered) -> None:
        """Note that a message moves to a dead-letter queue."""

    def committed(self, event: Committed) -> None:
        """Note that a session committed its transaction."""

    def rolled_back(self, event: RolledBack) -> None:
        """Note that the transaction of a session was rolled back."""

    def rebalanced(self, event: Rebalanced) -> None:
        """Note that partitions moved to this process, or away from it."""

    def outage(self, event: Outage) -> None:
        """Note that the cluster does not answer."""

    def recovered(self, event: Recovered) -> None:
        """Note that the cluster answers again."""
