"""What earlier versions left in Kafka is read as they meant it: records, commit metadata, the registry, delays.

The files hold all topics and committed offsets of a cluster, byte for byte, as versions of the days in their names
wrote them: see write.py, which writes one of the present version as well, for a release.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kjms import ConnectionFactory, JMSContext, Queue, Topic
from kjms.engine.kafka import Uuid
from kjms.testing import MemoryKafka
from kjms.testing._groups import Offset
from kjms.testing._logs import CREATE_TIME, Kind, Record

WAIT_MS = 20_000
FILES = sorted(Path(__file__).parent.glob("*.json"))


def data(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def restore(kafka: MemoryKafka, path: Path) -> None:
    """Put what the file holds into *kafka*, at the offsets that it had, with times as if it were written now."""
    kept = json.loads(path.read_text("utf-8"))
    logs = [partition["records"] for topic in kept["topics"].values() for partition in topic["partitions"]]
    shift = int(time.time() * 1000) - max(each["timestamp"] for log in logs for each in log)  # else retention ends them
    cluster = kafka._cluster
    with cluster.lock:
        for name, topic in kept["topics"].items():
            cluster.make(name, len(topic["partitions"]), 1, topic["settings"])
            cluster.topics[name].id = Uuid(*topic["id"])  # the metadata of commits is for this topic alone
            for log, partition in zip(cluster.topics[name].logs, topic["partitions"], strict=True):
                log.start = partition["start"]
                log.records = [
                    Record(
                        log.start + number,
                        Kind[each["kind"]],
                        data(each["key"]),
                        data(each["value"]),
                        [(header, data(value)) for header, value in each["headers"]],
                        each["timestamp"] + shift,
                        CREATE_TIME,
                    )
                    for number, each in enumerate(partition["records"])
                ]
        for name, offsets in kept["groups"].items():
            for topic, partition, offset, metadata in offsets:
                committed = Offset(offset, metadata, cluster.next_order(), time.monotonic())
                cluster.group(name).commit((topic, partition), committed)


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def context(request: pytest.FixtureRequest) -> Iterator[JMSContext]:
    """A context on a cluster that an earlier version has used."""
    with MemoryKafka() as kafka:
        restore(kafka, request.param)
        kafka.clock.advance(2 * 3_600_000)
        with ConnectionFactory(kafka.bootstrap_servers).create_context() as context:
            yield context


def bodies(context: JMSContext, queue: Queue, count: int) -> list[str]:
    consumer = context.create_consumer(queue)
    found = [consumer.receive_body(str, WAIT_MS) for _ in range(count)]
    assert consumer.receive_no_wait() is None
    return [str(each) for each in found]


def test_what_was_acknowledged_message_by_message_stays_so(context: JMSContext) -> None:
    """The metadata of the commit says which messages behind the committed offset are settled."""
    consumer = context.create_consumer(Queue("orders"))
    got = [consumer.receive(WAIT_MS) for _ in range(6)]
    assert [(each.get_body(str), each.get_int_property("number")) for each in got if each is not None] == [
        (f"order {number}", number) for number in (2, 4, 5, 6, 8, 9)
    ]
    assert consumer.receive_no_wait() is None


def test_each_kind_of_body_and_field_is_read(context: JMSContext) -> None:
    """Bodies, properties with their types, and header fields are those that were sent."""
    consumer = context.create_consumer(Queue("kinds"))
    text, raw, mapped, stream, bare = (consumer.receive(WAIT_MS) for _ in range(5))
    assert text is not None
    assert text.get_body(str) == "Grüße"
    assert (text.jms_priority, text.jms_correlation_id, text.jms_type) == (7, "order-1", "offer")
    assert text.jms_reply_to == Topic("replies")
    assert {name: text.get_object_property(name) for name in ("text", "flag", "weight", "byte", "long", "float")} == {
        **{"text": "tea", "flag": True, "weight": 2.5, "byte": 3, "long": 3, "float": 3.0}
    }
    assert text.get_string_property("JMSXGroupID") == "group-1"
    assert raw is not None
    assert raw.get_body(bytes) == b"\x00\xff"
    assert mapped is not None
    assert mapped.get_body(dict) == {"name": "Ada", "age": 36, "raw": b"\x01"}
    assert [stream.read_int(), stream.read_string(), stream.read_boolean()] == [1, "two", True]  # type: ignore[union-attr]
    assert bare is not None
    assert bare.damage == ()


def test_a_dead_letter_tells_where_it_comes_from(context: JMSContext) -> None:
    """The properties of a dead letter are those of now."""
    letter = context.create_consumer(Queue("failing.dlq")).receive(WAIT_MS)
    assert letter is not None
    assert letter.get_body(str) == "fails"
    assert letter.get_string_property("JMS_kjms_OriginalDestination") == "queue://failing"
    assert context.create_consumer(Queue("failing")).receive_no_wait() is None


def test_a_transaction_that_was_committed_is_done(context: JMSContext) -> None:
    """What it sent is there, and what it received is not."""
    assert bodies(context, Queue("receipts"), 1) == ["for a sum"]
    assert bodies(context, Queue("sums"), 1) == ["another"]


def test_a_delayed_message_comes(context: JMSContext) -> None:
    """Its time, an hour after it was sent, has passed."""
    assert bodies(context, Queue("later"), 1) == ["not before an hour"]


def test_a_durable_subscription_has_its_selector_and_its_messages(context: JMSContext) -> None:
    """The registry's definition counts, and what was published since then waits."""
    consumer = context.create_shared_durable_consumer(Topic("news"), "readers", "kind = 'sport'")
    assert [consumer.receive_body(str, WAIT_MS) for _ in range(2)] == ["news 0", "news 2"]
    assert consumer.receive_no_wait() is None
