"""What a program raises decides what becomes of its message: Retry, Reject, and what the redelivery policy names."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from kjms import (
    Connection,
    ConnectionFactory,
    JMSContext,
    Message,
    MessageFormatException,
    Queue,
    RedeliveryPolicy,
    Reject,
    Retry,
    Session,
    aio,
)
from kjms.errors import BodyConversionException
from tests.helpers import SOON_MS, WAIT_MS, Eventually, seen, send, text, texts_of, wait_for

MODES = [
    Session.AUTO_ACKNOWLEDGE,
    Session.DUPS_OK_ACKNOWLEDGE,
    Session.SESSION_TRANSACTED,
    Session.CLIENT_ACKNOWLEDGE,
    Session.INDIVIDUAL_ACKNOWLEDGE,
]
NEVER_MS = 3_600_000


class GoneError(LookupError):
    """An application's own."""


def factory(kafka: Any, **policy: Any) -> ConnectionFactory:
    return ConnectionFactory(kafka.bootstrap_servers, redelivery=RedeliveryPolicy(**policy))


def letters(connection: Connection, dead: Queue) -> list[Message]:
    """Return the dead letters, as a browser sees them."""
    with connection.create_session() as session, session.create_browser(dead) as browser:
        return list(browser)


def told(message: Message, name: str) -> object:
    return message.properties.get(f"JMS_kjms_{name}")


def settle(session: Session, message: Message) -> None:
    """Settle *message* in whatever mode *session* has."""
    if session.transacted:
        session.commit()
    else:
        message.acknowledge()


@pytest.mark.parametrize("mode", MODES)
def test_a_rejected_message_is_a_dead_letter_at_once(
    kafka: Any, queue: Queue, dead: Queue, eventually: Eventually, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    """It says why; what a transacted session sent before is rolled back, and other messages are consumed."""
    got: list[tuple[str, bool, int]] = []
    other = Queue(f"{queue.queue_name}.sent")
    with factory(kafka).create_connection() as connection:
        connection.start()
        session = connection.create_session(mode)
        sender = session.create_producer(other)

        def work(message: Message) -> None:
            got.append(seen(message))
            if mode == Session.SESSION_TRANSACTED:
                sender.send(session.create_text_message(text(message)))
            if text(message) == "bad":
                raise Reject("no such customer")
            settle(session, message)

        session.create_consumer(queue).message_listener = work
        send(connection, queue, "bad", "good")
        eventually(lambda: len(got) == 2 and letters(connection, dead))
        (letter,) = letters(connection, dead)
        assert got == [("bad", False, 1), ("good", False, 1)]
        assert told(letter, "Cause") == "delivered 1 time; rejected: no such customer"
        assert told(letter, "Exception") == "kjms.verdicts.Reject"
        assert told(letter, "ExceptionMessage") == "no such customer"
        assert told(letter, "Deliveries") == 1
        if mode == Session.SESSION_TRANSACTED:
            eventually(lambda: texts_of(letters(connection, other)) == ["good"])
    (line,) = [each for each in caplog.records if "a message listener raised" in each.getMessage()]
    assert (line.levelno, line.exc_info) == (logging.WARNING, None)


@pytest.mark.parametrize("mode", MODES)
def test_a_retried_message_comes_after_the_time_that_was_asked_for(kafka: Any, queue: Queue, mode: int) -> None:
    """Not after the delay of the policy; it is marked and counted, and others are consumed meanwhile."""
    got: list[tuple[str, bool, int]] = []
    times: list[float] = []
    with factory(kafka, delay=NEVER_MS).create_connection() as connection:
        connection.start()
        session = connection.create_session(mode)

        def work(message: Message) -> None:
            got.append(seen(message))
            times.append(time.monotonic())
            if got[-1] == ("slow", False, 1):
                raise Retry("not yet", after=timedelta(seconds=0.5))
            settle(session, message)

        session.create_consumer(queue).message_listener = work
        send(connection, queue, "slow", "good")
        wait_for(lambda: len(got) == 3)
    assert got == [("slow", False, 1), ("good", False, 1), ("slow", True, 2)]
    assert times[2] - times[0] >= 0.45


def test_a_message_that_is_retried_too_often_is_a_dead_letter(
    kafka: Any, queue: Queue, dead: Queue, eventually: Eventually
) -> None:
    """Retry counts as a delivery; without a time of its own the policy's delay holds."""
    got: list[tuple[str, bool, int]] = []

    def work(message: Message) -> None:
        got.append(seen(message))
        raise Retry("the mail server is away", after=None if len(got) % 2 else 0)

    with factory(kafka, max_deliveries=3).create_connection() as connection:
        connection.start()
        connection.create_session().create_consumer(queue).message_listener = work
        send(connection, queue, "x")
        eventually(lambda: letters(connection, dead))
        (letter,) = letters(connection, dead)
    assert got == [("x", False, 1), ("x", True, 2), ("x", True, 3)]
    assert told(letter, "Cause") == "delivered 3 times; to be retried: the mail server is away"
    assert told(letter, "Exception") == "kjms.verdicts.Retry"


@pytest.mark.parametrize(
    ("policy", "error", "deliveries"),
    [
        ({"dead_letter_on": (LookupError,)}, GoneError("4711"), 1),
        ({"dead_letter_on": [f"{__name__}.GoneError"]}, GoneError("4711"), 1),
        ({"dead_letter_on": ("LookupError", "shop.errors.Missing")}, GoneError("4711"), 1),
        ({"dead_letter_on": (GoneError,)}, LookupError("4711"), 2),
        ({"retry_on": (OSError,)}, GoneError("4711"), 1),
        ({"retry_on": (OSError,)}, TimeoutError("4711"), 2),
        ({"retry_on": (Exception,), "dead_letter_on": (GoneError,)}, GoneError("4711"), 1),
        ({"retry_on": (OSError,)}, SystemExit(3), 2),
        ({"retry_on": (OSError,)}, Retry("4711"), 2),
        ({"retry_on": (Reject,)}, Reject("4711"), 1),
        ({}, BodyConversionException("4711"), 1),
        ({"retry_on": (MessageFormatException,)}, BodyConversionException("4711"), 2),
        ({}, MessageFormatException("4711"), 2),
    ],
    ids=repr,
)
@pytest.mark.parametrize("mode", [Session.AUTO_ACKNOWLEDGE, Session.SESSION_TRANSACTED])
def test_the_policy_says_which_exceptions_are_retried(
    kafka: Any,
    queue: Queue,
    dead: Queue,
    eventually: Eventually,
    policy: dict[str, Any],
    error: BaseException,
    deliveries: int,
    mode: int,
) -> None:
    """Those of a class that it names, or of a class below; the verdicts of the program come before it."""
    got: list[int] = []
    with factory(kafka, max_deliveries=2, **policy).create_connection() as connection:
        connection.start()
        session = connection.create_session(mode)

        def work(message: Message) -> None:
            got.append(message.get_int_property("JMSXDeliveryCount"))
            try:
                raise error
            except BaseException:
                if mode == Session.SESSION_TRANSACTED and not isinstance(error, Reject):
                    session.rollback()  # else an exception that the policy retries is left to the program
                raise

        session.create_consumer(queue).message_listener = work
        send(connection, queue, "x")
        eventually(lambda: letters(connection, dead))
        (letter,) = letters(connection, dead)
    assert len(got) == told(letter, "Deliveries") == deliveries
    is_own = isinstance(error, Reject | Retry | BodyConversionException)
    assert told(letter, "ExceptionMessage") == ("4711" if is_own else None)
    if deliveries == 1 and not is_own:
        assert str(told(letter, "Cause")).endswith("GoneError, which is not retried")


@pytest.mark.parametrize("mode", [Session.CLIENT_ACKNOWLEDGE, Session.SESSION_TRANSACTED])
def test_a_listener_that_settles_itself_keeps_what_no_verdict_is_on(
    kafka: Any, queue: Queue, dead: Queue, mode: int
) -> None:
    """With CLIENT_ACKNOWLEDGE and in a transaction an exception is the program's matter, and so is what came before."""
    got: list[tuple[str, bool, int]] = []
    done = threading.Event()
    with factory(kafka).create_connection() as connection:
        connection.start()
        session = connection.create_session(mode)

        def work(message: Message) -> None:
            got.append(seen(message))
            if text(message) == "bad":
                raise Reject
            if text(message) == "odd":
                raise ValueError
            if text(message) == "last":
                settle(session, message)
                done.set()

        session.create_consumer(queue).message_listener = work
        send(connection, queue, "first", "odd", "bad", "last")
        assert done.wait(WAIT_MS / 1000)
        wait_for(lambda: letters(connection, dead))
        assert texts_of(letters(connection, dead)) == ["bad"]
        assert letters(connection, queue) == []
    again = [("first", True, 2), ("odd", True, 2)] if mode == Session.SESSION_TRANSACTED else []
    assert got == [("first", False, 1), ("odd", False, 1), ("bad", False, 1), *again, ("last", False, 1)]


def leave_with(by: Connection | JMSContext, queue: Queue, mode: int, error: Exception) -> None:
    """Receive two messages in a ``with`` statement that *error* leaves."""
    with contextlib.suppress(Reject, Retry, GoneError):
        if isinstance(by, JMSContext):
            with by.create_context(mode) as context:
                consumer = context.create_consumer(queue)
                for number, _ in enumerate(consumer, 1):
                    if number == 2:
                        raise error
        else:
            with by.create_session(mode) as session:
                for number, _ in enumerate(session.create_consumer(queue), 1):
                    if number == 2:
                        raise error


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_simple", [False, True])
@pytest.mark.parametrize("error", [Reject("no"), GoneError("no")], ids=repr)
def test_a_verdict_that_leaves_a_with_statement_is_on_the_last_message(
    kafka: Any, queue: Queue, dead: Queue, eventually: Eventually, mode: int, error: Exception, is_simple: bool
) -> None:
    """What the session received before, and did not settle, comes again."""
    made = factory(kafka, dead_letter_on=(GoneError,))
    with made.create_connection() as connection, made.create_context() as context:
        connection.start()
        send(connection, queue, "before", "bad", "after")
        leave_with(context if is_simple else connection, queue, mode, error)
        eventually(lambda: letters(connection, dead))
        assert texts_of(letters(connection, dead)) == ["bad"]
        with connection.create_session() as session, session.create_consumer(queue) as consumer:
            left = [seen(message) for message in iter(lambda: consumer.receive(SOON_MS), None)]
    is_settled = mode in {Session.AUTO_ACKNOWLEDGE, Session.DUPS_OK_ACKNOWLEDGE}
    assert sorted(left) == [("after", False, 1), *([] if is_settled else [("before", True, 2)])]


@pytest.mark.parametrize("mode", [Session.CLIENT_ACKNOWLEDGE, Session.SESSION_TRANSACTED])
def test_a_program_that_handles_a_verdict_carries_it_out_by_giving_back(
    kafka: Any, queue: Queue, dead: Queue, eventually: Eventually, mode: int
) -> None:
    """Rolling back, or recovering, while it handles Reject; what it gives back without one comes again."""
    with factory(kafka).create_connection() as connection:
        connection.start()
        send(connection, queue, "bad", "good")
        session = connection.create_session(mode)
        consumer = session.create_consumer(queue)
        give_back = session.rollback if session.transacted else session.recover
        assert seen(consumer.receive(WAIT_MS)) == ("bad", False, 1)
        give_back()
        assert seen(consumer.receive(WAIT_MS)) == ("bad", True, 2)
        try:
            raise Reject("no")
        except Reject:
            give_back()
        good = consumer.receive(WAIT_MS)
        assert seen(good) == ("good", False, 1)
        assert good is not None
        settle(session, good)
        eventually(lambda: letters(connection, dead))
        assert [told(letter, "Deliveries") for letter in letters(connection, dead)] == [2]


def test_no_verdict_is_on_the_messages_of_other_sessions(kafka: Any, queue: Queue) -> None:
    """One that leaves the ``with`` statement of a connection was raised for none of them, as far as kjms can know."""
    made = factory(kafka)
    with contextlib.suppress(Reject), made.create_connection() as connection:
        connection.start()
        send(connection, queue, "one")
        session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        assert session.create_consumer(queue).receive(WAIT_MS) is not None
        raise Reject
    with made.create_connection() as connection:
        connection.start()
        assert seen(connection.create_session().create_consumer(queue).receive(WAIT_MS)) == ("one", True, 2)


@pytest.mark.parametrize("mode", MODES)
async def test_verdicts_of_tasks(kafka: Any, queue: Queue, dead: Queue, mode: int) -> None:
    """With asyncio, a verdict that leaves ``async with`` of the context is on its last message."""
    made = aio.ConnectionFactory(kafka.bootstrap_servers, redelivery=RedeliveryPolicy(delay=NEVER_MS))
    async with made.create_context() as own:
        for body in ("bad", "slow"):
            await own.create_producer().send(queue, body)
        for error in (Reject("no"), Retry(after=0)):
            with contextlib.suppress(Reject, Retry):
                async with own.create_context(mode) as context:
                    async for message in context.create_consumer(queue):
                        assert message.get_int_property("JMSXDeliveryCount") == 1
                        raise error
        assert text(await own.create_consumer(dead).receive(WAIT_MS)) == "bad"
        assert seen(await own.create_consumer(queue).receive(WAIT_MS)) == ("slow", True, 2)


@pytest.mark.parametrize(
    ("made", "error", "words"),
    [
        (lambda: Reject(3), TypeError, "Reject: the reason is text, not 3 (int)"),  # type: ignore[arg-type]
        (lambda: Retry(timedelta(1)), TypeError, "Retry: the reason is text"),  # type: ignore[arg-type]
        (lambda: Retry(after=-1), ValueError, "after must not be negative, and is -1"),
        (lambda: RedeliveryPolicy(dead_letter_on=ValueError), TypeError, "dead_letter_on is a list"),  # type: ignore[arg-type]
        (lambda: RedeliveryPolicy(retry_on="OSError"), TypeError, "retry_on is a list"),  # type: ignore[arg-type]
        (lambda: RedeliveryPolicy(retry_on=(int,)), TypeError, "retry_on has classes of exceptions, and int is none"),  # type: ignore[arg-type]
        (lambda: RedeliveryPolicy(retry_on=("Gone",)), ValueError, "Python has no exception 'Gone'; name the module"),
        (lambda: RedeliveryPolicy(retry_on=("a b",)), ValueError, "retry_on: 'a b' is no dotted name"),
    ],
)
def test_what_is_no_verdict_is_refused(made: Callable[[], object], error: type[Exception], words: str) -> None:
    """The text names what was given, and what is wanted."""
    with pytest.raises(error) as raised:
        made()
    assert words in str(raised.value)
