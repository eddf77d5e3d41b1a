"""A process loses partitions, sleeps, or is killed: what it holds is dispatched and acknowledged by one owner only.

A real Kafka cannot be made to do this at a chosen moment; the in-memory one can.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

import pytest

from kjms import (
    Connection,
    DestinationOptions,
    JMSException,
    MessageConsumer,
    Queue,
    RedeliveryPolicy,
    Session,
    TransactionRolledBackException,
)
from kjms.engine.kafka import KafkaError, KafkaException, open_producer
from kjms.mapping.names import queue_group
from kjms.testing import MemoryKafka
from kjms.testing.engine import consumer_statistics
from tests.helpers import (
    NOTHING_MS,
    NOTHING_SECONDS,
    WAIT_MS,
    WAIT_SECONDS,
    Desk,
    Eventually,
    Intercepted,
    dead_letter_queue,
    intercepted,
    owner_of,
    take,
    text,
    texts_of,
    wait_for,
)

SHORT_SESSION = {"session.timeout.ms": 500}
SLEEP_SECONDS = 2.5  # a process that does not poll for two may have lost its partitions without knowing it
MESSAGES = 300  # more than may be dispatched before the dispatch limit moves
MANY = 1_000_000

# A process that is killed has no threads; here they find no Kafka any more.
pytestmark = pytest.mark.filterwarnings("ignore:Exception in thread kjms:pytest.PytestUnhandledThreadExceptionWarning")


@pytest.fixture
def doomed(desk: Desk) -> Callable[..., Connection]:
    """A function that returns a started connection of the process ``doomed``, which Kafka misses soon."""

    def connect(**options: Any) -> Connection:
        return desk.connect(is_apart=True, kafka={"client.id": "doomed", **SHORT_SESSION}, **options)

    return connect


def is_ready(consumer: MessageConsumer, count: int) -> Callable[[], bool]:
    """Return a condition: *count* messages are held ready for *consumer*."""
    return lambda: consumer_statistics(consumer).ready == count


# Another member may have the partition.


@pytest.mark.requirement("JMS-4.4.11-5", "JMS-4.4.11-6")
def test_what_is_ready_of_a_lost_partition_is_dispatched_once(
    kafka: MemoryKafka, desk: Desk, queue: Queue, eventually: Eventually
) -> None:
    """Messages that were held ready when the partition was lost come from the log again, and from there only."""
    desk.send(queue, *"abcde")
    session = desk.session(Session.CLIENT_ACKNOWLEDGE)
    consumer = session.create_consumer(queue)
    assert text(consumer.receive(WAIT_MS)) == "a"
    eventually(is_ready(consumer, 4))
    assert kafka.faults.lose_partitions(group=queue_group(queue.queue_name)) == 1
    eventually(is_ready(consumer, 5))
    assert texts_of(take(consumer, 5)) == [*"abcde"]
    assert consumer.receive(NOTHING_MS) is None


@pytest.mark.requirement("JMS-4.4.11-5")
def test_a_lost_message_cannot_be_acknowledged(
    kafka: MemoryKafka, desk: Desk, queue: Queue, eventually: Eventually
) -> None:
    """The call raises that the partition was lost: another consumer may have the message by now."""
    desk.send(queue, "a", "b")
    session = desk.session(Session.CLIENT_ACKNOWLEDGE)
    consumer = session.create_consumer(queue)
    message = consumer.receive(WAIT_MS)
    assert message is not None
    eventually(is_ready(consumer, 1))
    assert kafka.faults.lose_partitions(group=queue_group(queue.queue_name)) == 1
    eventually(is_ready(consumer, 2))
    with pytest.raises(JMSException, match="1 of 1 messages belong to partitions that this session lost"):
        message.acknowledge()
    assert desk.texts(consumer, 2) == ["a", "b"]


@pytest.mark.requirement("JMS-4.4.7-2")
def test_a_transaction_with_a_lost_message_is_rolled_back(
    kafka: MemoryKafka, desk: Desk, queue: Queue, other_queue: Queue, eventually: Eventually
) -> None:
    """It sends nothing: another consumer may send the same when it gets the message that was lost."""
    desk.send(queue, "a", "b")
    session = desk.transacted()
    consumer = session.create_consumer(queue)
    assert desk.texts(consumer, 1) == ["a"]
    desk.send(other_queue, "A", by=session)
    eventually(is_ready(consumer, 1))
    assert kafka.faults.lose_partitions(group=queue_group(queue.queue_name)) == 1
    eventually(is_ready(consumer, 2))
    with pytest.raises(TransactionRolledBackException, match="partitions that this process lost"):
        session.commit()
    assert desk.seen(consumer, 1) == [("a", True, 2)]
    session.commit()
    assert desk.left(other_queue) == []


@pytest.mark.requirement("JMS-4.4.11-5", "JMS-4.4.11-6")
@pytest.mark.parametrize("mode", [Session.CLIENT_ACKNOWLEDGE, Session.SESSION_TRANSACTED])
def test_what_a_session_has_of_a_partition_that_goes_stays_with_it(
    kafka: MemoryKafka, desk: Desk, queue: Queue, eventually: Eventually, mode: int
) -> None:
    """Another process joins the group, and gets one of two partitions; the session acknowledges messages of both."""
    two = {queue.queue_name: DestinationOptions(partitions=2)}
    first, late = desk.connect(is_apart=True, destinations=two), desk.connect(is_apart=True, destinations=two)
    session = first.create_session(mode)
    consumer = session.create_consumer(queue)
    producer = open_producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in (0, 1):
        for body in (b"a", b"b"):
            producer.produce(queue.queue_name, body, None, number, headers=[], timestamp=0, on_delivery=None)
    assert producer.flush(WAIT_SECONDS) == 0
    have = take(consumer, 4)
    other = late.create_session().create_consumer(queue)
    eventually(lambda: len(consumer_statistics(consumer).numbers) == len(consumer_statistics(other).numbers) == 1)
    if session.transacted:
        session.commit()
    else:
        have[-1].acknowledge()
    first.close()
    assert desk.left(queue) == []


# A process that slept.


class Gate:
    """What consumers in a group may do, as a test says; a process whose consumer may not poll is as good as asleep.

    Attributes:
        may_poll: Polls wait for it.
        may_commit: Commits fail without it, as while the group rebalances.
        polls: How many there were.
    """

    def __init__(self) -> None:
        self.may_poll, self.may_commit = threading.Event(), threading.Event()
        self.may_poll.set()
        self.may_commit.set()
        self.polls = 0


class Guarded(Intercepted):
    """A consumer in a group that does what a gate lets it do."""

    def __init__(self, inner: Any, config: Mapping[str, Any], gate: Gate) -> None:
        super().__init__(inner, config)
        self._gate = gate

    def poll(self, timeout: float) -> Any:
        """Poll, as soon as that is allowed."""
        self._gate.may_poll.wait(WAIT_SECONDS)
        self._gate.polls += 1
        return self.inner.poll(timeout)

    def commit(self, **arguments: Any) -> Any:
        """Commit, if that is allowed."""
        if not self._gate.may_commit.is_set():
            raise KafkaException(KafkaError(KafkaError.REBALANCE_IN_PROGRESS))
        return self.inner.commit(**arguments)


@pytest.fixture
def gate() -> Iterator[Gate]:
    """What the consumer of `sleeper` may do."""
    gate = Gate()
    yield gate
    gate.may_poll.set()
    gate.may_commit.set()


@pytest.fixture
def sleeper(kafka: MemoryKafka, desk: Desk, queue: Queue, gate: Gate) -> MessageConsumer:
    """A consumer that has "a" and holds "b" and "c" ready, of a process that has slept since."""
    desk.send(queue, *"abc")
    with intercepted(kafka.bootstrap_servers, consumer=lambda inner, config: Guarded(inner, config, gate)):
        session = desk.session(Session.CLIENT_ACKNOWLEDGE, desk.connect(is_apart=True))
        consumer = session.create_consumer(queue)
        assert desk.texts(consumer, 1) == ["a"]
    wait_for(is_ready(consumer, 2))
    gate.may_poll.clear()
    time.sleep(SLEEP_SECONDS)
    return consumer


def test_a_process_that_slept_dispatches_nothing_before_it_knows(
    desk: Desk, sleeper: MessageConsumer, gate: Gate
) -> None:
    """What it holds ready may be another process's by now; the program gets it when Kafka has said that it is not."""
    assert sleeper.receive_no_wait() is None
    gate.may_poll.set()
    assert desk.texts(sleeper, 2) == ["b", "c"]


def test_a_commit_proves_what_a_process_that_slept_holds(
    desk: Desk, sleeper: MessageConsumer, gate: Gate, eventually: Eventually
) -> None:
    """Polls alone do not: nothing is dispatched while commits fail, though no program asked during the sleep."""
    gate.may_commit.clear()
    seen = gate.polls
    gate.may_poll.set()
    eventually(lambda: gate.polls > seen + 2)
    assert sleeper.receive(NOTHING_MS) is None
    gate.may_commit.set()
    assert desk.texts(sleeper, 2) == ["b", "c"]


@pytest.mark.requirement("JMS-4.4.11-3")
def test_the_next_message_waits_until_the_last_one_is_committed(
    kafka: MemoryKafka, desk: Desk, queue: Queue, gate: Gate
) -> None:
    """In AUTO_ACKNOWLEDGE a crash repeats one message at the most."""
    desk.send(queue, "a", "b")
    with intercepted(kafka.bootstrap_servers, consumer=lambda inner, config: Guarded(inner, config, gate)):
        consumer = desk.session(connection=desk.connect(is_apart=True)).create_consumer(queue)
        wait_for(is_ready(consumer, 2))
    assert text(next(iter(consumer))) == "a"
    gate.may_commit.clear()
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(consumer.receive, WAIT_MS)
        with pytest.raises(FutureTimeoutError):
            second.result(NOTHING_SECONDS)
        gate.may_commit.set()
        assert text(second.result(WAIT_SECONDS)) == "b"


@pytest.mark.requirement("JMS-4.4.11-3")
def test_close_waits_until_the_last_message_is_committed(
    kafka: MemoryKafka, desk: Desk, queue: Queue, gate: Gate
) -> None:
    """When a session is closed, the last message that it received is committed."""
    desk.send(queue, "a")
    with intercepted(kafka.bootstrap_servers, consumer=lambda inner, config: Guarded(inner, config, gate)):
        session = desk.session(connection=desk.connect(is_apart=True))
        consumer = session.create_consumer(queue)
        wait_for(is_ready(consumer, 1))

    def receive_and_close() -> None:  # the thread of a loop is the one whose close acknowledges its message
        assert text(next(iter(consumer))) == "a"
        gate.may_commit.clear()
        session.close()

    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(receive_and_close)
        with pytest.raises(FutureTimeoutError):
            closing.result(NOTHING_SECONDS)
        gate.may_commit.set()
        closing.result(WAIT_SECONDS)


# A process that is killed.


@pytest.mark.requirement("JMS-4.4.11-8")
def test_what_a_killed_process_had_is_marked(
    kafka: MemoryKafka, desk: Desk, queue: Queue, doomed: Callable[[], Connection]
) -> None:
    """No message is dispatched that Kafka could not know of: while commits fail, dispatch ends at the limit."""
    desk.send(queue, *range(MESSAGES))
    consumer = desk.session(Session.CLIENT_ACKNOWLEDGE, doomed()).create_consumer(queue)
    have = take(consumer, 1)
    kafka.faults.fail("commit", KafkaError.NOT_COORDINATOR, times=MANY, client_id="doomed")
    while (message := consumer.receive(NOTHING_MS)) is not None:
        have.append(message)
    kafka.faults.kill("doomed")
    came = take(desk.session(Session.CLIENT_ACKNOWLEDGE).create_consumer(queue), MESSAGES)
    assert texts_of(came) == [str(number) for number in range(MESSAGES)]
    assert 1 < len(have) < MESSAGES
    assert all(message.jms_redelivered for message in came[: len(have)])


@pytest.mark.requirement("JMS-4.4.7-2")
def test_a_dead_letter_is_settled_where_it_came_from(
    kafka: MemoryKafka, desk: Desk, queue: Queue, doomed: Callable[..., Connection]
) -> None:
    """It is written and settled in one Kafka transaction: once it is there, a kill brings nothing back."""
    desk.send(queue, "a", "b")
    session = desk.session(Session.CLIENT_ACKNOWLEDGE, doomed(redelivery=RedeliveryPolicy(max_deliveries=1)))
    assert desk.texts(session.create_consumer(queue), 1) == ["a"]
    session.recover()
    dead = desk.session().create_consumer(dead_letter_queue(queue))
    assert desk.texts(dead, 1) == ["a"]
    kafka.faults.kill("doomed")
    assert [body for body, _, _ in desk.left(queue)] == ["b"]
    assert dead.receive_no_wait() is None


def test_a_message_that_was_handed_over_is_settled_where_it_came_from(
    kafka: MemoryKafka, desk: Desk, queue: Queue, doomed: Callable[[], Connection]
) -> None:
    """It is copied and settled in one Kafka transaction: once it is elsewhere, a kill brings nothing back."""
    owner = owner_of(doomed(), queue, "kind = 'first'")
    assert desk.texts(owner, 1) == ["hello"]
    assert owner.receive(NOTHING_MS) is None  # which acknowledges it
    wanting = desk.session(connection=desk.connect(is_apart=True)).create_consumer(queue)
    desk.send(queue, "a")
    assert desk.texts(wanting, 1) == ["a"]
    kafka.faults.kill("doomed")
    assert desk.left(queue) == []


class Stuck(Intercepted):
    """A producer that gets no further than to the end of a transaction before its process is killed."""

    def __init__(
        self, inner: Any, config: Mapping[str, Any], reached: threading.Event, killed: threading.Event
    ) -> None:
        super().__init__(inner, config)
        self._reached, self._killed = reached, killed

    def __len__(self) -> int:
        return len(self.inner)

    def commit_transaction(self, timeout: float) -> Any:
        """Record the call, and return when it is too late."""
        self._reached.set()
        self._killed.wait(WAIT_SECONDS)
        return self.inner.commit_transaction(timeout)


def test_a_transaction_that_a_killed_process_left_open_is_ended(
    kafka: MemoryKafka, desk: Desk, queue: Queue, doomed: Callable[[], Connection]
) -> None:
    """The log has no earlier settlement of the queue: the next owner does not wait until it times out."""

    def commit() -> None:
        with contextlib.suppress(JMSException):
            session.commit()

    desk.send(queue, "a")
    reached, killed = threading.Event(), threading.Event()
    with intercepted(kafka.bootstrap_servers, producer=lambda *of: Stuck(*of, reached, killed)):
        session = desk.transacted(doomed())
        assert desk.texts(session.create_consumer(queue), 1) == ["a"]
        threading.Thread(target=commit, daemon=True).start()
        assert reached.wait(WAIT_SECONDS)
    kafka.faults.kill("doomed")
    killed.set()
    assert desk.seen(desk.session().create_consumer(queue), 1) == [("a", True, 2)]
