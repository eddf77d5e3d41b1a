"""The partitions that a consumer of an in-memory Kafka reads: positions, pauses, and what comes next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kjms.engine.kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    KafkaError,
    KafkaMessage,
    TopicPartition,
)
from kjms.testing._cluster import Cluster
from kjms.testing._groups import Place
from kjms.testing._logs import BATCH_BYTES
from kjms.testing._wakeups import Client

__all__ = ["Readings", "event"]

FETCH_BYTES: Final = 1_048_576
"""How much comes from one partition before the next is read (``max.partition.fetch.bytes``)."""


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


class Readings:
    """What one consumer reads; the cluster's lock is held by all that use it.

    Args:
        cluster: The cluster.
        client: The consumer.
        config: Its settings.

    Attributes:
        is_committed: Whether it reads committed records only.
        events: Errors and events that come before any record.
    """

    def __init__(self, cluster: Cluster, client: Client, config: Mapping[str, Any]) -> None:
        self._cluster = cluster
        self._client = client
        self._group_name = str(config["group.id"])
        self.is_committed = config.get("isolation.level", "read_committed") == "read_committed"
        self._reset = str(config.get("auto.offset.reset", "latest"))
        self._tells_ends = bool(config.get("enable.partition.eof", False))
        self._readings: dict[Place, Reading] = {}
        self._paused: set[Place] = set()  # librdkafka remembers it beyond an assignment
        self._turn: Place | None = None  # the partition that is read now
        self._left = FETCH_BYTES  # bytes, of that
        self.events: deque[KafkaMessage] = deque()

    def __iter__(self) -> Iterator[Place]:
        return iter(list(self._readings))

    def __contains__(self, place: object) -> bool:
        return place in self._readings

    def position(self, place: Place) -> int:
        """Return from where *place* is read next."""
        return self._readings[place].position

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Read *partitions*, too, from their offsets."""
        for each in partitions:
            reading = Reading((each.topic, each.partition), each.offset)
            reading.is_paused = reading.place in self._paused
            self._readings[reading.place] = reading
            self._cluster.wakeups.watch(reading.place, self._client)

    def remove(self, places: Iterable[Place]) -> None:
        """Read *places* no more."""
        for place in list(places):
            del self._readings[place]
            self._cluster.wakeups.unwatch(place, self._client)

    def pause(self, partitions: Iterable[TopicPartition], *, is_paused: bool) -> None:
        """Give no records of *partitions*, or give them again."""
        for each in partitions:
            place = each.topic, each.partition
            (self._paused.add if is_paused else self._paused.discard)(place)
            reading = self._readings.get(place)
            if reading is not None:
                reading.is_paused = is_paused

    def take(self, most: int) -> list[KafkaMessage]:
        """Return what there is, one partition after the other."""
        found: list[KafkaMessage] = []
        while self.events and len(found) < most:
            found.append(self.events.popleft())
        if self._cluster.faults.is_away(self._client.client):
            return found
        places = list(self._readings)
        first = places.index(self._turn) if self._turn in self._readings else 0
        for place in places[first:] + places[:first]:
            reading = self._readings[place]
            if reading.is_paused:
                continue
            if place != self._turn:
                self._turn, self._left = place, FETCH_BYTES
            self._fetch(reading, found, most)
            if len(found) >= most:
                break
        if self._left <= 0 and self._turn in places:  # the next one's turn
            after = places.index(self._turn) + 1
            self._turn, self._left = places[after % len(places)], FETCH_BYTES
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
        faults = self._cluster.faults
        fault = faults.next("read", self._client.client, topic=topic.name)
        if fault is not None:
            found.append(event(fault.error.code(), reading.place, OFFSET_INVALID, fault.error.str()))
            return
        refusal = faults.refusal("read", topic=topic.name)
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
        end = log.stable_end if self.is_committed else log.end
        for record in log.visible(reading.position, is_committed=self.is_committed):
            if len(found) >= most or self._left <= 0:
                return
            self._left -= BATCH_BYTES + len(record.value or b"") + len(record.key or b"")
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
            if self._cluster.group(self._group_name).is_unstable([reading.place]):
                return False
            known = self._cluster.group(self._group_name).offsets.get(reading.place)
            reading.position = OFFSET_INVALID if known is None else known.offset
        elif reading.position == OFFSET_BEGINNING:
            reading.position = start
        elif reading.position == OFFSET_END:
            reading.position = stable_end if self.is_committed else end
        else:
            reading.position = max(start, end + reading.position)  # relative to the end
        if reading.position < 0:
            found: list[KafkaMessage] = []
            reading.position = self._after_reset(reading, start, stable_end, found)
            self.events.extend(found)
        return reading.position >= 0

    def _after_reset(self, reading: Reading, start: int, end: int, found: list[KafkaMessage]) -> int:
        if self._reset in {"earliest", "beginning", "smallest"}:
            return start
        if self._reset in {"latest", "end", "largest"}:
            return end
        found.append(event(KafkaError._AUTO_OFFSET_RESET, reading.place, reading.position, "Offset out of range"))
        reading.is_paused = True
        return int(OFFSET_INVALID)
