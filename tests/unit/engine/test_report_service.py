"""Which thread serves delivery reports: the one that waits for its own, or the publisher's."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from kjms.destinations import Queue
from kjms.engine import report_service
from kjms.engine.kafka import KafkaError, KafkaException, KafkaMessage
from kjms.engine.publisher import Publisher
from kjms.engine.report_service import REST_SECONDS, ReportService
from kjms.errors import JMSException
from kjms.mapping import KafkaRecord
from kjms.testing import MemoryKafka
from tests.helpers import WAIT_SECONDS, Desk, Eventually, Intercepted, intercepted, interrupted_at, wait_for

T = TypeVar("T")

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


def in_another_thread(call: Callable[[], T]) -> T:
    """Return what *call* returns in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result(WAIT_SECONDS)


def not_in_the_main_thread(test: Callable[..., None]) -> Callable[..., None]:
    """Have *test* run in another thread: the main thread serves no reports."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(test, *arguments, **named).result()

    return run


def test_a_lone_sender_serves_and_the_thread_rests() -> None:
    """While a sender asks again and again, the thread rests; what it may not rest for wakes it."""
    service = ReportService()

    def serves(*, is_under_way: bool) -> bool:
        """Return whether the publisher's thread would serve now."""
        is_serving = service.wait(0.001, lambda: is_under_way)
        if is_serving:
            service.end()
        return is_serving

    assert service.wait(0, lambda: False)  # no sender asked
    assert not in_another_thread(service.take_over)
    service.end()
    assert service.expect("answer", may_serve=True)
    assert service.take_over()
    assert not in_another_thread(lambda: serves(is_under_way=True))  # a sender serves
    service.came("answer")
    service.give_up()
    assert not in_another_thread(lambda: serves(is_under_way=False))  # it may ask again soon
    assert in_another_thread(lambda: serves(is_under_way=True))  # no thread serves the reports of that


def test_several_senders_leave_it_to_the_thread() -> None:
    """None of them serves while another one waits, nor soon after that."""
    service = ReportService()
    assert service.expect("first", may_serve=True)
    assert not service.expect("second", may_serve=True)
    service.came("second")
    service.came("first")
    assert not service.expect("third", may_serve=True)
    assert service.wait(0.001, lambda: 0)


def test_who_still_waits_is_passed_on_to_the_thread() -> None:
    """A thread that rests is called when the sender that served has its report, and another one still waits."""
    service, serves = ReportService(), threading.Event()
    service.expect("first", may_serve=True)
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
    service.expect("second", may_serve=True)
    service.came("first")
    service.give_up()
    assert serves.wait(WAIT_SECONDS)
    thread.join()


class Watched(Intercepted):
    """A producer that notes which thread polled it last."""

    last: threading.Thread | None = None

    def poll(self, seconds: float) -> int:
        Watched.last = threading.current_thread()
        return int(self.inner.poll(seconds))


@pytest.fixture
def watched(kafka: MemoryKafka, desk: Desk, queue: Queue) -> Iterator[Publisher]:
    """The same, whose producer notes which thread polls."""
    desk.send(queue, "the topic is made")
    with intercepted(kafka.bootstrap_servers, producer=Watched):
        publisher = Publisher({"bootstrap.servers": kafka.bootstrap_servers}, "publisher", send_timeout=10_000)
        yield publisher
        publisher.close()


def is_served_here(publisher: Publisher, queue: Queue) -> bool:
    """Send, and return whether the present thread served its report."""
    publisher.send_and_wait(queue.queue_name, 0, RECORD)
    return Watched.last is threading.current_thread()


@not_in_the_main_thread
def test_a_sender_that_waits_serves_its_own_report(watched: Publisher, queue: Queue, eventually: Eventually) -> None:
    """So no other thread has to wake it. What is sent without waiting is reported by the publisher's thread soon."""
    eventually(lambda: is_served_here(watched, queue))
    reports = Reports()
    watched.send(queue.queue_name, 0, RECORD, reports)
    eventually(lambda: watched.backlog == 0)
    assert reports.errors == [None]
    assert Watched.last is watched.thread


def test_the_main_thread_serves_no_reports(watched: Publisher, queue: Queue) -> None:
    """Python runs the handlers of signals there, and the Kafka client loses what they raise in a report."""
    deadline = time.monotonic() + 4 * REST_SECONDS  # long enough for the publisher's thread to rest, if it did
    while time.monotonic() < deadline:
        assert not is_served_here(watched, queue)
    assert Watched.last is watched.thread


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


@not_in_the_main_thread
def test_an_interrupted_sender_leaves_the_reports_to_others(
    watched: Publisher, queue: Queue, eventually: Eventually
) -> None:
    """Wherever Ctrl-C comes, the next send is served, by its own thread or by the publisher's."""
    publisher = watched

    def is_sent_by_another() -> bool:
        sender = threading.Thread(target=publisher.send_and_wait, args=(queue.queue_name, 0, RECORD))
        sender.start()
        sender.join(WAIT_SECONDS)
        return not sender.is_alive()

    for number in itertools.count():
        eventually(lambda: is_served_here(publisher, queue))  # and the next one, too
        with interrupted_at(number) as came:
            publisher.send_and_wait(queue.queue_name, 0, RECORD)
        assert is_sent_by_another(), f"point {number}"
        if not came[0]:
            break
    assert number > 20


class Failing(Intercepted):
    """A producer one poll of which, by a sender, raises.

    Attributes:
        error: What it raises.
    """

    error: KafkaError | None = None

    def poll(self, seconds: float) -> int:
        error = self.error
        if error is not None and threading.current_thread().name != "publisher":
            self.error = None
            raise KafkaException(error)
        return int(self.inner.poll(seconds))


@pytest.mark.parametrize("is_fatal", [False, True])
@not_in_the_main_thread
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


class Polls(Intercepted):
    """A producer that counts the polls of its clients."""

    count = 0

    def poll(self, timeout: float) -> int:
        Polls.count += 1
        return int(self.inner.poll(timeout))


class Told:
    """What is notified that reports have come."""

    def __init__(self) -> None:
        self.caught_up = threading.Event()

    def catch_up(self) -> None:
        self.caught_up.set()


def test_an_idle_publisher_rests_until_something_is_to_be_done(
    kafka: MemoryKafka, desk: Desk, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records, waiting senders, sessions that want to be notified, and the end wake its thread; time alone does not."""
    monkeypatch.setattr(report_service, "IDLE_SECONDS", 3600.0)
    desk.send(queue, "the topic is made")
    with intercepted(kafka.bootstrap_servers, producer=Polls):
        publisher = Publisher({"bootstrap.servers": kafka.bootstrap_servers}, "publisher", send_timeout=10_000)
        reports, told = Reports(), Told()
        publisher.send(queue.queue_name, 0, RECORD, reports)
        wait_for(lambda: reports.errors)
        publisher.send_and_wait(queue.queue_name, 0, RECORD)
        threading.Event().wait(4 * REST_SECONDS)  # by then the thread rests
        before = Polls.count
        threading.Event().wait(4 * REST_SECONDS)
        assert Polls.count == before
        publisher.inform(told)
        assert told.caught_up.wait(WAIT_SECONDS)
        publisher.send(queue.queue_name, 0, RECORD, reports)
        wait_for(lambda: len(reports.errors) == 2)
        publisher.close()
    assert reports.errors == [None, None]
