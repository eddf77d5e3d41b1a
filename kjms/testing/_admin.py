"""The admin client of an in-memory Kafka, as confluent-kafka's behaves."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, TypeVar

from kjms.engine.kafka import (
    OFFSET_INVALID,
    BrokerMetadata,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConsumerGroupListing,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    DeletedRecords,
    IsolationLevel,
    KafkaError,
    KafkaException,
    ListConsumerGroupsResult,
    ListOffsetsResultInfo,
    NewPartitions,
    NewTopic,
    Node,
    OffsetSpec,
    PartitionMetadata,
    TopicCollection,
    TopicDescription,
    TopicMetadata,
    TopicPartition,
    TopicPartitionInfo,
)
from kjms.testing._client import MemoryClient
from kjms.testing._cluster import NEVER, Cluster, refused
from kjms.testing._consumer import RefusedPlace, committable, offset_of
from kjms.testing._faults import Operation
from kjms.testing._logs import DEFAULTS

__all__ = ["MemoryAdmin", "described"]

LEGAL: Final = re.compile(r"[A-Za-z0-9._-]+")
LONGEST_NAME: Final = 249
BROKER: Final = 1

Asked = TypeVar("Asked", bound=Hashable)


def described(cluster: Cluster, topic: str | None) -> ClusterMetadata:
    """Return the metadata of *topic*, or of all."""
    found = ClusterMetadata()
    found.cluster_id = cluster.address
    found.controller_id = found.orig_broker_id = BROKER
    host, _, port = cluster.address.rpartition(":")
    for number in range(BROKER, BROKER + cluster.nodes):
        broker = found.brokers[number] = BrokerMetadata()
        broker.id, broker.host, broker.port = number, host, int(port)
    found.orig_broker_name = f"{cluster.address}/{BROKER}"
    for name in cluster.topics if topic is None else [topic]:
        entry = found.topics[name] = TopicMetadata()
        entry.topic = name
        for number in range(cluster.partitions(name)):
            partition = entry.partitions[number] = PartitionMetadata()
            replicas = [*range(BROKER, BROKER + cluster.topics[name].replicas)]
            partition.id, partition.leader, partition.replicas, partition.isrs = number, BROKER, replicas, replicas
        refusal = cluster.faults.refusal("describe", topic=name)
        if refusal is not None:
            entry.partitions.clear()
            entry.error = refusal
        elif not entry.partitions:
            unknown, illegal = KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION
            entry.error = KafkaError(illegal if wrong_with(name) else unknown)
    return found


def wrong_with(name: str) -> str:
    """Return what is wrong with *name* as the name of a topic, in Kafka's words; "": nothing."""
    if not name:
        return "the empty string is not allowed"
    if name in {".", ".."}:
        return f"'{name}' is not allowed"
    if len(name) > LONGEST_NAME:
        return f"the length of '{name}' is longer than the max allowed length {LONGEST_NAME}"
    if LEGAL.fullmatch(name) is None:
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return ""


class MemberAssignment(NamedTuple):
    """The partitions of a member, with the attributes of confluent-kafka."""

    topic_partitions: list[TopicPartition]


class MemberDescription(NamedTuple):
    """A member of a consumer group, with the attributes of confluent-kafka."""

    member_id: str
    client_id: str
    host: str
    assignment: MemberAssignment


class GroupDescription(NamedTuple):
    """A consumer group, with the attributes of confluent-kafka."""

    group_id: str
    state: ConsumerGroupState
    members: list[MemberDescription]


class MemoryAdmin(MemoryClient):
    """An admin client; see `kjms.engine.kafka.AdminPort`. Futures are done when they are returned.

    Args:
        cluster: The cluster.
        config: librdkafka's settings.
    """

    def __init__(self, cluster: Cluster, config: Mapping[str, Any]) -> None:
        super().__init__(cluster, config)
        cluster.add(self)

    def poll(self, timeout: float) -> int:
        cluster = self._cluster
        until = NEVER if timeout < 0 else cluster.clock.monotonic() + timeout
        with cluster.lock:
            while not self._errors and cluster.wait(self._condition, until):
                pass
        return self._tell()

    # Topics.

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        cluster = self._cluster
        until = NEVER if timeout < 0 else cluster.clock.monotonic() + timeout
        cluster.check("list_topics", self)
        with cluster.request(self, "describe", topic=topic or "", until=until):
            return described(cluster, topic)

    def describe_topics(
        self, topics: TopicCollection, *, request_timeout: float = 60
    ) -> dict[str, Future[TopicDescription]]:
        def describe(name: str) -> TopicDescription:
            refusal = self._cluster.faults.refusal("describe", topic=name)
            if refusal is not None:
                raise KafkaException(refusal)
            topic = self._cluster.topics.get(name)
            if topic is None:
                raise refused(KafkaError.UNKNOWN_TOPIC_OR_PART)
            host, _, port = self._cluster.address.rpartition(":")
            nodes = [Node(number, host, int(port)) for number in range(BROKER, BROKER + topic.replicas)]
            infos = [TopicPartitionInfo(number, nodes[0], nodes, nodes) for number in range(len(topic.logs))]
            return TopicDescription(name, topic.id, name.startswith("__"), infos)

        return self._each("describe", topics.topic_names, request_timeout, describe, topic=str)

    def create_topics(
        self,
        new_topics: list[NewTopic],
        *,
        operation_timeout: float = 60,
        request_timeout: float = 60,
        validate_only: bool = False,
    ) -> dict[str, Future[None]]:
        wanted = {new.topic: new for new in new_topics}
        # As in Kafka, which looks at the topics that were there before the request.
        collisions = {name: self._cluster.colliding(name) for name in wanted}

        def create(name: str) -> None:
            new = wanted[name]
            count = new.num_partitions if new.num_partitions != -1 else 1
            if name in self._cluster.topics:
                raise refused(KafkaError.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
            if wrong := wrong_with(name):
                raise refused(KafkaError.TOPIC_EXCEPTION, f"Topic name is invalid: {wrong}")
            if other := collisions[name]:
                raise refused(KafkaError.TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")
            if count < 1:
                raise refused(
                    KafkaError.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
                )
            replicas = new.replication_factor if new.replication_factor != -1 else 1
            if not 1 <= replicas <= self._cluster.nodes:
                text = (
                    f"Unable to replicate the partition {replicas} time(s): The target replication factor of {replicas}"
                    f" cannot be reached because only {self._cluster.nodes} broker(s) are registered."
                )
                raise refused(KafkaError.INVALID_REPLICATION_FACTOR, text)
            for key in new.config or {}:
                if key not in DEFAULTS:
                    raise refused(KafkaError.INVALID_CONFIG, f"Unknown topic config name: {key}")
            if not validate_only:
                self._cluster.make(name, count, replicas, new.config or {})

        return self._each("create_topic", wanted, request_timeout, create, topic=str)

    def create_partitions(
        self, new_partitions: list[NewPartitions], *, request_timeout: float = 60
    ) -> dict[str, Future[None]]:
        wanted = {new.topic: new.new_total_count for new in new_partitions}

        def grow(name: str) -> None:
            there = self._cluster.partitions(name)
            if not there:
                raise refused(KafkaError.UNKNOWN_TOPIC_OR_PART)
            if wanted[name] <= there:
                text = f"The topic {name} currently has {there} partition(s); {wanted[name]} would not be an increase."
                raise refused(KafkaError.INVALID_PARTITIONS, text)
            self._cluster.grow(name, wanted[name])

        return self._each("alter_topic", wanted, request_timeout, grow, topic=str)

    def delete_topics(
        self, topics: list[str], *, operation_timeout: float = 60, request_timeout: float = 60
    ) -> dict[str, Future[None]]:
        def delete(name: str) -> None:
            if name not in self._cluster.topics:
                raise refused(KafkaError.UNKNOWN_TOPIC_OR_PART)
            self._cluster.delete(name)

        return self._each("delete_topic", topics, request_timeout, delete, topic=str)

    def delete_records(
        self, partitions: list[TopicPartition], *, request_timeout: float = 60
    ) -> dict[TopicPartition, Future[DeletedRecords]]:
        def delete(place: TopicPartition) -> DeletedRecords:
            log = self._cluster.log((place.topic, place.partition))
            if log is None:
                raise refused(KafkaError.UNKNOWN_TOPIC_OR_PART)
            before = log.end if place.offset == -1 else place.offset
            if not 0 <= before <= log.end:
                raise refused(KafkaError.OFFSET_OUT_OF_RANGE)
            if before > log.start:
                log.delete_before(before)
            return DeletedRecords(log.start)

        return self._each("delete_records", partitions, request_timeout, delete, topic=lambda place: str(place.topic))

    def describe_configs(
        self, resources: list[ConfigResource], *, request_timeout: float = 60
    ) -> dict[ConfigResource, Future[dict[str, ConfigEntry]]]:
        def describe(resource: ConfigResource) -> dict[str, ConfigEntry]:
            topic = self._cluster.topics.get(resource.name)
            if topic is None:
                raise refused(KafkaError.UNKNOWN_TOPIC_OR_PART)
            found = {}
            for name in {**DEFAULTS, **topic.settings}:
                is_own = name in topic.settings
                source = ConfigSource.DYNAMIC_TOPIC_CONFIG if is_own else ConfigSource.DEFAULT_CONFIG
                found[name] = ConfigEntry(name, topic.setting(name), source.value, is_default=not is_own)
            return found

        return self._each(
            "describe_configs", resources, request_timeout, describe, topic=lambda resource: str(resource.name)
        )

    def incremental_alter_configs(
        self, resources: list[ConfigResource], *, request_timeout: float = 60
    ) -> dict[ConfigResource, Future[None]]:
        def change(resource: ConfigResource) -> None:
            topic = self._cluster.topics.get(resource.name)
            if topic is None:
                raise refused(KafkaError.UNKNOWN_TOPIC_OR_PART)
            topic.settings.update({entry.name: entry.value for entry in resource.incremental_configs})

        return self._each(
            "alter_configs", resources, request_timeout, change, topic=lambda resource: str(resource.name)
        )

    def list_offsets(
        self,
        partitions: Mapping[TopicPartition, OffsetSpec],
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        request_timeout: float = 60,
    ) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
        is_committed = isolation_level == IsolationLevel.READ_COMMITTED

        def find(place: TopicPartition) -> ListOffsetsResultInfo:
            log = self._cluster.log((place.topic, place.partition))
            if log is None:
                raise refused(KafkaError._NOENT, "Failed to query partition leaders: No leaders found")
            spec = partitions[place]
            if spec == OffsetSpec.earliest():
                return ListOffsetsResultInfo(log.start, -1, -1)
            if spec == OffsetSpec.latest():
                return ListOffsetsResultInfo(log.stable_end if is_committed else log.end, -1, -1)
            if spec == OffsetSpec.max_timestamp():
                newest = max(
                    log.visible(log.start, is_committed=is_committed),
                    key=lambda r: (r.timestamp, -r.offset),
                    default=None,
                )
            else:
                newest = log.offset_of(spec._value, is_committed=is_committed)
            if newest is None:
                return ListOffsetsResultInfo(-1, -1, -1)
            return ListOffsetsResultInfo(newest.offset, newest.timestamp, -1)

        return self._each("list_offsets", partitions, request_timeout, find, topic=lambda place: str(place.topic))

    # Groups.

    def list_consumer_groups(self, *, request_timeout: float = 60) -> Future[ListConsumerGroupsResult]:
        def find(_: str) -> ListConsumerGroupsResult:
            found = []
            for group in self._cluster.groups.values():
                if group.members or group.offsets:
                    state = ConsumerGroupState.STABLE if group.members else ConsumerGroupState.EMPTY
                    is_simple = not group.members and group.empty_since is None
                    listing = ConsumerGroupListing(group.name, is_simple, state=state, type=ConsumerGroupType.CLASSIC)
                    found.append(listing)
            return ListConsumerGroupsResult(valid=found, errors=[])

        return self._each("describe_groups", [""], request_timeout, find)[""]

    def describe_consumer_groups(
        self, groups: list[str], *, request_timeout: float = 60
    ) -> dict[str, Future[GroupDescription]]:
        def describe(name: str) -> GroupDescription:
            group = self._cluster.groups.get(name)
            if group is None or not (group.members or group.offsets or group.pending or group.empty_since):
                return GroupDescription(name, ConsumerGroupState.DEAD, [])
            state = ConsumerGroupState.STABLE if group.members else ConsumerGroupState.EMPTY
            members = [
                MemberDescription(
                    member.id,
                    member.consumer.client_id,
                    "/127.0.0.1",
                    MemberAssignment([TopicPartition(*place) for place in sorted(member.owned)]),
                )
                for member in group.members.values()
            ]
            return GroupDescription(name, state, members)

        return self._each("describe_groups", groups, request_timeout, describe, group=str)

    def list_consumer_group_offsets(
        self, groups: list[ConsumerGroupTopicPartitions], *, request_timeout: float = 60
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        wanted = {each.group_id: each.topic_partitions for each in groups}

        def find(name: str) -> ConsumerGroupTopicPartitions:
            known = self._cluster.group(name).offsets
            asked = wanted[name]
            places = list(known) if asked is None else [(place.topic, place.partition) for place in asked]
            return ConsumerGroupTopicPartitions(
                name,
                [
                    TopicPartition(*place, known[place].offset, known[place].metadata)
                    if place in known
                    else TopicPartition(*place, OFFSET_INVALID)
                    for place in places
                ],
            )

        return self._each("committed", wanted, request_timeout, find, group=str)

    def alter_consumer_group_offsets(
        self, groups: list[ConsumerGroupTopicPartitions], *, request_timeout: float = 60
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        wanted = {each.group_id: each.topic_partitions for each in groups}

        def alter(name: str) -> ConsumerGroupTopicPartitions:
            group = self._cluster.group(name)
            refusal = group.refusal(-1, "")
            answers: list[TopicPartition] = []
            for place in wanted[name]:
                code = refusal if refusal is not None else committable(self._cluster, place)
                if code is not None:
                    answers.append(RefusedPlace(place, KafkaError(code)))
                    continue
                group.commit((place.topic, place.partition), offset_of(self._cluster, place))
                answers.append(TopicPartition(place.topic, place.partition, place.offset))
            return ConsumerGroupTopicPartitions(name, answers)

        return self._each("commit", wanted, request_timeout, alter, group=str)

    def delete_consumer_groups(self, groups: list[str], *, request_timeout: float = 60) -> dict[str, Future[None]]:
        def delete(name: str) -> None:
            group = self._cluster.groups.get(name)
            if group is None or not (group.members or group.offsets or group.pending or group.empty_since):
                raise refused(KafkaError.GROUP_ID_NOT_FOUND)
            if group.members:
                raise refused(KafkaError.NON_EMPTY_GROUP)
            del self._cluster.groups[name]

        return self._each("delete_group", groups, request_timeout, delete, group=str)

    # Answers.

    def _each(
        self,
        operation: Operation,
        asked: Iterable[Asked],
        timeout: float,
        answer: Callable[[Asked], Any],
        *,
        topic: Callable[[Asked], str] = lambda _: "",
        group: Callable[[Asked], str] = lambda _: "",
    ) -> dict[Asked, Future[Any]]:
        """Return a future for each thing that is asked for."""
        cluster = self._cluster
        futures: dict[Asked, Future[Any]] = {}
        for each in asked:
            future = futures[each] = Future()
            future.set_running_or_notify_cancel()
            arguments = (future, operation, each, timeout, answer, topic(each), group(each))
            with cluster.lock:
                is_away = cluster.faults.is_away(self.client)
            if is_away:  # the caller need not wait; there is no thread while nothing is wrong
                threading.Thread(target=self._answer, args=arguments, name="kjms-memory-answer", daemon=True).start()
            else:
                self._answer(*arguments)
        return futures

    def _answer(
        self,
        future: Future[Any],
        operation: Operation,
        asked: Asked,
        timeout: float,
        answer: Callable[[Asked], Any],
        topic: str,
        group: str,
    ) -> None:
        cluster = self._cluster
        until = cluster.clock.monotonic() + timeout
        try:
            cluster.check(operation, self)
            with cluster.request(self, operation, topic=topic, group=group, until=until):
                result = answer(asked)
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(result)
