"""A Kafka that is slow, out of reach, or gone: which calls wait, what is reported, and what calls raise."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

import psutil
import pytest

from kjms import (
    Connection,
    ConnectionFactory,
    DeliveryMode,
    JMSException,
    Queue,
    Session,
    Topic,
)
from kjms.broker import LocalBroker
from kjms.testing.engine import statistics
from tests.helpers import NOTHING_MS, NOTHING_SECONDS, WAIT_MS, WAIT_SECONDS, Completions, Eventually, pause, send, text


@pytest.mark.requirement(
    "JMS-3.4.11-13", "JMS-4.6.1-2", "JMS-4.6.2.1-1", "JMS-4.6.2.3-2", "JMS-4.6.2.4-3", "JAK-close-11",
    "JAK-close-12", "JAK-close-13",
)  # fmt: skip
def test_a_message_counts_as_sent_when_kafka_has_confirmed_it(breakable_broker: LocalBroker, queue: Queue) -> None:
    """Until then no listener is called, and no close or send returns, but for those of NON_PERSISTENT messages."""
    completions = Completions()
    completions.may_return.clear()
    with ConnectionFactory(breakable_broker.bootstrap_servers).create_connection() as connection:
        connection.start()
        session, patient = connection.create_session(), connection.create_session()
        producer, waits = session.create_producer(queue), patient.create_producer(queue)
        send(patient, queue, "before")  # the clients know their way
        pid = breakable_broker.pid
        assert pid is not None
        with ThreadPoolExecutor(2) as pool:
            pause(pid)
            try:
                for name in "ab":
                    producer.send(session.create_text_message(name), completion_listener=completions)
                closing = pool.submit(session.close)
                sending = pool.submit(waits.send, patient.create_text_message("c"))
                with pytest.raises(FutureTimeoutError):
                    sending.result(NOTHING_SECONDS)
                hasty = connection.create_session()  # closed with the connection: that waits for what it sends
                hasty.create_producer(queue).send(hasty.create_text_message("d"), delivery_mode=1)
                assert not closing.done()
                assert not completions.called.is_set()
            finally:
                os.kill(pid, signal.SIGCONT)
            sending.result(WAIT_SECONDS)
            assert completions.called.wait(WAIT_SECONDS)
            with pytest.raises(FutureTimeoutError):  # the sends are through, and the listener is not
                closing.result(NOTHING_SECONDS)
            completions.may_return.set()
            closing.result(WAIT_SECONDS)
        consumer = patient.create_consumer(queue)
        received = [consumer.receive(WAIT_MS) for _ in range(5)]
        ids = {text(message): message.jms_message_id for message in received if message is not None}
        assert [(text(m), m.jms_message_id) for m in completions.sent] == [(name, ids[name]) for name in "ab"]
        assert all(m.jms_message_id and m.jms_destination == queue and m.jms_timestamp > 0 for m in completions.sent)
        assert set(ids) == {"before", "a", "b", "c", "d"}


def cut_connections(broker: LocalBroker) -> int:
    """Cut each connection of this process to *broker*, as a network does; return how many there were."""
    port = int(broker.bootstrap_servers.rpartition(":")[2])
    count = 0
    for each in psutil.Process().net_connections("tcp"):
        if each.raddr and each.raddr.port == port and each.status == psutil.CONN_ESTABLISHED:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(each.fd)) as same:  # closed by now, perhaps
                same.shutdown(socket.SHUT_RDWR)
                count += 1
    return count


@pytest.mark.requirement("JMS-4.3.8-4", "NEV-187", "NET-421")
def test_a_connection_that_is_cut_is_made_anew_without_a_report(
    breakable_broker: LocalBroker, queue: Queue, eventually: Eventually
) -> None:
    """What can be repaired is repaired: messages flow again both ways, and the exception listener gets nothing."""
    told: list[JMSException] = []
    with ConnectionFactory(breakable_broker.bootstrap_servers).create_connection() as connection:
        connection.exception_listener = told.append
        connection.start()
        session, heard = connection.create_session(), []
        connection.create_session().create_consumer(queue).message_listener = lambda m: heard.append(text(m))
        send(session, queue, "before")
        eventually(lambda: heard == ["before"])
        assert cut_connections(breakable_broker) > 0
        # The Kafka client says that all brokers are down; so may another one of the engine.
        eventually(lambda: statistics(connection).disconnections)
        send(session, queue, "after")
        eventually(lambda: heard == ["before", "after"])
        eventually(lambda: not any(name.endswith("-outage") for name in statistics(connection).threads))
        assert not statistics(connection).is_cluster_lost
        assert told == []


@pytest.mark.requirement("JMS-4.4.13-1", "JMS-4.7-3", "NEV-246")
def test_what_is_sent_through_cut_connections_arrives_once(
    breakable_broker: LocalBroker, queue: Queue, eventually: Eventually
) -> None:
    """What is under way when its connection is cut is sent again, and is not there twice; in either delivery mode."""
    count, cuts = 2_000, 5
    with ConnectionFactory(breakable_broker.bootstrap_servers).create_connection() as connection:
        connection.start()
        with connection.create_session() as session, session.create_producer(queue) as producer:
            completions = Completions()
            for number in range(count):
                message = session.create_text_message(str(number))
                mode = DeliveryMode.PERSISTENT if number % 2 else DeliveryMode.NON_PERSISTENT
                producer.send(message, delivery_mode=mode, completion_listener=completions)
                if number % (count // cuts) == count // cuts // 2:
                    eventually(lambda: cut_connections(breakable_broker))
        assert completions.failed == []
        assert completions.texts == [str(number) for number in range(count)]
        consumer = connection.create_session(Session.DUPS_OK_ACKNOWLEDGE).create_consumer(queue)
        received = [text(consumer.receive(WAIT_MS)) for _ in range(count)]
        assert received == [str(number) for number in range(count)]
        assert consumer.receive(100) is None


@pytest.mark.requirement("JMS-4.7-4", "NEV-262")
def test_a_killed_broker_neither_loses_nor_doubles_a_persistent_message(
    breakable_broker: LocalBroker, queue: Queue
) -> None:
    """What was sent before the kill comes after it, once; what was acknowledged before it does not."""
    numbers = [str(number) for number in range(20)]
    with ConnectionFactory(breakable_broker.bootstrap_servers).create_connection() as connection:
        connection.start()
        session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        send(session, queue, *numbers)
        consumer = session.create_consumer(queue)
        received = [consumer.receive(WAIT_MS) for _ in range(7)]
        assert received[-1] is not None
        received[-1].acknowledge()
        breakable_broker.kill()
        breakable_broker.start()
        assert [text(message) for message in received] == numbers[:7]
        waiting = numbers[7:]
        while waiting:  # a broker that is away too long costs the partition: what was not acknowledged comes again
            received = [consumer.receive(WAIT_MS) for _ in waiting]
            assert [text(message) for message in received] == waiting
            assert consumer.receive(NOTHING_MS) is None
            with contextlib.suppress(JMSException):
                received[-1].acknowledge()  # type: ignore[union-attr]
                waiting = []
        assert consumer.receive_no_wait() is None


@pytest.mark.requirement(
    "JAK-createBrowser-3", "JAK-createConsumer-4", "JAK-createProducer-5", "JMS-4.3.8-6", "NET-417", "NET-418",
    "NET-420", "NEV-184",
)  # fmt: skip
def test_when_kafka_is_gone_calls_raise_and_the_exception_listener_is_told(
    breakable_broker: LocalBroker, connection: Connection, queue: Queue, eventually: Eventually
) -> None:
    """Calls raise a JMSException; the exception listener gets it and may do what it likes; other connections do not."""
    unknown = Queue(f"{queue.queue_name}-unknown")
    factory = ConnectionFactory(breakable_broker.bootstrap_servers, send_timeout=1_000)
    told: list[tuple[JMSException, str]] = []
    told_elsewhere: list[JMSException] = []
    done: list[object] = []
    connection.exception_listener = told_elsewhere.append
    with factory.create_connection() as calls, factory.create_connection() as listens:
        for each in (calls, listens):
            assert each.exception_listener is None
            each.start()
        elsewhere = connection.create_session()

        def on_exception(exception: JMSException) -> None:
            told.append((exception, threading.current_thread().name))
            try:
                send(elsewhere, queue, "lost a connection")
                with pytest.raises(JMSException):
                    send(listens.create_session(), queue, "not sent")
                done.append(listens.exception_listener)
                listens.close()
                done.append("closed")
            except BaseException as error:
                done.append(error)

        listens.exception_listener = on_exception
        assert listens.exception_listener is on_exception
        listens.create_session().create_consumer(Topic(f"{queue.queue_name}-topic")).message_listener = print
        sessions = [calls.create_session() for _ in range(4)]
        send(sessions[0], queue, "a")
        breakable_broker.kill()
        attempts: list[Callable[[], object]] = [
            lambda: sessions[0].create_producer(unknown),
            lambda: sessions[1].create_consumer(unknown),
            lambda: sessions[2].create_browser(unknown),
            lambda: send(sessions[3], queue, "not sent"),
        ]
        with ThreadPoolExecutor(len(attempts)) as pool:
            failures = [attempt.exception(WAIT_SECONDS) for attempt in [pool.submit(attempt) for attempt in attempts]]
        assert [isinstance(failure, JMSException) for failure in failures] == [True] * len(attempts)
        eventually(lambda: "closed" in done)
        assert done == [on_exception, "closed"]
        ((exception, thread),) = told
        assert type(exception) is JMSException
        assert breakable_broker.bootstrap_servers in str(exception)
        assert exception.error_code == "_ALL_BROKERS_DOWN"
        assert thread != threading.current_thread().name
        assert told_elsewhere == []
        assert text(elsewhere.create_consumer(queue).receive(WAIT_MS)) == "lost a connection"


STARVED = """
import resource, sys
import psutil
from kjms import ConnectionFactory, ResourceAllocationException
open_now = psutil.Process().num_fds()
for spare in range(8, 0, -1):  # the clients open pipes, too, before they open sockets
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + spare, open_now + spare))
    try:
        ConnectionFactory(sys.argv[1]).create_connection().close()
    except ResourceAllocationException as error:
        print(error)
        break
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits are those of POSIX")
@pytest.mark.requirement("NET-44")
def test_a_connection_without_sockets_says_that_resources_are_missing(kjms_broker: Any) -> None:
    """A process that may open no more sockets gets that error at once, not that no broker answers."""
    starved = subprocess.run(
        [sys.executable, "-c", STARVED, kjms_broker.bootstrap_servers],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Too many open files" in starved.stdout, starved
