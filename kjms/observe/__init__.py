"""Observe what connections do: one interface for metrics, traces and logs of your own.

An `Observer` is given to `kjms.ConnectionFactory` or `kjms.aio.ConnectionFactory`. The package brings two, which are
extras: `kjms.observe.prometheus` and `kjms.observe.otel`.
"""

from __future__ import annotations

from kjms.observe._events import (
    Committed,
    DeadLettered,
    Outage,
    Outcome,
    Rebalanced,
    Received,
    Recovered,
    Redelivered,
    RolledBack,
    Sending,
    Sent,
    Settled,
)
from kjms.observe._observer import Header, Observer

__all__ = [
    "Committed",
    "DeadLettered",
    "Header",
    "Observer",
    "Outage",
    "Outcome",
    "Rebalanced",
    "Received",
    "Recovered",
    "Redelivered",
    "RolledBack",
    "Sending",
    "Sent",
    "Settled",
]
