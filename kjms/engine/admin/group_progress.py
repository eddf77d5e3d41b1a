"""Read the progress of a queue's or subscription's group: what is settled, and where each partition ends.

Looked at from outside, as browsers and Spark do it: nothing is taken, and no consumer notices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kjms.engine.consumer.restoration import SettlementRestorer, beginning
from kjms.engine.kafka import ConsumerPort, KafkaException, TopicPartition, jms_error, open_consumer

if TYPE_CHECKING:
    from kjms.engine.consumer.overflow import Overflow
    from kjms.engine.log_reading import Place
    from kjms.errors import JMSException
    from kjms.mapping.bridges import Decoder
    from kjms.txn.metadata import State

__all__ = ["GroupProgress", "find_progress", "read_progress"]


class GroupProgress(NamedTuple):
    """The progress of a group in one partition.

    Attributes:
        topic: The Kafka topic: the destination's own, or one beside it that holds what was moved.
        number: The partition.
        state: What is settled.
        end: The offset after its last committed record.
    """

    topic: str
    number: int
    state: State
    end: int


def read_progress(
    name: str, topic: str, overflow: Overflow, consumer: ConsumerPort, decode: Decoder
) -> list[GroupProgress]:
    """Return the progress of the consumer's group: in the overflow topic, in the handover topic, and in the topic.

    Args:
        name: Of the destination, for errors and logs.
        topic: Its Kafka topic.
        overflow: Knows the Kafka topics, and reads copies of offsets that Kafka has deleted.
        consumer: Is of the group, though no member.
        decode: How records are read.

    Raises:
        KafkaException: The broker does not answer.
        JMSException: The settlement was written by a later kjms.
    """

    def refuse(failure: JMSException) -> None:
        raise failure

    def look_up() -> dict[str, int]:
        return {each: overflow.topics.look_up(each) for each in (overflow.topic, overflow.handover, topic)}

    # In one request: a message that is relocated meanwhile is unsettled in one place of the answer.
    restorer = SettlementRestorer(name, topic, overflow, decode, refuse)
    counts: dict[str, int] = {}
    states: list[tuple[Place, State, str]] = []
    while (now := look_up()) != counts:  # a topic that was made before the answer may hold what that says is settled
        counts = now
        places = [(each, number) for each, count in counts.items() for number in range(count)]
        states = restorer.read(consumer, places, overflow.recall)
    # Where they end is asked afterwards: what was moved meanwhile is seen in both places, and in none otherwise.
    topics = overflow.topics
    ends = {
        each: topics.ends(each, count) if each == topic else topics.ends_after_commits(each, count)
        for each, count in counts.items()
        if count
    }
    return [GroupProgress(topic, number, state, ends[topic][number]) for (topic, number), state, _ in states]


def find_progress(
    config: Mapping[str, Any], name: str, topic: str, overflow: Overflow, decode: Decoder
) -> list[tuple[GroupProgress, int]]:
    """Return the progress of the group that *config*, a consumer's settings, names, and where each log begins.

    Raises:
        JMSException: The broker does not answer, or the settlement was written by a later kjms.
    """
    consumer = open_consumer(config)
    try:
        found = read_progress(name, topic, overflow, consumer, decode)
        return [(each, beginning(consumer, TopicPartition(each.topic, each.number))) for each in found]
    except KafkaException as error:
        raise jms_error(
            error, f"find what is settled of {name}", to="Read", topic=topic, group=overflow.group
        ) from error
    finally:
        consumer.close()
