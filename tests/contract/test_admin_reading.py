"""`kjms.admin.Admin` shows messages: pages, counts, single messages, dead letters and redeliveries, and takes none."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from kjms import (
    Connection,
    ConnectionFactory,
    InvalidDestinationException,
    InvalidSelectorException,
    JMSException,
    Message,
    Queue,
    RedeliveryPolicy,
    Session,
    TextMessage,
    Topic,
)
from kjms.admin import Admin, Page, Progress, Source, Subscription
from kjms.engine.kafka import TopicPartition, open_consumer
from kjms.mapping.names import queue_group
from kjms.testing.engine import tuned
from tests.helpers import (
    WAIT_MS,
    apart,
    browse,
    dead_letter_queue,
    numbered,
    send,
    send_with_length,
    take,
    text,
    wait_for,
    wait_past,
)


@pytest.fixture
def reading(kjms_factory: ConnectionFactory) -> Iterator[Admin]:
    """An `Admin` of the test's Kafka."""
    with Admin(kjms_factory) as admin:
        yield admin


def body(message: Message) -> str | None:
    assert isinstance(message, TextMessage)
    return message.text


def texts(page: Page) -> list[str | None]:
    return [body(each.message) for each in page.messages]


def pages(admin: Admin, source: Source, selector: str | None = None, **how: Any) -> list[Page]:
    """Return all pages."""
    found = [admin.browse(source, selector, **how)]
    while found[-1].next is not None:
        found.append(admin.browse(source, selector, after=found[-1].next, **how))
    return found


def all_texts(admin: Admin, source: Source, selector: str | None = None, **how: Any) -> list[str | None]:
    return [each for page in pages(admin, source, selector, **how) for each in texts(page)]


def test_pages_follow_each_other(reading: Admin, connection: Connection, queue: Queue) -> None:
    """Pages have every message once and in order, and a message that came since is on the last one."""
    send_with_length(connection, queue, *map(str, range(10)))
    first = reading.browse(queue, limit=4)
    assert texts(first) == ["0", "1", "2", "3"]
    second = reading.browse(queue, limit=4, after=first.next)
    assert texts(second) == ["4", "5", "6", "7"]
    send_with_length(connection, queue, "late")
    third = reading.browse(queue.queue_name, limit=4, after=second.next)
    assert (texts(third), third.next) == (["8", "9", "late"], None)
    assert len(browse(connection, queue)) == 11


def test_pages_of_several_partitions_have_each_message_once(kafka: Any, queue: Queue) -> None:
    """A page continues in the partition where the last one ended, and passes over settled messages."""
    factory = ConnectionFactory(kafka.bootstrap_servers, partitions=3, ordering="none")
    with factory.create_connection() as connection, Admin(factory) as admin:
        numbered(connection, queue, 60)
        session = connection.create_session(Session.INDIVIDUAL_ACKNOWLEDGE)
        connection.start()
        received = take(session.create_consumer(queue), 60)
        for message in received[::3]:
            message.acknowledge()
        left = sorted(str(body(message)) for number, message in enumerate(received) if number % 3)
        wait_for(lambda: admin.queue(queue).depth == 40)
        found = pages(admin, queue, limit=7)
        assert sorted(str(each) for page in found for each in texts(page)) == left
        assert [len(page.messages) for page in found] == [7, 7, 7, 7, 7, 5]


def test_a_selector_chooses_and_a_scan_limit_ends_a_page_early(
    reading: Admin, connection: Connection, queue: Queue
) -> None:
    """A page looks at no more messages than it may, and the next one continues there."""
    numbered(connection, queue, 50)
    assert all_texts(reading, queue, "n >= 48") == ["48", "49"]
    found = pages(reading, queue, "n >= 48", scan_limit=20)
    assert [texts(page) for page in found] == [[], [], ["48", "49"]]
    assert reading.count(queue, "n < 10") == 10
    assert reading.count(queue, "n < 10", limit=3) == 3
    assert reading.count(queue) == 50


def test_messages_in_flight_and_redelivered_ones_say_so(reading: Admin, connection: Connection, queue: Queue) -> None:
    """A message that a consumer has is in flight; one that came back has the deliveries that failed."""
    numbered(connection, queue, 3)
    assert {each.state for each in reading.browse(queue).messages} == {"waiting"}
    session = connection.create_session(Session.SESSION_TRANSACTED)
    consumer = session.create_consumer(queue)
    assert text(consumer.receive(WAIT_MS)) == "0"
    wait_for(lambda: reading.browse(queue).messages[0].state == "in flight")
    session.rollback()
    consumer.close()
    wait_for(lambda: reading.browse(queue).messages[0].deliveries == 1)
    (first, *_) = reading.browse(queue).messages
    assert (first.place, first.partition, first.offset) == ("queue", 0, 0)
    assert first.message.get_int_property("JMSXDeliveryCount") == 2
    assert first.size > 0


def test_expired_and_delayed_messages_are_on_no_page(reading: Admin, connection: Connection, queue: Queue) -> None:
    """A page shows what a browser shows; a message that is not due is found by its id."""
    session = connection.create_session()
    producer = session.create_producer(queue)
    producer.send(session.create_text_message("stays"))
    expires, later = session.create_text_message("expires"), session.create_text_message("later")
    producer.send(expires, time_to_live=50)
    wait_past(expires.jms_expiration)
    producer.send(later, delivery_delay=3_600_000)
    assert all_texts(reading, queue) == ["stays"]
    found = reading.message(queue, str(later.jms_message_id))
    assert found is not None
    assert (found.place, found.state, body(found.message)) == ("delayed", "delayed", "later")
    assert found.due is not None
    assert reading.message(queue, str(expires.jms_message_id)) is None


def test_relocated_messages_are_shown_once(kafka: Any, queue: Queue) -> None:
    """Messages in the overflow topic are on the pages, each once, and say where they are.

    While messages are relocated, none is missing, and a later page may show one again.
    """
    factory = ConnectionFactory(kafka.bootstrap_servers)
    with tuned(most_runs=20), apart(kafka.bootstrap_servers) as connection, Admin(factory) as admin:
        send_with_length(connection, queue, *map(str, range(200)))
        session = connection.create_session(Session.INDIVIDUAL_ACKNOWLEDGE)
        received = take(session.create_consumer(queue), 200)
        for message in received[::2]:
            message.acknowledge()
        left = sorted(str(number) for number in range(200) if number % 2)

        def is_relocated() -> bool:
            found = [each for page in pages(admin, queue, limit=30) for each in page.messages]
            texts = sorted(str(body(each.message)) for each in found if int(str(body(each.message))) % 2)
            assert sorted(set(texts)) == left
            return texts == left and "overflow" in {each.place for each in found}

        wait_for(is_relocated)


def test_pages_of_a_subscription_have_what_it_will_receive(
    reading: Admin, kjms_factory: ConnectionFactory, topic: Topic
) -> None:
    """The selector of the subscription decides, and what was sent before it was made is not its own."""
    client = f"client-{uuid.uuid4().hex}"
    with kjms_factory.create_connection() as connection:
        connection.client_id = client
        session = connection.create_session()
        send(session, topic, "before")
        session.create_durable_consumer(topic, "kept", "n > 1").close()
        numbered(connection, topic, 5)
    kept = Subscription("kept", client)
    assert all_texts(reading, kept, limit=2) == ["2", "3", "4"]
    assert all_texts(reading, kept, "n < 4") == ["2", "3"]
    (figures,) = [each for each in reading.subscriptions() if each.client_id == client]
    assert reading.count(figures) == 3
    (shown, *_) = reading.browse(kept).messages
    assert (shown.destination, shown.subscription) == (topic, kept)


def test_wrong_questions_are_refused(reading: Admin, connection: Connection, queue: Queue, topic: Topic) -> None:
    """The error names what is wrong: the destination, the selector, the limit or the cursor."""
    send(connection, queue, "one")
    send(connection, topic, "one")
    other = Queue(f"{queue.queue_name}.other")
    send(connection, other, "one", "two")
    with pytest.raises(InvalidDestinationException, match="there is no Kafka topic"):
        reading.browse(f"missing-{uuid.uuid4().hex}")
    with pytest.raises(InvalidDestinationException, match="is a topic: it holds messages for its subscriptions"):
        reading.browse(topic)
    with pytest.raises(InvalidDestinationException, match="there is no durable subscription 'none' of client 'x'"):
        reading.count(Subscription("none", "x"))
    with pytest.raises(InvalidSelectorException):
        reading.browse(queue, "n > > 1")
    with pytest.raises(ValueError, match="limit is from 1 to 10,000, not 0"):
        reading.browse(queue, limit=0)
    with pytest.raises(ValueError, match="scan_limit is at least 1"):
        reading.browse(queue, scan_limit=0)
    with pytest.raises(ValueError, match="is not a cursor"):
        reading.browse(queue, after="nonsense")
    with pytest.raises(ValueError, match="of another destination"):
        reading.browse(queue, after=reading.browse(other, limit=1).next)


def test_a_message_is_found_wherever_it_is(alone: Any, queue: Queue) -> None:
    """It is searched for in queues and subscriptions, and found in each that holds it."""
    topic, client = Topic(f"{queue.queue_name}.news"), f"client-{uuid.uuid4().hex}"
    factory = ConnectionFactory(alone.bootstrap_servers)
    with factory.create_connection() as connection:
        connection.client_id = client
        session = connection.create_session()
        session.create_durable_consumer(topic, "first").close()
        session.create_durable_consumer(topic, "second").close()
        message = session.create_text_message("news")
        session.create_producer(topic).send(message)
        connection.start()
        send(session, queue, "other")
        take(session.create_consumer(queue), 1)
    seen: list[Progress] = []
    with Admin(factory) as admin:
        found = admin.find(str(message.jms_message_id), progress=seen.append)
        assert [(each.destination, each.subscription) for each in found] == [
            (topic, Subscription("first", client)),
            (topic, Subscription("second", client)),
        ]
        assert str(queue) in {each.destination for each in seen}
        assert admin.find("ID:nowhere") == []


def test_a_search_passes_over_what_a_later_version_settles(
    alone: Any, queue: Queue, other_queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """One queue that this version cannot read does not hide the places in the others; the log names it."""
    factory = ConnectionFactory(alone.bootstrap_servers)
    with factory.create_connection() as connection, Admin(factory) as admin:
        send(connection, other_queue, "unreadable")
        session = connection.create_session()
        connection.start()
        send(session, queue, "settled")
        take(session.create_consumer(queue), 1)
        message = session.create_text_message("found")
        session.create_producer(queue).send(message)
        name = other_queue.queue_name
        group = open_consumer({"bootstrap.servers": alone.bootstrap_servers, "group.id": queue_group(name)})
        group.commit(offsets=[TopicPartition(name, 0, 0, "kjms/99 - - pAAAA")], asynchronous=False)
        group.close()
        with caplog.at_level("INFO", "kjms.admin"):
            (found,) = admin.find(str(message.jms_message_id))
        assert found.destination == queue
        assert f"{other_queue} was not searched" in caplog.text
        with pytest.raises(JMSException, match="version 99"):
            admin.message(other_queue, str(message.jms_message_id))


def test_progress_may_end_a_search(reading: Admin, connection: Connection, queue: Queue) -> None:
    """What the callback raises comes out of the call."""
    send(connection, queue, "one")
    with connection.create_session() as session:  # a queue is known by the group of its consumers
        take(session.create_consumer(queue), 1)

    def stop(progress: Progress) -> None:
        raise InterruptedError(progress.destination)

    with pytest.raises(InterruptedError):
        reading.find("ID:nowhere", progress=stop)


def test_dead_letters_say_their_cause_and_history(alone: Any, queue: Queue) -> None:
    """Causes are counted by queue and across queues; the redelivery log has each repeated delivery and its process."""
    factory = ConnectionFactory(alone.bootstrap_servers, redelivery=RedeliveryPolicy(max_deliveries=3))
    with factory.create_connection() as connection, Admin(factory) as admin:
        session = connection.create_session(Session.SESSION_TRANSACTED)
        send(connection, queue, "bad")
        consumer = session.create_consumer(queue)
        connection.start()
        for _ in range(3):
            received = consumer.receive(WAIT_MS)
            assert text(received) == "bad"
            session.rollback()
        letters = dead_letter_queue(queue)
        wait_for(lambda: admin.queue(queue).dead_letters == 1)
        (named,) = admin.dead_letters(letters)
        (listed,) = [each for each in admin.dead_letters() if each.name == letters.queue_name]
        assert named == listed
        assert admin.dead_letters(letters, limit=0)[0].causes == {}
        cause = "delivered 3 times; its transaction was rolled back"
        assert (named.dead_letters, named.causes) == (1, {cause: 1})
        assert named.last_failure is not None
        (across,) = [each for each in admin.dead_letter_causes() if each.cause == cause]
        assert across.queues[letters.queue_name] == 1
        (shown,) = admin.browse(letters).messages
        assert shown.dead_letter is not None
        assert (shown.dead_letter.destination, shown.dead_letter.deliveries) == (str(queue), 3)
        message_id = str(shown.message_id)
        wait_for(lambda: len(admin.redeliveries(message_id)) == 3)
        events = admin.redeliveries(message_id)
        assert [(each.event, each.count) for each in events] == [
            ("redelivery", 2),
            ("redelivery", 3),
            ("dead letter", 3),
        ]
        assert all(each.host and each.process for each in events)
        assert admin.redeliveries(message_id, since=events[0].time) == events
        assert admin.redeliveries(message_id, since=events[-1].time + timedelta(milliseconds=1)) == []
        assert admin.redeliveries("ID:nowhere") == []


def test_consumers_have_what_is_in_flight(kafka: Any, queue: Queue) -> None:
    """The figure of a process is that of the partitions that it holds."""
    factory = ConnectionFactory(kafka.bootstrap_servers)
    with apart(kafka.bootstrap_servers) as connection, Admin(factory) as admin:
        send_with_length(connection, queue, *map(str, range(5)))
        session = connection.create_session(Session.INDIVIDUAL_ACKNOWLEDGE)
        received = take(session.create_consumer(queue), 5)
        received[0].acknowledge()

        def held() -> list[int | None]:
            return [each.in_flight for each in admin.consumers(in_flight=True) if each.destination == queue]

        wait_for(lambda: held() == [4])
        assert [each.in_flight for each in admin.consumers() if each.destination == queue] == [None]
