"""Records, offsets and log starts of an in-memory Kafka."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from kjms.engine.kafka import (
    OFFSET_BEGINNING,
    ConfigResource,
    IsolationLevel,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicCollection,
    TopicPartition,
)
from tests.unit.testing.conftest import error

SECONDS = 20.0


def test_a_record_comes_as_it_was_written(clients: Any, reports: Any) -> None:
    """Key, value, headers and time are the producer's; the offset is the log's."""
    topic = clients.topic()
    producer = clients.producer()
    headers = [("a", b"1"), ("a", None), ("b", b"")]
    producer.produce(topic, b"value", b"key", 0, headers=headers, timestamp=1_700_000_000_123, on_delivery=reports)
    producer.produce(topic, None, None, 0, headers=[], timestamp=0, on_delivery=reports)
    assert producer.flush(SECONDS) == 0
    assert reports.heard == [("", 0), ("", 1)]
    consumer = clients.consumer()
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Any] = []
    while len(found) < 2:
        found += consumer.consume(2, 0.1)
    first, second = found[:2]
    assert (first.key(), first.value(), first.headers()) == (b"key", b"value", headers)
    assert (first.offset(), first.timestamp()) == (0, (1, 1_700_000_000_123))
    assert (second.key(), second.value(), second.headers(), second.offset()) == (None, None, None, 1)
    assert second.timestamp()[1] > 1_700_000_000_123


def test_the_broker_gives_the_time_where_the_topic_says_so(clients: Any, write: Any) -> None:
    """With LogAppendTime the producer's time is not kept."""
    topic = clients.topic(message_timestamp_type="LogAppendTime")
    write(topic, b"1", timestamp=1_000)
    consumer = clients.consumer()
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = None
    while message is None:
        message = consumer.poll(0.1)
    kind, time = message.timestamp()
    assert kind == 2
    assert time > 1_700_000_000_000


def test_reading_begins_where_it_is_asked_to(clients: Any, write: Any, read: Any) -> None:
    """Offsets, the beginning, and what is outside of the log, which is read from its start; the end is reported."""
    topic = clients.topic()
    write(topic, b"0", b"1", b"2")
    consumer = clients.consumer()
    assert read(consumer, topic, 1) == [(1, b"1"), (2, b"2"), (3, b"END")]
    assert read(consumer, topic, 3) == [(3, b"END")]
    whole = [(0, b"0"), (1, b"1"), (2, b"2"), (3, b"END")]
    assert read(consumer, topic, OFFSET_BEGINNING) == whole
    assert read(consumer, topic, 100) == whole


def test_the_end_is_told_again_after_each_arrival(clients: Any, write: Any, read: Any) -> None:
    """Each time that a partition is read up to its end, an event says so, once."""
    topic = clients.topic()
    consumer = clients.consumer()
    assert read(consumer, topic, 0) == [(0, b"END")]
    assert consumer.poll(0.05) is None
    write(topic, b"0")
    seen = []
    while len(seen) < 2:
        message = consumer.poll(0.1)
        if message is not None:
            seen.append((message.offset(), message.error() is None))
    assert seen == [(0, True), (1, False)]


def test_deleted_records_move_the_start_of_the_log(clients: Any, write: Any, read: Any) -> None:
    """What stands before an offset is gone; the offsets of the others stay."""
    topic = clients.topic()
    write(topic, b"0", b"1", b"2")
    asked = TopicPartition(topic, 0, 2)
    answer = clients.admin.delete_records([asked], request_timeout=SECONDS)[asked].result()
    assert answer.low_watermark == 2
    consumer = clients.consumer()
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), SECONDS) == (2, 3)
    assert read(consumer, topic, 0) == [(2, b"2"), (3, b"END")]
    beyond = TopicPartition(topic, 0, 4)
    answers = clients.admin.delete_records([beyond], request_timeout=SECONDS)
    assert error(answers[beyond].result).name() == "OFFSET_OUT_OF_RANGE"


def test_offsets_are_found_by_time(clients: Any, write: Any) -> None:
    """The first record that is no older than a time; -1 where all are older."""
    topic = clients.topic()
    for time in (1_000, 3_000, 2_000):
        write(topic, b"x", timestamp=1_700_000_000_000 + time)
    consumer = clients.consumer()

    def find(time: int) -> int:
        asked = [TopicPartition(topic, 0, 1_700_000_000_000 + time)]
        return int(consumer.offsets_for_times(asked, SECONDS)[0].offset)

    assert [find(1_000), find(1_001), find(3_000), find(3_001)] == [0, 1, 1, -1]
    place = TopicPartition(topic, 0)
    for spec, offset in (
        (OffsetSpec.earliest(), 0),
        (OffsetSpec.latest(), 3),
        (OffsetSpec.for_timestamp(1_700_000_001_500), 1),
        (OffsetSpec.for_timestamp(1_700_000_005_000), -1),
    ):
        answers = clients.admin.list_offsets(
            {place: spec}, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=SECONDS
        )
        assert next(iter(answers.values())).result().offset == offset


def test_a_record_may_be_as_large_as_the_topic_allows(clients: Any, reports: Any) -> None:
    """max.message.bytes counts the whole batch; the next record is taken all the same."""
    topic = clients.topic(max_message_bytes="1000")
    producer = clients.producer()
    for size in (930, 931, 10):
        producer.produce(topic, b"x" * size, None, 0, headers=[], timestamp=0, on_delivery=reports)
        assert producer.flush(SECONDS) == 0
    assert reports.heard == [("", 0), ("MSG_SIZE_TOO_LARGE", None), ("", 1)]


def test_a_producer_has_a_limit_of_its_own(clients: Any, reports: Any) -> None:
    """message.max.bytes is looked at before anything is sent."""
    topic = clients.topic()
    producer = clients.producer(message_max_bytes=1_000)
    big = lambda: producer.produce(topic, b"x" * 2_000, None, 0, headers=[], timestamp=0, on_delivery=reports)  # noqa: E731
    assert error(big).name() == "MSG_SIZE_TOO_LARGE"
    assert len(producer) == 0


def test_a_topic_is_deleted_and_made_again(clients: Any, write: Any, read: Any, eventually: Any) -> None:
    """The new one of that name has another id, and begins at 0."""
    topic = clients.topic()
    write(topic, b"old")

    def identity() -> str:
        answer = clients.admin.describe_topics(TopicCollection([topic]), request_timeout=SECONDS)
        return str(answer[topic].result().topic_id)

    former = identity()
    clients.admin.delete_topics([topic], operation_timeout=SECONDS, request_timeout=SECONDS)[topic].result()
    eventually(lambda: clients.admin.list_topics(topic, timeout=SECONDS).topics[topic].error is not None)
    assert error(identity).name() == "UNKNOWN_TOPIC_OR_PART"
    clients.admin.create_topics([NewTopic(topic, 1, 1)], operation_timeout=SECONDS, request_timeout=SECONDS)[
        topic
    ].result()
    eventually(lambda: clients.admin.list_topics(topic, timeout=SECONDS).topics[topic].error is None)
    assert identity() not in {former, ""}
    eventually(lambda: clients.end(topic) == 0)


def test_a_topic_is_described(clients: Any) -> None:
    """Settings, partitions and replicas; what a program gave is distinguished from Kafka's default."""
    topic = clients.topic(2, retention_ms="-1")
    found = clients.admin.list_topics(topic, timeout=SECONDS).topics[topic]
    assert [(each.id, len(each.replicas)) for each in found.partitions.values()] == [(0, 1), (1, 1)]
    asked = ConfigResource(ResourceType.TOPIC, topic)
    settings = clients.admin.describe_configs([asked], request_timeout=SECONDS)[asked].result()
    assert (settings["retention.ms"].value, settings["retention.ms"].is_default) == ("-1", False)
    assert (settings["cleanup.policy"].value, settings["cleanup.policy"].is_default) == ("delete", True)
    assert settings["max.message.bytes"].value == "1048588"


def test_partitions_are_added(clients: Any, eventually: Any) -> None:
    """A topic gets more partitions, never fewer."""
    topic = clients.topic(2)
    grow = clients.admin.create_partitions
    assert error(grow([NewPartitions(topic, 2)], request_timeout=SECONDS)[topic].result).name() == "INVALID_PARTITIONS"
    grow([NewPartitions(topic, 3)], request_timeout=SECONDS)[topic].result()
    eventually(lambda: len(clients.admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions) == 3)


@pytest.mark.parametrize(
    ("name", "partitions", "replicas", "config", "expected"),
    [
        ("a b", 1, 1, {}, "TOPIC_EXCEPTION"),
        ("x" * 250, 1, 1, {}, "TOPIC_EXCEPTION"),
        (".", 1, 1, {}, "TOPIC_EXCEPTION"),
        ("..", 1, 1, {}, "TOPIC_EXCEPTION"),
        ("", 1, 1, {}, "TOPIC_EXCEPTION"),
        ("grün", 1, 1, {}, "TOPIC_EXCEPTION"),
        ("no-partitions", 0, 1, {}, "INVALID_PARTITIONS"),
        ("replicas", 1, 3, {}, "INVALID_REPLICATION_FACTOR"),
        ("setting", 1, 1, {"no.such": "1"}, "INVALID_CONFIG"),
    ],
)
def test_a_topic_that_cannot_be_made_is_refused(
    clients: Any, name: str, partitions: int, replicas: int, config: dict[str, str], expected: str
) -> None:
    """Kafka's rules for names, partitions, replicas and settings hold."""
    new = NewTopic(name, partitions, replicas, config=config)
    answer = clients.admin.create_topics([new], operation_timeout=SECONDS, request_timeout=SECONDS)[name]
    assert error(answer.result).name() == expected


def test_names_that_differ_by_dots_and_underscores_alone_collide(clients: Any) -> None:
    """Kafka's metrics would call both topics the same; once the first is deleted, the second can be made."""
    make = partial(clients.admin.create_topics, operation_timeout=SECONDS, request_timeout=SECONDS)
    name = clients.topic()
    dotted, mixed, scored = f"{name}.a.b", f"{name}.a_b", f"{name}_a_b"
    make([NewTopic(dotted, 1, 1)])[dotted].result()
    for other in (mixed, scored):
        refusal = error(make([NewTopic(other, 1, 1)])[other].result)
        assert refusal.name() == "TOPIC_EXCEPTION"
        assert refusal.str() == f"Topic '{other}' collides with existing topic: {dotted}"
    assert error(make([NewTopic(dotted, 1, 1)])[dotted].result).name() == "TOPIC_ALREADY_EXISTS"
    clients.admin.delete_topics([dotted], operation_timeout=SECONDS, request_timeout=SECONDS)[dotted].result()
    make([NewTopic(mixed, 1, 1)])[mixed].result()


@pytest.mark.parametrize("name", [".", "..", "a b", "x" * 250])
def test_a_name_that_no_topic_can_have_is_described_as_such(clients: Any, name: str) -> None:
    """A caller that asks for it learns that it is not only missing."""
    found = clients.admin.list_topics(name, timeout=SECONDS).topics[name]
    assert found.error.name() == "TOPIC_EXCEPTION"


def test_what_is_not_there_is_an_error(clients: Any) -> None:
    """Each call says so in its own way, as librdkafka's do."""
    missing = "no-such-topic"
    admin, consumer, place = clients.admin, clients.consumer(), TopicPartition("no-such-topic", 0)
    assert admin.list_topics(missing, timeout=SECONDS).topics[missing].error.name() == "UNKNOWN_TOPIC_OR_PART"
    answer = admin.delete_topics([missing], operation_timeout=SECONDS, request_timeout=SECONDS)[missing]
    assert error(answer.result).name() == "UNKNOWN_TOPIC_OR_PART"
    asked = ConfigResource(ResourceType.TOPIC, missing)
    described = admin.describe_configs([asked], request_timeout=SECONDS)[asked]
    assert error(described.result).name() == "UNKNOWN_TOPIC_OR_PART"
    assert error(lambda: consumer.get_watermark_offsets(place, SECONDS)).name() == "_UNKNOWN_PARTITION"
    assert consumer.committed([place], SECONDS)[0].offset == -1001
    topic = clients.topic()
    same = admin.create_topics([NewTopic(topic, 1, 1)], operation_timeout=SECONDS, request_timeout=SECONDS)[topic]
    assert error(same.result).name() == "TOPIC_ALREADY_EXISTS"


def test_a_record_for_a_partition_that_is_not_there_is_refused(clients: Any, write: Any, reports: Any) -> None:
    """The producer knows how many partitions a topic has."""
    topic = clients.topic()
    producer = clients.producer()
    producer.list_topics(topic, SECONDS)
    produce = lambda: producer.produce(topic, b"", None, 7, headers=[], timestamp=0, on_delivery=reports)  # noqa: E731
    assert error(produce).name() == "_UNKNOWN_PARTITION"


def test_a_key_has_its_partition(clients: Any, reports: Any) -> None:
    """Records of one key go to one partition, the one that Java's clients choose."""
    topic = clients.topic(8)
    producer = clients.producer()
    partitions = []
    for key in (b"a", b"group-1", b"\xff\x00\x80"):
        producer.produce(
            topic,
            b"",
            key,
            -1,
            headers=[],
            timestamp=0,
            on_delivery=lambda error, message: partitions.append(message.partition()),
        )
    assert producer.flush(SECONDS) == 0
    assert sorted(partitions) == [2, 3, 4]


def test_a_partition_is_read_to_where_it_is_assigned_only_once(clients: Any, write: Any) -> None:
    """Assigning anew begins anew; what is unassigned gives nothing."""
    topic = clients.topic()
    write(topic, b"0", b"1")
    consumer = clients.consumer()

    def values(count: int) -> list[bytes | None]:
        found: list[bytes | None] = []
        while len(found) < count:
            found += [each.value() for each in consumer.consume(count, 0.1) if each.error() is None]
        return found

    consumer.assign([TopicPartition(topic, 0, 0)])
    assert values(2) == [b"0", b"1"]
    consumer.assign([TopicPartition(topic, 0, 1)])
    assert values(1) == [b"1"]
    consumer.unassign()
    assert consumer.assignment() == []
    write(topic, b"2")
    assert consumer.poll(0.1) is None


def test_reports_wait_for_a_poll(clients: Any, reports: Any, eventually: Any) -> None:
    """The callback runs in the thread that polls, and the record counts until then."""
    topic = clients.topic()
    producer = clients.producer()
    producer.produce(topic, b"0", None, 0, headers=[], timestamp=0, on_delivery=reports)
    eventually(lambda: clients.end(topic) == 1)
    assert len(producer)
    assert reports.heard == []
    eventually(lambda: producer.poll(0.1) == 1)
    assert (len(producer), reports.heard) == (0, [("", 0)])
    assert producer.poll(0) == 0


def test_purged_records_are_reported(clients: Any, reports: Any) -> None:
    """They are given up before they were sent."""
    topic = clients.topic()
    producer = clients.producer(linger_ms=60_000)
    producer.list_topics(topic, SECONDS)
    producer.produce(topic, b"0", None, 0, headers=[], timestamp=0, on_delivery=reports)
    producer.purge()
    assert producer.flush(SECONDS) == 0
    assert reports.heard == [("_PURGE_QUEUE", None)]
    assert clients.end(topic) == 0


def test_a_producer_has_room_for_so_much(clients: Any, reports: Any) -> None:
    """Then it raises that its buffer is full; reports empty it."""
    topic = clients.topic()
    producer = clients.producer(queue_buffering_max_messages=2)

    def put() -> None:
        producer.produce(topic, b"0", None, 0, headers=[], timestamp=0, on_delivery=reports)

    put()
    put()
    with pytest.raises(BufferError):
        put()
    assert producer.flush(SECONDS) == 0
    put()
    assert producer.flush(SECONDS) == 0
    assert len(reports.heard) == 3
