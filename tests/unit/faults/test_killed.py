"""A process is killed: another takes over what it had, and what it had settled stays settled.

The in-memory Kafka ends a program's clients as ``kill -9`` does, and misses it after half a second.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

import pytest

from kjms import (
    ConnectionFactory,
    JMSException,
    MessageConsumer,
    Queue,
    RedeliveryPolicy,
    Session,
    Topic,
)
from kjms.engine.kafka import KafkaError
from kjms.engine.statistics import HandoverStatistics
from kjms.mapping.names import queue_group
from kjms.testing import MemoryKafka
from kjms.testing.engine import consumer_statistics, tuned
from tests.helpers import (
    WAIT_MS,
    WAIT_SECONDS,
    Completions,
    Eventually,
    consume,
    dead_letter_queue,
    give_back,
    owner_of,
    send,
    text,
)

_numbers = itertools.count()
MISSED_SOON = {"session.timeout.ms": 500, "heartbeat.interval.ms": 100}


pytestmark = pytest.mark.filterwarnings(  # the threads of a process that is killed end as they may
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)


class Doomed:
    """A started connection of a process that will be killed.

    Args:
        kafka: The Kafka.
        stack: What ends with the test.
        options: Of the connection's factory.
    """

    def __init__(self, kafka: MemoryKafka, stack: contextlib.ExitStack, options: dict[str, Any]) -> None:
        self._kafka = kafka
        self.name = f"doomed {next(_numbers)}"
        settings = {"client.id": self.name, **MISSED_SOON}
        options = {"send_timeout": 2_000, **options}  # milliseconds that closing waits for what is never answered
        factory = ConnectionFactory(kafka.bootstrap_servers, kafka=settings, **options)
        self.connection = factory.create_connection()
        stack.callback(self.kill)
        self.connection.start()

    def session(self, mode: int = Session.AUTO_ACKNOWLEDGE) -> Session:
        """Return a new session."""
        return self.connection.create_session(mode)

    def kill(self) -> None:
        """Kill the process; what its threads do after that reaches no broker."""
        self._kafka.faults.kill(self.name)
        with contextlib.suppress(JMSException):
            self.connection.close()


@pytest.fixture
def doomed(kafka: MemoryKafka) -> Iterator[Callable[..., Doomed]]:
    """A function that begins a process that will be killed."""
    with contextlib.ExitStack() as stack:
        yield lambda **options: Doomed(kafka, stack, options)


@pytest.fixture
def after(desk: Any) -> Any:
    """A function that returns what is left in a queue for a process that comes later."""

    def after(queue: Queue, **options: Any) -> list[tuple[str, bool, int]]:
        return desk.left(queue, desk.connect(is_apart=True, **options))  # type: ignore[no-any-return]

    return after


@pytest.mark.requirement("JMS-4.4.11-8", "JMS-3.4.7-1")
def test_what_was_settled_out_of_order_stays_settled(desk: Any, doomed: Any, after: Any, queue: Queue) -> None:
    """The unsettled ones come again, marked, and nothing else; what was far from being delivered is not marked."""
    desk.send(queue, *range(400))
    process = doomed()
    consumer = process.session(Session.INDIVIDUAL_ACKNOWLEDGE).create_consumer(queue)
    messages = [consumer.receive(WAIT_MS) for _ in range(6)]
    for number in (1, 4, 2):
        messages[number].acknowledge()
    process.kill()
    left = after(queue)
    assert [int(name) for name, _, _ in left] == [0, 3, 5, *range(6, 400)]
    assert left[:3] == [("0", True, 2), ("3", True, 2), ("5", True, 2)]
    assert left[200:] == [(str(number), False, 1) for number in range(203, 400)]


@pytest.mark.requirement("JMS-4.4.11-3", "JMS-4.4.12-1", "JMS-4.4.12-2")
@pytest.mark.parametrize("mode", [Session.AUTO_ACKNOWLEDGE, Session.CLIENT_ACKNOWLEDGE])
def test_what_was_acknowledged_is_not_repeated(desk: Any, doomed: Any, after: Any, queue: Queue, mode: int) -> None:
    """Of what receive returned, only the last message may come again in AUTO_ACKNOWLEDGE, and none that was settled."""
    desk.send(queue, *range(10))
    process = doomed()
    consumer = process.session(mode).create_consumer(queue)
    messages = [consumer.receive(WAIT_MS) for _ in range(5)]
    messages[-1].acknowledge()
    process.kill()
    numbers = [int(name) for name, _, _ in after(queue)]
    if mode == Session.AUTO_ACKNOWLEDGE and numbers[0] == 4:
        del numbers[0]
    assert numbers == list(range(5, 10))


@pytest.mark.requirement("JMS-3.5.11-1")
def test_counts_survive(desk: Any, doomed: Any, after: Any, queue: Queue) -> None:
    """JMSXDeliveryCount continues where it was, though the process was killed in the middle of a delivery."""
    desk.send(queue, "a")
    process = doomed()
    session = process.session(Session.CLIENT_ACKNOWLEDGE)
    consumer = session.create_consumer(queue)
    for count in (1, 2, 3):
        assert desk.seen(consumer, 1) == [("a", count > 1, count)]
        session.recover()
    assert desk.seen(consumer, 1) == [("a", True, 4)]
    process.kill()
    assert after(queue) == [("a", True, 5)]


def test_a_message_that_kills_its_consumers_ends_as_a_dead_letter_alone(
    desk: Any, doomed: Any, after: Any, queue: Queue
) -> None:
    """The neighbours that were prefetched with it each time are delivered as if nothing had happened."""
    policy = RedeliveryPolicy(max_deliveries=2)
    desk.send(queue, *range(5), "poison", *range(5, 30))
    delivered: list[str] = []
    killed = 0
    while True:
        process = doomed(redelivery=policy)
        consumer = process.session().create_consumer(queue)
        while (message := consumer.receive(1_500)) is not None:
            if message.get_body(str) == "poison":
                process.kill()
                killed += 1
                break
            delivered.append(message.get_body(str))
        else:
            break
    assert sorted(set(map(int, delivered))) == list(range(30))
    assert len(delivered) <= 30 + killed  # each process that was killed may have one that was not acknowledged yet
    assert killed == 2
    assert desk.stored(dead_letter_queue(queue)) == ["poison"]


def deaths(doomed: Any, queue: Queue, policy: RedeliveryPolicy, mode: int, at_once: int) -> list[int]:
    """Let processes receive so many messages each, and be killed, as long as one of these is the poison.

    Return the counts of the poison. The last process acknowledges what it has.
    """
    counts: list[int] = []
    while len(counts) < 10:
        process = doomed(redelivery=policy)
        session = process.session(mode)
        consumer = session.create_consumer(queue)
        held = [consumer.receive(WAIT_MS) for _ in range(at_once)]
        poison = [message for message in held if message.get_body(str) == "poison"]
        if not poison:
            for message in held:
                message.acknowledge()
            if mode == Session.SESSION_TRANSACTED:
                session.commit()
            process.connection.close()
            break
        counts.append(poison[0].get_int_property("JMSXDeliveryCount"))
        process.kill()
    return counts


ONE_BY_ONE = [Session.CLIENT_ACKNOWLEDGE, Session.INDIVIDUAL_ACKNOWLEDGE, Session.SESSION_TRANSACTED]


@pytest.mark.parametrize("mode", ONE_BY_ONE)
def test_each_delivery_of_a_message_that_kills_its_process_counts(
    desk: Any, doomed: Any, after: Any, queue: Queue, mode: int
) -> None:
    """It is delivered as often as the policy says, its first delivery included, and is a dead letter then."""
    desk.send(queue, "poison", "good", "better")
    assert deaths(doomed, queue, RedeliveryPolicy(max_deliveries=3), mode, 1) == [1, 2, 3]
    assert [body for body, _, _ in after(queue)] == ["better"]
    assert desk.stored(dead_letter_queue(queue)) == ["poison"]


@pytest.mark.parametrize("mode", [Session.CLIENT_ACKNOWLEDGE, Session.INDIVIDUAL_ACKNOWLEDGE])
def test_a_message_that_kills_a_session_of_many_tasks_ends_as_a_dead_letter_alone(
    desk: Any, doomed: Any, after: Any, queue: Queue, mode: int
) -> None:
    """The process dies after its session has received others, which come again, and are no dead letters."""
    desk.send(queue, "poison", *range(6))
    assert deaths(doomed, queue, RedeliveryPolicy(max_deliveries=3), mode, 4) == [1, 2, 3]
    assert [body for body, _, _ in after(queue)] == ["4", "5"]
    assert desk.stored(dead_letter_queue(queue)) == ["poison"]


def test_of_what_a_crash_brings_to_its_limit_one_message_at_a_time_becomes_a_dead_letter(
    desk: Any, doomed: Any, after: Any, queue: Queue
) -> None:
    """Where not the oldest message is to blame, it is found by one crash more, and the newer ones are delivered."""
    policy = RedeliveryPolicy(max_deliveries=2)
    desk.send(queue, 0, "poison", *range(1, 5))
    assert deaths(doomed, queue, policy, Session.INDIVIDUAL_ACKNOWLEDGE, 3) == [1, 2, 3]
    assert [body for body, _, _ in after(queue)] == ["4"]
    assert desk.stored(dead_letter_queue(queue)) == ["0", "poison"]


@pytest.mark.parametrize("mode", [Session.CLIENT_ACKNOWLEDGE, Session.SESSION_TRANSACTED])
def test_a_crash_counts_for_the_last_message_of_each_session_alone_where_the_policy_says_so(
    desk: Any, doomed: Any, after: Any, queue: Queue, mode: int
) -> None:
    """A session that works on one message after the other, and acknowledges them together, loses no other message."""
    policy = RedeliveryPolicy(max_deliveries=3, count_crashes="last")
    desk.send(queue, *range(3), "poison", *range(3, 6))
    assert deaths(doomed, queue, policy, mode, 4) == [1, 2, 3]
    assert [body for body, _, _ in after(queue)] == ["4", "5"]
    assert desk.stored(dead_letter_queue(queue)) == ["poison"]


@pytest.mark.requirement("JMS-4.4.7-2", "JMS-4.4.7-4", "NEV-217")
@pytest.mark.parametrize("operation", [None, "send_offsets", "commit_transaction"])
@pytest.mark.parametrize("carried_out", [True, False], ids=["carried out", "not carried out"])
def test_a_transaction_is_all_or_nothing(
    kafka: MemoryKafka, desk: Any, doomed: Any, after: Any, queue: Queue, other_queue: Queue,
    operation: Any, carried_out: bool,
) -> None:  # fmt: skip
    """Killed while its commit waits for an answer, or before: source and target have each message once between them."""
    desk.send(queue, *"ab")
    process = doomed()
    session = process.session(Session.SESSION_TRANSACTED)
    assert desk.texts(session.create_consumer(queue), 1) == ["a"]
    desk.send(other_queue, "a", by=session)
    if operation is not None:
        kafka.faults.time_out(operation, carried_out=carried_out, times=100, client_id=process.name)
        with ThreadPoolExecutor(1) as pool:
            committing = pool.submit(session.commit)
            with contextlib.suppress(FutureTimeoutError):
                committing.exception(0.1)
            process.kill()
            committing.exception(WAIT_SECONDS)
    else:
        process.kill()
    left = [name for name, _, _ in after(queue)]
    assert left[-1] == "b"
    assert sorted([*left, *desk.stored(other_queue)]) == ["a", "b"]


@pytest.mark.requirement("JMS-6.11.5-6", "JMS-6.11.5-8")
@pytest.mark.parametrize("kind", ["durable", "shared_durable"])
def test_a_durable_subscription_goes_on(desk: Any, doomed: Any, topic: Topic, kind: str) -> None:
    """A process that comes later gets what was not acknowledged, marked, and what came since."""
    process = doomed(client_id="client")
    session = process.session(Session.CLIENT_ACKNOWLEDGE)
    consumer = getattr(session, f"create_{kind}_consumer")(topic, "daily")
    desk.send(topic, *"abc")
    messages = [consumer.receive(WAIT_MS) for _ in "ab"]
    messages[0].acknowledge()
    assert desk.texts(consumer, 1) == ["c"]
    process.kill()
    desk.send(topic, "d")
    with tuned(registry_questions=1):  # to the process that had the subscription
        session = desk.connect(client_id="client", is_apart=True).create_session()
    consumer = getattr(session, f"create_{kind}_consumer")(topic, "daily")
    assert desk.texts(consumer, 2) == ["c", "d"]


@pytest.mark.requirement("JMS-4.12-1")
def test_a_delayed_message_comes_though_its_sender_is_killed(desk: Any, doomed: Any, queue: Queue) -> None:
    """Any process that uses the queue moves it when it is due."""
    process = doomed()
    consumer = desk.connect(is_apart=True, kafka=MISSED_SOON).create_session().create_consumer(queue)
    desk.send(queue, "late", by=process.session(), delivery_delay=600)
    process.kill()
    assert desk.seen(consumer, 1) == [("late", False, 1)]


# Cells of docs/delivery-guarantees.md that nothing else shows.


@pytest.mark.parametrize("is_asynchronous", [False, True], ids=["NON_PERSISTENT", "completion listener"])
def test_a_send_that_is_not_confirmed_is_lost_with_its_process(
    kafka: MemoryKafka, desk: Any, doomed: Any, queue: Queue, is_asynchronous: bool
) -> None:
    """A send that does not wait has returned before the broker has the message."""
    process = doomed()
    session, completions = process.session(), Completions()
    desk.send(queue, "before", by=session)
    with kafka.faults.outage(client_id=process.name):
        how = {"completion_listener": completions} if is_asynchronous else {"delivery_mode": 1}
        desk.send(queue, "lost", by=session, **how)
        assert completions.texts == []
        process.kill()
    assert desk.stored(queue) == ["before"]


@pytest.mark.parametrize("mode", [Session.DUPS_OK_ACKNOWLEDGE, Session.CLIENT_ACKNOWLEDGE])
def test_what_was_received_and_not_committed_is_redelivered_marked(
    kafka: MemoryKafka, desk: Any, doomed: Any, after: Any, queue: Queue, mode: int
) -> None:
    """While the broker takes no commit, every message that the program received is redelivered with a mark."""
    desk.send(queue, *range(300))
    process = doomed()
    consumer = process.session(mode).create_consumer(queue)
    assert desk.texts(consumer, 1) == ["0"]
    kafka.faults.fail("commit", KafkaError.NOT_COORDINATOR, times=1_000_000, client_id=process.name)
    assert desk.texts(consumer, 19) == [str(number) for number in range(1, 20)]
    process.kill()
    left = after(queue)
    assert [int(name) for name, _, _ in left][-299:] == list(range(1, 300))
    assert all(is_marked for name, is_marked, _ in left if int(name) < 20)
    assert left[-1] == ("299", False, 1)


@pytest.mark.parametrize("mode", [Session.AUTO_ACKNOWLEDGE, Session.DUPS_OK_ACKNOWLEDGE])
def test_a_message_whose_listener_is_killed_is_redelivered(
    desk: Any, doomed: Any, after: Any, queue: Queue, mode: int
) -> None:
    """A message is acknowledged when its listener has returned, and not before."""
    desk.send(queue, "a", "b")
    process, entered, killed = doomed(), threading.Event(), threading.Event()

    def listener(_: Any) -> None:
        entered.set()
        killed.wait(WAIT_SECONDS)
        raise SystemExit

    process.session(mode).create_consumer(queue).message_listener = listener
    assert entered.wait(WAIT_SECONDS)
    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(process.kill)  # closing waits for the listener
        left = after(queue)
        killed.set()
        killing.result(WAIT_SECONDS)
    assert left[0] == ("a", True, 2)


@pytest.mark.parametrize("mode", [Session.CLIENT_ACKNOWLEDGE, Session.SESSION_TRANSACTED])
@pytest.mark.parametrize("is_committed", [False, True], ids=["at once", "later"])
def test_a_crash_right_after_a_rollback_forgets_the_delay_and_not_the_delivery(
    desk: Any, doomed: Any, after: Any, queue: Queue, eventually: Any, mode: int, is_committed: bool
) -> None:
    """The delay of the policy holds in the next process once it is committed; the delivery counts in any case."""
    desk.send(queue, "a", "b")
    process = doomed(redelivery=RedeliveryPolicy(delay=3_600_000))
    session = process.session(mode)
    consumer = session.create_consumer(queue)
    assert desk.texts(consumer, 1) == ["a"]
    give_back(session)
    if is_committed:
        eventually(lambda: consumer_statistics(consumer).partitions[0].is_committed)
    process.kill()
    first = after(queue)[0]
    assert first[0] == "b" or (first == ("a", True, 2) and not is_committed), "it may be committed by chance"


def test_an_acknowledgement_is_one_commit_for_each_queue(
    kafka: MemoryKafka, desk: Any, doomed: Any, after: Any, queue: Queue, other_queue: Queue
) -> None:
    """A process that is killed between them has acknowledged the messages of one queue, and not of the other."""
    desk.send(queue, "a")
    desk.send(other_queue, "b")
    process = doomed()
    session = process.session(Session.CLIENT_ACKNOWLEDGE)
    first, second = session.create_consumer(queue), session.create_consumer(other_queue)
    assert desk.texts(first, 1) == ["a"]
    message = second.receive(WAIT_MS)
    group = queue_group(other_queue.queue_name)
    kafka.faults.fail("commit", KafkaError.GROUP_AUTHORIZATION_FAILED, times=1_000, client_id=process.name, group=group)
    with pytest.raises(JMSException):
        message.acknowledge()
    process.kill()
    assert (after(queue), after(other_queue)) == ([], [("b", True, 2)])


@pytest.mark.parametrize("is_alone", [True, False], ids=["alone", "with another process"])
def test_a_shared_subscription_lasts_as_long_as_a_consumer_in_any_process(
    desk: Any, doomed: Any, topic: Topic, is_alone: bool
) -> None:
    """A non-durable one ends with its last consumer, and so do its messages; else another process gets them."""
    process = doomed()
    process.session(Session.CLIENT_ACKNOWLEDGE).create_shared_consumer(topic, "it")
    other = desk.connect(is_apart=True, kafka=MISSED_SOON).create_session()
    consumer = None if is_alone else other.create_shared_consumer(topic, "it")
    desk.send(topic, "a")
    process.kill()
    if consumer is None:
        with tuned(registry_questions=1):  # to the process that had the subscription
            consumer = desk.connect(is_apart=True).create_session().create_shared_consumer(topic, "it")
        desk.send(topic, "b")
    assert desk.texts(consumer, 1) == ["b" if is_alone else "a"]


def test_nothing_is_handed_over_to_a_process_that_was_killed_before(
    desk: Any, doomed: Any, queue: Queue, eventually: Eventually
) -> None:
    """A process that comes later reads what the killed one asked for, and waits for a sign of it."""
    home = desk.connect(is_apart=True, hand_over=True)
    owner_of(home, queue, "kind = 'first'")
    process = doomed(hand_over=True)
    there = process.session().create_consumer(queue, "kind = 'second'")
    there.message_listener = lambda message: None
    send(home, queue, "before", properties={"kind": "second"})
    eventually(lambda: consumer_statistics(there).dispatched == 1)
    process.kill()
    home.close()
    after = desk.connect(is_apart=True, hand_over=True)
    here = consume(after, queue, "kind = 'first'")
    eventually(lambda: handover_of(here).is_ready and handover_of(here).peers > 0)
    send(after, queue, "after", properties={"kind": "second"})
    eventually(lambda: consumer_statistics(here).unmatched == 1)
    assert handover_of(here).peers > 0  # its lease is not over, which would bring the message back
    assert text(consume(after, queue, "kind = 'second'").receive(WAIT_MS)) == "after"


def handover_of(consumer: MessageConsumer) -> HandoverStatistics:
    """Return what is known of the handover of the queue of *consumer*."""
    found = consumer_statistics(consumer).handover
    assert found is not None
    return found
