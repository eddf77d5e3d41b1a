"""Workloads that measure beginnings: how long until the first message is there, or is sent."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer

from kjms import Queue, Session
from kjms.bench._payload import text_message
from kjms.bench._stage import Stage
from kjms.bench._workload import Aim, Unit, workload

BEGINNINGS = 3  # a round is so many; their median is its figure

first_receive = workload(
    "first-receive", "connect, make a consumer, receive a waiting message", Unit.MILLISECONDS, share=0
)


@first_receive.side("kjms")
def _(stage: Stage) -> float:
    def begin(topic: str) -> Callable[[], object]:
        connection = stage.connect()
        connection.start()
        _receive_one(connection.create_session(), topic)
        return connection.close

    return _median_milliseconds(begin, [stage.topic(filled=1) for _ in range(BEGINNINGS)])


@first_receive.side("raw, subscribe and poll")
def _(stage: Stage) -> float:
    return _raw_receive(stage, stage.consumer_settings)


@first_receive.side("raw, with librdkafka's defaults", is_baseline=False)
def _(stage: Stage) -> float:
    settings = {**stage.plain_settings(Consumer), "auto.offset.reset": "earliest"}
    return _raw_receive(stage, lambda group: {**settings, "group.id": group})


def _raw_receive(stage: Stage, settings: Callable[[str], dict[str, Any]]) -> float:
    def begin(topic: str) -> Callable[[], object]:
        consumer = Consumer(settings(topic))
        consumer.subscribe([topic])
        record = consumer.poll(10.0)
        if record is None or record.error():
            raise RuntimeError("the waiting message did not come")
        end: Callable[[], object] = consumer.close
        return end

    return _median_milliseconds(begin, [stage.topic(filled=1) for _ in range(BEGINNINGS)])


first_receive_warm = workload(
    "first-receive-warm",
    "the first message of a new consumer on a connection in use",
    Unit.MILLISECONDS,
    share=0,
    aim=Aim(300, is_ratio=False),
)


@first_receive_warm.side("kjms")
def _(stage: Stage) -> float:
    with stage.connect() as connection:
        connection.start()
        session = connection.create_session()
        _receive_one(session, stage.topic(filled=1))()

        def begin(topic: str) -> Callable[[], object]:
            return _receive_one(session, topic)

        return _median_milliseconds(begin, [stage.topic(filled=1) for _ in range(BEGINNINGS)])


def _receive_one(session: Session, topic: str) -> Callable[[], object]:
    """Receive the message that waits in a queue; what is returned closes the consumer that did it."""
    consumer = session.create_consumer(Queue(topic))
    if consumer.receive(10_000) is None:
        raise RuntimeError("the waiting message did not come")
    return consumer.close


first_send = workload(
    "first-send",
    "connect, make a session and a producer, send a message",
    Unit.MILLISECONDS,
    share=0,
    aim=Aim(150, is_ratio=False),
)


@first_send.side("kjms")
def _(stage: Stage) -> float:
    def begin(topic: str) -> Callable[[], object]:
        connection = stage.connect()
        connection.create_session().create_producer(Queue(topic)).send(text_message())
        return connection.close

    return _median_milliseconds(begin, [stage.topic() for _ in range(BEGINNINGS)])


@first_send.side("raw, produce and flush")
def _(stage: Stage) -> float:
    return _raw_send(stage, stage.producer_settings(linger_ms=0))


@first_send.side("raw, with librdkafka's defaults", is_baseline=False)
def _(stage: Stage) -> float:
    return _raw_send(stage, stage.plain_settings(Producer))


def _raw_send(stage: Stage, settings: dict[str, Any]) -> float:
    value, headers = stage.sample()

    def begin(topic: str) -> Callable[[], object]:
        producer = Producer(settings)
        producer.produce(topic, value, headers=headers)
        if producer.flush(10.0):
            raise RuntimeError("the message was not sent")
        end: Callable[[], object] = producer.flush
        return end

    return _median_milliseconds(begin, [stage.topic() for _ in range(BEGINNINGS)])


def _median_milliseconds(begin: Callable[[str], Callable[[], object]], topics: list[str]) -> float:
    """Return how long *begin* takes; what it returns ends what it began, outside of the time."""
    times = []
    for topic in topics:
        started = time.perf_counter()
        end = begin(topic)
        times.append(time.perf_counter() - started)
        end()
    return statistics.median(times) * 1000
