"""The consumer of an in-memory Kafka, as confluent-kafka's behaves."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

from kjms.engine.kafka import (
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    KafkaError,
    KafkaException,
    KafkaMessage,
    OnRebalance,
    TopicPartition,
)
from kjms.testing._client import MemoryClient
from kjms.testing._cluster import NEVER, Cluster, refused
from kjms.testing._groups import ASSIGN, LOSE, REVOKE, Change, Group, GroupMetadata, Member, Offset
from kjms.testing._readings import Readings, event

__all__ = ["METADATA_LIMIT", "MemoryConsumer", "RefusedPlace", "committable"]

METADATA_LIMIT: Final = 4096
"""How many bytes a commit's metadata may have, with the NUL that librdkafka writes behind it."""


class RefusedPlace:
    """A partition in an answer, with an error: confluent-kafka's own class lets no program set one."""

    def __init__(self, place: TopicPartition, error: KafkaError) -> None:
        self.topic = place.topic
        self.partition = place.partition
        self.offset = place.offset
        self.metadata = place.metadata
        self.leader_epoch = None
        self.error = error


class MemoryConsumer(MemoryClient):
    """A consumer; see `kjms.engine.kafka.ConsumerPort`.

    Args:
        cluster: The cluster.
        config: librdkafka's settings.
    """

    def __init__(self, cluster: Cluster, config: Mapping[str, Any]) -> None:
        super().__init__(cluster, config)
        self._group_name = str(config["group.id"])
        self._session_timeout = float(config.get("session.timeout.ms", 45_000)) / 1000
        self._readings = Readings(cluster, self, config)
        self._member: Member | None = None
        self._topics: list[str] = []
        self._callbacks: dict[str, OnRebalance | None] = {}
        self._is_leaving = False
        self._is_refused = False  # whether an event has said that it may not join
        self._has_assigned = False  # whether the callback that runs has seen to the assignment itself
        self._is_over = False  # whether it has said that its cluster is
        self._is_closed = False
        cluster.add(self)

    # What the cluster calls, with the lock held.

    @property
    def membership(self) -> tuple[Group, Member] | None:
        """The group that it is a member of, and what that knows of it."""
        return None if self._member is None else (self._group, self._member)

    def lose(self) -> None:
        """Be no member any more, without having left: the partitions are lost, and the consumer joins again."""
        member = self._member
        if member is None:
            return
        self._group.leave(member, self._cluster.clock.monotonic())
        coming = [change.places for change in member.changes if change.kind == ASSIGN]  # a callback may be at it
        member.changes.clear()
        member.tell(LOSE, member.owned.union(*coming))

    # In a group.

    @property
    def _group(self) -> Group:
        return self._cluster.group(self._group_name)

    def subscribe(
        self, topics: list[str], *, on_assign: OnRebalance, on_revoke: OnRebalance, on_lost: OnRebalance
    ) -> None:
        with self._enter("subscribe"):
            self._callbacks = {ASSIGN: on_assign, REVOKE: on_revoke, LOSE: on_lost}
            self._topics = list(topics)
            self._is_leaving = False
            for topic in topics:
                if topic not in self._cluster.topics:
                    text = f"Subscribed topic not available: {topic}: Broker: Unknown topic or partition"
                    self._readings.events.append(
                        event(KafkaError.UNKNOWN_TOPIC_OR_PART, (topic, 0), OFFSET_INVALID, text)
                    )
            self._join()

    def _join(self) -> None:
        """Join the group, as soon as brokers answer and nothing forbids it."""
        faults = self._cluster.faults
        if not self._topics or self._member is not None or faults.is_away(self.client):
            return
        refusal = faults.refusal("join", group=self._group_name)
        fault = faults.next("join", self.client, group=self._group_name)
        error = refusal if fault is None else fault.error
        if error is not None:
            if not self._is_refused:
                self._is_refused = refusal is not None
                text = f"JoinGroup failed: {error.str()}"
                self._readings.events.append(event(error.code(), ("", 0), OFFSET_INVALID, text))
            return
        self._is_refused = False
        self._member = Member(self, self.client_id, self._topics, self._session_timeout)
        self._group.join(self._member)

    def unsubscribe(self) -> None:
        with self._enter("unsubscribe"):
            member = self._member
            self._topics = []
            if member is None:
                return
            self._is_leaving = True
            if member.id not in self._group.members:  # it learns that it has lost everything
                return
            member.changes.clear()
            if member.owned:
                member.tell(REVOKE, member.owned)
            else:
                self._leave()

    def _leave(self) -> None:
        member, self._member = self._member, None
        self._is_leaving = False
        if member is not None:
            self._group.leave(member, self._cluster.clock.monotonic())

    def memberid(self) -> str | None:
        with self._cluster.lock:
            member = self._member
            is_known = member is not None and member.id in self._group.members
            return member.id if member is not None and is_known else None

    def consumer_group_metadata(self) -> GroupMetadata:
        with self._enter("consumer_group_metadata"):
            if self._member is None:
                return GroupMetadata(self._group_name, -1, "")
            return GroupMetadata(self._group_name, self._member.generation, self._member.id)

    def _rebalance(self) -> None:
        """Run the callbacks for what the group has changed; the lock is not held meanwhile."""
        while True:
            with self._cluster.lock:
                member = self._member
                if member is None or not member.changes:
                    return
                change = member.changes[0]
                self._has_assigned = False
            callback = self._callbacks.get(change.kind)
            if callback is not None:
                callback(self, [TopicPartition(*place, OFFSET_INVALID) for place in sorted(change.places)])
            with self._cluster.lock:
                self._changed(member, change)

    def _changed(self, member: Member, change: Change) -> None:
        if not self._has_assigned:  # confluent-kafka does what the callback has not
            if change.kind == ASSIGN:
                new = sorted(place for place in change.places if place not in self._readings)
                self._readings.add(TopicPartition(*place, OFFSET_STORED) for place in new)
            else:
                self._readings.remove(place for place in change.places if place in self._readings)
        if member.changes and member.changes[0] is change:
            member.told()
        if self._member is not member:
            return
        if change.kind == LOSE and member.id not in self._group.members:
            self._member = None
            self._is_leaving = False
            self._join()
        elif self._is_leaving and not member.changes:
            self._leave()
        else:
            self._group.heard(member, change)

    # What is read.

    def assign(self, partitions: list[TopicPartition]) -> None:
        with self._enter("assign"):
            self._has_assigned = True
            self._readings.remove(self._readings)
            self._readings.events.clear()
            self._readings.add(partitions)

    def unassign(self) -> None:
        with self._enter("unassign"):
            self._has_assigned = True
            self._readings.remove(self._readings)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        with self._enter("incremental_assign"):
            self._has_assigned = True
            for each in partitions:
                if (each.topic, each.partition) in self._readings:
                    text = f"{each.topic} [{each.partition}] is already part of the current assignment"
                    raise refused(KafkaError._CONFLICT, text)
            self._readings.add(partitions)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        with self._enter("incremental_unassign"):
            self._has_assigned = True
            for each in partitions:
                if (each.topic, each.partition) not in self._readings:
                    text = (
                        f"{each.topic} [{each.partition}] can't be unassigned since it is not in the current assignment"
                    )
                    raise refused(KafkaError._INVALID_ARG, text)
            self._readings.remove((each.topic, each.partition) for each in partitions)

    def assignment(self) -> list[TopicPartition]:
        with self._enter("assignment"):
            return [TopicPartition(*place, self._readings.position(place)) for place in self._readings]

    def pause(self, partitions: list[TopicPartition]) -> None:
        with self._enter("pause"):
            self._readings.pause(partitions, is_paused=True)

    def resume(self, partitions: list[TopicPartition]) -> None:
        with self._enter("resume"):
            self._readings.pause(partitions, is_paused=False)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        with self._enter("position"):
            places = [(each.topic, each.partition) for each in partitions]
            return [TopicPartition(*place, self._readings.position(place)) for place in places]

    # Reading.

    def poll(self, timeout: float) -> KafkaMessage | None:
        found = self._wait_for(1, timeout)
        return found[0] if found else None

    def consume(self, num_messages: int, timeout: float) -> list[KafkaMessage]:
        return self._wait_for(num_messages, timeout)

    def _wait_for(self, most: int, timeout: float) -> list[KafkaMessage]:
        cluster = self._cluster
        until = NEVER if timeout < 0 else cluster.clock.monotonic() + timeout
        advances = cluster.advances
        while True:
            with cluster.lock:
                while True:
                    if self._is_closed:
                        raise RuntimeError("Consumer closed")
                    end = cluster.end_of(self)
                    if end is not None:
                        return self._last_words(end, until)
                    cluster.expire()
                    if self._topics and self._member is None:
                        self._join()
                    if self._errors or (self._member is not None and self._member.changes):
                        break
                    found = self._readings.take(most)
                    if found or advances != cluster.advances or not cluster.wait(self._condition, until):
                        return found
            self._tell()
            self._rebalance()

    def _last_words(self, end: KafkaError, until: float) -> list[KafkaMessage]:
        """Say once why nothing comes any more; wait, after that, as where there is nothing."""
        if self._is_over:
            self._cluster.wait(self._condition, until)
            return []
        self._is_over = True
        return [event(end.code(), ("", 0), OFFSET_INVALID, end.str())]

    # Offsets.

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        cluster = self._cluster
        if asynchronous and cluster.faults.is_away(self.client):  # it fails, and no call reports it
            return []
        try:
            with (
                self._enter("commit"),
                cluster.request(self, "commit", group=self._group_name),
            ):
                known = self._member
                member, generation = ("", -1) if known is None else (known.id, known.generation)
                code = self._group.refusal(generation, member)
                if code is not None:
                    raise refused(code, f"Commit failed: {KafkaError(code).str()}")
                for each in offsets:
                    failure = committable(cluster, each)
                    if failure is None:
                        self._group.commit((each.topic, each.partition), offset_of(cluster, each))
                    code = code or failure
                if code is not None:
                    raise refused(code, f"Commit failed: {KafkaError(code).str()}")
        except KafkaException:
            if asynchronous:
                return []
            raise
        return [TopicPartition(each.topic, each.partition, each.offset, each.metadata or "") for each in offsets]

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        cluster = self._cluster
        places = [(each.topic, each.partition) for each in partitions]
        until = NEVER if timeout < 0 else cluster.clock.monotonic() + timeout
        with (
            self._enter("committed"),
            cluster.request(self, "committed", group=self._group_name, until=until),
        ):
            while self._readings.is_committed and self._group.is_unstable(places):
                if not cluster.wait(cluster.changed, until):
                    raise refused(KafkaError._TIMED_OUT, "Failed to get committed offsets: Local: Timed out")
                cluster.check("committed", self)
            answers = []
            for place in places:
                known = self._group.offsets.get(place)
                answers.append(
                    TopicPartition(*place, OFFSET_INVALID)
                    if known is None
                    else TopicPartition(*place, known.offset, known.metadata)
                )
            return answers

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float, cached: bool = False) -> tuple[int, int]:
        cluster = self._cluster
        log = cluster.log((partition.topic, partition.partition)) if cached else None
        if log is not None:
            return log.start, log.end
        until = NEVER if timeout < 0 else cluster.clock.monotonic() + timeout
        with (
            self._enter("get_watermark_offsets"),
            cluster.request(self, "list_offsets", topic=partition.topic, until=until),
        ):
            log = cluster.log((partition.topic, partition.partition))
            if log is None:
                text = "Failed to get watermark offsets: Local: Unknown partition"
                raise refused(KafkaError._UNKNOWN_PARTITION, text)
            return log.start, log.stable_end if self._readings.is_committed else log.end

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        cluster = self._cluster
        until = NEVER if timeout < 0 else cluster.clock.monotonic() + timeout
        topic = partitions[0].topic if partitions else ""
        with (
            self._enter("offsets_for_times"),
            cluster.request(self, "list_offsets", topic=topic, until=until),
        ):
            answers = []
            for each in partitions:
                log = cluster.log((each.topic, each.partition))
                if log is None:
                    answers.append(RefusedPlace(each, KafkaError(KafkaError._UNKNOWN_PARTITION)))
                    continue
                found = log.offset_of(each.offset, is_committed=self._readings.is_committed)
                answers.append(
                    TopicPartition(each.topic, each.partition, OFFSET_END if found is None else found.offset)
                )
            return answers

    def close(self) -> None:
        """Run the revocation's callback, and leave the group."""
        with self._cluster.lock:
            if self._is_closed:
                return
            if self._cluster.closed is not None or self.client in self._cluster.faults.killed:
                self._is_closed = True
                return
        self.unsubscribe()
        self._rebalance()
        with self._cluster.lock:
            self._leave()
            self._readings.remove(self._readings)
            self._is_closed = True
            self._cluster.clients.discard(self)
            self._condition.notify_all()

    def _enter(self, doing: str) -> threading.RLock:
        """Return the lock, for a call that is allowed now."""
        self._cluster.check(doing, self)
        if self._is_closed:
            raise RuntimeError("Consumer closed")
        return self._cluster.lock


def offset_of(cluster: Cluster, place: TopicPartition) -> Offset:
    """Return what is committed with *place*."""
    return Offset(place.offset, place.metadata or "", cluster.next_order(), cluster.clock.monotonic())


def committable(cluster: Cluster, place: TopicPartition) -> int | None:
    """Return the error code with which the broker refuses to commit *place*; None: it does not."""
    if cluster.log((place.topic, place.partition)) is None:
        return int(KafkaError.UNKNOWN_TOPIC_OR_PART)
    if len((place.metadata or "").encode()) >= METADATA_LIMIT:
        return int(KafkaError.OFFSET_METADATA_TOO_LARGE)
    return None
