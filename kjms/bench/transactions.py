"""Workloads that receive from one queue and send to another in transactions.

Of each message the body and two properties are read, and a new message is made and sent. The clock starts when some
transactions have been committed: the first ones of a producer take many times as long.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition

from kjms import Connection, Queue, Session
from kjms.bench._payload import AMOUNT, REGION, TEXT, text_message
from kjms.bench._stage import Sample, Stage
from kjms.bench._workload import Aim, Clock, Unit, at_once, workload

EACH: Final = 100  # messages in a transaction of the first workload
WARM: Final = 20  # transactions before the clock starts
SESSIONS: Final = 16  # of the second workload
# As in kjms.
QUICK: Final[Mapping[str, Any]] = {"retry.backoff.ms": 2, "retry.backoff.max.ms": 250, "linger.ms": 1}
SLOW: Final = 100  # transactions that are enough with librdkafka's defaults, where each takes a tenth of a second
DEFAULT: Final[Mapping[str, Any]] = {}
WAIT: Final = 10.0
_numbers = itertools.count(1)


# ------------------------------------------------------------------------------------------------------- kjms's side


class Worker:
    """A transacted session that moves messages from one queue to another."""

    def __init__(self, connection: Connection, source: str, target: str) -> None:
        self._session = connection.create_session(Session.SESSION_TRANSACTED)
        self._consumer = self._session.create_consumer(Queue(source))
        self._producer = self._session.create_producer(Queue(target))

    def move(self, transactions: int, each: int) -> None:
        """Move so many messages in each of so many transactions."""
        for _ in range(transactions):
            for _ in range(each):
                received: Any = self._consumer.receive()
                amount = received.get_int_property("amount")
                if (received.text, received.get_string_property("region"), amount) != (TEXT, REGION, AMOUNT):
                    raise RuntimeError("a message is not what was sent")
                self._producer.send(text_message())
            self._session.commit()


def _move(stage: Stage, each: int, sessions: int) -> float:
    """Return the messages per second of so many sessions of one connection, each with a thread of its own."""
    transactions = max(stage.count // each // sessions, 1)
    source = stage.topic(filled=(transactions + WARM) * each * sessions)
    target = stage.topic()
    with stage.connect() as connection:
        connection.start()
        workers = [Worker(connection, source, target) for _ in range(sessions)]
        at_once(partial(worker.move, WARM, each) for worker in workers)
        with Clock() as clock:
            at_once(partial(worker.move, transactions, each) for worker in workers)
        return transactions * each * sessions / clock.seconds


# ------------------------------------------------------------------------------------------------------- raw sides


def _loop(
    stage: Stage, each: int, settings: Mapping[str, Any], at_most: int = 1_000_000, *, at_end: bool = False
) -> float:
    """Return the messages per second of Kafka's usual loop: consume, transform, produce.

    Args:
        stage: Where, and how many messages.
        each: How many in a transaction.
        settings: The producer's.
        at_most: How many transactions at the most.
        at_end: Whether what it has made is produced at the end of a transaction, and the offsets are sent when that is
            confirmed. kjms does so: a session that takes long holds up no consumer of the target, and the source is
            not touched before the target has confirmed.
    """
    transactions = min(max(stage.count // each, 1), at_most)
    source, target = stage.topic(filled=(transactions + WARM) * each), stage.topic()
    consumer = Consumer(stage.consumer_settings(source))
    consumer.subscribe([source])
    producer = Producer(
        {
            **stage.plain_settings(Producer),
            "transactional.id": f"{source}-{next(_numbers)}",
            "partitioner": "murmur2_random",
            **settings,
        }
    )
    producer.init_transactions(WAIT)
    _pass_on(consumer, producer, target, WARM, each, stage.sample(), at_end=at_end)
    with Clock() as clock:
        _pass_on(consumer, producer, target, transactions, each, stage.sample(), at_end=at_end)
    consumer.close()
    return transactions * each / clock.seconds


def _pass_on(
    consumer: Consumer,
    producer: Producer,
    target: str,
    transactions: int,
    each: int,
    sample: Sample,
    *,
    at_end: bool,
) -> None:
    kind = dict(sample.headers)["kjms"]
    for _ in range(transactions):
        producer.begin_transaction()
        left, held = each, []
        while left:
            for record in consumer.consume(left, 1.0):
                if record.error():
                    raise RuntimeError(record.error())
                headers = dict(record.headers())
                read = record.value().decode(), headers["region"].decode(), int(headers["amount"])
                if read != (TEXT, REGION, AMOUNT):
                    raise RuntimeError("a record is not what was sent")
                number = next(_numbers)
                made = [
                    ("kjms", kind),
                    ("region", REGION.encode()),
                    ("amount", b"%d" % AMOUNT),
                    ("price", headers["price"]),
                    ("urgent", headers["urgent"]),
                    ("JMSMessageID", b"ID:%d" % number),
                ]
                if at_end:
                    held.append(made)
                else:
                    producer.produce(target, TEXT.encode(), headers=made)
                left -= 1
        if at_end:
            for made in held:
                producer.produce(target, TEXT.encode(), headers=made)
            producer.flush()
        end = TopicPartition(record.topic(), record.partition(), record.offset() + 1)
        producer.send_offsets_to_transaction([end], consumer.consumer_group_metadata(), WAIT)
        producer.commit_transaction(WAIT)


# ----------------------------------------------------------------------------------------------------- the workloads

batches = workload(
    "transact-batches", f"transactions of {EACH} messages", Unit.MESSAGES_PER_SECOND, share=0.4, aim=Aim(0.8)
)


@batches.side("kjms")
def _(stage: Stage) -> float:
    return _move(stage, EACH, 1)


@batches.side("raw, the same settings")
def _(stage: Stage) -> float:
    return _loop(stage, EACH, QUICK)


@batches.side("raw, writes at the end, and the offsets after the target has confirmed", is_baseline=False)
def _(stage: Stage) -> float:
    return _loop(stage, EACH, QUICK, at_end=True)


@batches.side("raw, librdkafka's defaults", is_baseline=False)
def _(stage: Stage) -> float:
    return _loop(stage, EACH, DEFAULT, SLOW)


sessions = workload(
    "transact-sessions",
    f"{SESSIONS} sessions, each commits every message, beside one raw loop that does",
    Unit.MESSAGES_PER_SECOND,
    share=1 / 50,
    aim=Aim(8),
)


@sessions.side("kjms")
def _(stage: Stage) -> float:
    return _move(stage, 1, SESSIONS)


@sessions.side("raw, the same settings")
def _(stage: Stage) -> float:
    return _loop(stage, 1, QUICK)


@sessions.side("raw, librdkafka's defaults", is_baseline=False)
def _(stage: Stage) -> float:
    return _loop(stage, 1, DEFAULT, SLOW)
