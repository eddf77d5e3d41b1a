"""Messages of a queue go to whoever wants them, in whatever process: selectors, busy owners, ends of all kinds.

Two connections with different Kafka settings have engines of their own, and so are to each other as processes are.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kjms import Connection, ConnectionFactory, Message, MessageConsumer, Queue, Session, TextMessage, Topic

SECONDS = 20_000
NONE = 300  # milliseconds in which nothing is to come

Eventually = Callable[[Callable[[], object]], None]
Process = Callable[..., Connection]
numbers = itertools.count()


@pytest.fixture
def process(kafka: Any) -> Iterator[Process]:
    """A function that returns a started connection with an engine of its own, as another process would have."""
    connections: list[Connection] = []

    def begin(prefetch: int = 1000) -> Connection:
        own = {"client.id": f"process-{next(numbers)}"}
        factory = ConnectionFactory(kafka.bootstrap_servers, kafka=own, hand_over=True, prefetch=prefetch)
        connections.append(factory.create_connection())
        connections[-1].start()
        return connections[-1]

    yield begin
    for connection in connections:
        connection.close()


def send(connection: Connection, queue: Queue | Topic, *texts: str, **properties: Any) -> None:
    with connection.create_session() as session, session.create_producer(queue) as producer:
        for text in texts:
            message = session.create_text_message(text)
            for name, value in properties.items():
                message.properties[name] = value
            producer.send(message)


def consume(connection: Connection, queue: Queue, selector: str | None = None, mode: int = 1) -> MessageConsumer:
    return connection.create_session(mode).create_consumer(queue, selector)


def owner_of(process: Process, queue: Queue, selector: str | None = None, mode: int = 1) -> MessageConsumer:
    """Return a consumer in a process that has the queue's partition: nobody else was there."""
    consumer = consume(process(), queue, selector, mode)
    send(consumer._session._connection, queue, "hello", kind="first")
    if selector is None:
        assert text(consumer.receive(SECONDS)) == "hello"
    return consumer


def text(message: Message | None) -> str:
    assert isinstance(message, TextMessage)
    return message.text or ""


def texts(consumer: MessageConsumer, count: int) -> list[str]:
    return [text(consumer.receive(SECONDS)) for _ in range(count)]


class Busy:
    """A listener that takes as long for each message as the test wants; on leaving the `with` block, no longer."""

    def __init__(self, consumer: MessageConsumer) -> None:
        self.got: list[str] = []
        self.blocks = False
        self._is_over = threading.Event()
        consumer.message_listener = self._on_message

    def _on_message(self, message: Message) -> None:
        self.got.append(text(message))
        if self.blocks:
            self._is_over.wait(60)

    def __enter__(self) -> Busy:
        self.blocks = True
        return self

    def __exit__(self, *_: object) -> None:
        self.blocks = False
        self._is_over.set()


@pytest.mark.requirement("JMS-5.8-2", "JMS-3.8.1-3")
def test_what_only_a_consumer_elsewhere_wants_goes_there(process: Process, queue: Queue) -> None:
    """A message goes to the consumer whose selector wants it, wherever; being handed over is no delivery."""
    here = owner_of(process, queue, "kind = 'first'")
    assert text(here.receive(SECONDS)) == "hello"
    there = consume(process(), queue, "kind = 'second'")
    send(here._session._connection, queue, "a", "b", "c", kind="second")
    send(here._session._connection, queue, "d", kind="first")
    for expected in "abc":
        message = there.receive(SECONDS)
        assert text(message) == expected
        assert message is not None
        assert not message.jms_redelivered
        assert message.get_int_property("JMSXDeliveryCount") == 1
        assert message.jms_destination == queue
    assert text(here.receive(SECONDS)) == "d"
    assert here.receive(NONE) is None


@pytest.mark.requirement("JMS-5.8-2")
def test_what_nobody_wants_stays_until_somebody_does(process: Process, queue: Queue) -> None:
    """Messages that no selector wants are seen by browsers, and go to the first who wants them, in their order."""
    here = owner_of(process, queue)
    here._session.close()
    here = consume(here._session._connection, queue, "kind = 'first'")
    sender = process()
    send(sender, queue, "a", "b", kind="second")
    with sender.create_session() as session, session.create_browser(queue) as browser:
        assert [text(message) for message in browser] == ["a", "b"]
    there = consume(sender, queue)
    assert texts(there, 2) == ["a", "b"]
    assert here.receive(NONE) is None


def test_a_busy_owner_shares(process: Process, queue: Queue) -> None:
    """Who has no partition gets messages while the owner's consumers are busy, each message once."""
    here, got = owner_of(process, queue), []
    there = [consume(process(), queue) for _ in range(2)]
    is_over = threading.Event()

    def listen(name: str) -> Callable[[Message], None]:
        def on_message(message: Message) -> None:
            is_over.wait(0.005)
            got.append((name, text(message)))

        return on_message

    here.message_listener = listen("here")
    for number, consumer in enumerate(there):
        consumer.message_listener = listen(f"there {number}")
    send(here._session._connection, queue, *map(str, range(600)))
    deadline = time.monotonic() + 20
    while len(got) < 600 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sorted(int(body) for _, body in got) == list(range(600))
    assert {name for name, _ in got} == {"here", "there 0", "there 1"}


@pytest.mark.parametrize("prefetch", [1, 1000])
def test_nothing_waits_behind_a_busy_consumer(
    process: Process, queue: Queue, eventually: Eventually, prefetch: int
) -> None:
    """While the owner's listener runs, every ready message reaches an idle consumer elsewhere, down to the last."""
    connection = process(prefetch)
    there: MessageConsumer
    with Busy(consume(connection, queue)) as here:
        send(connection, queue, "held")
        eventually(lambda: here.got == ["held"])
        there = consume(process(prefetch), queue)
        for count in (5, 1, 1):
            bodies = [str(number) for number in range(count)]
            send(connection, queue, *bodies)
            assert texts(there, count) == bodies
        assert here.got == ["held"]


@pytest.mark.parametrize("prefetch", [1, 1000])
@pytest.mark.parametrize("idle", ["the owner", "a third process"])
def test_nothing_waits_in_a_busy_process_that_was_quick(
    process: Process, queue: Queue, eventually: Eventually, idle: str, prefetch: int
) -> None:
    """What a quick process got in advance, and has no time for, goes on to a consumer that has, wherever."""
    connection = process(prefetch)
    with Busy(consume(connection, queue)) as here:
        send(connection, queue, "held")
        eventually(lambda: here.got == ["held"])
        with Busy(consume(process(prefetch), queue)) as there:
            there.blocks = False
            send(connection, queue, *map(str, range(300)))
            eventually(lambda: len(there.got) == 300)
            third = consume(process(prefetch), queue) if idle != "the owner" else None
            there.blocks = True
            send(connection, queue, *map(str, range(300, 340)))
            eventually(lambda: len(there.got) == 301)
            if third is None:
                here.__exit__()
                eventually(lambda: len(here.got) == 40)
                rest = here.got[1:]
            else:
                rest = texts(third, 39)
            assert sorted([*there.got[300:], *rest]) == sorted(map(str, range(300, 340)))
            assert len(there.got) == 301


def test_what_a_closing_process_leaves_goes_to_others(process: Process, queue: Queue, eventually: Eventually) -> None:
    """Messages that were handed over and not consumed are the others' when the process closes its connection."""
    here = owner_of(process, queue, "kind = 'first'")
    other = process()
    there = consume(other, queue, "kind = 'second'", Session.CLIENT_ACKNOWLEDGE)
    send(here._session._connection, queue, *"ab", kind="second")
    assert texts(there, 2) == ["a", "b"]
    waiting = consume(other, queue, "kind = 'second'")
    assert waiting.receive(NONE) is None
    send(here._session._connection, queue, *"cdef", kind="second")
    eventually(lambda: there._feed.reader.buffer.held == 4)
    other.close()
    here.close()
    here = consume(here._session._connection, queue, "kind = 'second'")
    assert sorted(texts(here, 6)) == list("abcdef")
    assert here.receive(NONE) is None


def test_what_a_consumer_leaves_goes_back(process: Process, queue: Queue, eventually: Eventually) -> None:
    """Messages whose consumer closes, while its process goes on, go back to where others find them."""
    here = owner_of(process, queue, "kind = 'first'")
    other = process()
    there = consume(other, queue, "kind = 'second'", Session.CLIENT_ACKNOWLEDGE)
    staying = consume(other, queue, "kind = 'third'")
    send(here._session._connection, queue, "a", kind="second")
    assert text(there.receive(SECONDS)) == "a"
    waiting = consume(other, queue, "kind = 'second'")
    assert waiting.receive(NONE) is None
    send(here._session._connection, queue, *"bcdef", kind="second")
    eventually(lambda: there._feed.reader.buffer.held == 5)
    waiting._session.close()
    there._session.close()
    here.close()
    here = consume(here._session._connection, queue, "kind = 'second'")
    assert sorted(texts(here, 6)) == list("abcdef")
    assert staying.receive(NONE) is None


def test_what_is_handed_over_is_part_of_transactions(process: Process, queue: Queue) -> None:
    """A rollback redelivers what was handed over, marked and counted; a commit settles it."""
    here = owner_of(process, queue, "kind = 'first'")
    there = consume(process(), queue, "kind = 'second'", Session.SESSION_TRANSACTED)
    send(here._session._connection, queue, "a", "b", kind="second")
    assert texts(there, 2) == ["a", "b"]
    there._session.rollback()
    again = there.receive(SECONDS)
    assert again is not None
    assert (text(again), again.jms_redelivered, again.get_int_property("JMSXDeliveryCount")) == ("a", True, 2)
    assert text(there.receive(SECONDS)) == "b"
    there._session.commit()
    there._session._connection.close()
    with consume(here._session._connection, queue, "kind = 'second'") as late:
        assert late.receive(NONE) is None


def test_shared_subscriptions_are_shared_among_processes(process: Process, topic: Topic) -> None:
    """The consumers of a shared subscription get each message once, also those without a partition."""
    first, second = process(), process()
    got: list[tuple[str, str]] = []
    is_over = threading.Event()

    def listen(name: str) -> Callable[[Message], None]:
        def on_message(message: Message) -> None:
            is_over.wait(0.005)
            got.append((name, text(message)))

        return on_message

    for name, connection in (("first", first), ("second", second)):
        consumer = connection.create_session().create_shared_consumer(topic, "shared", "kind = 'wanted'")
        consumer.message_listener = listen(name)
    send(first, topic, *map(str, range(400)), kind="wanted")
    send(first, topic, "no", kind="unwanted")
    deadline = time.monotonic() + 20
    while len(got) < 400 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sorted(int(body) for _, body in got) == list(range(400))
    assert {name for name, _ in got} == {"first", "second"}


def test_a_group_stays_together_elsewhere(process: Process, queue: Queue) -> None:
    """The messages of a group that only other processes want go to one of them, in their order."""
    here = owner_of(process, queue, "kind = 'first'")
    there = [consume(process(), queue, "kind = 'second'", Session.CLIENT_ACKNOWLEDGE) for _ in range(2)]
    for number in range(20):
        send(here._session._connection, queue, str(number), kind="second", JMSXGroupID=f"group {number % 2}")
    got: dict[str, list[tuple[int, int]]] = {"group 0": [], "group 1": []}
    deadline = time.monotonic() + 20
    while sum(map(len, got.values())) < 20 and time.monotonic() < deadline:
        for number, consumer in enumerate(there):
            message = consumer.receive(10)
            if message is not None:
                got[message.get_string_property("JMSXGroupID") or ""].append((number, int(text(message))))
    for name, entries in got.items():
        assert [entry for _, entry in entries] == list(range(int(name[-1]), 20, 2))
        assert len({number for number, _ in entries}) == 1
