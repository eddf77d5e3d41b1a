"""What any number of threads may use at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from kjms import Connection, ConnectionFactory, MessageConsumer, Queue, Session
from tests.helpers import WAIT_MS, send, text

THREADS = 8
EACH = 20
CONSUMERS = 24
SHARE = 200  # messages of each


@pytest.mark.requirement(
    "JMS-2.8-1", "NET-66", "NET-86", "NET-105", "NEV-10", "NEV-11", "NEV-12", "NEV-13",
)  # fmt: skip
def test_factories_connections_and_destinations_are_for_any_number_of_threads(
    kjms_factory: ConnectionFactory, queue: Queue
) -> None:
    """Many threads that begin at once use one factory, one connection and one destination, and all is in order."""
    begin = threading.Barrier(THREADS)

    def work(shared: Connection, number: int) -> list[str]:
        begin.wait(20)
        with kjms_factory.create_connection() as own:
            shared.start()
            own.start()
            for connection in (shared, own):
                session = connection.create_session()
                producer = session.create_producer(queue)
                for count in range(EACH):
                    producer.send(session.create_text_message(f"{number} {connection is own} {count}"))
                assert connection.meta_data.jms_major_version == 2
                session.close()
            consumer = shared.create_session().create_consumer(queue)
            received = [text(consumer.receive(WAIT_MS)) for _ in range(2 * EACH)]
            consumer.close()
            shared.stop()
            shared.start()
            return received

    with kjms_factory.create_connection() as shared, ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(lambda number: work(shared, number), range(THREADS)))
    received = sorted(name for result in results for name in result)
    assert received == sorted(
        f"{number} {is_own} {count}" for number in range(THREADS) for is_own in (False, True) for count in range(EACH)
    )


def shared(
    factory: ConnectionFactory,
    queue: Queue,
    consumers: int,
    count: int,
    takes_long: Callable[[int], bool] = lambda number: False,
) -> list[list[int]]:
    """Share *count* numbered messages among so many consumers, in threads; return what each got: all, once, in order.

    A consumer does nothing but receive; with a message that *takes_long*, which the last one may not, it is busy until
    all others have come.
    """
    with factory.create_connection() as connection, ThreadPoolExecutor(consumers) as pool:
        sessions = [connection.create_session(Session.DUPS_OK_ACKNOWLEDGE) for _ in range(consumers)]
        opened = [session.create_consumer(queue) for session in sessions]
        left, done, lock = sum(not takes_long(number) for number in range(count)), threading.Event(), threading.Lock()

        def work(consumer: MessageConsumer) -> list[int]:
            nonlocal left
            received: list[int] = []
            while not done.is_set() and (message := consumer.receive(WAIT_MS)) is not None:
                received.append(int(text(message)))
                if takes_long(received[-1]):
                    assert done.wait(WAIT_MS / 1000)
                    continue
                with lock:
                    left -= 1
                    if left == 0:
                        done.set()
            return received

        results = [pool.submit(work, consumer) for consumer in opened]
        with connection.create_session(Session.SESSION_TRANSACTED) as sender:
            send(sender, queue, *range(count))
            sender.commit()
        connection.start()
        assert done.wait(WAIT_MS / 1000)
        for consumer in opened:
            consumer.close()
        received = [result.result(20) for result in results]
    assert sorted(number for numbers in received for number in numbers) == [*range(count)]
    for numbers in received:
        assert numbers == sorted(numbers)
    return received


def test_consumers_that_take_as_fast_as_they_can_share_evenly(kjms_factory: ConnectionFactory, queue: Queue) -> None:
    """Of many consumers in threads that do nothing but receive, each gets a good part of its share; none is lost."""
    received = shared(kjms_factory, queue, CONSUMERS, CONSUMERS * SHARE)
    assert min(map(len, received)) >= SHARE / 10


def test_a_quick_consumer_that_stops_to_work_holds_no_message_up(kjms_factory: ConnectionFactory, queue: Queue) -> None:
    """Consumers that took messages quickly get one that takes long: the others get all that is behind it, in order."""
    received = shared(kjms_factory, queue, 6, 2_000, takes_long=lambda number: number % 500 == 250)
    assert sum(bool(numbers) and numbers[-1] % 500 == 250 for numbers in received) == 4
