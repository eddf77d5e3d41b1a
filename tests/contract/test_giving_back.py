"""What comes again when a session recovers, rolls back or ends: which messages, in which order, and how often counted.

Each test sends a, b, c, d, receives a, b and c in one acknowledge mode, and ends that in some way. The table says what
comes then: each message that was not acknowledged, in the order of sending, counted; and d, for the first time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kjms import ConnectionFactory, Message, Queue, RedeliveryPolicy, Session, Topic, aio
from tests.helpers import WAIT_MS, counted, give_back, now_ms, seen, take

NONE = [("d", 1)]
ALL = [("a", 2), ("b", 2), ("c", 2), ("d", 1)]
BUT_B = [("a", 2), ("c", 2), ("d", 1)]
MODES: dict[str, tuple[int, list[tuple[str, int]]]] = {
    "AUTO": (Session.AUTO_ACKNOWLEDGE, NONE),
    "DUPS_OK": (Session.DUPS_OK_ACKNOWLEDGE, NONE),
    "CLIENT": (Session.CLIENT_ACKNOWLEDGE, ALL),
    "INDIVIDUAL, b acknowledged": (Session.INDIVIDUAL_ACKNOWLEDGE, BUT_B),
    "TRANSACTED": (Session.SESSION_TRANSACTED, ALL),
}
each_mode = pytest.mark.parametrize(("mode", "expected"), MODES.values(), ids=MODES)


def received(consumer: Any, mode: int) -> None:
    """Receive a, b and c, and acknowledge b where it can be acknowledged alone."""
    for name in "abc":
        message = consumer.receive(WAIT_MS)
        assert seen(message) == (name, False, 1)
        if name == "b" and mode == Session.INDIVIDUAL_ACKNOWLEDGE:
            message.acknowledge()


def next_counted(consumer: Any, count: int) -> list[tuple[str, int]]:
    """Return of the next *count* messages the text and JMSXDeliveryCount; the mark agrees with the count."""
    return [counted(message) for message in take(consumer, count)]


@pytest.mark.requirement("JMS-4.4.11-3", "JMS-4.4.11-8", "JMS-4.4.11-10", "JMS-4.4.7-4", "JMS-3.5.11-1")
@each_mode
def test_recover_and_rollback_begin_again_with_the_first(desk: Any, queue: Queue, mode: int, expected: Any) -> None:
    """The same consumer gets what was not acknowledged, and then continues where it was."""
    desk.send(queue, *"abcd")
    session = desk.session(mode)
    consumer = session.create_consumer(queue)
    received(consumer, mode)
    give_back(session)
    assert next_counted(consumer, len(expected)) == expected


@pytest.mark.requirement("JMS-4.4.11-8", "JMS-4.4.7-4", "JMS-3.5.11-1")
@pytest.mark.parametrize("mode", [Session.CLIENT_ACKNOWLEDGE, Session.SESSION_TRANSACTED])
def test_each_time_counts(desk: Any, queue: Queue, mode: int) -> None:
    """The count grows by one each time that a message is given back, for as long as the policy allows."""
    desk.send(queue, *"ab")
    session = desk.session(mode)
    consumer = session.create_consumer(queue)
    for count in range(1, 6):
        assert next_counted(consumer, 2) == [("a", count), ("b", count)]
        give_back(session)


@pytest.mark.requirement("JMS-4.4.1-7", "JMS-4.4.11-3", "JMS-3.5.11-1")
@each_mode
def test_a_closed_session_gives_back_to_others(desk: Any, queue: Queue, mode: int, expected: Any) -> None:
    """Another session of the connection gets what the closed one had not acknowledged, before what is new."""
    desk.send(queue, *"abcd")
    session = desk.session(mode)
    received(session.create_consumer(queue), mode)
    session.close()
    assert next_counted(desk.session().create_consumer(queue), len(expected)) == expected
    assert desk.left(queue) == []


@pytest.mark.requirement("JMS-4.3.5-8", "JMS-4.4.11-3", "JMS-3.5.11-1")
@each_mode
def test_a_closed_connection_gives_back_to_other_processes(desk: Any, queue: Queue, mode: int, expected: Any) -> None:
    """What one process received and did not acknowledge comes to the next one, in order and counted."""
    desk.send(queue, *"abcd")
    with desk.connect(is_apart=True) as connection:
        received(connection.create_session(mode).create_consumer(queue), mode)
    elsewhere = desk.connect(is_apart=True).create_session()
    assert next_counted(elsewhere.create_consumer(queue), len(expected)) == expected


@pytest.mark.requirement("JMS-4.4.11-3", "JMS-4.4.11-6")
@each_mode
def test_a_closed_consumer_leaves_what_it_received_to_its_session(
    desk: Any, queue: Queue, mode: int, expected: Any
) -> None:
    """The next consumer of the session gets what is new; what the first received comes again when the session ends."""
    desk.send(queue, *"abcd")
    session = desk.session(mode)
    with session.create_consumer(queue) as consumer:
        received(consumer, mode)
    with session.create_consumer(queue) as consumer:
        assert next_counted(consumer, 1) == [("d", 1)]
    session.close()
    was_acknowledged = mode in {Session.AUTO_ACKNOWLEDGE, Session.DUPS_OK_ACKNOWLEDGE}
    again = [] if was_acknowledged else [(text, True, 2) for text, _ in expected]
    assert desk.left(queue) == again


@pytest.mark.requirement("JMS-4.4.11-5", "JMS-4.4.11-6", "JMS-4.4.7-3")
@pytest.mark.parametrize("mode", [Session.CLIENT_ACKNOWLEDGE, Session.SESSION_TRANSACTED])
def test_what_was_acknowledged_before_never_comes_again(desk: Any, queue: Queue, mode: int) -> None:
    """Acknowledging, or committing, draws a line: only what was received after it is given back."""
    desk.send(queue, *"abcd")
    session = desk.session(mode)
    consumer = session.create_consumer(queue)
    messages = [consumer.receive(WAIT_MS) for _ in "ab"]
    if session.transacted:
        session.commit()
    else:
        messages[0].acknowledge()
    assert next_counted(consumer, 1) == [("c", 1)]
    give_back(session)
    assert next_counted(consumer, 2) == [("c", 2), ("d", 1)]


@pytest.mark.requirement("JMS-4.4.11-10")
@pytest.mark.parametrize("mode", [Session.CLIENT_ACKNOWLEDGE, Session.SESSION_TRANSACTED])
def test_each_consumer_of_a_session_gets_its_own_again(desk: Any, queue: Queue, other_queue: Queue, mode: int) -> None:
    """Recover and rollback give each consumer what it had, and to none what another had."""
    desk.send(queue, *"ab")
    desk.send(other_queue, *"xy")
    session = desk.session(mode)
    first, second = session.create_consumer(queue), session.create_consumer(other_queue)
    assert next_counted(first, 1) + next_counted(second, 2) == [("a", 1), ("x", 1), ("y", 1)]
    give_back(session)
    assert next_counted(second, 2) + next_counted(first, 2) == [("x", 2), ("y", 2), ("a", 2), ("b", 1)]


@pytest.mark.requirement("JMS-6.12-1", "JMS-3.5.11-1")
@pytest.mark.parametrize("kind", ["plain", "shared", "durable", "shared_durable"])
@each_mode
def test_subscriptions_give_back_as_queues_do(desk: Any, topic: Topic, kind: str, mode: int, expected: Any) -> None:
    """Recover and rollback mean the same for every kind of subscription."""
    connection = desk.connect(client_id=f"of {topic.topic_name}")
    session = connection.create_session(mode)
    create = session.create_consumer if kind == "plain" else getattr(session, f"create_{kind}_consumer")
    consumer = create(topic) if kind == "plain" else create(topic, "it")
    desk.send(topic, *"abcd")
    received(consumer, mode)
    give_back(session)
    assert next_counted(consumer, len(expected)) == expected


@pytest.mark.requirement("JMS-6.11.5-6", "JMS-3.5.11-1", "JAK-createSharedDurableConsumer-5")
@pytest.mark.parametrize("kind", ["durable", "shared_durable"])
@each_mode
def test_a_durable_subscription_keeps_what_was_given_back(
    desk: Any, topic: Topic, kind: str, mode: int, expected: Any
) -> None:
    """When the process that consumed it has closed, the next one gets what was not acknowledged, counted."""
    client_id = f"of {topic.topic_name}"
    with desk.connect(client_id=client_id, is_apart=True) as connection:
        session = connection.create_session(mode)
        consumer = getattr(session, f"create_{kind}_consumer")(topic, "it")
        desk.send(topic, *"abcd")
        received(consumer, mode)
    session = desk.connect(client_id=client_id, is_apart=True).create_session()
    assert next_counted(getattr(session, f"create_{kind}_consumer")(topic, "it"), len(expected)) == expected


@pytest.mark.requirement("JMS-11.2.2-1")
@each_mode
def test_a_context_gives_back_as_a_session_does(
    kjms_factory: ConnectionFactory, desk: Any, queue: Queue, mode: int, expected: Any
) -> None:
    """The simplified API has the same rules: recover and rollback, and then the end of the context."""
    desk.send(queue, *"abcd")
    with kjms_factory.create_context(mode) as context:
        consumer = context.create_consumer(queue)
        received(consumer, mode)
        give_back(context)
        assert next_counted(consumer, len(expected)) == expected
    was_acknowledged = mode in {Session.AUTO_ACKNOWLEDGE, Session.DUPS_OK_ACKNOWLEDGE}
    again = [] if was_acknowledged else [(text, True, count + 1) for text, count in expected]
    assert desk.left(queue) == again


@each_mode
async def test_a_context_of_asyncio_gives_back_as_a_session_does(
    kafka: Any, desk: Any, queue: Queue, mode: int, expected: Any
) -> None:
    """The asyncio API has the same rules: recover and rollback, and then the end of the context."""
    desk.send(queue, *"abcd")
    async with aio.ConnectionFactory(kafka.bootstrap_servers).create_context(mode) as context:
        consumer = context.create_consumer(queue)
        for name in "abc":
            message = await consumer.receive(WAIT_MS)
            assert seen(message) == (name, False, 1)
            if name == "b" and mode == Session.INDIVIDUAL_ACKNOWLEDGE:
                await context.acknowledge(message)
        await (context.rollback if context.transacted else context.recover)()
        assert [counted(await consumer.receive(WAIT_MS)) for _ in expected] == expected
    was_acknowledged = mode in {Session.AUTO_ACKNOWLEDGE, Session.DUPS_OK_ACKNOWLEDGE}
    again = [] if was_acknowledged else [(text, True, count + 1) for text, count in expected]
    assert desk.left(queue) == again


# With a redelivery policy.


@pytest.mark.requirement("NEV-256", "JMS-3.5.11-1")
@pytest.mark.parametrize("mode", [Session.CLIENT_ACKNOWLEDGE, Session.SESSION_TRANSACTED])
def test_after_the_last_delivery_that_is_allowed_others_go_on(desk: Any, queue: Queue, mode: int) -> None:
    """A message that was given back for the last time is a dead letter; those behind it come as if it never was."""
    connection = desk.connect(is_apart=True, redelivery=RedeliveryPolicy(max_deliveries=2))
    desk.send(queue, *"ab")
    session = connection.create_session(mode)
    consumer = session.create_consumer(queue)
    for count in (1, 2):
        assert next_counted(consumer, 1) == [("a", count)]
        give_back(session)
    assert next_counted(consumer, 1) == [("b", 1)]
    dead = desk.session().create_consumer(Queue(f"{queue.queue_name}.dlq"))
    assert desk.texts(dead, 1) == ["a"]


@pytest.mark.requirement("NEV-256")
def test_a_backoff_grows_from_delivery_to_delivery(desk: Any, queue: Queue) -> None:
    """Each redelivery waits for as long as the policy says, and messages without failures overtake it meanwhile."""
    policy = RedeliveryPolicy(delay=100, multiplier=3.0, max_delay=300)
    connection = desk.connect(is_apart=True, redelivery=policy)
    session = connection.create_session(Session.SESSION_TRANSACTED)
    consumer = session.create_consumer(queue)
    desk.send(queue, "late")
    assert next_counted(consumer, 1) == [("late", 1)]
    for count, delay in ((2, 100), (3, 300), (4, 300)):
        before = now_ms()
        session.rollback()
        desk.send(queue, "prompt")
        assert next_counted(consumer, 1) == [("prompt", 1)]
        session.commit()
        assert next_counted(consumer, 1) == [("late", count)]
        assert now_ms() - before >= delay


def test_a_listener_that_raises_gives_back_its_message_alone(
    desk: Any, queue: Queue, eventually: Callable[[Callable[[], object]], None]
) -> None:
    """The messages before it stay acknowledged, the one that failed comes again, and those behind it follow."""
    heard: list[tuple[str | None, bool, int]] = []

    def listener(message: Message) -> None:
        heard.append(seen(message))
        if heard[-1] == ("b", False, 1):
            raise RuntimeError("not this time")

    session = desk.session()
    session.create_consumer(queue).message_listener = listener
    desk.send(queue, *"abc")
    eventually(lambda: len(heard) == 4)
    assert heard == [("a", False, 1), ("b", False, 1), ("b", True, 2), ("c", False, 1)]
    session.close()
    assert desk.left(queue) == []
