"""Processes that consume, for the workloads that need several: ``-m benchmarks._process WHAT SERVERS QUEUE ...``."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import psutil
from confluent_kafka import Consumer

from benchmarks._least_select import LeastSelecting
from benchmarks._least_transact import transactional_producer
from kjms import ConnectionFactory, Queue, Session
from kjms.bench._reading import BATCH, consume, raw_consumer, read_message, taken
from kjms.bench._stage import Stage
from kjms.bench._workload import at_once
from kjms.mapping import decode
from kjms.mapping.relocated import original

__all__ = ["Process"]

SETTLE_SECONDS: Final = 12.0  # after which the start is over: groups are joined, and nothing has come for a while
IDLE_SECONDS: Final = 20.0
WAIT_SECONDS: Final = 120.0


class Process:
    """A program of this module that runs.

    Args:
        arguments: What it is to do.
    """

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, "-m", "benchmarks._process", *map(str, arguments)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def line(self) -> str:
        """Return the next line that it prints.

        Raises:
            RuntimeError: It ended, or printed none in time.
        """
        watch = threading.Timer(WAIT_SECONDS, self._process.kill)
        watch.start()
        try:
            assert self._process.stdout is not None
            line = self._process.stdout.readline().strip()
        finally:
            watch.cancel()
        if not line:
            raise RuntimeError(f"{self._process.args} ended, or printed nothing for {WAIT_SECONDS:g} s")
        return line

    def end(self) -> None:
        """Return when it has ended."""
        self._process.communicate(timeout=WAIT_SECONDS)


def share(servers: str, queue: str, selector: str, count: str) -> None:
    """Receive a first message, say so, receive *count* more and say so; *selector* may be empty."""
    with ConnectionFactory(servers).create_connection() as connection:
        session = connection.create_session(Session.DUPS_OK_ACKNOWLEDGE)
        consumer = session.create_consumer(Queue(queue), selector or None)
        connection.start()
        taken(consumer)
        print("ready", flush=True)
        for _ in range(int(count)):
            _read(taken(consumer))
        print("done", flush=True)


def _read(message: Any) -> None:
    _ = message.text, message.get_string_property("region"), message.get_int_property("amount")


def least_owner(servers: str, topic: str, target: str, selector: str, count: str) -> None:
    """Do it with what JMS asks, and nothing else: of *count* messages, *target* gets those that do not match."""
    with Stage(servers) as stage:
        consumer, producer = raw_consumer(stage, topic), transactional_producer(stage, topic)
    selecting = LeastSelecting(consumer, topic, producer, target, selector, read_message)
    selecting.run(1)
    print("ready", flush=True)
    selecting.run(int(count))
    print("done", flush=True)
    consumer.close()


def least_peer(servers: str, target: str, count: str) -> None:
    """Receive what *target* gets in this way."""
    with Stage(servers) as stage:
        consumer = raw_consumer(stage, target)
    print("ready", flush=True)
    destination = Queue(target)
    consume(
        consumer, int(count), BATCH, wait=False, read=lambda record: _read(decode(original(record)[0], destination))
    )
    print("done", flush=True)


def idle(servers: str, prefix: str, first: str, count: str) -> None:
    """Listen to *count* queues on which nothing comes; print the processor time in percent, and the threads."""
    with ConnectionFactory(servers).create_connection() as connection:
        for number in range(int(first), int(first) + int(count)):
            _listen(connection.create_session(), f"{prefix}{number}")
        connection.start()
        _watch()


def idle_together(servers: str, prefix: str, first: str, count: str) -> None:
    """Do the same in one session, whose listeners run one after another in one thread."""
    with ConnectionFactory(servers).create_connection() as connection:
        session = connection.create_session()
        for number in range(int(first), int(first) + int(count)):
            _listen(session, f"{prefix}{number}")
        connection.start()
        _watch()


def _listen(session: Session, name: str) -> None:
    session.create_consumer(Queue(name)).message_listener = read_message


def idle_raw(servers: str, prefix: str, first: str, count: str) -> None:
    """Poll as many consumers of the client library, with its own settings, in turn; print the same."""
    consumers = []
    for number in range(int(first), int(first) + int(count)):
        topic = f"{prefix}{number}"
        settings: dict[str, Any] = {"bootstrap.servers": servers, "group.id": topic, "enable.auto.commit": False}
        consumers.append(Consumer(settings))
        consumers[-1].subscribe([topic])
    is_over = threading.Event()

    def poll() -> None:
        while not is_over.is_set():
            for consumer in consumers:
                consumer.poll(0)
            is_over.wait(0.01)

    polling = threading.Thread(target=poll)
    polling.start()
    _watch()
    is_over.set()
    polling.join()
    for consumer in consumers:
        consumer.close()


def idle_alike(servers: str, prefix: str, first: str, count: str) -> None:
    """Poll as many consumers of the client library with kjms's settings, each in a thread; print the same."""
    is_over = threading.Event()
    topics = [f"{prefix}{number}" for number in range(int(first), int(first) + int(count))]
    with Stage(servers) as stage:
        settings = {topic: stage.consumer_settings(topic) for topic in topics}

    def poll(topic: str) -> None:
        consumer = Consumer(settings[topic])
        consumer.subscribe([topic])
        while not is_over.is_set():
            consumer.poll(0.5)
        consumer.close()

    polling = threading.Thread(target=at_once, args=([partial(poll, topic) for topic in topics],))
    polling.start()
    _watch()
    is_over.set()
    polling.join()


def _watch() -> None:
    this = psutil.Process()
    time.sleep(SETTLE_SECONDS)
    begin, before = time.monotonic(), sum(this.cpu_times()[:2])
    time.sleep(IDLE_SECONDS)
    seconds, used = time.monotonic() - begin, sum(this.cpu_times()[:2]) - before
    print(f"{100 * used / seconds} {this.num_threads()}", flush=True)


def main(arguments: Sequence[str]) -> None:
    """Do what the first of *arguments* names with the others."""
    programs = {
        "share": share,
        "least_owner": least_owner,
        "least_peer": least_peer,
        "idle": idle,
        "idle_together": idle_together,
        "idle_raw": idle_raw,
        "idle_alike": idle_alike,
    }
    programs[arguments[0]](*arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
