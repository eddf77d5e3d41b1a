"""The state of a queue whose consumers get nothing, as the broker has it: for the report of a round given up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

ASK_SECONDS: Final = 10


def standstill(servers: str, queue: str) -> str:
    """Return, line by line, where the logs of *queue* end, what an open transaction hides, and how its groups stand."""
    try:
        return "\n".join(_lines(AdminClient({"bootstrap.servers": servers}), queue))
    except KafkaException as error:
        return f"the broker does not answer: {error}"


def _lines(admin: AdminClient, queue: str) -> Iterator[str]:
    topics = admin.list_topics(timeout=ASK_SECONDS).topics
    ours = {name: topics[name].partitions for name in topics if name.startswith(queue)}
    places = [TopicPartition(name, number) for name in ours for number in ours[name]]
    ends = _ends(admin, places, IsolationLevel.READ_UNCOMMITTED)
    stable = _ends(admin, places, IsolationLevel.READ_COMMITTED)
    for place, end in sorted(ends.items()):
        if end:
            hidden = f", of which an open transaction hides {end - stable[place]}" if stable[place] < end else ""
            yield f"{place[0]}[{place[1]}] ends at {end}{hidden}"
    groups = [each.group_id for each in admin.list_consumer_groups(request_timeout=ASK_SECONDS).result().valid]
    for group, future in admin.describe_consumer_groups(groups, request_timeout=ASK_SECONDS).items():
        found = future.result()
        yield f"group {group} is {found.state.name}"
        for member in found.members:
            held = [f"{each.topic}[{each.partition}]" for each in member.assignment.topic_partitions]
            yield f"  {member.client_id} {member.member_id} has {' '.join(held) or 'nothing'}"
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=ASK_SECONDS)
        try:
            for each in asked[group].result().topic_partitions:
                yield f"  committed: {each.topic}[{each.partition}] {each.offset} {each.metadata}"
        except KafkaException as error:
            yield f"  committed: {error}"


def _ends(admin: AdminClient, places: list[TopicPartition], level: IsolationLevel) -> dict[tuple[str, int], int]:
    asked = dict.fromkeys(places, OffsetSpec.latest())
    found = admin.list_offsets(asked, isolation_level=level, request_timeout=ASK_SECONDS)
    return {(place.topic, place.partition): future.result().offset for place, future in found.items()}
