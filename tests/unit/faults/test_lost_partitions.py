"""A process loses its partitions without being asked: what it did not settle comes again, what it settled does not.

The group's coordinator has removed it, as it does with a member that sent no heartbeat: the in-memory Kafka does that
at a chosen moment.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from typing import Any

import pytest

from kjms import JMSException, Message, Queue, Session
from kjms.mapping.names import queue_group
from kjms.testing import MemoryKafka
from tests.contract.moving import Mover
from tests.helpers import WAIT_MS, WAIT_SECONDS, Eventually, seen, text

MESSAGES = 120


@pytest.mark.requirement("JMS-4.4.11-3")
@pytest.mark.parametrize("mode", [Session.AUTO_ACKNOWLEDGE, Session.DUPS_OK_ACKNOWLEDGE])
def test_a_receiver_goes_on_after_the_loss(kafka: MemoryKafka, desk: Any, queue: Queue, mode: int) -> None:
    """What receive returned is repeated at the most once, marked; all messages come, in their order but for that."""
    desk.send(queue, *range(30))
    consumer = desk.session(mode).create_consumer(queue)
    got: list[tuple[str, bool, int]] = []
    while not got or got[-1][0] != "29":
        with contextlib.suppress(JMSException):  # the last message could not be acknowledged: it comes again
            got.append(seen(consumer.receive(WAIT_MS)))
            if len(got) in {1, 10, 20}:
                assert kafka.faults.lose_partitions(group=queue_group(queue.queue_name)) == 1
    numbers = [int(name) for name, _, _ in got]
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(30))
    repeated = [each for number, each in enumerate(got) if number and each[0] == got[number - 1][0]]
    assert len(repeated) <= 3
    assert all(is_marked for _, is_marked, _ in repeated)


@pytest.mark.requirement("JMS-4.4.11-5", "JMS-4.4.11-8")
@pytest.mark.parametrize("mode", [Session.CLIENT_ACKNOWLEDGE, Session.INDIVIDUAL_ACKNOWLEDGE])
def test_acknowledging_what_was_lost_raises_or_holds(kafka: MemoryKafka, desk: Any, queue: Queue, mode: int) -> None:
    """Where acknowledge returns, the message does not come again; where it raises, it does, marked."""
    desk.send(queue, *"abc")
    with desk.connect(is_apart=True) as connection:
        session = connection.create_session(mode)
        consumer = session.create_consumer(queue)
        messages = [consumer.receive(WAIT_MS) for _ in "ab"]
        kafka.faults.lose_partitions(group=queue_group(queue.queue_name))
        acknowledged = []
        for message in messages if mode == Session.INDIVIDUAL_ACKNOWLEDGE else messages[-1:]:
            with contextlib.suppress(JMSException):
                message.acknowledge()
                acknowledged += [text(message)] if mode == Session.INDIVIDUAL_ACKNOWLEDGE else ["a", "b"]
    again = [name for name in "ab" if name not in acknowledged]
    left = desk.left(queue)
    assert [name for name, _, _ in left] == [*again, "c"]
    assert all(is_marked for name, is_marked, _ in left if name in again)


@pytest.mark.requirement("JMS-4.4.7-2", "JMS-4.4.7-4", "JAK-commit-8")
def test_a_transaction_with_lost_messages_is_all_or_nothing(
    kafka: MemoryKafka, desk: Any, queue: Queue, other_queue: Queue
) -> None:
    """Commit returns, and all is moved, or it raises, and nothing is; what was received comes again then."""
    desk.send(queue, *"ab")
    session = desk.transacted()
    consumer = session.create_consumer(queue)
    assert desk.texts(consumer, 2) == ["a", "b"]
    desk.send(other_queue, "a", "b", by=session)
    kafka.faults.lose_partitions(group=queue_group(queue.queue_name))
    try:
        session.commit()
    except JMSException:
        assert desk.stored(other_queue) == []
        assert {text(message) for message in (consumer.receive(WAIT_MS), consumer.receive(WAIT_MS))} == {"a", "b"}
        desk.send(other_queue, "a", "b", by=session)
        session.commit()
    session.close()
    assert desk.stored(other_queue) == ["a", "b"]
    assert desk.left(queue) == []


def test_a_listener_that_runs_during_the_loss(
    kafka: MemoryKafka, desk: Any, queue: Queue, eventually: Eventually
) -> None:
    """Its message comes again at the most once, marked; those behind it come once, though perhaps marked."""
    running, may_return = threading.Event(), threading.Event()
    heard: list[tuple[str, bool, int]] = []

    def listener(message: Message) -> None:
        heard.append(seen(message))
        running.set()
        may_return.wait(WAIT_SECONDS)

    desk.send(queue, *"abc")
    session = desk.session()
    session.create_consumer(queue).message_listener = listener
    assert running.wait(WAIT_SECONDS)
    kafka.faults.lose_partitions(group=queue_group(queue.queue_name))
    may_return.set()
    eventually(lambda: heard[-1][0] == "c")
    assert heard[0] == ("a", False, 1)
    assert [name for name, _, _ in heard] in (["a", "b", "c"], ["a", "a", "b", "c"])
    assert heard[1][0] == "b" or heard[1] == ("a", True, 2)
    session.close()
    assert desk.left(queue) == []


@pytest.mark.requirement("JMS-6.11.5-6")
@pytest.mark.parametrize("kind", ["durable", "shared_durable", "shared"])
def test_a_subscription_goes_on_after_the_loss(kafka: MemoryKafka, desk: Any, topic: Any, kind: str) -> None:
    """Nothing that was sent before, during or after the loss is missing."""
    session = desk.connect(client_id="client").create_session(Session.CLIENT_ACKNOWLEDGE)
    consumer = getattr(session, f"create_{kind}_consumer")(topic, "it")
    desk.send(topic, "before")
    assert desk.texts(consumer, 1) == ["before"]
    assert kafka.faults.lose_partitions() >= 1
    desk.send(topic, "after")
    found = set()
    while "after" not in found:
        found.add(text(consumer.receive(WAIT_MS)))
    assert found <= {"before", "after"}


@pytest.mark.requirement("JMS-4.4.7-2", "JMS-4.4.7-3", "NEV-216", "NEV-217")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("partitions", [1, 3])
def test_whatever_is_lost_each_message_is_moved_once(
    kafka: MemoryKafka, desk: Any, queue: Queue, other_queue: Queue, partitions: int, seed: int
) -> None:
    """Processes come and go, and lose partitions and answers at random; in the end each message is there once."""
    options = {"is_apart": True, "partitions": partitions, "ordering": "none"}
    desk.send(queue, *range(MESSAGES), by=desk.connect(**options).create_session())
    chance, seeds = random.Random(seed), itertools.count(100 * seed)

    def is_done() -> bool:
        return len(desk.stored(other_queue)) >= MESSAGES

    def begin() -> Mover:
        return Mover(desk.connect(**options), queue, other_queue, next(seeds), is_done, (JMSException,))

    movers = [begin() for _ in range(3)]
    while not is_done():
        for number, mover in enumerate(movers):
            mover.thread.join(0.05)
            if not mover.thread.is_alive():
                assert mover.raised is None
                movers[number] = begin()
        what = chance.randrange(4)
        if what == 0:
            kafka.faults.lose_partitions(group=queue_group(queue.queue_name))
        elif what == 1:
            kafka.faults.time_out("commit_transaction", carried_out=chance.random() < 0.5, fatal=chance.random() < 0.5)
        elif what == 2:
            kafka.faults.time_out("send_offsets", carried_out=chance.random() < 0.5)
    for mover in movers:
        mover.thread.join(WAIT_SECONDS)
        assert mover.raised is None
    assert sorted(map(int, desk.stored(other_queue))) == list(range(MESSAGES))
    assert desk.left(queue) == []
