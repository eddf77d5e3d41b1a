"""The consumer of an in-memory Kafka, as confluent-kafka's behaves."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kjms.engine.kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    KafkaError,
    KafkaException,
    KafkaMessage,
    OnRebalance,
    TopicPartition,
)
from kjms.testing._cluster import NEVER, Cluster, refused
from kjms.testing._groups import ASSIGN, LOSE, REVOKE, Change, Group, GroupMetadata, Member, Offset, Place

__all__ = ["METADATA_LIMIT", "MemoryConsumer", "RefusedPlace", "committable"]

METADATA_LIMIT: Final = 4096
"""How many bytes a commit's metadata may have, with the NUL that librdkafka writes behind it."""
MOST_OF_ONE: Final = 500
"""How many records come from one partition before the next has its turn."""


class RefusedPlace:
    """A partition in an answer, with an error: confluent-kafka's own class lets no program set one."""

    def __init__(self, place: TopicPartition, error: KafkaError) -> None:
        self.topic = place.topic
        self.partition = place.partition
        self.offset = place.offset
        self.metadata = place.metadata
        self.leader_epoch = None
        self.error = error


class Reading:
    """A partition that a consumer reads."""

    __slots__ = ("end_told", "is_paused", "is_seen", "place", "position")

    def __init__(self, place: Place, position: int) -> None:
        self.place = place
        self.position = position
        self.is_paused = False
        self.is_seen = True  # whether the partition was there
        self.end_told = -1  # where the last end-of-partition event was


def event(code: int, place: Place, offset: int, text: str | None = None) -> KafkaMessage:
    """Return the message that carries an error or event of a partition."""
    error = KafkaError(code) if text is None else KafkaError(code, text)
    return KafkaMessage(topic=place[0], partition=place[1], offset=offset, value=error.str().encode(), error=error)


class MemoryConsumer:
    """A consumer; see `kjms.engine.kafka.ConsumerPort`.

    Args:
        cluster: The cluster.
        config: librdkafka's settings.
    """

    def __init__(self, cluster: Cluster, config: Mapping[str, Any]) -> None:
        self._cluster = cluster
        self._news = threading.Condition(cluster.lock)
        self.client = str(config.get("client.id", "rdkafka"))
        self.on_error: Callable[[KafkaError], None] | None = config.get("error_cb")
        self._group_name = str(config["group.id"])
        self._is_committed = config.get("isolation.level", "read_committed") == "read_committed"
        self._reset = str(config.get("auto.offset.reset", "latest"))
        self._tells_ends = bool(config.get("enable.partition.eof", False))
        self._session_timeout = float(config.get("session.timeout.ms", 45_000)) / 1000
        self._readings: dict[Place, Reading] = {}
        self._paused: set[Place] = set()  # librdkafka remembers it beyond an assignment
        self._turn = 0
        self._events: deque[KafkaMessage] = deque()
        self._errors: deque[KafkaError] = deque()
        self._member: Member | None = None
        self._topics: list[str] = []
        self._callbacks: dict[str, OnRebalance | None] = {}
        self._is_leaving = False
        self._has_assigned = False  # whether the callback that runs has seen to the assignment itself
        self._is_closed = False
        with cluster.lock:
            cluster.check("create a consumer")
            cluster.clients.add(self)

    # What the cluster calls, with the lock held.

    def wake(self) -> None:
        """Return from a poll: there is something to do."""
        self._news.notify_all()

    def hear(self, error: KafkaError) -> None:
        """Have the error callback hear of *error*, in the next poll."""
        self._errors.append(error)
        self._news.notify_all()

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
                    self._events.append(event(KafkaError.UNKNOWN_TOPIC_OR_PART, (topic, 0), OFFSET_INVALID, text))
            self._join()

    def _join(self) -> None:
        self._member = Member(self, self.client, self._topics, self._session_timeout)
        self._group.join(self._member)

    def unsubscribe(self) -> None:
        with self._enter("unsubscribe"):
            member = self._member
            self._topics = []
            if member is None:
                return
            self._is_leaving = True
            if any(change.kind == LOSE for change in member.changes):
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
                self._read(TopicPartition(*place, OFFSET_STORED) for place in new)
            else:
                self._read_no_more(place for place in change.places if place in self._readings)
        if member.changes and member.changes[0] is change:
            member.told()
        if self._member is not member:
            return
        if change.kind == LOSE:
            self._member = None
            if self._topics:
                self._join()
            self._is_leaving = False
        elif self._is_leaving and not member.changes:
            self._leave()
        else:
            self._group.heard(member, change)

    # What is read.

    def assign(self, partitions: list[TopicPartition]) -> None:
        with self._enter("assign"):
            self._has_assigned = True
            self._read_no_more(list(self._readings))
            self._events.clear()
            self._read(partitions)

    def unassign(self) -> None:
        with self._enter("unassign"):
            self._has_assigned = True
            self._read_no_more(list(self._readings))

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        with self._enter("incremental_assign"):
            self._has_assigned = True
            for each in partitions:
                if (each.topic, each.partition) in self._readings:
                    text = f"{each.topic} [{each.partition}] is already part of the current assignment"
                    raise refused(KafkaError._CONFLICT, text)
            self._read(partitions)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        with self._enter("incremental_unassign"):
            self._has_assigned = True
            for each in partitions:
                if (each.topic, each.partition) not in self._readings:
                    text = (
                        f"{each.topic} [{each.partition}] can't be unassigned since it is not in the current assignment"
                    )
                    raise refused(KafkaError._INVALID_ARG, text)
            self._read_no_more((each.topic, each.partition) for each in partitions)

    def _read(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            reading = Reading((each.topic, each.partition), each.offset)
            reading.is_paused = reading.place in self._paused
            self._readings[reading.place] = reading
            self._cluster.watch(reading.place, self)

    def _read_no_more(self, places: Iterable[Place]) -> None:
        for place in list(places):
            del self._readings[place]
            self._cluster.unwatch(place, self)

    def assignment(self) -> list[TopicPartition]:
        with self._enter("assignment"):
            return [TopicPartition(*place, reading.position) for place, reading in self._readings.items()]

    def pause(self, partitions: list[TopicPartition]) -> None:
        self._pause(partitions, is_paused=True)

    def resume(self, partitions: list[TopicPartition]) -> None:
        self._pause(partitions, is_paused=False)

    def _pause(self, partitions: list[TopicPartition], *, is_paused: bool) -> None:
        with self._enter("pause" if is_paused else "resume"):
            for each in partitions:
                place = each.topic, each.partition
                (self._paused.add if is_paused else self._paused.discard)(place)
                reading = self._readings.get(place)
                if reading is not None:
                    reading.is_paused = is_paused

    # Reading.

    def poll(self, timeout: float) -> KafkaMessage | None:
        found = self._wait_for(1, timeout)
        return found[0] if found else None

    def consume(self, num_messages: int, timeout: float) -> list[KafkaMessage]:
        return self._wait_for(num_messages, timeout)

    def _wait_for(self, most: int, timeout: float) -> list[KafkaMessage]:
        cluster = self._cluster
        until = NEVER if timeout < 0 else cluster.clock.monotonic() + timeout
        while True:
            with cluster.lock:
                while True:
                    if self._is_closed:
                        raise RuntimeError("Consumer closed")
                    cluster.check("poll")
                    cluster.expire()
                    if self._errors or (self._member is not None and self._member.changes):
                        break
                    found = self._take(most)
                    if found or not cluster.wait(self._news, until):
                        return found
            self._tell_errors()
            self._rebalance()

    def _tell_errors(self) -> None:
        while self._errors:
            error = self._errors.popleft()
            if self.on_error is not None:
                self.on_error(error)

    def _take(self, most: int) -> list[KafkaMessage]:
        """Return what there is, one partition after the other."""
        found: list[KafkaMessage] = []
        while self._events and len(found) < most:
            found.append(self._events.popleft())
        if self._cluster.faults.is_away(self):
            return found
        readings = list(self._readings.values())
        count = len(readings)
        for step in range(count):
            if len(found) >= most:
                break
            at = (self._turn + step) % count
            if not readings[at].is_paused:
                self._fetch(readings[at], found, most)
                if most > 1:
                    self._turn = at + 1
        return found

    def _fetch(self, reading: Reading, found: list[KafkaMessage], most: int) -> None:
        topic = self._cluster.topics.get(reading.place[0])
        log = self._cluster.log(reading.place)
        if topic is None or log is None:
            if reading.is_seen:
                reading.is_seen = False
                found.append(event(KafkaError.UNKNOWN_TOPIC_OR_PART, reading.place, OFFSET_INVALID))
            return
        reading.is_seen = True
        refusal = self._cluster.faults.refusal("read", topic=topic.name)
        if refusal is not None:
            if reading.end_told != OFFSET_STORED:
                reading.end_told = OFFSET_STORED  # once
                found.append(event(refusal.code(), reading.place, OFFSET_INVALID, refusal.str()))
            return
        if reading.position < 0 and not self._resolve(reading, log.start, log.end, log.stable_end):
            return
        if not log.start <= reading.position <= log.end:
            reading.position = self._after_reset(reading, log.start, log.stable_end, found)
            if reading.position < 0:
                return
        most = min(most, len(found) + MOST_OF_ONE)
        end = log.stable_end if self._is_committed else log.end
        for record in log.visible(reading.position, is_committed=self._is_committed):
            if len(found) >= most:
                return
            found.append(topic.message(reading.place[1], record))
            reading.position = record.offset + 1
        reading.position = max(reading.position, end)
        if self._tells_ends and reading.end_told != reading.position and len(found) < most:
            reading.end_told = reading.position
            text = f"Fetch from broker 1 reached end of partition at offset {reading.position}"
            found.append(event(KafkaError._PARTITION_EOF, reading.place, reading.position, text))

    def _resolve(self, reading: Reading, start: int, end: int, stable_end: int) -> bool:
        """Find out where a reading begins; tell whether that is known."""
        if reading.position in {OFFSET_STORED, OFFSET_INVALID}:
            if self._group.is_unstable([reading.place]):
                return False
            known = self._group.offsets.get(reading.place)
            reading.position = OFFSET_INVALID if known is None else known.offset
        elif reading.position == OFFSET_BEGINNING:
            reading.position = start
        elif reading.position == OFFSET_END:
            reading.position = stable_end if self._is_committed else end
        else:
            reading.position = max(start, end + reading.position)  # relative to the end
        if reading.position < 0:
            found: list[KafkaMessage] = []
            reading.position = self._after_reset(reading, start, stable_end, found)
            self._events.extend(found)
        return reading.position >= 0

    def _after_reset(self, reading: Reading, start: int, end: int, found: list[KafkaMessage]) -> int:
        if self._reset in {"earliest", "beginning", "smallest"}:
            return start
        if self._reset in {"latest", "end", "largest"}:
            return end
        found.append(event(KafkaError._AUTO_OFFSET_RESET, reading.place, reading.position, "Offset out of range"))
        reading.is_paused = True
        return int(OFFSET_INVALID)

    # Offsets.

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        with self._enter("commit"):
            try:
                answers = self._commit(offsets)
            except KafkaException:
                if asynchronous:
                    return []
                raise
            return [] if asynchronous else answers

    def _commit(self, offsets: list[TopicPartition]) -> list[TopicPartition]:
        cluster = self._cluster
        with cluster.faults.request(cluster, self, "commit", group=self._group_name, wait=True):
            member, generation = ("", -1) if self._member is None else (self._member.id, self._member.generation)
            code = self._group.refusal(generation, member)
            if code is not None:
                raise refused(code, f"Commit failed: {KafkaError(code).str()}")
            failure = None
            for each in offsets:
                code = committable(cluster, each)
                if code is None:
                    self._group.commit((each.topic, each.partition), offset_of(cluster, each))
                else:
                    failure = failure or code
            if failure is not None:
                raise refused(failure, f"Commit failed: {KafkaError(failure).str()}")
        return [TopicPartition(each.topic, each.partition, each.offset, each.metadata or "") for each in offsets]

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        cluster = self._cluster
        places = [(each.topic, each.partition) for each in partitions]
        until = NEVER if timeout < 0 else cluster.clock.monotonic() + timeout
        with (
            self._enter("committed"),
            cluster.faults.request(cluster, self, "committed", group=self._group_name, until=until),
        ):
            while self._is_committed and self._group.is_unstable(places):
                if not cluster.wait(cluster.changed, until):
                    raise refused(KafkaError._TIMED_OUT, "Failed to get committed offsets: Local: Timed out")
                cluster.check("committed")
            answers = []
            for place in places:
                known = self._group.offsets.get(place)
                answers.append(
                    TopicPartition(*place, OFFSET_INVALID)
                    if known is None
                    else TopicPartition(*place, known.offset, known.metadata)
                )
            return answers

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float) -> tuple[int, int]:
        cluster = self._cluster
        until = NEVER if timeout < 0 else cluster.clock.monotonic() + timeout
        with (
            self._enter("get_watermark_offsets"),
            cluster.faults.request(cluster, self, "list_offsets", topic=partition.topic, until=until),
        ):
            log = cluster.log((partition.topic, partition.partition))
            if log is None:
                text = "Failed to get watermark offsets: Local: Unknown partition"
                raise refused(KafkaError._UNKNOWN_PARTITION, text)
            return log.start, log.stable_end if self._is_committed else log.end

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        cluster = self._cluster
        until = NEVER if timeout < 0 else cluster.clock.monotonic() + timeout
        topic = partitions[0].topic if partitions else ""
        with (
            self._enter("offsets_for_times"),
            cluster.faults.request(cluster, self, "list_offsets", topic=topic, until=until),
        ):
            answers = []
            for each in partitions:
                log = cluster.log((each.topic, each.partition))
                if log is None:
                    answers.append(RefusedPlace(each, KafkaError(KafkaError._UNKNOWN_PARTITION)))
                    continue
                found = log.offset_of(each.offset, is_committed=self._is_committed)
                answers.append(
                    TopicPartition(each.topic, each.partition, OFFSET_END if found is None else found.offset)
                )
            return answers

    def close(self) -> None:
        """Run the revocation's callback, and leave the group."""
        with self._cluster.lock:
            if self._is_closed:
                return
            if self._cluster.closed is not None:
                self._is_closed = True
                return
        self.unsubscribe()
        self._rebalance()
        with self._cluster.lock:
            self._leave()
            self._read_no_more(list(self._readings))
            self._is_closed = True
            self._cluster.clients.discard(self)
            self._news.notify_all()

    def _enter(self, doing: str) -> threading.RLock:
        """Return the lock, for a call that is allowed now."""
        self._cluster.check(doing)
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
