"""Send records with one idempotent Kafka producer, whose delivery reports a thread serves."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol

from kjms.engine.callback_threads import CallbackThreads
from kjms.engine.delivery_reports import failure_of
from kjms.engine.interrupts import interrupt_behind
from kjms.engine.kafka import KafkaError, KafkaException, KafkaMessage, jms_error, kafka_error, open_producer
from kjms.engine.report_service import IDLE_SECONDS, REST_SECONDS, ReportService
from kjms.engine.threads import start_thread
from kjms.engine.tuning import DEFAULTS, Tuning
from kjms.errors import JMSException, ResourceAllocationException
from kjms.mapping import KafkaRecord

__all__ = ["SMALL", "Publisher", "RecordSizes", "checked_sizes", "record_size"]

Report = Callable[["KafkaError | None", KafkaMessage], None]

_log = logging.getLogger("kjms.producer")

AGAIN_SECONDS: Final = 1.0  # between a fatal error and the next producer
POLL_SECONDS: Final = 0.05  # how soon a closing publisher is noticed while records are under way
BURST: Final = 32  # sends within STEP_SECONDS, after which a sender yields to the delivery reports
YIELD_EVERY: Final = 128  # sends: to yield costs two switches of threads
STEP_SECONDS: Final = 0.005
SMALL: Final = (
    1_000_000  # bytes of a body whose record any topic takes, unless it was given a lower limit than Kafka's own
)


class Informed(Protocol):
    """Waits for delivery reports, and is woken once for many of them."""

    def catch_up(self) -> None:
        """Look at what was reported; quick, and never raises."""


class RecordSizes:
    """Refuses records that are larger than their topics allow.

    Args:
        largest: Returns how many bytes a message to a topic may have; None: it is not known.
    """

    def __init__(self, largest: Callable[[str], int | None]) -> None:
        self._largest = largest
        self._limits: dict[str, int] = {}

    def check(self, topic: str, record: KafkaRecord) -> None:
        """Refuse a record that the broker would refuse: it would hold up other records.

        Raises:
            ResourceAllocationException: It is larger than the topic's max.message.bytes.
        """
        size = record_size(record)
        limit = self.limit(topic, size)
        if limit:
            raise ResourceAllocationException(
                f"send to {topic!r}: the message has {size} bytes with its headers, and the topic's max.message.bytes"
                f" allows {limit} (MSG_SIZE_TOO_LARGE); send it in parts, or raise the topic's limit",
                "MSG_SIZE_TOO_LARGE",
                KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)),
            )

    def limit(self, topic: str, size: int) -> int:
        """Return how many bytes a message to *topic* may have if that is less than *size*; 0: it takes the message.

        What the topic allowed last is enough to let a record pass; to refuse one it is asked for again.
        """
        if size <= self._limits.get(topic, 0):
            return 0
        limit = self._largest(topic)
        if limit is None:
            return 0
        self._limits[topic] = limit
        return limit if size > limit else 0


def record_size(record: KafkaRecord) -> int:
    """Return how many bytes *record* has, at the least."""
    key, value, headers, _ = record
    size = len(value or b"") + len(key or b"")
    return size + sum(len(name) + len(content or b"") for name, content in headers)


def checked_sizes(config: Mapping[str, Any], largest: Callable[[str], int | None]) -> RecordSizes | None:
    """Return what tells which records topics refuse; None: the producer with *config* compresses, so only Kafka can."""
    compression = config.get("compression.type") or config.get("compression.codec") or "none"
    return None if compression != "none" else RecordSizes(largest)


class Publisher:
    """Sends records, and reports whether they were delivered.

    Args:
        config: librdkafka's settings of the producer.
        thread_name: The name of the thread that serves delivery reports.
        send_timeout: Milliseconds after which a record that no broker has confirmed is given up.
        largest: Returns how many bytes a message to a topic may have; None: it is not known.
        tuning: Its times and limits.

    Attributes:
        callbacks: The threads that call completion listeners.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        thread_name: str,
        send_timeout: int,
        largest: Callable[[str], int | None] = lambda topic: None,
        tuning: Tuning = DEFAULTS,
    ) -> None:
        self._report_seconds = tuning.report_seconds
        self._send_timeout = send_timeout
        self._sizes = checked_sizes(config, largest)
        self._servers = config["bootstrap.servers"]
        self._config = {
            **config,
            "enable.idempotence": True,
            "message.timeout.ms": send_timeout,
            # Java, Spark and Python must agree where a key goes; librdkafka's own default does not.
            "partitioner": "murmur2_random",
        }
        try:
            self._producer = open_producer(self._config)
        except KafkaException as error:
            raise jms_error(error, f"connect to {self._servers}") from error
        self._fatal: KafkaException | None = None  # the error that ended the last producer
        self._informed: deque[Informed] = deque()  # they are to catch up
        self._service = ReportService()
        self._sent = 0
        self._is_yield_wanted = False  # whether the thread waits for a sender to yield
        # Of the threads that yield. Not an Event: Ctrl-C inside of one may leave its lock taken.
        self._yielding: SimpleQueue[threading.Lock] = SimpleQueue()
        self._end = _End()
        self.callbacks = CallbackThreads(f"{thread_name}-listeners")
        self._thread = start_thread(self._run, thread_name)

    @property
    def thread(self) -> threading.Thread | None:
        """Its thread; None: none was started yet."""
        return self._thread

    def _run(self) -> None:
        try:
            self._serve()
        finally:
            self._end.come()

    def _serve(self) -> None:
        """Serve delivery reports.

        Each is called under the interpreter's lock, so threads yield during sustained sends: to take the lock from
        them for each report would cost many times what a send does.
        """
        sent = 0
        while not self._is_done:
            if self._service.wait(POLL_SECONDS, self._has_work):
                try:
                    sent = self._poll(sent)
                finally:
                    self._service.end()
            for _ in range(len(self._informed)):
                self._informed.popleft().catch_up()
            self.callbacks.look()
            while not self._yielding.empty():
                self._yielding.get().release()

    def _has_work(self) -> bool:
        """Return whether the thread has something to do."""
        return bool(len(self._producer) or self._informed or self._end.is_wanted or self.callbacks.are_waiting)

    @property
    def _is_done(self) -> bool:
        """Whether it is closing, and nothing is under way any more, or has been for too long."""
        return self._end.is_wanted and (not len(self._producer) or time.monotonic() > self._end.latest)

    def _poll(self, before: int) -> int:
        """Have the reports called that there are, or that come soon.

        Args:
            before: How many records had been sent at the last poll.

        Returns:
            How many have been sent now.
        """
        sent, service = self._sent, self._service
        self._is_yield_wanted = sent - before >= BURST
        first = self._first_yielding() if self._is_yield_wanted else None
        try:
            trouble, service.trouble = service.trouble, None
            if trouble is not None:
                raise trouble
            if self._end.is_wanted:
                self._producer.flush(POLL_SECONDS)  # what lingers is sent at once
            else:
                self._producer.poll(0 if self._is_yield_wanted or not self._has_work() else POLL_SECONDS)
        except KafkaException as error:
            if kafka_error(error).fatal():
                self._replace(error)
            else:
                _log.warning("%s", error)
        if first is not None:
            self._yielding.put(first)
        return sent

    def _first_yielding(self) -> threading.Lock | None:
        """Wait until a thread yields, and return what it waits for; None: there is none for STEP_SECONDS."""
        try:
            return self._yielding.get(timeout=STEP_SECONDS)
        except Empty:
            return None

    def _reason_of(self, error: KafkaException) -> KafkaException:
        """Return why a send was refused: behind a fatal *error*, what the thread is about to find in its next poll."""
        if kafka_error(error).code() != KafkaError._FATAL:
            return error
        latest = time.monotonic() + IDLE_SECONDS
        while self._fatal is None and time.monotonic() < latest:
            self._service.call()
            time.sleep(REST_SECONDS / 10)
        return self._fatal or error

    def _yield(self) -> None:
        """Yield to the thread that serves delivery reports."""
        served = threading.Lock()
        served.acquire()
        self._yielding.put(served)
        served.acquire(timeout=STEP_SECONDS)

    def inform(self, informed: Informed) -> None:
        """Have *informed* catch up, in the publisher's thread, when the reports that there are have been called."""
        self._informed.append(informed)
        self._service.call()

    def _replace(self, error: KafkaException) -> None:
        """Make a new producer in the place of one that met a fatal error; what it had is reported as failed."""
        _log.error("sending to %s: %s", self._servers, error)
        self._fatal = error
        old = self._producer
        with contextlib.suppress(KafkaException):
            old.purge()
        while len(old) and not self._is_done:
            with contextlib.suppress(KafkaException):
                old.poll(POLL_SECONDS)
        again = time.monotonic() + AGAIN_SECONDS
        while time.monotonic() < again and not self._end.is_wanted:
            time.sleep(POLL_SECONDS)
        self._producer = open_producer(self._config)

    @property
    def backlog(self) -> int:
        """How many records are on their way."""
        return len(self._producer)

    def send(
        self, topic: str, partition: int, record: KafkaRecord, report: Report, *, is_awaited: bool = False
    ) -> None:
        """Hand *record* to Kafka; *report* is called once, by the thread that serves reports then.

        `failure_of` says what the report means, and `failure` what its error is in JMS.

        Waits while librdkafka's buffer is full.

        Args:
            topic: The Kafka topic.
            partition: Its partition; -1: the Kafka client chooses.
            record: What is written.
            report: Receives the delivery report.
            is_awaited: Whether the present thread is about to wait for the report.

        Raises:
            ResourceAllocationException: The buffer stayed full for the send timeout, or the record is too large.
            JMSException: The Kafka client refused it at once.
        """
        key, value, headers, timestamp = record
        if value is not None and len(value) > SMALL and self._sizes is not None:
            self._sizes.check(topic, record)
        while True:
            try:
                self._producer.produce(
                    topic, value, key, partition, headers=headers, timestamp=timestamp, on_delivery=report
                )
                break
            except BufferError:
                self._wait_for_room(topic)
            except KafkaException as error:
                raise _refused(self._reason_of(error), topic) from error
            except (TypeError, SystemError) as error:
                interrupt = interrupt_behind(error)
                if interrupt is None:
                    raise
                raise interrupt from None
        self._sent = sent = self._sent + 1
        if not is_awaited and self._service.is_resting:
            self._service.call()
        if self._is_yield_wanted and not sent % YIELD_EVERY:
            self._yield()

    def _wait_for_room(self, topic: str) -> None:
        """Wait until the buffer, which was full, has room: its thread is emptying it."""
        before = len(self._producer)
        deadline = time.monotonic() + self._send_timeout / 1000
        while len(self._producer) >= before:
            if time.monotonic() > deadline:
                raise ResourceAllocationException(
                    f"send to {topic!r}: the send buffer was full for {self._send_timeout} ms", "_QUEUE_FULL"
                )
            self._yield()

    def send_and_wait(self, topic: str, partition: int, record: KafkaRecord) -> None:
        """Hand *record* to Kafka and return when all in-sync replicas have it.

        Raises:
            JMSException: It was not confirmed; the text says why.
        """
        service = self._service
        answer = _Answer(service)
        try:
            # The Kafka client loses what handlers of signals raise in a report: they run in the main thread.
            is_alone = service.expect(answer, may_serve=threading.current_thread() is not threading.main_thread())
            self.send(topic, partition, record, answer, is_awaited=True)
            seconds = self.report_timeout
            if is_alone and service.take_over():
                seconds = self._serve_until(answer, seconds)
            else:
                service.call()
            if not answer.has_come:
                answer.wait(seconds)
        except BaseException as failure:  # also Ctrl-C, at any point of it
            service.abandon(answer)
            if isinstance(failure, TimeoutError):
                raise self._unconfirmed(topic, failure) from failure
            raise
        if answer.error is not None:
            raise self.failure(answer.error, topic)

    def _serve_until(self, answer: _Answer, seconds: float) -> float:
        """Serve reports, in the present thread, until *answer* has come, for *seconds*; return what is left of them."""
        producer, deadline = self._producer, time.monotonic() + seconds
        try:
            while not answer.has_come and time.monotonic() < deadline:
                producer.poll(POLL_SECONDS)
        except KafkaException as error:
            self._service.trouble = error
        self._service.give_up()
        return max(deadline - time.monotonic(), 0.0)

    def failure(self, error: KafkaError, topic: str) -> JMSException:
        """Return what a report's *error*, of a record for *topic*, is in JMS."""
        if error.code() == KafkaError._MSG_TIMED_OUT:
            return self._unconfirmed(topic, KafkaException(error))
        if error.code() in {KafkaError._FATAL, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT} and self._fatal:
            return _refused(self._fatal, topic)
        return _refused(error, topic)

    def _unconfirmed(self, topic: str, cause: Exception) -> JMSException:
        return JMSException(
            f"send to {topic!r}: not confirmed by {self._servers} within {self._send_timeout} ms",
            "_MSG_TIMED_OUT",
            cause,
        )

    @property
    def report_timeout(self) -> float:
        """Seconds after which each record that was sent has been reported."""
        return self._send_timeout / 1000 + self._report_seconds

    def close(self) -> None:
        """Wait for what is under way, at most for the send timeout, and end the thread."""
        self._end.want(self._send_timeout / 1000 + 1)
        self._service.call()
        if not len(self._producer):  # else a report might be called here, where Ctrl-C would break it off
            self._producer.flush(0)  # ends the thread's poll at once, where the client is in memory
        has_ended = self._end.wait(self.report_timeout)
        self.callbacks.close()
        if not has_ended:  # a completion listener of aio, say, does not return: it keeps the producer
            return
        self._thread.join()
        del self._producer  # its sockets are closed now, and not when the garbage is collected


def _refused(error: KafkaError | KafkaException, topic: str) -> JMSException:
    return jms_error(error, f"send to {topic!r}", to="Write", topic=topic)


class _End:
    """The end of a publisher's thread; Python takes a thread for ended if Ctrl-C comes in its `join`.

    Attributes:
        is_wanted: Whether the thread is to end.
        latest: When it is to end though not everything is reported, in seconds of the monotonic clock.
    """

    def __init__(self) -> None:
        self.is_wanted = False
        self.latest = math.inf
        self._has_come = False
        self._came = threading.Lock()
        self._came.acquire()

    def want(self, seconds: float) -> None:
        """Have the thread end, in *seconds* at the latest."""
        self.latest = time.monotonic() + seconds
        self.is_wanted = True

    def come(self) -> None:
        """Note that the thread does nothing more."""
        self._has_come = True
        self._came.release()

    def wait(self, seconds: float) -> bool:
        """Wait for it, for *seconds* at the most; return whether it has come."""
        if not self._has_come:
            self._came.acquire(timeout=seconds)
        return self._has_come


class _Answer:
    """The delivery report of one record, for the thread that waits for it; a lock is lighter than an Event."""

    __slots__ = ("_lock", "_service", "error", "has_come")

    def __init__(self, service: ReportService) -> None:
        self.error: KafkaError | None = None
        self._lock = threading.Lock()
        self._lock.acquire()
        self._service = service
        self.has_come = False

    def __call__(self, error: KafkaError | None, record: KafkaMessage) -> None:
        self.error = failure_of(error, record)
        self.has_come = True
        self._service.came(self)
        self._lock.release()

    def wait(self, seconds: float) -> None:
        """Return when it has come.

        Raises:
            TimeoutError: It did not within *seconds*.
        """
        if not self._lock.acquire(timeout=seconds):
            raise TimeoutError(f"no delivery report within {seconds:g} s")
