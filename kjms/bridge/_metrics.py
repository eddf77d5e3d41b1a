"""What a bridge has done, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import Metric

__all__ = ["BridgeMetrics"]


class BridgeMetrics:
    """A collector of prometheus_client: it reads the counters of one bridge when Prometheus asks.

    Args:
        name: The bridge's.
        progress: Returns how many messages were moved, dropped as repeats, and could not be moved.
        is_connected: Returns whether the other broker is there.
    """

    def __init__(
        self, name: str, progress: Callable[[], tuple[int, int, int]], is_connected: Callable[[], bool]
    ) -> None:
        self._name = name
        self._progress = progress
        self._is_connected = is_connected

    def collect(self) -> Iterator[Metric]:
        """Return the metrics; prometheus_client calls it."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        moved, repeats, left = self._progress()
        for family, value in (
            (CounterMetricFamily("kjms_bridge_moved_total", "Messages moved.", labels=["bridge"]), moved),
            (CounterMetricFamily("kjms_bridge_repeats_total", "Repeats dropped.", labels=["bridge"]), repeats),
            (CounterMetricFamily("kjms_bridge_left_total", "Messages that cannot be moved.", labels=["bridge"]), left),
            (
                GaugeMetricFamily("kjms_bridge_connected", "Whether the other broker is there.", labels=["bridge"]),
                self._is_connected(),
            ),
        ):
            family.add_metric([self._name], value)
            yield family

    def exposition(self) -> tuple[str, bytes]:
        """Return the content type and the text for Prometheus, with what is in prometheus_client's own registry."""
        from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest

        own = CollectorRegistry(auto_describe=False)
        own.register(self)
        return CONTENT_TYPE_LATEST, generate_latest(own) + generate_latest(REGISTRY)
