"""Collect the figures of a cluster at an interval, and give the last ones to Prometheus."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING, Final

from kjms._require import required
from kjms.admin import QueueFigures, SubscriptionFigures
from kjms.checking import checked
from kjms.child_process import Calls, ChildProcess, ThisProcess
from kjms.client.connection_factory import ConnectionFactory
from kjms.errors import JMSException
from kjms.exporter._sources import Figures, Request, Source
from kjms.options import LONGEST_WAIT, milliseconds

with required("kjms.exporter", "prometheus"):
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

    from kjms.exporter._families import QUEUE_FAMILIES, SUBSCRIPTION_FAMILIES, metrics_of

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self


__all__ = ["ClusterCollector"]

_log = logging.getLogger("kjms.exporter")

INTERVAL_MS: Final = 15_000
POLL_SECONDS: Final = 0.2  # how soon closing is noticed
CLOSE_SECONDS: Final = 5.0  # a question to a broker that does not answer is left to its thread
QUEUE_LABELS: Final = ("queue", "kind")
SUBSCRIPTION_LABELS: Final = ("subscription", "client_id", "topic")


@dataclass(frozen=True)
class _Snapshot:
    queues: list[QueueFigures]
    subscriptions: list[SubscriptionFigures]
    time: float
    seconds: float


class ClusterCollector:
    """A collector for a prometheus_client registry: the metrics of all queues and subscriptions of a cluster.

    A thread asks the cluster at an interval, so a scrape never waits for Kafka. If the cluster does not answer,
    ``kjms_up`` is 0 and there are no other metrics of the cluster, until it answers again. It does not have to answer
    at the start.

    Args:
        factory: As the programs use it; see `kjms.admin.Admin`.
        interval: Milliseconds from the end of one collection to the start of the next.
        estimate: Whether to read no messages: there are upper bounds then, and no depth or age.
        in_child: Whether a child process asks the cluster: counting takes no time from this process then, and a child
            that ends is started again. *factory* must be one that can be pickled.
        user: The name for SASL; None: the one in the factory's settings, if any.
        password: The password for it.

    Raises:
        ValueError: The interval is not positive.
        ModuleNotFoundError: prometheus_client is missing: ``pip install 'kjms[prometheus]'``.
    """

    @checked
    def __init__(
        self,
        factory: ConnectionFactory,
        *,
        interval: int | timedelta = INTERVAL_MS,
        estimate: bool = False,
        in_child: bool = False,
        user: str | None = None,
        password: str | None = None,
    ) -> None:
        self._is_over = threading.Event()
        source = partial(Source, Request(factory, user, password, estimate))
        self._calls: Calls = ChildProcess(source, "kjms-exporter") if in_child else ThisProcess(source)
        self._factory = factory
        self._interval = min(milliseconds(interval, "interval"), LONGEST_WAIT) / 1000
        if self._interval <= 0:
            raise ValueError(f"interval must be positive, and is {interval}")
        self._snapshot: _Snapshot | None = None
        self._failure = "no collection has ended yet"
        self._failures = 0
        self._uncounted: set[str] = set()
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<ClusterCollector of {self._factory!r}: {self._failure or 'up'}>"

    def start(self) -> Self:
        """Begin to collect, in a thread, and return the collector."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="kjms-exporter", daemon=True)
            self._thread.start()
        return self

    def close(self) -> None:
        """Collect no more, and disconnect."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)

    def __enter__(self) -> Self:
        """Start the collector."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the collector."""
        self.close()

    def check(self) -> str:
        """Return when the last collection ended; a check of readiness for `kjms.health`.

        Raises:
            Unhealthy: It failed.
        """
        from kjms.health import Unhealthy

        snapshot = self._snapshot
        if snapshot is None:
            raise Unhealthy(self._failure)
        return f"{len(snapshot.queues)} queues, collected {time.time() - snapshot.time:.0f} s ago"

    # In the thread.

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                self._collect()
                self._is_over.wait(self._interval)
        finally:
            self._calls.close()

    def _collect(self) -> None:
        begun = time.monotonic()
        try:
            queues, subscriptions = self._ask()
            found = _Snapshot(queues, subscriptions, time.time(), time.monotonic() - begun)
        except Exception as error:
            self._failed(error)
        else:
            if self._failure:
                _log.info("%d queues and %d subscriptions", len(queues), len(subscriptions))
            self._snapshot, self._failure = found, ""
            self._report_uncounted(found)

    def _ask(self) -> Figures:
        found: Future[Figures] = self._calls.submit("ask")
        while not wait([found], POLL_SECONDS).done:
            if self._is_over.is_set():
                raise JMSException("the exporter ends")
        return found.result()

    def _failed(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if self._snapshot is not None or self._failures == 0:
            _log.error(
                "the cluster could not be asked: %s; tried again", error, exc_info=not isinstance(error, JMSException)
            )
        self._failures += 1
        self._snapshot, self._failure = None, text

    def _report_uncounted(self, found: _Snapshot) -> None:
        """Log, once, which queues and subscriptions cannot be counted."""
        errors = {each.name: each.error for each in (*found.queues, *found.subscriptions) if each.error is not None}
        for name in errors.keys() - self._uncounted:
            _log.warning("the messages of %s cannot be counted: %s", name, errors[name])
        self._uncounted = set(errors)

    # For Prometheus.

    def describe(self) -> Iterator[Metric]:
        """Return the metrics without values: registering asks nothing."""
        return self._metrics(None)

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of the last collection; called by the registry."""
        return self._metrics(self._snapshot)

    def _metrics(self, snapshot: _Snapshot | None) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "kjms_up", "1 if the last collection from the cluster succeeded, else 0.", value=float(snapshot is not None)
        )
        yield CounterMetricFamily(
            "kjms_collection_failures", "Collections from the cluster that failed.", value=self._failures
        )
        if snapshot is None:
            return
        yield GaugeMetricFamily(
            "kjms_collection_timestamp_seconds", "When the last collection ended.", value=snapshot.time
        )
        yield GaugeMetricFamily("kjms_collection_duration_seconds", "How long it took.", value=snapshot.seconds)
        now = datetime.now(timezone.utc)
        queues = [
            ((each.name, "dead-letter" if each.is_dead_letter_queue else "queue"), each) for each in snapshot.queues
        ]
        yield from metrics_of(QUEUE_FAMILIES, QUEUE_LABELS, queues, now)
        subscriptions = [((each.name, each.client_id or "", each.topic), each) for each in snapshot.subscriptions]
        yield from metrics_of(SUBSCRIPTION_FAMILIES, SUBSCRIPTION_LABELS, subscriptions, now)
