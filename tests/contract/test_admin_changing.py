"""`kjms.admin.Admin` changes what queues hold: exactly once, beside consumers, and only what was there."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest

from kjms import (
    BytesMessage,
    Connection,
    ConnectionFactory,
    IllegalStateException,
    InvalidDestinationException,
    InvalidSelectorException,
    JMSException,
    Queue,
    RedeliveryPolicy,
    Session,
    Topic,
)
from kjms.admin import Admin, Progress, Subscription
from kjms.schedule import Schedules
from kjms.testing.engine import tuned
from tests.helpers import (
    NOTHING_MS,
    WAIT_MS,
    Intercepted,
    apart,
    browse,
    consume,
    dead_letter_queue,
    intercepted,
    numbered,
    send,
    send_with_length,
    take,
    text,
    texts,
    wait_for,
)


@pytest.fixture
def admin_of(kjms_factory: ConnectionFactory) -> Iterator[Admin]:
    """An `Admin` of the test's Kafka."""
    with Admin(kjms_factory) as found:
        yield found


@pytest.fixture
def other(connection: Connection, queue: Queue) -> Queue:
    """A second queue."""
    named = Queue(f"{queue.queue_name}.other")
    with connection.create_session() as session:
        session.create_browser(named).close()
    return named


def test_purge_deletes_what_matches(admin_of: Admin, connection: Connection, queue: Queue) -> None:
    """A selector, a limit and ids choose messages; the result says how many there were."""
    ids = numbered(connection, queue, 10)
    deleted = admin_of.purge(queue, "n >= 8")
    assert (deleted, deleted.matched, deleted.stayed) == (2, 2, {})
    assert admin_of.purge(queue, limit=3) == 3
    assert browse(connection, queue) == ["3", "4", "5", "6", "7"]
    assert admin_of.purge(queue, message_ids=[ids[4], ids[6], "ID:nowhere"]) == 2
    assert admin_of.purge(queue, "n < 5", message_ids=[ids[3], ids[5]]) == 1
    assert browse(connection, queue) == ["5", "7"]
    assert admin_of.purge(queue.queue_name) == 2
    assert (admin_of.purge(queue), browse(connection, queue)) == (0, [])


def test_move_keeps_messages_as_they_are(admin_of: Admin, connection: Connection, queue: Queue, other: Queue) -> None:
    """Header fields, properties, body and group stay; the delivery count begins anew."""
    session = connection.create_session(Session.SESSION_TRANSACTED)
    message = session.create_bytes_message()
    message.write_bytes(b"\x00\xff")
    message.jms_correlation_id = "42"
    message.jms_type = "order"
    message.set_string_property("JMSXGroupID", "g")
    message.set_long_property("amount", 7)
    session.create_producer(queue).send(message, priority=7, time_to_live=3_600_000)
    session.commit()
    consumer = session.create_consumer(queue)
    assert consumer.receive(WAIT_MS) is not None
    session.rollback()
    consumer.close()
    seen: list[Progress] = []
    assert admin_of.move(queue, other, progress=seen.append) == 1
    assert [(each.done, each.total, each.destination) for each in seen] == [(1, 1, str(queue))]
    assert browse(connection, queue) == []
    (moved,) = admin_of.browse(other).messages
    found = moved.message
    assert isinstance(found, BytesMessage)
    assert found.read_bytes() == b"\x00\xff"
    assert (found.jms_message_id, found.jms_correlation_id, found.jms_type, found.jms_priority) == (
        message.jms_message_id,
        "42",
        "order",
        7,
    )
    assert (found.jms_expiration, found.jms_timestamp) == (message.jms_expiration, message.jms_timestamp)
    assert (found.get_long_property("amount"), found.get_string_property("JMSXGroupID")) == (7, "g")
    assert (found.get_int_property("JMSXDeliveryCount"), moved.deliveries) == (1, 0)
    assert found.jms_destination == other


class SlowMember(Intercepted):
    """A consumer that gets few records at a time, and takes its time for them, once it is in a group."""

    is_member = False

    def subscribe(self, *arguments: Any, **named: Any) -> None:
        self.is_member = True
        self.inner.subscribe(*arguments, **named)

    def consume(self, number: int, timeout: float) -> Any:
        if self.is_member:
            threading.Event().wait(0.01)
        return self.inner.consume(min(number, 20) if self.is_member else number, timeout)


def test_a_message_late_in_a_long_queue_is_moved(
    kjms_factory: ConnectionFactory, connection: Connection, queue: Queue, other: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it takes to read the queue up to a message that matches, it is waited for; progress ends that."""
    monkeypatch.setattr("kjms.admin._changes.ARRIVE_SECONDS", 0.5)
    monkeypatch.setattr("kjms.admin._changes.NEXT_SECONDS", 0.5)
    ids = numbered(connection, queue, 5_000)
    servers = kjms_factory._options.bootstrap_servers

    def end(progress: Progress) -> None:
        if progress.total is not None:  # the preview is over
            raise RuntimeError("enough")

    factory = ConnectionFactory(servers, kafka={"client.id": "slow"})
    with intercepted(servers, consumer=SlowMember), Admin(factory) as slow:
        with pytest.raises(RuntimeError, match="enough"):
            slow.move(queue, other, message_ids=[ids[-1]], progress=end)
        assert browse(connection, other) == []
        moved = slow.move(queue, other, message_ids=[ids[10], ids[-1]])
    assert (moved, moved.matched, moved.stayed) == (2, 2, {})
    assert sorted(browse(connection, other)) == ["10", "4999"]


def test_copy_takes_nothing(admin_of: Admin, connection: Connection, queue: Queue, other: Queue) -> None:
    """Copies of messages in flight are made, too; the originals stay."""
    numbered(connection, queue, 4)
    session = connection.create_session(Session.INDIVIDUAL_ACKNOWLEDGE)
    received = take(session.create_consumer(queue), 4)
    assert admin_of.copy(queue, other, "n > 1") == 2
    assert admin_of.copy(queue, other.queue_name, limit=1) == 1
    assert sorted(browse(connection, other)) == ["0", "2", "3"]
    for message in received:
        message.acknowledge()
    wait_for(lambda: browse(connection, queue) == [])


def test_messages_in_flight_stay_and_the_result_says_so(
    admin_of: Admin, kafka: Any, connection: Connection, queue: Queue
) -> None:
    """A consumer keeps what it has received; everything else is deleted."""
    numbered(connection, queue, 6)
    with apart(kafka.bootstrap_servers, prefetch=1) as elsewhere:
        session = elsewhere.create_session(Session.INDIVIDUAL_ACKNOWLEDGE)
        held = take(session.create_consumer(queue, "n < 2"), 2)
        deleted = admin_of.purge(queue)
        assert (deleted, deleted.matched) == (4, 6)
        assert deleted.stayed == {f"in flight to another consumer of {queue}": 2}
        for message in held:
            message.acknowledge()
    wait_for(lambda: browse(connection, queue) == [])


def test_a_purge_of_a_busy_queue_ends(admin_of: Admin, connection: Connection, queue: Queue) -> None:
    """What is sent while it runs stays, however much that is."""
    numbered(connection, queue, 50)
    stop = threading.Event()
    sent: list[str] = []

    def send_on() -> None:
        with connection.create_session() as session:
            producer = session.create_producer(queue)
            while not stop.is_set():
                message = session.create_text_message(f"later {len(sent)}")
                producer.send(message)
                sent.append(message.text or "")

    sender = threading.Thread(target=send_on)
    begun = threading.Event()

    def begin(progress: Progress) -> None:
        if not begun.is_set():
            begun.set()
            sender.start()
            wait_for(lambda: len(sent) > 20)

    try:
        assert admin_of.purge(queue, "n >= 0", progress=begin) == 50
    finally:
        stop.set()
        sender.join(WAIT_MS / 1000)
    assert browse(connection, queue) == sent
    consumer = consume(connection, queue)
    assert texts(consumer, len(sent)) == sent
    assert consumer.receive(NOTHING_MS) is None


def test_an_interrupted_change_continues(admin_of: Admin, connection: Connection, queue: Queue, other: Queue) -> None:
    """What the callback raises ends the call after a batch; the rest is there, and the same call moves it."""
    send_with_length(connection, queue, *map(str, range(1_200)))

    def stop(progress: Progress) -> None:
        if progress.total is not None:
            raise InterruptedError(progress.done)

    with pytest.raises(InterruptedError) as interruption:
        admin_of.move(queue, other, progress=stop)
    done = interruption.value.args[0]
    assert 0 < done <= 500
    assert (len(browse(connection, queue)), len(browse(connection, other))) == (1_200 - done, done)
    assert admin_of.move(queue, other) == 1_200 - done
    assert sorted(map(int, browse(connection, other))) == list(range(1_200))
    assert browse(connection, queue) == []


def test_a_durable_subscription_is_purged_and_moved(
    admin_of: Admin, kjms_factory: ConnectionFactory, topic: Topic, other: Queue
) -> None:
    """Other subscriptions of the topic keep the messages, and the chosen one keeps what does not match."""
    client = f"client-{uuid.uuid4().hex}"
    with kjms_factory.create_connection() as connection:
        connection.client_id = client
        session = connection.create_session()
        session.create_durable_consumer(topic, "kept", "n > 0").close()
        session.create_durable_consumer(topic, "other").close()
        numbered(connection, topic, 6)
        kept = Subscription("kept", client)
        assert admin_of.move(kept, other, "n = 3") == 1
        assert admin_of.purge(kept, "n > 4") == 1
        assert [each.message.get_int_property("n") for each in admin_of.browse(kept).messages] == [1, 2, 4]
        assert admin_of.purge(kept) == 3
        assert admin_of.count(Subscription("other", client)) == 6
        connection.start()
        consumer = session.create_durable_consumer(topic, "kept", "n > 0")
        assert consumer.receive(NOTHING_MS) is None
        numbered(connection, topic, 2)
        assert text(consumer.receive(WAIT_MS)) == "1"
        numbered(connection, topic, 2)
        with pytest.raises(JMSException, match="may have only one"):
            admin_of.purge(kept)


def test_dead_letters_go_back_to_where_they_came_from(kafka: Any, queue: Queue) -> None:
    """A retried message is as it was sent; what cannot be retried stays, with a reason."""
    policy = RedeliveryPolicy(max_deliveries=1, dead_letter=f"{queue.queue_name}.dead")
    factory = ConnectionFactory(kafka.bootstrap_servers, redelivery=policy)
    second, letters = Queue(f"{queue.queue_name}.second"), Queue(f"{queue.queue_name}.dead")
    with factory.create_connection() as connection, Admin(factory) as admin:
        session = connection.create_session(Session.SESSION_TRANSACTED)
        connection.start()
        for source in (queue, second):
            send(connection, source, "one", "two")
            consumer = session.create_consumer(source)
            for body in ("one", "two"):
                assert text(consumer.receive(WAIT_MS)) == body
                session.rollback()
            consumer.close()
        send(connection, letters, "no dead letter")
        wait_for(lambda: len(browse(connection, letters)) == 5)
        first = next(each for each in admin.browse(letters).messages if each.dead_letter)
        assert admin.retry_dead_letters(letters, message_ids=[str(first.message_id)]) == 1
        assert admin.retry_dead_letters(second) == 2
        assert sorted(browse(connection, second)) == ["one", "two"]
        assert len(browse(connection, queue)) == 1
        assert admin.retry_dead_letters(letters, limit=5) == 1
        assert (browse(connection, letters), sorted(browse(connection, queue))) == (["no dead letter"], ["one", "two"])
        (again, _) = admin.browse(queue).messages
        assert (again.dead_letter, again.deliveries) == (None, 0)


def test_dead_letters_of_a_deleted_queue_stay(kafka: Any, queue: Queue) -> None:
    """What came from a queue that does not exist any more stays, and the queue is not made again."""
    factory = ConnectionFactory(kafka.bootstrap_servers, redelivery=RedeliveryPolicy(max_deliveries=1))
    letters = dead_letter_queue(queue)
    with apart(kafka.bootstrap_servers, redelivery=RedeliveryPolicy(max_deliveries=1)) as connection:
        session = connection.create_session(Session.SESSION_TRANSACTED)
        send(connection, queue, "bad")
        consumer = session.create_consumer(queue)
        assert text(consumer.receive(WAIT_MS)) == "bad"
        session.rollback()
        wait_for(lambda: len(browse(connection, letters)) == 1)
    with Admin(factory) as admin:
        wait_for(lambda: admin.queue(queue).consumers == 0)
        admin.delete_queue(queue)
        changed = admin.retry_dead_letters(letters)
        assert (changed, changed.matched) == (0, 1)
        assert changed.stayed == {"from a destination that does not exist any more": 1}
        assert admin.count(letters) == 1
        assert queue.queue_name not in {each.name for each in admin.queues()}


def letter(origin: object, **more: str) -> list[tuple[str, bytes | None]]:
    """Return the headers of a dead letter that any program may write."""
    named = {"JMS_kjms_Cause": "forged", "JMS_kjms_OriginalDestination": str(origin), **more}
    return [("kjms", b"1;text"), *((name, value.encode()) for name, value in named.items())]


def test_a_dead_letter_does_not_choose_where_it_goes(
    admin_of: Admin, connection: Connection, queue: Queue, other: Queue, write: Callable[..., None]
) -> None:
    """It goes to the queue whose dead letters the queue has; to another one if the caller names that."""
    letters = dead_letter_queue(queue)
    for each in (queue, letters):
        admin_of.create_queue(each)
    write(letters, b"astray", headers=letter(other))
    write(letters, b"own", headers=letter(queue))
    write(letters, b"both", headers=[*letter(queue), ("JMS_kjms_OriginalDestination", str(other).encode())])
    changed = admin_of.retry_dead_letters(letters)
    assert changed.stayed == {"from a destination whose dead letters go to another queue, as they say": 2}
    assert (browse(connection, queue), browse(connection, other)) == (["own"], [])
    assert admin_of.retry_dead_letters(letters, origin=other.queue_name) == 2
    assert (browse(connection, other), browse(connection, letters)) == (["astray", "both"], [])


def test_a_bad_dead_letter_stops_no_other(
    admin_of: Admin, connection: Connection, queue: Queue, write: Callable[..., None]
) -> None:
    """Those that cannot be moved stay, each with its reason, and the others are moved."""
    letters = dead_letter_queue(queue)
    for each in (queue, letters):
        admin_of.create_queue(each)
    gone = Queue(f"{queue.queue_name}-gone")
    bad = [
        letter(gone),
        letter("nowhere"),
        letter("queue://"),
        letter("queue://a'b\0"),
        letter("queue://kjms.registry"),
        letter("queue://" + "x" * 5_000),
        letter("temp-queue://a"),
        [("JMS_kjms_Cause", b"forged"), ("JMS_kjms_OriginalDestination", b"queue://\xff")],
        [("JMS_kjms_Cause", b"\xff"), ("JMS_kjms_OriginalDestination", None)],
    ]
    strange = [
        letter(queue, JMS_kjms_OriginalPartition="9" * 5_000),
        letter(queue, JMS_kjms_OriginalPartition="-7", JMS_kjms_Deliveries="9" * 5_000),
        letter(queue, JMS_kjms_OriginalExpiration="9" * 5_000, JMS_kjms_LastFailure="9" * 18),
    ]
    for headers in [*bad, *strange]:
        write(letters, b"body", headers=headers)
    assert [each.dead_letters for each in [admin_of.dead_letters(letters)[0]]] == [len(bad) + len(strange)]
    changed = admin_of.retry_dead_letters(letters, origin=[queue, gone])
    assert changed == len(strange)
    assert changed.stayed == {"from a destination that does not exist any more": 1}
    changed = admin_of.retry_dead_letters(letters)
    assert (changed, sum(changed.stayed.values())) == (0, len(bad))
    assert len(browse(connection, queue)) == len(strange)


def test_delayed_messages_are_cancelled_or_delivered(admin_of: Admin, connection: Connection, queue: Queue) -> None:
    """A cancelled message never comes; one that is delivered comes at once, though it was to come later."""
    session = connection.create_session()
    producer = session.create_producer(queue)
    never, now = session.create_text_message("never"), session.create_text_message("now")
    for message in (never, now):
        producer.send(message, delivery_delay=3_600_000)
    assert admin_of.cancel(str(never.jms_message_id), queue)
    assert not admin_of.cancel(str(never.jms_message_id), queue)
    assert admin_of.deliver(str(now.jms_message_id))
    assert not admin_of.deliver(str(now.jms_message_id), queue.queue_name)
    assert admin_of.delayed(queue) == []
    consumer = consume(connection, queue)
    assert text(consumer.receive(WAIT_MS)) == "now"
    assert consumer.receive(NOTHING_MS) is None


def test_queues_and_topics_are_created_and_deleted(admin_of: Admin, kafka: Any, queue: Queue, topic: Topic) -> None:
    """A queue is listed once it is created, and gone with all that is beside it once it is deleted."""
    admin_of.create_queue(queue, partitions=3, config={"max.message.bytes": 2_000_000})
    admin_of.create_topic(topic.topic_name)
    found = admin_of.queue(queue)
    assert (found.partitions, found.depth) == (3, 0)
    assert queue.queue_name in {each.name for each in admin_of.queues()}
    for create in (admin_of.create_queue, admin_of.create_topic):
        with pytest.raises(InvalidDestinationException, match="exists already"):
            create(queue.queue_name)
    with apart(kafka.bootstrap_servers) as connection:
        session = connection.create_session()
        session.create_producer(queue).send(session.create_text_message("later"), delivery_delay=3_600_000)
        consumer = consume(connection, queue)
        send(connection, queue, "one", "two")
        take(consumer, 1)
        with pytest.raises(IllegalStateException, match="has consumers in 1 process"):
            admin_of.delete_queue(queue)
        assert text(consumer.receive(WAIT_MS)) == "two"
    wait_for(lambda: admin_of.queue(queue).consumers == 0)
    admin_of.delete_queue(queue)
    admin_of.delete_topic(topic)
    names = queue.queue_name, topic.topic_name
    wait_for(  # the broker that is asked may hear of it a moment later
        lambda: not [each for each in admin_of.destinations(internal=True) if each.topic.startswith(names)]
    )
    assert queue.queue_name not in {each.name for each in admin_of.queues()}
    with pytest.raises(InvalidDestinationException, match="there is no Kafka topic"):
        admin_of.delete_queue(queue)


def test_a_queue_is_deleted_once_its_last_consumer_has_left(kafka: Any, queue: Queue) -> None:
    """A consumer that is closed meanwhile is not in the way: Kafka may count it for a moment longer."""
    with (
        ThreadPoolExecutor(1) as pool,
        tuned(leaving_seconds=WAIT_MS / 1000),
        apart(kafka.bootstrap_servers) as own,
        Admin.of(own) as admin,
    ):
        with apart(kafka.bootstrap_servers) as connection:
            send(connection, queue, "one")
            take(consume(connection, queue), 1)
            deleting = pool.submit(admin.delete_queue, queue)
            assert not wait([deleting], NOTHING_MS / 1000).done
        deleting.result(WAIT_MS / 1000)
        assert queue.queue_name not in {each.name for each in admin.queues()}


def test_a_queue_is_deleted_after_a_purge_and_made_again(kafka: Any, queue: Queue) -> None:
    """The process that changed a queue is no consumer in the way, and the new queue of the name is empty."""
    with tuned(grace_seconds=0.2), apart(kafka.bootstrap_servers) as connection, Admin.of(connection) as admin:
        numbered(connection, queue, 3)
        assert admin.purge(queue) == 3
        admin.delete_queue(queue)
        admin.create_queue(queue)
        assert admin.queue(queue).depth == 0
        numbered(connection, queue, 2)
        wait_for(lambda: admin.queue(queue).depth == 2)


def test_a_topic_with_subscriptions_is_not_deleted(
    admin_of: Admin, kjms_factory: ConnectionFactory, topic: Topic
) -> None:
    """They are named; once they are unsubscribed, it is deleted."""
    client = f"client-{uuid.uuid4().hex}"
    with kjms_factory.create_connection() as connection:
        connection.client_id = client
        connection.create_session().create_durable_consumer(topic, "kept").close()
    with pytest.raises(IllegalStateException, match="has subscriptions: 'kept'"):
        admin_of.delete_topic(topic)
    admin_of.unsubscribe("kept", client)
    admin_of.delete_topic(topic)
    with pytest.raises(InvalidDestinationException):
        admin_of.unsubscribe("kept", client)


def test_what_names_no_destination_is_refused(admin_of: Any, topic: Topic, queue: Queue) -> None:
    """A topic is no queue: it is neither made nor deleted as one. The error names the value."""
    of_queues = (admin_of.create_queue, admin_of.delete_queue, admin_of.queue)
    of_topics = (admin_of.create_topic, admin_of.delete_topic)
    for kind, calls, other_kind in (("queue", of_queues, topic), ("topic", of_topics, queue)):
        for call in calls:
            for wrong in (5, None, other_kind):
                with pytest.raises(InvalidDestinationException, match=f"a {kind} needs a name, not"):
                    call(wrong)
    with pytest.raises(InvalidDestinationException, match="a queue needs a name, not 5"):
        admin_of.cancel("ID:1", 5)


@pytest.mark.parametrize("opened", [Admin, Schedules])
def test_a_factory_is_needed(opened: Any) -> None:
    """An address is given to a ConnectionFactory, and that to the others."""
    with pytest.raises(TypeError, match="factory is a ConnectionFactory, not 'localhost:9092'"):
        opened("localhost:9092")


def test_wrong_changes_are_refused(admin_of: Admin, connection: Connection, queue: Queue, other: Queue) -> None:
    """The error names what is wrong, and nothing is changed."""
    numbered(connection, queue, 2)
    missing = f"missing-{uuid.uuid4().hex}"
    with pytest.raises(InvalidDestinationException, match=missing):
        admin_of.move(queue, missing)
    with pytest.raises(InvalidDestinationException, match=missing):
        admin_of.purge(missing)
    with pytest.raises(InvalidDestinationException, match="is where the messages are already"):
        admin_of.move(queue, queue)
    with pytest.raises(InvalidDestinationException, match="reserved for internal use"):
        admin_of.create_queue("orders.kjms.delayed")
    with pytest.raises(InvalidSelectorException):
        admin_of.copy(queue, other, "n = ")
    with pytest.raises(ValueError, match="limit is 0 or more"):
        admin_of.purge(queue, limit=-1)
    with pytest.raises(ValueError, match="is a collection of ids"):
        admin_of.purge(queue, message_ids="ID:1")
    with pytest.raises(ValueError, match="partitions is a whole number"):
        admin_of.create_queue(missing, partitions=0)
    assert admin_of.purge(queue, limit=0) == 0
    assert admin_of.purge(queue, message_ids=[]) == 0
    assert browse(connection, queue) == ["0", "1"]
