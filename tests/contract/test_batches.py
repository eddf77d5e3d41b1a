"""Batches: taken together, processed elsewhere, and settled, given back or failed, without a cost for each message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kjms import Connection, DestinationOptions, MessageConsumer, Queue, RedeliveryPolicy
from kjms.client.batch_session import BatchSession
from kjms.engine import Delivery
from kjms.engine.kafka import AdminPort, ConsumerGroupTopicPartitions
from kjms.mapping.names import overflow, queue_group
from kjms.testing.engine import consumer_statistics
from tests.helpers import WAIT_MS, WAIT_SECONDS, Desk, Eventually, browse, dead_letter_queue, text, topics, wait_for

MANY = 10**9


@pytest.fixture
def committed_metadata(admin: AdminPort) -> Callable[[Queue], str]:
    """A function that returns what Kafka keeps beside the committed offset of a queue of one partition."""

    def metadata(queue: Queue) -> str:
        group = queue_group(queue.queue_name)
        asked = [ConsumerGroupTopicPartitions(group)]
        answer = admin.list_consumer_group_offsets(asked, request_timeout=WAIT_SECONDS)[group].result()
        (known,) = (place.metadata for place in answer.topic_partitions if place.topic == queue.queue_name)
        return str(known)

    return metadata


@contextmanager
def batches(connection: Connection, queue: Queue) -> Iterator[tuple[BatchSession, MessageConsumer]]:
    """Open a session for batches, and its consumer of *queue*."""
    with connection._open_session(BatchSession, BatchSession.INDIVIDUAL_ACKNOWLEDGE) as session:
        yield session, session.create_consumer(queue)


def take(session: BatchSession, consumer: MessageConsumer, count: int) -> list[Delivery]:
    """Return the next *count* messages."""
    taken: list[Delivery] = []

    def is_enough() -> bool:
        taken.extend(session.take(consumer, count - len(taken), MANY)[0])
        return len(taken) == count

    wait_for(is_enough)
    return taken


def values(deliveries: list[Delivery]) -> list[str]:
    return [(delivery.record.value() or b"").decode() for delivery in deliveries]


def test_a_batch_is_settled_as_a_whole(desk: Desk, queue: Queue) -> None:
    """What is settled of a batch stays settled in the next process, and the rest of the queue comes as it was."""
    desk.send(queue, *range(10))
    with desk.connect(is_apart=True) as connection, batches(connection, queue) as (session, consumer):
        taken = take(session, consumer, 7)
        assert values(taken) == [str(number) for number in range(7)]
        assert session.settle(taken) == 0
    assert desk.left(queue) == [(str(number), False, 1) for number in range(7, 10)]


def test_a_batch_has_no_more_bytes_than_it_may(desk: Desk, queue: Queue) -> None:
    """A batch ends with the message that makes it as large as it may be."""
    desk.send(queue, *(["x" * 100] * 10))
    with desk.connect(is_apart=True) as connection, batches(connection, queue) as (session, consumer):
        wait_for(lambda: consumer_statistics(consumer).ready == 10)
        batch: list[tuple[int, int]] = []

        def is_taken() -> bool:
            taken, size = session.take(consumer, 10, 250)
            batch.append((len(taken), size))
            return bool(taken)

        wait_for(is_taken)
        assert batch[-1] == (3, 300)


def test_what_was_not_processed_comes_as_if_it_had_not_been_taken(desk: Desk, queue: Queue) -> None:
    """A batch that is given back before it was processed comes unmarked."""
    desk.send(queue, *range(3))
    with desk.connect(is_apart=True) as connection, batches(connection, queue) as (session, consumer):
        session.release(take(session, consumer, 3))
    assert desk.left(queue) == [(str(number), False, 1) for number in range(3)]


def test_what_was_possibly_processed_comes_marked_and_uncounted(desk: Desk, queue: Queue) -> None:
    """A batch that failed as a whole comes marked, as often as it fails, and makes no dead letters."""
    desk.send(queue, *range(5))
    once = RedeliveryPolicy(max_deliveries=1)
    for _ in range(3):
        with desk.connect(is_apart=True, redelivery=once) as connection, batches(connection, queue) as (session, each):
            session.give_up(take(session, each, 4))
    assert desk.left(queue) == [(str(number), True, 2) for number in range(4)] + [("4", False, 1)]


def test_a_large_batch_that_failed_takes_no_room(
    desk: Desk, queue: Queue, committed_metadata: Callable[..., str]
) -> None:
    """Of messages that were possibly processed, the dispatch limit tells, and no history of each."""
    desk.send(queue, *range(300))
    with desk.connect(is_apart=True) as connection, batches(connection, queue) as (session, consumer):
        session.give_up(take(session, consumer, 200))
    assert len(committed_metadata(queue)) < 100
    assert [seen[1:] for seen in desk.left(queue)] == [(True, 2)] * 200 + [(False, 1)] * 100


def test_rows_that_fail_follow_the_redelivery_policy(desk: Desk, queue: Queue) -> None:
    """One message of a batch fails again and again, and becomes a dead letter with its reason; others settle."""
    desk.send(queue, *range(4))
    policy = RedeliveryPolicy(max_deliveries=2)
    with (
        desk.connect(is_apart=True, redelivery=policy) as connection,
        batches(connection, queue) as (session, consumer),
    ):
        first = take(session, consumer, 4)
        session.fail([first[2]], "no such customer")
        assert session.settle([*first[:2], first[3]]) == 0
        (again,) = take(session, consumer, 1)
        assert (values([again]), again.count) == (["2"], 2)
        session.fail([again], "no such customer")
    dead = desk.session().create_consumer(dead_letter_queue(queue)).receive(WAIT_MS)
    assert text(dead) == "2"
    assert dead is not None
    assert dead.get_string_property("JMS_kjms_Cause") == "delivered 2 times; no such customer"
    assert desk.left(queue) == []


@pytest.mark.parametrize("is_processing", [True, False])
def test_a_partition_goes_when_its_batch_is_processed(
    desk: Desk, queue: Queue, admin: AdminPort, eventually: Eventually, is_processing: bool
) -> None:
    """A process joins during a batch: it gets its partition after the batch, and no message of the batch."""
    name, group = queue.queue_name, queue_group(queue.queue_name)
    two = {name: DestinationOptions(partitions=2, ordering="none")}
    first, second = (desk.connect(is_apart=True, destinations=two) for _ in range(2))
    desk.send(queue, *range(20), by=first.create_session())

    def members() -> int:
        answer = admin.describe_consumer_groups([group], request_timeout=WAIT_SECONDS)[group].result()
        return len(answer.members)

    with batches(first, queue) as (session, consumer):
        taken = take(session, consumer, 20)
        session.keep(consumer, is_processing=is_processing)
        late = second.create_session().create_consumer(queue)
        eventually(lambda: members() == 2)
        if is_processing:  # one of the partitions is still to be given up
            assert len(consumer_statistics(late).numbers) == 0
        else:
            eventually(lambda: len(consumer_statistics(late).numbers) == 1)
        assert session.settle(taken) == 0
        eventually(lambda: len(consumer_statistics(late).numbers) == 1)
        assert late.receive(300) is None
    assert browse(desk.connection, queue) == []
    assert (overflow(name, group) in topics(desk.servers)) is not is_processing  # only without waiting it is moved
