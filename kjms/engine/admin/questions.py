"""Questions about many topics and groups at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from kjms.engine.admin.log_ends import ends_after_commits
from kjms.engine.kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    OffsetSpec,
    TopicCollection,
    TopicPartition,
    jms_error,
    kafka_error,
)
from kjms.errors import JMSException

if TYPE_CHECKING:
    from kjms.engine.admin.topics import Topics
    from kjms.engine.log_reading import Place

__all__ = ["MISSING", "Questions"]

MISSING: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._NOENT,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)
"""The broker's answers about a partition that does not exist."""

GONE: Final = MISSING | {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE}
"""The broker's answers about a topic that is being created, moved or deleted."""


class Questions:
    """Asks the broker, with the engine's admin client.

    Args:
        topics: Has the client.
        timeout: Seconds for each answer.
    """

    def __init__(self, topics: Topics, timeout: float) -> None:
        self._topics = topics
        self._timeout = timeout

    def ask(
        self,
        places: Iterable[Place],
        which: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[TopicPartition, Future[Any]]:
        asked = {TopicPartition(*place): which for place in places}
        if not asked:
            return {}
        answers: dict[TopicPartition, Future[Any]] = self._topics.admin.list_offsets(
            asked, isolation_level=isolation, request_timeout=self._timeout
        )
        return answers

    def answers(self, answers: Mapping[TopicPartition, Future[Any]]) -> dict[Place, int]:
        found = {}
        for place, answer in answers.items():
            try:
                found[place.topic, place.partition] = int(answer.result().offset)
            except KafkaException as error:
                if kafka_error(error).code() not in GONE:
                    raise jms_error(
                        error, f"find the offsets of {place.topic!r}", to="Describe", topic=place.topic
                    ) from error
        return found

    def offsets(self, places: Iterable[Place], which: OffsetSpec) -> dict[Place, int]:
        return self.answers(self.ask(places, which))

    def ends_after_commits(self, places: Collection[Place]) -> Mapping[Place, int]:
        """Return where partitions end, behind every transaction whose offsets are committed by now."""
        latest = OffsetSpec.latest()
        return ends_after_commits(lambda isolation: self.answers(self.ask(places, latest, isolation)))

    def identities(self, topics: Collection[str]) -> dict[str, str]:
        if not topics:
            return {}
        try:
            answers = self._topics.admin.describe_topics(TopicCollection(sorted(topics)), request_timeout=self._timeout)
        except (KafkaException, ValueError):  # a broker that gives no ids
            return {}
        found = {}
        for topic, answer in answers.items():
            try:
                found[topic] = str(answer.result().topic_id)
            except (KafkaException, ValueError):  # not allowed to ask, or gone
                continue
        return found

    def cut(self, ends: Mapping[Place, int]) -> set[Place]:
        """Return which partitions end before *ends* now, or are gone; where the broker does not say, none.

        Their topics were deleted, and perhaps made anew, or a leader was elected that lacks the last records.
        """
        found = set()
        try:
            answers = self.ask(ends, OffsetSpec.latest())
        except (KafkaException, ValueError):
            return set()
        for place, answer in answers.items():
            wanted = place.topic, place.partition
            try:
                if 0 <= answer.result().offset < ends[wanted]:
                    found.add(wanted)
            except KafkaException as error:
                if kafka_error(error).code() in MISSING:
                    found.add(wanted)
        return found

    def committed(self, groups: Sequence[str]) -> dict[str, dict[Place, tuple[int, str]] | JMSException]:
        """Return what each group has committed, offset and metadata, or why the broker does not say."""
        found: dict[str, dict[Place, tuple[int, str]] | JMSException] = {}
        for group, answer in self._topics.coordinators.committed(groups).items():
            try:
                found[group] = {
                    (place.topic, place.partition): (place.offset, place.metadata or "")
                    for place in answer.result().topic_partitions
                    if place.offset >= 0
                }
            except KafkaException as error:
                failure = jms_error(error, f"find what is settled of {group!r}", to="Describe", group=group)
                if kafka_error(error).code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                    raise failure from error
                found[group] = failure
        return found
