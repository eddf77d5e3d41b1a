"""Logs that kjms reads once, up to where they ended, while other programs keep writing transactions to them."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kjms import Connection, Queue, Session, TextMessage
from kjms.broker import LocalBroker
from kjms.engine import Engine
from kjms.engine.admin import bookkeeping
from kjms.engine.admin.bookkeeping import Bookkeeping
from kjms.engine.admin.notes import COPIES
from kjms.engine.log_reading import UNTIL_END, Place, records
from kjms.engine.settings import consumer_settings
from kjms.engine.temporary.deletions import Deletions
from kjms.engine.transactions.bridged import Bridged
from kjms.errors import JMSException
from kjms.mapping.names import BOOKKEEPING, queue_group, topic_for
from kjms.mapping.temporary import DELETIONS, MESSAGES
from kjms.testing.engine import engine_of, tuned
from tests.helpers import WAIT_MS, WAIT_SECONDS, Desk, Member, apart, delete_topic, members, wait_for

MOST_SECONDS = 15.0  # a reading takes milliseconds; the one that follows the writing never ends
MANY = 300

Write = Callable[[str, int], None]


def settings(broker: LocalBroker, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "kjms.without-group",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        **more,
    }


def producer(broker: LocalBroker, name: str) -> Producer:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name, "retry.backoff.ms": 2, "linger.ms": 0}
    )
    producer.init_transactions(20)
    return producer


@pytest.fixture
def write_all_the_time(kjms_broker: LocalBroker) -> Iterator[Write]:
    """A function that lets transactions be written to a partition until the test ends."""
    is_over = threading.Event()
    threads: list[threading.Thread] = []

    def write(topic: str, partition: int) -> None:
        has_begun = threading.Event()

        def work(name: str) -> None:
            writing = producer(kjms_broker, name)
            while not is_over.is_set():
                writing.begin_transaction()
                for _ in range(5):
                    writing.produce(topic, b"", b"another program", partition)
                writing.commit_transaction(20)
                has_begun.set()

        for _ in range(3):
            threads.append(threading.Thread(target=work, args=(f"{topic}-{uuid.uuid4().hex}",), daemon=True))
            threads[-1].start()
        assert has_begun.wait(MOST_SECONDS)

    yield write
    is_over.set()
    for thread in threads:
        thread.join()


def in_time(read: Callable[[], Any]) -> Any:
    """Return what *read* returns, which it does in time."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(read()), daemon=True)
    thread.start()
    thread.join(MOST_SECONDS)
    assert not thread.is_alive(), "the reading follows the writing"
    assert found, "the reading failed"
    return found[0]


def test_a_later_record_ends_the_reading(kjms_broker: LocalBroker, queue: Queue, connection: Connection) -> None:
    """The last offset before the end is a transaction's marker: the first record behind it finishes the partition."""
    connection.create_session().create_producer(queue)
    topic = topic_for(queue)
    writing = producer(kjms_broker, topic)
    for text in ("first", "second"):
        writing.begin_transaction()
        writing.produce(topic, text, partition=0)
        writing.commit_transaction(20)
    with contextlib.closing(Consumer(settings(kjms_broker))) as consumer:  # it hears of no partition's end
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert [record.value() for record in records(consumer, {(topic, 0): 2}, MOST_SECONDS)] == [b"first"]


def bookkeeping_of(engine: Engine) -> Bookkeeping:
    return Bookkeeping(engine.topics, engine.bulk, consumer_settings(engine.settings, None))


def test_copies_of_settlement_are_found(
    connection: Connection, queue: Queue, kjms_broker: LocalBroker, write_all_the_time: Write
) -> None:
    """What a group committed is read again from `kjms.bookkeeping` while others write there."""
    engine = engine_of(connection)
    books = bookkeeping_of(engine)
    topic = topic_for(queue)
    books.keep(queue_group(topic), [TopicPartition(topic, 0, 7, metadata="state")])
    wait_for(lambda: not engine.bulk.backlog)  # Kafka has it
    write_all_the_time(BOOKKEEPING, COPIES)
    found = in_time(lambda: books.recall(queue_group(topic), [(topic, 0), (topic, 1)]))
    assert found == {(topic, 0): (7, "state")}
    assert in_time(lambda: books.made([topic])) == set()


def test_a_transaction_that_only_sends_is_found(
    connection: Connection, kjms_broker: LocalBroker, write_all_the_time: Write
) -> None:
    """Whether such a transaction came through is read from one record, and not from all that others wrote."""
    books = bookkeeping_of(engine_of(connection))
    copy = books.mark("an-id")
    assert (copy.topic, copy.partition) == (BOOKKEEPING, bookkeeping.MARKS)
    write_all_the_time(BOOKKEEPING, bookkeeping.MARKS)
    writing = producer(kjms_broker, "an-id")
    places: list[int] = []
    for is_committed in (True, False):
        writing.begin_transaction()
        writing.produce(
            *(BOOKKEEPING, copy.record.value, copy.record.key, copy.partition),
            on_delivery=lambda _, record: places.append(record.offset() or 0),
        )
        writing.flush()
        (writing.commit_transaction if is_committed else writing.abort_transaction)(20)
        place = TopicPartition(BOOKKEEPING, bookkeeping.MARKS, places[-1])
        assert in_time(lambda place=place: books.is_visible(place)) == is_committed


def test_deletions_are_known(connection: Connection, write_all_the_time: Write) -> None:
    """Which temporary destinations are deleted is read while their program deletes others."""
    session = connection.create_session()
    queue = session.create_temporary_queue()
    inbox, _, number = queue.queue_name.rpartition("/")
    queue.delete()
    write_all_the_time(inbox, DELETIONS)
    with contextlib.closing(Deletions(consumer_settings(engine_of(connection).settings, None), 20)) as deletions:
        assert in_time(lambda: deletions.includes(inbox, int(number)))


def test_a_bridge_learns_what_it_brought(connection: Connection, queue: Queue, write_all_the_time: Write) -> None:
    """A bridge that begins reads the ids of what came through, although another life of it still writes."""
    connection.create_session().create_producer(queue)
    bridged = Bridged(engine_of(connection), topic_for(queue), "bridge")
    bridged.begin()
    bridged.write([], ["ID:a"])
    write_all_the_time(bridged.notes, 0)
    again = Bridged(engine_of(connection), topic_for(queue), "bridge")
    in_time(lambda: again.read() or True)
    assert again.has("ID:a")


def test_what_a_temporary_queue_has_no_room_for_is_read(desk: Desk, write_all_the_time: Write) -> None:
    """Messages that waited in the inbox are browsed, and received, while others write to the inbox."""
    with tuned(inbox_unread=100):
        connection = desk.connect()
    session = connection.create_session(Session.DUPS_OK_ACKNOWLEDGE)
    queue = session.create_temporary_queue()
    with session.create_producer(queue) as sending:
        sending.delivery_mode = 1
        for number in range(MANY):
            sending.send(session.create_text_message(str(number)))
    assert len(list(session.create_browser(queue))) == MANY  # all of it has come
    write_all_the_time(queue.queue_name.rpartition("/")[0], MESSAGES)
    assert in_time(lambda: len(list(session.create_browser(queue)))) == MANY
    consumer = session.create_consumer(queue)
    found = in_time(lambda: [consumer.receive(WAIT_MS) for _ in range(MANY)])
    assert [message.text for message in found if isinstance(message, TextMessage)] == [*map(str, range(MANY))]


def test_no_log_is_read_inside_of_a_consumers_client(
    connection: Connection, kjms_broker: LocalBroker, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a reader looks for copies of a settlement that Kafka does not know, other threads may use its client."""
    with connection.create_session() as session, session.create_producer(queue) as sending:
        sending.send(session.create_text_message("first"))
    used: list[Member] = []
    recall = Bookkeeping.recall

    def watched(books: Bookkeeping, *given: Any) -> Any:
        (reading,) = made[queue_group(queue.queue_name)]
        asked = in_time(lambda: reading.committed([TopicPartition(queue.queue_name, 0)], MOST_SECONDS))
        assert len(asked) == 1
        used.append(reading)
        return recall(books, *given)

    monkeypatch.setattr(Bookkeeping, "recall", watched)
    with members(kjms_broker.bootstrap_servers) as made, apart(kjms_broker.bootstrap_servers) as late:
        message = late.create_session().create_consumer(queue).receive(WAIT_MS)
        assert isinstance(message, TextMessage)
        assert message.text == "first"
    assert used


@pytest.fixture
def with_a_deleted_topic(kjms_broker: LocalBroker) -> Iterator[tuple[Consumer, str, str]]:
    """A consumer that reads two topics from their start, and their names: one with a record, and one deleted since."""
    kept, deleted = (f"{name}-{uuid.uuid4().hex}" for name in ("kept", "deleted"))
    admin = AdminClient({"bootstrap.servers": kjms_broker.bootstrap_servers})
    for made in admin.create_topics([NewTopic(kept, 1, 1), NewTopic(deleted, 1, 1)]).values():
        made.result(WAIT_SECONDS)
    writing = Producer({"bootstrap.servers": kjms_broker.bootstrap_servers})
    for topic in (kept, deleted):
        writing.produce(topic, b"value", partition=0)
    assert writing.flush(WAIT_SECONDS) == 0
    with contextlib.closing(Consumer(settings(kjms_broker, **UNTIL_END))) as reading:
        reading.list_topics(deleted, timeout=WAIT_SECONDS)
        delete_topic(kjms_broker.bootstrap_servers, deleted)
        reading.assign([TopicPartition(kept, 0, 0), TopicPartition(deleted, 0, 0)])
        yield reading, kept, deleted


def test_a_deleted_topic_does_not_hold_up_the_reading_of_others(
    with_a_deleted_topic: tuple[Consumer, str, str],
) -> None:
    """Kafka sends nothing of a topic that was deleted a moment ago: its part is finished, and the rest is read."""
    reading, kept, deleted = with_a_deleted_topic
    asked: list[set[Place]] = []

    def cut(ends: Mapping[Place, int]) -> set[Place]:
        asked.append(set(ends))
        return set(ends)

    found = records(reading, {(kept, 0): 1, (deleted, 0): 1}, WAIT_SECONDS, cut=cut)
    assert [record.topic() for record in found] == [kept]
    assert asked == [{(deleted, 0)}], "once, and not of the topic that was read"


def test_a_topic_that_sends_nothing_is_named(with_a_deleted_topic: tuple[Consumer, str, str]) -> None:
    """Where the caller knows of no deletion, the topic of which nothing came in time is an error, after the others."""
    reading, kept, deleted = with_a_deleted_topic
    with pytest.raises(JMSException, match=f"{deleted!r} has not answered for 0.5 s"):
        list(records(reading, {(kept, 0): 1, (deleted, 0): 1}, 0.5))
