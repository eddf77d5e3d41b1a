"""What JMS says of topics, on a real Kafka, beyond what it says of their subscriptions."""

from __future__ import annotations

import threading

import pytest

from kjms import Connection, JMSException, Topic


@pytest.mark.requirement("JMS-A.1.7-1")
def test_a_topic_without_subscribers_costs_little(connection: Connection, topic: Topic) -> None:
    """What nobody subscribes to is written once: no thread, group or further topic is made, and no one is told."""
    told: list[JMSException] = []
    connection.exception_listener = told.append
    session = connection.create_session()
    producer = session.create_producer(topic)
    before = set(threading.enumerate())
    for number in range(20):
        producer.send(session.create_text_message(str(number)))
    assert set(threading.enumerate()) <= before
    topics = connection._engine.topics
    groups = topics.admin.list_consumer_groups().result().valid
    assert [group.group_id for group in groups if topic.topic_name in group.group_id] == []
    assert [name for name in topics.all() if topic.topic_name in name] == [topic.topic_name]
    assert sum(connection._engine.topics.ends(topic.topic_name, 1).values()) == 20
    assert told == []
