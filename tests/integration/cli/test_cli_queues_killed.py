"""Changes of queues that are killed again and again, beside senders and consumers: nothing is lost, nothing doubled.

What a killed program wrote in its last transaction, and what others wrote after it, is visible when the broker has
ended that transaction.
"""

from __future__ import annotations

import collections
import contextlib
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from kjms import Connection, JMSException, Queue, Session
from kjms.engine.kafka import OffsetSpec, TopicPartition, open_admin
from tests.helpers import WAIT_SECONDS, Kjms, apart, browse, text, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

Start = Callable[..., "subprocess.Popen[bytes]"]
KILLS = 4


@pytest.fixture
def queues(connection: Connection, queue: Queue) -> dict[str, Queue]:
    """Queues that exist: the source, a target, and where a consumer puts what it has consumed."""
    names = {name: Queue(f"{queue.queue_name}.{name}") for name in ("source", "target", "consumed")}
    with connection.create_session() as session:
        for each in names.values():
            session.create_producer(each).close()
    return names


@contextlib.contextmanager
def sending(servers: str, queue: Queue, count: int) -> Iterator[threading.Thread]:
    """Send messages with their numbers as text, every other one with ``old = TRUE``, while the block runs."""

    def send_all() -> None:
        with apart(servers) as connection, connection.create_session() as session:
            producer = session.create_producer(queue)
            for number in range(count):
                message = session.create_text_message(str(number))
                message.set_boolean_property("old", number % 2 == 0)
                producer.send(message)
                time.sleep(0.001)  # the load of a second for a thousand messages

    thread = threading.Thread(target=send_all)
    thread.start()
    try:
        yield thread
    finally:
        thread.join(3 * WAIT_SECONDS)


@contextlib.contextmanager
def consuming(servers: str, source: Queue, target: Queue) -> Iterator[None]:
    """Pass messages on to *target*, each in a transaction, in two programs, while the block runs."""
    stop = threading.Event()

    def consume() -> None:
        with apart(servers, prefetch=20) as connection:
            session = connection.create_session(Session.SESSION_TRANSACTED)
            consumer, producer = session.create_consumer(source), session.create_producer(target)
            while not stop.is_set():
                message = consumer.receive(100)
                if message is not None:
                    producer.send(session.create_text_message(text(message)))
                    with contextlib.suppress(JMSException):  # rolled back: it comes again
                        session.commit()

    threads = [threading.Thread(target=consume) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(WAIT_SECONDS)


def kill_again_and_again(start: Start, progress: Callable[[], int], *arguments: str) -> int:
    """Run a command, and kill it once *progress* has changed; return how often it was killed before it had ended."""
    killed = 0
    for _ in range(KILLS):
        before = progress()
        process = start(*arguments, stderr=subprocess.DEVNULL)
        wait_for(lambda: process.poll() is not None or progress() != before, 2 * WAIT_SECONDS)  # noqa: B023
        if process.poll() is None:
            process.kill()
            killed += 1
        process.wait(WAIT_SECONDS)
    return killed


def written(servers: str, queue: Queue) -> Callable[[], int]:
    """Return a function that tells where the log of a queue of one partition ends, open transactions included."""
    admin = open_admin({"bootstrap.servers": servers})
    place = TopicPartition(queue.queue_name, 0)

    def end() -> int:
        asked = {place: OffsetSpec.latest()}
        return int(admin.list_offsets(asked, request_timeout=WAIT_SECONDS)[place].result().offset)

    return end


def count(connection: Connection, *queues: Queue) -> collections.Counter[int]:
    """Return how often each number is in *queues*."""
    return collections.Counter(int(each) for queue in queues for each in browse(connection, queue))


def test_a_move_that_is_killed_moves_each_message_once(
    kjms: Kjms, start: Start, kjms_broker: Any, connection: Connection, queues: dict[str, Queue]
) -> None:
    """Each message is where it was, where it was moved, or was consumed: once, in one of them."""
    source, target, consumed = queues["source"], queues["target"], queues["consumed"]
    servers, messages = kjms_broker.bootstrap_servers, 6_000
    with sending(servers, source, messages) as sender:
        wait_for(lambda: browse(connection, source))
        with consuming(servers, source, consumed):
            arguments = ("queues", "move", source.queue_name, target.queue_name)
            killed = kill_again_and_again(start, written(servers, target), *arguments)
            sender.join(3 * WAIT_SECONDS)
            kjms(*arguments, expected=None)
            wait_for(lambda: not browse(connection, source), 3 * WAIT_SECONDS)
    assert killed
    wait_for(lambda: len(count(connection, source, target, consumed)) == messages, 4 * WAIT_SECONDS)
    assert count(connection, source, target, consumed) == collections.Counter(range(messages))
    assert browse(connection, target)
    assert browse(connection, consumed)


@pytest.mark.long
def test_a_purge_that_is_killed_deletes_nothing_else(
    kjms: Kjms, start: Start, kjms_broker: Any, connection: Connection, queues: dict[str, Queue]
) -> None:
    """What does not match is consumed once; what matches is deleted, or was consumed once before."""
    source, consumed = queues["source"], queues["consumed"]
    servers, messages = kjms_broker.bootstrap_servers, 6_000

    def deleted() -> int:
        """Return how many messages were deleted, in fifties: consumers take as many of either kind."""
        old, new = (len(browse(connection, source, f"old = {each}")) for each in ("TRUE", "FALSE"))
        return (new - old) // 50

    with sending(servers, source, messages) as sender:
        wait_for(lambda: browse(connection, source))
        with consuming(servers, source, consumed):
            arguments = ("queues", "purge", source.queue_name, "--selector", "old = TRUE", "--yes")
            killed = kill_again_and_again(start, deleted, *arguments)
            sender.join(3 * WAIT_SECONDS)
            kjms(*arguments, expected=None)
            wait_for(lambda: not browse(connection, source), 3 * WAIT_SECONDS)
    assert killed
    found = count(connection, consumed)
    assert set(found.values()) == {1}
    assert set(range(1, messages, 2)) <= found.keys()
    assert len(found) < messages


@pytest.mark.long
def test_a_retry_that_is_killed_moves_each_dead_letter_once(
    kjms: Kjms, start: Start, kjms_broker: Any, connection: Connection, queues: dict[str, Queue]
) -> None:
    """While a program consumes the queue, each dead letter comes back to it once."""
    source, consumed = queues["source"], queues["consumed"]
    letters, messages = Queue(f"{source.queue_name}.dlq"), 5_000
    with connection.create_session() as session:
        session.create_producer(letters).close()
    producer = Producer({"bootstrap.servers": kjms_broker.bootstrap_servers})
    headers = {"JMS_kjms_Cause": "test", "JMS_kjms_OriginalDestination": str(source)}
    for number in range(messages):
        producer.produce(letters.queue_name, str(number), headers=headers)
    assert not producer.flush(WAIT_SECONDS)
    with consuming(kjms_broker.bootstrap_servers, source, consumed):
        arguments = ("dlq", "retry", letters.queue_name)
        killed = kill_again_and_again(start, written(kjms_broker.bootstrap_servers, source), *arguments)
        kjms(*arguments)
        wait_for(lambda: not browse(connection, letters), WAIT_SECONDS)
        wait_for(lambda: not browse(connection, source), 10 * WAIT_SECONDS)
    assert killed
    wait_for(lambda: len(count(connection, source, consumed)) == messages, 4 * WAIT_SECONDS)
    assert count(connection, source, consumed) == collections.Counter(range(messages))
