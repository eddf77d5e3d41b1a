"""Incidents of messages and groups from outside: what is recorded of them, and what is repaired."""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from kjms import ConnectionFactory, Queue, RedeliveryPolicy, Session, Topic
from kjms.mapping.names import REDELIVERIES, queue_group, transactional_ids
from kjms.testing.engine import tuned
from kjms.txn.metadata import State, write_state
from tests.helpers import WAIT_MS, Desk, Eventually, send, text

PAGE = (Path(__file__).parents[3] / "docs" / "settlement.md").read_text("utf-8")


def events(broker: Any, queue: Queue) -> list[dict[str, Any]]:
    """Return what was written down of *queue*'s messages."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused", "enable.partition.eof": True}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(REDELIVERIES, 0, 0)])
    found: list[dict[str, Any]] = []
    try:
        while (record := consumer.poll(10)) is not None and record.error() is None:
            if record.key() == queue.queue_name.encode():
                found.append(json.loads(record.value() or b""))
    finally:
        consumer.close()
    return found


def test_each_redelivery_and_dead_letter_is_written_down(
    kjms_broker: Any, queue: Queue, eventually: Eventually
) -> None:
    """People and Spark can read which message came again, when, why and how often, and what became of it."""
    factory = ConnectionFactory(kjms_broker.bootstrap_servers, redelivery=RedeliveryPolicy(max_deliveries=2))
    with factory.create_connection() as connection:
        connection.start()
        send(connection, queue, "good", "bad")
        session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        consumer = session.create_consumer(queue)
        good, bad = consumer.receive(WAIT_MS), consumer.receive(WAIT_MS)
        assert (text(good), text(bad)) == ("good", "bad")
        session.recover()
        again = consumer.receive(WAIT_MS)
        assert again is not None
        again.acknowledge()
        assert text(consumer.receive(WAIT_MS)) == "bad"
        session.recover()
        assert consumer.receive(300) is None
        assert bad is not None
        eventually(lambda: len(events(kjms_broker, queue)) == 3)
    first, second, last = events(kjms_broker, queue)
    assert (first["event"], first["offset"], first["delivery"]) == ("redelivery", 0, 2)
    assert (second["event"], second["offset"], second["delivery"]) == ("redelivery", 1, 2)
    assert second == {
        "event": "redelivery",
        "time": second["time"],
        "destination": str(queue),
        "group": queue_group(queue.queue_name),
        "topic": queue.queue_name,
        "partition": 0,
        "offset": 1,
        "message_id": bad.jms_message_id,
        "delivery": 2,
        "cause": "the session recovered",
        "host": socket.gethostname(),
        "process": os.getpid(),
    }
    assert last == {**second, "event": "dead letter", "time": last["time"]}
    (shown,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert list(json.loads(shown)) == list(second)


def test_a_transaction_that_a_killed_program_left_open_is_ended(kjms_broker: Any, queue: Queue) -> None:
    """A process that takes a partition over does not wait until Kafka gives up a dead owner's transaction."""
    servers, topic = kjms_broker.bootstrap_servers, queue.queue_name
    gone = f"gone-{topic}"
    with ConnectionFactory(servers).create_connection() as connection:
        send(connection, queue, "a", "b")
    settings = {"bootstrap.servers": servers, "group.id": queue_group(topic), "auto.offset.reset": "earliest"}
    dead = Consumer({**settings, "enable.auto.commit": False})
    dead.subscribe([topic])
    assert dead.poll(20) is not None
    said = write_state(State(0, 2, (), 0), "-", gone)
    dead.commit(offsets=[TopicPartition(topic, 0, 0, said)], asynchronous=False)
    transaction = Producer({"bootstrap.servers": servers, "transactional.id": transactional_ids(gone)[0]})
    transaction.init_transactions(20)
    transaction.begin_transaction()
    end = [TopicPartition(topic, 0, 2, write_state(State(2, 2, (), 2), "-", gone))]
    transaction.send_offsets_to_transaction(end, dead.consumer_group_metadata(), 20)
    dead.close()
    heard: list[Exception] = []
    with ConnectionFactory(servers).create_connection() as connection:
        connection.exception_listener = heard.append
        connection.start()
        consumer = connection.create_session().create_consumer(queue)
        first, second = consumer.receive(WAIT_MS), consumer.receive(WAIT_MS)
        assert (text(first), text(second)) == ("a", "b")
        assert first is not None
        assert first.jms_redelivered
    assert heard == []
    with pytest.raises(KafkaException):
        transaction.commit_transaction(20)


def test_a_topic_that_grows_is_read_to_its_full_width(
    kjms_broker: Any, desk: Desk, topic: Topic, eventually: Eventually
) -> None:
    """A plain consumer of a topic reads partitions that are added to it, from their start."""
    with tuned(partition_check_seconds=0.2):
        connection = desk.connect()
    consumer = connection.create_session().create_consumer(topic)
    send(connection, topic, "before")
    assert text(consumer.receive(WAIT_MS)) == "before"
    admin = AdminClient({"bootstrap.servers": kjms_broker.bootstrap_servers})
    admin.create_partitions([NewPartitions(topic.topic_name, 3)])[topic.topic_name].result()
    producer = Producer({"bootstrap.servers": kjms_broker.bootstrap_servers})
    eventually(lambda: len(producer.list_topics(topic.topic_name, 5).topics[topic.topic_name].partitions) == 3)
    for number in (2, 1, 0):
        producer.produce(topic.topic_name, f"in {number}", partition=number)
    assert producer.flush(20) == 0
    assert {text(consumer.receive(WAIT_MS)) for _ in range(3)} == {"in 0", "in 1", "in 2"}
