"""Workloads that send: synchronously, asynchronously, and without waiting at all."""

from __future__ import annotations

import asyncio
import statistics
import time
import uuid
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event, Thread
from typing import Any, Final

from confluent_kafka import KafkaError, Producer

from kjms import DeliveryMode, Message, MessageProducer, Queue
from kjms.bench import _payload
from kjms.bench._payload import text_message
from kjms.bench._stage import Stage
from kjms.bench._workload import Aim, Clock, Unit, workload

WARM_UP = 20  # sends before the clock starts: a new producer first asks for its id and the topic's leader


class Completed:
    """A completion listener that counts, as raw delivery callbacks do here, and sets `done` at the last one."""

    def __init__(self, expected: int) -> None:
        self.left = expected
        self.done = Event()

    def on_completion(self, message: Message) -> None:
        """Count a message that was sent."""
        self.left -= 1
        if not self.left:
            self.done.set()

    def on_exception(self, message: Message, exception: Exception) -> None:
        """Fail the benchmark."""
        raise exception


class Delivered:
    """A delivery callback that counts."""

    def __init__(self, expected: int) -> None:
        self.left = expected

    def __call__(self, error: KafkaError | None, message: object) -> None:
        """Count a record that was delivered."""
        if error is not None:
            raise RuntimeError(f"a record was not delivered: {error}")
        self.left -= 1

    def check(self) -> None:
        """Fail the benchmark unless everything was delivered."""
        if self.left:
            raise RuntimeError(f"{self.left} records were not delivered")


# ----------------------------------------------------------------------------------------- one message, waited for

send_sync = workload(
    "send-sync",
    "send, PERSISTENT, one after the other (median)",
    Unit.MILLISECONDS,
    share=1 / 25,
    aim=Aim(1.15),
)


@send_sync.side("kjms")
def _(stage: Stage) -> float:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(_kjms_latency, stage).result()


@send_sync.side("kjms, in the main thread", is_baseline=False)
def _(stage: Stage) -> float:
    return _kjms_latency(stage)


def _kjms_latency(stage: Stage) -> float:
    with stage.connect() as connection, connection.create_session() as session:
        producer = session.create_producer(Queue(stage.topic()))
        messages = [text_message() for _ in range(stage.count + WARM_UP)]
        return _median_milliseconds(producer.send, messages)


@send_sync.side("raw, produce and flush")
def _(stage: Stage) -> float:
    return _raw_latency(stage, stage.producer_settings(linger_ms=0))


@send_sync.side("raw, with librdkafka's defaults", is_baseline=False)
def _(stage: Stage) -> float:
    return _raw_latency(stage, stage.plain_settings(Producer))


def _raw_latency(stage: Stage, settings: dict[str, Any]) -> float:
    topic, producer = stage.topic(), Producer(settings)
    value, headers = stage.sample()
    delivered = Delivered(stage.count + WARM_UP)

    def send(_: object) -> None:
        producer.produce(topic, value, headers=headers, on_delivery=delivered)
        producer.flush()

    milliseconds = _median_milliseconds(send, [None] * (stage.count + WARM_UP))
    delivered.check()
    return milliseconds


def _median_milliseconds(send: Callable[[Any], object], messages: list[Any]) -> float:
    now = time.perf_counter
    times = []
    for message in messages:
        started = now()
        send(message)
        times.append(now() - started)
    return statistics.median(times[WARM_UP:]) * 1000


# ------------------------------------------------------------------------- many messages, and word of each of them

BULK_LINGER_MS = 5  # what kjms sends with where no caller waits; librdkafka's default, too

send_async = workload(
    "send-async", "send, PERSISTENT, with a completion listener", Unit.MESSAGES_PER_SECOND, aim=Aim(0.6)
)


@send_async.side("kjms")
def _(stage: Stage) -> float:
    return _send_with_listener(stage)


def _send_with_listener(stage: Stage) -> float:
    with stage.connect() as connection, connection.create_session() as session:
        producer = session.create_producer(Queue(stage.topic()))
        _warm_up(producer)
        completed = Completed(stage.count)
        messages = [text_message() for _ in range(stage.count)]
        with Clock() as clock:
            for message in messages:
                producer.send(message, completion_listener=completed)
            completed.done.wait()
        return stage.count / clock.seconds


@send_async.side("raw, delivery callback")
def _(stage: Stage) -> float:
    return _raw_throughput(stage, stage.producer_settings(linger_ms=BULK_LINGER_MS))


@send_async.side("raw, delivery callback, polled at times")
def _(stage: Stage) -> float:
    return _raw_throughput(stage, stage.producer_settings(linger_ms=BULK_LINGER_MS), poll_every=100)


@send_async.side("raw, with librdkafka's defaults", is_baseline=False)
def _(stage: Stage) -> float:
    return _raw_throughput(stage, stage.plain_settings(Producer))


def _warm_up(producer: MessageProducer) -> None:
    first = Completed(WARM_UP)
    for _ in range(WARM_UP):
        producer.send(text_message(), completion_listener=first)
    first.done.wait()


def _raw_throughput(
    stage: Stage, settings: dict[str, Any], mode: DeliveryMode = DeliveryMode.PERSISTENT, poll_every: int = 1
) -> float:
    topic = stage.topic()
    producer = warm_producer(stage, topic, settings)
    value, headers = stage.sample(mode)
    delivered = Delivered(stage.count)
    with Clock() as clock:
        for number in range(stage.count):
            producer.produce(topic, value, headers=headers, on_delivery=delivered)
            if number % poll_every == 0:
                producer.poll(0)
        producer.flush()
    delivered.check()
    return stage.count / clock.seconds


def warm_producer(stage: Stage, topic: str, settings: dict[str, Any]) -> Producer:
    """Return a producer that has written to *topic*: the first record of one takes longer."""
    producer = Producer(settings)
    value, headers = stage.sample()
    for _ in range(WARM_UP):
        producer.produce(topic, value, headers=headers)
    producer.flush()
    return producer


# ------------------------------------------------------- the same, with each message made in the loop, as programs do

send_made = workload(
    "send-async-made",
    "make a message and send it, with a completion listener",
    Unit.MESSAGES_PER_SECOND,
    aim=Aim(0.7),
)


@send_made.side("kjms")
def _(stage: Stage) -> float:
    with stage.connect() as connection, connection.create_session() as session:
        producer = session.create_producer(Queue(stage.topic()))
        _warm_up(producer)
        completed = Completed(stage.count)
        with Clock() as clock:
            for _ in range(stage.count):
                message = session.create_text_message(_payload.TEXT)
                message.set_string_property("region", _payload.REGION)
                message.set_int_property("amount", _payload.AMOUNT)
                message.set_double_property("price", _payload.PRICE)
                message.set_boolean_property("urgent", _payload.URGENT)
                producer.send(message, completion_listener=completed)
            completed.done.wait()
        return stage.count / clock.seconds


@send_made.side("raw, value and headers built by hand")
def _(stage: Stage) -> float:
    topic = stage.topic()
    producer = warm_producer(stage, topic, stage.producer_settings(linger_ms=BULK_LINGER_MS))
    delivered = Delivered(stage.count)
    sender = uuid.uuid4().hex
    with Clock() as clock:
        for number in range(stage.count):
            headers = [
                ("kjms", b"1;text;amount=int,price=double,urgent=boolean"),
                ("JMSMessageID", f"ID:{sender}-{number}".encode()),
                ("JMSTimestamp", str(time.time_ns() // 1_000_000).encode()),
                ("region", _payload.REGION.encode()),
                ("amount", str(_payload.AMOUNT).encode()),
                ("price", str(_payload.PRICE).encode()),
                ("urgent", b"true" if _payload.URGENT else b"false"),
            ]
            producer.produce(topic, _payload.TEXT.encode(), headers=headers, on_delivery=delivered)
            producer.poll(0)
        producer.flush()
    delivered.check()
    return stage.count / clock.seconds


# ------------------------------------------------------------------------- the same in tasks, beside the one thread

TASKS: Final = 500  # that send at the same time

send_asyncio = workload(
    "send-asyncio",
    f"send, PERSISTENT, {TASKS} tasks at a time, beside one thread",
    Unit.MESSAGES_PER_SECOND,
    aim=Aim(0.7),
)


@send_asyncio.side("kjms")
def _(stage: Stage) -> float:
    return asyncio.run(_send_in_tasks(stage))


async def _send_in_tasks(stage: Stage) -> float:
    queue = Queue(stage.topic())
    async with stage.context() as context:
        producer = context.create_producer()
        for _ in range(WARM_UP):
            await producer.send(queue, text_message())
        messages = iter([text_message() for _ in range(stage.count)])

        async def work() -> None:
            for message in messages:
                await producer.send(queue, message)

        return await by_tasks(stage, work)


async def by_tasks(stage: Stage, work: Callable[[], Coroutine[Any, Any, None]]) -> float:
    """Return the messages per second of tasks that all do *work*."""
    with Clock() as clock:
        await asyncio.gather(*(work() for _ in range(TASKS)))
    return stage.count / clock.seconds


@send_asyncio.side("kjms, one thread, with a completion listener")
def _(stage: Stage) -> float:
    return _send_with_listener(stage)


@send_asyncio.side("raw, as many tasks, a future for each record", is_baseline=False)
def _(stage: Stage) -> float:
    return asyncio.run(_produce_in_tasks(stage))


async def _produce_in_tasks(stage: Stage) -> float:
    topic = stage.topic()
    producer = warm_producer(stage, topic, stage.producer_settings(linger_ms=BULK_LINGER_MS))
    value, headers = stage.sample()
    loop, ended = asyncio.get_running_loop(), Event()
    reported: deque[asyncio.Future[None]] = deque()  # served together: one wake-up of the loop for all that are there
    numbers = iter(range(stage.count))

    def serve() -> None:
        while reported:
            reported.popleft().set_result(None)

    def report(future: asyncio.Future[None], error: KafkaError | None, _record: object) -> None:
        if error is not None:
            raise RuntimeError(f"a record was not delivered: {error}")
        reported.append(future)
        if len(reported) == 1:
            loop.call_soon_threadsafe(serve)

    async def work() -> None:
        for _ in numbers:
            future = loop.create_future()
            producer.produce(topic, value, headers=headers, on_delivery=partial(report, future))
            await future

    def poll() -> None:
        while not ended.is_set():
            producer.poll(0.05)

    polling = Thread(target=poll, daemon=True)
    polling.start()
    rate = await by_tasks(stage, work)
    ended.set()
    polling.join()
    return rate


# --------------------------------------------------------------------------------------- many, and no one is waiting

send_forget = workload("send-non-persistent", "send, NON_PERSISTENT, until closed", Unit.MESSAGES_PER_SECOND)


@send_forget.side("kjms")
def _(stage: Stage) -> float:
    with stage.connect() as connection, connection.create_session() as session:
        producer = session.create_producer(Queue(stage.topic()))
        producer.delivery_mode = DeliveryMode.NON_PERSISTENT
        _warm_up(producer)
        messages = [text_message() for _ in range(stage.count)]
        with Clock() as clock:
            for message in messages:
                producer.send(message)
            producer.close()  # returns when all of them have arrived
        return stage.count / clock.seconds


@send_forget.side("raw, delivery callback")
def _(stage: Stage) -> float:
    settings = stage.producer_settings(linger_ms=BULK_LINGER_MS)
    return _raw_throughput(stage, settings, DeliveryMode.NON_PERSISTENT)


@send_forget.side("raw, without callback", is_baseline=False)
def _(stage: Stage) -> float:
    topic = stage.topic()
    producer = warm_producer(stage, topic, stage.producer_settings(linger_ms=BULK_LINGER_MS))
    value, headers = stage.sample(DeliveryMode.NON_PERSISTENT)
    with Clock() as clock:
        for _ in range(stage.count):
            producer.produce(topic, value, headers=headers)
        producer.flush()
    return stage.count / clock.seconds
