"""A topic that is deleted and made again, under the same name, while it is read."""

from __future__ import annotations

import contextlib
import time

from kjms import Session, Topic
from kjms.engine.kafka import AdminPort, KafkaException, NewTopic
from tests.helpers import WAIT_MS, WAIT_SECONDS, text


def make_again(admin: AdminPort, name: str) -> None:
    """Delete a topic, and make another one of its name at once."""
    admin.delete_topics([name], operation_timeout=WAIT_SECONDS, request_timeout=WAIT_SECONDS)[name].result()
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        made = admin.create_topics([NewTopic(name, 1, 1)], operation_timeout=1, request_timeout=WAIT_SECONDS)[name]
        with contextlib.suppress(KafkaException):  # the deletion may be under way
            made.result()
            return
    raise AssertionError(f"{name} cannot be made again")


def test_a_consumer_of_a_topic_that_is_made_again_at_once_misses_nothing(
    session: Session, topic: Topic, admin: AdminPort
) -> None:
    """What is sent to the new topic is received from its first message, however short a time the old one was read."""
    consumer, producer = session.create_consumer(topic), session.create_producer(topic)
    for number in range(5):
        producer.send(session.create_text_message(f"old {number}"))
    assert [text(consumer.receive(WAIT_MS)) for _ in range(5)] == [f"old {number}" for number in range(5)]
    make_again(admin, topic.topic_name)
    for number in range(8):
        producer.send(session.create_text_message(f"new {number}"))
    left = {f"new {number}" for number in range(8)}
    while left:
        message = consumer.receive(WAIT_MS)
        assert message is not None, left
        left.discard(text(message))
