"""The golden records of the registry and of interest topics: programs of every version read them."""

from __future__ import annotations

import json
from typing import Any

from kjms import Queue, Topic
from kjms.engine.kafka import TopicPartition, open_consumer
from kjms.engine.log_reading import UNTIL_END, records
from kjms.mapping.names import REGISTRY, interest, queue_group
from kjms.testing.engine import engine_of
from tests.helpers import WAIT_MS, WAIT_SECONDS, Desk, Eventually, send

CLAIM = {"version", "engine", "process", "resource"}
CLAIMS = ("lock", "use", "definition")
REGISTRY_KEYS = {
    "lock": CLAIM,
    "use": CLAIM | {"definition"},
    "definition": CLAIM | {"destination", "topic", "selector", "no_local", "shared", "starts", "delayed"},
    "ask": {"version", "question"},
    "alive": {"version"},
}
INTEREST_KEYS = {
    *{"version", "engine", "lease", "idle", "partition", "partitions", "position", "undispatched", "credit", "fast"},
    *{"selectors", "request", "published_at"},
}
CHANGE_KEYS = {"added", "removed", "leaving"}


def values(servers: str, topic: str, engine: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Return the key and the JSON value of each record in *topic*, which has one partition; of one *engine* alone."""
    consumer = open_consumer({"bootstrap.servers": servers, "group.id": "kjms.without-group", **UNTIL_END})
    try:
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_SECONDS)
        consumer.assign([TopicPartition(topic, 0, first)])
        read = records(consumer, {(topic, 0): end}, WAIT_SECONDS)
        found = [(each.key() or b"", each.value() or b"{}") for each in read]
        own = [(key, value) for key, value in found if engine.encode() in key + value]  # others may be damaged
        return [(key.decode(), json.loads(value)) for key, value in own]
    finally:
        consumer.close()


def test_records_of_the_registry(desk: Desk, topic: Topic) -> None:
    """Locks, uses, definitions, questions and answers have the keys of the golden set, and no others."""
    session = desk.session(connection=desk.connect(is_apart=True))
    session.create_temporary_queue()
    session.create_shared_durable_consumer(topic, topic.topic_name).close()
    session.unsubscribe(topic.topic_name)
    found: dict[str, set[str]] = {}
    for key, value in values(desk.servers, REGISTRY, engine_of(session).registry.name):
        found.setdefault(key.partition(":")[0], set()).update(value)
    assert [found[kind] for kind in CLAIMS] == [REGISTRY_KEYS[kind] for kind in CLAIMS]
    assert [(kind, keys) for kind, keys in found.items() if not keys <= REGISTRY_KEYS[kind]] == []


def test_records_of_interest(desk: Desk, queue: Queue, eventually: Eventually) -> None:
    """What processes publish of their consumers has the keys of the golden set, and no others."""
    here, there = desk.connect(is_apart=True), desk.connect(is_apart=True)
    consumer = here.create_session().create_consumer(queue, "n = 1")
    send(here, queue, "first", properties={"n": 1})
    assert consumer.receive(WAIT_MS) is not None
    elsewhere = there.create_session().create_consumer(queue, "n = 2")
    send(here, queue, "second", properties={"n": 2})
    assert elsewhere.receive(WAIT_MS) is not None
    topic = interest(queue.queue_name, queue_group(queue.queue_name))
    eventually(lambda: {key for _, value in values(desk.servers, topic) for key in value} >= INTEREST_KEYS)
    assert {key for _, value in values(desk.servers, topic) for key in value} <= INTEREST_KEYS | CHANGE_KEYS
