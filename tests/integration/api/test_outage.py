"""A broker that dies and comes back, and a program that is killed."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys

import pytest

from kjms import Connection, ConnectionFactory, JMSException, Message, Queue, Session, TextMessage, aio
from kjms.broker import LocalBroker
from tests.helpers import SHORT_SESSION, Eventually

SECONDS = 30_000


class Watching:
    """An exception listener with `on_recovery`, too."""

    def __init__(self) -> None:
        self.failures: list[JMSException] = []
        self.recoveries: list[JMSException] = []

    def on_exception(self, failure: JMSException) -> None:
        self.failures.append(failure)

    def on_recovery(self, failure: JMSException) -> None:
        self.recoveries.append(failure)


@pytest.mark.slow
@pytest.mark.requirement("JMS-4.3.8-1")
def test_a_connection_outlives_its_broker(
    breakable_broker: LocalBroker, queue: Queue, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """The exception listener and the log get the loss of a broker once, and its return once; work continues."""
    broker = breakable_broker
    told: list[JMSException] = []
    watching = Watching()
    heard: list[str | None] = []

    def listener(message: Message) -> None:
        assert isinstance(message, TextMessage)
        heard.append(message.text)

    with caplog.at_level(logging.INFO, "kjms"):
        factory = ConnectionFactory(broker.bootstrap_servers, send_timeout=3_000)
        with factory.create_connection() as connection, factory.create_connection() as other:
            connection.exception_listener = told.append
            other.exception_listener = watching
            connection.start()
            connection.create_session().create_consumer(queue).message_listener = listener
            session = connection.create_session()
            producer = session.create_producer(queue)
            producer.send(session.create_text_message("before"))
            eventually(lambda: heard == ["before"])
            broker.kill()
            eventually(lambda: told)
            with pytest.raises(JMSException, match=rf"{queue.queue_name}.*3000 ms"):
                producer.send(session.create_text_message("lost, and told so"))
            assert watching.recoveries == []
            broker.start()
            producer.send(session.create_text_message("after"))
            eventually(lambda: heard[-1] == "after")
            eventually(lambda: watching.recoveries)
        assert len(told) == 1
        assert told[0].error_code == "_ALL_BROKERS_DOWN"
        assert broker.bootstrap_servers in str(told[0])
        assert watching.failures == watching.recoveries == told
    logged = [(r.levelname, r.getMessage()) for r in caplog.records if r.name in {"kjms.engine", "kjms.kafka"}]
    assert logged[0] == ("WARNING", str(told[0]))
    assert logged[1][0] == "INFO"
    assert f"{broker.bootstrap_servers} is back after" in logged[1][1]
    assert len(logged) == 2


async def watched_in_loop(broker: LocalBroker) -> Watching:
    """Return what a listener got in an event loop while *broker* was away for some time."""
    watching = Watching()
    async with aio.ConnectionFactory(broker.bootstrap_servers, send_timeout=3_000).create_context() as context:
        context.exception_listener = watching
        await asyncio.to_thread(broker.kill)
        while not watching.failures:
            await asyncio.sleep(0.05)
        await asyncio.to_thread(broker.start)
        while not watching.recoveries:
            await asyncio.sleep(0.05)
    return watching


@pytest.mark.slow
def test_the_end_of_an_outage_in_a_loop(breakable_broker: LocalBroker) -> None:
    """A listener of asyncio's context gets an outage and its end, too."""
    watching = asyncio.run(asyncio.wait_for(watched_in_loop(breakable_broker), 60))
    assert len(watching.failures) == 1
    assert watching.recoveries == watching.failures


def test_what_a_killed_program_did_not_acknowledge_is_delivered_again(
    connection: Connection, queue: Queue, kjms_broker: object
) -> None:
    """A program that is killed with -9 loses nothing: its messages come to the next consumer."""
    session = connection.create_session()
    producer = session.create_producer(queue)
    for number in range(10):
        producer.send(session.create_text_message(str(number)))
    program = f"""
import sys
from kjms import ConnectionFactory, Queue, Session
factory = ConnectionFactory({kjms_broker.bootstrap_servers!r}, kafka={SHORT_SESSION!r})  # type: ignore
connection = factory.create_connection()
connection.start()
consumer = connection.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(Queue({queue.queue_name!r}))
for number in range(5):
    message = consumer.receive()
    if number == 2:
        message.acknowledge()
print("holding", flush=True)
sys.stdin.read()
"""
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "holding\n"
    finally:
        child.kill()
        child.communicate()
    consumer = connection.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(queue)
    received = [consumer.receive(SECONDS) for _ in range(7)]
    assert [message.text for message in received if isinstance(message, TextMessage)] == [str(n) for n in range(3, 10)]


def test_a_stopped_connection_starves_nobody(kjms_factory: ConnectionFactory, queue: Queue) -> None:
    """While one program's connection is stopped, another program gets the messages."""
    with kjms_factory.create_connection() as connection:
        connection.start()
        session = connection.create_session()
        consumer = session.create_consumer(queue)
        session.create_producer(queue).send(session.create_text_message("mine"))
        assert consumer.receive(SECONDS) is not None
        connection.stop()
        session.create_producer(queue).send(session.create_text_message("yours"))
        # A factory with other settings has an engine of its own, as another process has.
        servers = kjms_factory._options.bootstrap_servers
        with ConnectionFactory(servers, kafka={"client.id": "another"}).create_connection() as other:
            other.start()
            message = other.create_session().create_consumer(queue).receive(SECONDS)
            assert isinstance(message, TextMessage)
            assert message.text == "yours"
