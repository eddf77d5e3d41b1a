"""Starting, stopping and closing: what waits, what is refused, and that nothing is left behind."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

import pytest

from kjms import (
    Connection,
    ConnectionFactory,
    IllegalStateException,
    InvalidClientIDException,
    InvalidDestinationException,
    InvalidSelectorException,
    JMSException,
    Message,
    MessageFormatException,
    Queue,
    Session,
    Topic,
)
from tests.helpers import (
    NOTHING_SECONDS,
    WAIT_MS,
    WAIT_SECONDS,
    Eventually,
    kjms_threads,
    refused,
    send,
    threads_since,
)


@pytest.mark.requirement("JMS-4.3.3-1", "JMS-4.3.3-2", "JMS-4.3.4-1", "JMS-4.3.4-2")
def test_nothing_is_delivered_while_the_connection_is_stopped(kjms_factory: ConnectionFactory, queue: Queue) -> None:
    """A new connection is stopped, one can be stopped: listeners are not called, and receives end without a message."""
    heard: list[Message] = []
    with kjms_factory.create_connection() as sending, kjms_factory.create_connection() as connection:
        sender = sending.create_session()
        consumer = connection.create_session().create_consumer(queue)
        other = Queue(f"{queue.queue_name}-heard")
        connection.create_session().create_consumer(other).message_listener = heard.append

        def nothing_comes() -> bool:
            return consumer.receive(100) is None and consumer.receive_no_wait() is None and not heard

        for place in (queue, other):
            for word in "ab":
                sender.create_producer(place).send(sender.create_text_message(word))
        assert nothing_comes()
        connection.start()
        assert consumer.receive(WAIT_MS).text == "a"  # type: ignore[union-attr]
        connection.stop()
        heard.clear()
        assert nothing_comes()
        connection.start()
        assert consumer.receive(WAIT_MS).text == "b"  # type: ignore[union-attr]


@pytest.mark.requirement("JMS-4.3.4-4", "NET-80", "NEV-158", "NEV-163")
@pytest.mark.parametrize("was_started", [False, True])
def test_a_stopped_connection_sends(
    kjms_factory: ConnectionFactory, connection: Connection, queue: Queue, was_started: bool
) -> None:
    """Its producers send before it was ever started, and after it was stopped."""
    with kjms_factory.create_connection() as stopped:
        session = stopped.create_session()
        if was_started:
            stopped.start()
            stopped.stop()
        session.create_producer(queue).send(session.create_text_message("a"))
        assert connection.create_session().create_consumer(queue).receive(WAIT_MS).text == "a"  # type: ignore[union-attr]


@pytest.mark.requirement("JMS-4.3.4-5")
def test_starting_and_stopping_twice_is_ignored(connection: Connection, queue: Queue) -> None:
    """Start on a started connection, and stop on a stopped one, change nothing: the other call undoes both."""
    session = connection.create_session()
    consumer, producer = session.create_consumer(queue), session.create_producer(queue)
    for word in "ab":
        connection.start()
        connection.start()
        producer.send(session.create_text_message(word))
        assert consumer.receive(WAIT_MS).text == word  # type: ignore[union-attr]
        connection.stop()
        connection.stop()
        producer.send(session.create_text_message(f"{word} held"))
        assert consumer.receive(100) is None
        connection.start()
        assert consumer.receive(WAIT_MS).text == f"{word} held"  # type: ignore[union-attr]


@pytest.mark.requirement("JMS-4.3.4-3", "JMS-4.3.4-6", "JMS-4.3.4-8", "JMS-4.3.4-9", "NEV-168", "NEV-169", "NEV-162")
def test_stop_waits_for_a_running_listener(connection: Connection, queue: Queue, eventually: Eventually) -> None:
    """Stop returns when running listeners have, and no listener is called after that."""
    running, may_return = threading.Event(), threading.Event()
    calls: list[str] = []
    answers, replies = connection.create_session(Session.SESSION_TRANSACTED), Queue(f"{queue.queue_name}-replies")

    def slow(message: Message) -> None:
        calls.append("begin")
        running.set()
        may_return.wait(20)
        with answers.create_producer(replies) as producer:  # the connection's services are all there
            producer.send(answers.create_text_message("reply"))
        answers.commit()
        calls.append("end")

    connection.create_session().create_consumer(queue).message_listener = slow
    session = connection.create_session()
    producer = session.create_producer(queue)
    producer.send(session.create_text_message("a"))
    assert running.wait(20)
    with ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(connection.stop)
        eventually(lambda: "stopped" in repr(connection))
        with pytest.raises(FutureTimeoutError):
            stopping.result(0.1)
        assert calls == ["begin"]
        may_return.set()
        stopping.result(20)
    assert calls == ["begin", "end"]
    assert [message.text for message in session.create_browser(replies)] == ["reply"]  # type: ignore[attr-defined]
    producer.send(session.create_text_message("b"))
    assert [message.text for message in session.create_browser(queue)] == ["b"]  # type: ignore[attr-defined]
    assert calls == ["begin", "end"]
    connection.start()
    eventually(lambda: len(calls) == 4)


@pytest.mark.parametrize(
    "what",
    [
        pytest.param("stop", marks=pytest.mark.requirement("JMS-4.3.4-10")),
        pytest.param("connection", marks=pytest.mark.requirement("JMS-4.3.5-5")),
        pytest.param("session", marks=pytest.mark.requirement("JMS-4.4.1-4", "JAK-close-7")),
        pytest.param("consumer", marks=pytest.mark.requirement("JMS-4.5.3-2")),
    ],
)
def test_a_listener_may_not_close_or_stop_its_own(
    connection: Connection, queue: Queue, what: str, eventually: Eventually
) -> None:
    """A listener that stops or closes its own connection, or closes its own session or consumer, gets an error."""
    session = connection.create_session()
    consumer = session.create_consumer(queue)
    call = {
        "stop": connection.stop,
        "connection": connection.close,
        "session": session.close,
        "consumer": consumer.close,
    }
    heard: list[str] = []

    def listener(message: Message) -> None:
        try:
            call[what]()
        except IllegalStateException as error:
            heard.append(type(error).__name__)
        heard.append(message.text)  # type: ignore[attr-defined]

    consumer.message_listener = listener
    sender = connection.create_session()
    for word in "ab":
        sender.create_producer(queue).send(sender.create_text_message(word))
    eventually(lambda: len(heard) == 4)
    assert heard == ["IllegalStateException", "a", "IllegalStateException", "b"]  # nothing was closed or stopped


@pytest.mark.parametrize("end", ["stop", "close"])
def test_ending_delivery_ends_it_in_all_sessions_at_once(
    kjms_factory: ConnectionFactory, connection: Connection, queue: Queue, end: str
) -> None:
    """While stop or close waits for the listener of one session, no other session starts on another message."""
    ended = kjms_factory.create_connection()
    held: list[Held] = [Held(), Held()]
    for listener in held:
        ended.create_session().create_consumer(queue).message_listener = listener
    send(connection, queue, *"abcdef")
    ended.start()
    for listener in held:
        assert listener.running.wait(WAIT_SECONDS)
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(getattr(ended, end))
        with pytest.raises(FutureTimeoutError):
            ending.result(NOTHING_SECONDS)
        held[1].may_return.set()
        with pytest.raises(FutureTimeoutError):
            ending.result(NOTHING_SECONDS)
        held[0].may_return.set()
        ending.result(WAIT_SECONDS)
    assert [listener.calls for listener in held] == [1, 1]
    ended.close()


class Held:
    """A listener that the test lets return, and that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.running, self.may_return = threading.Event(), threading.Event()

    def __call__(self, message: Message) -> None:
        self.calls += 1
        self.running.set()
        self.may_return.wait(WAIT_SECONDS)


@pytest.mark.requirement(
    "JMS-4.3.5-1", "JMS-4.3.5-4", "JMS-4.4.1-1", "JMS-4.4.1-3", "JMS-4.5.3-1", "JAK-close-6", "NEV-170",
)  # fmt: skip
@pytest.mark.parametrize("what", ["connection", "session", "consumer"])
def test_closing_ends_a_receive_that_waits(
    connection: Connection, queue: Queue, what: str, eventually: Eventually
) -> None:
    """A receive that waits when its consumer, session or connection is closed returns None."""
    session = connection.create_session()
    consumer = session.create_consumer(queue)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(consumer.receive)
        eventually(lambda: refused(session.recover))  # the other thread is using the session
        {"connection": connection, "session": session, "consumer": consumer}[what].close()
        assert waiting.result(20) is None


@pytest.mark.requirement("JMS-7.3-4", "NEV-314", "NET-19")
def test_commit_and_rollback_need_a_transacted_session(session: Session) -> None:
    """Commit and rollback of a session that is not transacted raise IllegalStateException."""
    for call in (session.commit, session.rollback):
        with pytest.raises(IllegalStateException):
            call()


@pytest.mark.requirement("JMS-4.3.2-1", "JMS-4.3.2-2", "JMS-4.3.2-3", "JMS-4.3.2-5", "JMS-7.3-7", "NEV-155", "NEV-157")
def test_the_client_id_is_set_first_or_by_the_factory(kafka: Any, kjms_factory: ConnectionFactory) -> None:
    """A client id comes from the factory, or is set once, before anything else."""
    servers = kafka.bootstrap_servers
    with ConnectionFactory(servers, client_id="billing").create_connection() as connection:
        assert connection.client_id == "billing"
        with pytest.raises(IllegalStateException, match="billing"):
            connection.client_id = "other"
    with kjms_factory.create_connection() as connection:
        with pytest.raises(InvalidClientIDException):
            connection.client_id = ""
        connection.client_id = "mine"
        assert connection.client_id == "mine"
    with kjms_factory.create_connection() as connection:
        connection.create_session()
        with pytest.raises(IllegalStateException, match="before anything else"):
            connection.client_id = "late"


@pytest.mark.requirement("JMS-4.4-2")
def test_threads_use_a_session_one_after_another(connection: Connection, queue: Queue) -> None:
    """What one thread made with a session another thread uses, when the first one is through."""
    session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    consumer, producer = session.create_consumer(queue), session.create_producer(queue)
    received: list[Any] = []

    def in_turn(name: str) -> None:
        producer.send(session.create_text_message(name))
        received.append((threading.current_thread().name, consumer.receive(WAIT_MS)))

    for name in ("first", "second", "first again"):
        thread = threading.Thread(target=in_turn, args=(name,), name=f"thread {name}")
        thread.start()
        thread.join(20)
    assert [(who, message.text) for who, message in received] == [
        (f"thread {name}", name) for name in ("first", "second", "first again")
    ]
    received[-1][1].acknowledge()


@pytest.mark.requirement("JMS-4.4.6-1")
def test_a_session_is_used_by_one_thread_at_a_time(
    connection: Connection, queue: Queue, eventually: Eventually
) -> None:
    """Using a session while another thread waits in it is refused at once, by name."""
    session = connection.create_session()
    consumer = session.create_consumer(queue)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(consumer.receive)
        eventually(lambda: refused(session.recover))
        with pytest.raises(IllegalStateException, match="tried to receive"):
            consumer.receive(1)
        consumer.close()
        assert waiting.result(20) is None


def test_a_consumer_with_a_listener_refuses_receive(session: Session, queue: Queue) -> None:
    """A consumer either calls its listener or is asked, not both; without a listener it can be asked again."""
    consumer = session.create_consumer(queue)
    consumer.message_listener = print
    assert consumer.message_listener is print
    with pytest.raises(JMSException, match="message listener"):
        consumer.receive(10)
    consumer.message_listener = None
    assert consumer.receive(10) is None


@pytest.mark.requirement("JMS-7.3-8", "JMS-7.3-9", "NET-23", "NEV-318", "NEV-319", "NET-318")
def test_bad_destinations_and_selectors_are_refused(session: Session, kafka: Any) -> None:
    """What is no destination, does not exist, or is no selector, gets an error that names it."""
    with pytest.raises(InvalidDestinationException, match="orders"):
        session.create_consumer("orders")  # type: ignore[arg-type]
    with pytest.raises(InvalidDestinationException):
        Queue("")
    with pytest.raises(InvalidSelectorException):
        session.create_consumer(Queue("kjms-test-selectors"), "a > > 1")
    with pytest.raises(InvalidDestinationException, match="destination"):
        session.create_producer().send(session.create_text_message("x"))
    with pytest.raises(MessageFormatException, match="None"):
        session.create_producer(Queue("kjms-test-none")).send(None)  # type: ignore[arg-type]
    strict = ConnectionFactory(kafka.bootstrap_servers, create_destinations=False)
    with strict.create_connection() as connection, connection.create_session() as other:
        for call in (other.create_consumer, other.create_producer):
            with pytest.raises(InvalidDestinationException, match=r"kjms-test-never-made.*create_destinations"):
                call(Topic("kjms-test-never-made"))


@pytest.mark.parametrize("name", ["kjms.registry", "orders.kjms.delayed", "__consumer_offsets"])
def test_what_kjms_or_kafka_keeps_for_itself_is_no_destination(session: Session, name: str) -> None:
    """Programs cannot send to, receive from or browse the library's own topics."""
    for call in (session.create_producer, session.create_consumer, session.create_browser):
        with pytest.raises(InvalidDestinationException, match=name):
            call(Queue(name))


@pytest.mark.requirement("JMS-4.6-2", "JMS-4.6-4", "JMS-4.6.1-1", "JMS-4.7-1", "NET-321", "NET-324")
def test_a_producers_settings_apply_unless_the_send_says_otherwise(session: Session, queue: Queue) -> None:
    """Mode, priority and time to live come from the producer, or from the call."""
    producer = session.create_producer()
    producer.priority, producer.delivery_mode, producer.time_to_live = 2, 1, 60_000
    first, second = session.create_text_message("1"), session.create_text_message("2")
    producer.send(first, queue)
    producer.send(second, destination=queue, delivery_mode=2, priority=9, time_to_live=0)
    consumer = session.create_consumer(queue)
    got = [consumer.receive(WAIT_MS) for _ in range(2)]  # the second, of a higher priority, may come first
    assert {(int(m.jms_delivery_mode), m.jms_priority, m.jms_expiration > 0) for m in got if m is not None} == {
        (1, 2, True),
        (2, 9, False),
    }
    for bad in (10, -1, True, "5"):
        with pytest.raises(ValueError, match="priority"):
            producer.priority = bad  # type: ignore[assignment]
    with pytest.raises(ValueError, match="delivery_mode"):
        producer.delivery_mode = 3
    with pytest.raises(ValueError, match="time_to_live"):
        producer.time_to_live = -1


@pytest.mark.requirement("JMS-4.6.2-2", "JMS-4.6.2.3-1", "JMS-4.6.2.3-2", "JMS-4.6.2.4-1", "JMS-4.6.2.8-2")
def test_asynchronous_sends_complete_in_order_and_before_close(connection: Connection, queue: Queue) -> None:
    """A completion listener gets each send, in order; close waits for them; synchronous sends keep the order."""
    done: list[str] = []

    class Listener:
        def on_completion(self, message: Message) -> None:
            done.append(message.text)

        def on_exception(self, message: Message, exception: Exception) -> None:
            done.append(f"failed: {exception}")

    with connection.create_session() as session:
        producer = session.create_producer(queue)
        for number in range(500):
            message = session.create_text_message(str(number))
            if number % 100 == 99:
                producer.send(message)
            else:
                producer.send(message, completion_listener=Listener())
    assert done == [str(number) for number in range(500) if number % 100 != 99]
    consumer = connection.create_session(Session.DUPS_OK_ACKNOWLEDGE).create_consumer(queue)
    assert [consumer.receive(WAIT_MS).text for _ in range(500)] == [str(number) for number in range(500)]  # type: ignore[union-attr]


@pytest.mark.requirement("NEV-175")
def test_closing_leaves_no_thread_behind(kjms_factory: ConnectionFactory, queue: Queue, eventually: Any) -> None:
    """When the last connection is closed, every thread has ended."""
    before = set(threading.enumerate())
    with kjms_factory.create_connection() as connection:
        connection.start()
        for _ in range(3):
            connection.create_session().create_consumer(queue).message_listener = print
            connection.create_session().create_consumer(Topic(queue.queue_name)).receive(1)
        opened = threads_since(before)
        assert [thread for thread in opened if queue.queue_name in thread.name]
    # A group that is just being joined is left a moment later.
    eventually(lambda: not [thread for thread in opened if thread.is_alive()])


def test_connections_with_the_same_settings_share_their_kafka_clients(
    kjms_factory: ConnectionFactory, queue: Queue
) -> None:
    """A hundred connections, each with a consumer on the same queue, need no more reader threads than one."""
    connections = [kjms_factory.create_connection() for _ in range(100)]
    try:
        for connection in connections:
            connection.start()
            connection.create_session().create_consumer(queue)
        assert len([name for name in kjms_threads() if queue.queue_name in name]) == 1
    finally:
        for connection in connections:
            connection.close()


def test_reprs_tell_the_state(kjms_factory: ConnectionFactory, queue: Queue) -> None:
    """Repr of everything tells its state in a line."""
    with kjms_factory.create_connection() as connection:
        session = connection.create_session()
        consumer, producer = session.create_consumer(queue), session.create_producer(queue)
        assert repr(connection).endswith("stopped, 1 sessions>")
        assert "AUTO_ACKNOWLEDGE" in repr(session)
        assert queue.queue_name in repr(consumer)
        assert "PERSISTENT" in repr(producer)
        assert connection.meta_data.jms_version == "2.0"
