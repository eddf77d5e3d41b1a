"""Workloads that do the same at growing sizes: what a message costs should not depend on what is around it.

What a size needs, such as a thousand queues, is made once for all rounds; a round measures the messages alone. Raw
sides show how much of the growth is Kafka's own.
"""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from confluent_kafka import Producer

from benchmarks._watched import WATCHED_AT, watched
from kjms import Connection, MessageProducer, Queue, Session, Topic
from kjms.bench._payload import text_message
from kjms.bench._reading import (
    BATCH,
    Listener,
    consume,
    position,
    raw_consumer,
    read_message,
    read_record,
    taken,
)
from kjms.bench._stage import WAIT_SECONDS, Stage
from kjms.bench._workload import Aim, Clock, Unit, Workload, at_once, workload
from kjms.bench.sending import BULK_LINGER_MS, Completed, Delivered
from kjms.client.engine_access import engine_of
from kjms.engine.admin.claims import DEFINITION, Claims, resource, written_value
from kjms.mapping.names import REGISTRY, delayed, handover, overflow, queue_group

FLAT: Final = Aim(1.2)  # within 20 %


def _growing(name: str, title: str, share: float, **more: Any) -> Workload:
    return workload(
        f"growth-{name}",
        f"{title}, per message",
        Unit.MICROSECONDS,
        share=share,
        grows=True,
        **{"aim": FLAT, "set": "growth", **more},
    )


def _per_message(clock: Clock, messages: int) -> float:
    return clock.seconds / messages * 1e6


# --------------------------------------------------------------------------------------------------- queues sent to

SENT_TO: Final = (1, 10, 100, 1_000)
sent_to = _growing("queues-sent", "send to so many queues in turn", 0.4)


def _queues(stage: Stage, size: int) -> list[str]:
    topics: list[str] = stage.kept("queues", lambda: stage.topics(SENT_TO[-1], is_kept=True))
    return topics[:size]


def _send_to(stage: Stage, size: int) -> float:
    queues = [Queue(name) for name in _queues(stage, size)]
    with stage.connect() as connection, connection.create_session() as session:
        producer = session.create_producer(None)
        first = Completed(size)
        for queue in queues:
            producer.send(text_message(), queue, completion_listener=first)
        first.done.wait(WAIT_SECONDS)
        completed = Completed(stage.count)
        messages = [text_message() for _ in range(stage.count)]
        with Clock() as clock:
            for message, queue in zip(messages, itertools.cycle(queues)):
                producer.send(message, queue, completion_listener=completed)
            completed.done.wait(WAIT_SECONDS)
        return _per_message(clock, stage.count)


def _produce_to(stage: Stage, size: int) -> float:
    topics = _queues(stage, size)
    producer = Producer(stage.producer_settings(linger_ms=BULK_LINGER_MS))
    value, headers = stage.sample()
    for topic in topics:
        producer.produce(topic, value, headers=headers)
    producer.flush()
    delivered = Delivered(stage.count)
    with Clock() as clock:
        for number, topic in zip(range(stage.count), itertools.cycle(topics)):
            producer.produce(topic, value, headers=headers, on_delivery=delivered)
            if number % 100 == 0:
                producer.poll(0)
        producer.flush()
    delivered.check()
    return _per_message(clock, stage.count)


# -------------------------------------------------------------------------------------------------- queues attached

ATTACHED: Final = (100, 1_000, 10_000)
MEASURED: Final = 100  # destinations that are attached after so many
attached = _growing("queues-attached", "attach to another queue, after so many", 0, rounds=2)


def _attach(stage: Stage, size: int) -> float:
    """Return what it takes to open a producer and to look for the topics that a consumer may need, one after another.

    Most of these topics do not exist, and no more of them do for a queue than for ten thousand.
    """
    names = stage.kept("attached", lambda: stage.topics(ATTACHED[-1] + MEASURED, is_kept=True))
    before, then = names[:size], names[-MEASURED:]
    with stage.connect() as connection, connection.create_session() as session:
        engine = engine_of(connection)

        def attach(name: str) -> None:
            session.create_producer(Queue(name)).close()
            group = queue_group(name)
            for beside in (delayed(name), overflow(name, group), handover(name, group)):
                engine.admin.partitions(beside)

        for name in before:
            attach(name)
        with Clock() as clock:
            for name in then:
                attach(name)
        return _per_message(clock, MEASURED)


# -------------------------------------------------------------------------------------------------- queues consumed

CONSUMED: Final = (1, 10, 100)
consumed = _growing("queues-consumed", "listen to so many queues", 0.4)


def _listen_to(stage: Stage, size: int) -> float:
    """Return what a message costs when all readers have joined their groups, each with a first message."""
    topics = stage.kept(("consumed", size), lambda: stage.topics(size, is_kept=True))
    with stage.connect() as connection:
        session = connection.create_session(Session.DUPS_OK_ACKNOWLEDGE)
        consumers = [session.create_consumer(Queue(topic)) for topic in topics]
        stage.fill(topics, size)
        connection.start()
        for consumer in consumers:
            taken(consumer)
        connection.stop()
        messages = stage.count // size * size
        stage.fill(topics, messages)
        listener = Listener(messages)
        for consumer in consumers:
            consumer.message_listener = listener.on_message
        connection.start()
        listener.wait()
        return _per_message(listener.clock, messages)


def _poll_all(stage: Stage, size: int) -> float:
    """Return the same for raw consumers, each of which has a thread; one of these at a time reads a message."""
    topics = stage.topics(size)
    stage.fill(topics, size)
    each = stage.count // size
    left, lock, done = size, threading.Lock(), threading.Event()
    stands = threading.Barrier(size + 1)

    def work(topic: str) -> None:
        nonlocal left
        consumer = raw_consumer(stage, topic)
        stands.wait(WAIT_SECONDS)
        stands.wait(WAIT_SECONDS)
        unread = each
        while unread:
            records = consumer.consume(min(BATCH, unread), 1.0)
            for record in records:
                with lock:
                    read_record(record)
            unread -= len(records)
            if records:
                consumer.commit(offsets=[position(records[-1])], asynchronous=True)
        with lock:
            left -= 1
            if not left:
                done.set()
        consumer.close()

    threads = threading.Thread(target=at_once, args=([partial(work, topic) for topic in topics],), daemon=True)
    threads.start()
    stands.wait(WAIT_SECONDS)  # each has its first message
    stage.fill(topics, each * size)
    with Clock() as clock:
        stands.wait(WAIT_SECONDS)
        if not done.wait(WAIT_SECONDS):
            raise TimeoutError(f"{left} consumers did not get their messages")
    threads.join()
    return _per_message(clock, each * size)


# ----------------------------------------------------------------------------------------------------- subscriptions

DEFINED: Final = (1, 100, 10_000)
subscriptions = _growing("subscriptions", "receive, so many durable subscriptions in the registry", 0.4)


def _subscribed(stage: Stage, size: int) -> float:
    """Return what a message costs; the registry is made anew, and holds definitions as kjms writes them."""
    if not stage.is_own:
        raise RuntimeError("the registry is made anew for this, so it needs a Kafka of its own: unset KJMS_BOOTSTRAP")
    _delete_registry(stage)
    topic, kafka = Topic(stage.topic()), {"client.id": f"registry-{uuid.uuid4().hex[:8]}"}
    with stage.connect(client_id="bench", kafka=kafka) as connection:
        connection.create_session().create_durable_consumer(topic, "subscription").close()
    _define(stage, size - 1)
    stage.fill([topic.topic_name], stage.count + 1)
    with stage.connect(client_id="bench", kafka=kafka) as connection:
        session = connection.create_session(Session.DUPS_OK_ACKNOWLEDGE)
        consumer = session.create_durable_consumer(topic, "subscription")
        connection.start()
        microseconds = _received(consumer, stage.count)
        consumer.close()
        session.unsubscribe("subscription")
    _delete_registry(stage)
    return microseconds


def _delete_registry(stage: Stage) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while REGISTRY in stage.admin.list_topics(timeout=WAIT_SECONDS).topics:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{REGISTRY} is still there")
        stage.delete([REGISTRY])


def _define(stage: Stage, count: int) -> None:
    producer = Producer({**stage.plain_settings(Producer), "linger.ms": 20})
    claims = Claims()
    terms = {"destination": "prices", "topic": "prices", "selector": None, "no_local": False, "shared": False}
    for number in range(count):
        of = resource("durable", f"client-{number}", "daily")
        value = written_value({"resource": of, "engine": "bench", **terms, "starts": [0], "delayed": []})
        key = f"{DEFINITION}:{uuid.uuid4().hex}"
        claims.apply(number, key, value)
        producer.produce(REGISTRY, value, key=key, partition=0)
        producer.poll(0)
    producer.flush()
    if len([*claims.definitions()]) != count:
        raise RuntimeError(f"the registry does not take what was written, such as {value!r}, for definitions")


def _received(consumer: Any, count: int) -> float:
    """Return what a message costs when the first one is there."""
    taken(consumer)
    receive = consumer.receive
    with Clock() as clock:
        for _ in range(count):
            read_message(receive())
    return _per_message(clock, count)


# ------------------------------------------------------------------------------------------------------- connections

CONNECTED: Final = (1, 30, 300)
connections = _growing("connections", "send by so many connections in turn", 0.4)


def _send_by(stage: Stage, size: int) -> float:
    queue = Queue(stage.topic())
    opened: list[Connection] = []
    try:
        opened += (stage.connect() for _ in range(size))
        producers: list[MessageProducer] = [each.create_session().create_producer(queue) for each in opened]
        first = Completed(size)
        for producer in producers:
            producer.send(text_message(), completion_listener=first)
        first.done.wait(WAIT_SECONDS)
        completed = Completed(stage.count)
        messages = [text_message() for _ in range(stage.count)]
        with Clock() as clock:
            for message, producer in zip(messages, itertools.cycle(producers)):
                producer.send(message, completion_listener=completed)
            completed.done.wait(WAIT_SECONDS)
        return _per_message(clock, stage.count)
    finally:
        for connection in opened:
            connection.close()


# ----------------------------------------------------------------------------------------------------------- backlog

BACKLOG: Final = (10_000, 100_000, 1_000_000)
LARGE: Final = (1_000_000, 10_000_000)
BACKLOG_TITLE: Final = "receive, so many messages waiting behind"
backlog = _growing("backlog", BACKLOG_TITLE, 0.1)
large_backlog = _growing("backlog-large", BACKLOG_TITLE, 0.1, set="large", rounds=2)


def _receive_before(stage: Stage, size: int) -> float:
    """Return what a message costs; the queue is filled once, and each round takes its messages from it."""

    def filled() -> str:
        topic = stage.topic(is_kept=True)
        for _ in range(0, size, 100_000):
            stage.fill([topic], min(size, 100_000))
        return topic

    topic = stage.kept(("backlog", size), filled)
    stage.fill([topic], stage.count + 1)
    with stage.connect() as connection:
        session = connection.create_session(Session.DUPS_OK_ACKNOWLEDGE)
        consumer = session.create_consumer(Queue(topic))
        connection.start()
        return _received(consumer, stage.count)


# -------------------------------------------------------------------------------------------------------- partitions

PARTITIONS: Final = (1, 4, 32)
partitions = _growing("partitions", "receive from so many partitions", 0.4)


def _receive_from(stage: Stage, size: int) -> float:
    topic = stage.topic(filled=stage.count + 1, partitions=size)
    with stage.connect() as connection:
        session = connection.create_session(Session.DUPS_OK_ACKNOWLEDGE)
        consumer = session.create_consumer(Queue(topic))
        connection.start()
        return _received(consumer, stage.count)


def _consume_from(stage: Stage, size: int) -> float:
    consumer = raw_consumer(stage, stage.topic(filled=stage.count + 1, partitions=size))
    return 1e6 / consume(consumer, stage.count, BATCH, wait=False)


# ------------------------------------------------------------------------------------------------------------- sides


def add_sides(
    work: Workload, what: str, sizes: tuple[int, ...], run: Callable[[Stage, int], float], family: str = "kjms"
) -> None:
    """Give *work* a side for each of *sizes*: so many of *what*."""
    for size in sizes:
        name = f"{family}, {size:,} {what}{'' if size == 1 else 's'}"

        @work.side(name, family=family)
        def _(stage: Stage, size: int = size) -> float:
            return run(stage, size)


add_sides(sent_to, "queue", SENT_TO, _send_to)
add_sides(sent_to, "queue", SENT_TO, _produce_to, "raw")
add_sides(attached, "queue", ATTACHED, _attach)
add_sides(consumed, "queue", CONSUMED, _listen_to)
add_sides(consumed, "queue", CONSUMED, _poll_all, "raw")
add_sides(subscriptions, "subscription", DEFINED, _subscribed)
add_sides(connections, "connection", CONNECTED, _send_by)
add_sides(backlog, "message", BACKLOG, _receive_before)
add_sides(large_backlog, "message", LARGE, _receive_before)
add_sides(partitions, "partition", PARTITIONS, _receive_from)
add_sides(partitions, "partition", PARTITIONS, _consume_from, "raw")


# ------------------------------------------------------------------------------------------------------------ memory

memory = workload(
    "growth-memory",
    "memory above the start, 16 slow consumers of 1,000,000 messages",
    Unit.MEGABYTES,
    share=0,
    aim=(Aim(150, is_ratio=False), FLAT),
    set="growth",
    grows=True,
    rounds=2,
)


@memory.together(*(f"after {seconds} s" for seconds in WATCHED_AT))
def _(stage: Stage) -> list[float]:
    def filled() -> str:
        topic = stage.topic(is_kept=True)
        for _ in range(10):
            stage.fill([topic], 100_000)
        return topic

    return watched(stage.bootstrap_servers, stage.kept("backlog", filled))
