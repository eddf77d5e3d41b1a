"""Delayed messages are served by one process at a time, while it uses the destination, and another one after it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kjms import Queue
from kjms.mapping.delayed import CANCEL, noted
from kjms.mapping.names import delayed
from kjms.testing.engine import engine_of, statistics, tuned
from tests.helpers import (
    NOTHING_MS,
    SHORT_SESSION,
    WAIT_MS,
    Eventually,
    delete_topic,
    make_again,
    pause,
    text,
    texts,
)

DAY = 86_400_000

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(kjms_broker: Any, queue: Queue) -> Iterator[Start]:
    """Start other programs that use the queue; returns when they serve its delayed messages."""
    started: list[subprocess.Popen[str]] = []

    def run(role: str, *rest: str) -> subprocess.Popen[str]:
        program = str(Path(__file__).parent / "other_program.py")
        command = [sys.executable, program, role, kjms_broker.bootstrap_servers, queue.queue_name, *rest]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


def serves(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    return process.stdout.readline() == "serves\n"


@pytest.mark.requirement("JMS-3.4.13-5")
def test_another_process_takes_over_from_one_that_was_killed(desk: Any, queue: Queue, start: Start) -> None:
    """After kill -9 of the process that serves them, what was due meanwhile comes from another one, each once."""
    names = [f"{number}" for number in range(50)]
    process = start("send", "300", *names)
    assert serves(process)
    consumer = desk.connect(kafka=SHORT_SESSION).create_session().create_consumer(queue)
    process.kill()
    process.wait()
    assert texts(consumer, 50) == names
    assert consumer.receive(NOTHING_MS) is None


@pytest.mark.requirement("JMS-3.4.13-5")
def test_a_process_that_slept_moves_nothing_twice(desk: Any, queue: Queue, start: Start) -> None:
    """A process that was stopped, and whose part others took over, moves nothing that they have moved."""
    names = [f"{number}" for number in range(50)]
    process = start("send", "700", *names)
    assert serves(process)
    pause(process.pid)
    try:
        consumer = desk.connect(kafka=SHORT_SESSION).create_session().create_consumer(queue)
        assert texts(consumer, 50) == names
    finally:
        process.send_signal(signal.SIGCONT)
    process.communicate()  # it ends in order
    assert consumer.receive(NOTHING_MS) is None
    assert len(desk.records(queue.queue_name)) == 50


def test_a_clock_that_is_set_counts_at_once(desk: Any, served: Any, queue: Queue, eventually: Eventually) -> None:
    """Due is what the clock of the serving process says now, whatever it said before."""
    ahead = [0.0]
    with tuned(wall_clock=lambda: time.time() + ahead[0]):
        connection = desk.connect()
    consumer = connection.create_session().create_consumer(queue)
    desk.send(queue, "tomorrow", delivery_delay=DAY, by=connection.create_session())
    eventually(lambda: (found := served(queue, connection)) and found.waiting == 1)
    assert consumer.receive(NOTHING_MS) is None
    ahead[0] = DAY / 1000
    assert texts(consumer, 1) == ["tomorrow"]


def test_a_process_that_ends_hands_over(desk: Any, queue: Queue, start: Start) -> None:
    """A program that sent a delayed message and ended leaves it to the consumers of the queue."""
    consumer = desk.connect(kafka=SHORT_SESSION).create_session().create_consumer(queue)
    process = start("send", "1500", "left behind")
    assert serves(process)
    process.communicate()
    assert process.returncode == 0
    assert texts(consumer, 1) == ["left behind"]


def test_a_consumer_finds_messages_that_wait_already(desk: Any, queue: Queue, start: Start) -> None:
    """A process that begins to consume serves waiting messages; one that consumes already finds them, too."""
    with tuned(delayed_check_seconds=0.2):
        connection = desk.connect(is_apart=True)
    consumer = connection.create_session().create_consumer(queue)  # there is nothing yet
    desk.connect(is_apart=True, kafka=SHORT_SESSION).close()
    with tuned(delayed_check_seconds=60.0):  # the sender itself serves nothing meanwhile
        sender = desk.connect(is_apart=True)
    desk.send(queue, "served by the consumer", by=sender.create_session(), delivery_delay=1_500)
    sender.close()
    assert texts(consumer, 1) == ["served by the consumer"]


def test_serving_ends_with_its_use(desk: Any, served: Any, queue: Queue, eventually: Eventually) -> None:
    """When the last consumer is gone, serving ends, with its threads; with the next one it begins again."""
    sender = desk.connect(is_apart=True)
    desk.send(queue, "first", by=sender.create_session(), delivery_delay=1)
    sender.close()
    with tuned(delayed_check_seconds=0.1, grace_seconds=0.1):
        connection = desk.connect(is_apart=True)
    session = connection.create_session()
    consumer = session.create_consumer(queue)
    eventually(lambda: served(queue, connection))
    assert texts(consumer, 1) == ["first"]
    consumer.close()
    eventually(lambda: served(queue, connection) is None)
    eventually(lambda: f"kjms-schedule-{queue.queue_name}" not in statistics(connection).threads)
    again = session.create_consumer(queue)
    eventually(lambda: served(queue, connection))
    desk.send(queue, "second", by=session, delivery_delay=50)
    assert texts(again, 1) == ["second"]
    connection.close()
    assert not [thread for thread in threading.enumerate() if thread.name == f"kjms-schedule-{queue.queue_name}"]


def test_partitions_are_shared_among_processes(desk: Any, served: Any, queue: Queue, eventually: Eventually) -> None:
    """Two processes serve a queue's partitions together while messages become due; none is lost, or comes twice."""
    first, second = (desk.connect(is_apart=True, partitions=4, ordering="none") for _ in range(2))
    session = first.create_session()
    texts = {f"{number}" for number in range(300)}
    producer = session.create_producer(queue)
    for number, name in enumerate(sorted(texts)):
        producer.send(session.create_text_message(name), delivery_delay=200 + 5 * number, delivery_mode=1)
    consumers = [each.create_session().create_consumer(queue) for each in (first, second)]
    eventually(lambda: served(queue, first))
    eventually(lambda: served(queue, second))
    got: list[str | None] = []
    deadline = time.monotonic() + WAIT_MS / 1000
    while len(got) < len(texts) and time.monotonic() < deadline:
        got += [text(message) for each in consumers if (message := each.receive(10)) is not None]
    assert sorted(filter(None, got)) == sorted(texts)
    assert not any(each.receive(NOTHING_MS) for each in consumers)
    records = desk.records(queue.queue_name)
    assert len(records) == len(texts)


def test_a_backlog_that_does_not_fit_into_memory(desk: Any, queue: Queue) -> None:
    """Of more messages than may be held those due first are, and all come at their times."""
    with tuned(delayed_held=40, delayed_held_each=40):
        connection = desk.connect(is_apart=True)
    session = connection.create_session()
    texts = [f"{number}" for number in range(400)]
    producer = session.create_producer(queue)
    start = time.monotonic()
    for place, name in enumerate(reversed(texts)):  # those due first were sent last
        delay = 1_500 - 3 * place - round((time.monotonic() - start) * 1_000)
        producer.send(session.create_text_message(name), delivery_delay=max(delay, 1), delivery_mode=1)
    consumer = session.create_consumer(queue)
    got = []
    for _ in texts:
        message = consumer.receive(WAIT_MS)
        assert message is not None
        assert time.time_ns() // 1_000_000 >= message.jms_delivery_time
        got.append(text(message))
    assert sorted(filter(None, got)) == sorted(texts)
    assert consumer.receive(NOTHING_MS) is None


def test_the_log_is_written_anew(desk: Any, queue: Queue, eventually: Eventually) -> None:
    """A message that waits long does not make the log grow without limit: it moves to its end, and still comes once."""
    hasty = {"delayed_retention_seconds": 0.2, "delayed_commit_seconds": 0.1}
    with tuned(delayed_slack=20, delayed_far_ms=500, **hasty):
        connection = desk.connect(is_apart=True)
    session = connection.create_session()
    consumer = session.create_consumer(queue)
    desk.send(queue, "patient", by=session, delivery_delay=3_000)
    names = [f"{number}" for number in range(50)]
    desk.send(queue, *names, by=session, delivery_delay=1, delivery_mode=1)
    assert texts(consumer, 50) == names
    eventually(lambda: b"patient" in {record.value() for record in desk.records(delayed(queue.queue_name))[-3:]})
    eventually(lambda: desk.records(delayed(queue.queue_name))[0].offset() > 0)
    assert texts(consumer, 1) == ["patient"]
    assert consumer.receive(NOTHING_MS) is None
    (record,) = [each for each in desk.records(queue.queue_name) if each.value() == b"patient"]
    assert dict(record.headers())["kjms-delayed"] == b"1;0;0"


def test_a_note_cancels(desk: Any, served: Any, queue: Queue, eventually: Eventually) -> None:
    """A note that asks for it has the owner of the partition settle messages that wait; others are not touched."""
    session = desk.session()
    desk.send(queue, "never", "tomorrow", by=session, delivery_delay=DAY)
    topic = delayed(queue.queue_name)
    note = noted(CANCEL, [0, 17])
    writer = Producer({"bootstrap.servers": desk.servers})
    writer.produce(topic, note.value, note.key, 0, headers=list(note.headers))
    assert writer.flush(20) == 0
    eventually(lambda: desk.records(topic)[-1].headers() == [("kjms-delayed", b"1;cancelled")])
    assert desk.records(topic)[-1].value() == b"[0]"
    eventually(lambda: (found := served(queue)) and found.waiting == 1)


def test_trouble_is_told_and_passes(desk: Any, queue: Queue, eventually: Eventually) -> None:
    """While the destination takes nothing, its delayed messages wait, and the exception listener gets the failure."""
    failures: list[Exception] = []
    with tuned(flush_seconds=0.3):
        connection = desk.connect()
    connection.exception_listener = failures.append
    session = connection.create_session()
    desk.send(queue, "makes it known", by=session, delivery_delay=1)
    eventually(lambda: desk.records(queue.queue_name))
    delete_topic(desk.servers, queue.queue_name)
    desk.send(queue, "patient", by=session, delivery_delay=1)
    eventually(lambda: failures)
    assert "late" in str(failures[0])
    admin = AdminClient({"bootstrap.servers": desk.servers})
    admin.create_topics([NewTopic(queue.queue_name, 1, 1)])[queue.queue_name].result()
    eventually(lambda: [record.value() for record in desk.records(queue.queue_name)] == [b"patient"])


def test_what_waits_in_a_topic_that_was_made_again_is_delivered(
    desk: Any, served: Any, queue: Queue, eventually: Eventually
) -> None:
    """What was settled of a former topic for delayed messages says nothing of the new one: none is left out."""
    failures: list[Exception] = []
    desk.connection.exception_listener = failures.append
    desk.send(queue, *(f"old {n}" for n in range(6)), delivery_delay=1)
    eventually(lambda: len(desk.records(queue.queue_name)) == 6)
    eventually(lambda: (found := served(queue)) and found.is_committed and not found.waiting)
    make_again(desk.servers, delayed(queue.queue_name))
    eventually(lambda: failures)
    assert "made again" in str(failures[0])
    desk.send(queue, *(f"new {n}" for n in range(3)), delivery_delay=1)
    eventually(lambda: len(desk.records(queue.queue_name)) == 9)
    assert [record.value() for record in desk.records(queue.queue_name)[6:]] == [b"new 0", b"new 1", b"new 2"]
    desk.send(queue, *(f"more {n}" for n in range(9)), delivery_delay=1)
    eventually(lambda: len(desk.records(queue.queue_name)) == 18)


def test_cancelling_leaves_it_to_the_owner(desk: Any, served: Any, queue: Queue, eventually: Eventually) -> None:
    """A program that cancels does not serve where another one does; what became due meanwhile is not cancelled."""
    desk.send(queue, "never", "tomorrow", delivery_delay=DAY)
    eventually(lambda: served(queue))
    other = desk.connect(is_apart=True)
    with engine_of(other).admin.delayed(queue.queue_name) as delayed:
        assert len(delayed.read()) == 2
        desk.send(queue, "soon", delivery_delay=1_500)
        entries = delayed.read()
        assert [entry.record.value() for entry in entries] == [b"soon", b"never", b"tomorrow"]
        eventually(lambda: desk.records(queue.queue_name))
        assert delayed.cancel(entries[:2]) == 1
        assert [entry.record.value() for entry in delayed.read()] == [b"tomorrow"]
    assert statistics(other).delayed == ()


def test_a_message_that_is_written_anew_is_cancelled_there(desk: Any, queue: Queue, eventually: Eventually) -> None:
    """Though a message moves to the end of the log while it is to be cancelled, it is cancelled."""
    with tuned(delayed_slack=20):
        session = desk.connect().create_session()
    consumer = session.create_consumer(queue)
    desk.send(queue, "never", "tomorrow", by=session, delivery_delay=DAY)
    other = desk.connect(is_apart=True)
    with engine_of(other).admin.delayed(queue.queue_name) as delayed:
        entries = delayed.read()[:1]
        names = [f"{number}" for number in range(40)]
        desk.send(queue, *names, by=session, delivery_delay=1, delivery_mode=1)
        assert texts(consumer, 40) == names
        eventually(lambda: {entry.place[1] for entry in delayed.read()}.isdisjoint({0, 1}))
        assert delayed.cancel(entries) == 1
        assert [entry.record.value() for entry in delayed.read()] == [b"tomorrow"]


def test_what_is_not_due_for_a_while_costs_no_clients(desk: Any, queue: Queue, eventually: Eventually) -> None:
    """A destination that nothing happens to has no thread and no Kafka client, until a message is due or comes."""
    hasty = {"delayed_quiet_seconds": 0.5, "delayed_commit_seconds": 0.1, "delayed_check_seconds": 0.1}
    with tuned(delayed_wake_ms=500, **hasty):
        connection = desk.connect(is_apart=True)
    session = connection.create_session()

    def rests() -> bool:
        found = statistics(connection)
        is_serving = f"kjms-schedule-{queue.queue_name}" in found.threads
        return not is_serving and all(each.is_resting for each in found.delayed)

    def is_known(count: int) -> bool:
        return sum(each.waiting for each in statistics(connection).delayed) == count

    desk.send(queue, "tomorrow", by=session, delivery_delay=DAY)
    eventually(lambda: is_known(1))
    eventually(rests)
    desk.send(queue, "in a while", by=session, delivery_delay=6_000)  # of this process, which knows at once
    eventually(lambda: is_known(2))
    eventually(rests)
    assert desk.records(queue.queue_name) == []
    eventually(lambda: [record.value() for record in desk.records(queue.queue_name)] == [b"in a while"])
    eventually(rests)
    other = desk.connect(is_apart=True)  # of another one, which ends before it is due
    desk.send(queue, "of another", by=other.create_session(), delivery_delay=3_000)
    other.close()
    eventually(lambda: len(desk.records(queue.queue_name)) == 2)
    eventually(rests)
    with engine_of(connection).admin.delayed(queue.queue_name) as delayed:
        entries = delayed.read()
        assert [entry.record.value() for entry in entries] == [b"tomorrow"]
        assert delayed.cancel(entries) == 1
    consumer = session.create_consumer(queue)
    assert texts(consumer, 2) == ["in a while", "of another"]
    desk.send(queue, "now", by=session, delivery_delay=50)
    assert texts(consumer, 1) == ["now"]
