"""What the Kafka client fetches of the assigned partitions, and how reading is interrupted for slow consumers."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from kjms.engine.consumer.restoration import ASK_SECONDS
from kjms.engine.kafka import ConsumerPort, TopicPartition

if TYPE_CHECKING:
    from kjms.engine.log_reading import Place

__all__ = ["Reading", "read_of"]

FIRST_SECONDS: Final = 0.2  # for how long a partition may be read before the others: a fetch takes some milliseconds


class Reading:
    """What the Kafka client of a group consumer fetches; each method is called with the client's `turn` held."""

    def __init__(self) -> None:
        self._paused: set[Place] = set()
        self._starts: dict[Place, int] = {}  # from where each partition was assigned last
        self._first_at: dict[Place, float] = {}  # when each partition was read before the others, after a pause
        self._later: set[Place] = set()  # the others, while they are still paused
        self._later_at = 0.0  # when they are read at the latest

    def fetch(self, consumer: ConsumerPort, places: list[TopicPartition]) -> None:
        """Fetch *places*, which are not assigned yet, from their offsets."""
        self._starts.update(((place.topic, place.partition), place.offset) for place in places)
        consumer.incremental_assign(places)

    def fetch_from(self, consumer: ConsumerPort, places: list[TopicPartition]) -> None:
        """Forget what was fetched of *places*, and fetch them from their offsets."""
        if places:
            consumer.incremental_unassign(places)
            self.fetch(consumer, places)

    @property
    def is_paused(self) -> bool:
        """Whether nothing is read of what was assigned when reading was interrupted."""
        return bool(self._paused)

    def pause(self, consumer: ConsumerPort) -> None:
        """Read nothing of what is assigned now: consumers are slow."""
        paused = consumer.assignment()
        self._paused = {(place.topic, place.partition) for place in paused}
        self._later = set()
        consumer.pause(paused)

    def forget_all(self) -> None:
        """Read nothing any more: the client has left its group."""
        for known in (self._paused, self._starts, self._first_at, self._later):
            known.clear()

    def resume(self, consumer: ConsumerPort) -> None:
        """Read again what was paused, as far as it is still assigned: one partition first, each time another one.

        librdkafka gives the records of some partitions first, and a pause discards those of the others. Without this,
        slow consumers may get nothing of the others before the first ones have no more.
        """
        self._later, self._paused = self._paused, set()
        waiting = [
            place
            for place in self._positions(consumer, self._later)
            if place.offset < consumer.get_watermark_offsets(place, ASK_SECONDS, cached=True)[1]
        ]
        if not waiting:
            self.resume_later(consumer, has_read=True)
            return
        now = time.monotonic()
        first = min(waiting, key=self._chance)
        self._first_at[first.topic, first.partition] = now
        self._later_at = now + FIRST_SECONDS
        self._later.discard((first.topic, first.partition))
        self._resume(consumer, [first])

    def resume_later(self, consumer: ConsumerPort, *, has_read: bool) -> None:
        """Read the other partitions as well: when the first one gave something, or nothing for long."""
        if self._later and (has_read or time.monotonic() >= self._later_at):
            later, self._later = self._later, set()
            consumer.resume(read_of(consumer, later))
            self._resume(consumer, self._positions(consumer, later))

    def _chance(self, place: TopicPartition) -> tuple[float, bool]:
        """Return when *place* was read first, and whether it gave something since it was assigned."""
        key = place.topic, place.partition
        return self._first_at.get(key, 0.0), place.offset != self._starts.get(key)

    def _positions(self, consumer: ConsumerPort, places: Collection[Place]) -> list[TopicPartition]:
        """Return from where those of *places* that are assigned are read on, as far as that is known."""
        positions = consumer.position(read_of(consumer, places))
        for place in positions:
            if place.offset < 0:  # nothing came since it was assigned
                place.offset = self._starts.get((place.topic, place.partition), -1)
        return [place for place in positions if place.offset >= 0]

    def _resume(self, consumer: ConsumerPort, places: list[TopicPartition]) -> None:
        """Read *places* at once: librdkafka fetches what is resumed within a second, and what is assigned now."""
        consumer.resume(places)
        self.fetch_from(consumer, places)


def read_of(consumer: ConsumerPort, places: Collection[Place]) -> list[TopicPartition]:
    """Return those of *places* that *consumer* reads, each once.

    librdkafka refuses a list with another one, and ends the process where a list names one twice.
    """
    return [place for place in consumer.assignment() if (place.topic, place.partition) in places]
