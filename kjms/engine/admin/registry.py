"""The registry: how the engines of all processes agree on names, by one Kafka topic that each of them reads.

An engine that changes something takes the lock of its name, reads the log up to there, writes, and releases the lock.
An engine that wants the place of another asks through the log itself whether that one lives: one that answers none of
several questions in a row, a second apart, is gone, and its locks and uses are removed. One question is enough where
its process ran on the same machine and has ended. No clock is compared with another machine's, and nothing is written
while nothing happens. An engine that only slept finds its claims removed when it reads on, and reports it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from kjms.engine.admin.claims import ALIVE, ASK, DEFINITION, LOCK, Claim, Claims, written_value
from kjms.engine.admin.own_keys import OwnKeys, Usage
from kjms.engine.interrupts import Condition
from kjms.engine.kafka import ConsumerPort, KafkaError, KafkaException, TopicPartition, jms_error, open_consumer
from kjms.engine.process import is_gone, this_process
from kjms.engine.publisher import Publisher
from kjms.engine.skipped import SkippedRecords
from kjms.engine.statistics import RegistryStatistics
from kjms.engine.threads import start_thread
from kjms.engine.tuning import DEFAULTS, Tuning
from kjms.errors import JMSException
from kjms.mapping import KafkaRecord
from kjms.mapping.internal import MalformedError
from kjms.mapping.names import REGISTRY

__all__ = ["LEASE_EXPIRED", "Registry"]

_log = logging.getLogger("kjms.registry")

LEASE_EXPIRED: Final = "lease expired: this process did not answer, and another process removed its claims"
ANSWER_SECONDS: Final = 1.0  # for each of them; an engine that is awake needs some milliseconds
TURN_SECONDS: Final = 0.05  # most locks are let go before it is worth asking for their holder
BUSY_SECONDS: Final = 30.0  # how long one waits for others that live and change the same thing
BATCH: Final = 1_000  # records taken from librdkafka at once
TICK_SECONDS: Final = 0.05  # how soon the thread notices that it may end


class Registry:
    """One engine's view on the registry, and its voice in it.

    A thread reads the log while the engine holds something in it or is changing something. Each such time the engine
    goes by a new name, so that nothing which it left behind is mistaken for its own.

    Args:
        config: librdkafka's settings of the consumer.
        publisher: What writes.
        prepare: Makes the topic where it is missing; called before the log is read.
        on_lost: Called in the registry's own thread with of this engine's uses were taken away by others, and which
            definitions are gone.
        on_error: Called with errors that belong to no call.
        timeout: Seconds to wait for Kafka.
        skipped: Counts the records that cannot be read.
        tuning: Its times and limits.

    Attributes:
        name: What the engine goes by in the log now.
        questions: That an engine leaves unanswered before its leases expire.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        publisher: Publisher,
        *,
        prepare: Callable[[], None],
        on_lost: Callable[[str], None],
        on_error: Callable[[JMSException], None],
        timeout: float,
        skipped: SkippedRecords | None = None,
        tuning: Tuning = DEFAULTS,
    ) -> None:
        self.questions = tuning.registry_questions
        self._config = dict(config)
        self._publisher = publisher
        self._prepare = prepare
        self.on_lost = on_lost
        self._on_error = on_error
        self._timeout = timeout
        self._skipped = SkippedRecords() if skipped is None else skipped
        self._changed = Condition()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._claims = Claims()
        self.name = ""
        self._keys = OwnKeys()
        self._usage = Usage(tuning.registry_grace_seconds)
        self._is_closed = False

    def __repr__(self) -> str:
        state = f"read as {self.name[:8]}" if self._thread is not None else "not read"
        return f"<Registry {state}: {len(self._keys.valid)} own claims>"

    def statistics(self) -> RegistryStatistics:
        """Return what it has in the registry."""
        with self._changed:
            return RegistryStatistics(self._thread is not None, len(self._keys.valid), len(self._keys.removing))

    @property
    def thread(self) -> threading.Thread | None:
        """The thread that reads; None: it does not run."""
        return self._thread

    # What others ask for.

    @contextlib.contextmanager
    def reading(self) -> Iterator[Claims]:
        """Read the log while the block runs; `claims` are up to date from the first record that the block writes.

        Raises:
            JMSException: Kafka does not let us.
        """
        with self._starting:
            with self._changed:
                self._usage.begin()
            try:
                if self._thread is None:
                    self._begin()
            except BaseException:
                self._let_go()
                raise
        try:
            yield self._claims
        finally:
            self._let_go()

    def _let_go(self) -> None:
        with self._changed:
            self._usage.end(time.monotonic())

    @contextlib.contextmanager
    def locked(self, of: str) -> Iterator[Claims]:
        """Be the only one, in all processes, to change the resource *of*; the claims are the current ones.

        Raises:
            JMSException: Other engines kept it too long, or the lease expired.
        """
        with self.reading() as claims:
            mine = self.put(LOCK, {"resource": of})
            try:
                self._wait_for_turn(claims, mine)
                yield claims
            finally:
                self.take_away([mine.key], wait=False)

    def _wait_for_turn(self, claims: Claims, mine: Claim) -> None:
        deadline = time.monotonic() + BUSY_SECONDS
        timeout = TURN_SECONDS
        while True:
            self.check(mine.key)
            first = claims.first(LOCK, mine.resource)
            if first is None or first.key == mine.key:
                return
            if self._wait_until_gone(claims, first.key, mine.key, timeout):
                continue
            if time.monotonic() > deadline:
                raise JMSException(f"another program has been changing {mine.resource} for {BUSY_SECONDS:.0f} s")
            if first.engine == self.name or self.one_lives([first.engine]):
                timeout = ANSWER_SECONDS

    def _wait_until_gone(self, claims: Claims, one: str, other: str, timeout: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: one not in claims or other not in claims, timeout)

    def check(self, key: str) -> None:
        """Make sure that *key*, which is ours, still counts.

        Raises:
            JMSException: The lease expired: this process slept, and another one removed the claim.
        """
        if key not in self._claims:
            raise JMSException(f"{LEASE_EXPIRED}; try again")

    def put(self, kind: str, value: Mapping[str, Any]) -> Claim:
        """Write a claim, and return it when it has been read back; the caller is `reading`.

        Raises:
            JMSException: Kafka did not take it, or it did not come back in time.
        """
        key = f"{kind}:{uuid.uuid4().hex}"
        with self._changed:
            self._keys.write(key, is_kept=kind == DEFINITION)
        try:
            self._write(key, {"engine": self.name, "process": this_process(), **value})
            self._wait_until_read(key)
            return self._claims[key]
        except KeyError:
            raise JMSException(f"{LEASE_EXPIRED}; try again") from None
        except BaseException:
            self.take_away([key], wait=False)  # it may have arrived, or may arrive yet
            raise

    def counts(self, *keys: str) -> bool:
        """Tell whether all of *keys* are in the registry, as far as it was read."""
        return all(key in self._claims for key in keys)

    def catch_up(self) -> None:
        """Return when the log has been read to its end; the caller is `reading`.

        Raises:
            JMSException: The broker does not answer.
        """
        self._ask(self.name)

    def take_away(self, keys: Iterable[str], *, wait: bool = True) -> None:
        """Take away claims, of ours or of engines that are gone.

        What Kafka does not take at once is tried again as long as the engine lives.

        Args:
            keys: Their keys.
            wait: Whether to return only when it is certain.

        Raises:
            JMSException: It is not certain after the send timeout.
        """
        now = time.monotonic()
        removed = list(keys)
        with self._changed:
            self._keys.remove(removed, now)
            is_read = self._thread is not None
            self._usage.idle_since = now
        failed: list[JMSException] = []
        for key in removed:
            try:
                self.send(key, None)
            except JMSException as failure:
                failed.append(failure)
        if not wait or not is_read:
            return
        with self._changed:
            if self._changed.wait_for(lambda: not any(key in self._keys.removing for key in removed), self._timeout):
                return
        if failed:
            raise failed[0]
        raise JMSException(f"the Kafka topic {REGISTRY!r} has not answered for {self._timeout:g} s")

    def one_lives(self, engines: Iterable[str]) -> bool:
        """Tell whether any of *engines* lives; when none does, what they left is taken away.

        Raises:
            JMSException: The broker does not answer.
        """
        asked = set(engines)
        # What this machine knows of its processes spares the wait for engines that only slept.
        are_gone = all(is_gone(process) for engine in asked for process in self._claims.processes(engine))
        if self.living(asked, 1 if are_gone else self.questions, enough=1):
            return True
        left = [key for engine in asked for key in self._claims.left_by(engine)]
        if left:
            _log.info("removed %d claims of programs that have ended", len(left))
            self.take_away(left)
        return False

    def living(
        self,
        engines: Collection[str],
        questions: int = 1,
        enough: int | None = None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> set[str]:
        """Return which of *engines* answer; the caller is `reading`.

        Args:
            engines: Whom to ask.
            questions: How often, a second apart.
            enough: Stop when so many have answered.
            is_over: Returns whether to stop all the same; `look` has it asked at once.

        Raises:
            JMSException: The broker does not answer.
        """
        since = {engine: self._claims.last_answer(engine) for engine in engines if engine != self.name}
        answered = set(engines) - since.keys()
        enough = len(since) + len(answered) if enough is None else enough

        def listen() -> bool:
            answered.update(engine for engine, before in since.items() if self._claims.last_answer(engine) > before)
            return len(answered) >= enough or is_over()

        for _ in range(questions):
            if listen():
                break
            for engine in since.keys() - answered:
                self._ask(engine)  # a question that comes back shows that an answer could have come
            with self._changed:
                self._changed.wait_for(listen, ANSWER_SECONDS)
        return answered

    def look(self) -> None:
        """Have `living` look at once whether it is over."""
        with self._changed:
            self._changed.notify_all()

    def _ask(self, engine: str) -> None:
        question = uuid.uuid4().hex
        with self._changed:
            self._keys.expected.add(question)
        self._write(f"{ASK}:{engine}", {"question": question})
        self._wait_until_read(question)

    # Writing.

    def _write(self, key: str, value: Mapping[str, Any]) -> None:
        self._publisher.send_and_wait(REGISTRY, 0, KafkaRecord(key.encode(), written_value(value), [], 0))

    def send(self, key: str, value: Mapping[str, Any] | None) -> None:
        """Write a record, or that it is gone, without waiting for Kafka to confirm it.

        Raises:
            JMSException: Kafka does not take it.
        """
        data = None if value is None else written_value(value)
        self._publisher.send(REGISTRY, 0, KafkaRecord(key.encode(), data, [], 0), _ignore)

    def _send_quietly(self, key: str, value: Mapping[str, Any] | None) -> None:
        try:
            self.send(key, value)
        except JMSException as failure:
            _log.debug("%s", failure)

    def _wait_until_read(self, what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: what not in self._keys.expected, self._timeout):
                self._keys.expected.discard(what)
                raise JMSException(f"the Kafka topic {REGISTRY!r} has not answered for {self._timeout:g} s")

    # The thread.

    def _begin(self) -> None:
        if self._is_closed:
            raise JMSException("the connection to the cluster is closed")
        self._prepare()
        try:
            consumer = open_consumer(self._config)
            consumer.assign([TopicPartition(REGISTRY, 0, 0)])  # OFFSET_BEGINNING costs half a second
        except KafkaException as error:
            raise jms_error(error, f"read the Kafka topic {REGISTRY!r}", to="Read", topic=REGISTRY) from error
        with self._changed:
            self._claims = Claims()
            self.name = uuid.uuid4().hex
            self._keys.expected.clear()
            self._thread = start_thread(self._run, "kjms-registry", consumer, self._claims)

    def _run(self, consumer: ConsumerPort, claims: Claims) -> None:
        try:
            while not self._may_end():
                first = consumer.poll(TICK_SECONDS)
                for record in [] if first is None else [first, *consumer.consume(BATCH, 0)]:
                    error = record.error()
                    if error is None:
                        self._read(claims, record.offset(), record.key(), record.value())
                    else:
                        self._report(error)
                self._try_again()
        except Exception as error:  # reported before the thread ends
            _log.exception("reading the registry failed")
            self._on_error(JMSException(f"reading the Kafka topic {REGISTRY!r} failed: {error}", None, error))
            with self._changed:
                self._thread = None  # without it, no question about this engine's claims is answered
                lost, self._keys.valid = self._keys.valid, set()
            for key in lost:
                self.on_lost(key)
        finally:
            consumer.close()

    def _may_end(self) -> bool:
        with self._changed:
            is_idle = not self._keys and self._usage.is_over(time.monotonic())
            if self._is_closed or is_idle:
                self._thread = None
                self._changed.notify_all()
                return True
        return False

    def _report(self, error: KafkaError) -> None:
        failure = jms_error(error, f"read the Kafka topic {REGISTRY!r}", to="Read", topic=REGISTRY)
        _log.warning("%s", failure)
        if not error.retriable():
            self._on_error(failure)

    def _read(self, claims: Claims, offset: int, raw_key: bytes | None, data: bytes | None) -> None:
        key = (raw_key or b"").decode(errors="replace")
        with self._changed:
            try:
                value = claims.apply(offset, key, data)
            except MalformedError as error:
                self._skipped.add(REGISTRY, 0, offset, error)
                value = {}
            lost = self._keys.read(key, value, self.name)
            self._changed.notify_all()
        if key == f"{ASK}:{self.name}" and value is not None:
            self._send_quietly(f"{ALIVE}:{self.name}", {})
        if lost:
            self.on_lost(key)

    def _try_again(self) -> None:
        if not self._keys.removing:
            return
        with self._changed:
            due = self._keys.due(time.monotonic())
        for key in due:
            self._send_quietly(key, None)

    def close(self) -> None:
        """Take away what is left of ours, and end the thread."""
        with self._starting:
            thread = self._thread
            if thread is None:
                self._is_closed = True
                return
            with self._changed:
                left = self._claims.left_by(self.name)
            try:
                self.take_away(left)
            except JMSException as failure:
                _log.warning("claims remain in the registry: %s", failure)
            self._is_closed = True
        thread.join(self._timeout)


def _ignore(error: KafkaError | None, _record: object) -> None:
    """Ignore the delivery report of a record: the log shows whether it was written."""
