"""What a cluster holds, for tools beside the JMS API: topics, groups, subscriptions and delayed messages."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from kjms.engine.admin.bookkeeping import Bookkeeping
from kjms.engine.admin.notes import read_event
from kjms.engine.admin.questions import Questions
from kjms.engine.admin.topics import QUEUE_CONFIG, Topics
from kjms.engine.delayed.inspection import DelayedMessages
from kjms.engine.delayed.schedule import Schedule
from kjms.engine.kafka import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    IsolationLevel,
    KafkaError,
    KafkaException,
    KafkaMessage,
    OffsetSpec,
    ResourceType,
    TopicPartition,
    jms_error,
    kafka_error,
    open_consumer,
)
from kjms.engine.log_reading import UNTIL_END, records
from kjms.engine.publisher import Publisher
from kjms.engine.skipped import SkippedRecords
from kjms.engine.subscriptions.definitions import DURABLE, Found, Identity
from kjms.engine.subscriptions.subscriptions import Subscriptions
from kjms.errors import InvalidDestinationException
from kjms.mapping.internal import MalformedError
from kjms.mapping.names import REDELIVERIES, REGISTRY

__all__ = ["Admin", "Member"]

_IN_CHANGE: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE}
)
"""The broker's answers about a topic that is being created or deleted."""
_NOT_DESCRIBED: Final = frozenset({KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.GROUP_ID_NOT_FOUND})
"""Its answers about a group that this user may not describe, or that was just deleted."""


class Member(NamedTuple):
    """A member of a consumer group: what one process uses for all its consumers of a queue or subscription.

    Attributes:
        member_id: Its id in the group.
        client_id: The ``client.id`` of its Kafka client.
        host: The address that it connects from.
        partitions: Its partitions, by topic and number.
    """

    member_id: str
    client_id: str
    host: str
    partitions: tuple[tuple[str, int], ...]


class Admin:
    """Ask the cluster of an engine, with the engine's clients and credentials. Each call may raise JMSException.

    Args:
        topics: The engine's topics.
        subscriptions: Its subscriptions.
        schedule: Its delayed messages.
        publisher: Writes requests to cancel delayed messages.
        bookkeeping: Keeps copies of settlement.
        skipped: Counts the records that cannot be read.
        timeout: Seconds for each answer.
    """

    def __init__(
        self,
        topics: Topics,
        subscriptions: Subscriptions,
        schedule: Schedule,
        publisher: Publisher,
        bookkeeping: Bookkeeping,
        skipped: SkippedRecords,
        timeout: float,
    ) -> None:
        self._topics = topics
        self._subscriptions = subscriptions
        self._schedule = schedule
        self._publisher = publisher
        self._bookkeeping = bookkeeping
        self._skipped = skipped
        self._timeout = timeout

    # Topics.

    def topics(self) -> dict[str, int]:
        """Return the number of partitions of every topic."""
        return self._topics.all()

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of *topic* now; 0 where there is none."""
        return self._topics.look_up(topic)

    def ends(self, topic: str) -> dict[int, int]:
        """Return the offset after the last committed record of each partition of *topic*."""
        return self._topics.ends(topic)

    def spans(self, topics: Mapping[str, int]) -> dict[str, list[tuple[int, int]]]:
        """Return the first offset of each partition and the one after its last committed record.

        Args:
            topics: The number of partitions of each topic to ask for.
        """
        begins = self._offsets(topics, OffsetSpec.earliest())
        ends = self._offsets(topics, OffsetSpec.latest())
        return {
            topic: list(zip(begins[topic], ends[topic], strict=True))
            for topic in topics
            if begins[topic] and ends[topic]
        }

    def _offsets(self, topics: Mapping[str, int], which: OffsetSpec) -> dict[str, list[int]]:
        """Return an offset for each partition; nothing for a topic of which Kafka does not know all partitions now."""
        asked = {TopicPartition(topic, number): which for topic, count in topics.items() for number in range(count)}
        if not asked:
            return {}
        answers = self._topics.admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=self._timeout
        )
        found: dict[str, dict[int, int]] = {topic: {} for topic in topics}
        for position, answer in answers.items():
            result = _answer(answer, f"find the offsets of {position.topic!r}", none_if=_IN_CHANGE)
            if result is not None:
                found[position.topic][position.partition] = result.offset
        return {
            topic: [found[topic][number] for number in range(count)] if len(found[topic]) == count else []
            for topic, count in topics.items()
        }

    def settings(self, topics: Iterable[str], names: Collection[str]) -> dict[str, dict[str, str]]:
        """Return the settings *names* of each topic."""
        asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        if not asked:
            return {}
        found = {}
        for resource, answer in self._topics.admin.describe_configs(asked, request_timeout=self._timeout).items():
            own = _answer(answer, f"read the settings of {resource.name!r}", none_if=_IN_CHANGE)
            if own is not None:
                found[resource.name] = {name: own[name].value for name in names}
        return found

    def replicas(self) -> tuple[int, dict[str, int]]:
        """Return how many brokers there are, and how many replicas each topic has: the least of its partitions."""
        doing = "list the topics"
        try:
            found = self._topics.admin.list_topics(timeout=self._timeout)
        except KafkaException as error:
            raise jms_error(error, doing) from error
        least = {
            name: min((len(each.replicas) for each in topic.partitions.values()), default=0)
            for name, topic in found.topics.items()
        }
        return len(found.brokers), least

    def change_settings(self, topic: str, settings: Mapping[str, str]) -> None:
        """Change *settings* of *topic*, and no others."""
        operation = AlterConfigOpType.SET
        entries = [ConfigEntry(name, value, incremental_operation=operation) for name, value in settings.items()]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        answers = self._topics.admin.incremental_alter_configs([resource], request_timeout=self._timeout)
        try:
            for answer in answers.values():
                answer.result()
        except KafkaException as error:
            doing = f"change the settings of the Kafka topic {topic!r}"
            raise jms_error(error, doing, to="AlterConfigs", topic=topic) from error

    def create(
        self,
        topic: str,
        partitions: int,
        replication_factor: int | None,
        config: Mapping[str, str],
        *,
        is_queue: bool,
    ) -> bool:
        """Make *topic*, with the settings *config*; that of a queue keeps what was not consumed.

        Returns:
            Whether it was not there.
        """
        own = QUEUE_CONFIG if is_queue else {}
        is_new = self._topics.make(topic, partitions, replication_factor, {**own, **config})
        if is_new and is_queue:
            self._bookkeeping.keep_made(topic, is_awaited=True)
        return is_new

    def delete_topics(self, topics: Sequence[str]) -> None:
        """Delete *topics*; those that are not there are deleted already."""
        self._topics.delete(topics)

    def forget(self, topic: str, partitions: Mapping[str, int], groups: Iterable[str]) -> None:
        """Forget what is kept of *topic*, which is deleted.

        Args:
            topic: The Kafka topic of a destination.
            partitions: How many partitions it had, and each topic that was kept beside it.
            groups: The consumer groups of its queue.
        """
        for group in groups:
            self._bookkeeping.forget(group, [(each, n) for each, count in partitions.items() for n in range(count)])
        self._bookkeeping.forget_made(topic)

    # Groups.

    def groups(self) -> frozenset[str]:
        """Return the consumer groups."""
        doing = "list the consumer groups"
        answer = _answer(self._topics.admin.list_consumer_groups(request_timeout=self._timeout), doing)
        for error in answer.errors:  # of a broker that did not answer: its groups are missing
            raise jms_error(error, doing) from error
        return frozenset(group.group_id for group in answer.valid)

    def members(self, groups: Collection[str]) -> dict[str, list[Member]]:
        """Return the members of each of *groups*; a group that may not be described is left out."""
        if not groups:
            return {}
        answers = self._topics.coordinators.ask(
            lambda admin, timeout: admin.describe_consumer_groups(sorted(groups), request_timeout=timeout)
        )
        found = {}
        for group, answer in answers.items():
            described = _answer(answer, f"describe group {group!r}", none_if=_NOT_DESCRIBED)
            if described is not None:
                found[group] = [
                    Member(
                        each.member_id,
                        each.client_id,
                        each.host.removeprefix("/"),
                        tuple((place.topic, place.partition) for place in each.assignment.topic_partitions),
                    )
                    for each in described.members
                ]
        return found

    def settled(self, groups: Mapping[str, str]) -> dict[str, dict[str, dict[int, int]]]:
        """Return what each group has committed, by topic and partition.

        Args:
            groups: What errors call the messages of each group.
        """
        found: dict[str, dict[str, dict[int, int]]] = {group: {} for group in groups}
        for group, answer in self._topics.coordinators.committed(groups).items():
            for position in _answer(answer, f"find what is settled of {groups[group]}").topic_partitions:
                if position.offset >= 0:
                    found[group].setdefault(position.topic, {})[position.partition] = position.offset
        return found

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Return what *group* has committed for the partitions of *topic*, whatever transactions are open."""
        places = [TopicPartition(topic, number) for number in range(self.partitions(topic))]
        return {each.partition: each.offset for each in self._topics.committed(group, places) if each.offset >= 0}

    def commit(self, group: str, positions: Mapping[tuple[str, int], int]) -> None:
        """Commit *positions*, offsets by topic and partition, for *group*, which has no members."""
        places = [TopicPartition(*place, offset) for place, offset in positions.items()]
        try:
            self._topics.commit(group, places)
        except KafkaException as error:
            raise jms_error(error, f"commit for group {group!r}", group=group) from error

    def delete_group(self, group: str, *, is_left: bool = False) -> bool:
        """Delete what *group* has committed; return False if it has members, and True if there is no such group.

        Args:
            group: The group.
            is_left: Whether its last member may have left just now.
        """
        try:
            self._topics.coordinators.delete(group, is_left=is_left)
        except KafkaException as error:
            if kafka_error(error).code() == KafkaError.NON_EMPTY_GROUP:
                return False
            raise jms_error(error, f"delete group {group!r}", to="Delete", group=group) from error
        return True

    # Subscriptions.

    def subscriptions(self) -> list[Found]:
        """Return the subscriptions of all processes that have a name, without making the topic that lists them."""
        return self._subscriptions.find() if self.partitions(REGISTRY) else []

    def remove_subscription(self, name: str, client_id: str | None) -> None:
        """End a durable subscription.

        Raises:
            InvalidDestinationException: There is none of that name.
            IllegalStateException: It has an open consumer.
        """
        if not self.partitions(REGISTRY):
            raise InvalidDestinationException(f"there is no durable subscription {name!r}")
        self._subscriptions.remove(Identity(DURABLE, client_id, name))

    # Logs.

    def redelivery_log(
        self, wanted: bytes, since: int | None = None
    ) -> Generator[Mapping[str, Any] | None, None, None]:
        """Return what the records of the log of redeliveries say that are there now; None for those not wanted.

        Args:
            wanted: What the value of a record has in it that is to be read.
            since: Which are not of interest because they are older, in milliseconds since the epoch; None: all are.
        """
        count = self.partitions(REDELIVERIES)
        spans = self.spans({REDELIVERIES: count}).get(REDELIVERIES, []) if count else []
        starts = [begin for begin, _ in spans]
        if spans and since is not None:
            found = self._offsets({REDELIVERIES: count}, OffsetSpec.for_timestamp(since))[REDELIVERIES]
            later = zip(found, spans, strict=False)
            starts = [end if first < 0 else max(first, begin) for first, (begin, end) in later] or starts
        ends = {(REDELIVERIES, n): end for n, (_, end) in enumerate(spans) if starts[n] < end}
        if not ends:
            return
        consumer = open_consumer({**self._schedule.reading, **UNTIL_END})
        try:
            consumer.assign([TopicPartition(topic, number, starts[number]) for topic, number in ends])
            for record in records(consumer, ends, self._timeout):
                yield self._event(record) if wanted in (record.value() or b"") else None
        except KafkaException as error:
            raise jms_error(error, f"read the Kafka topic {REDELIVERIES!r}", to="Read", topic=REDELIVERIES) from error
        finally:
            consumer.close()

    def _event(self, record: KafkaMessage) -> Mapping[str, Any] | None:
        try:
            return read_event(record.value())
        except MalformedError as error:
            self._skipped.add(record.topic(), record.partition(), record.offset(), error)
            return None

    # Delayed messages.

    def delayed(self, topic: str) -> DelayedMessages:
        """Return a reading of the delayed messages of *topic*, which the caller closes."""
        return DelayedMessages(
            self._schedule, self._publisher, Questions(self._topics, self._timeout), topic, self._timeout
        )

    def serve_delayed(self, topic: str) -> None:
        """Serve the delayed messages of *topic* until the engine ends."""
        self._schedule.serve(topic)

    def make_delayed(self, topic: str, partitions: int) -> str:
        """Return the Kafka topic for delayed messages of *topic*, made where it is missing."""
        return self._schedule.make(topic, partitions)

    def prepare_delayed(self, topic: str, partitions: int) -> str:
        """Return the Kafka topic for delayed messages of *topic*, made where it is missing, and serve it."""
        return self._schedule.prepare(topic, partitions)


def _answer(future: Future[Any], doing: str, none_if: frozenset[int] = frozenset()) -> Any:
    """Return the broker's answer; None where it is one of the error codes *none_if*.

    Raises:
        JMSException: It is another error, which came while *doing* this.
    """
    try:
        return future.result()
    except KafkaException as error:
        if kafka_error(error).code() in none_if:
            return None
        raise jms_error(error, doing) from error
