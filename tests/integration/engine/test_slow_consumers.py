"""What consumers receive after they were slow for so long that nothing was fetched for them."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from kjms import Connection, Queue, Session
from kjms.testing.engine import statistics
from tests.helpers import WAIT_MS, WAIT_SECONDS, Desk, Eventually, send, text

ROUNDS = 4
EACH = 4_000  # more than is held ready


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
