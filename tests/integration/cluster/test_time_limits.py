"""One of three brokers is silent, away or restarted: calls return within the limits that docs/cluster.md states."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient

from kjms import ConnectionFactory, JMSException, Queue, Session
from kjms.broker import LocalBroker
from kjms.mapping.names import queue_group
from tests.helpers import send, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

RECEIVE_MS = 1_000
LIMITS = {"receive": 12.0, "acknowledge": 20.0, "send": 11.0, "commit": 60.0, "rollback": 20.0, "close": 20.0}
"""Seconds, as the page states them for the defaults: that of receive for RECEIVE_MS, that of send for send_timeout."""
MESSAGES = 10_000
WORKED = ("receive", "acknowledge", "commit", "rollback", "send")


@contextlib.contextmanager
def paused(cluster: LocalBroker, node: int) -> Iterator[None]:
    cluster.pause(node)
    yield
    cluster.resume(node)


@contextlib.contextmanager
def stopped(cluster: LocalBroker, node: int) -> Iterator[None]:
    cluster.stop(node)
    yield
    cluster.start(node)


@contextlib.contextmanager
def restarted(cluster: LocalBroker, node: int) -> Iterator[None]:
    cluster.stop(node)
    cluster.start(node)
    yield


class Calls:
    """Calls of several threads, how long each took at most, and how often one did what it was made for."""

    def __init__(self) -> None:
        self.longest: dict[str, float] = defaultdict(float)
        self.done: dict[str, int] = defaultdict(int)
        self.has_ended = threading.Event()
        self._threads: list[threading.Thread] = []

    def timed(self, name: str, call: Callable[[], object]) -> object:
        begun = time.monotonic()
        try:
            result = call()
        except JMSException:
            return None
        else:
            self.done[name] += 1
            return result
        finally:
            self.longest[name] = max(self.longest[name], time.monotonic() - begun)

    def again_and_again(self, name: str, work: Callable[[], object]) -> None:
        def run() -> None:
            while not self.has_ended.is_set():
                work()

        self._threads.append(threading.Thread(target=run, name=name))
        self._threads[-1].start()

    def end(self) -> None:
        self.has_ended.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.parametrize("fault", [paused, stopped, restarted])
def test_calls_keep_their_limits(
    cluster: LocalBroker, queue: Queue, fault: Callable[..., contextlib.AbstractContextManager[None]]
) -> None:
    """The broker is the coordinator of the queue's group; calls are under way when it goes, and work without it."""
    calls = Calls()
    with ConnectionFactory(cluster.bootstrap_servers).create_connection() as connection:
        connection.start()
        with connection.create_session(Session.SESSION_TRANSACTED) as loading:
            send(loading, queue, *range(MESSAGES))
            loading.commit()
        sending = connection.create_session()
        producer = sending.create_producer(queue)
        auto = connection.create_session(Session.AUTO_ACKNOWLEDGE).create_consumer(queue)
        client = connection.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(queue)
        transacted = connection.create_session(Session.SESSION_TRANSACTED)
        source, target = transacted.create_consumer(queue), transacted.create_producer(Queue(f"{queue.queue_name}-to"))

        def acknowledge() -> None:
            message = calls.timed("receive", lambda: client.receive(RECEIVE_MS))
            if message is not None:
                calls.timed("acknowledge", message.acknowledge)  # type: ignore[attr-defined]

        def move() -> None:
            if calls.timed("receive", lambda: source.receive(RECEIVE_MS)) is not None:
                target.send(transacted.create_text_message("moved"))
                is_turn = calls.done["commit"] > 4 * calls.done["rollback"]
                calls.timed(*("rollback", transacted.rollback) if is_turn else ("commit", transacted.commit))

        def work_goes_on() -> None:
            before = dict(calls.done)
            wait_for(lambda: all(calls.done[name] > before.get(name, 0) + 3 for name in WORKED), 90)

        calls.again_and_again("auto", lambda: calls.timed("receive", lambda: auto.receive(RECEIVE_MS)))
        calls.again_and_again("client", acknowledge)
        calls.again_and_again("transacted", move)
        calls.again_and_again(
            "sending", lambda: calls.timed("send", lambda: producer.send(sending.create_text_message("more")))
        )
        work_goes_on()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        group = queue_group(queue.queue_name)
        node = admin.describe_consumer_groups([group], request_timeout=20)[group].result().coordinator.id
        with fault(cluster, node):
            work_goes_on()
        work_goes_on()
        calls.end()
        calls.timed("close", connection.close)
    assert {name: took for name, took in calls.longest.items() if took > LIMITS[name]} == {}
