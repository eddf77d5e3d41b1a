"""Workloads that send and listen with and without observers: what a message costs more when it is observed.

They measure the processor time of the process, in all its threads. Other programs on the machine, which a broker is
one of, change it less than the time by the clock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from kjms import Message, Queue, Session
from kjms.bench._payload import text_message
from kjms.bench._reading import read_message
from kjms.bench._stage import Stage
from kjms.bench._workload import Unit, workload
from kjms.bench.sending import Completed
from kjms.observe import Observer

Observers = Callable[[], Sequence[Observer]]


def _nothing() -> Sequence[Observer]:
    return [Observer()]


def _prometheus() -> Sequence[Observer]:
    from prometheus_client import CollectorRegistry

    from kjms.observe.prometheus import PrometheusObserver

    return [PrometheusObserver(CollectorRegistry())]


def _otel() -> Sequence[Observer]:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider

    from kjms.observe.otel import OpenTelemetryObserver

    return [OpenTelemetryObserver(TracerProvider(), MeterProvider())]


SIDES: Final[tuple[tuple[str, Observers], ...]] = (
    ("kjms", list),
    ("kjms, an observer that does nothing", _nothing),
    ("kjms, PrometheusObserver", _prometheus),
    ("kjms, OpenTelemetryObserver, spans that are not exported", _otel),
)


def _send(stage: Stage, observers: Observers) -> float:
    messages = [text_message() for _ in range(stage.count)]
    completed = Completed(stage.count)
    with stage.connect(observers=observers()) as connection, connection.create_session() as session:
        producer = session.create_producer(Queue(stage.topic()))
        producer.send(text_message())  # the first send of a producer waits for its id
        begin = time.process_time()
        for message in messages:
            producer.send(message, completion_listener=completed)
        completed.done.wait()
        return _each(begin, stage)


def _listen(stage: Stage, observers: Observers) -> float:
    topic = stage.topic(filled=stage.count)
    left, done = stage.count, threading.Event()

    def listener(message: Message) -> None:
        nonlocal left
        read_message(message)
        left -= 1
        if not left:
            done.set()

    with stage.connect(observers=observers()) as connection:
        session = connection.create_session(Session.DUPS_OK_ACKNOWLEDGE)
        session.create_consumer(Queue(topic)).message_listener = listener
        begin = time.process_time()
        connection.start()
        done.wait()
        return _each(begin, stage)


def _each(begin: float, stage: Stage) -> float:
    """Return the microseconds of processor time since *begin*, for each message."""
    return (time.process_time() - begin) / stage.count * 1e6


send = workload(
    "observed-send",
    "processor time for a message: send with a completion listener",
    Unit.MICROSECONDS,
    set="observers",
)
listen = workload(
    "observed-listen",
    "processor time for a message: message listener, DUPS_OK_ACKNOWLEDGE",
    Unit.MICROSECONDS,
    set="observers",
)
for _name, _observers in SIDES:
    send.side(_name)(lambda stage, observers=_observers: _send(stage, observers))
    listen.side(_name)(lambda stage, observers=_observers: _listen(stage, observers))
