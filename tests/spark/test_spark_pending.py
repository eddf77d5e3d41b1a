"""What queues hold that is not settled, as frames: the same that a queue browser shows."""

from __future__ import annotations

import random
import time

import pytest

from kjms import ConnectionFactory, Queue, Session, Topic
from kjms.errors import InvalidDestinationException
from kjms.mapping.names import handover, overflow, queue_group
from kjms.spark import Pattern, read_batch
from kjms.spark.pipelines import where
from kjms.testing.engine import tuned
from tests.helpers import WAIT_MS, bounds, partitions

pytestmark = pytest.mark.usefixtures("no_python_on_executors")


@pytest.fixture
def factory(kjms_broker):
    """A factory with an engine of its own: the tests' settings are not for others."""
    return ConnectionFactory(kjms_broker.bootstrap_servers, kafka={"client.id": f"pending-{random.random()}"})


def send(session, queue, numbers, **how):
    with session.create_producer(queue) as producer:
        for number in numbers:
            message = session.create_text_message(str(number))
            message.set_int_property("n", number)
            producer.send(message, **how)


def browsed(session, queue):
    return sorted(
        (m.text, m.jms_message_id, m.jms_redelivered, m.get_int_property("JMSXDeliveryCount"))
        for m in session.create_browser(queue)
    )


def seen(frame):
    columns = ("text", "messageID", "redelivered", "deliveryCount")
    return sorted(tuple(row[name] for name in columns) for row in frame.select(*columns).collect())


def test_what_is_pending_is_what_a_browser_shows(spark, factory, kjms_broker, kjms_queue):
    """Settled in any order, relocated, delivered and come back, expired: Spark sees what a browser sees."""
    chance = random.Random(7)
    with tuned(metadata_limit=250), factory.create_connection() as connection:
        connection.start()
        session = connection.create_session(Session.INDIVIDUAL_ACKNOWLEDGE)
        send(session, kjms_queue, range(500), delivery_mode=1)
        send(session, kjms_queue, [1_000], time_to_live=1)
        assert len(seen(read_batch(spark, factory, kjms_queue, pending=True))) == 500
        consumer = session.create_consumer(kjms_queue)
        for _ in range(450):
            message = consumer.receive(WAIT_MS)
            if chance.random() > 0.3:
                message.acknowledge()
        assert partitions(
            kjms_broker.bootstrap_servers, overflow(kjms_queue.queue_name, queue_group(kjms_queue.queue_name))
        )
        frame = read_batch(spark, factory, kjms_queue, pending=True)
        # What a session holds tells of its delivery once it is relocated, which happens when it happens.
        assert [each[:2] for each in seen(frame)] == [each[:2] for each in browsed(session, kjms_queue)]
        assert {row["topic"] for row in frame.select("topic").distinct().collect()} == {kjms_queue.queue_name}
        session.recover()
        now = browsed(session, kjms_queue)
        frame = read_batch(spark, factory, [kjms_queue], pending=True)
        assert seen(frame) == now
        again = [each for each in now if each[3] == 2]
        assert 100 < len(again) < len(now)
        chosen = "JMSXDeliveryCount = 2 AND n >= 0"
        assert seen(read_batch(spark, factory, kjms_queue, pending=True, selector=chosen)) == again
        assert seen(where(frame, chosen)) == again


def test_what_was_handed_to_another_process_is_pending(spark, factory, kjms_factory, kjms_broker, kjms_queue):
    """A message on its way through another process is on the queue until it is settled there."""
    name = kjms_queue.queue_name
    with factory.create_connection() as owner, kjms_factory.create_connection() as other:
        session, there = owner.create_session(Session.CLIENT_ACKNOWLEDGE), other.create_session(2)
        send(session, kjms_queue, range(1))
        owner.start()
        first = session.create_consumer(kjms_queue).receive(WAIT_MS)
        other.start()
        consumer = there.create_consumer(kjms_queue, "n > 0")
        send(session, kjms_queue, range(1, 3))
        received = consumer.receive(WAIT_MS)
        assert first.text == "0"
        assert any(end for _, end in bounds(kjms_broker.bootstrap_servers, handover(name, queue_group(name))).values())
        assert [each[0] for each in seen(read_batch(spark, factory, kjms_queue, pending=True))] == ["0", "1", "2"]
        received.acknowledge()
        found = seen(read_batch(spark, factory, kjms_queue, pending=True))
        assert [each[0] for each in found] == [text for text in ("0", "1", "2") if text != received.text]
        assert found == browsed(session, kjms_queue)


def test_what_cannot_be_pending_is_refused(spark, factory, kjms_queue, kjms_topic):
    """Only of queues, each by its name, is it known what is not settled, and it says itself where it is."""
    for wrong in (kjms_topic, Topic("t"), [kjms_queue, kjms_topic], Pattern(Queue, "orders.*")):
        with pytest.raises(InvalidDestinationException, match="pending"):
            read_batch(spark, factory, wrong, pending=True)
    with pytest.raises(ValueError, match="neither starting"):
        read_batch(spark, factory, kjms_queue, pending=True, starting=time.time_ns() // 1_000_000)
