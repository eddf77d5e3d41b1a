"""Ctrl-C while a message is sent, received or settled: at each point where Python runs the handlers of signals."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kjms import Message, MessageConsumer, Queue, Session, SessionMode, TextMessage
from kjms.client.jms_consumer import JMSConsumer
from kjms.engine import process_statistics
from kjms.engine.interrupts import Condition, Event
from kjms.testing import MemoryKafka
from tests.helpers import WAIT_MS, Desk, Intercepted, intercepted, interrupted_at, text, wait_for


class Interrupted(Intercepted):
    """A producer whose caller gets Ctrl-C when the record with the value ``stop`` is on its way."""

    def produce(self, topic: str, value: bytes, *arguments: Any, **named: Any) -> None:
        """Accept the record, and raise for that one."""
        self.inner.produce(topic, value, *arguments, **named)
        if value == b"stop":
            raise KeyboardInterrupt


class Sent:
    """A completion listener that keeps the texts of the messages that were sent."""

    def __init__(self) -> None:
        self.texts: list[str | None] = []

    def on_completion(self, message: Any) -> None:
        """Note that *message* was sent."""
        self.texts.append(message.text)

    def on_exception(self, message: Any, error: Exception) -> None:
        """Note that *message* was not sent, because of *error*."""
        self.texts.append(f"{message.text}: {error}")


def test_a_record_that_left_before_an_interrupt_completes(kafka: MemoryKafka, desk: Desk, queue: Queue) -> None:
    """The send raises KeyboardInterrupt, the message is sent all the same, and the sends after it complete in order."""
    with intercepted(kafka.bootstrap_servers, producer=Interrupted):
        session = desk.session(connection=desk.connect(is_apart=True))
        producer = session.create_producer(queue)
        sent = Sent()
        with pytest.raises(KeyboardInterrupt):
            producer.send(TextMessage("stop"), completion_listener=sent)
        producer.send(TextMessage("after"), completion_listener=sent)
        wait_for(lambda: len(sent.texts) == 2)
        producer.send(TextMessage("and waited for"))
    assert sent.texts == ["stop", "after"]
    assert [record.value() for record in desk.records(queue.queue_name)] == [b"stop", b"after", b"and waited for"]


# Receiving, and settling.


def in_flight(queue: Queue) -> int:
    """Return how many messages of *queue* sessions of this process have."""
    sources = [each for engine in process_statistics() for each in engine.group_consumers]
    return sum(each.in_flight for each in sources if each.topic == queue.queue_name)


def body(found: Message | str | None) -> str | None:
    """Return the text of a message that was found, if there is one."""
    return text(found) if isinstance(found, Message) else found


def receive(consumer: MessageConsumer) -> Message | None:
    """Wait for the next message."""
    return consumer.receive(WAIT_MS)


def receive_no_wait(consumer: MessageConsumer) -> Message | None:
    """Look for the next message until there is one."""
    while (message := consumer.receive_no_wait()) is None:
        pass
    return message


def receive_body(consumer: MessageConsumer) -> str | None:
    """Wait for the body of the next message."""
    return JMSConsumer(consumer).receive_body(str, WAIT_MS)


def loop(consumer: MessageConsumer) -> Message:
    """Take the next message by a loop, which stays open: an iterator that is dropped ignores interrupts."""
    loops.append(iter(consumer))
    return next(loops[-1])


loops: list[Any] = []
MODES = list(SessionMode)


def settle(session: Session) -> None:
    """Settle what *session* has received."""
    if session.transacted:
        session.commit()
    else:
        session._acknowledge()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("take", "is_late"),
    [(receive, False), (receive, True), (receive_no_wait, False), (receive_body, False), (loop, False)],
    ids=["receive", "receive that waits", "receive_no_wait", "receive_body", "loop"],
)
def test_an_interrupted_receive_loses_no_message_and_holds_none_back(
    desk: Desk,
    queue: Queue,
    mode: SessionMode,
    take: Callable[[MessageConsumer], Message | str | None],
    *,
    is_late: bool,
) -> None:
    """Wherever it comes, the same consumer gets the message next, acknowledged or not, and what follows it."""
    session, sending = desk.session(mode), desk.session()
    consumer, producer = session.create_consumer(queue), sending.create_producer(queue)
    got = Counter[str | None]()
    found: Message | str | None
    for number in itertools.count():
        wanted = str(number)
        sender = threading.Timer(0.002 if is_late else 0, producer.send, [TextMessage(wanted)])
        sender.start()
        if not is_late:
            sender.join()
        found = None
        with interrupted_at(number) as came:
            found = take(consumer)
        sender.join()
        while wanted not in got:
            found = found or consumer.receive(WAIT_MS)
            assert found is not None, f"point {number}: it does not come"
            got[body(found)] += 1
            found = None
        settle(session)
        if not came[0] or number == 400:  # a look that finds nothing has as many points as it takes
            break
    assert number > 20
    assert set(got) == {str(each) for each in range(number + 1)}
    session.close()
    wait_for(lambda: in_flight(queue) == 0)
    assert desk.left(queue) == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("ending", ["close", "the connection"])
@pytest.mark.parametrize(
    ("mode", "settling"),
    [
        *((mode, "acknowledge") for mode in (SessionMode.CLIENT_ACKNOWLEDGE, SessionMode.INDIVIDUAL_ACKNOWLEDGE)),
        *((SessionMode.SESSION_TRANSACTED, settling) for settling in ("commit", "rollback")),
        *((mode, "close") for mode in (SessionMode.AUTO_ACKNOWLEDGE, SessionMode.SESSION_TRANSACTED)),
        *((mode, "recover") for mode in (SessionMode.AUTO_ACKNOWLEDGE, SessionMode.CLIENT_ACKNOWLEDGE)),
    ],
)
def test_what_an_interrupted_call_leaves_goes_to_others(
    kafka: MemoryKafka, desk: Desk, queue: Queue, mode: SessionMode, settling: str, ending: str
) -> None:
    """Wherever it comes: what is settled was received, the rest comes again, and nothing stays in flight."""
    staying = desk.connection
    other, sending = desk.session(), desk.session()
    producer = sending.create_producer(queue)
    points = 0
    for number in itertools.count(0, 1 if ending == "close" else 3):
        names = [f"{number}.{each}" for each in range(3)]
        connection = desk.connect() if ending == "the connection" else staying
        session = connection.create_session(mode)
        consumer = session.create_consumer(queue)
        for name in names:
            producer.send(TextMessage(name))
        seen = {body(consumer.receive(WAIT_MS)), text(next(iter(consumer)))}
        with interrupted_at(number) as came:
            getattr(session, "_acknowledge" if settling == "acknowledge" else settling)()
        (connection if ending == "the connection" else session).close()
        rest = set[str | None]()
        with other.create_consumer(queue) as after:
            producer.send(TextMessage(desk.END))
            while (found := body(after.receive(WAIT_MS))) != desk.END:
                assert found is not None, f"point {number}: it is stuck"
                rest.add(found)
        assert rest | seen >= set(names), f"point {number}: lost"
        if settling == "rollback":
            assert rest == set(names), f"point {number}: settled by a rollback"
        assert in_flight(queue) == 0, f"point {number}: in flight"
        points += 1
        if not came[0]:
            break
    assert points > 5
    assert desk.left(queue) == []


@pytest.mark.parametrize("entering", [True, False])
def test_an_interrupted_condition_is_not_locked(*, entering: bool) -> None:
    """Python's own stays locked where an interrupt comes when it has just been locked, and others wait without end."""
    points = 0
    for number in itertools.count():
        event, condition = Event(), Condition()
        with interrupted_at(number) as came:
            if entering:
                event.set()
                event.clear()
            event.wait(0.001)
            with condition:
                condition.notify()
                condition.wait(0.001)
        others: list[bool] = []

        def use(event: Event = event, condition: Condition = condition, others: list[bool] = others) -> None:
            event.set()
            with condition:
                condition.notify_all()
            others.append(event.wait(0))

        thread = threading.Thread(target=use, daemon=True)
        thread.start()
        thread.join(WAIT_MS / 1000)
        assert others == [True], f"point {number}"
        assert not condition._waiters
        points += 1
        if not came[0]:
            break
    assert points > 10
