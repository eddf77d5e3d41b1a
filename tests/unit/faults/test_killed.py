"""A process is killed: another takes over what it had, and what it had settled stays settled.

The in-memory Kafka ends a program's clients as ``kill -9`` does, and misses it after half a second.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

import pytest

from kjms import ConnectionFactory, JMSException, Queue, RedeliveryPolicy, Session, Topic
from kjms.testing import MemoryKafka
from kjms.testing.engine import tuned
from tests.helpers import WAIT_MS, WAIT_SECONDS, dead_letter_queue

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
        self._kafka.kill(self.name)
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
    """JMSXDeliveryCount goes on where it was, though the process was killed in the middle of a delivery."""
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
    assert 2 <= killed <= 3  # the first of these deliveries may not have been recorded
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
        kafka.lose_answer(operation, carried_out=carried_out, times=100, client_id=process.name)
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
