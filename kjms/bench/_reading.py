"""What workloads that receive share: how a message is read on either side, and the loops of raw consumers."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Message as KafkaMessage

from kjms import Message
from kjms.bench._payload import AMOUNT, REGION, TEXT
from kjms.bench._stage import Stage
from kjms.bench._workload import Clock

__all__ = ["BATCH", "Listener", "consume", "poll", "position", "raw_consumer", "read_message", "read_record", "taken"]

BATCH: Final = 500  # what the raw sides take at once, as the readers of kjms do
PATIENCE: Final = 60.0  # seconds without a record after which there is something wrong


def _check(text: str | None, region: str | None, amount: int) -> None:
    if text != TEXT or region != REGION or amount != AMOUNT:
        raise RuntimeError("a message is not what was sent")


def read_message(message: Any) -> None:
    """Read the body and two properties of a message of kjms."""
    _check(message.text, message.get_string_property("region"), message.get_int_property("amount"))


def read_record(record: KafkaMessage) -> None:
    """Read the same of a record of Kafka."""
    headers = dict(record.headers())
    _check(record.value().decode(), headers["region"].decode(), int(headers["amount"]))


def taken(consumer: Any) -> Any:
    """Return the next message of a consumer of kjms.

    Raises:
        TimeoutError: None came.
    """
    message = consumer.receive(round(PATIENCE * 1000))
    if message is None:
        raise TimeoutError(f"no message came for {PATIENCE:g} s")
    return message


class Listener:
    """Reads messages; its clock runs from the first one to the last."""

    def __init__(self, expected: int) -> None:
        self.clock = Clock()
        self._left = expected
        self._done = Event()
        self._is_running = False

    def on_message(self, message: Message) -> None:
        """Read *message*."""
        if not self._is_running:
            self._is_running = True
            self.clock.__enter__()
        else:
            read_message(message)
        self._left -= 1
        if not self._left:
            self.clock.__exit__()
            self._done.set()

    def wait(self) -> None:
        """Return when the last message has been read.

        Raises:
            TimeoutError: No further message comes.
        """
        left = -1
        while not self._done.wait(PATIENCE):
            if self._left == left:
                raise TimeoutError(f"{left} messages did not come")
            left = self._left


def raw_consumer(stage: Stage, topic: str, settings: dict[str, Any] | None = None) -> Consumer:
    """Return a consumer that has read the first message of *topic*; without *settings*, with those of kjms."""
    consumer = Consumer(settings or stage.consumer_settings(topic))
    consumer.subscribe([topic])
    while consumer.poll(1.0) is None:
        pass
    return consumer


def filled_consumer(stage: Stage) -> Consumer:
    """Return a consumer that has read the first message of a new topic, behind which a round's messages wait."""
    return raw_consumer(stage, stage.topic(filled=stage.count + 1))


def position(record: KafkaMessage) -> TopicPartition:
    """Return what is committed when *record* and all before it are done."""
    return TopicPartition(record.topic(), record.partition(), record.offset() + 1)


def consume(
    consumer: Consumer,
    count: int,
    commit_every: int,
    *,
    wait: bool,
    read: Callable[[KafkaMessage], object] = read_record,
) -> float:
    """Return the messages per second of a loop over `Consumer.consume`, which gives many at once, and close it.

    Args:
        consumer: The consumer that receives them.
        count: How many messages are read.
        commit_every: After how many of them their offset is committed.
        wait: Whether it is waited for.
        read: What is done with each.
    """
    left, uncommitted = count, 0
    with Clock() as clock:
        while left:
            for record in consumer.consume(min(BATCH, left), 1.0):
                if record.error():
                    raise RuntimeError(record.error())
                read(record)
                left -= 1
                uncommitted += 1
                if uncommitted == commit_every:
                    consumer.commit(offsets=[position(record)], asynchronous=not wait)
                    uncommitted = 0
    consumer.close()
    return count / clock.seconds


def poll(
    consumer: Consumer,
    count: int,
    commit_every: int,
    *,
    wait: bool,
    read: Callable[[KafkaMessage], object] = read_record,
) -> float:
    """Return the messages per second of a loop over `Consumer.poll`, which gives one at a time; else as `consume`."""
    left, uncommitted = count, 0
    with Clock() as clock:
        while left:
            record = consumer.poll(1.0)
            if record is None:
                continue
            if record.error():
                raise RuntimeError(record.error())
            read(record)
            left -= 1
            uncommitted += 1
            if uncommitted == commit_every:
                consumer.commit(offsets=[position(record)], asynchronous=not wait)
                uncommitted = 0
    consumer.close()
    return count / clock.seconds
