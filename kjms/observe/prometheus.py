"""Metrics for Prometheus, by prometheus_client: ``pip install 'kjms[prometheus]'``.

docs/metrics.md lists them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from kjms._require import required
from kjms.checking import checked
from kjms.destinations import Destination, TemporaryQueue, TemporaryTopic
from kjms.observe._observer import Observer

with required("kjms.observe.prometheus", "prometheus"):
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

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
        Sent,
        Settled,
    )

__all__ = ["PrometheusObserver"]

TEMPORARY: Final = "temporary"
OTHER: Final = "other"
MOST_DESTINATIONS: Final = 1_000  # a label's value costs some kilobytes, here and in Prometheus

# Seconds. A send takes 0.4 ms on one machine, and the send timeout is 10 s.
SEND_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
# From a message that is handed on at once to one that waits for a weekend.
QUEUE_BUCKETS: Final = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    5.0,
    15.0,
    60.0,
    300.0,
    1_800.0,
    7_200.0,
    86_400.0,
)
# From a row in memory to a call of a slow service.
PROCESSING_BUCKETS: Final = (0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0)


class _Metrics:
    """The metrics in one registry, which has each name once."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter, histogram = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        here, error = ["destination"], ["destination", "error"]
        self.sent = counter("kjms_messages_sent", "Messages that the broker has confirmed.", here)
        self.send_errors = counter("kjms_send_errors", "Sends that failed.", error)
        self.send_seconds = histogram(
            "kjms_send_duration_seconds",
            "Time from the call of send to the broker's confirmation, or to the end of the commit.",
            here,
            buckets=SEND_BUCKETS,
        )
        self.received = counter("kjms_messages_received", "Messages that reached the program.", here)
        self.redelivered = counter("kjms_messages_redelivered", "Messages that reached the program again.", here)
        self.queue_seconds = histogram(
            "kjms_queue_time_seconds",
            "Time from a message's sending, or from its delivery time, to its delivery.",
            here,
            buckets=QUEUE_BUCKETS,
        )
        self.settled = counter("kjms_messages_settled", "Messages by what became of them.", ["destination", "outcome"])
        self.processing_seconds = histogram(
            "kjms_processing_duration_seconds",
            "Time from a message's delivery to its settlement.",
            ["destination", "outcome"],
            buckets=PROCESSING_BUCKETS,
        )
        self.dead_letters = counter("kjms_dead_letters", "Messages that moved to a dead-letter queue.", here)
        self.transactions = counter("kjms_transactions", "Transactions by their outcome.", ["outcome"])
        self.commit_seconds = histogram(
            "kjms_commit_duration_seconds", "Time that a commit took.", buckets=SEND_BUCKETS
        )
        self.rebalances = counter(
            "kjms_rebalances", "Partitions that moved to this process, or away from it.", ["destination", "change"]
        )
        self.rebalance_seconds = histogram(
            "kjms_rebalance_duration_seconds", "Time that a rebalance took this process.", here, buckets=SEND_BUCKETS
        )
        self.outages = _Outages(registry)


class _Outages:
    """The metrics of clusters that do not answer."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.count = Counter("kjms_outages", "Outages of the cluster.", ["cluster"], registry=registry)
        self.seconds = Counter("kjms_outage_seconds", "Time of outages that are over.", ["cluster"], registry=registry)
        self.is_out = Gauge(
            "kjms_outage",
            "Whether the cluster does not answer now.",
            ["cluster"],
            registry=registry,
            multiprocess_mode="mostrecent",  # a process that was killed in an outage is not to keep it going
        )


class _OfDestination:
    """The counters of one destination: looking them up by labels for each message costs more than counting."""

    def __init__(self, metrics: _Metrics, label: str) -> None:
        self.sent = metrics.sent.labels(label)
        self.send_seconds = metrics.send_seconds.labels(label)
        self.send_error = partial(metrics.send_errors.labels, label)
        self.received = metrics.received.labels(label)
        self.redelivered = metrics.redelivered.labels(label)
        self.queue_seconds = metrics.queue_seconds.labels(label)
        self.dead_letters = metrics.dead_letters.labels(label)
        self.rebalance = partial(metrics.rebalances.labels, label)
        self.rebalance_seconds = metrics.rebalance_seconds.labels(label)
        self._metrics = metrics
        self._label = label
        self._outcomes: dict[str, tuple[Counter, Histogram]] = {}

    def outcome(self, outcome: str) -> tuple[Counter, Histogram]:
        """Return what counts the messages of *outcome*, and their times."""
        found = self._outcomes.get(outcome)
        if found is None:
            by = (self._label, outcome)
            found = self._outcomes[outcome] = (
                self._metrics.settled.labels(*by),
                self._metrics.processing_seconds.labels(*by),
            )
        return found


_of_registry: WeakKeyDictionary[CollectorRegistry, _Metrics] = WeakKeyDictionary()
_lock = threading.Lock()


class PrometheusObserver(Observer):
    """Counts in metrics of prometheus_client; docs/metrics.md lists them.

    Observers of the same registry share its metrics. Temporary destinations have one label for all of them, and so have
    destinations beyond the first *max_destinations*.

    Args:
        registry: Where the metrics are; None: prometheus_client's own.
        label: Returns the value of the label ``destination``, such as one for a family of queues; None:
            ``queue://orders``.
        max_destinations: How many values the label may have.

    Raises:
        ImportError: prometheus_client is not installed.
        ValueError: *max_destinations* is less than 1, or other metrics of *registry* have these names.
    """

    @checked
    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        *,
        label: Callable[[Destination], str] | None = None,
        max_destinations: int = MOST_DESTINATIONS,
    ) -> None:
        if max_destinations < 1:
            raise ValueError(f"max_destinations is at least 1, not {max_destinations}")
        self._arguments: dict[str, Any] = {"label": label, "max_destinations": max_destinations}
        self._registry = registry
        self._label = label or str
        self._most = max_destinations
        chosen = REGISTRY if registry is None else registry
        with _lock:
            self._metrics = _of_registry.get(chosen) or _Metrics(chosen)
            _of_registry[chosen] = self._metrics
        self._by_label: dict[str, _OfDestination] = {}
        self._by_destination: dict[Destination, _OfDestination] = {}
        self._temporary: _OfDestination | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Let a process that multiprocessing spawns have its own, in prometheus_client's registry of that process."""
        if self._registry is not None:
            raise TypeError("a PrometheusObserver of a registry of its own cannot be pickled; leave out the registry")
        return partial(PrometheusObserver, **self._arguments), ()

    def _of(self, destination: Destination) -> _OfDestination:
        if isinstance(destination, TemporaryQueue | TemporaryTopic):  # not kept: that would keep the destination
            if self._temporary is None:
                self._temporary = _OfDestination(self._metrics, TEMPORARY)
            return self._temporary
        found = self._by_destination.get(destination)
        if found is None:
            with _lock:
                found = self._new(destination)
        return found

    def _new(self, destination: Destination) -> _OfDestination:
        label = self._label(destination)
        if label not in self._by_label and len(self._by_label) >= self._most:
            label = OTHER
        found = self._by_label.get(label)
        if found is None:
            found = self._by_label[label] = _OfDestination(self._metrics, label)
        if len(self._by_destination) < 16 * self._most:  # a program may have more names than labels
            self._by_destination[destination] = found
        return found

    def sent(self, event: Sent) -> None:
        """Count a send, and its time."""
        of = self._of(event.sending.destination)
        if event.error is not None:
            of.send_error(type(event.error).__name__).inc()
            return
        of.sent.inc()
        of.send_seconds.observe(event.duration_ms / 1000)

    def received(self, event: Received) -> None:
        """Count a message, and the time that it waited."""
        of = self._of(event.destination)
        of.received.inc()
        if event.time_in_queue_ms is not None:
            of.queue_seconds.observe(event.time_in_queue_ms / 1000)

    def redelivered(self, event: Redelivered) -> None:
        """Count a message that came again."""
        self._of(event.received.destination).redelivered.inc()

    def settled(self, event: Settled) -> None:
        """Count messages by what became of them, and the time that each took."""
        count, seconds = self._of(event.destination).outcome(event.outcome)
        count.inc(event.count)
        for milliseconds in event.processing_ms:
            seconds.observe(milliseconds / 1000)

    def dead_lettered(self, event: DeadLettered) -> None:
        """Count a dead letter, by where it came from."""
        self._of(event.destination).dead_letters.inc()

    def committed(self, event: Committed) -> None:
        """Count a commit, and its time."""
        self._metrics.transactions.labels("committed").inc()
        self._metrics.commit_seconds.observe(event.duration_ms / 1000)

    def rolled_back(self, event: RolledBack) -> None:
        """Count a rollback; one that the program did not ask for has failed."""
        self._metrics.transactions.labels("rolled_back" if event.error is None else "failed").inc()

    def rebalanced(self, event: Rebalanced) -> None:
        """Count partitions that moved, and the time that it took."""
        of = self._of(event.destination)
        of.rebalance(event.change).inc(len(event.partitions))
        of.rebalance_seconds.observe(event.duration_ms / 1000)

    def outage(self, event: Outage) -> None:
        """Note that the cluster does not answer."""
        self._metrics.outages.count.labels(event.bootstrap_servers).inc()
        self._metrics.outages.is_out.labels(event.bootstrap_servers).set(1)

    def recovered(self, event: Recovered) -> None:
        """Note that it answers again, and for how long it did not."""
        self._metrics.outages.is_out.labels(event.bootstrap_servers).set(0)
        self._metrics.outages.seconds.labels(event.bootstrap_servers).inc(event.duration_ms / 1000)
