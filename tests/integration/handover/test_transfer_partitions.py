"""Messages of a queue go to whoever wants them, in whatever process: selectors, busy owners, ends of all kinds.

Two connections with different Kafka settings have engines of their own, and so are to each other as processes are.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kjms import Connection, ConnectionFactory, Message, MessageConsumer, Queue, Session, TextMessage, Topic
from kjms.broker import LocalBroker

SECONDS = 20_000

Eventually = Callable[[Callable[[], object]], None]
Process = Callable[..., Connection]
numbers = itertools.count()


@pytest.fixture
def process(kjms_broker: LocalBroker) -> Iterator[Process]:
    """A function that returns a started connection with an engine of its own, as another process would have."""
    connections: list[Connection] = []

    def begin(prefetch: int = 1000) -> Connection:
        own = {"client.id": f"process-{next(numbers)}"}
        factory = ConnectionFactory(kjms_broker.bootstrap_servers, kafka=own, hand_over=True, prefetch=prefetch)
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


def test_a_box_is_free_when_no_commit_for_it_is_under_way(
    process: Process, queue: Queue, eventually: Eventually
) -> None:
    """A process that gives up its box says so only when its own last commit has ended: it would undo what others do."""
    here = owner_of(process, queue, mode=Session.CLIENT_ACKNOWLEDGE)
    with Busy(here):
        there = consume(process(), queue)
        send(here._session._connection, queue, "a", "b")
        assert text(there.receive(SECONDS)) in {"a", "b"}
        reader: Any = there._feed.reader
        handover = reader._handover
        eventually(lambda: handover._open)
        box = next(iter(handover._open))
        said: list[list[int]] = []
        send_notice = handover._send

        def listen(notice: dict[str, Any], *given: Any) -> None:
            said.append(notice.get("boxes", []))
            send_notice(notice, *given)

        handover._send = listen
        with reader.client_held(20):  # as by a thread that commits
            with reader.lock:
                handover._sure_until = 0.0
                assert not reader.plan([], [])[0]  # it is given up before anything more is committed for it
                assert not handover._open
                handover.speak()
            with reader.lock:
                handover.speak()
            assert len(said) >= 2
            assert all(box in boxes for boxes in said)
        eventually(lambda: not handover._going)
        with reader.lock:
            handover._box = -1
            handover.speak()
        assert box not in said[-1]


def test_a_claim_that_lapses_while_a_box_is_opened_opens_none(
    process: Process, queue: Queue, eventually: Eventually
) -> None:
    """Kafka may keep a process waiting while it opens its box; by then, the box may be another one's."""
    here = owner_of(process, queue, mode=Session.CLIENT_ACKNOWLEDGE)
    with Busy(here):
        there = consume(process(), queue)
        reader: Any = there._feed.reader
        held: list[bool] = []

        def restore(consumer: Any, wanted: Any, *more: Any) -> Any:
            found = type(reader._holdings).restore(reader._holdings, consumer, wanted, *more)
            if wanted and wanted[0][0] == reader._handover.topic and not held:
                reader._handover._sure_until = 0.0
                held.append(True)
            return found

        reader._holdings.restore = restore
        hold = reader._hold
        opened: list[list[Any]] = []

        def watched(consumer: Any, restored: Any, *more: Any) -> None:
            hold(consumer, restored, *more)
            if restored and restored[0].is_box:
                opened.append([partition for partition in restored if partition in reader._holdings])

        reader._hold = watched
        there._feed.start()
        send(here._session._connection, queue, "a", "b")
        assert text(there.receive(SECONDS)) in {"a", "b"}  # from the box that it claims next
        eventually(lambda: len(opened) > 1)
        assert opened[0] == []
        assert len(opened[1]) == 1
