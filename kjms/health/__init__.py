"""Health of a program that runs for long: an HTTP server for probes and metrics, its checks, and what asks it.

docs/deployment.md shows how supervisors use it. It loads neither Kafka nor a metrics library.
"""

from kjms.health._checks import Check, Heartbeat, Unhealthy, cluster, event_loop
from kjms.health._client import Answer, ask
from kjms.health._server import HealthServer, Metrics

__all__ = [
    "Answer",
    "Check",
    "HealthServer",
    "Heartbeat",
    "Metrics",
    "Unhealthy",
    "ask",
    "cluster",
    "event_loop",
]
