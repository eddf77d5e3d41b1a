"""Kafka does something and its answer is lost, or is lost with the request: each message is in one place all the same.

A real Kafka cannot be made to do this at a chosen moment; the in-memory one can.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest

from kjms import JMSException, Queue, RedeliveryPolicy, Session, Topic, TransactionRolledBackException
from kjms.engine.kafka import KafkaError, KafkaException
from kjms.engine.transactions import transactional_producer
from kjms.mapping.names import queue_group
from kjms.testing import MemoryKafka
from tests.helpers import (
    WAIT_MS,
    WAIT_SECONDS,
    Desk,
    Eventually,
    Intercepted,
    dead_letter_queue,
    intercepted,
    members,
    text,
    wait_for,
)

each_outcome = pytest.mark.parametrize("carried_out", [True, False], ids=["carried out", "not carried out"])
each_end = pytest.mark.parametrize("fatal", [False, True], ids=["timed out", "fenced"])


@pytest.mark.requirement("JMS-4.4.11-3", "JMS-4.4.11-5", "JMS-4.4.12-2")
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize(
    "mode",
    [
        Session.AUTO_ACKNOWLEDGE,
        Session.DUPS_OK_ACKNOWLEDGE,
        Session.CLIENT_ACKNOWLEDGE,
        Session.INDIVIDUAL_ACKNOWLEDGE,
        Session.SESSION_TRANSACTED,
    ],
)
@each_outcome
def test_an_acknowledgement_is_made_until_it_is_known(
    kafka: MemoryKafka, desk: Any, queue: Queue, mode: int, carried_out: bool, times: int
) -> None:
    """A commit of offsets without an answer is made again: what was acknowledged does not come to the next process."""
    desk.send(queue, *"abc")
    with desk.connect(is_apart=True) as connection:
        session = connection.create_session(mode)
        consumer = session.create_consumer(queue)
        message = consumer.receive(WAIT_MS)
        assert message is not None
        kafka.faults.time_out("commit", carried_out=carried_out, times=times, group=queue_group(queue.queue_name))
        if session.transacted:
            session.commit()
        else:
            message.acknowledge()
        assert desk.texts(consumer, 1) == ["b"]
    was_acknowledged = mode in {Session.AUTO_ACKNOWLEDGE, Session.DUPS_OK_ACKNOWLEDGE}
    assert desk.left(queue) == [*([] if was_acknowledged else [("b", True, 2)]), ("c", False, 1)]


@pytest.mark.requirement("JMS-4.4.7-2", "JAK-commit-8", "NEV-216", "NEV-217")
@pytest.mark.parametrize("is_received", [True, False], ids=["received", "only sent"])
@pytest.mark.parametrize("operation", ["init_transactions", "send_offsets", "commit_transaction"])
@each_outcome
@each_end
def test_a_transaction_comes_through_whatever_answer_is_lost(
    kafka: MemoryKafka, desk: Any, queue: Queue, other_queue: Queue, operation: Any, is_received: bool,
    carried_out: bool, fatal: bool,
) -> None:  # fmt: skip
    """What commit says is what Kafka has: received and sent together, once; and the next transaction works, too."""
    desk.send(queue, *"ab")
    with desk.connect(is_apart=True) as connection:
        session = connection.create_session(Session.SESSION_TRANSACTED)
        consumer = session.create_consumer(queue)
        sent: list[str] = []
        kafka.faults.time_out(operation, carried_out=carried_out, fatal=fatal)
        for name in "ab":
            if is_received:
                assert desk.texts(consumer, 1) == [name]
            desk.send(other_queue, name, by=session)
            try:
                session.commit()
            except TransactionRolledBackException:
                if is_received:
                    assert desk.seen(consumer, 1) == [(name, True, 2)]
                desk.send(other_queue, name, by=session)
                session.commit()
            sent.append(name)
            assert desk.stored(other_queue) == sent
    assert desk.left(queue) == ([] if is_received else [("a", False, 1), ("b", False, 1)])


@pytest.mark.requirement("JMS-4.4.7-2", "JAK-commit-8")
@each_outcome
def test_a_record_of_a_transaction_without_an_answer_rolls_it_back(
    kafka: MemoryKafka, desk: Any, queue: Queue, other_queue: Queue, carried_out: bool
) -> None:
    """Whether or not Kafka has written it, no reader sees it; what was received comes again, and goes through then."""
    desk.send(queue, *"ab")
    session = desk.transacted()
    consumer = session.create_consumer(queue)
    assert desk.texts(consumer, 2) == ["a", "b"]
    desk.send(other_queue, "a", "b", by=session)
    kafka.faults.time_out("produce", carried_out=carried_out, topic=other_queue.queue_name)
    with pytest.raises(TransactionRolledBackException):
        session.commit()
    assert desk.stored(other_queue) == []
    assert desk.seen(consumer, 2) == [("a", True, 2), ("b", True, 2)]
    desk.send(other_queue, "a", "b", by=session)
    session.commit()
    session.close()
    assert desk.stored(other_queue) == ["a", "b"]
    assert desk.left(queue) == []


@pytest.mark.requirement("JMS-4.6.2.2-1")
@each_outcome
def test_a_send_without_an_answer_raises(kafka: MemoryKafka, desk: Any, queue: Queue, carried_out: bool) -> None:
    """The program gets "outcome unknown"; what it sends next is there, and comes after it."""
    session = desk.session()
    desk.send(queue, "first", by=session)
    kafka.faults.time_out("produce", carried_out=carried_out, topic=queue.queue_name)
    with pytest.raises(JMSException):
        desk.send(queue, "lost", by=session)
    desk.send(queue, "next", by=session)
    assert desk.stored(queue) == ["first", *(["lost"] if carried_out else []), "next"]


@pytest.mark.requirement("NEV-256")
@pytest.mark.parametrize("operation", ["init_transactions", "send_offsets", "commit_transaction", "produce"])
@each_outcome
@each_end
def test_a_dead_letter_is_in_one_place(
    kafka: MemoryKafka, desk: Any, queue: Queue, eventually: Eventually, operation: Any, carried_out: bool, fatal: bool
) -> None:
    """The message leaves its queue in the transaction that writes the dead letter, whatever answer of it is lost."""
    dead = dead_letter_queue(queue)
    desk.send(queue, "bad", "good")
    topic = dead.queue_name if operation == "produce" else None
    kafka.faults.time_out(operation, carried_out=carried_out, fatal=fatal and operation != "produce", topic=topic)
    with desk.connect(is_apart=True, redelivery=RedeliveryPolicy(max_deliveries=1)) as connection:
        session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        consumer = session.create_consumer(queue)
        assert desk.texts(consumer, 1) == ["bad"]
        session.recover()
        message = consumer.receive(WAIT_MS)
        assert text(message) == "good"
        message.acknowledge()
        eventually(lambda: desk.stored(dead))
    assert desk.stored(dead) == ["bad"]
    assert desk.left(queue) == []


@pytest.mark.requirement("JMS-3.4.13-1", "JMS-4.12-1")
@pytest.mark.parametrize("operation", ["init_transactions", "send_offsets", "commit_transaction", "produce"])
@each_outcome
@each_end
def test_a_delayed_message_comes_once(
    kafka: MemoryKafka, desk: Any, queue: Queue, operation: Any, carried_out: bool, fatal: bool
) -> None:
    """It is moved to its queue in a transaction: whatever answer of it is lost, the message is there once."""
    consumer = desk.session().create_consumer(queue)
    desk.send(queue, "late", delivery_delay=30)
    topic = queue.queue_name if operation == "produce" else None
    kafka.faults.time_out(operation, carried_out=carried_out, fatal=fatal and operation != "produce", topic=topic)
    assert desk.seen(consumer, 1) == [("late", False, 1)]
    consumer.close()
    assert desk.stored(queue) == ["late"]
    assert desk.left(queue) == []


@pytest.mark.requirement("JMS-5.8-2", "JMS-3.8.1-3")
@pytest.mark.parametrize("operation", ["send_offsets", "commit_transaction"])
@each_outcome
@each_end
def test_a_message_that_is_handed_over_comes_once(
    kafka: MemoryKafka, desk: Any, queue: Queue, operation: Any, carried_out: bool, fatal: bool
) -> None:
    """Whatever answer is lost on the way, the process that wants the messages gets each of them once."""
    owner = desk.connect(is_apart=True).create_session()
    consumer = owner.create_consumer(queue, "kind = 'here'")
    desk.send(queue, "mine", properties={"kind": "here"})
    assert desk.texts(consumer, 1) == ["mine"]
    there = desk.connect(is_apart=True).create_session().create_consumer(queue, "kind = 'there'")
    kafka.faults.time_out(operation, carried_out=carried_out, fatal=fatal)
    desk.send(queue, *range(20), properties={"kind": "there"})
    assert sorted(map(int, desk.texts(there, 20))) == list(range(20))
    assert there.receive(200) is None


@pytest.mark.requirement("JMS-6.3-1", "JMS-6.11.5-2")
@pytest.mark.parametrize("operation", ["commit", "list_offsets", "produce"])
@each_outcome
def test_a_subscription_exists_when_the_call_has_returned(
    kafka: MemoryKafka, desk: Any, topic: Topic, operation: Any, carried_out: bool
) -> None:
    """Where an answer is lost while it is made, the call raises and can be made again; then nothing is missed."""
    session = desk.connect(client_id="client").create_session()
    session.create_producer(topic)
    kafka.faults.time_out(operation, carried_out=carried_out)
    try:
        session.create_durable_consumer(topic, "daily").close()
    except JMSException:
        session.create_durable_consumer(topic, "daily").close()
    desk.send(topic, "news")
    assert desk.texts(session.create_durable_consumer(topic, "daily"), 1) == ["news"]


@pytest.mark.requirement("JMS-4.4.11-5")
def test_an_acknowledgement_that_kafka_refuses_raises(kafka: MemoryKafka, desk: Any, queue: Queue) -> None:
    """The call raises that the message is not acknowledged, and can be repeated."""
    desk.send(queue, "a")
    session = desk.session(Session.CLIENT_ACKNOWLEDGE)
    message = session.create_consumer(queue).receive(WAIT_MS)
    assert message is not None
    kafka.faults.fail("commit", KafkaError.GROUP_AUTHORIZATION_FAILED, group=queue_group(queue.queue_name))
    with pytest.raises(JMSException, match="GROUP_AUTHORIZATION_FAILED"):
        message.acknowledge()
    message.acknowledge()
    session.close()
    assert desk.left(queue) == []


@pytest.mark.requirement("JMS-4.4.7-2", "JAK-commit-8")
def test_a_settlement_that_never_returns_is_given_up(
    queue: Queue, other_queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is made again by a new producer, and what returns late is refused; no thread is left after that."""
    monkeypatch.setattr(transactional_producer, "SETTLE_SECONDS", -0.9)  # and a second for the call to return
    may_return = threading.Event()
    outcomes: list[KafkaError] = []

    class Stuck(Intercepted):
        def send_offsets_to_transaction(self, *arguments: Any) -> None:
            if outcomes or not stuck:
                self.inner.send_offsets_to_transaction(arguments[0], arguments[1], WAIT_SECONDS)
                return
            stuck.pop()
            may_return.wait(WAIT_SECONDS)
            try:
                self.inner.send_offsets_to_transaction(arguments[0], arguments[1], WAIT_SECONDS)
            except KafkaException as error:
                outcomes.append(error.args[0])

    stuck = [True]
    with MemoryKafka(nodes=3) as kafka, contextlib.ExitStack() as stack:
        desk = Desk(kafka.bootstrap_servers, stack)
        desk.send(queue, *"abc")
        connection = desk.connect(is_apart=True)
        with intercepted(desk.servers, producer=Stuck):
            session = desk.transacted(connection)
            consumer = session.create_consumer(queue)
            assert desk.texts(consumer, 1) == ["a"]
            desk.send(other_queue, "a", by=session)
            session.commit()
            assert desk.texts(consumer, 1) == ["b"]
            may_return.set()
            wait_for(lambda: bool(outcomes))
            session.commit()
        connection.close()
        assert [outcome.code() for outcome in outcomes] == [KafkaError._FENCED]
        assert desk.stored(other_queue) == ["a"]
        assert desk.left(queue) == [("c", False, 1)]
    wait_for(lambda: not [thread for thread in threading.enumerate() if thread.name.endswith("-settling")])


@pytest.mark.requirement("JMS-4.4.7-2")
@pytest.mark.parametrize(
    "code", [KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR]
)
def test_a_coordinator_that_is_not_ready_rolls_nothing_back(
    kafka: MemoryKafka, desk: Any, queue: Queue, other_queue: Queue, code: int
) -> None:
    """Another broker has just become the coordinator of the queue's group: the commit waits for it."""
    desk.send(queue, *"ab")
    kafka.faults.fail("send_offsets", KafkaError(code, "not ready", txn_requires_abort=True), times=2)
    session = desk.transacted()
    assert desk.texts(session.create_consumer(queue), 1) == ["a"]
    desk.send(other_queue, "a", by=session)
    session.commit()
    session.close()
    assert desk.stored(other_queue) == ["a"]
    assert desk.left(queue) == [("b", False, 1)]


@pytest.mark.requirement("JMS-4.4.11-3")
@pytest.mark.parametrize("timeout", [None, 200])
def test_a_receive_waits_no_longer_for_the_last_acknowledgement_than_for_a_message(
    desk: Any, queue: Queue, timeout: int | None
) -> None:
    """It returns None; the next one waits for the same acknowledgement, and returns the next message."""
    desk.send(queue, *"abc")
    with members(desk.servers) as made, desk.connect(is_apart=True) as connection:
        consumer = connection.create_session(Session.AUTO_ACKNOWLEDGE).create_consumer(queue)
        assert text(next(iter(consumer))) == "a"  # a loop's message is acknowledged when the next one is asked for
        member = made[queue_group(queue.queue_name)][0]
        member.refusal = KafkaError(KafkaError._TIMED_OUT)
        assert (consumer.receive_no_wait() if timeout is None else consumer.receive(timeout)) is None
        member.refusal = None
        assert desk.texts(consumer, 1) == ["b"]
    assert desk.left(queue) == [("c", False, 1)]
