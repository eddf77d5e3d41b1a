"""Asynchronous sends: when they count as sent, what is called, by which thread, and what waits for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from kjms import (
    Connection,
    DeliveryMode,
    InvalidDestinationException,
    Message,
    MessageFormatException,
    Queue,
    ResourceAllocationException,
    Session,
    TextMessage,
    Topic,
)
from kjms.engine.kafka import AdminPort, NewTopic
from tests.helpers import WAIT_MS, WAIT_SECONDS, Completions, Eventually


@pytest.fixture
def completions() -> Iterator[Completions]:
    listener = Completions()
    yield listener
    listener.may_return.set()


def create(admin: AdminPort, queue: Queue, **config: str) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    made = NewTopic(queue.queue_name, 1, 1, config=settings)
    admin.create_topics([made], operation_timeout=WAIT_SECONDS, request_timeout=WAIT_SECONDS)[queue.queue_name].result(
        WAIT_SECONDS
    )


@pytest.mark.requirement("JMS-4.6.2-1", "JMS-4.6.2.8-1", "JMS-4.6.2.8-3")
@pytest.mark.parametrize("mode", [Session.AUTO_ACKNOWLEDGE, Session.SESSION_TRANSACTED])
def test_every_form_of_send_takes_a_listener(
    connection: Connection, queue: Queue, completions: Completions, mode: int, eventually: Eventually
) -> None:
    """Calls come one at a time, never in the thread that sends, also where producers and listeners are several."""
    session = connection.create_session(mode)
    bound, free = session.create_producer(queue), session.create_producer()
    messages = [session.create_text_message(str(number)) for number in range(4)]
    bound.send(messages[0], completion_listener=completions)
    free.send(messages[1], queue, completion_listener=completions)
    free.send(messages[2], queue, DeliveryMode.NON_PERSISTENT, 7, timedelta(hours=1), completion_listener=completions)
    bound.send(messages[3], None, DeliveryMode.NON_PERSISTENT, 2, 3_600_000, completion_listener=completions)
    eventually(lambda: len(completions.sent) == 4)
    assert completions.sent == messages
    assert [(int(m.jms_delivery_mode), m.jms_priority, m.jms_expiration > 0) for m in messages] == [
        (2, 4, False), (2, 4, False), (1, 7, True), (1, 2, True),
    ]  # fmt: skip
    assert all(message.jms_destination == queue for message in messages)
    others = [Completions() for _ in range(2)]
    for number in range(200):
        (bound, free)[number % 2].send(messages[0], queue, completion_listener=others[number % 2])
        completions.threads.discard(threading.current_thread())
    session.close()
    told = [completions, *others]
    assert not any(listener.overlapped for listener in told)
    assert [len(listener.sent) for listener in told] == [4, 100, 100]
    threads = set.union(*(listener.threads for listener in told))
    assert len(threads) == 1  # of all listeners of the session
    assert threading.current_thread() not in threads


@pytest.mark.requirement("JMS-4.6.2.7-1")
def test_the_program_uses_the_session_while_a_completion_listener_runs(
    connection: Connection, queue: Queue, completions: Completions, eventually: Eventually
) -> None:
    """An asynchronous send leaves the session to the thread that sent."""
    session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    producer, consumer = session.create_producer(queue), session.create_consumer(queue)
    completions.may_return.clear()
    producer.send(session.create_text_message("a"), completion_listener=completions)
    assert completions.called.wait(WAIT_SECONDS)
    producer.send(session.create_text_message("b"))
    session.create_producer(queue).send(session.create_text_message("c"), completion_listener=completions)
    messages = [consumer.receive(WAIT_MS) for _ in "abc"]
    assert [message.text for message in messages if isinstance(message, TextMessage)] == ["a", "b", "c"]
    messages[-1].acknowledge()  # type: ignore[union-attr]
    assert completions.is_inside
    completions.may_return.set()
    eventually(lambda: len(completions.sent) == 2)


@pytest.mark.requirement("JMS-4.6.2.8-1")
def test_a_completion_listener_holds_up_its_own_session_only(
    connection: Connection, queue: Queue, completions: Completions
) -> None:
    """While one does not return, other sessions send, call theirs and close, also from within that listener."""
    held, free = (connection.create_session() for _ in range(2))
    completions.may_return.clear()
    held.create_producer(queue).send(held.create_text_message("a"), completion_listener=completions)
    assert completions.called.wait(WAIT_SECONDS)
    others = Completions()
    for _ in range(3):
        free.create_producer(queue).send(free.create_text_message("b"), completion_listener=others)
    free.close()
    assert others.texts == ["b", "b", "b"]
    assert completions.is_inside
    completions.may_return.set()
    held.close()
    assert completions.texts == ["a"]
    closing, closed = (connection.create_session() for _ in range(2))

    class Closes(Completions):
        def on_completion(self, message: Message) -> None:
            closed.create_producer(queue).send(closed.create_text_message("d"), completion_listener=others)
            closed.close()
            super().on_completion(message)

    closes = Closes()
    closing.create_producer(queue).send(closing.create_text_message("c"), completion_listener=closes)
    closing.close()
    assert (closes.texts, others.texts[3:]) == (["c"], ["d"])


@pytest.mark.requirement(
    "JMS-4.6.2.2-1", "JMS-4.6.2.2-2", "JMS-4.6.2.2-3", "JMS-4.3.8-5", "NEV-188", "JMS-7.3-1",
)  # fmt: skip
def test_an_error_is_told_in_one_place(
    connection: Connection, queue: Queue, admin: AdminPort, completions: Completions, eventually: Eventually
) -> None:
    """The listener gets later failures, and not what the call raises; the exception listener gets neither."""
    told: list[Exception] = []
    connection.exception_listener = told.append
    create(admin, queue, max_message_bytes="1000")
    with connection.create_session() as session:
        producer = session.create_producer(queue)
        fine = session.create_text_message("fine")
        for message, to, error in (
            (None, queue, MessageFormatException),
            (fine, Topic("no/such/" * 40), InvalidDestinationException),
            (session.create_text_message("x" * 2_000_000), queue, ResourceAllocationException),
        ):
            with pytest.raises(error):
                producer.send(message, to, completion_listener=completions)
        with pytest.raises(ValueError, match="priority"):
            producer.send(fine, priority=10, completion_listener=completions)
        producer.send(fine, completion_listener=completions)
        eventually(lambda: completions.sent)
        late = session.create_text_message("x" * 2_000)  # more than Kafka takes here, which the client does not know
        producer.send(late, completion_listener=completions)
        with pytest.raises(ResourceAllocationException):
            producer.send(late)
    assert completions.sent == [fine]
    ((message, exception),) = completions.failed
    assert message is late
    assert isinstance(exception, ResourceAllocationException)
    assert exception.error_code == "MSG_SIZE_TOO_LARGE"
    assert told == []
