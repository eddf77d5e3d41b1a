"""The Kafka client confirms records that no broker has stored: kjms believes none of that, and no message is lost.

librdkafka does so if a broker refuses a producer's first records of a partition for a passing reason, and takes later
ones (decision 034). A real Kafka cannot be made to do this at a chosen moment; the in-memory one can.
"""

from __future__ import annotations

from typing import Any

import pytest

from kjms import DeliveryMode, JMSException, Queue, RedeliveryPolicy
from kjms.engine.kafka import IsolationLevel, KafkaError, NewTopic, OffsetSpec, TopicPartition, open_admin
from kjms.testing import MemoryKafka
from tests.helpers import Completions, dead_letter_queue, texts_of


@pytest.mark.requirement("JMS-4.4.7-2", "JAK-commit-8")
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_transaction_writes_everything(
    kafka: MemoryKafka, desk: Any, queue: Queue, other_queue: Queue, times: int
) -> None:
    """The transaction is aborted and made again: all of it is committed, once and in order."""
    desk.send(queue, "received")
    session = desk.transacted()
    consumer = session.create_consumer(queue)
    assert desk.texts(consumer, 1) == ["received"]
    desk.send(other_queue, *"abc", by=session)
    kafka.faults.lose_records(topic=other_queue.queue_name, times=times)
    session.commit()
    assert desk.stored(other_queue) == [*"abc"]
    session.close()
    assert desk.left(queue) == []


@pytest.mark.requirement("JMS-4.4.7-2")
def test_a_transaction_that_only_sends_writes_everything(kafka: MemoryKafka, desk: Any, queue: Queue) -> None:
    """Neither the mark of the transaction nor a message is missing."""
    session = desk.transacted()
    for name in "ab":
        desk.send(queue, name, by=session)
        kafka.faults.lose_records(times=2)
        session.commit()
    assert desk.stored(queue) == [*"ab"]


@pytest.mark.requirement("JMS-4.7-4")
def test_a_send_raises_that_its_outcome_is_unknown(kafka: MemoryKafka, desk: Any, queue: Queue) -> None:
    """The error names the destination; the next message is sent."""
    session = desk.session()
    kafka.faults.lose_records(topic=queue.queue_name)
    with pytest.raises(JMSException, match="outcome unknown") as raised:
        desk.send(queue, "lost", by=session)
    assert queue.queue_name in str(raised.value)
    assert raised.value.error_code == "_INCONSISTENT"
    desk.send(queue, "next", by=session)
    assert desk.stored(queue) == ["next"]


@pytest.mark.requirement("JMS-4.6.2.1-1", "JMS-4.6.2.2-3")
def test_a_completion_listener_learns_that_the_outcome_is_unknown(kafka: MemoryKafka, desk: Any, queue: Queue) -> None:
    """Of an asynchronous send, `on_exception` is called; the others complete."""
    session = desk.session()
    listener = Completions()
    kafka.faults.lose_records(topic=queue.queue_name)
    desk.send(queue, "lost", "next", by=session, completion_listener=listener)
    session.close()
    ((lost, failure),) = listener.failed
    assert lost.text == "lost"
    assert "outcome unknown" in str(failure)
    assert texts_of(listener.sent) == ["next"]
    assert desk.stored(queue) == ["next"]


def test_a_non_persistent_message_is_reported_in_the_log(
    kafka: MemoryKafka, desk: Any, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be lost, and the log says so."""
    session = desk.session()
    kafka.faults.lose_records(topic=queue.queue_name)
    desk.send(queue, "lost", by=session, delivery_mode=DeliveryMode.NON_PERSISTENT)
    session.close()
    assert any("NON_PERSISTENT message was lost" in line and "outcome unknown" in line for line in caplog.messages)


def test_a_dead_letter_is_there_before_its_message_is_settled(kafka: MemoryKafka, desk: Any, queue: Queue) -> None:
    """A relocation whose copy is not proved is made again: the message is in one place."""
    desk.send(queue, "bad")
    letters = dead_letter_queue(queue)
    connection = desk.connect(is_apart=True, redelivery=RedeliveryPolicy(max_deliveries=1))
    session = desk.transacted(connection)
    consumer = session.create_consumer(queue)
    assert desk.texts(consumer, 1) == ["bad"]
    kafka.faults.lose_records(topic=letters.queue_name, times=2)
    session.rollback()
    with desk.session() as other, other.create_consumer(letters) as dead:
        assert desk.texts(dead, 1) == ["bad"]
        assert dead.receive_no_wait() is None
    session.close()
    assert desk.left(queue, connection) == []
    assert desk.stored(letters) == ["bad"]


def test_a_delayed_message_comes(kafka: MemoryKafka, desk: Any, queue: Queue) -> None:
    """What was moved to its destination without proof is moved again."""
    consumer = desk.session().create_consumer(queue)
    desk.send(queue, "late", delivery_delay=30)
    kafka.faults.lose_records(topic=queue.queue_name, times=2)
    assert desk.seen(consumer, 1) == [("late", False, 1)]
    consumer.close()
    assert desk.stored(queue) == ["late"]


def test_messages_are_handed_over_once(kafka: MemoryKafka, desk: Any, queue: Queue) -> None:
    """Neither a record of interest nor a copy that is not proved loses a message, or hands one over twice."""
    owner = desk.connect(is_apart=True).create_session()
    consumer = owner.create_consumer(queue, "kind = 'here'")
    desk.send(queue, "mine", properties={"kind": "here"})
    assert desk.texts(consumer, 1) == ["mine"]
    kafka.faults.lose_records(topic=f"{queue.queue_name}.kjms.handover", times=3)
    there = desk.connect(is_apart=True).create_session().create_consumer(queue, "kind = 'there'")
    desk.send(queue, *range(20), properties={"kind": "there"})
    assert sorted(map(int, desk.texts(there, 20))) == list(range(20))
    assert there.receive(200) is None


@pytest.mark.parametrize("is_made_by_kjms", [True, False], ids=["made by kjms", "made by another program"])
def test_nothing_is_sent_before_the_leaders_of_a_new_topic_are_ready(
    kafka: MemoryKafka, desk: Any, queue: Queue, is_made_by_kjms: bool
) -> None:
    """A broker names the leader of a new partition a moment before that takes records: kjms waits for it."""
    admin, topic = open_admin({"bootstrap.servers": kafka.bootstrap_servers}), queue.queue_name
    if not is_made_by_kjms:
        admin.create_topics([NewTopic(topic, 1, 1)], operation_timeout=10, request_timeout=10)[topic].result()
    kafka.faults.fail("list_offsets", KafkaError.NOT_LEADER_FOR_PARTITION, times=3, topic=topic)
    desk.send(queue, "a")
    place = TopicPartition(topic, 0)
    answer = admin.list_offsets(
        {place: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=10
    )
    assert answer[place].result().offset == 1  # the three failures were met before


def test_a_missing_right_to_ask_for_leaders_prevents_nothing(kafka: MemoryKafka, desk: Any, queue: Queue) -> None:
    """It is a precaution: if the broker refuses the question, the message is sent all the same."""
    kafka.faults.fail("list_offsets", KafkaError.TOPIC_AUTHORIZATION_FAILED, topic=queue.queue_name)
    desk.send(queue, "a")
    assert desk.stored(queue) == ["a"]
