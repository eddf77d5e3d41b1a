"""Message listeners: one at a time, by the thread that the session belongs to, and what else may be done meanwhile."""

from __future__ import annotations

import itertools
import logging
import statistics
import threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

import pytest

from kjms import (
    Connection,
    ConnectionFactory,
    IllegalStateException,
    Message,
    MessageConsumer,
    Queue,
    Session,
    SessionMode,
    Topic,
)
from kjms.testing.engine import consumer_statistics
from tests.helpers import NOTHING_SECONDS, WAIT_MS, WAIT_SECONDS, Eventually, numbered, send, text, texts


class Holds:
    """A listener that holds its first message until it is released, and notes what it gets, how and where."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.threads: set[threading.Thread] = set()
        self.running, self.may_return = threading.Event(), threading.Event()
        self.is_inside = self.overlapped = False

    def __call__(self, message: Message) -> None:
        self.overlapped |= self.is_inside
        self.is_inside = True
        self.heard.append(text(message))
        self.threads.add(threading.current_thread())
        self.running.set()
        self.may_return.wait(WAIT_SECONDS)
        self.is_inside = False


@pytest.fixture
def holds() -> Any:
    listener = Holds()
    yield listener
    listener.may_return.set()


@pytest.mark.requirement(
    "JAK-Session-1", "JAK-Session-11", "JMS-4.4.14-1", "NET-339", "NET-349", "NET-423", "NEV-196",
)  # fmt: skip
def test_a_sessions_listeners_run_one_after_another_in_its_own_thread(
    kjms_factory: ConnectionFactory, kjms_destination_name: str, holds: Holds, eventually: Eventually
) -> None:
    """Each message of each of its consumers is given to the listener; while one runs, all others wait."""
    with kjms_factory.create_connection() as connection:
        session = connection.create_session()
        places = [kind(f"{kjms_destination_name}-{n}") for n, kind in enumerate((Queue, Queue, Topic))]  # type: ignore
        for place in places:
            session.create_consumer(place).message_listener = holds
        for place in places:
            send(connection, place, "1", "2")
        connection.start()
        assert holds.running.wait(WAIT_SECONDS)
        threading.Event().wait(NOTHING_SECONDS)
        assert len(holds.heard) == 1
        holds.may_return.set()
        eventually(lambda: len(holds.heard) == 6)
    assert sorted(holds.heard) == ["1", "1", "1", "2", "2", "2"]
    assert not holds.overlapped
    assert len(holds.threads) == 1
    assert threading.current_thread() not in holds.threads


@pytest.mark.requirement(
    "JAK-Session-16", "JAK-Session-17", "JAK-Session-18", "JMS-4.4.6-2", "JMS-4.4.6-3", "NET-354", "NET-355",
    "NET-356",
)  # fmt: skip
@pytest.mark.parametrize("owner", ["consumer", "session", "connection"])
def test_while_a_listener_runs_others_may_close_its_session_and_nothing_else(
    kjms_factory: ConnectionFactory, queue: Queue, other_queue: Queue, holds: Holds, owner: str
) -> None:
    """Using the session, or what it made, in another thread is an error that names both threads; closing waits."""
    with kjms_factory.create_connection() as connection:
        connection.start()
        session = connection.create_session(Session.SESSION_TRANSACTED)
        consumer, other = session.create_consumer(queue), session.create_consumer(other_queue)
        producers = [session.create_producer(place) for place in (queue, other_queue)]
        message = session.create_text_message("x")
        consumer.message_listener = holds
        send(connection, queue, "a")
        assert holds.running.wait(WAIT_SECONDS)
        for use in (
            *(lambda producer=producer: producer.send(message) for producer in producers),
            session.commit,
            session.rollback,
        ):
            with pytest.raises(IllegalStateException, match=r"'MainThread' tried to .* while thread 'kjms-session-"):
                use()
        close = {"consumer": other.close, "session": session.close, "connection": connection.close}[owner]
        with ThreadPoolExecutor(1) as pool:
            closing = pool.submit(close)
            with pytest.raises(FutureTimeoutError):
                closing.result(NOTHING_SECONDS)
            assert holds.is_inside
            holds.may_return.set()
            closing.result(WAIT_SECONDS)
        assert not holds.is_inside


@pytest.mark.requirement("JAK-close-5", "JMS-4.3.5-3", "NEV-173", "NEV-174", "NEV-198")
@pytest.mark.parametrize("owner", ["session", "connection"])
def test_a_listener_that_a_close_waits_for_keeps_everything(
    kjms_factory: ConnectionFactory, connection: Connection, queue: Queue, other_queue: Queue, owner: str
) -> None:
    """Until it returns, the connection, its sessions and what they made serve it; nothing is delivered any more."""
    running, may_go_on = threading.Event(), threading.Event()
    outcome: list[object] = []
    served = kjms_factory.create_connection()
    served.start()
    waits = served.create_session().create_consumer(Queue(f"{queue.queue_name}-empty"))
    helper, session = served.create_session(), served.create_session()
    producers = [each.create_producer(other_queue) for each in (session, helper)]

    def listener(message: Message) -> None:
        running.set()
        may_go_on.wait(WAIT_SECONDS)
        try:
            for producer in producers:
                producer.send(session.create_text_message(text(message)))
            session.create_producer(other_queue).send(message)
            served.create_session().create_producer(other_queue).send(message)
            served.start()
            outcome.append(served.meta_data.jms_version)
        except Exception as error:
            outcome.append(error)

    session.create_consumer(queue).message_listener = listener
    send(connection, queue, "a", "b")
    assert running.wait(WAIT_SECONDS)
    with ThreadPoolExecutor(2) as pool:
        receiving = pool.submit(waits.receive)
        closing = pool.submit({"session": session, "connection": served}[owner].close)
        if owner == "connection":
            assert receiving.result(WAIT_SECONDS) is None
        with pytest.raises(FutureTimeoutError):
            closing.result(NOTHING_SECONDS)
        may_go_on.set()
        closing.result(WAIT_SECONDS)
        assert outcome == ["2.0"]
        served.close()
        receiving.result(WAIT_SECONDS)
    look = connection.create_session()
    sent = look.create_consumer(other_queue)
    assert [text(sent.receive(WAIT_MS)) for _ in range(4)] == ["a"] * 4
    assert text(look.create_consumer(queue).receive(WAIT_MS)) == "b"


@pytest.mark.requirement("JMS-4.5.2-7", "NET-314", "NEV-248", "NEV-255")
def test_a_listener_that_raises_is_reported(
    connection: Connection, queue: Queue, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says at level ERROR that the program's listener raised, and what; delivery continues."""
    heard: list[str] = []

    def fails_once(message: Message) -> None:
        heard.append(text(message))
        if len(heard) == 1:
            raise RuntimeError("an error in the program")

    with caplog.at_level(logging.WARNING, "kjms"):
        connection.create_session().create_consumer(queue).message_listener = fails_once
        send(connection, queue, "a", "b")
        eventually(lambda: len(heard) == 3)
    assert heard == ["a", "a", "b"]
    (report,) = [record for record in caplog.records if record.name == "kjms.session"]
    assert report.levelno >= logging.WARNING
    assert "message listener raised" in report.getMessage()
    assert report.exc_info is not None
    assert "an error in the program" in str(report.exc_info[1])


@pytest.mark.requirement("NET-79")
def test_on_a_started_connection_delivery_begins_during_set_up(
    connection: Connection, queue: Queue, holds: Holds, eventually: Eventually
) -> None:
    """The first listener gets messages at once, though the program is about to make the rest of the session."""
    send(connection, queue, "a")
    session = connection.create_session()
    session.create_consumer(queue).message_listener = holds
    assert holds.running.wait(WAIT_SECONDS)
    holds.may_return.set()
    session.create_consumer(other := Queue(f"{queue.queue_name}-other")).message_listener = holds
    send(connection, other, "b")
    eventually(lambda: holds.heard == ["a", "b"])


@pytest.mark.requirement("NET-79")
def test_a_listener_that_runs_keeps_no_other_from_being_set(
    connection: Connection, queue: Queue, other_queue: Queue, holds: Holds, eventually: Eventually
) -> None:
    """Setting a listener returns while another one of the session runs; it is called when that one has returned."""
    heard: list[str] = []
    session = connection.create_session()
    session.create_consumer(queue).message_listener = holds
    send(connection, queue, "a")
    send(connection, other_queue, "b")
    assert holds.running.wait(WAIT_SECONDS)
    session.create_consumer(other_queue).message_listener = lambda message: heard.append(text(message))
    assert holds.is_inside
    assert heard == []
    holds.may_return.set()
    eventually(lambda: heard == ["b"])


@pytest.mark.requirement("JMS-4.4.6-4", "NEV-213")
def test_a_session_with_listeners_is_not_asked_for_messages(connection: Connection, queue: Queue) -> None:
    """As long as one of its consumers has a listener, receive is refused by all of them."""
    session = connection.create_session()
    listening, other = session.create_consumer(queue), session.create_consumer(Queue(f"{queue.queue_name}-other"))
    listening.message_listener = print
    send(connection, Queue(f"{queue.queue_name}-other"), "a")
    for ask in (other.receive, other.receive_no_wait, lambda: other.receive(1), lambda: next(iter(other))):
        with pytest.raises(IllegalStateException, match="message listeners"):
            ask()
    listening.message_listener = None
    assert text(other.receive(WAIT_MS)) == "a"
    listening.message_listener = print
    listening.close()
    assert other.receive_no_wait() is None


@pytest.mark.requirement(
    "JAK-getMessageListener-1", "JAK-getMessageListener-2", "JAK-setMessageListener-1", "JAK-setMessageListener-2",
    "JAK-setMessageListener-3",
)  # fmt: skip
def test_a_session_may_have_one_listener_for_all(
    connection: Connection, kjms_destination_name: str, eventually: Eventually
) -> None:
    """It gets the messages of all consumers, earlier and later ones; nothing else receives; everything sends."""
    places = [Queue(kjms_destination_name), Topic(f"{kjms_destination_name}-topic")]
    answers = Queue(f"{kjms_destination_name}-answers")
    session = connection.create_session()
    assert session.message_listener is None
    heard: list[str] = []
    producer = session.create_producer(answers)

    class Listener:
        def on_message(self, message: Message) -> None:
            heard.append(text(message))
            answer = session.create_text_message(f"answer to {text(message)}")
            producer.send(answer)
            anyone.send(answers, answer)
            producer.send(answer, completion_listener=Completions())

    class Completions:
        def on_completion(self, message: Message) -> None:
            completed.append(message)

        def on_exception(self, _message: Message, error: Exception) -> None:
            raise error

    completed: list[Message] = []
    anyone = session.create_producer(None)
    consumers: list[MessageConsumer] = [session.create_consumer(places[0])]
    consumers[0].message_listener = print
    with pytest.raises(IllegalStateException, match="one of its own"):
        session.message_listener = Listener()  # type: ignore[assignment]
    consumers[0].message_listener = None
    with pytest.raises(ValueError, match="message listener"):
        session.message_listener = "no listener"  # type: ignore[assignment]
    listener = Listener()
    session.message_listener = listener  # type: ignore[assignment]
    assert session.message_listener == listener.on_message
    consumers.append(session.create_consumer(places[1]))
    for consumer in consumers:
        for use in (
            consumer.receive_no_wait,
            lambda consumer=consumer: consumer.receive(1),
            lambda consumer=consumer: next(iter(consumer)),
            lambda consumer=consumer: setattr(consumer, "message_listener", print),
        ):
            with pytest.raises(IllegalStateException, match=r"message listeners|one for all"):
                use()
    for place in places:
        send(connection, place, f"to {type(place).__name__}")
    eventually(lambda: len(heard) == 2)
    sent = connection.create_session().create_consumer(answers)
    told = [text(sent.receive(WAIT_MS)) for _ in range(6)]
    assert sorted(told) == 3 * ["answer to to Queue"] + 3 * ["answer to to Topic"]
    eventually(lambda: len(completed) == 2)
    session.message_listener = None
    assert session.message_listener is None
    send(connection, places[0], "asked for")
    assert text(consumers[0].receive(WAIT_MS)) == "asked for"
    assert len(heard) == 2


@pytest.mark.requirement("JMS-4.3.4-1", "JMS-4.3.4-3", "JMS-4.3.4-6", "JMS-4.3.4-8")
@pytest.mark.parametrize("change", ["stop", "replace", "take away", "join"])
def test_what_changes_while_a_listener_runs_holds_for_the_next_message(
    connection: Connection, queue: Queue, holds: Holds, eventually: Eventually, change: str
) -> None:
    """Many messages are at hand, behind the one that the listener has; none of them is delivered as before."""
    numbered(connection, queue, 60)
    bodies = [str(number) for number in range(60)]
    session = connection.create_session(Session.DUPS_OK_ACKNOWLEDGE)
    consumer = session.create_consumer(queue)
    consumer.message_listener = holds
    assert holds.running.wait(WAIT_SECONDS)
    later: list[str] = []
    changes = {
        "stop": connection.stop,
        "replace": lambda: setattr(consumer, "message_listener", lambda message: later.append(text(message))),
        "take away": lambda: setattr(consumer, "message_listener", None),
        "join": lambda: setattr(
            connection.create_session(Session.DUPS_OK_ACKNOWLEDGE).create_consumer(queue),
            "message_listener",
            lambda message: later.append(text(message)),
        ),
    }
    with ThreadPoolExecutor(1) as pool:
        changing = pool.submit(changes[change])
        if change == "join":  # waits for no listener, and gets what is at hand, all but what the busy one has
            changing.result(WAIT_SECONDS)
            eventually(lambda: len(later) == len(bodies) - 1)
        else:
            with pytest.raises(FutureTimeoutError):
                changing.result(NOTHING_SECONDS)
        holds.may_return.set()
        changing.result(WAIT_SECONDS)
    assert holds.heard == bodies[:1]
    if change == "stop":
        connection.start()
        eventually(lambda: len(holds.heard) == len(bodies))
    elif change == "take away":
        later += texts(consumer, len(bodies) - 1)
    eventually(lambda: len(holds.heard) + len(later) == len(bodies))
    assert holds.heard + later == bodies


@pytest.mark.requirement("JAK-recover-1", "JAK-recover-2", "JAK-recover-4", "JMS-4.4.11-8")
def test_a_listener_that_recovers_gets_the_oldest_of_its_messages_next(
    connection: Connection, queue: Queue, eventually: Eventually
) -> None:
    """It does not get what was at hand behind the present one."""
    numbered(connection, queue, 30)
    bodies = [str(number) for number in range(30)]
    session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    heard: list[str] = []

    def listen(message: Message) -> None:
        heard.append(text(message))
        if len(heard) == 5:
            session.recover()

    session.create_consumer(queue).message_listener = listen
    eventually(lambda: len(heard) == 5 + len(bodies))
    assert heard == bodies[:5] + bodies


@pytest.mark.requirement("JAK-recover-6", "JMS-4.4.14-1")
def test_a_consumer_with_much_at_hand_lets_the_others_of_its_session_have_theirs(
    connection: Connection, queue: Queue, other_queue: Queue, eventually: Eventually
) -> None:
    """Slow listeners take turns, message by message, also where one of them could continue with what is at hand."""
    count = len(numbered(connection, queue, 60))
    session = connection.create_session(Session.DUPS_OK_ACKNOWLEDGE)
    heard: list[str] = []
    running, may_go_on = threading.Event(), threading.Event()

    def slow(message: Message) -> None:
        heard.append(text(message))
        if len(heard) == 5:
            running.set()
            may_go_on.wait(WAIT_SECONDS)
        if len(heard) >= 5:
            threading.Event().wait(0.01)

    other = session.create_consumer(other_queue)
    other.message_listener = slow
    session.create_consumer(queue).message_listener = slow
    assert running.wait(WAIT_SECONDS)
    send(connection, other_queue, *(f"other {number}" for number in range(10)))
    eventually(lambda: consumer_statistics(other).ready == 10)
    may_go_on.set()
    eventually(lambda: len(heard) == count + 10)
    places = [at for at, body in enumerate(heard) if body.startswith("other")]
    assert places[0] < 10
    assert statistics.median(past - at for at, past in itertools.pairwise(places)) == 2


@pytest.mark.requirement("JAK-recover-2", "JMS-4.4.11-8")
@pytest.mark.parametrize(("mode", "again"), [(Session.CLIENT_ACKNOWLEDGE, 0), (SessionMode.INDIVIDUAL_ACKNOWLEDGE, 3)])
def test_after_recover_the_oldest_message_comes_first_whichever_consumer_had_it(
    connection: Connection, queue: Queue, other_queue: Queue, eventually: Eventually, mode: SessionMode, again: int
) -> None:
    """Before what is at hand for the consumer whose listener called it."""
    session = connection.create_session(mode)
    heard: list[str] = []

    def listen(message: Message) -> None:
        heard.append(text(message))
        if mode == SessionMode.INDIVIDUAL_ACKNOWLEDGE and len(heard) > 1:
            message.acknowledge()
        if len(heard) == 4:
            session.recover()

    session.create_consumer(other_queue).message_listener = listen
    send(connection, other_queue, "oldest")
    eventually(lambda: heard == ["oldest"])
    numbered(connection, queue, 30)
    session.create_consumer(queue).message_listener = listen
    eventually(lambda: len(heard) == 4 + 1 + 30 - again)
    assert heard == ["oldest", "0", "1", "2", "oldest", *(str(number) for number in range(again, 30))]


@pytest.mark.requirement("JAK-recover-2", "JAK-recover-4")
def test_after_recover_each_consumer_has_its_messages_again_before_one_has_the_rest(
    connection: Connection, kjms_destination_name: str, eventually: Eventually
) -> None:
    """None of them waits behind all that is at hand for the consumer whose listener called it."""
    session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    *others, queue = (Queue(f"{kjms_destination_name}-{number}") for number in range(3))
    heard: list[str] = []

    def listen(message: Message) -> None:
        heard.append(text(message))
        if len(heard) == 4:
            session.recover()

    for number, other in enumerate(others):
        session.create_consumer(other).message_listener = listen
        send(connection, other, f"old {number}")
        eventually(lambda: len(heard) == number + 1)  # noqa: B023 - called at once
    numbered(connection, queue, 200)
    session.create_consumer(queue).message_listener = listen
    eventually(lambda: len(heard) == 4 + 2 + 200)
    assert heard[:5] == ["old 0", "old 1", "0", "1", "old 0"]
    assert "old 1" in heard[5:50]
    assert [body for body in heard[4:] if body.isdigit()] == [str(number) for number in range(200)]
