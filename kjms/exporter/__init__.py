"""Prometheus metrics of a whole cluster: what its queues and subscriptions hold, without consuming anything.

It needs ``kjms[prometheus]``. ``kjms exporter`` serves the metrics over HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kjms._lazy import loader

if TYPE_CHECKING:
    from kjms.exporter._collector import ClusterCollector

_MODULES = {"ClusterCollector": "kjms.exporter._collector"}

__all__ = ["ClusterCollector"]


__getattr__ = loader(__name__, _MODULES)
