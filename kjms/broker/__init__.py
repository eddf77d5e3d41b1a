"""A Kafka at hand for development and tests: a child process, a container, or a cluster that runs already."""

from __future__ import annotations

from kjms.broker._find import Broker, find_broker
from kjms.broker._foreground import run_foreground
from kjms.broker._local import LocalBroker

__all__ = ["Broker", "LocalBroker", "find_broker", "run_foreground"]
