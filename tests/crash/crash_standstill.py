"""The state of a queue whose consumers get nothing, as the broker has it: for the report of a round given up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

ASK_SECONDS: Final = 10
SHOWN: Final = 60  # of the last records of each partition of the queue's bookkeeping topics


def standstill(servers: str, queue: str) -> str:
    """Return in lines where the logs of *queue* end, what open transactions hide, and how the consumer groups stand.

    The last records of the queue's bookkeeping topics follow: its overflow, and what its processes hand over.
    """
    lines: list[str] = []
    try:
        lines.extend(_findings(AdminClient({"bootstrap.servers": servers}), queue))
        lines.extend(_bookkeeping(servers, f"{queue}.kjms."))
    except KafkaException as error:
        lines.append(f"the broker does not answer: {error}")
    return "\n".join(lines)


def _findings(admin: AdminClient, queue: str) -> Iterator[str]:
    topics = admin.list_topics(timeout=ASK_SECONDS).topics
    ours = {name: topics[name].partitions for name in topics if name.startswith(queue)}
    places = [TopicPartition(name, number) for name in ours for number in ours[name]]
    ends = _ends(admin, places, IsolationLevel.READ_UNCOMMITTED)
    stable = _ends(admin, places, IsolationLevel.READ_COMMITTED)
    for (name, number), end in sorted(ends.items()):
        hidden = end - stable[name, number]
        if end:
            suffix = f", of which an open transaction hides {hidden}" if hidden else ""
            yield f"{name}[{number}] ends at {end}{suffix}"
    groups = [each.group_id for each in admin.list_consumer_groups(request_timeout=ASK_SECONDS).result().valid]
    for group, future in admin.describe_consumer_groups(groups, request_timeout=ASK_SECONDS).items():
        found = future.result()
        yield f"group {group} is {found.state.name}"
        for member in found.members:
            held = [f"{each.topic}[{each.partition}]" for each in member.assignment.topic_partitions]
            yield f"  {member.client_id} {member.member_id} has {' '.join(held) or 'nothing'}"
        asked = [ConsumerGroupTopicPartitions(group)]
        try:
            known = admin.list_consumer_group_offsets(asked, require_stable=True, request_timeout=ASK_SECONDS)
            for each in known[group].result().topic_partitions:
                yield f"  committed: {each.topic}[{each.partition}] {each.offset} {each.metadata}"
        except KafkaException as error:  # it is asked again until an open transaction ends
            yield f"  committed: {error}"


def _bookkeeping(servers: str, prefix: str) -> Iterator[str]:
    """Return the last records of each partition of the topics that begin with *prefix*, open transactions included."""
    settings = {
        "bootstrap.servers": servers,
        "group.id": "standstill",
        "enable.auto.commit": False,
        "isolation.level": "read_uncommitted",
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    try:
        known = consumer.list_topics(timeout=ASK_SECONDS).topics
        for place in [TopicPartition(name, number) for name in known for number in known[name].partitions]:
            if not place.topic.startswith(prefix):
                continue
            first, past = consumer.get_watermark_offsets(place, ASK_SECONDS)
            if first == past:
                continue
            yield f"{place.topic}[{place.partition}], the last records:"
            consumer.assign([TopicPartition(place.topic, place.partition, max(first, past - SHOWN))])
            record = consumer.poll(ASK_SECONDS)
            while record is not None and record.error() is None:
                yield f"  {record.offset()}: {(record.value() or b'').decode(errors='replace')}"
                record = consumer.poll(ASK_SECONDS)
    finally:
        consumer.close()


def _ends(admin: AdminClient, places: list[TopicPartition], level: IsolationLevel) -> dict[tuple[str, int], int]:
    asked = dict.fromkeys(places, OffsetSpec.latest())
    found = admin.list_offsets(asked, isolation_level=level, request_timeout=ASK_SECONDS)
    return {(place.topic, place.partition): future.result().offset for place, future in found.items()}
