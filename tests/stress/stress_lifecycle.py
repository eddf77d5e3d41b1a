"""All lifecycle calls on shared objects, from many threads: nothing hangs, and nothing is left."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

from confluent_kafka.admin import AdminClient
from stress_process import Held, left_since, show_all_threads

from kjms import (
    Connection,
    ConnectionFactory,
    DestinationOptions,
    JMSContext,
    JMSException,
    MessageConsumer,
    Queue,
    Session,
    Topic,
)
from kjms.mapping.names import queue_group

STUCK_SECONDS = 60.0  # no single call takes so long
MOST_CONNECTIONS = 6  # that are open at the same time
MODES = [Session.SESSION_TRANSACTED, Session.AUTO_ACKNOWLEDGE, Session.CLIENT_ACKNOWLEDGE, Session.DUPS_OK_ACKNOWLEDGE]


class Pool:
    """Objects that all threads may use, close and forget."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.connections: list[Connection] = []
        self.contexts: list[JMSContext] = []
        self.sessions: list[Session] = []
        self.consumers: list[MessageConsumer] = []

    def any(self, chance: random.Random, objects: list[Any]) -> Any:
        with self.lock:
            return chance.choice(objects) if objects else None

    def add(self, objects: list[Any], made: Any, most: int = 30) -> None:
        with self.lock:
            objects.append(made)
            old = objects.pop(0) if len(objects) > most else None
        if old is not None:
            old.close()


class Worker(threading.Thread):
    """One of the threads."""

    def __init__(self, factory: ConnectionFactory, pool: Pool, places: list[Queue | Topic], seed: int) -> None:
        super().__init__(name=f"stress-{seed}")
        self.factory, self.pool, self.places = factory, pool, places
        self.chance = random.Random(seed)
        self.is_over = threading.Event()
        self.doing, self.since = "", time.monotonic()
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.calls: list[Callable[[], object]] = [
            self.connect, self.context, self.session, self.session, self.consumer, self.consumer, self.durable,
            self.start_delivery, self.start_delivery, self.stop_delivery, self.send, self.send, self.send_async,
            self.receive, self.receive, self.receive_long, self.listen, self.settle, self.settle, self.browse,
            self.temporary, self.read, self.close_consumer, self.close_session, self.close_context,
            self.close_connection,
        ]  # fmt: skip

    def run(self) -> None:
        while not self.is_over.is_set():
            call = self.chance.choice(self.calls)
            self.doing, self.since = call.__name__, time.monotonic()
            try:
                call()
                self.done[self.doing] += 1
            except JMSException as error:  # the others closed it, or are using it: as JMS says
                self.refused[type(error).__name__] += 1
            except Exception as error:
                self.wrong.append(f"{self.doing} raised {type(error).__name__}: {error}")
        self.doing = ""

    def one(self, objects: list[Any]) -> Any:
        return self.pool.any(self.chance, objects)

    # Making.

    def connect(self) -> None:
        self.pool.add(self.pool.connections, self.factory.create_connection(), MOST_CONNECTIONS)

    def context(self) -> None:
        within = self.one(self.pool.contexts) if self.chance.random() < 0.7 else None
        mode = self.chance.choice(MODES)
        made = self.factory.create_context(mode) if within is None else within.create_context(mode)
        self.pool.add(self.pool.contexts, made, 10)
        if self.chance.random() < 0.5:
            made.create_consumer(self.chance.choice(self.places)).receive(5)

    def session(self) -> None:
        connection = self.one(self.pool.connections)
        if connection is not None:
            self.pool.add(self.pool.sessions, connection.create_session(self.chance.choice(MODES)))

    def consumer(self) -> None:
        session = self.one(self.pool.sessions)
        if session is not None:
            selector = self.chance.choice([None, None, "number > 5"])
            self.pool.add(
                self.pool.consumers, session.create_consumer(self.chance.choice(self.places), selector, no_local=True)
            )

    def durable(self) -> None:
        session = self.one(self.pool.sessions)
        topics = [place for place in self.places if isinstance(place, Topic)]
        if session is not None and self.chance.random() < 0.2:
            self.pool.add(self.pool.consumers, session.create_shared_consumer(self.chance.choice(topics), "shared"))

    # Using.

    def start_delivery(self) -> None:
        connection = self.one(self.pool.connections)
        if connection is not None:
            connection.start()

    def stop_delivery(self) -> None:
        connection = self.one(self.pool.connections)
        if connection is not None:
            connection.stop()

    def send(self) -> None:
        session = self.one(self.pool.sessions)
        if session is not None:
            message = session.create_text_message("stress")
            message.set_int_property("number", self.chance.randrange(10))
            session.create_producer(self.chance.choice(self.places)).send(message)

    def send_async(self) -> None:
        session = self.one(self.pool.sessions)
        if session is not None:
            producer = session.create_producer(None)
            for _ in range(5):
                producer.send(session.create_message(), self.chance.choice(self.places), completion_listener=Told())
            if self.chance.random() < 0.5:
                producer.close()

    def receive(self) -> None:
        consumer = self.one(self.pool.consumers)
        if consumer is not None and consumer.receive(self.chance.choice([1, 5])) is None:
            consumer.receive_no_wait()

    def receive_long(self) -> None:
        consumer = self.one(self.pool.consumers)
        if consumer is not None:
            consumer.receive(200)

    def listen(self) -> None:
        consumer = self.one(self.pool.consumers)
        if consumer is not None:
            consumer.message_listener = self.chance.choice([None, lambda message: message.jms_message_id])

    def settle(self) -> None:
        session = self.one(self.pool.sessions)
        if session is not None:
            getattr(session, self.chance.choice(["commit", "rollback", "recover", "_acknowledge"]))()

    def browse(self) -> None:
        session = self.one(self.pool.sessions)
        queues = [place for place in self.places if isinstance(place, Queue)]
        if session is not None:
            with session.create_browser(self.chance.choice(queues)) as browser:
                for _ in zip(range(3), browser, strict=False):
                    pass

    def temporary(self) -> None:
        session = self.one(self.pool.sessions)
        if session is not None:
            queue = session.create_temporary_queue()
            session.create_producer(queue).send(session.create_message())
            queue.delete()

    def read(self) -> None:
        for objects in (self.pool.connections, self.pool.sessions, self.pool.consumers, self.pool.contexts):
            repr(self.one(objects))
        connection = self.one(self.pool.connections)
        if connection is not None:
            connection.exception_listener = lambda failure: None
            repr(connection.meta_data)

    # Closing.

    def close_consumer(self) -> None:
        self.close(self.pool.consumers)

    def close_session(self) -> None:
        self.close(self.pool.sessions)

    def close_context(self) -> None:
        self.close(self.pool.contexts)

    def close_connection(self) -> None:
        if self.chance.random() < 0.3:
            self.close(self.pool.connections)

    def close(self, objects: list[Any]) -> None:
        closing = self.one(objects)
        if closing is not None:
            closing.close()
            closing.close()
            with self.pool.lock:
                if closing in objects:
                    objects.remove(closing)


class Told:
    """A completion listener."""

    def on_completion(self, message: object) -> None:
        """Take it."""

    def on_exception(self, message: object, exception: Exception) -> None:
        """Take it."""


def lifecycle(servers: str, seconds: float, threads: int, seed: int) -> list[str]:
    """Make lifecycle calls for *seconds*; return what was not as it should be."""
    unique = uuid.uuid4().hex[:8]
    places: list[Queue | Topic] = [Queue(f"stress-{unique}-{n}") for n in range(2)] + [Topic(f"stress-{unique}-topic")]
    options = {places[0]._name: DestinationOptions(partitions=3)}
    factory = ConnectionFactory(servers, destinations=options, send_timeout=20_000)
    with factory.create_connection() as connection:  # what is made once for a process is there before
        connection.start()
        session = connection.create_session()
        for place in places:
            session.create_consumer(place).receive(10)
    before = Held.now()
    pool = Pool()
    workers = [Worker(factory, pool, places, seed + number) for number in range(threads)]
    for worker in workers:
        worker.start()
    end = time.monotonic() + seconds
    stuck: list[str] = []
    while time.monotonic() < end and not stuck:
        time.sleep(0.1)
        stuck = _stuck(workers)
    for worker in workers:
        worker.is_over.set()
    end = time.monotonic() + STUCK_SECONDS
    while any(worker.is_alive() for worker in workers) and time.monotonic() < end:
        time.sleep(0.02)
    stuck = _stuck(workers) + [f"{worker.name} does not end" for worker in workers if worker.is_alive()]
    if stuck:
        show_all_threads()
        return stuck
    closing = threading.Thread(target=_close, args=(pool,), name="stress-close", daemon=True)
    closing.start()
    closing.join(STUCK_SECONDS)
    if closing.is_alive():
        show_all_threads()
        return ["closing everything does not end"]
    problems = [wrong for worker in workers for wrong in worker.wrong]
    problems += left_since(before)
    problems += _members(servers, [queue_group(place._name) for place in places if isinstance(place, Queue)])
    done = sum((worker.done for worker in workers), Counter[str]())
    refused = sum((worker.refused for worker in workers), Counter[str]())
    print(
        f"lifecycle: {sum(done.values())} calls by {threads} threads in {seconds:g} s; refused: {dict(refused)}",
        flush=True,
    )
    missing = {call.__name__ for call in workers[0].calls} - done.keys()
    if missing and seconds > 30:
        problems.append(f"never done: {missing}")
    return problems


def _stuck(workers: list[Worker]) -> list[str]:
    now = time.monotonic()
    return [
        f"{worker.name}: {worker.doing} takes longer than {STUCK_SECONDS:.0f} s"
        for worker in workers
        if worker.doing and now - worker.since > STUCK_SECONDS
    ]


def _close(pool: Pool) -> None:
    for closing in (*pool.contexts, *pool.connections):
        try:
            closing.close()
        except JMSException as error:
            print(f"closing: {error}")


def _members(servers: str, groups: list[str]) -> list[str]:
    """Return which of *groups* have members left."""
    admin = AdminClient({"bootstrap.servers": servers})
    left = []
    for group, answer in admin.describe_consumer_groups(groups, request_timeout=20).items():
        members = answer.result().members
        if members:
            left.append(f"group {group} has {len(members)} members left")
    return left
