"""What consumers receive after they were slow for so long that nothing was fetched for them."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from kjms import Connection, Queue, Session
from kjms.testing.engine import statistics
from tests.helpers import WAIT_MS, WAIT_SECONDS, Desk, Eventually, send, text

ROUNDS = 4
EACH = 4_000  # more than is held ready
PARTITIONS = 3
PREFETCH = 20
SLOWLY = 110  # messages, of which each is received while reading is interrupted


def test_a_consumer_that_was_slow_does_not_wait_for_what_is_there(
    kafka: Any, desk: Desk, queue: Queue, eventually: Eventually
) -> None:
    """It waits much less than for what librdkafka fetches of a partition that is resumed, which takes up to a second.

    If this fails because librdkafka is quick, `FetchPositions.resume` can do without its second step.
    """
    connection = desk.connect()
    session = connection.create_session(Session.DUPS_OK_ACKNOWLEDGE)
    consumer = session.create_consumer(queue)
    number, longest = 0, []
    for _ in range(ROUNDS):
        send(connection, queue, *map(str, range(number, number + EACH)))
        assert text(consumer.receive(WAIT_MS)) == str(number)
        eventually(lambda: is_paused(connection, queue))
        longest.append(0.0)
        for expected in range(number + 1, number + EACH):
            begin = time.perf_counter()
            assert text(consumer.receive(WAIT_MS)) == str(expected)
            longest[-1] = max(longest[-1], time.perf_counter() - begin)
        number += EACH
    assert sum(longest) * 3 < sum(resumptions(kafka.bootstrap_servers, queue.queue_name))


def test_a_slow_consumer_gets_messages_of_all_partitions(desk: Desk, queue: Queue, eventually: Eventually) -> None:
    """Long before the first partition has no more: the records of the others are discarded in each pause."""
    connection = desk.connect(prefetch=PREFETCH, partitions=PARTITIONS)
    session = connection.create_session(Session.DUPS_OK_ACKNOWLEDGE)
    session.create_producer(queue)  # makes the topic
    producer = Producer({"bootstrap.servers": desk.servers})
    for number in range(PARTITIONS):
        for _ in range(EACH):
            producer.produce(queue.queue_name, str(number), partition=number)
            producer.poll(0)
        producer.flush()
    consumer = session.create_consumer(queue)
    received = Counter[str]()
    for _ in range(SLOWLY):
        received[text(consumer.receive(WAIT_MS))] += 1
        eventually(lambda: is_paused(connection, queue))
    assert received.keys() == {str(number) for number in range(PARTITIONS)}


def is_paused(connection: Connection, queue: Queue) -> bool:
    return any(each.is_paused for each in statistics(connection).group_consumers if each.name == queue.queue_name)


def resumptions(servers: str, topic: str) -> list[float]:
    """Return how long a raw consumer waits for the next record of a partition that it has resumed."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.poll(WAIT_SECONDS) is not None
    times = []
    for _ in range(ROUNDS):
        consumer.pause(consumer.assignment())
        assert consumer.poll(0.1) is None
        begin = time.perf_counter()
        consumer.resume(consumer.assignment())
        assert consumer.poll(WAIT_SECONDS) is not None
        times.append(time.perf_counter() - begin)
    consumer.close()
    return times
