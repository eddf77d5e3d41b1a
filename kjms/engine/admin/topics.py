"""The Kafka topics behind destinations: whether they exist, their partitions, and making them on first use."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, cast

from kjms.destinations import Destination, Queue
from kjms.engine.admin.answers import AnsweringClient, closed, open_answering
from kjms.engine.admin.coordinators import Coordinators
from kjms.engine.admin.log_ends import ends_after_commits
from kjms.engine.admin.together import Together
from kjms.engine.admin.topic_ids import TopicIds
from kjms.engine.admin.topic_watch import ExpectedTopics
from kjms.engine.kafka import (
    AdminPort,
    ConfigResource,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicCollection,
    TopicPartition,
    TopicPartitionInfo,
    is_refusal,
    is_shortage,
    jms_error,
    kafka_error,
    open_consumer,
)
from kjms.engine.tuning import DEFAULTS, Tuning
from kjms.errors import InvalidDestinationException, JMSException
from kjms.mapping.names import is_internal, topic_for

__all__ = ["DEAD_LETTER_MARGIN", "NOT_READY", "QUEUE_CONFIG", "Topics", "WantedTopic"]

_log = logging.getLogger("kjms.topics")

# A queue keeps what was not consumed, however long that takes; Kafka would delete it after a week.
QUEUE_CONFIG: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
# Of each key the last record counts, and is kept. Small segments, so that compaction gets at what does not count.
COMPACTED_CONFIG: Final = {"cleanup.policy": "compact", "segment.bytes": "1048576", "segment.ms": "86400000"}
SMALLEST_LIMIT: Final = 2 * 1024 * 1024  # bytes: the limit holds for whole batches, and a batch may have 1 MB
# What brokers say of a partition while it is being made, or moved.
NOT_READY: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError._UNKNOWN_PARTITION,
    }
)
# What brokers say of a topic that does not exist, or was just created.
ABSENT: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.LEADER_NOT_AVAILABLE}
)
# What librdkafka reports where no broker answers.
UNREACHABLE: Final = frozenset({KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN})
AGAIN_SECONDS: Final = 0.05  # between attempts
ANSWER_SECONDS: Final = 2.0  # of what is not worth waiting for the send timeout
MOST_MADE_AGAIN: Final = 1_000
# Bytes by which a dead letter may be larger than its message: the text and the traceback of an exception have up to
# 20,480 characters of four bytes each, and what else it says is short.
DEAD_LETTER_MARGIN: Final = 128 * 1024


class WantedTopic(NamedTuple):
    """The Kafka topic that a destination needs, and how it is made where it is missing.

    Attributes:
        destination: The destination.
        queue_prefix: What stands before the topic names of queues.
        topic_prefix: What stands before those of topics.
        create: Whether it may be made.
        partitions: How many it gets then.
        replication_factor: The replicas that it gets; None: as many as the cluster gives by default.
        like: The topic whose messages it takes as dead letters, however large they are; empty: none.
    """

    destination: Destination
    queue_prefix: str
    topic_prefix: str
    create: bool
    partitions: int
    replication_factor: int | None
    like: str = ""

    @property
    def topic(self) -> str:
        """The name of the Kafka topic.

        Raises:
            InvalidDestinationException: The name cannot be one, or is one that Kafka or kjms uses itself.
        """
        topic = topic_for(self.destination, self.queue_prefix, self.topic_prefix)
        if is_internal(topic) or topic.startswith("__"):
            raise InvalidDestinationException(f"{self.destination} is reserved for internal use; choose another name")
        return topic


class Topics:
    """What is known of the cluster's topics; asked once, kept for the engine's life.

    Args:
        config: librdkafka's settings of the client.
        timeout: Milliseconds that Kafka may take to answer.
        tuning: Its times and limits.

    Attributes:
        ids: Kafka's ids of the topics.
        expected: Topics that other processes may create.
        coordinators: Asks the coordinators of groups.
        replication_factor: The replicas that topics get at the least which kjms keeps for itself; None: as many as the
            cluster gives by default.
    """

    def __init__(self, config: Mapping[str, Any], timeout: int, tuning: Tuning = DEFAULTS) -> None:
        self._tuning = tuning
        self._config = dict(config)
        self._admin: AnsweringClient | None = open_answering(config)
        self._timeout = timeout / 1000
        self._partitions: dict[str, int] = {}
        self.created: set[str] = set()
        """The topics that this engine made, a moment ago or longer."""
        self.kinds: dict[str, dict[str, str]] = {}
        """For each topic, by the kinds of destinations that used it here: the kind on record, "" while that is read."""
        self.new_queues: deque[str] = deque()
        """Those of them that are queues, until they are written down."""
        self.replication_factor: int | None = None
        self._under_replicated: set[str] = set()  # topics with fewer replicas than that, which were reported
        self.made_again: deque[str] = deque(maxlen=MOST_MADE_AGAIN)
        """Topics that were deleted and made again, until what is known of them is forgotten."""
        self.ids = TopicIds(lambda: self.admin, self._timeout, tuning)
        self.expected = ExpectedTopics(lambda: self.admin, self._timeout)
        self.coordinators = Coordinators(self._config, self._timeout, tuning)
        self._lock = threading.Lock()  # of what is made and then changed
        self._replacing = threading.Lock()  # of the client
        self._creations = Together(self._create_all)

    @property
    def _servers(self) -> str:
        return str(self._config["bootstrap.servers"])

    @property
    def admin(self) -> AdminPort:
        """The client that asks for and changes topics.

        Raises:
            JMSException: It was let go, while a thread was not done: closing does not wait for a broker that is away.
        """
        admin = self._admin
        if admin is None:
            raise closed(self._config)
        return cast(AdminPort, admin)

    def connect(self, timeout: float, last_error: Sequence[KafkaError]) -> None:
        """Return when a broker has answered.

        Args:
            timeout: Seconds to try.
            last_error: What the client library reported meanwhile; it goes into the error, and ends the attempt where
                it names refused credentials, or a lack of sockets: another attempt would fail, too.

        Raises:
            JMSSecurityException: The broker refused the credentials.
            ResourceAllocationException: This process may open no more sockets.
            JMSException: None did; the text names the address.
        """
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            try:
                self.admin.list_topics(topic="", timeout=max(min(left, self._tuning.topic_attempt_seconds), 0.001))
            except KafkaException as error:
                inner = kafka_error(error)
                if inner.code() not in UNREACHABLE:
                    raise jms_error(error, f"connect to {self._servers}") from error
                self.admin.poll(0)  # runs the error callback
                why = last_error[-1] if last_error else None
                if why is not None and why.code() == KafkaError._ALL_BROKERS_DOWN:
                    why = None  # "0/2 brokers are down" explains nothing
                if why is not None and (is_refusal(why) or is_shortage(why)):
                    raise jms_error(why, f"connect to {self._servers}") from error
                if left <= self._tuning.topic_attempt_seconds:
                    raise JMSException(
                        f"no Kafka broker answers at {self._servers}, tried for {round(timeout * 1000)} ms"
                        f"{f' ({why.str()})' if why is not None else ''}",
                        inner.name(),
                        error,
                    ) from error
            else:
                return

    def close(self) -> None:
        """Let the client go: its sockets are closed now, and not when the garbage is collected.

        Threads that wait for an answer have an error with the code ``_DESTROY``.
        """
        with self._replacing:
            admin, self._admin = self._admin, None
        if admin is not None:
            admin.give_up()
        self.coordinators.close()

    def partitions(self, topic: str) -> int:
        """Return how many partitions *topic* has; 0 when it does not exist."""
        known = self._partitions.get(topic, 0)
        if known:
            return known
        found = self.look_up(topic)
        if found:
            self._await_leaders(topic, range(found))
            self._partitions[topic] = found
        return found

    def _await_leaders(self, topic: str, numbers: Iterable[int]) -> None:
        """Return when the leaders of these partitions of *topic* take records, or after a while.

        A broker names the leader of a new partition a moment before that leader takes records. To write meanwhile may
        lose records (decision 034). Where a partition has no leader, writing waits for one.
        """
        with contextlib.suppress(JMSException):
            self._offsets(topic, numbers, OffsetSpec.latest(), "end", min(self._timeout, ANSWER_SECONDS))

    def forget(self, topic: str, identity: str) -> None:
        """Forget the topic that had the id *identity*, which was deleted: another one is called *topic* now."""
        self.ids.forget(identity)
        self._partitions.pop(topic, None)
        self.created.discard(topic)
        self.kinds.pop(topic, None)
        self.made_again.append(topic)

    def look_up(self, topic: str) -> int:
        """Ask Kafka how many partitions *topic* has now; 0 when it does not exist."""
        return self.counts([topic]).get(topic, 0)

    def counts(self, topics: Collection[str]) -> dict[str, int]:
        """Ask Kafka how many partitions each of *topics* has now, in one request; those that do not exist are left out.

        Raises:
            JMSException: The broker does not answer, or refuses.
        """
        return {topic: len(partitions) for topic, partitions in self._describe(topics).items()}

    def _describe(self, topics: Collection[str], *, is_again: bool = False) -> dict[str, list[TopicPartitionInfo]]:
        """Return the partitions of those of *topics* that exist.

        A client that is asked for the metadata of a topic keeps its name, also one that does not exist, and
        continues to ask the brokers for it: each destination has three such names. A description leaves nothing behind.
        """
        if not topics:
            return {}
        found = {}
        try:
            answers = self.admin.describe_topics(TopicCollection(list(topics)), request_timeout=self._timeout)
            for topic, answer in answers.items():
                try:
                    found[topic] = answer.result().partitions
                except KafkaException as error:
                    if kafka_error(error).code() == KafkaError._TIMED_OUT and not is_again:
                        self._find_brokers()
                        return self._describe(topics, is_again=True)
                    if kafka_error(error).code() not in ABSENT:
                        raise jms_error(
                            error, f"look up the Kafka topic {topic!r}", to="Describe", topic=topic
                        ) from error
                else:
                    self._check_replicas(topic, found[topic])
        except KafkaException as error:
            raise jms_error(error, f"look up Kafka topics at {self._servers}") from error
        return found

    def _find_brokers(self) -> None:
        """Have a client that got no answer find the brokers again; replace one that cannot.

        Where metadata named no broker, a client may miss the moment to ask the bootstrap servers (decision 038).

        Raises:
            KafkaException: The broker refuses.
        """
        admin = self._admin
        try:
            self.admin.list_topics(topic="", timeout=min(self._timeout, ANSWER_SECONDS))
        except KafkaException as error:
            why = kafka_error(error)
            if why.code() not in UNREACHABLE:
                raise
            with self._replacing:
                if admin is None or self._admin is not admin:
                    return  # it is closed, or another thread was first
                self._admin = open_answering(self._config)
            admin.give_up(why)

    def refresh(self, topic: str) -> None:
        """Have the client ask for the leaders of *topic*, which exists: it keeps those that it knows.

        Raises:
            JMSException: The broker does not answer.
        """
        try:
            self.admin.list_topics(topic, timeout=self._timeout)
        except KafkaException as error:
            raise jms_error(error, f"look up the Kafka topic {topic!r}", to="Describe", topic=topic) from error

    def follow(self, replication_factor: int | None) -> None:
        """Give topics that kjms keeps for itself as many replicas as *replication_factor* says, or more."""
        if replication_factor is not None:
            self.replication_factor = max(replication_factor, self.replication_factor or 0)

    def _check_replicas(self, topic: str, partitions: Iterable[TopicPartitionInfo]) -> None:
        """Report, once, that a topic which kjms keeps for itself has fewer replicas than it should."""
        wanted = self.replication_factor or 0
        least = min((len(partition.replicas) for partition in partitions), default=wanted)
        if least < wanted and topic not in self._under_replicated and is_internal(topic):
            self._under_replicated.add(topic)
            _log.warning(
                "the Kafka topic %r has a partition with %d of the %d replicas that replication_factor asks for: it"
                " cannot be used while its brokers are away; add replicas with kafka-reassign-partitions.sh"
                " (docs/cluster.md)",
                topic,
                least,
                wanted,
            )

    def ensure(self, wanted: WantedTopic) -> tuple[str, int]:
        """Return the name of the *wanted* topic and its number of partitions; it is made where it is missing.

        Raises:
            InvalidDestinationException: It does not exist and may not be made, or its name cannot be one.
            JMSSecurityException: Not allowed.
        """
        topic = wanted.topic
        found = self.partitions(topic)
        if found:
            return topic, found
        if not wanted.create:
            raise InvalidDestinationException(
                f"there is no Kafka topic {topic!r} at {self._servers}, and create_destinations is off"
            )
        is_queue = isinstance(wanted.destination, Queue)
        config = dict(QUEUE_CONFIG if is_queue else {})
        largest = self.largest(wanted.like) if wanted.like else None
        if largest is not None:
            config["max.message.bytes"] = str(largest + DEAD_LETTER_MARGIN)
        is_new = self._create(topic, wanted.partitions, wanted.replication_factor, config)
        if is_new and is_queue:
            self.new_queues.append(topic)
        return topic, self._wait_until_visible(topic)

    def make(self, topic: str, partitions: int, replication_factor: int | None, config: Mapping[str, str]) -> bool:
        """Make *topic*; return whether it was not there.

        Raises:
            JMSException: It cannot be made.
        """
        is_new = self._create(topic, partitions, replication_factor, dict(config))
        if is_new:
            self._wait_until_visible(topic)
        return is_new

    def delete(self, topics: Sequence[str], timeout: float | None = None) -> None:
        """Delete *topics*; those that are not there are deleted already.

        Args:
            topics: Their names.
            timeout: Seconds to wait for Kafka; None: the send timeout.

        Raises:
            JMSException: The broker refuses the request.
        """
        if not topics:
            return
        seconds = self._timeout if timeout is None else timeout
        answers = self.admin.delete_topics(list(topics), operation_timeout=seconds, request_timeout=seconds)
        for topic, answer in answers.items():
            try:
                answer.result()
            except KafkaException as error:
                if kafka_error(error).code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise jms_error(error, f"delete the Kafka topic {topic!r}", to="Delete", topic=topic) from error
            self._partitions.pop(topic, None)
            self.created.discard(topic)
            self.kinds.pop(topic, None)

    def largest(self, topic: str) -> int | None:
        """Return how many bytes a message to *topic* may have; None: Kafka does not say, or not to this user."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        try:
            answer = self.admin.describe_configs([resource], request_timeout=min(self._timeout, ANSWER_SECONDS))
            return int(answer[resource].result()["max.message.bytes"].value or 0) or None
        except (KafkaException, KeyError):
            return None

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Delete the records of each partition in *before* that stand before the offset there.

        Raises:
            JMSException: The broker refuses the request.
        """
        wanted = [TopicPartition(topic, number, offset) for number, offset in before.items()]
        try:
            for answer in self.admin.delete_records(wanted, request_timeout=self._timeout).values():
                answer.result()
        except KafkaException as error:
            doing = f"delete records of the Kafka topic {topic!r}"
            raise jms_error(error, doing, to="Delete", topic=topic) from error

    def ensure_internal(
        self,
        topic: str,
        *,
        like: str,
        partitions: int,
        margin: int = 0,
        smallest: int = SMALLEST_LIMIT,
        config: Mapping[str, str] = QUEUE_CONFIG,
    ) -> None:
        """Make *topic*, one that kjms keeps for itself, where it is missing.

        Args:
            topic: Its name.
            like: The topic whose largest message it shares, and whose replication unless the factory asks for more.
            partitions: How many it gets.
            margin: Bytes by which its messages may be larger.
            smallest: Bytes that they may have at the least.
            config: Its settings; the default deletes nothing.

        Raises:
            JMSException: It cannot be made.
        """
        if self.look_up(topic):
            return
        resource = ConfigResource(ConfigResource.Type.TOPIC, like)
        try:
            known = self.admin.describe_configs([resource], request_timeout=self._timeout)[resource].result()
            largest = max(int(known["max.message.bytes"].value or 0) + margin, smallest)
            described = self.admin.describe_topics(TopicCollection([like]), request_timeout=self._timeout)[like]
            replicas = max(len(described.result().partitions[0].replicas), self.replication_factor or 0)
        except KafkaException as error:
            doing = f"look up the settings of the Kafka topic {like!r}"
            raise jms_error(error, doing, to="DescribeConfigs", topic=like) from error
        self._create(topic, partitions, replicas, {**config, "max.message.bytes": str(largest)})
        self._wait_until_visible(topic)

    def grow(self, topic: str, partitions: int) -> None:
        """Give *topic* as many partitions as *partitions* says.

        Raises:
            JMSException: The broker refuses the request.
        """
        wanted = NewPartitions(topic, partitions)
        try:
            self.admin.create_partitions([wanted], request_timeout=self._timeout)[topic].result()
        except KafkaException as error:
            if self.look_up(topic) < partitions:  # else another process was first
                doing = f"add partitions to the Kafka topic {topic!r}"
                raise jms_error(error, doing, to="Alter", topic=topic) from error
        deadline = time.monotonic() + self._tuning.topic_visible_seconds
        while self.look_up(topic) < partitions and time.monotonic() < deadline:
            time.sleep(0.01)
        self._await_leaders(topic, range(partitions))

    def ensure_compacted(self, topic: str, partitions: int = 1) -> None:
        """Make *topic*, one that kjms keeps for itself, where it is missing: compacted, with so many *partitions*.

        Raises:
            JMSException: It exists, and Kafka would delete records from it that count.
            JMSSecurityException: Not allowed.
        """
        with self._lock:
            if not self.partitions(topic):
                self._create(topic, partitions, self.replication_factor, COMPACTED_CONFIG)
                self._wait_until_visible(topic)
                return
            if self.partitions(topic) < partitions:  # an earlier kjms made it
                self.grow(topic, partitions)
                self._partitions[topic] = partitions
        asked = ConfigResource(ResourceType.TOPIC, topic)
        try:
            answer = self.admin.describe_configs([asked], request_timeout=self._timeout)[asked].result()
        except KafkaException as error:
            doing = f"read the settings of the Kafka topic {topic!r}"
            raise jms_error(error, doing, to="DescribeConfigs", topic=topic) from error
        policy = answer["cleanup.policy"].value
        if policy != "compact":
            raise JMSException(f"the Kafka topic {topic!r} has cleanup.policy={policy}, and needs compact")

    def _create(self, topic: str, partitions: int, replication_factor: int | None, config: dict[str, str]) -> bool:
        """Create *topic*; return False where it is there: brokers may still list one that is deleted, and this asks."""
        wanted = NewTopic(topic, partitions, replication_factor or -1, config=config)
        error = self._creations.ask(wanted)
        if error is not None:
            if kafka_error(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another process was first
                raise jms_error(error, f"create the Kafka topic {topic!r}", to="Create", topic=topic) from error
            return False
        self.created.add(topic)
        return True

    def _create_all(self, wanted: Sequence[NewTopic]) -> list[KafkaException | None]:
        """Create the topics that threads *wanted* while others were made; return why not, for each."""
        first = {each.topic: each for each in reversed(wanted)}  # several threads may need the same
        answers = self.admin.create_topics(
            list(first.values()), operation_timeout=self._timeout, request_timeout=self._timeout
        )
        found: list[KafkaException | None] = []
        for each in wanted:
            if each is not first[each.topic]:
                found.append(KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS)))
                continue
            try:
                answers[each.topic].result()
                found.append(None)
            except KafkaException as error:
                found.append(error)
        return found

    def _wait_until_visible(self, topic: str) -> int:
        deadline = time.monotonic() + self._tuning.topic_visible_seconds
        while time.monotonic() < deadline:
            found = self.partitions(topic)
            if found:
                return found
            time.sleep(0.01)
        raise JMSException(f"the Kafka topic {topic!r} was created, but no broker knows it")

    def committed(self, group: str, places: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return what *group* has committed for *places*, whatever transactions are open.

        Raises:
            KafkaException: The broker did not answer, or refused.
        """
        # A consumer waits for a coordinator that begins or moves; an admin client fails.
        reading = {"group.id": group, "isolation.level": "read_uncommitted", "enable.auto.commit": False}
        consumer = open_consumer({**self._config, **reading})
        try:
            answer = list(consumer.committed(list(places), self._timeout))
        finally:
            consumer.close()
        for known in answer:
            if known.error is not None:
                raise KafkaException(known.error)
        return answer

    def commit(self, group: str, places: list[TopicPartition]) -> None:
        """Commit *places* for *group*, which has no members.

        Raises:
            KafkaException: The broker did not answer, or refused.
        """
        deadline = time.monotonic() + self._timeout
        wanted = [ConsumerGroupTopicPartitions(group, places)]
        while True:
            try:
                answers = self.coordinators.ask(
                    lambda admin, timeout: admin.alter_consumer_group_offsets(wanted, request_timeout=timeout)
                )
                for partition in answers[group].result().topic_partitions:
                    if partition.error is not None:
                        raise KafkaException(partition.error)
            except KafkaException as error:
                if not kafka_error(error).retriable() or time.monotonic() > deadline:
                    raise
                time.sleep(AGAIN_SECONDS)  # the group's coordinator has just begun, or moves
            else:
                return

    def ends(self, topic: str, count: int | None = None, seconds: float | None = None) -> dict[int, int]:
        """Return where each partition ends for readers of committed records: an open transaction's come later.

        Args:
            topic: The topic.
            count: How many partitions it has; None: as many as the broker reports now.
            seconds: For how long the broker may take to answer; None: as usual.

        Raises:
            JMSException: The broker did not answer, or refused.
        """
        numbers = range(self.look_up(topic) if count is None else count)  # it may have been given partitions
        return self._offsets(topic, numbers, OffsetSpec.latest(), "end", seconds or self._timeout)

    def ends_after_commits(self, topic: str, count: int) -> Mapping[int, int]:
        """Return where the first *count* partitions end, behind every transaction whose offsets are committed by now.

        Raises:
            JMSException: The broker did not answer, or refused.
        """
        numbers = range(count)
        return ends_after_commits(partial(self._offsets, topic, numbers, OffsetSpec.latest(), "end", self._timeout))

    def beginning(self, topic: str, number: int) -> int:
        """Return the offset of the first record that partition *number* of *topic* still has, or will have.

        Raises:
            JMSException: The broker did not answer, or refused.
        """
        return self._offsets(topic, [number], OffsetSpec.earliest(), "beginning", self._timeout)[number]

    def _offsets(
        self,
        topic: str,
        numbers: Iterable[int],
        which: OffsetSpec,
        named: str,
        seconds: float,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[int, int]:
        deadline = time.monotonic() + seconds
        while True:
            asked = {TopicPartition(topic, number): which for number in numbers}
            try:
                answers = self.admin.list_offsets(asked, isolation_level=isolation, request_timeout=seconds)
                return {asked_for.partition: answer.result().offset for asked_for, answer in answers.items()}
            except KafkaException as error:
                inner = kafka_error(error)
                if time.monotonic() > deadline or not (inner.retriable() or inner.code() in NOT_READY):
                    doing = f"find the {named} of the Kafka topic {topic!r}"
                    raise jms_error(error, doing, to="Describe", topic=topic) from error
                time.sleep(0.02)  # a topic that was just made
                with contextlib.suppress(JMSException):  # or another leader: librdkafka does not ask for it by itself
                    self.refresh(topic)

    def log_ends(self, topics: Collection[str]) -> dict[str, dict[int, int]]:
        """Return where each partition of each of *topics* ends, open transactions included; what is gone is left out.

        Raises:
            JMSException: The broker does not answer.
        """
        there = self.counts(topics)
        places = [TopicPartition(topic, number) for topic in topics for number in range(there.get(topic, 0))]
        found: dict[str, dict[int, int]] = {}
        if not places:
            return found
        asked = {place: OffsetSpec.latest() for place in places}
        answers = self.admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=self._timeout
        )
        for place, answer in answers.items():
            try:
                found.setdefault(place.topic, {})[place.partition] = int(answer.result().offset)
            except KafkaException as error:
                with contextlib.suppress(JMSException):  # another leader, perhaps: the next attempt knows it
                    self.refresh(place.topic)
                raise jms_error(error, f"find the end of the Kafka topic {place.topic!r}") from error
        return found

    def all(self) -> dict[str, int]:
        """Return the partitions of every topic of the cluster, by name."""
        try:
            found = self.admin.list_topics(timeout=self._timeout).topics
        except KafkaException as error:
            raise jms_error(error, f"list the topics at {self._servers}") from error
        return {name: len(metadata.partitions) for name, metadata in found.items()}
