"""Rules that hold in the corners: several consumers, closes from other threads, callbacks, and trouble half-way."""

from __future__ import annotations

import contextlib
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from kjms import (
    Connection,
    ConnectionFactory,
    InvalidDestinationException,
    JMSException,
    Message,
    MessageConsumer,
    Queue,
    RedeliveryPolicy,
    Session,
    TextMessage,
    Topic,
)
from kjms.broker import LocalBroker
from kjms.mapping.names import queue_group
from kjms.testing.engine import consumer_statistics, statistics
from tests.helpers import (
    NOTHING_MS,
    WAIT_MS,
    Desk,
    Eventually,
    Member,
    apart,
    delete_topic,
    errors_of_clients,
    members,
    send,
    texts,
    wait_for,
)

SOON = 2_000  # milliseconds: what is ready arrives in a few of them

TraceFunction = Callable[[FrameType, str, Any], Any]


def text(message: Message | None) -> str | None:
    return message.text if isinstance(message, TextMessage) else None


def received_by_waiting(
    consumer: MessageConsumer, cause: Callable[[], None], is_void: threading.Event | None = None
) -> str | None:
    """Return the text that *consumer* receives when it waits already while *cause* is called; None when none comes.

    Where *is_void* is set, none will come.
    """
    before = consumer_statistics(consumer).waiting
    with ThreadPoolExecutor(1) as pool:
        received = pool.submit(consumer.receive)
        wait_for(lambda: consumer_statistics(consumer).waiting > before, pause=0.001)
        cause()
        deadline = time.monotonic() + SOON / 1000
        while not received.done() and time.monotonic() < deadline and not (is_void is not None and is_void.is_set()):
            wait([received], 0.01)
        consumer.close()  # the last look before a time-out would hide that nobody was woken
        return text(received.result())


class Attempt(NamedTuple):
    """What a waiting consumer received, and whether another one had taken the message before: nothing is seen then."""

    received: str | None
    is_void: bool


def run_apart(code: str, broker: Any, *arguments: str) -> str:
    """Run *code* in a process of its own, so that what hangs there hangs nothing here; return what it printed."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, broker.bootstrap_servers, *arguments],
            capture_output=True,
            text=True,
            timeout=15,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.fail("it hangs")
    assert done.returncode == 0, done.stderr
    return done.stdout


# Several consumers of a queue.


@pytest.mark.requirement("JMS-4.4.10.1-2")
def test_a_later_consumer_gets_what_an_earlier_one_left_in_order(session: Session, queue: Queue) -> None:
    """What a closed consumer had not been given comes to the next one in the order of sending."""
    with session.create_producer(queue) as producer:
        for number in range(10):
            producer.send(session.create_text_message(str(number)))
    with session.create_consumer(queue) as first:
        assert text(first.receive(WAIT_MS)) == "0"
    with session.create_consumer(queue) as second:
        assert [text(second.receive(WAIT_MS)) for _ in range(9)] == [str(number) for number in range(1, 10)]


def test_a_waiting_consumer_gets_what_a_busy_one_could_have_had(connection: Connection, queue: Queue) -> None:
    """A message that two consumers want, one of them waiting, goes to the one that waits."""
    connection.create_session().create_consumer(queue)  # wants all, and receives nothing
    waiting = connection.create_session().create_consumer(queue, "kind = 'x'")
    assert received_by_waiting(waiting, lambda: send(connection, queue, "a", properties={"kind": "x"})) == "a"


@pytest.mark.requirement("JMS-4.4.10.1-2")
def test_consumers_whose_selectors_overlap_each_receive_in_order(connection: Connection, queue: Queue) -> None:
    """A consumer gets a sender's messages in their order, also when another one could have had some of them."""
    connection.create_session().create_consumer(queue)  # wants all, and receives nothing
    consumer = connection.create_session().create_consumer(queue, "kind = 'x'")
    send(connection, queue, *map(str, range(10)), properties={"kind": "x"})
    received = [text(consumer.receive(SOON)) for _ in range(10)]
    assert received == sorted(received, key=lambda text: int(text or -1))


def test_a_stopped_connection_starves_no_other_of_its_process(kjms_broker: Any, queue: Queue) -> None:
    """Messages for a stopped consumer, however many, do not keep back those for a started one."""
    factory = ConnectionFactory(kjms_broker.bootstrap_servers, prefetch=10)
    with factory.create_connection() as stopped, factory.create_connection() as started:
        stopped.create_session().create_consumer(queue, "kind = 'a'")
        started.start()
        consumer = started.create_session().create_consumer(queue, "kind = 'b'")
        send(started, queue, *map(str, range(20)), properties={"kind": "a"})
        send(started, queue, "mine", properties={"kind": "b"})
        assert text(consumer.receive(SOON)) == "mine"


def test_a_waiting_consumer_gets_what_came_while_a_listener_was_busy(
    connection: Connection, queue: Queue, other_queue: Queue
) -> None:
    """A session busy with one consumer's message does not keep another's message from a session that waits for it."""
    busy, may_return = threading.Event(), threading.Event()

    def listener(_message: Message) -> None:
        busy.set()
        may_return.wait(20)

    session = connection.create_session()
    here = session.create_consumer(queue)
    here.message_listener = lambda _message: None
    session.create_consumer(other_queue).message_listener = listener
    wait_for(lambda: consumer_statistics(here).waiting == 1, pause=0.001)
    send(connection, other_queue, "keeps the session busy")
    assert busy.wait(20)
    waiting = connection.create_session().create_consumer(queue)
    try:
        assert received_by_waiting(waiting, lambda: send(connection, queue, "a")) == "a"
    finally:
        may_return.set()


def test_a_listener_that_was_taken_away_takes_no_wake_up(connection: Connection, queue: Queue) -> None:
    """Once a consumer has no listener, a message goes to the consumer that waits."""
    former = connection.create_session().create_consumer(queue)
    former.message_listener = lambda _message: None
    wait_for(lambda: consumer_statistics(former).waiting == 1, pause=0.001)
    former.message_listener = None
    waiting = connection.create_session().create_consumer(queue)
    assert received_by_waiting(waiting, lambda: send(connection, queue, "a")) == "a"


def test_a_message_that_a_selector_chose_says_where_it_was_sent_to(session: Session, queue: Queue) -> None:
    """JMSDestination is the destination, with a selector as without."""
    consumer = session.create_consumer(queue, "kind = 'x'")
    message = session.create_text_message("a")
    message.properties["kind"] = "x"
    session.create_producer(queue).send(message)
    received = consumer.receive(WAIT_MS)
    assert received is not None
    assert received.jms_destination == queue


def test_acknowledging_is_not_held_up_by_another_consumer_that_waits(connection: Connection, queue: Queue) -> None:
    """A consumer that waits for other messages does not slow down those that receive."""
    waiting = connection.create_session().create_consumer(queue, "kind = 'never'")
    consumer = connection.create_session().create_consumer(queue, "kind = 'x'")
    send(connection, queue, *map(str, range(80)), properties={"kind": "x"})

    def seconds() -> float:
        begin = time.monotonic()
        for _ in range(20):
            assert consumer.receive(WAIT_MS) is not None
        return time.monotonic() - begin

    alone = seconds()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(waiting.receive)
        wait_for(lambda: consumer_statistics(waiting).waiting == 1, pause=0.001)
        beside = min(seconds() for _ in range(3))  # a busy machine slows down one round, not all
        waiting.close()
    assert beside < alone + 20 * 0.05  # half of an idle reader's poll


# Closing.


def test_a_message_whose_consumer_closes_under_its_listener_goes_to_others(
    connection: Connection, queue: Queue
) -> None:
    """A listener that raises after its consumer was closed leaves the message to another consumer."""
    running, may_return = threading.Event(), threading.Event()

    def fails(_message: Message) -> None:
        running.set()
        may_return.wait(20)
        raise RuntimeError("too late")

    leaving = connection.create_session().create_consumer(queue)
    leaving.message_listener = fails
    send(connection, queue, "a")
    assert running.wait(20)
    staying = connection.create_session().create_consumer(queue)
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(leaving.close)
        wait_for(lambda: consumer_statistics(staying).consumers == 1, pause=0.001)
        may_return.set()
        closing.result(20)
    assert text(staying.receive(SOON)) == "a"


def test_a_topic_consumers_messages_can_be_acknowledged_after_its_close(connection: Connection, topic: Topic) -> None:
    """Closing a consumer leaves its session's unacknowledged messages to be acknowledged."""
    session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    consumer = session.create_consumer(topic)
    send(connection, topic, "a")
    message = consumer.receive(WAIT_MS)
    consumer.close()
    assert message is not None
    message.acknowledge()


def test_a_listener_may_close_another_consumer_of_its_session(
    connection: Connection, queue: Queue, eventually: Eventually
) -> None:
    """Only its own consumer is refused to a listener: it runs in the thread to which the session belongs."""
    session = connection.create_session()
    other = session.create_consumer(Queue(f"{queue.queue_name}-other"))
    outcome: list[object] = []

    def listener(_message: Message) -> None:
        try:
            outcome.append(other.close())  # type: ignore[func-returns-value]
        except JMSException as error:
            outcome.append(error)

    session.create_consumer(queue).message_listener = listener
    send(connection, queue, "a")
    eventually(lambda: outcome)
    assert outcome == [None]


def test_a_consumer_and_its_session_may_close_at_once(connection: Connection, topic: Topic) -> None:
    """A session's close, from another thread, that meets a consumer's close disturbs neither."""
    for _ in range(5):
        session = connection.create_session()
        consumers = [session.create_consumer(topic) for _ in range(3)]
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(consumers[0].close)
            while not consumers[0]._is_closed:
                time.sleep(0.0001)
            pool.submit(session.close).result(20)
            first.result(20)
        assert session not in connection._sessions
        assert [consumer_statistics(consumer).consumers for consumer in consumers] == [0, 0, 0]


def test_stop_does_not_wait_for_a_receive_in_a_session_that_once_had_a_listener(kjms_broker: Any) -> None:
    """Stop holds delivery and returns, though a receive still waits."""
    code = """
import sys, threading, time
from kjms import *
connection = ConnectionFactory(sys.argv[1]).create_connection()
connection.start()
session = connection.create_session()
consumer = session.create_consumer(Queue(sys.argv[2]))
consumer.message_listener = print
consumer.message_listener = None
receiving = threading.Thread(target=consumer.receive)
receiving.start()
while session._core.guard._holder != receiving.ident:
    time.sleep(0.001)
connection.stop()
connection.close()
print("stopped")
"""
    assert "stopped" in run_apart(code, kjms_broker, "once-had-a-listener")


def test_a_session_whose_connection_stops_can_be_set_up_without_disturbance(
    kjms_factory: ConnectionFactory, queue: Queue
) -> None:
    """While the connection is stopped, a thread may use a session that has listeners already (JMS 2.0 §4.4.6)."""
    with kjms_factory.create_connection() as connection:
        for _ in range(20):
            with connection.create_session() as session:
                producer = session.create_producer(queue)
                session.create_consumer(queue).message_listener = lambda _message: None
                for _ in range(5):
                    producer.send(session.create_text_message("a"))
                    session._wakeup.set()  # as starting, stopping or another consumer does
        connection.start()
        assert len(list(connection.create_session().create_browser(queue))) == 100


@pytest.mark.requirement("JMS-4.3.5-10")
def test_a_send_that_meets_the_close_is_refused(kjms_broker: Any) -> None:
    """A send whose session is closed while it waits for the session is refused; it does not wait without limit."""
    code = """
import sys
from kjms import *
connection = ConnectionFactory(sys.argv[1]).create_connection()
session = connection.create_session()
producer = session.create_producer(Queue(sys.argv[2]))
class Late(TextMessage):
    def _stamp(self, *arguments):
        connection.close()  # as another thread may, at this moment
        super()._stamp(*arguments)
try:
    producer.send(Late("a"))
except IllegalStateException:
    print("refused")
"""
    assert "refused" in run_apart(code, kjms_broker, "a-send-that-meets-the-close")


# Callbacks.


@pytest.mark.requirement("JMS-4.6.2.4-4", "JAK-close-17")
@pytest.mark.parametrize("owner", ["producer", "session", "connection"])
def test_a_completion_listener_may_not_close_what_it_belongs_to(kjms_broker: Any, owner: str) -> None:
    """Close from a completion listener of the same producer, session or connection is an IllegalStateException."""
    code = """
import sys, threading
from kjms import *
connection = ConnectionFactory(sys.argv[1]).create_connection()
session = connection.create_session()
producer = session.create_producer(Queue("completion-close"))
told = threading.Event()
class Closes:
    def on_completion(self, message):
        try:
            {"producer": producer, "session": session, "connection": connection}[sys.argv[2]].close()
        except IllegalStateException:
            print("refused", flush=True)
        told.set()
    def on_exception(self, message, exception): print(exception)
producer.send(session.create_text_message("a"), completion_listener=Closes())
told.wait()
connection.close()
"""
    assert run_apart(code, kjms_broker, owner) == "refused\n"


def test_a_completion_listener_may_send(kjms_broker: Any) -> None:
    """A completion listener may use its session while no other thread does (JMS 2.0 §4.6.2.7)."""
    code = """
import sys, threading
from kjms import *
connection = ConnectionFactory(sys.argv[1]).create_connection()
session = connection.create_session()
producer = session.create_producer(Queue("completion-send"))
told = threading.Event()
class Sends:
    def on_completion(self, message):
        producer.send(session.create_text_message("b"))
        print("sent", flush=True)
        told.set()
    def on_exception(self, message, exception): print(exception)
producer.send(session.create_text_message("a"), completion_listener=Sends())
told.wait()
connection.close()
"""
    assert run_apart(code, kjms_broker) == "sent\n"


@pytest.mark.requirement("JMS-4.6.2.4-1")
def test_a_producer_and_its_connection_may_wait_for_sends_at_once(kjms_broker: Any) -> None:
    """Two closes that wait for the same sends both return when these are through."""
    code = """
import sys, threading, time
from kjms import *
connection = ConnectionFactory(sys.argv[1]).create_connection()
session = connection.create_session()
producer = session.create_producer(Queue("two-closes"))
may_return = threading.Event()
class Slow:
    def on_completion(self, message): may_return.wait()
    def on_exception(self, message, exception): print(exception)
producer.send(session.create_text_message("a"), completion_listener=Slow())
closes = []
for close in (producer.close, connection.close):
    closes.append(threading.Thread(target=close))
    closes[-1].start()
    time.sleep(0.2)  # it waits
may_return.set()
for thread in closes:
    thread.join()
print("closed")
"""
    assert run_apart(code, kjms_broker) == "closed\n"


@pytest.mark.requirement("JMS-4.6.2.8-2")
def test_completions_come_in_the_order_of_sending(kjms_broker: Any, queue: Queue, eventually: Eventually) -> None:
    """A send that takes longer to fail than a later one to succeed is reported first."""
    factory = ConnectionFactory(kjms_broker.bootstrap_servers, send_timeout=1_500)
    gone = Queue(f"{queue.queue_name}-gone")
    heard: list[str | None] = []

    class Hears:
        def on_completion(self, message: Message) -> None:
            heard.append(text(message))

        def on_exception(self, message: Message, exception: Exception) -> None:
            heard.append(text(message))

    with factory.create_connection() as connection:
        session = connection.create_session()
        session.create_producer(queue)
        producer = session.create_producer(None)
        producer.send(session.create_text_message("makes it known"), destination=gone)
        delete_topic(kjms_broker.bootstrap_servers, gone.queue_name)
        producer.send(session.create_text_message("first"), destination=gone, completion_listener=Hears())
        producer.send(session.create_text_message("second"), destination=queue, completion_listener=Hears())
        eventually(lambda: len(heard) == 2)
    assert heard == ["first", "second"]


@pytest.mark.requirement("JMS-4.3.8-3", "NEV-186")
def test_an_exception_listener_is_called_by_one_thread_at_a_time(kjms_broker: Any, eventually: Eventually) -> None:
    """Two problems at once are reported one after the other."""
    inside, most, told = [0], [0], [0]
    lock = threading.Lock()

    def listener(_exception: JMSException) -> None:
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        time.sleep(0.05)
        with lock:
            inside[0] -= 1
            told[0] += 1

    servers = kjms_broker.bootstrap_servers
    with errors_of_clients(servers) as errors, apart(servers) as connection:
        connection.exception_listener = listener
        for number in range(3):
            errors[0](KafkaError(KafkaError._FATAL, f"problem {number}", fatal=True))
        eventually(lambda: told[0] == 3)
    assert most[0] == 1


def test_a_listener_that_exits_does_not_end_delivery(
    connection: Connection, queue: Queue, eventually: Eventually
) -> None:
    """Whatever a listener raises, sys.exit included, its message comes again, and the next one after it."""
    heard: list[str | None] = []

    def exits_once(message: Message) -> None:
        heard.append(text(message))
        if len(heard) == 1:
            sys.exit()

    connection.create_session().create_consumer(queue).message_listener = exits_once
    send(connection, queue, "a", "b")
    deadline = time.monotonic() + 3
    while len(heard) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert heard == ["a", "a", "b"]


def test_a_completion_listener_that_exits_does_not_end_the_others(kjms_broker: Any) -> None:
    """Whatever a completion listener raises, later sends are reported, and closing ends."""
    code = """
import sys, threading
from kjms import *
connection = ConnectionFactory(sys.argv[1]).create_connection()
session = connection.create_session()
producer = session.create_producer(Queue("completion-exits"))
class Exits:
    def on_completion(self, message): sys.exit()
    def on_exception(self, message, exception): print(exception)
for _ in range(2):
    producer.send(session.create_text_message("a"), completion_listener=Exits())
connection.close()
print("closed")
"""
    assert "closed" in run_apart(code, kjms_broker)


# Trouble half-way.


def test_a_message_that_no_dead_letter_queue_takes_is_not_lost(
    kjms_broker: Any, queue: Queue, eventually: Eventually
) -> None:
    """Where the dead-letter queue is missing, the exception listener gets that; the message goes there in the end."""
    servers = kjms_broker.bootstrap_servers
    with ConnectionFactory(servers).create_connection() as connection:
        send(connection, queue, "bad", "good")
    policy = RedeliveryPolicy(max_deliveries=1)
    factory = ConnectionFactory(servers, create_destinations=False, redelivery=policy)
    heard: list[JMSException] = []
    with factory.create_connection() as connection:
        connection.exception_listener = heard.append
        connection.start()
        session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        consumer = session.create_consumer(queue)
        assert text(consumer.receive(WAIT_MS)) == "bad"
        session.recover()
        assert text(consumer.receive(WAIT_MS)) == "good"  # nobody waits for the one that cannot be moved
        eventually(lambda: heard)
        assert isinstance(heard[0], InvalidDestinationException)
        assert "dlq" in str(heard[0])
        with ConnectionFactory(servers).create_connection() as patient:
            patient.start()
            dead = patient.create_session().create_consumer(Queue(f"{queue.queue_name}.dlq"))
            assert text(dead.receive(WAIT_MS)) == "bad"
        session.close()


@pytest.mark.parametrize("setting", [{"no.such.setting": "1"}, {"fetch.min.bytes": "many"}])
def test_a_setting_that_kafka_refuses_is_a_jms_exception(
    kjms_broker: Any, queue: Queue, setting: dict[str, str]
) -> None:
    """Settings that librdkafka refuses raise a JMSException that names them, wherever they are first used."""

    def use() -> None:
        with ConnectionFactory(kjms_broker.bootstrap_servers, kafka=setting).create_connection() as connection:
            connection.start()
            connection.create_session().create_consumer(queue)

    with pytest.raises(JMSException, match=next(iter(setting))):
        use()


@pytest.mark.parametrize("line", ["destinations = 3", "kafka = 3", "queue_prefix = 5", "create_destinations = 'no'"])
def test_a_wrong_kind_of_value_in_a_file_is_a_value_error(tmp_path: Path, line: str) -> None:
    """A value of the wrong kind is refused when the file is read; the text names the setting."""
    path = tmp_path / "kjms.toml"
    path.write_text(f"{line}\n")
    with pytest.raises(ValueError, match=line.split(maxsplit=1)[0]):
        ConnectionFactory.from_config(path)


def test_a_restarted_reader_goes_on_where_it_was(kjms_broker: Any, topic: Topic, eventually: Eventually) -> None:
    """A subscription without a group whose reading failed repeats nothing that was received."""
    servers = kjms_broker.bootstrap_servers
    with apart(servers) as connection, members(servers) as made:
        connection.create_session().create_producer(topic)  # this makes it, so that nothing else is read for it
        consumer = connection.create_session().create_consumer(topic)
        send(connection, topic, "a", "b")
        assert texts(consumer, 2) == ["a", "b"]
        eventually(lambda: "kjms-destinations" not in statistics(connection).threads)

        def reads_topic(each: Any) -> bool:
            with contextlib.suppress(RuntimeError):  # it was closed
                return topic.topic_name in str(each.assignment())
            return False

        (reading,) = [each for group in made.values() for each in group if reads_topic(each)]
        before = sum(map(len, made.values()))
        reading.failure = RuntimeError("reading failed")
        eventually(lambda: sum(map(len, made.values())) > before)
        send(connection, topic, "c")
        assert text(consumer.receive(WAIT_MS)) == "c"


# Sharing out, once more.


# Callbacks and failures, once more.


def test_a_message_listener_may_close_a_producer(connection: Connection, queue: Queue, eventually: Eventually) -> None:
    """A listener may answer with a producer of its own session that it makes and closes."""
    session = connection.create_session()
    answers = Queue(f"{queue.queue_name}-answers")

    def listener(message: Message) -> None:
        with session.create_producer(answers) as producer:
            producer.send(session.create_text_message("answer"))

    session.create_consumer(queue).message_listener = listener
    send(connection, queue, "question")
    consumer = connection.create_session().create_consumer(answers)
    first, second = consumer.receive(SOON), consumer.receive(200)
    assert (text(first), second) == ("answer", None)


@pytest.mark.requirement("JAK-close-20")
def test_one_sessions_failure_to_close_leaves_no_other_open(kjms_broker: Any, desk: Desk, queue: Queue) -> None:
    """A connection closes all its sessions, and then tells what went wrong with one."""
    with members(kjms_broker.bootstrap_servers) as made:
        check_that_all_close(desk.connect(is_apart=True), queue, made)


def check_that_all_close(connection: Connection, queue: Queue, made: dict[str, list[Member]]) -> None:
    sessions = [connection.create_session() for _ in range(2)]
    consumers = [session.create_consumer(Queue(f"{queue.queue_name}-{n}")) for n, session in enumerate(sessions)]
    send(connection, Queue(f"{queue.queue_name}-0"), "a")
    assert consumers[0].receive(WAIT_MS) is not None
    made[queue_group(f"{queue.queue_name}-0")][0].refusal = KafkaError(
        KafkaError.GROUP_AUTHORIZATION_FAILED, "not taken"
    )
    with pytest.raises(JMSException, match="not taken"):
        connection.close()
    assert all(session._is_closed for session in sessions)


@pytest.mark.parametrize("mode", [Session.AUTO_ACKNOWLEDGE, Session.CLIENT_ACKNOWLEDGE])
def test_an_acknowledgement_that_failed_is_tried_again(kjms_broker: Any, desk: Desk, queue: Queue, mode: int) -> None:
    """After a commit that failed, the next receive, or acknowledge, does not pretend that all is well."""
    with members(kjms_broker.bootstrap_servers) as made:
        connection = desk.connect(is_apart=True)
        send(connection, queue, "a", "b")
        consumer = connection.create_session(mode).create_consumer(queue)
    message = consumer.receive(WAIT_MS)
    assert message is not None
    (member,) = made[queue_group(queue.queue_name)]
    member.refusal = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "not taken")
    acknowledge = message.acknowledge if mode == Session.CLIENT_ACKNOWLEDGE else consumer.receive_no_wait
    try:
        for _ in range(2):
            with pytest.raises(JMSException, match="not taken"):
                acknowledge()
    finally:
        member.refusal = None


def test_a_cluster_that_does_not_answer_holds_up_no_connection_to_another(kjms_factory: ConnectionFactory) -> None:
    """While one thread tries to reach a cluster that is away, another one can connect elsewhere."""
    away = ConnectionFactory("127.0.0.1:1", send_timeout=3_000)
    trying = threading.Event()

    def connect() -> None:
        trying.set()
        with pytest.raises(JMSException, match=r"127\.0\.0\.1:1"):
            away.create_connection()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(connect)
        assert trying.wait(20)
        time.sleep(0.1)
        kjms_factory.create_connection().close()
        assert not waiting.done()
        waiting.result(20)


@pytest.mark.slow
def test_looking_a_topic_up_does_not_make_it() -> None:
    """Without create_destinations nothing is created, whatever the cluster allows its clients."""
    with LocalBroker(config={"auto.create.topics.enable": "true"}) as broker:
        factory = ConnectionFactory(broker.bootstrap_servers, create_destinations=False)
        with factory.create_connection() as connection, connection.create_session() as session:
            for _ in range(3):
                with pytest.raises(InvalidDestinationException):
                    session.create_producer(Queue("not-there"))
                time.sleep(0.1)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        assert "not-there" not in admin.list_topics(timeout=10).topics


def test_two_messages_at_once_for_a_session_do_not_wait_behind_its_first(connection: Connection, queue: Queue) -> None:
    """Of two messages that arrive together, the one that a busy session cannot take goes to one that waits for it.

    The session may also take the second one first, where the commit that permits the other one is late: nothing is
    seen then, and the test begins again.
    """

    def attempt(number: int) -> Attempt:
        first, other = f"x{number}", f"y{number}"
        may_return, taken = threading.Event(), threading.Event()

        def send_both() -> None:
            with connection.create_session() as sending, sending.create_producer(queue) as producer:
                for kind in (first, other):
                    message = sending.create_text_message(kind)
                    message.properties["kind"] = kind
                    producer.send(message, delivery_mode=1)  # gathered into one batch

        with connection.create_session() as session:
            session.create_consumer(queue, f"kind = '{first}'").message_listener = lambda _message: may_return.wait(20)
            second = session.create_consumer(queue, f"kind = '{other}'")
            second.message_listener = lambda _message: taken.set()
            wait_for(lambda: consumer_statistics(second).waiting == 2, pause=0.001)
            waiting = connection.create_session().create_consumer(queue, f"kind = '{other}'")
            try:
                return Attempt(received_by_waiting(waiting, send_both, taken), taken.is_set())
            finally:
                may_return.set()

    outcomes = (attempt(number) for number in range(20))
    assert str(next(each for each in outcomes if not each.is_void).received).startswith("y")


def test_a_commit_that_waits_for_a_rebalance_does_not_keep_the_reader_from_polling(
    kjms_broker: Any, desk: Desk, queue: Queue, eventually: Eventually
) -> None:
    """The reader's own commits do not hold up its polls: the rebalance that they wait for happens in a poll."""
    with members(kjms_broker.bootstrap_servers) as made:
        connection = desk.connect(is_apart=True)
        send(connection, queue, "a")
        consumer = connection.create_session(Session.DUPS_OK_ACKNOWLEDGE).create_consumer(queue)
        eventually(lambda: consumer_statistics(consumer).ready and consumer_statistics(consumer).is_committed)
    (member,) = made[queue_group(queue.queue_name)]
    assert text(consumer.receive(WAIT_MS)) == "a"
    member.refusal = KafkaError(KafkaError.REBALANCE_IN_PROGRESS)
    try:
        send(connection, queue, "b")
        assert consumer.receive(NOTHING_MS) is None  # no commit permits it
        assert member.refused.wait(20)
        polls = member.polls
        assert consumer.receive(NOTHING_MS) is None
        assert member.polls > polls
    finally:
        member.refusal = None
    assert text(consumer.receive(SOON)) == "b"


@pytest.mark.slow
def test_closing_ends_though_kafka_is_gone(breakable_broker: LocalBroker) -> None:
    """A close that cannot acknowledge any more gives up after some seconds, and says so."""
    code = """
import sys
from kjms import *
connection = ConnectionFactory(sys.argv[1], send_timeout=2_000).create_connection()
connection.start()
session = connection.create_session()
session.create_producer(Queue("q")).send(session.create_text_message("a"))
consumer = session.create_consumer(Queue("q"))
consumer.receive()
print("received", flush=True)
sys.stdin.read()
try:
    connection.close()
except JMSException:
    pass
print("closed", flush=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, breakable_broker.bootstrap_servers],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "received\n"
    breakable_broker.kill()
    try:
        output, _ = process.communicate(timeout=25)
    except subprocess.TimeoutExpired:
        pytest.fail("close hangs")
    finally:
        process.kill()
        process.communicate()
    assert output == "closed\n"


def test_the_first_completion_listener_of_a_session_is_told_whatever_went_before(
    kjms_broker: Any, queue: Queue
) -> None:
    """A NON_PERSISTENT message whose loss is being reported does not take the next send's completion with it."""
    reporting, may_go_on = threading.Event(), threading.Event()
    heard: list[str | None] = []

    class Slow(logging.Handler):
        def emit(self, _record: logging.LogRecord) -> None:
            if not reporting.is_set():
                reporting.set()
                may_go_on.wait(20)

    class Hears:
        def on_completion(self, message: Message) -> None:
            heard.append(text(message))

        def on_exception(self, message: Message, _exception: Exception) -> None:
            heard.append(text(message))

    gone = Queue(f"{queue.queue_name}-gone")
    slow, log = Slow(), logging.getLogger("kjms.producer")
    with ConnectionFactory(kjms_broker.bootstrap_servers, send_timeout=1_500).create_connection() as connection:
        session = connection.create_session()
        session.create_producer(queue)
        producer = session.create_producer(None)
        producer.send(session.create_text_message("makes it known"), destination=gone)
        delete_topic(kjms_broker.bootstrap_servers, gone.queue_name)
        log.addHandler(slow)
        try:
            producer.send(session.create_text_message("lost"), destination=gone, delivery_mode=1)
            assert reporting.wait(20)
            for name in "ab":
                producer.send(session.create_text_message(name), destination=queue, completion_listener=Hears())
            threading.Event().wait(0.1)  # the listeners' thread begins
            may_go_on.set()
            wait_for(lambda: len(heard) == 2)
        finally:
            may_go_on.set()
            log.removeHandler(slow)
    assert heard == ["a", "b"]
