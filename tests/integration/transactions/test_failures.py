"""When a commit fails, and when everything fails during a commit: each message is in one place, and programs know."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

import kjms.client.session
from kjms import (
    DestinationOptions,
    JMSException,
    Queue,
    RedeliveryPolicy,
    Session,
    TransactionRolledBackException,
)
from kjms.broker import LocalBroker
from kjms.mapping.names import overflow, queue_group
from kjms.testing.engine import statistics, tuned
from tests.helpers import (
    NOTHING_MS,
    SHORT_SESSION,
    TRANSACTION_SECONDS,
    Eventually,
    Intercepted,
    intercepted,
    members,
    pause,
    running,
    text,
    texts_of,
    wait_for,
)

TOO_LARGE = "x" * 1_200_000  # characters; a Kafka topic takes about a million bytes unless told otherwise


def committing(session: Session) -> tuple[threading.Thread, list[JMSException]]:
    """Return a thread that commits *session*, and what that raises, once it has."""
    failures: list[JMSException] = []

    def commit() -> None:
        try:
            session.commit()
        except JMSException as failure:
            failures.append(failure)

    thread = threading.Thread(target=commit)
    thread.start()
    return thread, failures


# A message that Kafka does not take.


@pytest.mark.parametrize("guilty", [0, 1, 2])
def test_a_commit_that_fails_takes_no_other_sessions_along(
    desk: Any, commit_together: Any, queue: Queue, other_queue: Queue, guilty: int
) -> None:
    """Of sessions whose commits shared a Kafka transaction only that one is rolled back whose message was refused."""
    desk.send(queue, "0", "1", "2")
    connection = desk.connect(is_apart=True)
    sessions = [desk.transacted(connection) for _ in range(3)]
    consumers = [session.create_consumer(queue) for session in sessions]
    for number, (session, consumer) in enumerate(zip(sessions, consumers, strict=True)):
        assert desk.texts(consumer, 1) == [str(number)]
        if number == guilty:
            desk.send(other_queue, TOO_LARGE, by=session)
        desk.send(other_queue, *[f"{number} {index}" for index in range(1_000)], by=session)
    outcomes = commit_together(connection, *sessions)
    assert [type(outcome) for outcome in outcomes] == [
        TransactionRolledBackException if number == guilty else type(None) for number in range(3)
    ]
    innocent = [number for number in range(3) if number != guilty]
    stored = desk.stored(other_queue)
    for number in innocent:
        own = [entry for entry in stored if entry.startswith(f"{number} ")]
        assert own == [f"{number} {index}" for index in range(1_000)]
    assert len(stored) == 2_000
    assert desk.seen(consumers[guilty], 1) == [(str(guilty), True, 2)]
    for number in innocent:
        sessions[number].close()
    assert consumers[guilty].receive(NOTHING_MS) is None


# A partition that another process has now.


@pytest.mark.requirement("JAK-commit-9", "NET-47")
def test_what_was_lost_to_another_member_rolls_its_session_back_alone(
    desk: Any, commit_together: Any, queue: Queue, other_queue: Queue
) -> None:
    """A commit that comes too late raises, and sends nothing; others that share its Kafka transaction go through."""
    connection = desk.connect(is_apart=True)
    desk.send(queue, "a")
    desk.send(other_queue, "b")
    sessions = [desk.transacted(connection) for _ in range(2)]
    target = Queue(f"{queue.queue_name}-target")
    with members(desk.servers) as made:
        for session, place in zip(sessions, (queue, other_queue), strict=True):
            desk.send(target, *desk.texts(session.create_consumer(place), 1), by=session)
    made[queue_group(queue.queue_name)][0].lose(queue.queue_name, 0)
    outcomes = commit_together(connection, *sessions)
    assert isinstance(outcomes[0], TransactionRolledBackException)
    assert "another consumer" in str(outcomes[0])
    assert outcomes[1] is None
    connection.close()
    assert desk.stored(target) == ["b"]
    assert desk.left(queue) == [("a", True, 2)]
    assert desk.left(other_queue) == []


def test_while_members_come_and_go_only_what_was_lost_is_rolled_back(
    desk: Any, queue: Queue, other_queue: Queue
) -> None:
    """A rebalance by itself is no reason; each message is moved once, whatever process had it."""
    options = {"partitions": 4, "ordering": "none", "is_apart": True}
    count = 200
    stay = desk.connect(**options)
    desk.send(queue, *range(count), by=(sender := stay.create_session()))
    sender.close()
    reasons: list[str] = []
    stop = threading.Event()

    def move(session: Session, until: Callable[[], bool]) -> None:
        consumer = session.create_consumer(queue)
        while not until():
            for _ in range(2):
                message = consumer.receive(20)
                if message is not None:
                    desk.send(other_queue, text(message), by=session)
            try:
                session.commit()
            except TransactionRolledBackException as failure:
                reasons.append(str(failure))
        session.close()

    thread = threading.Thread(target=move, args=(desk.transacted(stay), stop.is_set))
    thread.start()
    for _ in range(3):
        guest = desk.connect(**options)
        ends = time.monotonic() + 0.7
        move(desk.transacted(guest), lambda ends=ends: time.monotonic() > ends)
        guest.close()
    stop.set()
    thread.join()
    rest = desk.transacted(stay)
    desk.send(other_queue, *desk.texts(rest.create_consumer(queue), count - len(desk.stored(other_queue))), by=rest)
    rest.commit()
    assert sorted(map(int, desk.stored(other_queue))) == list(range(count))
    assert all("another consumer" in reason for reason in reasons), reasons


HOLD = """
connection = factory.create_connection()
connection.start()
session = connection.create_session(True)
consumer = session.create_consumer(source)
producer = session.create_producer(target)
for _ in range(3):
    producer.send(session.create_text_message("slept " + consumer.receive(20_000).text))
print("ready", flush=True)
sys.stdin.readline()
try:
    session.commit()
except JMSException as failure:
    print(type(failure).__name__, failure, flush=True)
else:
    print("committed", flush=True)
os._exit(0)
"""


@pytest.mark.requirement("JAK-commit-9", "NET-47", "JMS-7.3-19")
def test_a_process_that_slept_too_long_commits_nothing(own_desk: Any, queue: Queue, other_queue: Queue) -> None:
    """What it had received another process has moved meanwhile; its commit raises, and nothing is there twice."""
    desk = own_desk
    desk.send(queue, *"abc")
    with running(desk.servers, HOLD, kafka=SHORT_SESSION, source=queue, target=other_queue) as child:
        pause(child.pid)
        try:
            session = desk.transacted()
            consumer = session.create_consumer(queue)
            assert desk.seen(consumer, 3) == [(name, True, 2) for name in "abc"]
            desk.send(other_queue, *"abc", by=session)
            session.commit()
        finally:
            os.kill(child.pid, signal.SIGCONT)
        answer, _ = child.communicate("go\n", timeout=40)
    assert answer.startswith("TransactionRolledBackException")
    assert desk.stored(other_queue) == ["a", "b", "c"]
    assert consumer.receive(NOTHING_MS) is None


# Processes that are killed.

KILLED = """
from tests.helpers import Intercepted, intercepted
armed = False

class Mortal(Intercepted):
    def __getattr__(self, name):
        called = getattr(self.inner, name)
        if name != step or "transactional.id" not in self.config:
            return called
        def call(*arguments, **named):
            if armed and when == "before":
                os.kill(os.getpid(), 9)
            answer = called(*arguments, **named)
            if armed and when == "after":
                os.kill(os.getpid(), 9)
            return answer
        return call

block = intercepted(servers, producer=Mortal)
block.__enter__()
connection = factory.create_connection()
connection.start()
session = connection.create_session(True)
consumer = session.create_consumer(source)
producer = session.create_producer(target)
print("ready", flush=True)
for number in range(4):
    producer.send(session.create_text_message(consumer.receive(20_000).text))
    if number % 2:
        session.commit()
        armed = True  # the second commit is the last
os._exit(1)
"""
STEPS = [
    ("begin_transaction", "after"),
    ("produce", "after"),
    ("flush", "after"),
    ("send_offsets_to_transaction", "before"),
    ("send_offsets_to_transaction", "after"),
    ("commit_transaction", "before"),
    ("commit_transaction", "after"),
]


@pytest.mark.slow
@pytest.mark.requirement("JMS-4.4.13-2")
def test_a_process_killed_at_any_step_leaves_each_message_in_one_place(own_desk: Any, queue: Queue) -> None:
    """Source and target together have each message once: the program's last commit came through, or it did not."""
    desk = own_desk
    names = [(Queue(f"{queue.queue_name}-{n}"), Queue(f"{queue.queue_name}-to-{n}")) for n in range(len(STEPS))]
    for source, _ in names:
        desk.send(source, *range(6))
    with contextlib.ExitStack() as stack:
        children = [
            stack.enter_context(
                running(
                    desk.servers,
                    KILLED,
                    kafka=SHORT_SESSION,
                    servers=desk.servers,
                    source=source,
                    target=target,
                    step=step,
                    when=when,
                )
            )
            for (source, target), (step, when) in zip(names, STEPS, strict=True)
        ]
        for child in children:
            child.communicate(timeout=40)
        assert [child.returncode for child in children] == [-signal.SIGKILL] * len(STEPS)
    for (source, target), step in zip(names, STEPS, strict=True):
        came_through = step == ("commit_transaction", "after")
        left = desk.left(source)  # waits until the group has noticed, and the dead one's transaction has ended
        assert desk.stored(target) == ["0", "1", "2", "3"][: 4 if came_through else 2], step
        assert [name for name, _, _ in left] == [str(number) for number in range(4 if came_through else 2, 6)], step
        if not came_through:
            assert [(is_marked, count) for _, is_marked, count in left[:2]] == [(True, 2)] * 2, step


# Producers that Kafka fences, and commits whose answer is lost.


def fence(desk: Any, connection: Any) -> None:
    """Be a second producer of the name of the connection's committer."""
    name = statistics(connection).commits.transactional_id
    Producer({"bootstrap.servers": desk.servers, "transactional.id": name}).init_transactions(10)


def moved(desk: Any, connection: Any, queue: Queue, other_queue: Queue, *, is_received: bool) -> None:
    """Commit transactions; assert that each is there if its commit returned, and is not if it was rolled back."""
    desk.send(queue, *range(4))
    session = desk.transacted(connection)
    consumer = session.create_consumer(queue)
    expected: list[str] = []
    for number in range(4):
        name = desk.texts(consumer, 1)[0] if is_received else str(number)
        desk.send(other_queue, name, by=session)
        try:
            session.commit()
        except TransactionRolledBackException:
            pass
        else:
            expected.append(name)
    session.close()
    connection.close()
    assert desk.stored(other_queue) == expected
    assert expected[:1] == ["0"]
    assert len(expected) >= 3
    left = [name for name, _, _ in desk.left(queue)]
    assert left == ([str(number) for number in range(4) if str(number) not in expected] if is_received else [*"0123"])


@pytest.mark.parametrize(
    ("before", "is_received"),
    [
        *itertools.product(["begin_transaction", "produce", "commit_transaction"], [True, False]),
        ("send_offsets_to_transaction", True),
    ],
)
def test_a_fenced_producer_is_replaced(
    desk: Any, queue: Queue, other_queue: Queue, before: str, is_received: bool
) -> None:
    """Whenever it happens: what a commit says is what a read-committed reader sees."""
    calls = []

    class Fenced(Intercepted):
        def __getattr__(self, name: str) -> Any:
            step = getattr(self.inner, name)
            if name != before or self.config.get("transactional.id") != statistics(connection).commits.transactional_id:
                return step

            def fenced(*arguments: Any, **named: Any) -> Any:
                calls.append(before)
                if len(calls) == 2:  # the first transaction is as it should be
                    fence(desk, connection)
                return step(*arguments, **named)

            return fenced

    connection = desk.connect(is_apart=True)
    with intercepted(desk.servers, producer=Fenced):
        moved(desk, connection, queue, other_queue, is_received=is_received)
    assert len(calls) >= 4


@pytest.mark.parametrize("is_received", [True, False])
@pytest.mark.parametrize("is_committed", [True, False])
def test_a_commit_whose_answer_is_lost_is_looked_up(
    desk: Any, queue: Queue, other_queue: Queue, is_committed: bool, is_received: bool
) -> None:
    """The producer ends during the commit: the outcome in Kafka decides, and nothing is done twice."""
    calls = []

    class Forgetful(Intercepted):
        def commit_transaction(self, *arguments: Any) -> None:
            calls.append(arguments)
            if len(calls) != 2:
                self.inner.commit_transaction(*arguments)
                return
            if is_committed:
                self.inner.commit_transaction(*arguments)
            raise KafkaException(KafkaError(KafkaError._FENCED, "fenced", fatal=True))

    with intercepted(desk.servers, producer=Forgetful):
        moved(desk, desk.connect(is_apart=True), queue, other_queue, is_received=is_received)
    assert len(calls) == (4 if is_committed else 5)


@contextlib.contextmanager
def unanswered(desk: Any, name: str) -> Iterator[threading.Event]:
    """Have Kafka commit transactions of *name* and never say so; the event is set when it has the first."""
    is_committed = threading.Event()

    class Unanswered(Intercepted):
        def commit_transaction(self, *arguments: Any) -> None:
            if self.config["transactional.id"] != name:
                self.inner.commit_transaction(*arguments)
                return
            if is_committed.is_set():
                time.sleep(12)  # longer than closing waits for the answer, and than a commit is asked for
            else:
                self.inner.commit_transaction(*arguments)
            is_committed.set()
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer", retriable=True))

    with intercepted(desk.servers, producer=Unanswered):
        yield is_committed


def test_closing_does_not_overwrite_a_commit_whose_outcome_is_unknown(
    desk: Any, queue: Queue, other_queue: Queue
) -> None:
    """What the transaction settled stays settled: it is not moved, and left where it was, too.

    The commit raises that the outcome is unknown, or has found out in time that it came through.
    """
    connection = desk.connect(is_apart=True)
    desk.send(queue, "a", "b")
    session = desk.transacted(connection)
    consumer = session.create_consumer(queue)
    assert desk.texts(consumer, 1) == ["a"]
    desk.send(other_queue, "moved", by=session)
    with unanswered(desk, statistics(connection).commits.transactional_id) as is_committed:
        thread, outcomes = committing(session)
        assert is_committed.wait(20)
        connection.close()
        thread.join(20)
    assert not thread.is_alive()
    said = str(outcomes[0]) if outcomes else "it came through"
    assert said == "it came through" or "outcome unknown" in said
    assert desk.stored(other_queue) == ["moved"]
    assert [name for name, _, _ in desk.left(queue)] == ["b"]


def test_closing_does_not_overwrite_a_move_whose_outcome_is_unknown(desk: Any, queue: Queue) -> None:
    """A message that is in the dead-letter queue by then is not in its own as well."""
    policy = RedeliveryPolicy(max_deliveries=1)
    connection = desk.connect(is_apart=True, destinations={queue.queue_name: DestinationOptions(redelivery=policy)})
    desk.send(queue, "a")
    session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    consumer = session.create_consumer(queue)
    assert desk.texts(consumer, 1) == ["a"]
    with unanswered(desk, statistics(connection).moves.transactional_id) as is_committed:
        session.recover()
        assert consumer.receive(NOTHING_MS) is None
        assert is_committed.wait(20)
        connection.close()
    assert desk.stored(Queue(f"{queue.queue_name}.dlq")) == ["a"]
    assert desk.left(queue) == []


# A broker that is killed.


@pytest.mark.slow
def test_a_broker_killed_during_commits(
    breakable_broker: LocalBroker, own_desk: Any, queue: Queue, other_queue: Queue, eventually: Eventually
) -> None:
    """What a commit that returned had sent is there once; what one that raised had sent is not there at all."""
    desk = own_desk
    connection = desk.connect(is_apart=True)
    desk.send(queue, *range(400))
    stop = threading.Event()
    committed: list[str] = []
    rolled_back: list[str] = []
    moved_once: Counter[str] = Counter()

    def work(name: int, session: Session) -> None:
        consumer = session.create_consumer(queue) if name else None  # one only sends
        attempt = 0
        while not stop.is_set():
            attempt += 1
            sources = [str(attempt)]
            if consumer is not None:
                received = [message for message in (consumer.receive(50), consumer.receive_no_wait()) if message]
                sources = texts_of(received)
            texts = [f"{name} {attempt} {source}" for source in sources]
            try:
                desk.send(other_queue, *texts, by=session)
                session.commit()
            except TransactionRolledBackException:
                rolled_back.extend(texts)
            else:
                committed.extend(texts)
                if consumer is not None:
                    moved_once.update(sources)

    threads = [
        threading.Thread(target=work, args=(name, desk.transacted(connection)), daemon=True) for name in range(3)
    ]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: len(committed) > 60)
        breakable_broker.kill()
        before = len(committed)
        breakable_broker.start()
        eventually(lambda: len(committed) > before + 20)
    finally:
        stop.set()
    for thread in threads:
        thread.join()
    # Nothing is visible behind a transaction that is open: that of a commit that failed may be so until its time is up.
    wait_for(lambda: len(desk.stored(other_queue)) >= len(committed), TRANSACTION_SECONDS)
    stored = desk.stored(other_queue)
    assert sorted(stored) == sorted(committed)
    assert not set(stored) & set(rolled_back)
    connection.close()
    left = {name for name, _, _ in desk.left(queue)}
    assert {*moved_once, *left} == {str(number) for number in range(400)}
    assert set(moved_once.values()) == {1}
    assert not left & set(moved_once)


# Large ones.


def test_more_may_be_settled_at_random_than_kafka_has_room_for(desk: Any, queue: Queue, other_queue: Queue) -> None:
    """While one session holds messages at random places, the other's commits make the room that they need."""
    count = 1_000
    with tuned(metadata_limit=300):
        connection = desk.connect(is_apart=True)
    loading = desk.transacted(connection)
    desk.send(queue, *range(count), by=loading)
    loading.commit()
    holder, mover = desk.transacted(connection), desk.transacted(connection)
    ends = {session: session.create_consumer(queue) for session in (holder, mover)}
    chance = random.Random(5)
    held = []
    for number in range(count):
        session = holder if chance.random() < 0.3 else mover
        name = desk.texts(ends[session], 1)[0]
        if session is holder:
            held.append(name)
        desk.send(other_queue, name, by=session)
        if number % 50 == 49:
            mover.commit()
    mover.commit()
    topics = AdminClient({"bootstrap.servers": desk.servers}).list_topics(timeout=10).topics
    assert overflow(queue.queue_name, queue_group(queue.queue_name)) in topics
    assert sorted(map(int, [*desk.stored(other_queue), *held])) == list(range(count))
    holder.rollback()  # of what was relocated, too
    again = desk.texts(ends[holder], len(held))
    assert sorted(again) == sorted(held)
    desk.send(other_queue, *again, by=holder)
    holder.commit()
    assert sorted(map(int, desk.stored(other_queue))) == list(range(count))
    connection.close()
    assert desk.left(queue) == []


# Closing.


@pytest.mark.parametrize("is_too_large", [False, True])
def test_closing_a_session_gives_nothing_back_that_is_being_committed(
    desk: Any, queue: Queue, other_queue: Queue, monkeypatch: pytest.MonkeyPatch, is_too_large: bool
) -> None:
    """While a commit lasts longer than closing waits, no other consumer gets its messages, unless it fails."""
    monkeypatch.setattr(kjms.client.session, "CLOSE_SECONDS", 0.05)
    desk.send(queue, "a")
    may_go_on = threading.Event()

    class Waiting(Intercepted):
        def begin_transaction(self) -> None:
            may_go_on.wait(20)
            self.inner.begin_transaction()

    connection = desk.connect(is_apart=True)
    session = desk.transacted(connection)
    desk.send(other_queue, *desk.texts(session.create_consumer(queue), 1), by=session)
    if is_too_large:
        desk.send(other_queue, TOO_LARGE, by=session)
    with intercepted(desk.servers, producer=Waiting):
        thread, failures = committing(session)
        wait_for(lambda: statistics(connection).commits.is_busy)
        session.close()
        second = connection.create_session().create_consumer(queue)
        assert second.receive(NOTHING_MS) is None
        may_go_on.set()
        thread.join()
    assert [type(failure) for failure in failures] == [TransactionRolledBackException] * is_too_large
    assert desk.stored(other_queue) == ([] if is_too_large else ["a"])
    connection.close()
    assert desk.left(queue) == ([("a", True, 2)] if is_too_large else [])
