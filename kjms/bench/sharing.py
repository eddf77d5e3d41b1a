"""Workloads with many receivers of one queue in one process, beside a single one."""

from __future__ import annotations

import threading
from collections import deque
from functools import partial
from queue import SimpleQueue
from typing import Any, Final

from kjms import Queue, Session
from kjms.bench._reading import BATCH, position, raw_consumer, read_message, read_record, taken
from kjms.bench._stage import Stage
from kjms.bench._workload import Aim, Clock, Unit, at_once, workload

SESSIONS: Final = 16
CONSUMERS: Final = 64
PARTITIONS: Final = 4
TOGETHER: Final = 64  # messages that a thread takes before the next one
WAIT_MS: Final = 60_000


def _receive_together(stage: Stage, mode: int, sessions: int, partitions: int) -> tuple[float, list[int]]:
    """Return the messages per second of so many sessions, each in a thread of its own, and how many each of them got.

    A session begins with a message that does not count, and the clock starts when the first ones have theirs: those
    who come too late for a message get theirs as the others do.
    """
    topic = stage.topic(filled=stage.count + 1, partitions=partitions)
    left, shares = stage.count, [0] * sessions
    lock, done = threading.Lock(), threading.Event()

    def work(number: int, consumer: Any) -> None:
        nonlocal left
        while not done.is_set():
            message = consumer.receive(WAIT_MS)
            if message is None:  # it was closed: all messages are there, or time is up
                return
            read_message(message)
            with lock:
                shares[number] += 1
                left -= 1
                if left == 0:
                    done.set()

    with stage.connect() as connection:
        with connection.create_session(mode) as first, first.create_consumer(Queue(topic)) as consumer:
            connection.start()
            taken(consumer)
        connection.stop()
        consumers = [connection.create_session(mode).create_consumer(Queue(topic)) for _ in range(sessions)]
        threads = threading.Thread(
            target=at_once, args=([partial(work, *numbered) for numbered in enumerate(consumers)],), daemon=True
        )
        threads.start()
        with Clock() as clock:
            connection.start()
            if not done.wait(WAIT_MS / 1000):
                raise TimeoutError(f"{left} messages did not come")
        for consumer in consumers:
            consumer.close()
        threads.join()
    return stage.count / clock.seconds, shares


auto_sessions = workload(
    "receive-auto-sessions",
    f"receive, AUTO_ACKNOWLEDGE, {SESSIONS} sessions at once, beside one",
    Unit.MESSAGES_PER_SECOND,
    share=1 / 10,
    aim=Aim(8),
)


@auto_sessions.side("kjms")
def _(stage: Stage) -> float:
    return _receive_together(stage, Session.AUTO_ACKNOWLEDGE, SESSIONS, 1)[0]


@auto_sessions.side("kjms, one session")
def _(stage: Stage) -> float:
    return _receive_together(stage, Session.AUTO_ACKNOWLEDGE, 1, 1)[0]


@auto_sessions.side("raw, as many threads that share commits", is_baseline=False)
def _(stage: Stage) -> float:
    return _commit_together(stage, SESSIONS)


def _commit_together(stage: Stage, threads: int) -> float:
    """Return the messages per second of so many threads, each of which waits until its message is committed.

    A further thread commits, at once, for all that wait. The records were fetched before.
    """
    topic = stage.topic(filled=stage.count + 1)
    consumer = raw_consumer(stage, topic)
    records: deque[Any] = deque()
    while len(records) < stage.count:
        records += consumer.consume(BATCH, 1.0)
    waiting: SimpleQueue[tuple[Any, threading.Lock]] = SimpleQueue()

    def work() -> None:
        committed = threading.Lock()
        committed.acquire()
        while True:
            try:
                record = records.popleft()
            except IndexError:
                return
            read_record(record)
            waiting.put((record, committed))
            committed.acquire()

    working = threading.Thread(target=at_once, args=([work] * threads,), daemon=True)
    left = stage.count
    with Clock() as clock:
        working.start()
        while left:
            mine = [waiting.get()]
            while not waiting.empty():
                mine.append(waiting.get())
            last = max((record for record, _ in mine), key=lambda record: record.offset())
            consumer.commit(offsets=[position(last)], asynchronous=False)
            for _, committed in mine:
                committed.release()
            left -= len(mine)
    working.join()
    consumer.close()
    return stage.count / clock.seconds


many = workload(
    "consumers-64",
    f"{CONSUMERS} consumers of a queue with {PARTITIONS} partitions, beside one",
    Unit.MESSAGES_PER_SECOND,
    aim=Aim(0.95),
)


@many.side("kjms")
def _(stage: Stage) -> float:
    return _receive_together(stage, Session.DUPS_OK_ACKNOWLEDGE, CONSUMERS, PARTITIONS)[0]


@many.side("kjms, one consumer")
def _(stage: Stage) -> float:
    return _receive_together(stage, Session.DUPS_OK_ACKNOWLEDGE, 1, PARTITIONS)[0]


@many.side(f"kjms, one consumer, which {CONSUMERS} threads use in turn", is_baseline=False)
def _(stage: Stage) -> float:
    return _take_turns(stage, CONSUMERS, PARTITIONS)


def _take_turns(stage: Stage, threads: int, partitions: int) -> float:
    """Return the messages per second of so many threads, of which one at a time takes some from their only consumer.

    They do what consumers that rotate do, and nothing else: no other consumer may ask, work for long, or be closed.
    """
    topic = stage.topic(filled=stage.count + 1, partitions=partitions)
    left = stage.count
    turns = [threading.Semaphore(0) for _ in range(threads)]

    def work(number: int, consumer: Any) -> None:
        nonlocal left
        mine, following = turns[number], turns[(number + 1) % threads]
        try:
            while left:
                mine.acquire()
                for _ in range(min(left, TOGETHER)):
                    read_message(taken(consumer))
                    left -= 1
                following.release()
        except BaseException:
            left = 0
            following.release()
            raise

    with stage.connect() as connection:
        consumer = connection.create_session(Session.DUPS_OK_ACKNOWLEDGE).create_consumer(Queue(topic))
        connection.start()
        taken(consumer)
        with Clock() as clock:
            turns[0].release()
            at_once([partial(work, number, consumer) for number in range(threads)])
    return stage.count / clock.seconds


least = workload(
    "consumers-64-least",
    f"what the least served of {CONSUMERS} consumers gets, in even shares",
    Unit.EVEN_SHARES,
    aim=Aim(0.5, is_ratio=False),
)


@least.side("kjms")
def _(stage: Stage) -> float:
    shares = _receive_together(stage, Session.DUPS_OK_ACKNOWLEDGE, CONSUMERS, PARTITIONS)[1]
    return min(shares) / (stage.count / CONSUMERS)
