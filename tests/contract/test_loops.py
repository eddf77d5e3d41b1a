"""A message is acknowledged when `receive` has returned it; a loop's, when the loop asks for the next one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from kjms import Connection, ConnectionFactory, JMSContext, MessageConsumer, Queue, Session, Topic
from tests.helpers import NOTHING_MS, WAIT_MS, WAIT_SECONDS, Eventually, browse, counted, send, text

WAYS = [
    pytest.param(Session.AUTO_ACKNOWLEDGE, {}, id="AUTO"),
    pytest.param(Session.DUPS_OK_ACKNOWLEDGE, {}, id="DUPS_OK"),
    pytest.param(Session.AUTO_ACKNOWLEDGE, {"pipelined_acknowledge": True}, id="pipelined"),
]
LEAVING = [
    ("consumer", Session.AUTO_ACKNOWLEDGE, {}),
    ("session", Session.AUTO_ACKNOWLEDGE, {}),
    ("session", Session.DUPS_OK_ACKNOWLEDGE, {}),
    ("connection", Session.AUTO_ACKNOWLEDGE, {"pipelined_acknowledge": True}),
]


@pytest.mark.requirement("JMS-4.4.11-3", "JMS-4.4.11-2")
@pytest.mark.parametrize(("mode", "options"), WAYS)
def test_another_process_sees_that_a_received_message_is_settled(
    process: Callable[..., Connection], queue: Queue, eventually: Eventually, mode: int, options: dict[str, Any]
) -> None:
    """A message that `receive` has returned is acknowledged, though its consumer never asks for another."""
    connection, other = process(**options), process()
    send(connection, queue, "one", "two")
    consumer = connection.create_session(mode).create_consumer(queue)
    assert text(consumer.receive(WAIT_MS)) == "one"
    eventually(lambda: browse(other, queue) == ["two"])


@pytest.mark.requirement("JMS-4.4.11-3")
@pytest.mark.parametrize(("mode", "options"), WAYS)
def test_an_idle_consumer_blocks_no_message_group(
    process: Callable[..., Connection], queue: Queue, mode: int, options: dict[str, Any]
) -> None:
    """The next message of a group goes to another session, when the last one was received and its session is idle."""
    connection = process(**options)
    send(connection, queue, "one", "two", group="g")
    first, second = [connection.create_session(mode).create_consumer(queue) for _ in range(2)]
    assert text(first.receive(WAIT_MS)) == "one"
    assert text(second.receive(WAIT_MS)) == "two"


@pytest.mark.requirement("JMS-4.4.11-3", "JMS-4.4.12-2")
def test_receive_waits_for_the_acknowledgement_of_the_last_message(
    process: Callable[..., Connection], queue: Queue
) -> None:
    """When `receive` returns, or finds nothing, all that the session received before is durably acknowledged."""
    connection, other = process(), process()
    numbers = [str(number) for number in range(20)]
    send(connection, queue, *numbers)
    consumer = connection.create_session().create_consumer(queue)
    for at, number in enumerate(numbers):
        assert text(consumer.receive(WAIT_MS)) == number
        left = browse(other, queue)
        assert left[-len(numbers[at + 1 :]) :] == numbers[at + 1 :] or not numbers[at + 1 :]
        assert set(left) <= set(numbers[at:])  # this one may still be on its way to be acknowledged, and no other
    assert consumer.receive_no_wait() is None
    assert browse(other, queue) == []


def loop(consumer: MessageConsumer, *expected: str) -> None:
    """Take the messages that are expected in a loop, and leave it with the last one."""
    for wanted, message in zip(expected, consumer, strict=False):
        assert text(message) == wanted
        if wanted == expected[-1]:
            return
    pytest.fail(f"the loop ended before {expected[-1]!r}")


@pytest.mark.parametrize(("mode", "options"), WAYS)
def test_a_loop_acknowledges_when_it_asks_for_the_next_message(
    process: Callable[..., Connection], queue: Queue, eventually: Eventually, mode: int, options: dict[str, Any]
) -> None:
    """While a loop works on a message, that message is not acknowledged; those before it are."""
    connection, other = process(**options), process()
    send(connection, queue, "one", "two", "three")
    consumer = connection.create_session(mode).create_consumer(queue)
    loop(consumer, "one", "two")
    eventually(lambda: browse(other, queue) == ["two", "three"])
    assert text(consumer.receive(WAIT_MS)) == "three"  # the consumer is asked for the next one
    eventually(lambda: browse(other, queue) == [])


@pytest.mark.parametrize(("closed", "mode", "options"), LEAVING)
def test_an_orderly_close_acknowledges_what_a_loop_has(
    process: Callable[..., Connection],
    queue: Queue,
    eventually: Eventually,
    closed: str,
    mode: int,
    options: dict[str, Any],
) -> None:
    """The message that a loop ended with is acknowledged when the consumer, session or connection closes."""
    connection, other = process(**options), process()
    send(connection, queue, "one", "two")
    session = connection.create_session(mode)
    with {"consumer": session.create_consumer(queue), "session": session, "connection": connection}[closed] as it:
        loop(it if closed == "consumer" else session.create_consumer(queue), "one")  # type: ignore[arg-type]
    eventually(lambda: browse(other, queue) == ["two"])
    if closed != "consumer":
        consumer = other.create_session().create_consumer(queue)
        assert counted(consumer.receive(WAIT_MS)) == ("two", 1)


class WorkError(Exception):
    """What the work on a message raises."""


@pytest.mark.requirement("JMS-4.4.12-2")
@pytest.mark.parametrize(("left", "mode", "options"), LEAVING)
def test_an_exception_in_a_loop_brings_the_message_again(
    process: Callable[..., Connection], queue: Queue, left: str, mode: int, options: dict[str, Any]
) -> None:
    """When an exception leaves the `with` statement, the loop's message comes again, counted; those before do not."""
    connection, other = process(**options), process()
    send(connection, queue, "one", "two", "three")
    session = connection.create_session(mode)

    def work() -> None:
        with {"consumer": session.create_consumer(queue), "session": session, "connection": connection}[left] as it:
            consumer: Any = it if left == "consumer" else session.create_consumer(queue)
            for message in consumer:
                if text(message) == "two":
                    raise WorkError

    with pytest.raises(WorkError):
        work()
    consumer = (session if left == "consumer" else other.create_session()).create_consumer(queue)
    assert [counted(consumer.receive(WAIT_MS)) for _ in range(2)] == [("two", 2), ("three", 1)]
    assert consumer.receive(NOTHING_MS) is None


def test_an_exception_that_leaves_a_context_brings_the_message_again(
    kafka: Any, process: Callable[..., Connection], queue: Queue
) -> None:
    """The simplified API's context, and its consumer, do what a session and its consumer do."""
    send(process(), queue, "one", "two")
    factory = ConnectionFactory(kafka.bootstrap_servers, kafka={"client.id": queue.queue_name})

    def work(expected: tuple[str, int], is_consumer: bool) -> None:
        with factory.create_context(JMSContext.AUTO_ACKNOWLEDGE) as context:
            consumer = context.create_consumer(queue)
            if is_consumer:
                with consumer:
                    for message in consumer:
                        assert counted(message) == expected
                        raise WorkError
            for message in consumer:
                assert counted(message) == expected
                raise WorkError

    for count, is_consumer in ((1, False), (2, True)):
        with pytest.raises(WorkError):
            work(("one", count), is_consumer)
    with factory.create_context() as context:
        consumer = context.create_consumer(queue)
        assert [counted(consumer.receive(WAIT_MS)) for _ in range(2)] == [("one", 3), ("two", 1)]


def test_a_receive_inside_of_a_loop_leaves_the_loops_message_alone(
    process: Callable[..., Connection], queue: Queue, topic: Topic
) -> None:
    """Another consumer's receive in the body of a loop acknowledges its own message, and not the loop's."""
    connection, other = process(), process()
    replies = Queue(f"{queue.queue_name}.replies")
    send(connection, queue, "order")
    send(connection, replies, "reply")
    session = connection.create_session()
    consumer, answers = session.create_consumer(queue), session.create_consumer(replies)

    def work() -> None:
        with session:
            for message in consumer:
                assert text(message) == "order"
                assert text(answers.receive(WAIT_MS)) == "reply"
                assert answers.receive_no_wait() is None
                raise WorkError

    with pytest.raises(WorkError):
        work()
    assert browse(other, replies) == []
    again = other.create_session().create_consumer(queue)
    assert counted(again.receive(WAIT_MS)) == ("order", 2)


@pytest.mark.requirement("JMS-4.4.11-8", "JMS-4.4.11-10")
def test_recover_in_a_loop_brings_its_message_again(process: Callable[..., Connection], queue: Queue) -> None:
    """A loop's message is unacknowledged, so `recover` delivers it again, before any later one."""
    connection = process()
    send(connection, queue, "one", "two")
    session = connection.create_session()
    got = []
    for message in session.create_consumer(queue):
        got.append(counted(message))
        if len(got) == 1:
            session.recover()
        if len(got) == 3:
            break
    assert got == [("one", 1), ("one", 2), ("two", 1)]


@pytest.mark.parametrize(("closed", "mode", "options"), LEAVING)
def test_closing_in_another_thread_brings_the_message_of_a_loop_again(
    process: Callable[..., Connection], queue: Queue, closed: str, mode: int, options: dict[str, Any]
) -> None:
    """The loop's thread may still work on it, or have failed; what the loop has done before stays acknowledged."""
    connection, other = process(**options), process()
    send(connection, queue, "one", "two", "three")
    session = connection.create_session(mode)
    consumer = session.create_consumer(queue)
    has_two, is_closed = threading.Event(), threading.Event()
    left: list[str] = []

    def work() -> None:
        for message in consumer:
            if text(message) == "two":
                has_two.set()
                is_closed.wait(WAIT_SECONDS)
        left.append("loop")

    thread = threading.Thread(target=work)
    thread.start()
    assert has_two.wait(WAIT_SECONDS)
    {"consumer": consumer, "session": session, "connection": connection}[closed].close()
    is_closed.set()
    thread.join(WAIT_SECONDS)
    assert left == ["loop"]
    again = (session if closed == "consumer" else other.create_session()).create_consumer(queue)
    assert sorted(counted(again.receive(WAIT_MS)) for _ in range(2)) == [("three", 1), ("two", 2)]
    assert again.receive(NOTHING_MS) is None
