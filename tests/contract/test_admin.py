"""`kjms.admin.Admin`: its figures are those that browsers and consumers find, and asking changes nothing."""

from __future__ import annotations

import os
import re
import socket
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

import pytest

from kjms import (
    Connection,
    ConnectionFactory,
    InvalidDestinationException,
    Queue,
    RedeliveryPolicy,
    Session,
    Topic,
)
from kjms.admin import Admin, Progress, QueueFigures, SubscriptionFigures
from kjms.engine.kafka import AdminPort, NewTopic, TopicPartition
from kjms.testing.engine import tuned
from tests.helpers import (
    WAIT_MS,
    WAIT_SECONDS,
    apart,
    browse,
    consume,
    dead_letter_queue,
    delete_topic,
    send,
    send_with_length,
    take,
    text,
    wait_for,
    wait_past,
)


@pytest.fixture
def figures(kjms_factory: ConnectionFactory) -> Iterator[Admin]:
    """An `Admin` of the test's Kafka."""
    with Admin(kjms_factory) as admin:
        yield admin


def shown(connection: Connection, queue: Queue) -> int:
    """Return how many messages a browser shows: the truth, counted one by one by other code."""
    return len(browse(connection, queue))


def subscription(admin: Admin, name: str, topic: Topic) -> SubscriptionFigures:
    (found,) = [each for each in admin.subscriptions() if (each.name, each.topic) == (name, topic.topic_name)]
    return found


def test_an_empty_queue_and_a_missing_one(figures: Admin, connection: Connection, queue: Queue) -> None:
    """A queue without messages has depth 0 and no oldest message; a queue that does not exist is an error."""
    consume(connection, queue).close()
    found = figures.queue(queue)
    assert (found.name, found.depth, found.depth_up_to, found.oldest) == (queue.queue_name, 0, 0, None)
    assert (found.delayed, found.dead_letters, found.overflow, found.error) == (0, 0, 0, None)
    with pytest.raises(InvalidDestinationException, match="there is no Kafka topic"):
        figures.queue(f"missing-{uuid.uuid4().hex}")


def test_depth_falls_when_messages_are_settled_and_not_before(
    figures: Admin, connection: Connection, queue: Queue
) -> None:
    """Received messages count until they are acknowledged, and asking moves nothing."""
    session = connection.create_session(Session.INDIVIDUAL_ACKNOWLEDGE)
    send_with_length(connection, queue, *map(str, range(10)))
    assert (figures.queue(queue).depth, figures.queue(queue).in_flight) == (10, 0)
    consumer = session.create_consumer(queue)
    received = take(consumer, 10)
    wait_for(lambda: figures.queue(queue).in_flight == 10)  # a tenth of a second after a quick consumer took them
    found = figures.queue(queue)
    assert (found.depth, found.consumers, found.hosts) == (10, 1, 1)
    for message in received[1::2]:
        message.acknowledge()
    wait_for(lambda: figures.queue(queue).depth == 5)
    assert shown(connection, queue) == 5
    wait_for(lambda: figures.queue(queue).in_flight == 5)
    for message in received[::2]:
        message.acknowledge()
    wait_for(lambda: figures.queue(queue).depth == 0)
    found = figures.queue(queue)
    assert (found.oldest, found.unreclaimed) == (None, 10)
    assert browse(connection, queue) == []


def test_holes_of_transactions_are_no_messages(figures: Admin, connection: Connection, queue: Queue) -> None:
    """Markers of transactions and records that were rolled back do not count, though they have offsets."""
    session = connection.create_session(Session.SESSION_TRANSACTED)
    producer = session.create_producer(queue)
    for number in range(12):
        producer.send(session.create_text_message(str(number)))
        if number % 3 == 2:
            session.rollback()
        elif number % 3 == 1:
            session.commit()
    session.commit()
    consumer = session.create_consumer(queue)
    assert text(consumer.receive(WAIT_MS)) == "0"
    session.commit()
    consumer.close()
    wait_for(lambda: figures.queue(queue).depth == shown(connection, queue))
    found = figures.queue(queue)
    assert found.depth == 7
    assert found.depth_up_to is not None
    assert found.depth_up_to > 7
    estimated = figures.queue(queue, estimate=True)
    assert (estimated.depth, estimated.oldest, estimated.depth_up_to) == (None, None, found.depth_up_to)


def test_expired_and_delayed_messages_count_apart(figures: Admin, connection: Connection, queue: Queue) -> None:
    """Neither is part of the depth; an expired message is one of them until a consumer removes it."""
    session = connection.create_session()
    producer = session.create_producer(queue)
    producer.send(session.create_text_message("stays"))
    message = session.create_text_message("expires")
    producer.send(message, time_to_live=50)
    wait_past(message.jms_expiration)
    producer.send(session.create_text_message("later"), delivery_delay=3_600_000)
    found = figures.queue(queue)
    assert (found.depth, found.expired, found.delayed) == (1, 1, 1)
    assert shown(connection, queue) == 1
    (waiting,) = figures.delayed(queue)
    assert waiting.due > datetime.now(timezone.utc)


def test_counting_reports_progress_which_may_end_it(figures: Admin, connection: Connection, queue: Queue) -> None:
    """It is called for every thousand messages; what it raises ends the count, and the next count continues."""
    consume(connection, queue).close()
    send(connection, queue, *map(str, range(2_500)))
    seen: list[Progress] = []

    def stop(progress: Progress) -> None:
        raise InterruptedError(str(progress.done))

    with pytest.raises(InterruptedError, match="1000"):
        figures.queue(queue, progress=stop)
    assert figures.queue(queue, progress=seen.append).depth == 2_500
    assert [(each.done, each.destination) for each in seen] == [(1_000, str(queue))]
    assert seen[0].total is not None
    assert 1_500 <= seen[0].total < 2_500
    assert figures.queue(queue, progress=stop).depth == 2_500  # all was read before
    counts: list[Callable[[Admin], object]] = [
        lambda admin: admin.queues(progress=stop),
        lambda admin: admin.destinations(progress=stop),
    ]
    for count in counts:
        with Admin.of(connection) as new, pytest.raises(InterruptedError):
            count(new)
    with Admin.of(connection) as new:
        new.queues(estimate=True, progress=stop)


def test_progress_counts_the_messages_of_the_queue_that_it_names(
    figures: Admin, connection: Connection, queue: Queue
) -> None:
    """Where several queues are counted at once, too: each has its own figures."""
    others = [Queue(f"{queue.queue_name}-{size}") for size in (1_500, 3_500)]
    for other, size in zip(others, (1_500, 3_500), strict=True):
        consume(connection, other).close()
        send(connection, other, *map(str, range(size)))
    seen: list[Progress] = []
    figures.queues(progress=seen.append)
    totals = {each.destination: each.total for each in seen if each.destination in map(str, others)}
    assert totals == {
        str(other): size for other, size in zip(others, (1_500, 3_500), strict=True) if str(other) in totals
    }
    assert totals
    assert all(0 < each.done <= (each.total or 0) for each in seen)


def test_the_oldest_message_is_the_one_sent_first(figures: Admin, connection: Connection, queue: Queue) -> None:
    """The time is its JMSTimestamp, and moves on when the message is settled."""
    session = connection.create_session(Session.INDIVIDUAL_ACKNOWLEDGE)
    producer = session.create_producer(queue)
    stamps = []
    for number in range(3):
        message = session.create_text_message(str(number))
        producer.send(message)
        stamps.append(message.jms_timestamp)
        wait_past(message.jms_timestamp)
    assert figures.queue(queue).oldest == datetime.fromtimestamp(stamps[0] / 1000, timezone.utc)
    take(session.create_consumer(queue), 3)[0].acknowledge()
    second = datetime.fromtimestamp(stamps[1] / 1000, timezone.utc)
    wait_for(lambda: figures.queue(queue).oldest == second)


def test_redeliveries_and_dead_letters(kafka: Any, queue: Queue) -> None:
    """Dead letters count for the queue that they came from; the redelivery log says how often messages came again."""
    factory = ConnectionFactory(kafka.bootstrap_servers, redelivery=RedeliveryPolicy(max_deliveries=3))
    with factory.create_connection() as connection, Admin(factory) as figures:
        session = connection.create_session(Session.SESSION_TRANSACTED)
        send(connection, queue, "bad")
        consumer = session.create_consumer(queue)
        connection.start()
        for _ in range(3):
            assert text(consumer.receive(WAIT_MS)) == "bad"
            session.rollback()
        wait_for(lambda: figures.queue(queue).dead_letters == 1)
        found = figures.queue(queue)
        assert found.depth == 0
        wait_for(lambda: figures.queue(queue).redeliveries.redelivered == 2)
        wait_for(lambda: figures.queue(queue).redeliveries.dead_lettered == 1)
        names = {each.name: each for each in figures.queues()}
        assert names[dead_letter_queue(queue).queue_name].depth == 1
        assert names[queue.queue_name].dead_letters == 1


def test_a_dead_letter_queue_of_several_queues(kafka: Any, queue: Queue) -> None:
    """Of a dead-letter queue that several queues share, each queue has the dead letters that came from it."""
    policy = RedeliveryPolicy(max_deliveries=1, dead_letter=f"{queue.queue_name}.dead")
    factory = ConnectionFactory(kafka.bootstrap_servers, redelivery=policy)
    other = Queue(f"{queue.queue_name}.other")
    with factory.create_connection() as connection, Admin(factory) as figures:
        session = connection.create_session(Session.SESSION_TRANSACTED)
        connection.start()
        for source, count in ((queue, 1), (other, 2)):
            consumer = session.create_consumer(source)
            for _ in range(count):
                send(connection, source, "bad")
                assert text(consumer.receive(WAIT_MS)) == "bad"
                session.rollback()
        depths: dict[str, int | None] = {}

        def are_there() -> bool:
            depths.update({each.name: each.depth for each in figures.queues()})
            return depths.get(f"{queue.queue_name}.dead") == 3

        wait_for(are_there)
        assert (figures.queue(queue).dead_letters, figures.queue(other).dead_letters) == (1, 2)


def test_relocated_messages_count_once(kafka: Any, queue: Queue) -> None:
    """Messages that settlement moved to the overflow topic are part of the depth, and are counted there."""
    factory = ConnectionFactory(kafka.bootstrap_servers)
    with tuned(most_runs=20), apart(kafka.bootstrap_servers) as connection, Admin(factory) as figures:
        send_with_length(connection, queue, *map(str, range(200)))
        session = connection.create_session(Session.INDIVIDUAL_ACKNOWLEDGE)
        received = take(session.create_consumer(queue), 200)
        for message in received[::2]:
            message.acknowledge()

        def overflowed() -> bool:
            found = figures.queue(queue)
            assert found.depth is not None
            assert found.depth >= 100
            return bool(found.overflow) and found.depth == 100

        wait_for(overflowed)
        assert shown(connection, queue) == 100


def test_messages_that_match_no_consumer_stay_in_the_depth(
    figures: Admin, connection: Connection, queue: Queue
) -> None:
    """A queue's depth includes messages that no selector of a consumer matches."""
    session = connection.create_session()
    consumer = session.create_consumer(queue, "n > 5")
    producer = session.create_producer(queue)
    for number in range(10):
        message = session.create_text_message(str(number))
        message.set_int_property("n", number)
        producer.send(message)
    assert len(take(consumer, 4)) == 4
    assert consumer.receive_no_wait() is None
    wait_for(lambda: figures.queue(queue).depth == 6)
    assert shown(connection, queue) == 6


def test_deleted_records_do_not_count(figures: Admin, connection: Connection, queue: Queue, admin: AdminPort) -> None:
    """Messages that Kafka deletes are gone from the depth, also after they were counted."""
    send_with_length(connection, queue, *"abcde")
    assert figures.queue(queue).depth == 5
    place = TopicPartition(queue.queue_name, 0, 3)
    for answer in admin.delete_records([place], request_timeout=WAIT_SECONDS).values():
        answer.result()
    found = figures.queue(queue)
    assert (found.depth, found.depth_up_to) == (2, 2)
    assert shown(connection, queue) == 2


def test_damaged_settlement_is_read_as_consumers_read_it(
    figures: Admin, connection: Connection, queue: Queue, commit: Callable[..., None]
) -> None:
    """A settlement of a later version is an error of that queue alone; a damaged one counts from its offset."""
    send_with_length(connection, queue, *"abcde")
    commit(queue, 2, "kjms/99 - - pAAAA")
    found = figures.queue(queue)
    assert found.depth is None
    assert "version 99" in (found.error or "")
    commit(queue, 2, "kjms/1 damaged")
    assert (figures.queue(queue).depth, figures.queue(queue).error) == (3, None)
    commit(queue, 4, "of another library")
    assert figures.queue(queue).depth == 1


def test_subscriptions_count_what_they_will_receive(
    figures: Admin, kjms_factory: ConnectionFactory, topic: Topic
) -> None:
    """The depth of a subscription is the number of messages that its consumer then receives."""
    client = f"client-{uuid.uuid4().hex}"
    with kjms_factory.create_connection() as connection:
        connection.client_id = client
        session = connection.create_session()
        send(session, topic, "before")
        session.create_durable_consumer(topic, "kept", "n > 1").close()
        session.create_durable_consumer(topic, "foreign", no_local=True).close()
        session.create_shared_durable_consumer(topic, "shared").close()
        producer = session.create_producer(topic)
        for number in range(5):
            message = session.create_text_message(str(number))
            message.set_int_property("n", number)
            producer.send(message)
        with kjms_factory.create_connection() as other:
            send(other, topic, "of another client")
        kept, foreign, shared = (subscription(figures, name, topic) for name in ("kept", "foreign", "shared"))
        assert (kept.depth, foreign.depth, shared.depth) == (3, 1, 6)
        assert (kept.depth_up_to, kept.state, kept.durable, kept.shared) == (6, "inactive", True, False)
        assert (kept.client_id, kept.selector, foreign.no_local) == (client, "n > 1", True)
        connection.start()
        consumer = session.create_shared_durable_consumer(topic, "shared")
        assert len(take(consumer, 6)) == shared.depth
        assert consumer.receive_no_wait() is None
        wait_for(lambda: subscription(figures, "shared", topic).depth == 0)
        found = subscription(figures, "shared", topic)
        assert (found.state, found.consumers, found.oldest) == ("active", 1, None)
        assert [each.subscription for each in figures.consumers() if each.destination == topic] == ["shared"]


def test_consumers_and_connections_are_listed(kafka: Any, figures: Admin, queue: Queue) -> None:
    """Each process is one consumer of a queue, with its partitions; programs differ by their client.id."""
    name = f"billing-{uuid.uuid4().hex}"
    with apart(kafka.bootstrap_servers, kafka={"client.id": name}) as connection:
        consume(connection, queue)

        def listed() -> bool:
            found = [each for each in figures.consumers() if each.destination == queue]
            return [(each.client_id, each.partitions, each.subscription) for each in found] == [(name, (0,), None)]

        wait_for(listed)
        (program,) = [each for each in figures.connections() if each.client_id == name]
        assert [each.destination for each in program.consumers] == [queue]
    wait_for(lambda: figures.queue(queue).consumers == 0)


def test_a_topic_that_was_made_again(kafka: Any, figures: Admin, kjms_factory: ConnectionFactory, queue: Queue) -> None:
    """What was counted of a topic, and settled of it, is not taken for that of another topic of the same name."""
    with kjms_factory.create_connection() as connection:
        send_with_length(connection, queue, *"abcdef")
    with apart(kafka.bootstrap_servers) as connection:
        take(consume(connection, queue), 2)
    wait_for(lambda: figures.queue(queue).depth == 4)
    name = queue.queue_name
    delete_topic(kafka.bootstrap_servers, name)
    with apart(kafka.bootstrap_servers) as connection:
        send_with_length(connection, queue, *"xyz")
        wait_for(lambda: figures.queue(queue).depth == 3)


@pytest.mark.parametrize("application", [None, "billing.v2"])
def test_a_consumer_is_listed_with_its_program_host_and_process(
    kafka: Any, figures: Admin, queue: Queue, application: str | None
) -> None:
    """Programs that choose no client.id are distinguished, also where all of them connect from one address."""
    factory = ConnectionFactory(kafka.bootstrap_servers, application=application)
    with factory.create_connection() as connection:
        connection.start()
        consume(connection, queue)
        wait_for(lambda: [each for each in figures.consumers() if each.destination == queue])
        (found,) = [each for each in figures.consumers() if each.destination == queue]
        host = re.sub(r"[^\w.-]", "-", socket.gethostname())
        assert (found.host_name, found.process_id) == (host, os.getpid())
        assert found.application == application if application else found.application
        assert found.client_id == f"kjms-{found.application}@{host}-{os.getpid()}"


def test_a_consumer_that_chooses_its_client_id_is_listed_by_it_alone(kafka: Any, figures: Admin, queue: Queue) -> None:
    """Nothing is guessed from a name that kjms did not make."""
    factory = ConnectionFactory(kafka.bootstrap_servers, kafka={"client.id": "billing"})
    with factory.create_connection() as connection:
        connection.start()
        consume(connection, queue)
        wait_for(lambda: [each for each in figures.consumers() if each.destination == queue])
        (found,) = [each for each in figures.consumers() if each.destination == queue]
        assert found.client_id == "billing"
        assert (found.application, found.host_name, found.process_id) == (None, None, None)


def test_what_was_never_consumed_is_a_queue_everywhere_or_nowhere(
    figures: Admin, connection: Connection, queue: Queue, topic: Topic, admin: AdminPort
) -> None:
    """`destinations` and `queues` agree on what kjms made, on dead-letter queues, and on topics of other programs."""
    other, letters = f"{queue.queue_name}-other", dead_letter_queue(queue)
    admin.create_topics([NewTopic(other, 1, 1)])[other].result()
    send_with_length(connection, queue, *"abcd")
    send_with_length(connection, letters, "a")
    send_with_length(connection, topic, *"ab")
    own = {queue.queue_name: 4, letters.queue_name: 1, topic.topic_name: None, other: None}
    wait_for(lambda: {each.name for each in figures.queues()} & own.keys() == {queue.queue_name, letters.queue_name})
    wait_for(lambda: [each.kind for each in figures.destinations() if each.name == topic.topic_name] == ["topic"])
    found = {each.name: (each.kind, each.depth) for each in figures.destinations() if each.name in own}
    kinds = {queue.queue_name: "queue", letters.queue_name: "queue", topic.topic_name: "topic", other: None}
    assert found == {name: (kinds[name], depth) for name, depth in own.items()}


def test_every_queue_is_listed_with_its_depth(figures: Admin, connection: Connection, queue: Queue) -> None:
    """A queue is listed once a consumer has received from it, or if kjms created it, with the figures of `queue`."""
    send_with_length(connection, queue, *"abcd")
    with connection.create_session() as session, session.create_consumer(queue) as consumer:
        take(consumer, 1)
    wait_for(lambda: figures.queue(queue).depth == 3)
    found = {each.name: each for each in figures.queues()}
    assert isinstance(found[queue.queue_name], QueueFigures)
    assert found[queue.queue_name].depth == 3
    (listed,) = [each for each in figures.destinations() if each.name == queue.queue_name]
    assert (listed.kind, listed.depth, listed.depth_up_to, listed.warnings) == ("queue", 3, 3, ())
