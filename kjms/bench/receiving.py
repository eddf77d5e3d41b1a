"""Workloads that receive: of each message the body and two properties are read, and it is acknowledged.

Every round reads a new topic that was filled before; the clock starts when its first message is there, so that joining
the consumer group is not in the figure (`kjms.bench.starting` measures it).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka import Message as KafkaMessage

from kjms import Queue, Session
from kjms.bench._payload import REGION
from kjms.bench._reading import (
    BATCH,
    Listener,
    consume,
    filled_consumer,
    poll,
    position,
    raw_consumer,
    read_message,
    read_record,
    taken,
)
from kjms.bench._stage import Stage
from kjms.bench._workload import Aim, Clock, Unit, workload
from kjms.bench.transactions import QUICK, WAIT


def receive(
    stage: Stage,
    mode: int,
    acknowledge_every: int = 0,
    topic: str | None = None,
    read: Callable[[Any], None] = read_message,
    **options: Any,
) -> float:
    """Return the messages per second of a loop over `receive`, acknowledging after so many; 0: the session does it.

    Args:
        stage: Where, and how many messages.
        mode: The session's.
        acknowledge_every: After how many messages one is acknowledged.
        topic: What is read; None: a new one.
        read: What is done with each message.
        options: The connection factory's.
    """
    topic = topic or stage.topic(filled=stage.count + 1)
    with stage.connect(**options) as connection, connection.create_session(mode) as session:
        consumer = session.create_consumer(Queue(topic))
        connection.start()
        taken(consumer)
        next_message = consumer.receive
        with Clock() as clock:
            for number in range(1, stage.count + 1):
                message = next_message()
                read(message)
                if acknowledge_every and number % acknowledge_every == 0:
                    message.acknowledge()  # type: ignore[union-attr]
        return stage.count / clock.seconds


def _consume(stage: Stage, commit_every: int, *, wait: bool) -> float:
    return consume(filled_consumer(stage), stage.count, commit_every, wait=wait)


def _poll(stage: Stage, commit_every: int, *, wait: bool) -> float:
    return poll(filled_consumer(stage), stage.count, commit_every, wait=wait)


receive_dups_ok = workload("receive-dups-ok", "receive, DUPS_OK_ACKNOWLEDGE", Unit.MESSAGES_PER_SECOND, aim=Aim(0.5))


@receive_dups_ok.side("kjms")
def _(stage: Stage) -> float:
    return receive(stage, Session.DUPS_OK_ACKNOWLEDGE)


@receive_dups_ok.side("raw, consume 500")
def _(stage: Stage) -> float:
    return _consume(stage, BATCH, wait=False)


@receive_dups_ok.side("raw, poll")
def _(stage: Stage) -> float:
    return _poll(stage, BATCH, wait=False)


@receive_dups_ok.side("raw, a thread reads for another one", is_baseline=False)
def _(stage: Stage) -> float:
    return _read_for_another(stage)


class _Received:
    """A record as a message: its body and properties are read when they are asked for."""

    __slots__ = ("_headers", "record")

    def __init__(self, record: KafkaMessage) -> None:
        self.record = record
        self._headers = dict(record.headers())

    @property
    def text(self) -> str:
        """The body."""
        return self.record.value().decode()  # type: ignore[no-any-return]

    def get_string_property(self, name: str) -> str:
        """Return a property that is a string."""
        return self._headers[name].decode()  # type: ignore[no-any-return]

    def get_int_property(self, name: str) -> int:
        """Return a property that is a number."""
        return int(self._headers[name])


def _read_for_another(stage: Stage) -> float:
    """Return the messages per second of a loop over a queue that another thread fills: the structure of kjms alone."""
    consumer, batches, room = filled_consumer(stage), SimpleQueue[list[KafkaMessage]](), Semaphore(4)
    batch: deque[KafkaMessage] = deque()

    def fetch() -> None:
        unread = stage.count
        while unread:
            room.acquire()
            records = consumer.consume(min(BATCH, unread), 1.0)
            unread -= len(records)
            batches.put(records)

    def next_message() -> _Received:
        while not batch:
            batch.extend(batches.get())
            room.release()
        return _Received(batch.popleft())

    fetching = Thread(target=fetch, daemon=True)
    with Clock() as clock:
        fetching.start()
        for number in range(1, stage.count + 1):
            message = next_message()
            read_message(message)
            if number % BATCH == 0:
                consumer.commit(offsets=[position(message.record)], asynchronous=True)
    fetching.join()
    consumer.close()
    return stage.count / clock.seconds


receive_auto = workload(
    "receive-auto", "receive, AUTO_ACKNOWLEDGE", Unit.MESSAGES_PER_SECOND, share=1 / 10, aim=Aim(0.9)
)


@receive_auto.side("kjms")
def _(stage: Stage) -> float:
    return receive(stage, Session.AUTO_ACKNOWLEDGE)


@receive_auto.side("raw, consume 500, commit each")
def _(stage: Stage) -> float:
    return _consume(stage, 1, wait=True)


@receive_auto.side("raw, poll, commit each")
def _(stage: Stage) -> float:
    return _poll(stage, 1, wait=True)


ACKNOWLEDGE_EVERY = 100
receive_client = workload(
    "receive-client",
    f"receive, CLIENT_ACKNOWLEDGE, acknowledge every {ACKNOWLEDGE_EVERY}",
    Unit.MESSAGES_PER_SECOND,
    aim=Aim(0.5),
)


@receive_client.side("kjms")
def _(stage: Stage) -> float:
    return receive(stage, Session.CLIENT_ACKNOWLEDGE, ACKNOWLEDGE_EVERY)


@receive_client.side("raw, consume 500, commit every 100")
def _(stage: Stage) -> float:
    return _consume(stage, ACKNOWLEDGE_EVERY, wait=True)


@receive_client.side("raw, poll, commit every 100")
def _(stage: Stage) -> float:
    return _poll(stage, ACKNOWLEDGE_EVERY, wait=True)


# ------------------------------------------------------------------------------- more than a client fetches in advance

LARGE = "x" * 10_000

receive_large = workload(
    "receive-large",
    f"receive bodies of {len(LARGE):,} bytes, DUPS_OK_ACKNOWLEDGE",
    Unit.MESSAGES_PER_SECOND,
    share=2 / 5,  # 200 MB
)


def _large_filled(stage: Stage) -> str:
    topic = stage.topic()
    stage.fill([topic], stage.count + 1, body=LARGE.encode())
    return topic


def _read_large(message: Any) -> None:
    if message.text != LARGE or message.get_string_property("region") != REGION:
        raise RuntimeError("a message is not what was sent")


def _read_large_record(record: KafkaMessage) -> None:
    if record.value().decode() != LARGE or dict(record.headers())["region"].decode() != REGION:
        raise RuntimeError("a message is not what was sent")


def _consume_large(stage: Stage, topic: str, settings: dict[str, Any] | None = None) -> float:
    return consume(raw_consumer(stage, topic, settings), stage.count, BATCH, wait=False, read=_read_large_record)


@receive_large.side("kjms")
def _(stage: Stage) -> float:
    return receive(stage, Session.DUPS_OK_ACKNOWLEDGE, topic=_large_filled(stage), read=_read_large)


@receive_large.side("raw, consume 500")
def _(stage: Stage) -> float:
    return _consume_large(stage, _large_filled(stage))


@receive_large.side("raw, with librdkafka's defaults", is_baseline=False)
def _(stage: Stage) -> float:
    topic = _large_filled(stage)
    settings = {**stage.plain_settings(Consumer), "group.id": topic, "auto.offset.reset": "earliest"}
    return _consume_large(stage, topic, settings)


# ------------------------------------------------------------------------------------------ in a task, beside a thread

receive_asyncio = workload(
    "receive-asyncio", "receive in a task, DUPS_OK_ACKNOWLEDGE, beside a thread", Unit.MESSAGES_PER_SECOND, aim=Aim(0.7)
)


@receive_asyncio.side("kjms, asyncio")
def _(stage: Stage) -> float:
    return asyncio.run(_receive_in_task(stage))


async def _receive_in_task(stage: Stage) -> float:
    topic = stage.topic(filled=stage.count + 1)
    async with stage.context(Session.DUPS_OK_ACKNOWLEDGE) as context:
        next_message = context.create_consumer(Queue(topic)).receive
        await next_message()
        with Clock() as clock:
            for _ in range(stage.count):
                read_message(await next_message())
        return stage.count / clock.seconds


@receive_asyncio.side("kjms, one thread")
def _(stage: Stage) -> float:
    return receive(stage, Session.DUPS_OK_ACKNOWLEDGE)


# ------------------------------------------------------------------------------------------------------- a listener

listen_dups_ok = workload(
    "listen-dups-ok", "message listener, DUPS_OK_ACKNOWLEDGE", Unit.MESSAGES_PER_SECOND, aim=Aim(0.45)
)


@listen_dups_ok.side("kjms")
def _(stage: Stage) -> float:
    topic = stage.topic(filled=stage.count + 1)
    listener = Listener(stage.count + 1)
    _listen(stage, topic, listener, None)
    return stage.count / listener.clock.seconds


def _listen(stage: Stage, topic: str, listener: Listener, selector: str | None) -> None:
    with stage.connect() as connection:
        session = connection.create_session(Session.DUPS_OK_ACKNOWLEDGE)
        session.create_consumer(Queue(topic), selector).message_listener = listener.on_message
        connection.start()
        listener.wait()


@listen_dups_ok.side("raw, consume 500 and call")
def _(stage: Stage) -> float:
    return _consume(stage, BATCH, wait=False)


@listen_dups_ok.side("raw, poll and call")
def _(stage: Stage) -> float:
    return _poll(stage, BATCH, wait=False)


# -------------------------------------------------------- a listener with a selector: every second message is wanted

SELECTOR = "region = 'EU'"
OTHER = {"region": b"US"}
MOVED = 2_000  # messages in a transaction, as kjms relocates them

listen_selector = workload(
    "listen-selector",
    "message listener, a selector that matches half; messages passed",
    Unit.MESSAGES_PER_SECOND,
    share=4,  # relocation begins after thousands of messages, and continues
    aim=Aim(0.3),
)


def half_filled(stage: Stage) -> str:
    """Return a topic of which the first message is wanted, and of those behind it every second one."""
    topic = stage.topic()
    stage.fill([topic], stage.count + 1, headers=[{}, OTHER])
    return topic


@listen_selector.side("kjms")
def _(stage: Stage) -> float:
    listener = Listener(stage.count // 2 + 1)
    _listen(stage, half_filled(stage), listener, SELECTOR)
    return stage.count / listener.clock.seconds


@listen_selector.side("raw, consume 500, look and call")
def _(stage: Stage) -> float:
    return consume(raw_consumer(stage, half_filled(stage)), stage.count, BATCH, wait=False, read=_select)


@listen_selector.side("raw, poll, look and call")
def _(stage: Stage) -> float:
    return poll(raw_consumer(stage, half_filled(stage)), stage.count, BATCH, wait=False, read=_select)


@listen_selector.side("raw, consume 500, look and call; moves what is left, in transactions", is_baseline=False)
def _(stage: Stage) -> float:
    topic, target = half_filled(stage), stage.topic()
    consumer = raw_consumer(stage, topic)
    producer = Producer({**stage.plain_settings(Producer), "transactional.id": topic, **QUICK})
    producer.init_transactions(WAIT)
    rest: list[KafkaMessage] = []

    def move() -> None:
        producer.begin_transaction()
        for record in rest:
            producer.produce(target, record.value(), headers=record.headers())
        producer.send_offsets_to_transaction([position(rest[-1])], consumer.consumer_group_metadata(), WAIT)
        producer.commit_transaction(WAIT)
        rest.clear()

    unread = stage.count
    with Clock() as clock:
        while unread:
            for record in consumer.consume(min(BATCH, unread), 1.0):
                unread -= 1
                if not _select(record):
                    rest.append(record)
            if len(rest) >= MOVED or not unread:
                move()
    consumer.close()
    return stage.count / clock.seconds


def _select(record: KafkaMessage) -> bool:
    """Read *record* if it is wanted; return whether it is."""
    is_wanted = bool(dict(record.headers())["region"] == b"EU")
    if is_wanted:
        read_record(record)
    return is_wanted
