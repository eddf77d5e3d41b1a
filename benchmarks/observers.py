"""Workloads that send and listen with and without observers: what a message costs more when it is observed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kjms import Queue, Session
from kjms.bench._payload import text_message
from kjms.bench._reading import Listener
from kjms.bench._stage import Stage
from kjms.bench._workload import Clock, Unit, workload
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
        with Clock() as clock:
            for message in messages:
                producer.send(message, completion_listener=completed)
            completed.done.wait()
    return stage.count / clock.seconds


def _listen(stage: Stage, observers: Observers) -> float:
    topic = stage.topic(filled=stage.count + 1)
    listener = Listener(stage.count + 1)
    with stage.connect(observers=observers()) as connection:
        session = connection.create_session(Session.DUPS_OK_ACKNOWLEDGE)
        session.create_consumer(Queue(topic)).message_listener = listener.on_message
        connection.start()
        listener.wait()
    return stage.count / listener.clock.seconds


send = workload(
    "observed-send", "send, PERSISTENT, with a completion listener", Unit.MESSAGES_PER_SECOND, set="observers"
)
listen = workload("observed-listen", "message listener, DUPS_OK_ACKNOWLEDGE", Unit.MESSAGES_PER_SECOND, set="observers")
for _name, _observers in SIDES:
    send.side(_name)(lambda stage, observers=_observers: _send(stage, observers))
    listen.side(_name)(lambda stage, observers=_observers: _listen(stage, observers))
