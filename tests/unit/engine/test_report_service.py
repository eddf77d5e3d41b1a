"""Which thread serves delivery reports: the one that waits for its own, or the publisher's."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kjms.destinations import Queue
from kjms.engine.kafka import KafkaError, KafkaException, KafkaMessage
from kjms.engine.publisher import Publisher
from kjms.engine.report_service import REST_SECONDS, ReportService
from kjms.errors import JMSException
from kjms.mapping import KafkaRecord
from kjms.testing import MemoryKafka
from tests.helpers import WAIT_SECONDS, Desk, Eventually, Intercepted, intercepted

RECORD = KafkaRecord(None, b"7 pens", [], 0)
SENDERS = 8
SENDS = 300


@pytest.fixture
def publisher(kafka: MemoryKafka, desk: Desk, queue: Queue) -> Iterator[Publisher]:
    """A publisher whose Kafka has the topic of the queue."""
    desk.send(queue, "the topic is made")
    publisher = Publisher({"bootstrap.servers": kafka.bootstrap_servers}, "publisher", send_timeout=10_000)
    yield publisher
    publisher.close()


class Reports:
    """What was reported of records, and by which threads."""

    def __init__(self) -> None:
        self.errors: list[KafkaError | None] = []
        self.threads: set[threading.Thread] = set()

    def __call__(self, error: KafkaError | None, record: KafkaMessage) -> None:
        self.errors.append(error)
        self.threads.add(threading.current_thread())


def test_a_lone_sender_serves_and_the_thread_rests() -> None:
    """While a sender asks again and again, the thread rests; what it may not rest for wakes it."""
    service, under_way = ReportService(), [0]
    assert service.wait(0, lambda: under_way[0])  # no sender asked
    assert not service.take_over()
    service.end()
    assert service.expect("answer")
    assert service.take_over()
    assert not service.wait(0.001, lambda: 1)  # a sender serves
    service.forget("answer")
    service.give_up()
    assert not service.wait(0.001, lambda: 0)  # it may ask again soon
    assert service.wait(0.001, lambda: 1)  # of what is under way, no thread serves the reports
    service.end()


def test_several_senders_leave_it_to_the_thread() -> None:
    """None of them serves while another one waits, nor soon after that."""
    service = ReportService()
    assert service.expect("first")
    assert not service.expect("second")
    service.forget("second")
    service.forget("first")
    assert not service.expect("third")
    assert service.wait(0.001, lambda: 0)


def test_who_still_waits_is_passed_on_to_the_thread() -> None:
    """A thread that rests is called when the sender that served has its report, and another one still waits."""
    service, serves = ReportService(), threading.Event()
    service.expect("first")
    assert service.take_over()
    rested = threading.Event()

    def rest() -> None:
        rested.set()
        while not serves.is_set():
            if service.wait(WAIT_SECONDS, lambda: 1):
                serves.set()

    thread = threading.Thread(target=rest)
    thread.start()
    rested.wait(WAIT_SECONDS)
    service.expect("second")
    service.forget("first")
    service.give_up()
    assert serves.wait(WAIT_SECONDS)
    thread.join()


def test_a_sender_that_waits_serves_its_own_report(publisher: Publisher, queue: Queue, eventually: Eventually) -> None:
    """So no other thread has to wake it. What is sent without waiting is reported with it, or by the thread."""
    reports = Reports()

    def is_served_here() -> bool:
        publisher.send(queue.queue_name, 0, RECORD, reports)
        publisher.send_and_wait(queue.queue_name, 0, RECORD)
        return threading.current_thread() in reports.threads

    eventually(is_served_here)
    publisher.send(queue.queue_name, 0, RECORD, reports)
    eventually(lambda: publisher.backlog == 0)
    assert set(reports.errors) == {None}


def test_all_senders_get_their_reports(publisher: Publisher, queue: Queue, eventually: Eventually) -> None:
    """No sender waits for a report that another thread has served, and no report is called twice."""
    reports, failures = Reports(), list[BaseException]()

    def send(is_waiting: bool) -> None:
        try:
            for number in range(SENDS):
                if is_waiting:
                    publisher.send_and_wait(queue.queue_name, 0, RECORD)
                    time.sleep(REST_SECONDS / 10 * (number % 97 == 0))  # at times one is alone, and serves itself
                else:
                    publisher.send(queue.queue_name, 0, RECORD, reports)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=send, args=(number % 4 > 0,)) for number in range(SENDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert not any(thread.is_alive() for thread in threads)
    assert failures == []
    eventually(lambda: len(reports.errors) == SENDS * SENDERS // 4)
    assert publisher.backlog == 0
    assert set(reports.errors) == {None}


class Failing(Intercepted):
    """A producer one poll of which, by the test's thread, raises.

    Attributes:
        error: What it raises.
    """

    error: KafkaError | None = None

    def poll(self, seconds: float) -> int:
        error = self.error
        if error is not None and threading.current_thread() is threading.main_thread():
            self.error = None
            raise KafkaException(error)
        return int(self.inner.poll(seconds))


@pytest.mark.parametrize("is_fatal", [False, True])
def test_what_a_sender_meets_while_it_serves_is_the_threads(
    kafka: MemoryKafka,
    desk: Desk,
    queue: Queue,
    caplog: pytest.LogCaptureFixture,
    eventually: Eventually,
    is_fatal: bool,
) -> None:
    """After a fatal error the thread makes a new producer; any other it logs, and the sender has its report."""
    desk.send(queue, "the topic is made")
    made: list[Failing] = []

    def failing(inner: Any, config: Mapping[str, Any]) -> Failing:
        made.append(Failing(inner, config))
        return made[-1]

    with intercepted(kafka.bootstrap_servers, producer=failing):
        publisher = Publisher({"bootstrap.servers": kafka.bootstrap_servers}, "publisher", send_timeout=10_000)
        made[0].error = KafkaError(KafkaError._FATAL if is_fatal else KafkaError._TRANSPORT, "broken", is_fatal)
        deadline = time.monotonic() + WAIT_SECONDS
        while made[0].error is not None and time.monotonic() < deadline:
            with contextlib.suppress(JMSException):  # what was under way may be purged with the old producer
                publisher.send_and_wait(queue.queue_name, 0, RECORD)
        assert made[0].error is None
        eventually(lambda: "broken" in caplog.text and len(made) == 1 + is_fatal)
        publisher.send_and_wait(queue.queue_name, 0, RECORD)
        publisher.close()
