"""Faults of an in-memory Kafka, as clients and as programs of kjms meet them."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest

from kjms import (
    Connection,
    ConnectionFactory,
    JMSException,
    JMSRuntimeException,
    JMSSecurityException,
    Queue,
    Session,
)
from kjms.engine.kafka import KafkaError, TopicPartition, open_producer
from kjms.testing import MemoryKafka
from tests.helpers import WAIT_MS, WAIT_SECONDS, Eventually, text
from tests.unit.testing.conftest import Clients, error
from tests.unit.testing.test_groups import Member, settle

ORDERS = Queue("orders")


@pytest.fixture
def servers(kafka: MemoryKafka) -> str:
    """The address of the in-memory Kafka alone: a real one fails at no request."""
    return kafka.bootstrap_servers


def put(producer: Any, topic: str, heard: Any) -> None:
    producer.produce(topic, b"x", None, 0, headers=[], timestamp=0, on_delivery=heard)


# Requests that fail, or whose answers are lost.


def test_a_request_fails_as_often_as_asked(kafka: MemoryKafka, clients: Clients) -> None:
    """Nothing is carried out, and the next one works; other topics, groups and programs are left alone."""
    topic = clients.topic()
    consumer = clients.consumer("group")
    place = TopicPartition(topic, 0, 1)

    def commit() -> object:
        return consumer.commit(offsets=[place], asynchronous=False)

    kafka.faults.fail("commit", KafkaError.NOT_COORDINATOR, times=2, group="group")
    kafka.faults.fail("commit", KafkaError.NOT_COORDINATOR, group="another group")
    kafka.faults.fail("commit", KafkaError.NOT_COORDINATOR, client_id="another program")
    assert [error(commit).name() for _ in range(2)] == ["NOT_COORDINATOR"] * 2
    assert consumer.committed([place], WAIT_SECONDS)[0].offset == -1001
    commit()
    assert consumer.committed([place], WAIT_SECONDS)[0].offset == 1


@pytest.mark.parametrize("carried_out", [True, False])
def test_a_commit_without_an_answer(kafka: MemoryKafka, clients: Clients, carried_out: bool) -> None:
    """The client does not know whether it was carried out; Kafka does."""
    topic = clients.topic()
    consumer = clients.consumer()
    kafka.faults.time_out("commit", carried_out=carried_out)
    place = TopicPartition(topic, 0, 1)
    assert error(lambda: consumer.commit(offsets=[place], asynchronous=False)).name() == "_WAIT_COORD"
    assert consumer.committed([place], WAIT_SECONDS)[0].offset == (1 if carried_out else -1001)


@pytest.mark.parametrize("carried_out", [True, False])
def test_a_record_without_an_answer(kafka: MemoryKafka, clients: Clients, reports: Any, carried_out: bool) -> None:
    """The report says that its time was over; it may be in the log."""
    topic = clients.topic()
    producer = clients.producer()
    kafka.faults.time_out("produce", carried_out=carried_out, topic=topic)
    put(producer, topic, reports)
    put(producer, topic, reports)
    assert producer.flush(WAIT_SECONDS) == 0
    assert [name for name, _ in reports.heard] == ["_MSG_TIMED_OUT", ""]
    assert clients.end(topic) == (2 if carried_out else 1)


@pytest.mark.parametrize("carried_out", [True, False])
def test_a_transaction_without_an_answer_is_ended_by_the_next_call(
    kafka: MemoryKafka, clients: Clients, reports: Any, carried_out: bool
) -> None:
    """As with librdkafka: the call can be made again, and continues where it was."""
    topic = clients.topic()
    producer = clients.producer("id")
    producer.begin_transaction()
    put(producer, topic, reports)
    kafka.faults.time_out("commit_transaction", carried_out=carried_out)
    refused = error(lambda: producer.commit_transaction(WAIT_SECONDS))
    assert (refused.name(), refused.retriable(), refused.fatal()) == ("_TIMED_OUT", True, False)
    assert clients.end(topic) == (2 if carried_out else 0)
    producer.commit_transaction(WAIT_SECONDS)
    assert clients.end(topic) == 2
    producer.begin_transaction()


@pytest.mark.parametrize("carried_out", [True, False])
def test_a_transaction_whose_producer_ends_without_an_answer(
    kafka: MemoryKafka, clients: Clients, reports: Any, carried_out: bool, read: Any
) -> None:
    """Only the log says what became of it, once another producer has ended what was open."""
    topic = clients.topic()
    producer = clients.producer("id")
    producer.begin_transaction()
    put(producer, topic, reports)
    kafka.faults.time_out("commit_transaction", carried_out=carried_out, fatal=True)
    assert error(lambda: producer.commit_transaction(WAIT_SECONDS)).fatal()
    assert error(producer.begin_transaction).fatal()
    clients.producer("id")
    seen = read(clients.consumer(), topic, 0)
    assert seen == ([(0, b"x"), (2, b"END")] if carried_out else [(2, b"END")])


@pytest.mark.parametrize("carried_out", [True, False])
@pytest.mark.parametrize("fatal", [True, False], ids=["fatal", "timed out"])
def test_a_session_finds_out_what_became_of_its_commit(
    kafka: MemoryKafka, connection: Connection, carried_out: bool, fatal: bool
) -> None:
    """Whatever the answer was: what was received and sent comes through, once."""
    outside = connection.create_session()
    outside.create_producer(ORDERS).send(outside.create_text_message("in"))
    session = connection.create_session(Session.SESSION_TRANSACTED)
    assert text(session.create_consumer(ORDERS).receive(WAIT_MS)) == "in"
    shipped = Queue("shipped")
    session.create_producer(shipped).send(session.create_text_message("out"))
    kafka.faults.time_out("commit_transaction", carried_out=carried_out, fatal=fatal)
    session.commit()
    session.close()
    consumer = outside.create_consumer(shipped)
    assert text(consumer.receive(WAIT_MS)) == "out"
    assert consumer.receive_no_wait() is None
    assert outside.create_consumer(ORDERS).receive(100) is None


def test_a_send_hears_why_its_record_was_refused(kafka: MemoryKafka, connection: Connection) -> None:
    """The error of the broker is in the exception, and the next message goes."""
    session = connection.create_session()
    producer = session.create_producer(ORDERS)
    kafka.faults.fail("produce", KafkaError.POLICY_VIOLATION, topic="orders")
    with pytest.raises(JMSException, match="POLICY_VIOLATION"):
        producer.send(session.create_text_message("1"))
    producer.send(session.create_text_message("2"))
    assert text(session.create_consumer(ORDERS).receive(WAIT_MS)) == "2"


def test_what_makes_no_sense_is_refused(kafka: MemoryKafka) -> None:
    """The error names the value, and what may be said."""
    with pytest.raises(ValueError, match="no operation 'sned'; it is one of produce"):
        kafka.faults.fail("sned", KafkaError.UNKNOWN)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="times"):
        kafka.faults.fail("produce", KafkaError.UNKNOWN, times=0)
    with pytest.raises(ValueError, match="one of Read"), kafka.faults.refuse("Fly", topic="t"):  # type: ignore[arg-type]
        pass
    with pytest.raises(ValueError, match="one of topic, group"), kafka.faults.refuse("Read"):
        pass


def test_a_producer_asks_again_for_an_answer_to_its_beginning(kafka: MemoryKafka, clients: Clients) -> None:
    """What came before it is fenced off once; the producer works."""
    first = clients.producer("id")
    kafka.faults.time_out("init_transactions", carried_out=True)
    second = open_producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "id"})
    refused = error(lambda: second.init_transactions(WAIT_SECONDS))
    assert (refused.name(), refused.retriable()) == ("_TIMED_OUT", True)
    second.init_transactions(WAIT_SECONDS)
    second.begin_transaction()
    second.commit_transaction(WAIT_SECONDS)
    first.begin_transaction()
    first.produce(clients.topic(), b"x", None, 0, headers=[], timestamp=0, on_delivery=lambda error, message: None)
    assert error(lambda: first.commit_transaction(WAIT_SECONDS)).fatal()


# Members and programs that go.


def test_an_expelled_member_loses_its_partitions_and_comes_back(kafka: MemoryKafka, clients: Clients) -> None:
    """on_lost gets them; until the next poll it may not commit."""
    topic = clients.topic(2)
    member = Member(clients.consumer("group"), topic)
    settle(lambda: member.has == {0, 1}, member)
    before = member.consumer.memberid()
    assert kafka.faults.lose_partitions(group="group") == 1
    place = TopicPartition(topic, 0, 1)
    refused = error(lambda: member.consumer.commit(offsets=[place], asynchronous=False))
    assert refused.name() == "UNKNOWN_MEMBER_ID"
    settle(lambda: len(member.heard) == 3, member)
    assert member.heard == [("assign", {0, 1}), ("lost", {0, 1}), ("assign", {0, 1})]
    assert member.consumer.memberid() not in {before, None, ""}
    assert kafka.faults.lose_partitions(group="another group") == 0
    assert kafka.faults.lose_partitions("another-topic") == 0
    settle(lambda: len(member.heard) == 3 and member.has == {0, 1}, member)
    assert kafka.faults.lose_partitions(topic) == 1


def test_what_a_session_has_of_a_lost_partition_comes_again(kafka: MemoryKafka, connection: Connection) -> None:
    """A message that was not acknowledged is delivered again, as redelivered, and is not lost."""
    session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    session.create_producer(ORDERS).send(session.create_text_message("1"))
    consumer = session.create_consumer(ORDERS)
    assert text(consumer.receive(WAIT_MS)) == "1"
    assert kafka.faults.lose_partitions(ORDERS) == 1
    again = consumer.receive(WAIT_MS)
    assert text(again) == "1"
    assert again is not None
    assert again.jms_redelivered


def test_a_killed_programs_messages_go_to_another(kafka: MemoryKafka) -> None:
    """After its session time-out; its calls fail."""
    settings = {"session.timeout.ms": 500}
    factories = [
        ConnectionFactory(kafka.bootstrap_servers, kafka={"client.id": name, **settings}) for name in ("one", "two")
    ]
    first = factories[0].create_connection()
    first.start()
    session = first.create_session(Session.CLIENT_ACKNOWLEDGE)
    producer = session.create_producer(ORDERS)
    producer.send(session.create_text_message("1"))
    assert text(session.create_consumer(ORDERS).receive(WAIT_MS)) == "1"
    kafka.faults.kill("one")
    with pytest.raises(JMSException, match="was killed"):
        producer.send(session.create_text_message("2"))
    with factories[1].create_connection() as second:
        second.start()
        message = second.create_session().create_consumer(ORDERS).receive(WAIT_MS)
        assert text(message) == "1"
        assert message is not None
        assert message.jms_redelivered
    first.close()


def test_closing_a_killed_program_raises_an_error_of_jms(kafka: MemoryKafka) -> None:
    """Admin requests of a killed program fail in their answers, as those of a real client do."""
    factory = ConnectionFactory(kafka.bootstrap_servers, send_timeout=500, kafka={"client.id": "one"})
    connection = factory.create_connection()
    connection.create_session().create_temporary_queue()
    kafka.faults.kill("one")
    with contextlib.suppress(JMSException):
        connection.close()


def test_a_killed_producer_leaves_its_transaction_open(kafka: MemoryKafka, clients: Clients, reports: Any) -> None:
    """Until another producer of that name fences it off."""
    topic = clients.topic()
    producer = clients.producer("id", client_id="doomed")
    producer.begin_transaction()
    put(producer, topic, reports)
    assert producer.flush(WAIT_SECONDS) == 0
    kafka.faults.kill("doomed")
    assert error(lambda: producer.commit_transaction(WAIT_SECONDS)).name() == "_DESTROY"
    assert (clients.end(topic), clients.end(topic, is_committed=False)) == (0, 1)
    clients.producer("id")
    assert clients.end(topic) == 2


# Brokers that are away.


def test_calls_time_out_while_brokers_are_away(kafka: MemoryKafka, clients: Clients) -> None:
    """Each call gives up after its own time; what was asked meanwhile is answered once they are back."""
    topic = clients.topic()
    consumer = clients.consumer()
    place = TopicPartition(topic, 0, 1)

    def delete(request_timeout: float) -> Any:
        how = {"operation_timeout": WAIT_SECONDS, "request_timeout": request_timeout}
        return clients.admin.delete_topics(["no-such"], **how)["no-such"]

    with kafka.faults.outage():
        assert error(lambda: clients.admin.list_topics(topic, timeout=0.01)).name() == "_TRANSPORT"
        assert error(lambda: consumer.committed([place], 0.01)).name() == "_TIMED_OUT"
        answer = delete(request_timeout=0.01)
        assert error(answer.result).name() == "_TIMED_OUT"
        late = delete(request_timeout=WAIT_SECONDS)
        clients.admin.poll(0)
        assert [each.name() for each in clients.errors] == ["_ALL_BROKERS_DOWN"]
    assert error(late.result).name() == "UNKNOWN_TOPIC_OR_PART"
    assert consumer.committed([place], WAIT_SECONDS)[0].offset == -1001


def test_records_wait_for_brokers_and_are_given_up_in_the_end(
    kafka: MemoryKafka, clients: Clients, reports: Any
) -> None:
    """What is not older than message.timeout.ms goes when they are back."""
    topic = clients.topic()
    patient, hasty = clients.producer(linger_ms=0), clients.producer(message_timeout_ms=10, linger_ms=0)
    with kafka.faults.outage():
        put(patient, topic, reports)
        assert patient.flush(0.02) == 1
        heard: list[str] = []
        put(hasty, topic, lambda error, message: heard.append(error.name()))
        assert hasty.flush(WAIT_SECONDS) == 0
        assert heard == ["_MSG_TIMED_OUT"]
    assert patient.flush(WAIT_SECONDS) == 0
    assert reports.heard == [("", 0)]


def test_an_outage_costs_members_their_partitions(kafka: MemoryKafka, clients: Clients) -> None:
    """After the session time-out; they are assigned anew when brokers are back."""
    topic = clients.topic(2)
    member = Member(clients.consumer("group", session_timeout_ms=50), topic)
    settle(lambda: member.has == {0, 1}, member)
    with kafka.faults.outage():
        settle(lambda: member.heard[-1] == ("lost", {0, 1}), member)
        assert not member.consumer.memberid()
    settle(lambda: member.has == {0, 1}, member)


def test_one_program_alone_cannot_reach_brokers(kafka: MemoryKafka, clients: Clients) -> None:
    """Others can."""
    topic = clients.topic()
    apart = clients.consumer(client_id="apart")
    with kafka.faults.outage(client_id="apart"):
        assert error(lambda: apart.get_watermark_offsets(TopicPartition(topic, 0), 0.01)).name() == "_TIMED_OUT"
        assert clients.consumer().get_watermark_offsets(TopicPartition(topic, 0), WAIT_SECONDS) == (0, 0)
    assert apart.get_watermark_offsets(TopicPartition(topic, 0), WAIT_SECONDS) == (0, 0)


def test_a_receive_goes_on_after_an_outage(kafka: MemoryKafka, connection: Connection) -> None:
    """It waits, and what was sent before is received; a send waits, too."""
    session = connection.create_session()
    producer, consumer = session.create_producer(ORDERS), session.create_consumer(ORDERS)
    producer.send(session.create_text_message("1"))
    assert text(consumer.receive(WAIT_MS)) == "1"
    other = connection.create_session()
    waiting = other.create_producer(ORDERS)
    with kafka.faults.outage():
        sending = threading.Thread(target=lambda: waiting.send(other.create_text_message("2")))
        sending.start()
        sending.join(0.05)
        assert sending.is_alive()
    sending.join(WAIT_SECONDS)
    assert not sending.is_alive()
    assert text(consumer.receive(WAIT_MS)) == "2"


# Rights.


def test_a_topic_that_may_not_be_written_to(kafka: MemoryKafka, connection: Connection) -> None:
    """The exception says which ACL is missing; with it, the send works."""
    session = connection.create_session()
    producer = session.create_producer(ORDERS)
    refused = pytest.raises(JMSSecurityException, match="the ACL Write on the topic 'orders' is missing")
    with kafka.faults.refuse("Write", topic="orders"), refused:
        producer.send(session.create_text_message("1"))
    producer.send(session.create_text_message("2"))
    assert text(session.create_consumer(ORDERS).receive(WAIT_MS)) == "2"


@pytest.mark.parametrize("what", [{"topic": "orders"}, {"group": "kjms.queue.orders"}], ids=["topic", "group"])
def test_a_queue_that_may_not_be_read(
    kafka: MemoryKafka, connection: Connection, what: dict[str, str], eventually: Eventually
) -> None:
    """A receive that waits raises, and messages come once the topic may be read."""
    session = connection.create_session()
    session.create_producer(ORDERS).send(session.create_text_message("1"))
    refused = pytest.raises(JMSSecurityException, match="the ACL Read on the")
    with kafka.faults.refuse("Read", **what), refused:  # type: ignore[arg-type]
        consumer = session.create_consumer(ORDERS)
        consumer.receive(WAIT_MS)

    def received() -> str | None:
        try:
            return text(consumer.receive(WAIT_MS))
        except JMSSecurityException:  # the engine tries again once in a second
            return None

    eventually(lambda: received() == "1")


def test_a_transactional_id_that_may_not_be_used(kafka: MemoryKafka, clients: Clients) -> None:
    """The producer comes to its end with it."""
    with kafka.faults.refuse("Write", transactional_id="id"):
        refused = error(lambda: clients.producer("id"))
    assert (refused.name(), refused.fatal()) == ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", True)
    clients.producer("id").begin_transaction()


def test_a_topic_that_may_not_be_looked_at_or_made(kafka: MemoryKafka, clients: Clients) -> None:
    """Metadata has the error in it; creation raises it."""
    topic = clients.topic()
    with kafka.faults.refuse("Describe", topic=topic):
        found = clients.admin.list_topics(topic, timeout=WAIT_SECONDS).topics[topic]
        assert (found.error.name(), found.partitions) == ("TOPIC_AUTHORIZATION_FAILED", {})
    refusal = pytest.raises(JMSRuntimeException, match="the ACL Create on the topic 'new' is missing")
    factory = ConnectionFactory(kafka.bootstrap_servers)
    with factory.create_context() as context, kafka.faults.refuse("Create", topic="new"), refusal:
        context.create_producer().send(Queue("new"), "1")
