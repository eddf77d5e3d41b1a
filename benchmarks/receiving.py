"""Workloads that receive: of each message the body and two properties are read, and Kafka is told.

Every round reads a new topic that was filled before; the clock starts when its first message is there, so that joining
the consumer group is not in the figure (`benchmarks.starting` measures it).
"""

from __future__ import annotations

from threading import Event
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Message as KafkaMessage

from benchmarks._payload import AMOUNT, REGION, TEXT
from benchmarks._stage import Stage
from benchmarks._workload import Clock, Unit, workload
from kjms import Message, Queue, Session

BATCH = 500  # what the raw sides take at once, as the readers of kjms do


def _check(text: str | None, region: str | None, amount: int) -> None:
    if text != TEXT or region != REGION or amount != AMOUNT:
        raise RuntimeError("a message is not what was sent")


# ------------------------------------------------------------------------------------------------------- kjms's side


def _receive(stage: Stage, mode: int, acknowledge_every: int = 0) -> float:
    """Return the messages per second of a loop over `receive`, acknowledging after so many; 0: the session does it."""
    with stage.factory.create_connection() as connection, connection.create_session(mode) as session:
        consumer = session.create_consumer(Queue(stage.topic(filled=stage.count + 1)))
        connection.start()
        consumer.receive()
        with Clock() as clock:
            for number in range(1, stage.count + 1):
                message: Any = consumer.receive()
                _read_message(message)
                if acknowledge_every and number % acknowledge_every == 0:
                    message.acknowledge()
        return stage.count / clock.seconds


def _read_message(message: Any) -> None:
    _check(message.text, message.get_string_property("region"), message.get_int_property("amount"))


# ------------------------------------------------------------------------------------------------------- raw sides


def _read_record(record: KafkaMessage) -> None:
    headers = dict(record.headers())
    _check(record.value().decode(), headers["region"].decode(), int(headers["amount"]))


def _consumer(stage: Stage) -> Consumer:
    """Return a consumer that has read the first message of a new topic with `stage.count` more."""
    topic = stage.topic(filled=stage.count + 1)
    consumer = Consumer(stage.consumer_settings(topic))
    consumer.subscribe([topic])
    while consumer.poll(1.0) is None:
        pass
    return consumer


def _consume(stage: Stage, commit_every: int, *, wait: bool) -> float:
    """Return the messages per second of a loop over `consume`, which gives many at once."""
    consumer = _consumer(stage)
    left, uncommitted = stage.count, 0
    with Clock() as clock:
        while left:
            for record in consumer.consume(min(BATCH, left), 1.0):
                if record.error():
                    raise RuntimeError(record.error())
                _read_record(record)
                left -= 1
                uncommitted += 1
                if uncommitted == commit_every:
                    consumer.commit(offsets=[_position(record)], asynchronous=not wait)
                    uncommitted = 0
    consumer.close()
    return stage.count / clock.seconds


def _poll(stage: Stage, commit_every: int, *, wait: bool) -> float:
    """Return the messages per second of a loop over `poll`, which gives one at a time."""
    consumer = _consumer(stage)
    left, uncommitted = stage.count, 0
    with Clock() as clock:
        while left:
            record = consumer.poll(1.0)
            if record is None:
                continue
            if record.error():
                raise RuntimeError(record.error())
            _read_record(record)
            left -= 1
            uncommitted += 1
            if uncommitted == commit_every:
                consumer.commit(offsets=[_position(record)], asynchronous=not wait)
                uncommitted = 0
    consumer.close()
    return stage.count / clock.seconds


def _position(record: KafkaMessage) -> TopicPartition:
    return TopicPartition(record.topic(), record.partition(), record.offset() + 1)


# ----------------------------------------------------------------------------------------------------- the workloads

receive_dups_ok = workload("receive-dups-ok", "receive, DUPS_OK_ACKNOWLEDGE", Unit.MESSAGES_PER_SECOND)


@receive_dups_ok.side("kjms")
def _(stage: Stage) -> float:
    return _receive(stage, Session.DUPS_OK_ACKNOWLEDGE)


@receive_dups_ok.side("raw, consume 500")
def _(stage: Stage) -> float:
    return _consume(stage, BATCH, wait=False)


@receive_dups_ok.side("raw, poll")
def _(stage: Stage) -> float:
    return _poll(stage, BATCH, wait=False)


receive_auto = workload("receive-auto", "receive, AUTO_ACKNOWLEDGE", Unit.MESSAGES_PER_SECOND, share=1 / 10)


@receive_auto.side("kjms")
def _(stage: Stage) -> float:
    return _receive(stage, Session.AUTO_ACKNOWLEDGE)


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
)


@receive_client.side("kjms")
def _(stage: Stage) -> float:
    return _receive(stage, Session.CLIENT_ACKNOWLEDGE, ACKNOWLEDGE_EVERY)


@receive_client.side("raw, consume 500, commit every 100")
def _(stage: Stage) -> float:
    return _consume(stage, ACKNOWLEDGE_EVERY, wait=True)


@receive_client.side("raw, poll, commit every 100")
def _(stage: Stage) -> float:
    return _poll(stage, ACKNOWLEDGE_EVERY, wait=True)


listen_dups_ok = workload("listen-dups-ok", "message listener, DUPS_OK_ACKNOWLEDGE", Unit.MESSAGES_PER_SECOND)


@listen_dups_ok.side("kjms")
def _(stage: Stage) -> float:
    topic = stage.topic(filled=stage.count + 1)
    with stage.factory.create_connection() as connection:
        session = connection.create_session(Session.DUPS_OK_ACKNOWLEDGE)
        consumer = session.create_consumer(Queue(topic))
        listener = Listener(stage.count + 1)
        consumer.message_listener = listener.on_message
        connection.start()
        listener.done.wait()
        return stage.count / listener.clock.seconds


class Listener:
    """Reads messages; its clock runs from the first one to the last."""

    def __init__(self, expected: int) -> None:
        self.clock = Clock()
        self.done = Event()
        self._left = expected
        self._is_running = False

    def on_message(self, message: Message) -> None:
        """Read *message*."""
        if not self._is_running:
            self._is_running = True
            self.clock.__enter__()
        else:
            _read_message(message)
        self._left -= 1
        if not self._left:
            self.clock.__exit__()
            self.done.set()


@listen_dups_ok.side("raw, consume 500 and call")
def _(stage: Stage) -> float:
    return _consume(stage, BATCH, wait=False)


@listen_dups_ok.side("raw, poll and call")
def _(stage: Stage) -> float:
    return _poll(stage, BATCH, wait=False)
