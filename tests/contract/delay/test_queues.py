"""Delayed messages to queues: when they come, in which order, and where they show before."""

from __future__ import annotations

import contextlib
import json
from datetime import timedelta
from typing import Any

import pytest

from kjms import (
    CompletionListener,
    ConnectionFactory,
    DeliveryMode,
    DestinationOptions,
    Message,
    Queue,
    ResourceAllocationException,
    Session,
)
from kjms.engine.kafka import AdminPort, NewTopic
from kjms.mapping.names import delayed
from tests.helpers import NOTHING_MS, WAIT_MS, Eventually, now_ms, text, texts_of, wait_past

TOMORROW = timedelta(days=1)


@pytest.mark.requirement("AMQP-9-11", "JMS-3.4.13-1", "JMS-3.4.13-3", "JMS-3.4.13-4", "JMS-3.4.13-5", "JMS-4.12-1")
@pytest.mark.parametrize("way", ["producer", "send", "context", "listener", "non-persistent"])
def test_a_delayed_message_comes_at_its_time(desk: Any, queue: Queue, way: str) -> None:
    """Whichever way the delay is given, the message is received at the time of sending and the delay, not before."""
    session, delay = desk.session(), 200
    consumer = session.create_consumer(queue)
    message = session.create_text_message(way)
    producer = session.create_producer(queue)
    before = now_ms()
    if way == "producer":
        producer.delivery_delay = delay
        assert producer.delivery_delay == delay
        producer.send(message)
    elif way == "send":
        producer.send(message, delivery_delay=timedelta(milliseconds=delay))
    elif way == "listener":

        class Listener(CompletionListener):
            def on_completion(self, message: Message) -> None: ...

            def on_exception(self, message: Message, exception: Exception) -> None: ...

        producer.send(message, delivery_delay=delay, completion_listener=Listener())
    elif way == "non-persistent":
        producer.send(message, delivery_delay=delay, delivery_mode=DeliveryMode.NON_PERSISTENT)
    else:
        with ConnectionFactory(desk.servers).create_context() as context:
            context.create_producer().set_delivery_delay(delay).send(queue, message)
    after = now_ms()
    assert before + delay <= message.jms_delivery_time <= after + delay
    assert message.jms_delivery_time == message.jms_timestamp + delay
    received = consumer.receive(WAIT_MS)
    assert now_ms() >= message.jms_delivery_time
    assert text(received) == way
    assert received is not None
    assert received.jms_delivery_time == message.jms_delivery_time
    assert (received.jms_redelivered, received.get_int_property("JMSXDeliveryCount")) == (False, 1)


@pytest.mark.requirement("JMS-3.4.13-2", "JMS-3.4.9-2", "JMS-4.4.10.2-5")
def test_in_a_transaction_the_time_counts_from_the_send(desk: Any, queue: Queue) -> None:
    """Delivery time and expiration are those of the send call, though the commit comes later; order is kept."""
    session = desk.session(Session.SESSION_TRANSACTED)
    before = now_ms()
    first, second = desk.send(queue, "first", "second", by=session, delivery_delay=150, time_to_live=60_000)
    after = now_ms()
    assert before + 150 <= first.jms_delivery_time <= after + 150
    assert before + 60_000 <= first.jms_expiration <= after + 60_000
    wait_past(after + 150)
    consumer = desk.session().create_consumer(queue)
    assert consumer.receive(NOTHING_MS) is None  # it is due, and not committed
    session.commit()
    got = [consumer.receive(WAIT_MS), consumer.receive(WAIT_MS)]
    assert [(text(each), each.jms_delivery_time, each.jms_expiration) for each in got] == [
        (each.text, each.jms_delivery_time, each.jms_expiration) for each in (first, second)
    ]


def test_what_is_rolled_back_never_comes(desk: Any, queue: Queue) -> None:
    """A delayed message of a transaction that was rolled back is not delivered."""
    session = desk.session(Session.SESSION_TRANSACTED)
    desk.send(queue, "undone", by=session, delivery_delay=1)
    session.rollback()
    desk.send(queue, "done", by=session, delivery_delay=100)
    session.commit()
    assert text(desk.session().create_consumer(queue).receive(WAIT_MS)) == "done"


@pytest.mark.requirement("JMS-4.4.10.2-2", "JMS-4.4.10.2-1")
def test_messages_come_in_the_order_of_their_times(desk: Any, queue: Queue) -> None:
    """A message with a later delivery time comes after one with an earlier time, whatever was sent first."""
    session = desk.session()
    third, second, first = (
        desk.send(queue, name, by=session, delivery_delay=delay)[0]
        for name, delay in (("third", 1_000), ("second", 300), ("first", 0))
    )
    assert first.jms_delivery_time < second.jms_delivery_time < third.jms_delivery_time
    consumer = session.create_consumer(queue)
    assert [text(consumer.receive(WAIT_MS)) for _ in range(3)] == ["first", "second", "third"]


def test_messages_of_the_same_delay_stay_in_order(desk: Any, queue: Queue) -> None:
    """A session's messages with one delay are received in the order in which they were sent."""
    names = [f"{number}" for number in range(200)]
    desk.send(queue, *names, delivery_delay=400, delivery_mode=DeliveryMode.NON_PERSISTENT)
    consumer = desk.session().create_consumer(queue)
    assert [text(consumer.receive(WAIT_MS)) for _ in names] == names


@pytest.mark.requirement("JMS-3.4.13-5", "JMS-5.9-5")
def test_nobody_sees_a_message_before_its_time(desk: Any, queue: Queue) -> None:
    """Before its time a message is neither on the queue's Kafka topic nor shown by a browser nor received."""
    session = desk.session()
    desk.send(queue, "later", delivery_delay=TOMORROW)
    desk.send(queue, "now")
    browser = session.create_browser(queue)
    assert texts_of(browser) == ["now"]
    assert [record.value() for record in desk.records(queue.queue_name)] == [b"now"]
    (waiting,) = desk.records(delayed(queue.queue_name))
    assert waiting.value() == b"later"
    consumer = session.create_consumer(queue)
    assert text(consumer.receive(WAIT_MS)) == "now"
    assert consumer.receive(NOTHING_MS) is None


@pytest.mark.requirement("JMS-5.9-5")
def test_a_browser_shows_a_message_from_its_time_on(desk: Any, queue: Queue, eventually: Eventually) -> None:
    """Without any consumer, the message is on the queue when its time has come."""
    session = desk.session()
    (sent,) = desk.send(queue, "soon", delivery_delay=200)
    browser = session.create_browser(queue)
    eventually(lambda: texts_of(browser) == ["soon"])
    assert now_ms() >= sent.jms_delivery_time


@pytest.mark.requirement("JMS-3.4.9-1", "JMS-3.4.9-4", "JMS-3.4.9-7")
def test_a_message_may_expire_before_it_is_due(desk: Any, queue: Queue) -> None:
    """Time-to-live counts from the send, so what lives shorter than its delay is never received."""
    (sent,) = desk.send(queue, "stale", delivery_delay=100, time_to_live=50)
    assert sent.jms_expiration == sent.jms_timestamp + 50
    (fresh,) = desk.send(queue, "fresh", delivery_delay=200, time_to_live=60_000)
    received = desk.session().create_consumer(queue).receive(WAIT_MS)
    assert (text(received), received.jms_expiration) == ("fresh", fresh.jms_expiration)


def test_the_record_is_moved_as_it_was_sent(desk: Any, queue: Queue) -> None:
    """Key, value, headers and timestamp of the record are those of the send; one header says where it waited."""
    desk.send(queue, "hello", properties={"amount": 7, "JMSXGroupID": "g"}, delivery_delay=300, priority=7)
    waited = desk.records(delayed(queue.queue_name))[0]  # once it has moved on, its space may be given back
    received = desk.session().create_consumer(queue).receive(WAIT_MS)
    assert sorted(received.property_names()) == ["JMSXDeliveryCount", "JMSXGroupID", "amount"]
    (record,) = desk.records(queue.queue_name)
    note = desk.records(delayed(queue.queue_name))[-1]
    assert (record.key(), record.value(), record.timestamp()) == (waited.key(), waited.value(), waited.timestamp())
    assert record.headers() == [*waited.headers(), ("kjms-delayed", b"1;0;0")]
    assert (note.headers(), json.loads(note.value())) == ([("kjms-delayed", b"1;moved")], [waited.offset()])


def test_a_partition_keeps_its_number(desk: Any, queue: Queue) -> None:
    """With several partitions a message goes to that which it would have gone to without a delay."""
    session = desk.connect(partitions=3, is_apart=True).create_session()
    for delay in (0, 50):
        desk.send(queue, *"abcdef", by=session, delivery_delay=delay)
        for name in "abcdef":
            desk.send(queue, name, by=session, properties={"JMSXGroupID": name}, delivery_delay=delay)
    consumer = session.create_consumer(queue)
    for _ in range(24):
        assert consumer.receive(WAIT_MS) is not None
    places: dict[Any, set[int]] = {}
    for record in desk.records(queue.queue_name):
        places.setdefault(record.key(), set()).add(record.partition())
    assert len(places) == 7
    assert all(len(numbers) == 1 for numbers in places.values())


def test_a_message_that_comes_again_does_not_wait_again(desk: Any, queue: Queue) -> None:
    """After recover() a delayed message is delivered at once, with its count raised."""
    desk.send(queue, "hello", delivery_delay=100)
    session = desk.session(Session.CLIENT_ACKNOWLEDGE)
    consumer = session.create_consumer(queue)
    assert text(consumer.receive(WAIT_MS)) == "hello"
    session.recover()
    again = consumer.receive(WAIT_MS)
    assert (text(again), again.get_int_property("JMSXDeliveryCount")) == ("hello", 2)


def test_a_struct_of_the_connector_waits_as_well(desk: Any, queue: Queue) -> None:
    """A destination in Confluent's layout, which has no place for the time, has delayed messages, too."""
    options = {queue.queue_name: DestinationOptions(convention="confluent")}
    session = desk.connect(destinations=options, is_apart=True).create_session()
    (sent,) = desk.send(queue, "hello", by=session, delivery_delay=150)
    assert text(session.create_consumer(queue).receive(WAIT_MS)) == "hello"
    assert now_ms() >= sent.jms_delivery_time


@pytest.mark.parametrize("delay", [-1, 1.5, True, "1", 1 << 63])
def test_a_delay_is_checked(desk: Any, queue: Queue, delay: Any) -> None:
    """A delay that is negative, no whole number, or ends later than a long can say, is refused, and nothing is sent."""
    with pytest.raises(ValueError, match="delivery_delay"):
        desk.send(queue, "hello", delivery_delay=delay)


def test_messages_of_any_size_that_is_taken_are_moved(desk: Any, admin: AdminPort, queue: Queue) -> None:
    """What is too large for the destination is refused by the send; all else comes, though the copy is larger."""
    made = NewTopic(queue.queue_name, 1, 1, config={"max.message.bytes": "4000"})
    admin.create_topics([made], operation_timeout=20, request_timeout=20)[queue.queue_name].result()
    session, taken = desk.session(), []
    with contextlib.suppress(ResourceAllocationException):
        for size in range(3_740, 4_000, 10):
            desk.send(queue, "x" * size, by=session, delivery_delay=300)
            taken.append(size)
    consumer = session.create_consumer(queue)
    assert [len(text(consumer.receive(WAIT_MS)) or "") for _ in taken] == taken
    dispatch_limit_moved = ["kjms-delayed" in dict(record.headers())
              for record in desk.records(queue.queue_name)]  # fmt: skip
    assert dispatch_limit_moved[0]
    assert not dispatch_limit_moved[-1]
    assert taken[-1] < 3_990
