"""What observers cost, counted in calls of functions: that does not depend on the machine or its load."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

import kjms
from kjms import ConnectionFactory, Queue, Session
from kjms.observe import Observer
from kjms.observe.otel import OpenTelemetryObserver
from kjms.observe.prometheus import PrometheusObserver
from kjms.testing import MemoryKafka

ROOT = f"{Path(kjms.__file__).parent}/"
OBSERVING = (f"{ROOT}observe/", f"{ROOT}client/observing.py")
MESSAGES = 100
ORDERS = Queue("orders")


def calls_of(observers: list[Observer], mode: int) -> Counter[str]:
    """Send and receive messages; return how often functions of each file of kjms ran for each of them."""
    calls: list[CodeType] = []  # appending is one step, whichever thread does it

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            calls.append(frame.f_code)

    with MemoryKafka() as kafka:
        threading.setprofile(profile)  # for threads that start from here on
        sys.setprofile(profile)
        try:
            factory = ConnectionFactory(kafka.bootstrap_servers, observers=observers)
            with factory.create_context(mode) as context:
                producer = context.create_producer()
                for number in range(MESSAGES):
                    producer.send(ORDERS, str(number))
                context.commit() if context.transacted else None
                consumer = context.create_consumer(ORDERS)
                for _ in range(MESSAGES):
                    assert consumer.receive(10_000) is not None
                context.commit() if context.transacted else context.acknowledge()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return Counter(code.co_filename for code in calls if code.co_filename.startswith(ROOT))


MODES = [Session.AUTO_ACKNOWLEDGE, Session.CLIENT_ACKNOWLEDGE, Session.SESSION_TRANSACTED]


def each_message(calls: Counter[str], *files: str) -> int:
    """Return how many calls of *files* each message takes."""
    return round(sum(count for name, count in calls.items() if name.startswith(files)) / MESSAGES)


@pytest.mark.parametrize("mode", MODES)
def test_without_observers_no_code_of_theirs_runs_for_a_message(mode: int) -> None:
    """A session without observers is made of other classes: no message calls a function of observing."""
    calls = calls_of([], mode)
    assert each_message(calls, ROOT) > 20
    assert each_message(calls, *OBSERVING) == 0
    assert sum(count for name, count in calls.items() if name.startswith(OBSERVING)) < 20  # when it is made


@pytest.mark.parametrize(("kind", "most"), [("nothing", 18), ("prometheus", 27), ("otel", 60)])
def test_an_observed_message_takes_few_calls(kind: str, most: int) -> None:
    """A message that is sent, received and settled takes at most so many calls of what observes it."""
    observer = {
        "nothing": Observer,
        "prometheus": lambda: PrometheusObserver(CollectorRegistry()),
        "otel": lambda: OpenTelemetryObserver(TracerProvider(), MeterProvider()),
    }[kind]()
    assert 5 < each_message(calls_of([observer], Session.AUTO_ACKNOWLEDGE), *OBSERVING) <= most
