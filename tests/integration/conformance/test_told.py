"""The rules of the WebLogic .NET client's interfaces, and of their relatives in JMS, that have no better place."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest

from kjms import (
    Connection,
    ConnectionFactory,
    JMSException,
    Message,
    Queue,
)
from kjms.engine.kafka import KafkaError
from tests.helpers import WAIT_MS, WAIT_SECONDS, apart, errors_of_clients, send, text

# Exceptions.


# The connection.


@pytest.mark.requirement("NET-16", "NET-70", "NET-419", "NEV-152", "NEV-185", "JMS-4.3.8-2")
def test_an_exception_listener_hears_of_its_own_connection(kjms_broker: Any, kjms_factory: ConnectionFactory) -> None:
    """It is called with the exception, in a thread of its own, one call after the other, for its connection alone."""
    other_factory = ConnectionFactory(kjms_broker.bootstrap_servers, kafka={"client.id": "another"})
    heard: list[tuple[str, str]] = []
    running: list[int] = []
    done = threading.Semaphore(0)

    def listen(name: str, failure: JMSException) -> None:
        running.append(1)
        assert len(running) == 1, "two calls at a time"
        threading.Event().wait(0.02)
        running.clear()
        heard.append((name, str(failure)))
        assert threading.current_thread() is not threading.main_thread()
        done.release()

    with (
        errors_of_clients(kjms_broker.bootstrap_servers) as errors,
        apart(kjms_broker.bootstrap_servers) as mine,
        other_factory.create_connection() as other,
        kjms_factory.create_connection() as silent,
    ):
        assert silent.exception_listener is None  # having one is optional
        listener = partial(listen, "mine")
        mine.exception_listener = listener
        assert mine.exception_listener is listener
        with pytest.raises(JMSException):  # what a call raises, the listener does not hear
            mine.create_session().commit()
        other.exception_listener = partial(listen, "other")
        for trouble in ("first", "second", "third"):
            errors[0](KafkaError(KafkaError._FATAL, trouble, fatal=True))
        for _ in range(3):
            assert done.acquire(timeout=WAIT_SECONDS)
    assert {name for name, _ in heard} == {"mine"}
    assert len(heard) == 3
    for trouble in ("first", "second", "third"):
        assert any(trouble in told for _, told in heard)


# Producers.


# Listeners, and whose thread a session is.


@pytest.mark.requirement("JAK-close-5", "JMS-4.3.5-3", "NEV-173", "NEV-198", "NEV-170", "NEV-174")
@pytest.mark.parametrize("what", ["session", "connection"])
def test_closing_waits_for_a_running_listener(
    kjms_factory: ConnectionFactory, kjms_connection: Connection, queue: Queue, what: str
) -> None:
    """A listener that runs while its session or connection is closed can still send; close returns when it has."""
    replies = Queue(f"{queue.queue_name}-replies")
    running, go_on = threading.Event(), threading.Event()
    order: list[str] = []
    connection = kjms_factory.create_connection()
    session = connection.create_session()
    producer = session.create_producer(replies)
    waiting = connection.create_session().create_consumer(replies)

    def listen(message: Message) -> None:
        running.set()
        assert go_on.wait(WAIT_SECONDS)
        producer.send(session.create_text_message("reply"))
        order.append("listener")

    session.create_consumer(queue).message_listener = listen
    connection.start()
    send(kjms_connection.create_session(), queue, "x")
    assert running.wait(WAIT_SECONDS)
    closing = threading.Thread(target=(session if what == "session" else connection).close)
    closing.start()
    while not (session._is_closed if what == "session" else connection._is_closing):
        threading.Event().wait(0.001)
    assert closing.is_alive()
    go_on.set()
    closing.join(WAIT_SECONDS)
    order.append("closed")
    assert order == ["listener", "closed"]
    if what == "session":
        assert text(waiting.receive(WAIT_MS)) == "reply"
    connection.close()
    connection.close()
