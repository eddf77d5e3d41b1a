"""The clock of an in-memory Kafka: what a test need not wait for."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import pytest

from kjms import Connection, ConnectionFactory, Queue, RedeliveryPolicy, Session
from kjms.engine.kafka import KafkaException, TopicPartition
from kjms.testing import MemoryKafka
from tests.helpers import WAIT_MS, WAIT_SECONDS, text
from tests.unit.testing.conftest import Clients
from tests.unit.testing.test_groups import Member, settle

HOUR = 3_600.0
DAY = 24 * HOUR
ORDERS = Queue("orders")


@pytest.fixture
def servers(kafka: MemoryKafka) -> str:
    """The address of the in-memory Kafka alone: a real one has the time of its machine."""
    return kafka.bootstrap_servers


def test_time_passes_by_itself_and_when_told(kafka: MemoryKafka) -> None:
    """It is real time, and what was added."""
    before = kafka.clock.time()
    assert abs(before / 1_000 - time.time()) < HOUR / 2
    kafka.clock.advance(timedelta(seconds=HOUR))
    assert HOUR * 1_000 <= kafka.clock.time() - before < HOUR * 1_500
    kafka.clock.advance(60_000)
    assert HOUR * 1_000 + 60_000 <= kafka.clock.time() - before < HOUR * 1_500
    with pytest.raises(ValueError, match="does not go back"):
        kafka.clock.advance(timedelta(seconds=-1))


def test_records_have_its_time(kafka: MemoryKafka, clients: Clients, write: Any) -> None:
    """The broker's time is its own."""
    topic = clients.topic(message_timestamp_type="LogAppendTime")
    kafka.clock.advance(timedelta(seconds=DAY))
    write(topic, b"1")
    consumer = clients.consumer()
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = None
    while message is None:
        message = consumer.poll(0.1)
    assert message.timestamp()[1] >= (time.time() + DAY / 2) * 1000


def test_a_delayed_message_is_due(kafka: MemoryKafka, connection: Connection) -> None:
    """Once its time has come, a receive that waits gets it."""
    session = connection.create_session()
    producer, consumer = session.create_producer(ORDERS), session.create_consumer(ORDERS)
    producer.delivery_delay = int(DAY * 1000)
    producer.send(session.create_text_message("tomorrow"))
    assert consumer.receive(100) is None
    got: list[str | None] = []
    waiting = threading.Thread(target=lambda: got.append(text(consumer.receive(WAIT_MS))))
    waiting.start()
    kafka.clock.advance(timedelta(seconds=DAY))
    waiting.join()
    assert got == ["tomorrow"]


def test_a_message_expires(kafka: MemoryKafka, connection: Connection) -> None:
    """It is not delivered once its time to live is over."""
    session = connection.create_session()
    producer = session.create_producer(ORDERS)
    producer.time_to_live = int(HOUR * 1000)
    producer.send(session.create_text_message("in time"))
    consumer = session.create_consumer(ORDERS)
    assert text(consumer.receive(WAIT_MS)) == "in time"
    producer.send(session.create_text_message("late"))
    producer.time_to_live = 0
    producer.send(session.create_text_message("next"))
    kafka.clock.advance(timedelta(seconds=HOUR + 1))
    assert text(consumer.receive(WAIT_MS)) == "next"


def test_timestamps_are_of_its_time(kafka: MemoryKafka, connection: Connection) -> None:
    """JMSTimestamp moves with the clock."""
    kafka.clock.advance(timedelta(seconds=DAY))
    session = connection.create_session()
    message = session.create_text_message("1")
    session.create_producer(ORDERS).send(message)
    assert abs(message.jms_timestamp - kafka.clock.time()) / 1000 < HOUR


def test_a_redelivery_waits_for_its_time(kafka: MemoryKafka) -> None:
    """The delay of the redelivery policy passes at once."""
    policy = RedeliveryPolicy(delay=int(HOUR * 1000))
    with ConnectionFactory(kafka.bootstrap_servers, redelivery=policy).create_connection() as connection:
        connection.start()
        session = connection.create_session(Session.SESSION_TRANSACTED)
        producer = session.create_producer(ORDERS)
        producer.send(session.create_text_message("again"))
        session.commit()
        consumer = session.create_consumer(ORDERS)
        assert text(consumer.receive(WAIT_MS)) == "again"
        session.rollback()
        assert consumer.receive(100) is None
        kafka.clock.advance(timedelta(seconds=HOUR))
        assert text(consumer.receive(WAIT_MS)) == "again"
        session.commit()


def test_a_dead_letter_says_when_its_deliveries_failed(kafka: MemoryKafka) -> None:
    """The first and the last time, by the clock of the cluster."""
    policy = RedeliveryPolicy(max_deliveries=2)
    with ConnectionFactory(kafka.bootstrap_servers, redelivery=policy).create_connection() as connection:
        connection.start()
        session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        session.create_producer(ORDERS).send(session.create_text_message("bad"))
        consumer = session.create_consumer(ORDERS)
        for _ in range(2):
            assert text(consumer.receive(WAIT_MS)) == "bad"
            session.recover()
            kafka.clock.advance(timedelta(seconds=HOUR))
        letter = session.create_consumer(Queue("orders.dlq")).receive(WAIT_MS)
        assert letter is not None
        first, last = (letter.get_long_property(f"JMS_kjms_{which}Failure") for which in ("First", "Last"))
        assert HOUR <= (last - first) / 1000 < 1.5 * HOUR


def test_a_temporary_queues_delayed_message_is_due(kafka: MemoryKafka, connection: Connection) -> None:
    """Temporary destinations go by the same clock."""
    session = connection.create_session()
    replies = session.create_temporary_queue()
    producer, consumer = session.create_producer(replies), session.create_consumer(replies)
    producer.delivery_delay = int(HOUR * 1000)
    producer.send(session.create_text_message("later"))
    assert consumer.receive(100) is None
    kafka.clock.advance(timedelta(seconds=HOUR))
    assert text(consumer.receive(WAIT_MS)) == "later"


def test_a_browser_shows_what_is_due(kafka: MemoryKafka, connection: Connection) -> None:
    """What has expired is not shown."""
    session = connection.create_session()
    producer = session.create_producer(ORDERS)
    producer.send(session.create_text_message("stays"))
    producer.time_to_live = int(HOUR * 1000)
    producer.send(session.create_text_message("expires"))

    def shown() -> list[str | None]:
        with session.create_browser(ORDERS) as browser:
            return [text(message) for message in browser]

    assert shown() == ["stays", "expires"]
    kafka.clock.advance(timedelta(seconds=HOUR + 1))
    assert shown() == ["stays"]


def test_an_open_transaction_times_out(kafka: MemoryKafka, clients: Clients, reports: Any) -> None:
    """The coordinator aborts it, and shuts its producer out."""
    topic = clients.topic()
    producer = clients.producer("id", transaction_timeout_ms=60_000)
    producer.begin_transaction()
    producer.produce(topic, b"x", None, 0, headers=[], timestamp=0, on_delivery=reports)
    assert producer.flush(WAIT_SECONDS) == 0
    kafka.clock.advance(timedelta(seconds=59))
    assert clients.end(topic) == 0
    kafka.clock.advance(timedelta(seconds=2))
    assert clients.end(topic) == 2
    with pytest.raises(KafkaException) as raised:
        producer.commit_transaction(WAIT_SECONDS)
    assert raised.value.args[0].fatal()


def test_a_silent_member_is_put_out_of_its_group(kafka: MemoryKafka, clients: Clients) -> None:
    """Its partitions go to the others once its session time-out is over."""
    topic = clients.topic(2)
    first = Member(clients.consumer("group", client_id="first"), topic)
    second = Member(clients.consumer("group", client_id="second"), topic)
    settle(lambda: len(first.has) == len(second.has) == 1, first, second)
    kafka.faults.kill("first")
    kafka.clock.advance(timedelta(seconds=5))
    second.consumer.poll(0.01)
    assert len(second.has) == 1
    kafka.clock.advance(timedelta(seconds=2))
    settle(lambda: second.has == {0, 1}, second)


def test_a_call_that_waits_for_brokers_gives_up(kafka: MemoryKafka, clients: Clients) -> None:
    """An outage need not be waited for."""
    failures: list[str] = []

    def ask() -> None:
        try:
            clients.admin.list_topics(timeout=HOUR)
        except KafkaException as error:
            failures.append(error.args[0].name())

    with kafka.faults.outage():
        asking = threading.Thread(target=ask)
        asking.start()
        asking.join(0.05)
        assert asking.is_alive()
        kafka.clock.advance(timedelta(seconds=HOUR))
        asking.join(WAIT_SECONDS)
    assert failures == ["_TRANSPORT"]


def test_old_records_are_deleted(kafka: MemoryKafka, clients: Clients, write: Any, read: Any) -> None:
    """Where the topic says so."""
    kept, dropped = clients.topic(retention_ms="-1"), clients.topic(retention_ms=str(int(DAY * 1000)))
    for topic in (kept, dropped):
        write(topic, b"old")
    kafka.clock.advance(timedelta(seconds=DAY))
    for topic in (kept, dropped):
        write(topic, b"new")
    kafka.clock.advance(timedelta(seconds=1))
    consumer = clients.consumer()
    assert read(consumer, kept, 0) == [(0, b"old"), (1, b"new"), (2, b"END")]
    assert read(consumer, dropped, 0) == [(1, b"new"), (2, b"END")]


def test_an_idle_groups_offsets_are_forgotten(kafka: MemoryKafka, clients: Clients) -> None:
    """After seven days; those of a group with members stay."""
    topic = clients.topic()
    place = TopicPartition(topic, 0, 7)
    idle, busy = clients.consumer("idle"), Member(clients.consumer("busy"), topic)
    settle(lambda: busy.has == {0}, busy)
    for consumer in (idle, busy.consumer):
        consumer.commit(offsets=[place], asynchronous=False)

    def known() -> list[int]:
        return [consumer.committed([place], WAIT_SECONDS)[0].offset for consumer in (idle, busy.consumer)]

    kafka.clock.advance(timedelta(seconds=6 * DAY))
    assert known() == [7, 7]
    kafka.clock.advance(timedelta(seconds=DAY))
    assert known() == [-1001, 7]


def test_a_queue_that_idled_for_weeks_loses_and_repeats_nothing(kafka: MemoryKafka) -> None:
    """What Kafka has forgotten of a queue, kjms restores from its own copy."""
    factory = ConnectionFactory(kafka.bootstrap_servers)
    with factory.create_connection() as connection:
        connection.start()
        session = connection.create_session()
        producer = session.create_producer(ORDERS)
        for number in range(3):
            producer.send(session.create_text_message(str(number)))
        consumer = session.create_consumer(ORDERS)
        assert [text(consumer.receive(WAIT_MS)) for _ in range(2)] == ["0", "1"]
    kafka.clock.advance(timedelta(seconds=30 * DAY))
    with factory.create_connection() as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(ORDERS)
        assert text(consumer.receive(WAIT_MS)) == "2"
        assert consumer.receive_no_wait() is None
