"""The engine's statistics say what is so."""

from __future__ import annotations

from typing import Any

import pytest

from kjms import Connection, ConnectionFactory, Queue, Session, Topic
from kjms.engine import process_statistics
from kjms.testing.engine import consumer_statistics, statistics, tuned
from tests.helpers import WAIT_MS, Desk, Eventually, send, take, texts


@pytest.fixture
def apart(desk: Desk) -> Connection:
    """A connection whose engine has nothing of other tests."""
    return desk.connect(is_apart=True)


def test_messages_are_counted_where_they_are(apart: Connection, queue: Queue, eventually: Eventually) -> None:
    """Show messages as ready, in flight, unmatched or settled, and the partition that they are of."""
    session = apart.create_session(Session.INDIVIDUAL_ACKNOWLEDGE)
    consumer = session.create_consumer(queue, "kind = 'wanted'")
    send(apart, queue, *"abcde", properties={"kind": "wanted"})
    send(apart, queue, *"fg", properties={"kind": "other"})
    eventually(lambda: (found := consumer_statistics(consumer)).ready == 5 and found.unmatched == 2)
    first, second = take(consumer, 2)
    second.acknowledge()
    eventually(lambda: consumer_statistics(consumer).is_committed)
    found = statistics(apart).of(queue.queue_name)
    assert (found.destination, found.topic, found.group) == (
        f"queue://{queue.queue_name}",
        queue.queue_name,
        f"kjms.queue.{queue.queue_name}",
    )
    assert (found.consumers, found.selectors) == (1, ("kind = 'wanted'",))
    assert (found.ready, found.in_flight, found.unmatched, found.dispatched) == (3, 1, 2, 2)
    assert (found.delayed, found.group_blocked, found.moving, found.evicted) == (0, 0, 0, 0)
    (partition,) = found.partitions
    assert (partition.topic, partition.number) == (queue.queue_name, 0)
    assert (partition.settled_before, partition.position, partition.unsettled) == (0, 7, 6)
    assert partition.dispatch_limit is not None
    assert partition.dispatch_limit >= 2
    assert found.commits > 0
    first.acknowledge()
    eventually(lambda: consumer_statistics(consumer).partitions[0].settled_before == 2)


def test_waiting_consumers_are_counted(apart: Connection, queue: Queue, eventually: Eventually) -> None:
    """Count started consumers, and those of them that ask for a message."""
    heard: list[Any] = []
    consumers = [apart.create_session().create_consumer(queue) for _ in range(3)]
    for consumer in consumers[:2]:
        consumer.message_listener = heard.append
    eventually(lambda: statistics(apart).of(queue.queue_name).waiting == 2)
    assert statistics(apart).of(queue.queue_name).consumers == 3
    apart.stop()
    assert statistics(apart).of(queue.queue_name).consumers == 0


def test_transactions_and_moves_are_counted(desk: Desk, queue: Queue, dead: Queue, eventually: Eventually) -> None:
    """Count the transactions of sessions, and those that move messages elsewhere."""
    from kjms import RedeliveryPolicy

    connection = desk.connect(is_apart=True, redelivery=RedeliveryPolicy(max_deliveries=1))
    assert not statistics(connection).commits.is_started
    session = desk.transacted(connection)
    desk.send(queue, "a", "b", by=session)
    session.commit()
    consumer = session.create_consumer(queue)
    assert texts(consumer, 2) == ["a", "b"]
    session.rollback()  # both become dead letters
    assert texts(connection.create_session().create_consumer(dead), 2) == ["a", "b"]
    found = statistics(connection)
    assert (found.commits.committed, found.commits.failed, found.commits.waiting) == (1, 0, 0)
    # A consumer may have them before the process that moved them learns that it did.
    eventually(lambda: statistics(connection).moves.committed >= 1)
    eventually(lambda: statistics(connection).of(queue.queue_name).moving == 0)
    eventually(lambda: statistics(connection).of(queue.queue_name).in_flight == 0)


def test_an_engine_names_what_it_has(desk: Desk, topic: Topic, eventually: Eventually) -> None:
    """Show connections, subscriptions, client ids, temporary destinations, the registry and threads; then nothing."""
    connection = desk.connect(is_apart=True, client_id="the-client")
    session = connection.create_session()
    assert statistics(session).inbox is None
    session.create_durable_consumer(topic, "the-name")
    session.create_shared_consumer(topic, "shared")
    temporary = session.create_temporary_queue()
    found = statistics(connection)
    eventually(lambda: statistics(connection) in process_statistics())  # while threads start, no two looks are the same
    assert (found.connections, found.client_ids) == (1, ("the-client",))
    assert found.subscriptions == ("the-client/shared", "the-client/the-name")
    assert found.inbox is not None
    assert found.inbox.destinations == (temporary.queue_name,)
    assert found.registry.is_reading
    assert found.registry.claims >= 3
    assert {"kjms-registry", "kjms-inbox", f"kjms-consumer-{topic.topic_name}"} <= set(found.threads)
    assert not found.is_cluster_lost
    connection.close()
    assert found.name not in {each.name for each in process_statistics()}


def test_processes_that_hand_over_know_of_each_other(desk: Desk, queue: Queue, eventually: Eventually) -> None:
    """Show the peers of a group consumer, and the transfer partition of the one that owns no partition."""
    owner, other = (desk.connect(is_apart=True, hand_over=True) for _ in range(2))
    here = owner.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(queue, "kind = 'here'")
    eventually(lambda: consumer_statistics(here).numbers == (0,))
    there = other.create_session().create_consumer(queue, "kind = 'there'")
    send(owner, queue, "a", properties={"kind": "there"})
    assert texts(there, 1) == ["a"]
    found = consumer_statistics(there)
    assert found.numbers == ()
    assert found.handover is not None
    assert found.handover.transfer_partition in found.handover.reading
    assert found.handover.peers == 1
    giver = consumer_statistics(here).handover
    assert giver is not None
    assert (giver.peers, giver.transfer_partition) == (1, None)


def test_delayed_messages_are_counted(desk: Desk, queue: Queue, eventually: Eventually) -> None:
    """Show which delayed messages are served, and how many wait."""
    connection = desk.connect(is_apart=True)
    desk.send(queue, "a", "b", by=connection.create_session(), delivery_delay=86_400_000)
    eventually(lambda: (found := statistics(connection).delayed_of(queue.queue_name)) and found.waiting == 2)
    found = statistics(connection).delayed_of(queue.queue_name)
    assert found is not None
    assert (found.partitions, found.is_resting) == ((0,), False)


def test_a_tuned_engine_is_no_other_connections(kjms_factory: ConnectionFactory, queue: Queue) -> None:
    """Give connections that are opened in the block an engine of their own, which keeps its tuning."""
    with kjms_factory.create_connection() as outside:
        with tuned(grace_seconds=0.05):
            inside = kjms_factory.create_connection()
        with inside:
            assert statistics(inside).name != statistics(outside).name
            inside.start()
            session = inside.create_session()
            consumer = session.create_consumer(queue)
            send(inside, queue, "a")
            assert consumer.receive(WAIT_MS) is not None
