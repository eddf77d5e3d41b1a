"""``kjms spark archives``: which archives the cluster knows, and the end of one; Spark is not needed for it."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from kjms import Connection, Queue
from tests.helpers import Kjms, numbered


def register(servers: str, name: str, topic: str, offset: int) -> None:
    """Commit what an archive has stored of partition 0, as its program does."""
    group = ConsumerGroupTopicPartitions(f"kjms.archive.{name}", [TopicPartition(topic, 0, offset)])
    admin = AdminClient({"bootstrap.servers": servers})
    for done in admin.alter_consumer_group_offsets([group]).values():
        done.result()


def test_archives_are_listed_and_forgotten(
    kjms: Kjms, kjms_broker: Any, kjms_connection: Connection, kjms_queue: Queue
) -> None:
    """The command shows up to where each archive has stored a topic; one that is forgotten is no longer listed."""
    topic = kjms_queue.queue_name
    numbered(kjms_connection, kjms_queue, 5)
    for name, offset in {f"{topic}.a": 3, f"{topic}.b": 5}.items():
        register(kjms_broker.bootstrap_servers, name, topic, offset)

    def listed() -> dict[str, int]:
        rows = json.loads(kjms("spark", "archives", "--json").stdout)
        return {row["archive"]: row["offset"] for row in rows if (row["topic"], row["partition"]) == (topic, 0)}

    assert listed() == {f"{topic}.a": 3, f"{topic}.b": 5}
    table = [line.split() for line in kjms("spark", "archives").stdout.decode().splitlines()]
    assert table[0][0] == "ARCHIVE"
    assert [f"{topic}.a", topic, "0", "3"] in table
    done = kjms("spark", "archives", "--forget", f"{topic}.a")
    assert done.stderr.decode().strip() == f"kjms spark: archive {topic}.a is forgotten"
    assert listed() == {f"{topic}.b": 5}
    done = kjms("spark", "archives", "--forget", f"{topic}.a", expected=1)
    assert "there is no archive" in done.stderr.decode()
    kjms("spark", "archives", "--forget", f"{topic}.b")


def test_destinations_are_for_pipelines(kjms: Kjms) -> None:
    """``archives`` takes no destination, and a pipeline needs one."""
    assert b"archives: give no destination" in kjms("spark", "archives", "orders", expected=2).stderr
    assert b"report: give a destination" in kjms("spark", "report", expected=2).stderr
