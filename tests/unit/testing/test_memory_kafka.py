"""Programs of kjms on an in-memory Kafka, as its users write them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from kjms import (
    Connection,
    ConnectionFactory,
    JMSException,
    Message,
    Queue,
    RedeliveryPolicy,
    Session,
    Topic,
)
from kjms.engine.kafka import open_admin, open_consumer
from kjms.testing import MemoryKafka
from tests.helpers import WAIT_MS, Eventually, text

ORDERS = Queue("orders")


def test_what_is_sent_is_received(connection: Connection) -> None:
    """In order, with properties, and once."""
    session = connection.create_session()
    producer = session.create_producer(ORDERS)
    for number in range(100):
        message = session.create_text_message(str(number))
        message.set_int_property("number", number)
        producer.send(message)
    consumer = session.create_consumer(ORDERS)
    received = [consumer.receive(WAIT_MS) for _ in range(100)]
    assert [text(each) for each in received] == [str(number) for number in range(100)]
    assert received[42] is not None
    assert received[42].get_int_property("number") == 42
    assert consumer.receive_no_wait() is None


def test_selectors_share_a_queue(connection: Connection) -> None:
    """Each consumer gets what it selects."""
    session = connection.create_session()
    producer = session.create_producer(ORDERS)
    for number in range(6):
        message = session.create_text_message(str(number))
        message.set_boolean_property("even", number % 2 == 0)
        producer.send(message)
    even = session.create_consumer(ORDERS, "even")
    odd = session.create_consumer(ORDERS, "NOT even")
    assert [text(odd.receive(WAIT_MS)) for _ in range(3)] == ["1", "3", "5"]
    assert [text(even.receive(WAIT_MS)) for _ in range(3)] == ["0", "2", "4"]


def test_each_subscriber_of_a_topic_gets_all(connection: Connection) -> None:
    """Durable ones also what came while they were away."""
    news, session = Topic("news"), connection.create_session()
    plain = session.create_consumer(news)
    session.create_shared_durable_consumer(news, "kept").close()
    session.create_producer(news).send(session.create_text_message("1"))
    assert text(plain.receive(WAIT_MS)) == "1"
    kept = session.create_shared_durable_consumer(news, "kept")
    assert text(kept.receive(WAIT_MS)) == "1"


def test_a_transaction_moves_messages_or_does_not(connection: Connection) -> None:
    """What is received and sent in it comes through together."""
    target, outside = Queue("shipped"), connection.create_session()
    outside.create_producer(ORDERS).send(outside.create_text_message("1"))
    session = connection.create_session(Session.SESSION_TRANSACTED)
    consumer, producer = session.create_consumer(ORDERS), session.create_producer(target)
    message = consumer.receive(WAIT_MS)
    assert message is not None
    producer.send(session.create_text_message("no"))
    session.rollback()
    message = consumer.receive(WAIT_MS)
    assert message is not None
    assert message.jms_redelivered
    producer.send(session.create_text_message("yes"))
    session.commit()
    shipped = outside.create_consumer(target)
    assert text(shipped.receive(WAIT_MS)) == "yes"
    assert shipped.receive_no_wait() is None


def test_what_fails_too_often_becomes_a_dead_letter(kafka: MemoryKafka) -> None:
    """After the deliveries that the policy allows."""
    factory = ConnectionFactory(kafka.bootstrap_servers, redelivery=RedeliveryPolicy(max_deliveries=2))
    with factory.create_connection() as connection:
        connection.start()
        session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        session.create_producer(ORDERS).send(session.create_text_message("bad"))
        consumer = session.create_consumer(ORDERS)
        for _ in range(2):
            assert text(consumer.receive(WAIT_MS)) == "bad"
            session.recover()
        assert text(session.create_consumer(Queue("orders.dlq")).receive(WAIT_MS)) == "bad"


def test_a_browser_shows_what_waits(connection: Connection) -> None:
    """It takes nothing."""
    session = connection.create_session()
    session.create_producer(ORDERS).send(session.create_text_message("1"))
    with session.create_browser(ORDERS) as browser:
        assert [text(message) for message in browser] == ["1"]
    assert text(session.create_consumer(ORDERS).receive(WAIT_MS)) == "1"


def test_a_request_gets_its_reply(connection: Connection) -> None:
    """Through a temporary queue."""
    asking, answering = connection.create_session(), connection.create_session()

    def answer(message: Message) -> None:
        assert message.jms_reply_to is not None
        reply = answering.create_text_message(f"{text(message)}!")
        answering.create_producer(message.jms_reply_to).send(reply)

    answering.create_consumer(ORDERS).message_listener = answer
    replies = asking.create_temporary_queue()
    request = asking.create_text_message("hello")
    request.jms_reply_to = replies
    asking.create_producer(ORDERS).send(request)
    assert text(asking.create_consumer(replies).receive(WAIT_MS)) == "hello!"


def test_a_message_is_delivered_later(connection: Connection) -> None:
    """No sooner than its delivery delay says."""
    session = connection.create_session()
    producer, consumer = session.create_producer(ORDERS), session.create_consumer(ORDERS)
    producer.delivery_delay = 300
    producer.send(session.create_text_message("later"))
    message = consumer.receive(WAIT_MS)
    assert text(message) == "later"
    assert message is not None
    assert message.jms_delivery_time >= message.jms_timestamp + 300


def test_two_engines_share_a_queue(kafka: MemoryKafka, eventually: Eventually) -> None:
    """Two factories with different settings are two programs to Kafka: one partition serves both by hand-over."""
    factories = [ConnectionFactory(kafka.bootstrap_servers, kafka={"client.id": name}) for name in ("one", "two")]
    with factories[0].create_connection() as first, factories[1].create_connection() as second:
        first.start()
        second.start()
        consumers = [each.create_session().create_consumer(ORDERS) for each in (first, second)]
        got: list[list[str | None]] = [[], []]
        is_over = threading.Event()

        def work(index: int) -> None:
            while not is_over.is_set():
                message = consumers[index].receive(50)
                if message is not None:
                    got[index].append(text(message))
                    is_over.wait(0.005)  # a consumer that is busy leaves messages to the other

        threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
        session = first.create_session()
        producer = session.create_producer(ORDERS)
        for thread in threads:
            thread.start()
        sent = 0
        try:
            while not (got[0] and got[1]) and sent < 1_000:
                producer.send(session.create_text_message(str(sent)))
                sent += 1
                is_over.wait(0.002)
            eventually(lambda: len(got[0]) + len(got[1]) >= sent)
        finally:
            is_over.set()
            for thread in threads:
                thread.join()
        assert got[0]
        assert got[1]
        assert sorted(map(str, got[0] + got[1]), key=int) == [str(number) for number in range(sent)]


def test_several_know_nothing_of_each_other(kafka: MemoryKafka, connection: Connection) -> None:
    """What is sent to one is not in the other."""
    session = connection.create_session()
    session.create_producer(ORDERS).send(session.create_text_message("1"))
    with MemoryKafka() as other, ConnectionFactory(other.bootstrap_servers).create_connection() as elsewhere:
        elsewhere.start()
        assert other.bootstrap_servers != kafka.bootstrap_servers
        assert elsewhere.create_session().create_consumer(ORDERS).receive_no_wait() is None
        assert text(session.create_consumer(ORDERS).receive(WAIT_MS)) == "1"


def test_after_its_end_calls_fail() -> None:
    """The error names it, and says that it is closed."""
    with MemoryKafka() as kafka:
        factory = ConnectionFactory(kafka.bootstrap_servers, send_timeout=1_000)
        factory.create_connection().close()
    kafka.close()
    assert "closed" in repr(kafka)
    with pytest.raises(JMSException, match=rf"{kafka.bootstrap_servers}.*closed"):
        factory.create_connection()


def test_a_connection_outlives_it_without_harm() -> None:
    """What is sent fails, and closing works."""
    with MemoryKafka() as kafka:
        connection = ConnectionFactory(kafka.bootstrap_servers, send_timeout=1_000).create_connection()
        connection.start()
        session = connection.create_session()
        producer = session.create_producer(ORDERS)
        session.create_consumer(ORDERS)
    with pytest.raises(JMSException, match="closed"):
        producer.send(session.create_text_message("1"))
    connection.close()


def test_another_process_is_told_that_it_cannot_reach_it(kafka: MemoryKafka) -> None:
    """The address means something in one process only."""
    program = (
        "from kjms import ConnectionFactory\n"
        f"ConnectionFactory({kafka.bootstrap_servers!r}, send_timeout=1_000).create_connection()\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 1
    assert "is in the memory of another process" in run.stderr.splitlines()[-1]


def in_child(work: Callable[[], object]) -> str:
    """Return what *work* returns or raises in a forked child."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            said = str(work())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as said_there:
        return said_there.read()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_is_told_that_it_cannot_reach_it(kafka: MemoryKafka) -> None:
    """The child has no part in its parent's memory, whatever another thread was doing there."""
    servers = kafka.bootstrap_servers
    consumer = open_consumer({"bootstrap.servers": servers, "group.id": "group"})
    is_held, is_over = threading.Event(), threading.Event()

    def hold() -> None:
        with kafka._cluster.lock:
            is_held.set()
            is_over.wait()

    holding = threading.Thread(target=hold)
    holding.start()
    is_held.wait()
    try:
        said = [
            in_child(lambda: ConnectionFactory(servers, send_timeout=1_000).create_connection()),
            in_child(lambda: consumer.poll(0)),
            in_child(consumer.close),
        ]
    finally:
        is_over.set()
        holding.join()
    assert "is in the memory of another process" in said[0]
    assert "belongs to process" in said[1]
    assert said[2] == "None"
    consumer.close()


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_an_exception_listener_hears_of_the_end(end: str, eventually: Eventually) -> None:
    """A connection that is left open is reported once by each of its consumers, and its threads rest."""
    heard: list[str] = []
    with MemoryKafka() as kafka:
        connection = ConnectionFactory(kafka.bootstrap_servers).create_connection()
        connection.exception_listener = lambda failure: heard.append(str(failure))
        connection.start()
        consumer = connection.create_session().create_consumer(ORDERS)
        assert consumer.receive(10) is None
        if end == "killed":
            kafka.faults.kill("kjms")
            eventually(lambda: any("was killed" in text for text in heard))
    if end == "closed":
        eventually(lambda: any("is closed" in text for text in heard))
    used, began = time.process_time(), time.monotonic()
    assert consumer.receive(500) is None
    assert time.process_time() - used < (time.monotonic() - began) / 2  # no thread spins
    connection.close()
    assert len(heard) == len(set(heard))


def test_it_has_as_many_brokers_as_it_is_told() -> None:
    """A topic may have as many replicas as there are nodes, and no more; less than one node is refused."""
    with MemoryKafka(nodes=3) as kafka:
        admin = open_admin({"bootstrap.servers": kafka.bootstrap_servers})
        factory = ConnectionFactory(kafka.bootstrap_servers, replication_factor=3)
        with factory.create_context() as context:
            context.create_producer().send(Queue("orders"), "pens")
            assert context.create_consumer(Queue("orders")).receive_body(str, WAIT_MS) == "pens"
        metadata = admin.list_topics()
        assert len(metadata.brokers) == 3
        assert metadata.topics["orders"].partitions[0].replicas == [1, 2, 3]
        four = ConnectionFactory(kafka.bootstrap_servers, replication_factor=4)
        with four.create_context() as context, pytest.raises(JMSException, match="only 3 broker"):
            context.create_producer().send(Queue("more"), "pens")
    with pytest.raises(ValueError, match="1 node or more, not 0"):
        MemoryKafka(nodes=0)
