"""Try out what a cluster can do for kjms, on topics of the trial's own, and ask which requests its brokers take."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, TypeVar

from kjms.engine.admin.topics import COMPACTED_CONFIG, NOT_READY, QUEUE_CONFIG
from kjms.engine.kafka import (
    AdminPort,
    ConfigResource,
    ConsumerPort,
    IsolationLevel,
    KafkaError,
    KafkaException,
    KafkaMessage,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ProducerPort,
    ResourceType,
    TopicCollection,
    TopicPartition,
    jms_error,
    kafka_error,
    open_admin,
    open_consumer,
    open_producer,
)
from kjms.engine.log_reading import UNTIL_END, records
from kjms.errors import JMSException, JMSSecurityException
from kjms.mapping.names import queue_group
from kjms.txn.metadata import LIMIT

__all__ = ["Failure", "Pong", "Trial"]

Answer = TypeVar("Answer")

TOPIC: Final = "kjms-ping-"  # what the names of the trial's topics, and of its producer, begin with
METADATA: Final = (
    "x" * LIMIT
)  # what kjms writes with a commit at the most: which messages behind the offset are settled
ATTEMPTS: Final = 3  # of the round trip
LINES_SECONDS: Final = 1.0  # until librdkafka's log is there
VISIBLE_SECONDS: Final = 3.0  # until what is committed is seen
AGAIN_SECONDS: Final = 0.05
HEADERS: Final[list[tuple[str, bytes | None]]] = [("JMSType", b"trial"), ("none", None)]
OLDER_MS: Final = 3_600_000  # by which a record says that it is older: moved messages keep their times

_API: Final = re.compile(r"ApiKey .* \((\d+)\) Versions (\d+)\.\.(\d+)$")
_NO_ANSWER: Final = frozenset({"_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "REQUEST_TIMED_OUT"})


class Failure(NamedTuple):
    """Why a step failed.

    Attributes:
        is_certain: Whether the cluster cannot do it; else the user may not, or the step was not tried.
        text: What the broker answered, or why it was not tried.
    """

    is_certain: bool
    text: str


class Pong(NamedTuple):
    """What a cluster says of itself.

    Attributes:
        cluster: Its id.
        brokers: The addresses of its brokers.
        milliseconds: How long a question and its answer take, on a connection that is up: the shortest of three.
        apis: The first and the last version of each request that a broker takes, by Kafka's numbers; empty: unknown.
    """

    cluster: str
    brokers: tuple[str, ...]
    milliseconds: float
    apis: Mapping[int, tuple[int, int]]


class _Step(NamedTuple):
    doing: str
    """What an error says."""
    right: str
    """What the user needs on the topic."""
    needs: tuple[str, ...]
    """Steps without which it cannot be tried."""
    run: Callable[[Trial], str | None]
    """Returns what is wrong, or raises."""


class Trial:
    """Tries a cluster out, with clients of its own; for one `run`.

    Args:
        admin: librdkafka's settings of an admin client.
        writing: Those of a producer.
        reading: Those of a consumer in a group, or in none.
        timeout: Seconds for each answer.
    """

    def __init__(
        self,
        admin: Mapping[str, Any],
        writing: Mapping[str, Any],
        reading: Callable[[str | None], Mapping[str, Any]],
        timeout: float,
    ) -> None:
        self._settings = admin
        self._writing = writing
        self._reading = reading
        self._timeout = timeout
        self._topic = f"{TOPIC}{uuid.uuid4().hex[:8]}"
        self._compacted = f"{self._topic}-compacted"
        self._group = queue_group(self._topic)
        self._made: list[str] = []
        self._admin_client: AdminPort | None = None
        self._producer: ProducerPort | None = None
        self._sent_at = 0

    @property
    def _admin(self) -> AdminPort:
        if self._admin_client is None:
            self._admin_client = open_admin(dict(self._settings))
        return self._admin_client

    def ask(self) -> Pong:
        """Return what the cluster says of itself; it changes nothing.

        librdkafka asks each broker which requests it takes, and writes the answer to its log.

        Raises:
            JMSException: No broker answers.
        """
        lines = _Lines()
        logger = logging.Logger("kjms.ping", logging.DEBUG)
        logger.addHandler(lines)
        client = open_admin({**self._settings, "debug": "feature", "log_level": 7, "logger": logger})
        try:
            times = []
            for _ in range(1 + ATTEMPTS):  # the first one connects
                began = time.monotonic()
                found = client.list_topics(topic="", timeout=self._timeout)
                times.append(time.monotonic() - began)
        except KafkaException as error:
            raise jms_error(error, f"ask the brokers at {self._settings['bootstrap.servers']}") from error
        deadline = time.monotonic() + LINES_SECONDS
        while not lines.apis and time.monotonic() < deadline:
            client.poll(AGAIN_SECONDS)
        brokers = tuple(f"{each.host}:{each.port}" for _, each in sorted(found.brokers.items()))
        return Pong(str(found.cluster_id), brokers, min(times[1:]) * 1000, dict(lines.apis))

    def run(self) -> dict[str, Failure | None]:
        """Try each of `STEPS`, and return why it failed; None: it did not.

        Its topics and its group are deleted at the end, as far as the cluster lets it.
        """
        found: dict[str, Failure | None] = {}
        try:
            for name, step in STEPS.items():
                found[name] = self._try(step, found)
        finally:
            self._end()
        return found

    def _try(self, step: _Step, before: Mapping[str, Failure | None]) -> Failure | None:
        missing = next((name for name in step.needs if before[name] is not None), None)
        if missing is not None:
            return Failure(False, f"not tried, since the trial could not {STEPS[missing].doing}")
        try:
            wrong = step.run(self)
        except (KafkaException, JMSException) as error:
            failure = error if isinstance(error, JMSException) else self._error(error, step)
            is_certain = not isinstance(failure, JMSSecurityException) and failure.error_code not in _NO_ANSWER
            return Failure(is_certain, str(failure))
        return None if wrong is None else Failure(True, wrong)

    def _error(self, error: KafkaException, step: _Step) -> JMSException:
        return jms_error(
            error, step.doing, to=step.right, topic=self._topic, group=self._group, transactional_id=self._topic
        )

    # The steps.

    def _create(self) -> None:
        self._make(self._topic, QUEUE_CONFIG)

    def _describe(self) -> str | None:
        found = self._read_settings(self._topic)
        other = {name: found.get(name) for name, wanted in QUEUE_CONFIG.items() if found.get(name) != wanted}
        if other:
            return f"a topic that was made with {_listed(QUEUE_CONFIG)} has {_listed(other)}: messages are deleted"
        return None if found.get("max.message.bytes") else "the settings of a topic have no max.message.bytes"

    def _compact(self) -> str | None:
        self._make(self._compacted, COMPACTED_CONFIG)
        policy = self._read_settings(self._compacted).get("cleanup.policy")
        return None if policy == "compact" else f"a topic that was made with cleanup.policy=compact has {policy}"

    def _identify(self) -> str | None:
        asked = TopicCollection([self._topic])
        (answer,) = self._admin.describe_topics(asked, request_timeout=self._timeout).values()
        return None if int(answer.result().topic_id.get_most_significant_bits()) else "the topic has no id"

    def _send(self) -> None:
        self._producer = open_producer({**self._writing, "transactional.id": self._topic, "linger.ms": 0})
        self._producer.init_transactions(self._timeout)
        self._sent_at = int(time.time() * 1000) - OLDER_MS
        self._in_transaction(b"committed")
        self._producer.commit_transaction(self._timeout)

    def _abort(self) -> str | None:
        assert self._producer is not None
        self._in_transaction(b"aborted")
        self._producer.abort_transaction(self._timeout)
        self._in_transaction(b"second")
        self._producer.commit_transaction(self._timeout)
        found = [record.value() for record in self._records(2)]
        return None if found == [b"committed", b"second"] else f"consumers of committed records read {found}"

    def _read(self) -> str | None:
        found = self._records(1)
        if [record.value() for record in found] != [b"committed"]:
            return f"a transaction with one record was committed, and {len(found)} can be read"
        if found[0].headers() != HEADERS:
            return f"headers were not kept: sent {HEADERS}, read {found[0].headers()}"
        if found[0].timestamp()[1] != self._sent_at:
            return f"the time of a record was not kept: sent {self._sent_at}, read {found[0].timestamp()[1]}"
        return None

    def _join(self) -> str | None:
        """Consume as a member of a group, and commit with a transaction."""
        assert self._producer is not None
        consumer = open_consumer(self._reading(self._group))
        try:
            consumer.subscribe([self._topic], on_assign=_take_over, on_revoke=_give_up, on_lost=_give_up)
            self._until(lambda: self._arrived(consumer), "no record was read as a member of a consumer group")
            self._producer.begin_transaction()
            place = TopicPartition(self._topic, 0, 1)
            self._producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), self._timeout)
            self._producer.commit_transaction(self._timeout)
            (found,) = consumer.committed([TopicPartition(self._topic, 0)], self._timeout)
        finally:
            consumer.close()
        return None if found.offset == 1 else f"a transaction committed the offset 1, and the group has {found.offset}"

    @staticmethod
    def _arrived(consumer: ConsumerPort) -> bool:
        record = consumer.poll(AGAIN_SECONDS)
        if record is not None and record.error() is not None and not record.error().retriable():
            raise KafkaException(record.error())
        return record is not None and record.error() is None

    def _remember(self) -> str | None:
        consumer = open_consumer(self._reading(self._group))
        try:
            consumer.commit(offsets=[TopicPartition(self._topic, 0, 1, METADATA)], asynchronous=False)
            (found,) = consumer.committed([TopicPartition(self._topic, 0)], self._timeout)
        finally:
            consumer.close()
        kept = found.metadata or ""
        return (
            None
            if kept == METADATA
            else f"of a commit with {len(METADATA):,} characters of metadata {len(kept):,} stay"
        )

    def _truncate(self) -> str | None:
        asked = [TopicPartition(self._topic, 0, 1)]
        for answer in self._admin.delete_records(asked, request_timeout=self._timeout).values():
            answer.result()
        begin = self._offset(OffsetSpec.earliest())
        return None if begin >= 1 else "records before the offset 1 were deleted, and the log begins at 0"

    def _grow(self) -> None:
        _result(self._admin.create_partitions([NewPartitions(self._topic, 2)], request_timeout=self._timeout))

    def _list_groups(self) -> str | None:
        listed = self._admin.list_consumer_groups(request_timeout=self._timeout).result()
        if self._group not in {each.group_id for each in listed.valid}:
            return f"the group {self._group!r} is there, and not listed"
        _result(self._admin.describe_consumer_groups([self._group], request_timeout=self._timeout))
        _result(self._admin.delete_consumer_groups([self._group], request_timeout=self._timeout))
        return None

    def _delete(self) -> None:
        for topic in list(self._made):
            asked = self._admin.delete_topics([topic], operation_timeout=self._timeout, request_timeout=self._timeout)
            _result(asked)
            self._made.remove(topic)

    # What the steps share.

    def _make(self, topic: str, config: Mapping[str, str]) -> None:
        wanted = NewTopic(topic, 1, -1, config=dict(config))
        _result(self._admin.create_topics([wanted], operation_timeout=self._timeout, request_timeout=self._timeout))
        self._made.append(topic)
        self._until(lambda: self._is_ready(topic), f"the topic {topic!r} was made, and no broker leads it")

    def _is_ready(self, topic: str) -> bool:
        asked = {TopicPartition(topic, 0): OffsetSpec.latest()}
        try:
            _result(
                self._admin.list_offsets(
                    asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=self._timeout
                )
            )
        except KafkaException as error:
            if kafka_error(error).code() not in {*NOT_READY, KafkaError._NOENT}:
                raise
            return False
        return True

    def _read_settings(self, topic: str) -> dict[str, str]:
        asked = [ConfigResource(ResourceType.TOPIC, topic)]
        found = _result(self._admin.describe_configs(asked, request_timeout=self._timeout))
        return {name: entry.value for name, entry in found.items()}

    def _in_transaction(self, value: bytes) -> None:
        assert self._producer is not None
        self._producer.begin_transaction()
        self._producer.produce(
            self._topic, value, b"key", 0, headers=HEADERS, timestamp=self._sent_at, on_delivery=lambda *_: None
        )
        self._producer.flush(self._timeout)

    def _offset(self, which: OffsetSpec) -> int:
        asked = {TopicPartition(self._topic, 0): which}
        answers = self._admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=self._timeout
        )
        return int(_result(answers).offset)

    def _records(self, wanted: int) -> list[KafkaMessage]:
        """Return the committed records of the topic, when there are so many, or none come any more."""
        found: list[KafkaMessage] = []
        deadline = time.monotonic() + VISIBLE_SECONDS
        while len(found) < wanted and time.monotonic() < deadline:  # what is committed may be seen a moment later
            found = self._read_all()
        return found

    def _read_all(self) -> list[KafkaMessage]:
        ends = {(self._topic, 0): self._offset(OffsetSpec.latest())}
        consumer = open_consumer({**self._reading(None), **UNTIL_END})
        try:
            consumer.assign([TopicPartition(self._topic, 0, 0)])
            return list(records(consumer, ends, self._timeout))
        finally:
            consumer.close()

    def _until(self, condition: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + self._timeout
        while not condition():
            if time.monotonic() > deadline:
                raise JMSException(f"{otherwise} for {self._timeout:g} s")
            time.sleep(AGAIN_SECONDS)

    def _end(self) -> None:
        """Delete what is left; what the cluster does not delete stays, and was reported."""
        left, self._made, self._producer = self._made, [], None
        if left and self._admin_client is not None:
            answers = self._admin.delete_topics(left, operation_timeout=self._timeout, request_timeout=self._timeout)
            for answer in answers.values():
                answer.exception()


STEPS: Final[Mapping[str, _Step]] = {
    "create": _Step("create a topic", "Create", (), Trial._create),
    "settings": _Step("read the settings of a topic", "DescribeConfigs", ("create",), Trial._describe),
    "compact": _Step("create a compacted topic", "Create", ("create",), Trial._compact),
    "ids": _Step("read the id of a topic", "Describe", ("create",), Trial._identify),
    "send": _Step("send in a transaction", "Write", ("create",), Trial._send),
    "read": _Step("read committed records", "Read", ("send",), Trial._read),
    "abort": _Step("abort a transaction", "Write", ("send",), Trial._abort),
    "group": _Step("consume in a group, and commit in a transaction", "Read", ("send",), Trial._join),
    "metadata": _Step("read the metadata of a commit", "Read", ("group",), Trial._remember),
    "truncate": _Step("delete records", "Delete", ("send",), Trial._truncate),
    "grow": _Step("add partitions to a topic", "Alter", ("create",), Trial._grow),
    "groups": _Step("list, describe and delete a group", "Delete", ("group",), Trial._list_groups),
    "delete": _Step("delete a topic", "Delete", ("create",), Trial._delete),
}
"""What is tried, in this order."""


class _Lines(logging.Handler):
    """Reads in librdkafka's log which requests a broker takes."""

    def __init__(self) -> None:
        super().__init__()
        self.apis: dict[int, tuple[int, int]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        found = _API.search(record.getMessage())
        if found is not None:
            number, first, last = map(int, found.groups())
            self.apis[number] = first, last


def _result(answers: Mapping[Any, Future[Answer]]) -> Answer:
    """Return the only answer."""
    (answer,) = answers.values()
    return answer.result()


def _listed(settings: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def _take_over(consumer: ConsumerPort, partitions: list[TopicPartition]) -> None:
    consumer.incremental_assign(partitions)


def _give_up(consumer: ConsumerPort, partitions: list[TopicPartition]) -> None:
    consumer.incremental_unassign(partitions)
