"""The figures of queues and subscriptions as pages and API show them. Pure."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from kjms.console._cluster import QUEUE, SUBSCRIPTION, key
from kjms.console._history import FIELDS

if TYPE_CHECKING:
    from kjms.console._cluster import Cluster

__all__ = ["overview", "points", "queue_shown", "subscription_shown"]

INTERNAL: Final = frozenset({"end"})


def points(cluster: Cluster, series: str) -> dict[str, list[tuple[float, float]]]:
    """Return the points of the last hour, by field."""
    now = time.time()
    return {field: cluster.history.points(series, field, now) for field in FIELDS}


def _shown(cluster: Cluster, found: dict[str, Any], series: str, *, with_points: bool) -> dict[str, Any]:
    rates = cluster.history.rates(series)
    shown = {name: value for name, value in found.items() if name not in INTERNAL}
    shown |= {"sent_rate": _rounded(rates.sent), "settled_rate": _rounded(rates.settled)}
    if with_points:
        shown["last_hour"] = {
            field: [(round(when), round(value, 3)) for when, value in each]
            for field, each in points(cluster, series).items()
        }
    return shown


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def queue_shown(cluster: Cluster, found: dict[str, Any], *, with_points: bool = False) -> dict[str, Any]:
    """Return the figures of a queue, with its rates."""
    return _shown(cluster, found, key(QUEUE, found["name"]), with_points=with_points)


def subscription_shown(cluster: Cluster, found: dict[str, Any], *, with_points: bool = False) -> dict[str, Any]:
    """Return the figures of a subscription."""
    series = key(SUBSCRIPTION, found["name"], found["client_id"])
    return _shown(cluster, found, series, with_points=with_points)


def overview(cluster: Cluster) -> dict[str, Any]:
    """Return the state of a cluster, and what it holds."""
    return {
        "reachable": cluster.away_since is None,
        "unreachable_since": None if cluster.away_since is None else round(cluster.away_since * 1000),
        "failure": cluster.failure or None,
        "counted_at": round(cluster.counted_at * 1000) or None,
        "is_exact": cluster.is_exact,
        "queues": [queue_shown(cluster, each) for each in cluster.queues or ()],
        "subscriptions": [subscription_shown(cluster, each) for each in cluster.subscriptions],
    }
