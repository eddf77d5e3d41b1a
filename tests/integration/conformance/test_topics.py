"""What JMS says of topics, on a real Kafka, beyond what it says of their subscriptions."""

from __future__ import annotations

from typing import Any

import pytest

from kjms import JMSException, Topic
from kjms.engine.kafka import open_admin
from tests.helpers import WAIT_SECONDS, Desk, bounds, threads_of, topics, wait_for


@pytest.mark.requirement("JMS-A.1.7-1")
def test_a_topic_without_subscribers_costs_little(desk: Desk, topic: Topic, kjms_broker: Any) -> None:
    """A message without subscribers is written once: no thread, group, further topic or report comes of it."""
    connection = desk.connect(is_apart=True)
    told: list[JMSException] = []
    connection.exception_listener = told.append
    session = connection.create_session()
    producer = session.create_producer(topic)
    wait_for(lambda: "kjms-destinations" not in threads_of(session, topic.topic_name))  # it notes the new topic's kind
    before = threads_of(session, topic.topic_name)
    for number in range(50):
        producer.send(session.create_text_message(str(number)))
    assert threads_of(session, topic.topic_name) == before
    servers = kjms_broker.bootstrap_servers
    admin = open_admin({"bootstrap.servers": servers})  # kept: one that is freed answers no more
    groups = admin.list_consumer_groups(request_timeout=WAIT_SECONDS).result().valid
    assert [group.group_id for group in groups if topic.topic_name in group.group_id] == []
    assert [name for name in topics(servers) if topic.topic_name in name] == [topic.topic_name]
    assert bounds(servers, topic.topic_name) == {0: (0, 50)}
    assert told == []
